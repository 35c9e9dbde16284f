"""`pad` in PyTorch's order of axes: the last one first."""

from __future__ import annotations

from collections.abc import Sequence

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from ..arrays.shaping.padding import padded_axis
from ..core.library import compiled_when_repeated
from ..core.tensor import Tensor

_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@compiled_when_repeated
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Elements around the last axes: `pad` is (before, after) of the last axis, then of the one before it, ...

    `mode` is "constant" (`value`, 0), "reflect" (without the edge), "replicate" (the edge) or "circular", for any
    number of axes; negative numbers crop. Raises ArgumentError for an odd number of widths, ShapeError where a
    reflection or a circle would need more elements than there are. `hm.pad` has NumPy's order and modes.

    >>> pad(hm.asarray([[1, 2, 3]]), (1, 2), mode="reflect").tolist()
    [[2, 1, 2, 3, 2, 1]]
    """
    if mode != "constant" and mode not in _MODES:
        raise ArgumentError(f"pad: mode must be 'constant', 'reflect', 'replicate' or 'circular', got {mode!r}")
    if mode != "constant" and value is not None:
        raise ArgumentError(f"pad: value is for mode 'constant', not for {mode!r}")
    if len(pad) % 2 or len(pad) > 2 * input.ndim:
        raise ArgumentError(
            f"pad: pad must be (before, after) for each of at most {input.ndim} axes, got {len(pad)} numbers"
        )
    widths = [(0, 0)] * (input.ndim - len(pad) // 2)
    widths += reversed([(pad[k], pad[k + 1]) for k in range(0, len(pad), 2)])
    cropped = tuple(slice(max(-low, 0), n + min(high, 0)) for n, (low, high) in zip(input.shape, widths, strict=True))
    if any(part.start > part.stop for part in cropped):
        raise ShapeError(f"pad: {tuple(pad)} crops more than there is of shape {input.shape}")
    x = input[cropped] if any(low < 0 or high < 0 for low, high in widths) else input
    around = [(max(low, 0), max(high, 0)) for low, high in widths]
    if mode == "constant":
        return xp.pad(x, around, constant_values=0 if value is None else value)
    for axis, width in enumerate(around):
        most = {"reflect": max(x.shape[axis] - 1, 0), "circular": x.shape[axis]}.get(mode)
        if most is not None and max(width) > most:
            raise ShapeError(
                f"pad: axis {axis} of shape {input.shape} gives mode {mode!r} at most {most} elements, got {width}"
            )
        if width != (0, 0):
            x = padded_axis(x, axis, width, _MODES[mode])
    return x


__all__ = ["pad"]

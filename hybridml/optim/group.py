"""ParameterGroup: a dict of parameters and their hyper-parameters, whose numbers are tensors.

A traced step reads each number from its tensor, so that a changed learning rate is data and never a new program:
``group["lr"] = 0.01`` writes into the tensor that is already there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hybridml_compiler.errors import ArgumentError

from .. import arrays as xp
from ..core.context import no_grad
from ..core.tensor import Tensor
from ..tracing.python_state.mutation_epoch import attributes_changed

# Zero switches this part of an update off, and what is off is not in the program of a traced step.
SWITCHES = ("dampening", "momentum", "weight_decay")


class ParameterGroup(dict[str, Any]):
    """Dict of parameters and their hyper-parameters; numbers are float64 tensors (), written in place.

    Assigning a number writes into its tensor, which a traced step reads. float64 is what PyTorch's Python floats are:
    ``1 - 0.999`` in float32 is wrong by 1e-5. Raises TypeError or ArgumentError for a value that is not a number or a
    float tensor ().

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> opt.param_groups[0]["lr"] = 0.5
    >>> opt.lr.item()
    0.5
    """

    def __init__(self, items: Mapping[str, Any], numbers: Iterable[str]) -> None:
        super().__init__()
        self.numbers = frozenset(numbers)
        self._zero: set[str] = set()
        self.vectors: dict[str, Tensor] = {}  # numbers of the state, one for each parameter
        for key, value in items.items():
            self[key] = value

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self.numbers:
            super().__setitem__(key, value)
            attributes_changed()
            return
        held = self.get(key)
        if key in SWITCHES and held is not value:
            zero = isinstance(value, int | float) and value == 0
            if zero != (key in self._zero):
                (self._zero.add if zero else self._zero.discard)(key)
                held = None  # a new tensor: a traced step sees that it is another one, and is traced again
                attributes_changed()
        if held is None:
            made = tuple(_number(key, v) for v in value) if isinstance(value, tuple | list) else _number(key, value)
            super().__setitem__(key, made)
        elif isinstance(held, tuple):
            if not isinstance(value, tuple | list) or len(value) != len(held):
                raise ArgumentError(f"{key} of a parameter group is {len(held)} numbers, got {value!r}")
            for tensor, number in zip(held, value, strict=True):
                _write(key, tensor, number)
        else:
            _write(key, held, value)

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def uses(self, key: str) -> bool:
        """Whether a switch (momentum, dampening, weight decay) was set to anything but zero."""
        return key not in self._zero

    def values_as_python(self) -> dict[str, Any]:
        """Dict of everything but the parameters, with numbers as Python floats."""
        return {key: _python(value) for key, value in self.items() if key != "params"}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (dict(self), self.numbers, self._zero, self.vectors)


def _rebuild(
    items: dict[str, Any], numbers: frozenset[str], zero: set[str], vectors: dict[str, Tensor]
) -> ParameterGroup:
    group = ParameterGroup({}, numbers)
    dict.update(group, items)
    group._zero, group.vectors = set(zero), vectors
    return group


def _number(key: str, value: Any) -> Tensor:
    """A number as a tensor; one that the user gives is kept itself, so that later writes into it count."""
    if isinstance(value, Tensor):
        if value.shape != () or not xp.isdtype(value.dtype, "real floating"):
            raise ArgumentError(f"{key} must be a number or a 0-d float tensor, got {value.dtype} {value.shape}")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{key} must be a number or a 0-dimensional float tensor, got {value!r}")
    return xp.asarray(value, dtype=xp.float64, device="cpu")


def _write(key: str, held: Tensor, value: Any) -> None:
    if value is held:  # the end of `group["lr"] *= 0.1`
        return
    with no_grad():
        held.copy_(xp.astype(_number(key, value).detach(), held.dtype))


def _python(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.item()
    return tuple(map(_python, value)) if isinstance(value, tuple) else value

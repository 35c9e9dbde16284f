"""Convolutions and their transposes over one, two and three axes, in PyTorch's channels-first layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybridml_compiler.errors import ArgumentError

from .. import arrays as xp
from .. import functional as F
from ..core.tensor import Tensor
from ..functional.arguments import Padding, Pair, numbers, positive
from ..functional.convolution import same_padding, transposed_size
from .function_module import Spatial
from .linear import uniform_by_fan_in
from .parameter import Parameter

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def channels_last(outer: int, inner: int, kernel: tuple[int, ...], dtype: Any = None) -> Tensor:
    """Empty tensor (outer, inner, *kernel) laid out in memory as (*kernel, inner, outer), the order that compiled
    convolutions read: a step that had to permute every weight and its gradient took a quarter longer (ResNet-18)."""
    memory = xp.empty((*kernel, inner, outer), dtype=dtype, device="cpu").numpy()
    dims = len(kernel)
    return xp.asarray(memory.transpose(dims + 1, dims, *range(dims)))


class _Layer(Spatial):
    """Base class of convolutions and their transposes: checked arguments, parameters and the text of `repr`."""

    padding: Padding

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair,
        padding: Padding,
        dilation: Pair,
        groups: int,
        bias: bool,
        dtype: Any,
        transposed: bool = False,
    ) -> None:
        super().__init__()
        what = type(self).__name__
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"{what}: in_channels={in_channels} and out_channels={out_channels} must divide by groups={groups}"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = positive(what, "kernel_size", kernel_size, self.dims)
        self.stride = positive(what, "stride", stride, self.dims)
        self.dilation = positive(what, "dilation", dilation, self.dims)
        self.padding = padding if isinstance(padding, str) else numbers(what, "padding", padding, self.dims)
        outer, inner = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        self._make_state(outer, inner // groups, bias, dtype)

    def _make_state(self, outer: int, inner: int, bias: bool, dtype: Any) -> None:
        self.weight = Parameter(channels_last(outer, inner, self.kernel_size))
        self.register_parameter("bias", Parameter(xp.empty((self.out_channels,))) if bias else None)
        self.reset_parameters()
        self._draw_in(dtype)

    def reset_parameters(self) -> None:
        uniform_by_fan_in(self.weight, self.bias)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        defaults: tuple[tuple[str, Any], ...] = (
            ("padding", (0,) * self.dims),
            ("output_padding", (0,) * self.dims),
            ("dilation", (1,) * self.dims),
            ("groups", 1),
            ("padding_mode", "zeros"),
        )
        for name, default in defaults:
            if getattr(self, name, default) != default:
                text += f", {name}={getattr(self, name)!r}"
        return text if self.bias is not None else text + ", bias=False"


class _Convolution(_Layer):
    """Cross-correlation of the input with learned kernels, plus a bias.

    Shapes (n, in_channels, {axes}) -> (n, out_channels, {out}), also without n. `weight`
    (out_channels, in_channels / groups, {kernel}) and `bias` (out_channels,) start uniform within ``1 / sqrt(fan_in)``.
    `padding` is one number, one per axis, "same" (stride 1 only) or "valid"; `padding_mode` is "zeros", "reflect",
    "replicate" or "circular". Raises ArgumentError for other options and where `groups` does not divide the channels,
    ShapeError for an input of other axes or channels. See `functional.conv{dims}d`.

    >>> Conv{dims}d(3, 8, 3, stride=2, padding=1)(hm.ones((2, 3, {times[8]}))).shape
    (2, 8, {times[4]})
    """

    functions = (F.conv1d, F.conv2d, F.conv3d)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Padding = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        dtype: Any = None,
    ) -> None:
        if padding_mode not in _PADDING_MODES:
            raise ArgumentError(
                f"{type(self).__name__}: padding_mode must be one of {_PADDING_MODES}, got {padding_mode!r}"
            )
        self._check_padding(padding, stride)
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, dtype)
        self.padding_mode = padding_mode

    def _check_padding(self, padding: Padding, stride: Pair) -> None:
        what = type(self).__name__
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ArgumentError(f"{what}: padding must be a number, a pair, 'same' or 'valid', got {padding!r}")
        if padding == "same" and set(numbers(what, "stride", stride, self.dims)) != {1}:
            raise ArgumentError(f"{what}: padding='same' needs stride 1, got stride={stride}")

    def _padded(self, input: Tensor) -> tuple[Tensor, Padding]:
        """(the input with what is not zeros around it, the zeros that are left to add)."""
        padding = self.padding
        if self.padding_mode == "zeros" or padding == "valid":
            return input, padding
        if padding == "same":
            around = same_padding(self.kernel_size, self.dilation)
        else:
            around = [(n, n) for n in numbers(type(self).__name__, "padding", padding, self.dims)]
        return F.pad(input, [n for pair in reversed(around) for n in pair], self.padding_mode), 0

    def forward(self, input: Tensor) -> Tensor:
        input, padding = self._padded(input)
        found: Tensor = type(self).function(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )
        return found


class Conv1d(_Convolution, dims=1): ...


class Conv2d(_Convolution, dims=2): ...


class Conv3d(_Convolution, dims=3): ...


class _ConvTranspose(_Layer):
    """Transpose of a `Conv{dims}d` (its gradient with respect to its input) as a layer.

    Shapes (n, in_channels, {axes}) -> (n, out_channels, {out}), also without n. `weight` is
    (in_channels, out_channels / groups, {kernel}), `bias` (out_channels,). `output_padding`, or `output_size` in a
    call, chooses among the sizes that the convolution may come from (ArgumentError for others). Raises ArgumentError
    for a `padding_mode` other than "zeros" and where `groups` does not divide the channels, ShapeError for an input of
    other axes or channels. See `functional.conv_transpose{dims}d`.

    >>> ConvTranspose{dims}d(8, 3, 4, stride=2, padding=1)(hm.ones((1, 8, {times[4]}))).shape
    (1, 3, {times[8]})
    """

    functions = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        output_padding: Pair = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Pair = 1,
        padding_mode: str = "zeros",
        *,
        dtype: Any = None,
    ) -> None:
        what = type(self).__name__
        if padding_mode != "zeros":
            raise ArgumentError(f"{what}: padding_mode must be 'zeros', got {padding_mode!r}")
        super().__init__(
            in_channels, out_channels, kernel_size, stride, numbers(what, "padding", padding, self.dims), dilation,
            groups, bias, dtype, transposed=True,
        )  # fmt: skip
        self.padding_mode = padding_mode
        self.output_padding = numbers(what, "output_padding", output_padding, self.dims)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        more = self.output_padding if output_size is None else self._more(input, tuple(output_size))
        found: Tensor = type(self).function(
            input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation
        )
        return found

    def _more(self, input: Tensor, output_size: tuple[int, ...]) -> tuple[int, ...]:
        """The output padding that gives a size."""
        assert not isinstance(self.padding, str)
        wanted, padding = output_size[-self.dims :], numbers("", "padding", self.padding, self.dims)
        none = (0,) * self.dims
        least = transposed_size(input.shape[-self.dims :], self.kernel_size, self.stride, padding, self.dilation, none)
        found = tuple(n - m for n, m in zip(wanted, least, strict=True))
        if any(not 0 <= n < s for n, s in zip(found, self.stride, strict=True)):
            most = tuple(n + s - 1 for n, s in zip(least, self.stride, strict=True))
            raise ArgumentError(f"{type(self).__name__}: output_size must be {least} to {most}, got {wanted}")
        return found


class ConvTranspose1d(_ConvTranspose, dims=1): ...


class ConvTranspose2d(_ConvTranspose, dims=2): ...


class ConvTranspose3d(_ConvTranspose, dims=3): ...


__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

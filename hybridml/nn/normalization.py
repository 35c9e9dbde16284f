"""Normalisation layers: batch, instance, layer, group, root mean square and local response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from .. import functional as F
from ..core.context import no_grad
from ..core.tensor import Tensor
from . import init
from .function_module import FunctionModule, Spatial
from .module import Module
from .parameter import Parameter


class _Affine(Module):
    """Base class of layers that scale and shift what they have normalised."""

    weight: Tensor | None
    bias: Tensor | None

    def reset_parameters(self) -> None:
        """Sets what there is of `weight` to ones, of `bias` to zeros."""
        for tensor, value in ((self.weight, 1.0), (getattr(self, "bias", None), 0.0)):
            if tensor is not None:
                init.constant_(tensor, value)


class _BatchNorm(_Affine, Spatial):
    """Each channel normalised over the batch (Ioffe and Szegedy 2015).

    Shapes (n, c, {axes}) -> the same shape, with c = `num_features`. In training by the statistics of the batch, which
    move the running ones by `momentum` (None: their plain average); in evaluation by the running ones. `weight` and
    `bias` (c,) scale and shift unless ``affine=False``. Raises ShapeError for other axes or channels, or one value per
    channel in training. See `functional.batch_norm`.

    >>> BatchNorm{dims}d(3)(hm.ones((2, 3, {times[4]}))).shape
    (2, 3, {times[4]})
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        shape = (num_features,)
        self.register_parameter("weight", Parameter(xp.ones(shape)) if affine else None)
        self.register_parameter("bias", Parameter(xp.zeros(shape)) if affine and bias else None)
        self.register_buffer("running_mean", xp.zeros(shape) if track_running_stats else None)
        self.register_buffer("running_var", xp.ones(shape) if track_running_stats else None)
        self.register_buffer("num_batches_tracked", xp.zeros((), dtype=xp.int64) if track_running_stats else None)
        self._draw_in(dtype)

    def reset_running_stats(self) -> None:
        """Sets the running statistics to those of no batch: means 0, variances 1."""
        for tensor, value in ((self.running_mean, 0.0), (self.running_var, 1.0), (self.num_batches_tracked, 0)):
            if tensor is not None:
                init.constant_(tensor, value)

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        super().reset_parameters()

    def _ranks(self) -> tuple[int, ...]:
        """Numbers of axes that an input may have."""
        return (self.dims + 2,)

    def _check(self, input: Tensor) -> None:
        ranks = self._ranks()
        if input.ndim not in ranks or input.shape[1] != self.num_features:
            axes = " or ".join(map(str, ranks))
            raise ShapeError(
                f"{type(self).__name__}: input must have {axes} axes and {self.num_features} channels on axis 1, "
                f"got shape {input.shape}"
            )

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        return F.batch_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or self.running_mean is None,
            self._count_batch(input),
            self.eps,
        )

    def _count_batch(self, input: Tensor) -> float | Tensor:
        """The momentum of this batch, which is counted in training: a tensor for the plain average, as its value
        changes every step."""
        if self.training and self.num_batches_tracked is not None:
            with no_grad():
                self.num_batches_tracked.copy_(self.num_batches_tracked + 1)
                if self.momentum is None:
                    return 1 / xp.astype(self.num_batches_tracked, input.dtype)
        return 0.0 if self.momentum is None else self.momentum

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm, dims=1):
    """Each channel normalised over the batch (Ioffe and Szegedy 2015).

    Shapes (n, c) or (n, c, l) -> the same shape, with c = `num_features`. In training by the statistics of the batch,
    which move the running ones by `momentum` (None: their plain average); in evaluation by the running ones. `weight`
    and `bias` (c,) scale and shift unless ``affine=False``. Raises ShapeError for other axes or channels, or one value
    per channel in training. See `functional.batch_norm`.

    >>> BatchNorm1d(3)(hm.ones((2, 3, 4))).shape
    (2, 3, 4)
    """

    def _ranks(self) -> tuple[int, ...]:
        return 2, 3


class BatchNorm2d(_BatchNorm, dims=2): ...


class BatchNorm3d(_BatchNorm, dims=3): ...


class _InstanceNorm(_BatchNorm):
    """Each channel of each sample normalised by itself (Ulyanov et al. 2016).

    Shapes {layout} -> the same shape.
    `affine` adds a `weight` and a `bias` (num_features,); `track_running_stats` keeps running statistics for
    evaluation. Both are off by default, as in PyTorch. Raises ShapeError for other axes or channels, or one value per
    channel. See `functional.instance_norm`.

    >>> InstanceNorm{dims}d(3, affine=True)(hm.ones((2, 3, {times[4]}))).shape
    (2, 3, {times[4]})
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        *,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, bias=bias, dtype=dtype)

    def forward(self, input: Tensor) -> Tensor:
        single = input.ndim == self.dims + 1
        batch = input[None] if single else input
        self._check(batch)
        out = F.instance_norm(
            batch,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or self.running_mean is None,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return out[0] if single else out


class InstanceNorm1d(_InstanceNorm, dims=1): ...


class InstanceNorm2d(_InstanceNorm, dims=2): ...


class InstanceNorm3d(_InstanceNorm, dims=3): ...


class LocalResponseNorm(FunctionModule):
    """Input divided by a power of the mean square of neighbouring channels (Krizhevsky et al. 2012).

    Shapes (n, c, ...) -> (n, c, ...): ``input / (k + alpha * mean)^beta``, the mean over `size` channels. Raises
    ShapeError for an input without positions. See `functional.local_response_norm`.

    >>> LocalResponseNorm(3)(hm.ones((1, 4, 5))).shape
    (1, 4, 5)
    """

    function = staticmethod(F.local_response_norm)

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__(size=size, alpha=alpha, beta=beta, k=k)


class LayerNorm(_Affine):
    """Input normalised over its last axes, then scaled and shifted (Ba et al. 2016).

    Shapes (..., *normalized_shape) -> the same shape. `weight` and `bias`, both of shape `normalized_shape` (an
    integer is one axis), are left out with ``elementwise_affine=False``, the bias alone with ``bias=False``. Raises
    ShapeError for other last axes. See `functional.layer_norm`.

    >>> LayerNorm(8)(hm.ones((2, 3, 8))).shape
    (2, 3, 8)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.register_parameter("weight", Parameter(xp.ones(self.normalized_shape)) if elementwise_affine else None)
        has_bias = elementwise_affine and bias
        self.register_parameter("bias", Parameter(xp.zeros(self.normalized_shape)) if has_bias else None)
        self._draw_in(dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSNorm(_Affine):
    """Input divided by the root of its mean square over the last axes, then scaled (Zhang and Sennrich 2019).

    Shapes (..., *normalized_shape) -> the same shape; `weight` is of shape `normalized_shape`. ``eps=None`` is the
    machine epsilon of the dtype. Raises ShapeError for other last axes. See `functional.rms_norm`.

    >>> RMSNorm(8)(hm.ones((2, 8))).shape
    (2, 8)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.register_parameter("weight", Parameter(xp.ones(self.normalized_shape)) if elementwise_affine else None)
        self._draw_in(dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Affine):
    """Input normalised over groups of channels, then scaled and shifted per channel (Wu and He 2018).

    Shapes (n, num_channels, ...) -> the same shape; `weight` and `bias` (num_channels,). Raises ArgumentError unless
    `num_groups` divides `num_channels`, ShapeError for an input of other channels. See `functional.group_norm`.

    >>> GroupNorm(2, 4)(hm.ones((1, 4, 3))).shape
    (1, 4, 3)
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        *,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ArgumentError(f"GroupNorm: num_channels={num_channels} must divide by num_groups={num_groups}")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self.register_parameter("weight", Parameter(xp.ones((num_channels,))) if affine else None)
        self.register_parameter("bias", Parameter(xp.zeros((num_channels,))) if affine and bias else None)
        self._draw_in(dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


def _shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
    "LayerNorm", "LocalResponseNorm", "RMSNorm",
]  # fmt: skip

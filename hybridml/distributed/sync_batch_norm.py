"""Batch normalisation by the statistics of all processes."""

from __future__ import annotations

from typing import Any

from hybridml_compiler.dtypes import is_narrow

from .. import arrays as xp
from .. import functional as F
from ..core.context import no_grad
from ..core.tensor import Tensor
from ..functional.normalization import move_running
from ..nn.module import Module
from ..nn.normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d
from .functions import all_gather
from .groups import Group, default

_PLAIN = (BatchNorm1d, BatchNorm2d, BatchNorm3d)


class SyncBatchNorm(BatchNorm1d):
    """Each channel normalised over the batches of all processes of a group (Ioffe and Szegedy 2015).

    Shapes (n, c, ...) -> the same shape; processes may have different n. The arguments are those of `nn.BatchNorm2d`,
    and `group`, all processes by default. In evaluation, and where the group is this process alone, it is batch
    normalisation. Means, sums of squares and counts are combined as in Chan, Golub and LeVeque (1983), with one
    collective in the forward pass and one in the backward. Raises ShapeError for an input of one axis or of other
    channels.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def step():
    ...     norm = dist.SyncBatchNorm(1, eps=0.0)
    ...     return norm(hm.full((1, 1), 2.0 * dist.get_rank())).item()
    >>> dist.run_threads(2, step)
    [-1.0, 1.0]
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        group: Group | None = None,
        *,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, bias=bias, dtype=dtype)
        self.group = default(group)

    def _ranks(self) -> tuple[int, ...]:
        return 2, 3, 4, 5

    def forward(self, input: Tensor) -> Tensor:
        if self.group.size == 1 or not (self.training or self.running_mean is None):
            return super().forward(input)
        self._check(input)
        mean, variance, count = self._statistics(input)
        momentum = self._count_batch(mean)
        if self.running_mean is not None and self.running_var is not None:
            with no_grad():
                move_running(self.running_mean, mean, momentum)
                move_running(self.running_var, variance * (count / (count - 1)), momentum)
        return F.batch_norm(input, mean, variance, self.weight, self.bias, False, 0.0, self.eps)

    def _statistics(self, input: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and variance of each channel, and how many values it has, over the group."""
        x = xp.astype(input, xp.float32) if is_narrow(input.dtype) else input
        axes, here = (0, *range(2, x.ndim)), x.numel() // self.num_features
        mean = x.sum(axis=axes, keepdims=True) / max(here, 1)
        centred = x - mean
        squares = (centred * centred).sum(axis=axes)
        count = xp.full((1,), here, dtype=x.dtype)
        all_of = all_gather(xp.concat([mean.reshape((-1,)), squares, count]).reshape((1, -1)), self.group)
        c = self.num_features
        means, squares, counts = all_of[:, :c], all_of[:, c:-1], all_of[:, -1:]
        total = counts.sum()
        mean = (means * counts).sum(axis=0) / total
        return mean, (squares + counts * (means - mean) ** 2).sum(axis=0) / total, total

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, group: Group | None = None) -> Module:
        """The module with this layer in the place of each `BatchNorm1d`, `2d` and `3d`, whose tensors it keeps.

        >>> import hybridml as hm
        >>> from hybridml import distributed as dist
        >>> dist.SyncBatchNorm.convert_sync_batchnorm(hm.nn.Sequential(hm.nn.BatchNorm2d(3)))
        Sequential(
          (0): SyncBatchNorm(3, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)
        )
        """
        if type(module) in _PLAIN:
            return cls._of(module, default(group))
        for name, child in list(module.named_children()):
            setattr(module, name, cls.convert_sync_batchnorm(child, group))
        return module

    @classmethod
    def _of(cls, plain: Module, group: Group) -> SyncBatchNorm:
        """The layer with the tensors of a plain one."""
        found = cls(
            plain.num_features, plain.eps, plain.momentum, plain.affine, plain.track_running_stats, group,
            bias=plain.bias is not None,
        )  # fmt: skip
        for name in ("weight", "bias"):
            found.register_parameter(name, getattr(plain, name))
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            found.register_buffer(name, getattr(plain, name))
        found.training = plain.training
        return found

"""The backend that einops needs to work on tensors; imported when einops is, see lookup.py."""

from __future__ import annotations

from typing import Any

from einops._backends import AbstractBackend

from .. import arrays as xp
from ..core.tensor import Tensor


class HybridmlBackend(AbstractBackend):
    """Backend of einops for tensors, which einops finds among the subclasses of its own class."""

    framework_name = "hybridml"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Any) -> Any:
        return xp.asarray(x)

    def to_numpy(self, x: Any) -> Any:
        return x.detach().numpy()

    def arange(self, start: Any, stop: Any) -> Any:
        return xp.arange(start, stop)

    def reduce(self, x: Any, operation: str, axes: Any) -> Any:
        return getattr(xp, operation)(x, axis=tuple(axes))

    def transpose(self, x: Any, axes: Any) -> Any:
        return xp.permute_dims(x, tuple(axes))

    def stack_on_zeroth_dimension(self, tensors: list[Any]) -> Any:
        return xp.stack(tensors)

    def add_axis(self, x: Any, new_position: int) -> Any:
        return xp.expand_dims(x, axis=new_position)

    def tile(self, x: Any, repeats: Any) -> Any:
        return xp.tile(x, tuple(repeats))

    def concat(self, tensors: list[Any], axis: int) -> Any:
        return xp.concat(tensors, axis=axis)

    def is_float_type(self, x: Any) -> bool:
        return x.dtype.kind in "fcV"

    def einsum(self, pattern: str, *x: Any) -> Any:
        return xp.einsum(pattern, *x)

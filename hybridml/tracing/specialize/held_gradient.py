"""The `.grad` that a tensor has before a traced call, where the call reads it."""

from __future__ import annotations

from ...core.autodiff.sparse import SparseGradient, shown
from ...core.autodiff.tape import is_node
from ...core.tensor import Tensor
from .errors import Untraceable


def held_gradient(t: Tensor) -> Tensor | None:
    """The gradient as a tensor. Raises Untraceable for a sparse one."""
    node = t._node
    grad = None if node is None or is_node(node) else shown(node)
    if type(grad) is SparseGradient:
        raise Untraceable(
            "a sparse gradient from before the call is read: drop it with zero_grad() in the traced function, or trace "
            "backward() and the optimizer's step together"
        )
    return grad

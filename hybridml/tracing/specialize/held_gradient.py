"""The `.grad` that a tensor has before a traced call, where the call reads it."""

from __future__ import annotations

from ...core.autodiff.sparse import SparseGradient
from ...core.autodiff.tape import is_node
from ...core.tensor import Tensor
from .errors import Untraceable


def held_gradient(t: Tensor) -> Tensor | None:
    """The gradient as a tensor; that of a traced step, which is held as rows, is made one."""
    node = t._node
    grad = None if node is None or is_node(node) else node.grad
    if type(grad) is not SparseGradient:
        return grad
    if not grad.is_deferred:
        raise Untraceable(
            "a sparse gradient from before the call is read: drop it with zero_grad() in the traced function, or trace "
            "backward() and the optimizer's step together"
        )
    assert node is not None and not is_node(node)
    node.grad = grad.to_dense()
    return node.grad

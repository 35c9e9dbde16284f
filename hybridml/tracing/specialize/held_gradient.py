"""The `.grad` that a tensor has before a traced call, where the call reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.autodiff.sparse import SparseGradient, shown
from ...core.autodiff.tape import is_node
from ...core.tensor import Tensor, like
from .errors import Untraceable


def held_gradient(t: Tensor) -> Tensor | SparseGradient | None:
    """The gradient that a leaf holds."""
    node = t._node
    if node is None or is_node(node):
        return None
    found: Tensor | SparseGradient | None = node.grad if type(node.grad) is Tensor else shown(node)
    return found


def parts_of(grad: Any) -> tuple[Tensor, Tensor]:
    """The rows of a sparse gradient, and the gradient of each."""
    return grad._rows, grad._row_values


def with_parts(grad: SparseGradient, is_captured: bool, add: Callable[[int, Tensor], Tensor]) -> SparseGradient:
    """A sparse gradient whose parts are inputs of a program, which `add` makes. Raises Untraceable for a history, and
    where code reaches the gradient itself, too."""
    if grad.requires_grad:
        raise Untraceable("a sparse gradient from before the call has a history; detach() it")
    if is_captured:
        raise Untraceable("a sparse gradient from before the call is captured, too; read it by `.grad` alone")
    # Tensors of its own: others that are captured may be the rows of this call's gradient alone.
    own = [like(t, t._array, None, t._version) for t in parts_of(grad)]
    rows, values = [add(k, t) for k, t in enumerate(own)]
    return SparseGradient(rows, values, grad.shape, grad.is_coalesced())


def form_of(grad: Tensor | SparseGradient | None) -> Any:
    """Returns what a program relies on of a gradient: None, the dtype of a tensor, or number and dtypes of the rows."""
    if type(grad) is not SparseGradient:
        return None if grad is None else (grad.dtype,)  # in a tuple, as NumPy's float64 == None
    rows, values = parts_of(grad)
    return rows.shape, rows.dtype, values.dtype, grad.is_coalesced(), values.requires_grad

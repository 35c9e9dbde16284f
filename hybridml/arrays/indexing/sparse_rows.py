"""Rows of a table whose gradient is sparse: it names the rows, and nothing as large as the table is made for it."""

from __future__ import annotations

from typing import Any

from hybridml_compiler.ops.table import OPS

from ...core.autodiff.sparse import SparseGradient
from ...core.autodiff.tape import Leaf, Mark, Node, kept_by, make_node, parents_of
from ...core.context import grad_is_off, lift, no_grad
from ...core.nested import Nested
from ...core.tensor import Tensor, like
from .selecting import from_zero

__all__: list[str] = []


def takes_sparse(input: Tensor, weight: Tensor) -> bool:
    """Whether a look-up may leave a sparse gradient: in a leaf, outside of vmap and jvp. All else takes dense ones."""
    node: Any = lift(weight)._node
    is_leaf = isinstance(node, Leaf) and type(node) is not Mark and not node.inner
    nested = isinstance(weight._array, Nested) or isinstance(lift(input)._array, Nested)
    return is_leaf and not nested and not grad_is_off() and input.dtype.kind in "iu" and weight.ndim > 0


def rows_of(input: Tensor, weight: Tensor, padding_idx: int | None) -> Tensor:
    """Rows of `weight` named by integers, whose gradient in the leaf `weight` is a `SparseGradient`."""
    table = lift(weight)
    index = from_zero(input, table.shape[0])
    with no_grad():
        rows = OPS["take"].fn(table, index, axis=0)
    padding = None
    if padding_idx is not None:
        padding = padding_idx if padding_idx >= 0 else padding_idx + table.shape[0]
    return like(rows, rows._array, make_node(_pull_rows, rows.shape, [table._node], index, table.shape, padding))


def _pull_rows(g: Tensor, node: Node) -> list[tuple[Any, SparseGradient]]:
    index, shape, padding = kept_by(node)
    if padding is not None:
        dropped = OPS["equal"].fn(index, padding).reshape((*index.shape, *(1,) * (len(shape) - 1)))
        g = OPS["where"].fn(dropped, 0, g)
    values = g.reshape((index.numel(), *shape[1:]))
    return [(parents_of(node)[0], SparseGradient(index.reshape((-1,)), values, shape))]

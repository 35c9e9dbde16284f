"""SparseGradient: the gradient of some rows of a table, with the names of PyTorch's sparse tensors.

The gradient of a table with respect to which few rows were looked up is zero in all others. It is held as the rows that
were looked up (more than once where they were so) and the gradient of each: memory and time do not know the table.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler.errors import GradientError, ShapeError
from hybridml_compiler.ops.gather import add_at
from hybridml_compiler.ops.table import OPS

from ..context import at_place
from ..tensor import Tensor, adopt, place_of

_add, _astype, _multiply, _take = OPS["add"], OPS["astype"], OPS["multiply"], OPS["take"]
_concat, _full, _scatter_add, _scatter_set = OPS["concat"], OPS["full"], OPS["scatter_add"], OPS["scatter_set"]


class SparseGradient:
    """The gradient of a table of which some rows were looked up, as `.grad` of it is after ``sparse=True``.

    PyTorch's names of a sparse tensor with one sparse dimension: ``indices()`` (1, n) and ``values()`` (n, ...) of what
    ``coalesce()`` returns, `is_sparse`, ``to_dense()``. A row may stand in it several times until it is coalesced; its
    gradient is the sum. Numbers scale it, and sums with others are sparse, with tensors dense.

    >>> w = hm.ones((1000, 2), requires_grad=True)
    >>> hm.functional.embedding(hm.asarray([7, 7]), w, sparse=True).sum().backward()
    >>> w.grad.coalesce().indices().tolist(), w.grad.coalesce().values().tolist()
    ([[7]], [[2.0, 2.0]])
    """

    __slots__ = ("_coalesced", "_row_values", "_rows", "is_deferred", "shape")
    is_sparse = True
    is_leaf = True
    layout = "sparse_coo"

    def __init__(
        self, rows: Tensor, values: Tensor, shape: Sequence[Any], coalesced: bool = False, deferred: bool = False
    ) -> None:
        self._rows, self._row_values, self.shape = rows, values, tuple(shape)
        self._coalesced = coalesced
        self.is_deferred = deferred  # nobody sees it: whoever asks gets a tensor, which is made then (see `shown`)

    # -- what it is

    dtype = property(lambda self: self._row_values.dtype)
    device = property(lambda self: self._row_values.device)
    ndim = property(lambda self: len(self.shape))
    requires_grad = property(lambda self: self._row_values.requires_grad)
    _array = property(lambda self: self)  # the tape asks a cotangent's array for its shape and dtype

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return len(self.shape)

    def sparse_dim(self) -> int:
        return 1

    def dense_dim(self) -> int:
        return len(self.shape) - 1

    def is_coalesced(self) -> bool:
        """Whether every row stands in it once, in order."""
        return self._coalesced

    def indices(self) -> Tensor:
        """The rows, int64 (1, n); raises GradientError unless it is coalesced."""
        self._check_coalesced("indices")
        return self._indices()

    def values(self) -> Tensor:
        """The gradients of the rows, (n, ...); raises GradientError unless it is coalesced."""
        self._check_coalesced("values")
        return self._row_values

    def _indices(self) -> Tensor:
        found: Tensor = self._rows.reshape((1, -1))
        return found

    def _values(self) -> Tensor:
        return self._row_values

    def _nnz(self) -> int:
        count: int = self._rows.shape[0]
        return count

    def _check_coalesced(self, what: str) -> None:
        if not self._coalesced:
            raise GradientError(
                f"Cannot get {what} on an uncoalesced sparse gradient, please call .coalesce() first; "
                f"_{what}() has every row as often as it was looked up"
            )

    def __repr__(self) -> str:
        return f"SparseGradient(shape={self.shape}, nnz={self._nnz()}, dtype={self.dtype.name})"

    def __getattr__(self, name: str) -> Any:
        if hasattr(Tensor, name):
            raise AttributeError(f"a sparse gradient has no {name}; take it of .to_dense(), or of .coalesce().values()")
        raise AttributeError(f"'SparseGradient' object has no attribute {name!r}")

    # -- other forms

    def to_dense(self) -> Tensor:
        """The tensor of the whole shape, with zeros in all other rows."""
        values = self._row_values
        zeros = at_place(place_of(values) or "cpu", lambda: _full.fn(shape=self.shape, value=0.0, dtype=values.dtype))
        dense: Tensor = _scatter_add.fn(zeros, self._rows, values, axis=0)
        return dense

    def coalesce(self) -> SparseGradient:
        """Each row once, in order, with the sum of its gradients in the order of the look-ups."""
        if self._coalesced or self._nnz() == 0:
            return self._with(self._rows, self._row_values, True)
        places = _places(self._rows)
        count = int(places.max()) + 1
        blank = _like(self._rows, (count,))
        return self._with(_scatter_set.fn(blank, places, self._rows, axis=0), self._sums(places, count), True)

    def summed(self) -> tuple[Tensor, Tensor]:
        """Rows, and the whole gradient of each: once, or in a trace, which does not know how many there are, as often
        as the row was looked up."""
        if self._coalesced or self._nnz() == 0:
            return self._rows, self._row_values
        if type(self._rows._array) is np.ndarray:
            ordered = np.sort(self._rows._array)
            if not np.equal(ordered[1:], ordered[:-1]).any():
                return self._rows, _add.fn(self._row_values, 0.0)  # a sum begins with 0.0: it has no -0.0
            once = self.coalesce()
            return once._rows, once._row_values
        places = _places(self._rows)
        return self._rows, _take.fn(self._sums(places, self._nnz()), places, axis=0)

    def distinct(self) -> Tensor:
        """The gradient of each row once, in a trace with zeros behind: what norms are of."""
        if self._coalesced or self._nnz() == 0:
            return self._row_values
        places = _places(self._rows)
        count = int(places.max()) + 1 if type(places._array) is np.ndarray else self._nnz()
        return self._sums(places, count)

    def _sums(self, places: Tensor, count: int) -> Tensor:
        sums: Tensor = _scatter_add.fn(
            _like(self._row_values, (count, *self._row_values.shape[1:])), places, self._row_values, axis=0
        )
        return sums

    def _with(self, rows: Tensor, values: Tensor, coalesced: bool | None = None) -> SparseGradient:
        return SparseGradient(rows, values, self.shape, self._coalesced if coalesced is None else coalesced)

    def _mapped(self, fn: Any) -> SparseGradient:
        return self._with(self._rows, fn(self._row_values))

    def detach(self) -> SparseGradient:
        return self._mapped(lambda values: values.detach())

    def clone(self) -> SparseGradient:
        return self._mapped(lambda values: values.clone())

    def astype(self, dtype: Any) -> SparseGradient:
        return self._mapped(lambda values: values.astype(dtype))

    def to(self, device: Any) -> SparseGradient:
        return self._with(self._rows.to(device), self._row_values.to(device))

    # -- arithmetic

    def __add__(self, other: Any) -> Any:
        if isinstance(other, SparseGradient | Tensor):
            return added(self, other)
        return NotImplemented

    __radd__ = __add__

    def __neg__(self) -> SparseGradient:
        return self._mapped(lambda values: -values)

    def __mul__(self, other: Any) -> SparseGradient:
        return self._scaled(operator.mul, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> SparseGradient:
        return self._scaled(operator.truediv, other)

    def _scaled(self, by: Any, other: Any) -> SparseGradient:
        if (shape := getattr(other, "shape", ())) != ():
            raise ShapeError(f"a sparse gradient is scaled by numbers, got shape {shape}; use .to_dense()")
        return self._mapped(lambda values: by(values, other))

    def mul_(self, other: Any) -> SparseGradient:
        """Scales it in place by a number."""
        self._row_values = (self * other)._row_values
        return self

    def div_(self, other: Any) -> SparseGradient:
        """Divides it in place by a number."""
        self._row_values = (self / other)._row_values
        return self

    __imul__, __itruediv__ = mul_, div_

    def zero_(self) -> SparseGradient:
        """Forgets its rows: in place it is zero everywhere."""
        return self.become(self._with(self._rows[:0], self._row_values[:0], True))

    def become(self, other: SparseGradient) -> SparseGradient:
        """Takes over the rows of another one, in place."""
        self._rows, self._row_values, self._coalesced = other._rows, other._row_values, other._coalesced
        return self


def added(a: Any, b: Any) -> Any:
    """The sum of two gradients, of which each may be sparse: sparse if both are."""
    if type(a) is not SparseGradient:
        if type(b) is not SparseGradient:
            return _add.fn(a, b)
        a, b = b, a
    if a.shape != b.shape:
        raise ShapeError(f"a sparse gradient of shape {a.shape} and one of shape {tuple(b.shape)} have no sum")
    if type(b) is not SparseGradient:
        return _scatter_add.fn(b, a._rows, a._row_values, axis=0)
    rows = _concat.fn([a._rows, b._rows], axis=0)
    return SparseGradient(rows, _concat.fn([a._row_values, b._row_values], axis=0), a.shape)


def shown(leaf: Any) -> Any:
    """The gradient that a leaf holds; one that is deferred is made, by NumPy, as a trace may be around."""
    grad = leaf.grad
    if type(grad) is SparseGradient and grad.is_deferred:
        dense = np.zeros(grad.shape, grad.dtype)
        add_at(dense, grad._rows._array, grad._row_values._array, 0)
        grad = leaf.grad = adopt(dense)
    return grad


def densified(g: Any) -> Any:
    """The gradient as a tensor."""
    return g.to_dense() if type(g) is SparseGradient else g


def _like(t: Tensor, shape: Sequence[Any]) -> Tensor:
    found: Tensor = at_place(place_of(t) or "cpu", lambda: _full.fn(shape=tuple(shape), value=0, dtype=t.dtype))
    return found


def _places(rows: Tensor) -> Tensor:
    """For each row its place among all rows, each counted once, in order."""
    if type(rows._array) is np.ndarray:
        return adopt(np.unique(rows._array, return_inverse=True)[1])
    order = OPS["argsort"].fn(rows, axis=0, descending=False)
    ordered = _take.fn(rows, order, axis=0)
    begins = _astype.fn(OPS["not_equal"].fn(ordered[1:], ordered[:-1]), rows.dtype)
    steps = OPS["cumulative_sum"].fn(begins, axis=0)
    places: Tensor = _scatter_set.fn(_like(rows, rows.shape), order[1:], steps, axis=0)
    return places

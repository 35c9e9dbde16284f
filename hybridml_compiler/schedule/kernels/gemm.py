"""Matrix products as library calls: operands read in place wherever their strides allow it."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from ... import dtypes
from ...graph.ir import Node
from ...loops.ir import KernelSpec, divisors
from ...record import record, replace
from ...sizes.dims import at_most, hint, is_dim, is_symbolic, symbols_of
from .. import cost
from ..lowering.expressions import strides_of


@record
class Matrix:
    """A batch of matrices in memory: element (b..., i, j) at offset + sum(b * batch) + i * row + j * column."""

    offset: int
    batch: tuple[int, ...]
    row: int
    column: int

    @property
    def transposed(self) -> bool:
        return self.column != 1

    @property
    def leading(self) -> int:
        return self.column if self.transposed else self.row


@record
class Product(KernelSpec):
    """out[b, i, j] = sum over k of a[b, i, k] * b[b, k, j], row-major and contiguous output.

    `stored`: the dtypes of a and b in memory, where one is narrower than that of the product; see low_precision.py.
    `computed`: a has no memory; it is computed while it is packed, see prologue.py.
    `passing`: only its epilogue reads the result, one tile of rows after another, and it has no memory.
    `blocks`: of a row times a matrix, k is cut into so many nearly equal parts, each of which makes a row of results.
    """

    dtype: np.dtype
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    stored: tuple[np.dtype, np.dtype] | None = None
    computed: bool = False
    passing: bool = False
    blocks: int = 1

    @property
    def matrices(self) -> int:
        return math.prod(self.batch)

    @property
    def result(self) -> tuple[int, int]:
        """Rows and columns of the result as one row-major matrix."""
        return self.matrices * self.m, self.n

    @property
    def symbolic(self) -> bool:
        """Whether one of its sizes or strides is known only when a call comes."""
        return is_symbolic(self._sizes)

    @property
    def symbols(self) -> list[str]:
        return sorted(map(str, symbols_of(*self._sizes)))

    @property
    def _sizes(self) -> list[int]:
        sides = [size for x in (self.a, self.b) for size in (x.offset, x.row, x.column, *x.batch)]
        return [*self.batch, self.m, self.n, self.k, *sides]

    @property
    def flops(self) -> float:
        return 2.0 * hint(self.matrices * self.m * self.n * self.k)

    @property
    def b_bytes(self) -> int:
        """Size of all that is read as right operand."""
        return self.k * self.n * self.dtype.itemsize * (self.matrices if any(self.b.batch) else 1)

    def rows_of_block(self, block: int) -> tuple[int, int]:
        """First row of B that makes this row of the result, and the one after the last."""
        return block * self.k // self.blocks, (block + 1) * self.k // self.blocks

    def part_counts(self, takes_epilogue: Callable[[Any], bool]) -> set[int]:
        if self.computed or self.blocks > 1:
            return {1}
        rows = {self.matrices * d for d in divisors(self.m) if self.m // d >= cost.CHAIN_ROWS}
        return rows | divisors(self.matrices)

    def in_parts(self, count: int) -> Product:
        """Its rows cut into more matrices, where they must be."""
        if self.matrices % count == 0:
            return self
        parts = count // self.matrices
        rows = self.m // parts
        a = replace(self.a, batch=(*self.a.batch, rows * self.a.row))
        b = replace(self.b, batch=(*self.b.batch, 0))
        return replace(self, batch=(*self.batch, parts), m=rows, a=a, b=b)

    def reads_apart(self, operand: int, size: int, parts: int) -> bool:
        if operand > 1:
            return True
        matrix, (rows, columns) = ((self.a, (self.m, self.k)), (self.b, (self.k, self.n)))[operand]
        first = np.full(1, matrix.offset)
        for n, step in zip(self.batch, matrix.batch, strict=True):
            first = (first[:, None] + np.arange(n) * step).reshape(-1)
        last = first + (rows - 1) * matrix.row + (columns - 1) * matrix.column
        start = np.arange(self.matrices) // (self.matrices // parts) * (size // parts)
        return bool((first >= start).all() and (last < start + size // parts).all())

    def __str__(self) -> str:
        shape = f"{'x'.join(map(str, self.batch))}{'x' if self.batch else ''}{self.m}x{self.n}x{self.k}"
        stored = "" if self.stored is None else " of " + " by ".join(map(dtypes.short, self.stored))
        return (
            f"matmul {dtypes.short(self.dtype)} {shape}{stored}"
            + (" A'" if self.a.transposed else "")
            + (" of A computed" if self.computed else "")
            + (f" in {self.blocks} sums" if self.blocks > 1 else "")
            + (" B'" if self.b.transposed else "")
        )


def product_of(node: Node, in_memory: Callable[[Node], bool]) -> tuple[Product, Node, Node] | None:
    """The library call that computes a contraction, with the nodes in memory that it reads; None if BLAS cannot."""
    if node.kind != "contraction" or node.aval.size == 0:
        return None
    left, right = node.inputs
    k = left.shape[-1]
    m, n = (left.shape[-2] if left.aval.ndim > 1 else 1), (right.shape[-1] if right.aval.ndim > 1 else 1)
    if k == 0:
        return None
    batch = node.shape[: max(len(left.shape), len(right.shape)) - 2]
    a, b = _operand(left, batch, in_memory), _operand(right, batch, in_memory, column_vector=True)
    if a is None or b is None:
        return None
    stored = a[0].dtype, b[0].dtype
    narrow = stored if multiplies(node.dtype, *stored) else None
    if is_symbolic((*left.shape, *right.shape)) and (narrow is not None or node.dtype.kind != "f"):
        return None
    if narrow is None and (node.dtype.char not in "fdi" or stored != (node.dtype, node.dtype)):
        return None
    product = fold_batch(Product(node.dtype, batch, m, n, k, a[1], b[1], narrow))
    if is_column(product):
        return as_row(product), b[0], a[0]
    return product, a[0], b[0]


def use_own_product(product: Product, filled: float, vector_bytes: int) -> bool:
    """Rather than BLAS; `filled` is the part of the columns computed that are columns of the result."""
    if vector_bytes < cost.OWN_PRODUCT_BYTES and (product.a.transposed or product.m == 1):
        return False
    size = product.m * product.n * product.k
    full = filled >= cost.OWN_PRODUCT_FILLED
    deep = product.m >= cost.OWN_PRODUCT_ROWS and product.k >= cost.OWN_PRODUCT_DEPTH
    wins = size * (product.matrices if full else 1) >= cost.OWN_PRODUCT_SIZE and filled >= cost.OWN_PRODUCT_HALF
    if product.b.transposed:
        wins = (wins and product.m > 1) or (full and deep)
    return product.dtype is dtypes.float32 and wins


def multiplies(dtype: np.dtype, a: np.dtype, b: np.dtype) -> bool:
    """Whether there is a product in this dtype of operands stored in those, at least one of them narrower."""
    if dtype is dtypes.int32:
        return all(x.kind in "iu" and x.itemsize == 1 for x in (a, b))
    narrow = [dtypes.is_narrow(x) for x in (a, b)]
    return dtype is dtypes.float32 and any(narrow) and all(x is dtype or n for x, n in zip((a, b), narrow, strict=True))


def reads_narrow(node: Node) -> bool:
    """Whether its operands are read as they are stored. Eager products of this size and less are NumPy's."""
    return hint(node.aval.size * node.inputs[0].shape[-1]) > cost.WHOLE_PRODUCT


def fold_batch(product: Product) -> Product:
    """A batch whose matrices follow each other in memory, times one matrix, is one product with more rows."""
    a, b = product.a, product.b
    axes = [(step, n) for step, n in zip(a.batch, product.batch, strict=True) if n != 1]
    regular = all(step == inner * n for (step, _), (inner, n) in pairwise([*axes, (a.row, product.m)]))
    if not product.batch or any(b.batch) or not regular or a.transposed:
        return product
    rows = replace(a, batch=())
    return replace(product, batch=(), m=product.matrices * product.m, a=rows, b=replace(b, batch=()))


def is_column(product: Product) -> bool:
    """Whether its result is one column, which is computed as a row. Matrices of one element a row have two orders, of
    which the other operand's place may be none."""
    along = 1 in (product.a.column, product.a.row) and at_most(2, product.k)
    return product.n == 1 and at_most(2, product.m) and (product.stored is not None or along)


def as_row(product: Product) -> Product:
    """A product with one column as one with a row, which has the same memory: kernels have lanes along a row, which
    would hold one number each."""
    a, b = (replace(x, row=x.column, column=x.row) for x in (product.b, product.a))
    stored = None if product.stored is None else product.stored[::-1]
    return replace(product, m=1, n=product.m, a=a, b=b, stored=stored)


def readable(node: Node, in_memory: Callable[[Node], bool]) -> bool:
    """Whether a product can read this operand in place, without a copy."""
    return _operand(node, node.shape[:-2], in_memory) is not None


def _operand(
    node: Node, batch: tuple[int, ...], in_memory: Callable[[Node], bool], *, column_vector: bool = False
) -> tuple[Node, Matrix] | None:
    """The node in memory that an operand is read from, and how; a vector is a matrix of one row, or of one column."""
    found = strides_of(node, in_memory, casts=True)
    if found is None:
        return None
    base, offset, strides = found
    shape = node.shape
    if len(shape) == 1:
        shape, strides = ((*shape, 1), (*strides, 0)) if column_vector else ((1, *shape), (0, *strides))
    matrix = matrix_of(offset, strides, shape, batch)
    return None if matrix is None else (base, matrix)


def matrix_of(offset: int, strides: tuple[int, ...], shape: tuple[int, ...], batch: tuple[int, ...]) -> Matrix | None:
    """A strided array as a batch of matrices; None where neither their rows nor their columns are contiguous."""
    *outer, row, column = strides
    *sizes, rows, columns = shape
    # An axis of length 1 is never stepped along: give it the stride that makes the matrix regular.
    if columns == 1:
        column = 1 if row != 1 or rows == 1 else rows if is_dim(rows) else max(rows, 1)
    if rows == 1:
        row = columns if column == 1 else 1
    regular = (column == 1 and at_most(columns, row)) or (row == 1 and at_most(rows, column))
    if not regular:
        return None
    steps = [0 if n == 1 else step for n, step in zip(sizes, outer, strict=True)]
    return Matrix(offset, (0,) * (len(batch) - len(steps)) + tuple(steps), row, column)

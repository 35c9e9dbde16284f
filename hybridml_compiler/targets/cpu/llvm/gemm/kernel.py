"""A matrix product as an LLVM function `void product(ptr buffers, i64 lo, i64 hi)` around the process's BLAS.

One product is split into slabs of rows (or columns) that BLAS computes on one thread each, a batch into matrices. Slabs
follow from the shape and the machine, never from the number of threads: BLAS adds up in an order that depends on the
number of rows, so one product in other slabs would have other bits (in every fifth shape tried).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..... import dtypes
from .....schedule import cost
from .....schedule.kernels.gemm import Matrix, Product
from .....sizes.dims import Size, is_dim, same
from ...spec import CpuSpec
from .. import ir
from ..contraction.emission import Emission
from ..contraction.loops import i64
from ..sizes import Sizes
from ..types import I32, I64, PTR, VOID, constant, register_type

_ROW_MAJOR, _NO_TRANS, _TRANS = 101, 111, 112
GRANULE = 16  # rows or columns: a whole number of register tiles in every BLAS kernel


def slab(extent: Size, cpu: CpuSpec) -> Size:
    """Rows or columns in one slab: one for each core, of whole register tiles."""
    share = (extent + cpu.cores - 1) // cpu.cores
    return ((share - 1) // GRANULE + 1) * GRANULE


def slabs(product: Product, cpu: CpuSpec) -> Size:
    """Extent of the parallel range: matrices of a batch, else slabs of rows or columns, whichever are more."""
    if not same(product.matrices, 1):
        return product.matrices
    if not product.symbolic and product.m * product.n * product.k <= cost.WHOLE_PRODUCT:
        return 1
    extent = product.m if by_rows(product) else product.n
    each = slab(extent, cpu)
    return (extent + each - 1) // each


def by_rows(product: Product) -> bool:
    """Whether the product is cut into slabs of rows, not of columns. If a size comes with the call, rows are taken for
    more."""
    if is_dim(product.m) or is_dim(product.n):
        return is_dim(product.m)
    return product.m >= product.n


@dataclass(frozen=True)
class Slabs:
    """BLAS has vectors of its own."""

    lanes: int = 1


def emit_product(module: ir.Module, name: str, product: Product, epilogue: ir.Function | None = None) -> ir.Function:
    e = Emission(module, name, product, Slabs(), epilogue, optimized=True)
    b, pointers, names = e.b, [e.buffer(k) for k in range(3)], product.symbols
    sizes = Sizes(b, e.buffer(3) if names else None, names)
    for size in _sizes(product, module.cpu):  # where they are computed once
        sizes.value(size)
    gemm = _declaration(module, product)
    part = _slab if same(product.matrices, 1) else _matrix_of_batch

    def unit(index: Any) -> None:
        offsets, m, n = part(b, sizes, product, index)
        _call(b, sizes, gemm, product, pointers, offsets, m, n)
        if epilogue is not None:
            row, column = b.udiv(offsets[2], i64(product.n)), b.urem(offsets[2], i64(product.n))
            e.finish((row, b.add(row, m)), (column, b.add(column, n)))

    return e.over_units(unit)


Part = tuple[tuple[Any, Any, Any], Any, Any]  # element offsets of a, b and the result; rows, columns


def _sizes(product: Product, cpu: CpuSpec) -> list[Size]:
    """The sizes and strides that the code of a product asks for."""
    found = [product.m, product.n, product.k, product.m * product.n, *product.batch]
    for x in (product.a, product.b):
        found += [x.offset, x.row, x.column, *x.batch]
    return [*found, slab(product.m, cpu), slab(product.n, cpu)]


def _matrix_of_batch(b: ir.IRBuilder, sizes: Sizes, product: Product, index: Any) -> Part:
    a_at = batch_offset(b, product.a, product.batch, index, sizes.value)
    b_at = batch_offset(b, product.b, product.batch, index, sizes.value)
    m, n = sizes.value(product.m), sizes.value(product.n)
    return (a_at, b_at, b.mul(index, sizes.value(product.m * product.n))), m, n


def _slab(b: ir.IRBuilder, sizes: Sizes, product: Product, index: Any) -> Part:
    a_at, b_at, m, n = (sizes.value(x) for x in (product.a.offset, product.b.offset, product.m, product.n))
    if same(slabs(product, b.module.cpu), 1):
        return (a_at, b_at, i64(0)), m, n
    rows = by_rows(product)
    extent = product.m if rows else product.n
    each = slab(extent, b.module.cpu)
    start = b.mul(index, sizes.value(each))
    left = b.sub(sizes.value(extent), start)
    count = b.select(b.icmp_signed("<", left, sizes.value(each)), left, sizes.value(each))
    if rows:
        return (b.add(a_at, b.mul(start, sizes.value(product.a.row))), b_at, b.mul(start, n)), count, n
    return (a_at, b.add(b_at, b.mul(start, sizes.value(product.b.column))), start), m, count


def batch_offset(
    b: ir.IRBuilder, matrix: Matrix, batch: tuple[int, ...], index: Any, value: Callable[[Size], Any] | None = None
) -> Any:
    """Element offset of matrix number `index` (row-major over the batch axes)."""
    value = value or i64
    at, rest = value(matrix.offset), index
    for size, step in reversed(list(zip(batch, matrix.batch, strict=True))):
        position = b.urem(rest, value(size))
        rest = b.udiv(rest, value(size))
        if not same(step, 0):
            at = b.add(at, b.mul(position, value(step)))
    return at


def _call(
    b: ir.IRBuilder,
    sizes: Sizes,
    gemm: Any,
    product: Product,
    pointers: list[Any],
    offsets: tuple[Any, Any, Any],
    m: Any,
    n: Any,
) -> None:
    element = register_type(product.dtype)
    a, right, c = (b.gep(p, [at], source_etype=element) for p, at in zip(pointers, offsets, strict=True))
    one, zero = constant(1.0, product.dtype), constant(0.0, product.dtype)
    flags = [constant(_TRANS if x.transposed else _NO_TRANS, dtypes.int32) for x in (product.a, product.b)]
    k, of_a, of_b, of_c = (sizes.value(x) for x in (product.k, product.a.leading, product.b.leading, product.n))
    arguments = [constant(_ROW_MAJOR, dtypes.int32), *flags, m, n, k, one, a, of_a, right, of_b, zero, c, of_c]
    b.call(gemm, arguments)


def _declaration(module: ir.Module, product: Product) -> Any:
    name = "hml_sgemm" if product.dtype is dtypes.float32 else "hml_dgemm"
    found = module.globals.get(name)
    if found is not None:
        return found
    t = register_type(product.dtype)
    kind = ir.FunctionType(VOID, [I32, I32, I32, I64, I64, I64, t, PTR, I64, PTR, I64, t, PTR, I64])
    return ir.Function(module, kind, name)

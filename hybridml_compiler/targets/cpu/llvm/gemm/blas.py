"""A matrix product as an LLVM function `void product(ptr buffers, i64 lo, i64 hi)` around the process's BLAS, which
computes slabs of rows (or columns) of it, or matrices of a batch."""

from __future__ import annotations

from typing import Any

from ..... import dtypes
from .....record import record
from .....schedule.kernels.gemm import Product
from .....sizes.dims import Size, same
from ...kernels.slabs import Slabs, by_rows
from .. import ir
from ..contraction.emission import Emission
from ..contraction.loops import i64
from ..sizes import Sizes
from ..types import I32, I64, PTR, VOID, constant, register_type
from .operands import batch_offset

_ROW_MAJOR, _NO_TRANS, _TRANS = 101, 111, 112


@record(frozen=False, eq=False)
class BlasProduct(Emission[Product, Slabs]):
    optimized: bool = True

    def emit(self) -> ir.Function:
        b, product, pointers = self.b, self.call, self.buffers(3)
        names = product.symbols
        sizes = Sizes(b, self.buffer(3) if names else None, names)
        for size in _sizes(product, self.plan):  # where they are computed once
            sizes.value(size)
        gemm = _declaration(self.module, product)

        def unit(index: Any) -> None:
            if same(product.matrices, 1):
                offsets, m, n = _slab(b, sizes, product, self.plan, index)
            else:
                offsets, m, n = _matrix_of_batch(b, sizes, product, index)
            _call(b, sizes, gemm, product, pointers, offsets, m, n)
            if self.epilogue is not None:
                row, column = b.udiv(offsets[2], i64(product.n)), b.urem(offsets[2], i64(product.n))
                self.finish((row, b.add(row, m)), (column, b.add(column, n)))

        return self.over_units(unit)


Part = tuple[tuple[Any, Any, Any], Any, Any]  # element offsets of a, b and the result; rows, columns


def _sizes(product: Product, plan: Slabs) -> list[Size]:
    """The sizes and strides that the code of a product asks for."""
    found = [product.m, product.n, product.k, product.m * product.n, *product.batch]
    for x in (product.a, product.b):
        found += [x.offset, x.row, x.column, *x.batch]
    return [*found, plan.slab(product.m), plan.slab(product.n)]


def _matrix_of_batch(b: ir.IRBuilder, sizes: Sizes, product: Product, index: Any) -> Part:
    a_at = batch_offset(b, product.a, product.batch, index, sizes.value)
    b_at = batch_offset(b, product.b, product.batch, index, sizes.value)
    m, n = sizes.value(product.m), sizes.value(product.n)
    return (a_at, b_at, b.mul(index, sizes.value(product.m * product.n))), m, n


def _slab(b: ir.IRBuilder, sizes: Sizes, product: Product, plan: Slabs, index: Any) -> Part:
    a_at, b_at, m, n = (sizes.value(x) for x in (product.a.offset, product.b.offset, product.m, product.n))
    if same(plan.units(product), 1):
        return (a_at, b_at, i64(0)), m, n
    rows = by_rows(product)
    extent = product.m if rows else product.n
    each = plan.slab(extent)
    start = b.mul(index, sizes.value(each))
    left = b.sub(sizes.value(extent), start)
    count = b.select(b.icmp_signed("<", left, sizes.value(each)), left, sizes.value(each))
    if rows:
        return (b.add(a_at, b.mul(start, sizes.value(product.a.row))), b_at, b.mul(start, n)), count, n
    return (a_at, b.add(b_at, b.mul(start, sizes.value(product.b.column))), start), m, count


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
    t = register_type(product.dtype)
    kind = ir.FunctionType(VOID, [I32, I32, I32, I64, I64, I64, t, PTR, I64, PTR, I64, t, PTR, I64])
    return module.function(name, kind)

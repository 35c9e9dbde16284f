"""A matrix product as an LLVM function `void product(ptr buffers, i64 lo, i64 hi)` around the process's BLAS.

One product is split into slabs of rows (or columns) that BLAS computes on one thread each, a batch into matrices.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ... import dtypes
from ...schedule.contract import Matrix, Product
from .kernel import KERNEL_TYPE
from .types import I32, I64, PTR, VOID, constant, register_type

_ROW_MAJOR, _NO_TRANS, _TRANS = 101, 111, 112
GRANULE = 16  # rows or columns: a whole number of register tiles in every BLAS kernel


def slabs(product: Product) -> tuple[int, int]:
    """(extent of the parallel range, granule): matrices of a batch, else rows or columns, whichever are more."""
    if product.matrices > 1:
        return product.matrices, 1
    return max(product.m, product.n), GRANULE


def emit_product(module: ir.Module, name: str, product: Product) -> ir.Function:
    function = ir.Function(module, KERNEL_TYPE, name)
    function.attributes.add("nounwind")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    table, lo, hi = function.args
    pointers = [b.load(b.gep(table, [_i64(k)], source_etype=PTR), typ=PTR) for k in range(3)]
    gemm = _declaration(module, product)
    if product.matrices > 1:
        _batched(b, function, product, pointers, gemm, lo, hi)
    else:
        count = b.sub(hi, lo)
        a_at, b_at, c_at = _i64(product.a.offset), _i64(product.b.offset), _i64(0)
        if product.m >= product.n:
            m, n = count, _i64(product.n)
            a_at = b.add(a_at, b.mul(lo, _i64(product.a.row)))
            c_at = b.mul(lo, _i64(product.n))
        else:
            m, n = _i64(product.m), count
            b_at = b.add(b_at, b.mul(lo, _i64(product.b.column)))
            c_at = lo
        _call(b, gemm, product, pointers, (a_at, b_at, c_at), m, n)
    b.ret_void()
    return function


def _batched(
    b: ir.IRBuilder, function: ir.Function, product: Product, pointers: list[Any], gemm: Any, lo: Any, hi: Any
) -> None:
    head, body, done = (function.append_basic_block(n) for n in ("batch", "product", "done"))
    entry = b.block
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(I64, name="b")
    index.add_incoming(lo, entry)
    b.cbranch(b.icmp_signed("<", index, hi), body, done)
    b.position_at_end(body)
    a_at, b_at = _batch_offset(b, product.a, product.batch, index), _batch_offset(b, product.b, product.batch, index)
    c_at = b.mul(index, _i64(product.m * product.n))
    _call(b, gemm, product, pointers, (a_at, b_at, c_at), _i64(product.m), _i64(product.n))
    index.add_incoming(b.add(index, _i64(1)), b.block)
    b.branch(head)
    b.position_at_end(done)


def _batch_offset(b: ir.IRBuilder, matrix: Matrix, batch: tuple[int, ...], index: Any) -> Any:
    """Element offset of matrix number `index` (row-major over the batch axes)."""
    at, rest = _i64(matrix.offset), index
    for size, step in reversed(list(zip(batch, matrix.batch, strict=True))):
        position = b.urem(rest, _i64(size))
        rest = b.udiv(rest, _i64(size))
        if step:
            at = b.add(at, b.mul(position, _i64(step)))
    return at


def _call(
    b: ir.IRBuilder, gemm: Any, product: Product, pointers: list[Any], offsets: tuple[Any, Any, Any], m: Any, n: Any
) -> None:
    element = register_type(product.dtype)
    a, right, c = (b.gep(p, [at], source_etype=element) for p, at in zip(pointers, offsets, strict=True))
    one, zero = constant(1.0, product.dtype), constant(0.0, product.dtype)
    flags = [constant(_TRANS if x.transposed else _NO_TRANS, dtypes.int32) for x in (product.a, product.b)]
    arguments = [constant(_ROW_MAJOR, dtypes.int32), *flags, m, n, _i64(product.k), one]
    arguments += [a, _i64(product.a.leading), right, _i64(product.b.leading), zero, c, _i64(product.n)]
    b.call(gemm, arguments)


def _declaration(module: ir.Module, product: Product) -> Any:
    name = "hml_sgemm" if product.dtype is dtypes.float32 else "hml_dgemm"
    found = module.globals.get(name)
    if found is not None:
        return found
    t = register_type(product.dtype)
    kind = ir.FunctionType(VOID, [I32, I32, I32, I64, I64, I64, t, PTR, I64, PTR, I64, t, PTR, I64])
    return ir.Function(module, kind, name)


def _i64(value: int) -> Any:
    return constant(value, dtypes.int64)

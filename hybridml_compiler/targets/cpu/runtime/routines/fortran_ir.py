"""Singular values and eigenvalues by LAPACK's own routines, which know matrices by columns and take all arguments by
reference. An integer is in a word of 64 bits, zeros above, whichever width the library reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...llvm.native import KINDS, NativeBuilder
from ...llvm.values import Literal
from .kernels_ir import Real
from .matrices_ir import Needs, One, Work, not_finite, pointer, put_row, symmetric

_ASK = -1  # the size of working memory that asks for the best one


def _call(r: Real, c: NativeBuilder, name: str, *args: Any) -> Any:
    """Calls a routine with letters, numbers and addresses; whether it has failed."""
    info = c.local("i64")
    info.store(0)
    given = [_place(c, arg) for arg in args]
    c.extern("void", f"lapack_{name}", *given, info, *[1 for arg in args if isinstance(arg, str)])
    return info.load("i32") != 0


def _place(c: NativeBuilder, arg: Any) -> Any:
    if not isinstance(arg, str | int) and arg.type is KINDS["ptr"]:
        return arg
    place = c.local("i64")
    place.store(Literal(KINDS["i64"], str(ord(arg))) if isinstance(arg, str) else arg)
    return place


def _asked(r: Real, c: NativeBuilder, memory: Any) -> Any:
    """The size that a routine has answered with, a number of its dtype, in whole vectors."""
    size: Any = c.fptoui(r.get(c, memory), KINDS["i64"])
    return r.padded(size + r.lanes)


def _by_columns(r: Real, c: NativeBuilder, rows: Any, columns: Any, x: Any, ldx: Any, out: Any, ldo: Any) -> Any:
    """Copies x to out, columns as rows; the result is a vector of zeros if all is finite."""
    total = c.variable(r.numbers("0.0"))
    with c.each(r.padded(columns), 0, r.lanes) as j:
        mask = r.below(c, columns - j)
        with c.each(rows) as i:
            part = r.gather(c, r.at(x, j * ldx + i), ldx, mask)
            total.value = c.fadd(total.value, c.fmul(part, r.numbers("0.0")))
            r.store_some(c, part, r.at(out, i * ldo + j), mask)
    return total.value


# ---------------------------------------------------------------- eigenvalues of symmetric matrices


def eigh(r: Real, vectors: bool) -> tuple[One, Needs]:
    """`syevd`: eigenvalues, and eigenvectors if they are wanted."""
    job, averaged = "V" if vectors else "N", symmetric(r)

    def one(c: NativeBuilder, operands: Any, dims: Any, index: Any, space: Any, work: Any) -> Any:
        n, (floats, integers) = dims.item(1), (work.item(0), work.item(1))
        ldw = r.padded(n)
        values = r.at(space, n * ldw)
        memory = r.at(values, ldw)
        whole = r.at(memory, floats)
        c.ret_if(averaged(c, n, r.at(pointer(operands, 0), index * n * n), space, ldw) != 0, 1)
        failed = _call(
            r, c, "syevd", job, "L", n, space, ldw, values, memory, floats, whole, integers
        )  # fmt: skip
        c.ret_if(failed, 1)
        _put(r, c, n, values, pointer(operands, 1), index)
        if vectors:
            out = pointer(operands, 2)
            with c.if_then(out != 0):
                _by_columns(r, c, n, n, space, ldw, r.at(out, index * n * n), n)
        return 0

    def work(c: NativeBuilder, dims: Any) -> Work:
        n, answer, count = dims.item(1), c.local("i64"), c.local("i64")
        ldw = r.padded(n)
        count.store(0)
        _call(r, c, "syevd", job, "L", n, answer, ldw, answer, answer, _ASK, count, _ASK)
        floats: Any = _asked(r, c, answer)
        integers: Any = c.zext(count.load("i32"), KINDS["i64"])
        return ((n + 1) * ldw + floats) * r.size + integers * 8, floats, integers

    return one, work


def _put(r: Real, c: NativeBuilder, n: Any, x: Any, out: Any, index: Any) -> None:
    """Copies a vector to its place in a batch, if anybody reads it."""
    with c.if_then(out != 0):
        put_row(r, c, n, x, r.at(out, index * n))


# ---------------------------------------------------------------- singular values


def svd(r: Real, vectors: bool) -> tuple[One, Needs]:
    """`gesdd`: singular values, and both sides' vectors if they are wanted."""

    def measures(c: NativeBuilder, dims: Any) -> tuple[Any, ...]:
        rows, columns = dims.item(1), dims.item(2)
        some, full = c.least(rows, columns), dims.item(3) != 0
        return rows, columns, some, c.select(full, rows, some), c.select(full, columns, some)

    def job(c: NativeBuilder, dims: Any) -> Any:
        if not vectors:
            return "N"
        place = c.local("i64")
        place.store(c.select(dims.item(3) != 0, ord("A"), Literal(KINDS["i64"], str(ord("S")))))
        return place

    def gesdd(
        c: NativeBuilder, dims: Any, a: Any, values: Any, u: Any, v: Any, memory: Any, floats: Any, whole: Any
    ) -> Any:
        rows, columns, _, _, right = measures(c, dims)
        given = job(c, dims)
        more = () if isinstance(given, str) else (given,)
        return _call(
            r, c, "gesdd", *(more or (given,)), rows, columns, a, rows, values, u, rows, v, right, memory, floats, whole
        )  # fmt: skip

    def one(c: NativeBuilder, operands: Any, dims: Any, index: Any, space: Any, work: Any) -> Any:
        rows, columns, some, left, right = measures(c, dims)
        values = r.at(space, r.padded(rows * columns))
        u = r.at(values, r.padded(some))
        v = r.at(u, r.padded(rows * left))
        memory = r.at(v, r.padded(right * columns))
        whole = r.at(memory, work.item(0))
        x = r.at(pointer(operands, 0), index * rows * columns)
        c.ret_if(not_finite(r, c, _by_columns(r, c, columns, rows, x, columns, space, rows)), 1)
        c.ret_if(gesdd(c, dims, space, values, u, v, memory, work.item(0), whole), 1)
        _put(r, c, some, values, pointer(operands, 2 if vectors else 1), index)
        for k, height, width, x, ldx in ((1, rows, left, u, rows), (3, right, columns, v, right)) if vectors else ():
            out = pointer(operands, k)
            with c.if_then(out != 0):
                _by_columns(r, c, height, width, x, ldx, r.at(out, index * height * width), width)
        return 0

    def work(c: NativeBuilder, dims: Any) -> Work:
        rows, columns, some, left, right = measures(c, dims)
        answer = c.local("i64")
        gesdd(c, dims, answer, answer, answer, answer, answer, _ASK, answer)
        floats = _asked(r, c, answer)
        arrays = [r.padded(size) for size in (rows * columns, some, rows * left, right * columns)]
        return (sum(arrays, floats)) * r.size + some * 64, floats, some * 8

    return one, work


ROWS: dict[str, Callable[[Real], tuple[One, Needs]]] = {
    "eigh": lambda r: eigh(r, True),
    "eigvalsh": lambda r: eigh(r, False),
    "svd": lambda r: svd(r, True),
    "svdvals": lambda r: svd(r, False),
}

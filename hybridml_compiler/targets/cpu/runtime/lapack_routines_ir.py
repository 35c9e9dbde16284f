"""Routines of lapack.py over batches: `i64 hml_NAME_LETTER(ptr operands, ptr dims)`, where `operands` are the addresses of
dense arrays, results last, and `dims` the sizes that ops/lapack.py tells. The result is 0, or 1 where a matrix is
refused or there is no memory: then results are undefined.

Matrices of a batch are shared over the pool, and the columns of a large one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..llvm.native import KINDS, Native, NativeBuilder, native
from ..llvm.native import text as module_text
from ..llvm.values import Literal
from ..spec import CpuSpec
from .lapack_ir import Real, blocks

LINE = 64
STACK = 12 << 10  # bytes of small matrices; callers may have small stacks
HELD = 32  # rows from which products are BLAS's
_ZERO, _ONE = "0.0", "1.0"
_BIG, _SMALL = "0x5F30000000000000", "0x20B0000000000000"  # 2^500, 2^-500


def _ptr(p: Any, k: int) -> Any:
    return p.item(k, "ptr")


# ---------------------------------------------------------------- copies


def _copied(r: Real, c: NativeBuilder, rows: Any, columns: Any, x: Any, w: Any, ldw: Any) -> Any:
    """Copies a dense matrix into padded rows; a vector that is not a number where an element is not finite."""
    total = c.variable(r.numbers(_ZERO))
    with c.each(rows) as i:
        _row(r, c, columns, r.at(x, i * columns), r.at(w, i * ldw), total)
    return total.value


def _row(r: Real, c: NativeBuilder, columns: Any, x: Any, w: Any, total: Any = None) -> None:
    with c.each(r.padded(columns), 0, r.lanes) as j:
        part = r.load_some(c, r.at(x, j), r.below(c, columns - j))
        if total is not None:
            total.value = c.fadd(total.value, c.fmul(part, r.numbers(_ZERO)))
        r.store(c, part, r.at(w, j))


def _not_finite(r: Real, c: NativeBuilder, total: Any) -> Any:
    """Whether such a vector is not of zeros."""
    found = c.intrinsic("vector.reduce.fadd", r.scalar, [r.number(_ZERO), total], [r.vector])
    return c.fcmp_unordered("!=", found, r.number(_ZERO))


def _symmetric(r: Real, c: NativeBuilder, n: Any, x: Any, w: Any, ldw: Any) -> Any:
    """(x + x^T) / 2 from the vector of the diagonal on, as `_copied`."""
    total = c.variable(r.numbers(_ZERO))
    with c.each(r.padded(n), 0, r.lanes) as j:
        mask = r.below(c, n - j)
        with c.each(c.least(j + r.lanes, n)) as i:
            one = r.load_some(c, r.at(x, i * n + j), mask)
            other = r.gather(c, r.at(x, j * n + i), n, mask)
            both = c.fadd(c.fmul(one, r.numbers(_ZERO)), c.fmul(other, r.numbers(_ZERO)))
            total.value = c.fadd(total.value, both)
            r.store(c, c.fmul(c.fadd(one, other), r.numbers("0.5")), r.at(w, i * ldw + j))
    return total.value


def _turned(r: Real, c: NativeBuilder, n: Any, w: Any, ldw: Any, out: Any) -> None:
    """The transpose of an upper triangle, with zeros above."""
    with c.each(r.padded(n), 0, r.lanes) as j:
        inside = r.below(c, n - j)
        with c.each(n) as i:
            mask = r.below(c, i + 1 - j)
            part = r.gather(c, r.at(w, j * ldw + i), ldw, mask)
            r.store_some(c, part, r.at(out, i * n + j), inside)


# ---------------------------------------------------------------- one matrix
# body(c, operands, dims, index, space) -> 1 where it is refused


def _cholesky(r: Real) -> Callable[..., Any]:
    def one(c: NativeBuilder, operands: Any, dims: Any, index: Any, space: Any) -> Any:
        n = dims.item(1)
        ldw, step = r.padded(n), index * n * n
        total = _symmetric(r, c, n, r.at(_ptr(operands, 0), step), space, ldw)
        c.ret_if(_not_finite(r, c, total), 1)
        c.ret_if(r.cholesky(c, n, space, ldw) != 0, 1)
        _turned(r, c, n, space, ldw, r.at(_ptr(operands, 1), step))
        return 0

    return one


def _solved(r: Real) -> Native:
    @native("void", "ptr", "i64", "i64")
    def solved(c: NativeBuilder, given: Any, lo: Any, hi: Any) -> None:
        """Columns of the solution: from rows of y in this order, or of the identity where there is no y."""
        fields = ("i64", "i64", "ptr", "ptr", "ptr", "ptr", "ptr")
        n, m, w, order, y, out, b = (given.item(k, kind) for k, kind in enumerate(fields, 1))
        ldw, ldb = r.padded(n), r.padded(m)

        def each(first: Any, count: Any) -> None:
            start, width = first * r.lanes, count * r.lanes
            some = c.least(width, m - start)
            own = r.at(b, start)
            with c.each(n) as i:
                row, source = r.at(own, i * ldb), order.item(i)
                after = c.label()
                with c.if_then(y != 0):
                    _row(r, c, some, r.at(y, source * m + start), row)
                    c.jump(after)
                one = r.lanes_of(c, source)
                with c.each(start + width, start, r.lanes) as j:
                    here = c.compare("icmp eq", c.binary("add", r.iota, r.lanes_of(c, j)), one)
                    part = c.select(here, r.numbers(_ONE), r.numbers(_ZERO))
                    r.store(c, part, r.at(row, j - start))
                c.place(after)
            r.triangle(c, n, count, w, ldw, 1, 0, 1, own, ldb)
            r.triangle(c, n, count, w, ldw, 1, 1, 0, own, ldb)
            _out(r, c, n, some, own, ldb, r.at(out, start), m)

        blocks(c, given, lo, hi, each)

    return solved


def _out(r: Real, c: NativeBuilder, rows: Any, columns: Any, w: Any, ldw: Any, out: Any, ldo: Any) -> None:
    with c.each(rows) as i:
        source, target = r.at(w, i * ldw), r.at(out, i * ldo)
        with c.each(r.padded(columns), 0, r.lanes) as j:
            r.store_some(c, r.load(c, r.at(source, j)), r.at(target, j), r.below(c, columns - j))


def _order(c: NativeBuilder, n: Any, pivots: Any, order: Any) -> None:
    """The rows of a matrix in the order that changes of rows bring them to."""
    with c.each(n) as i:
        (order + i * 8).store(i)
    with c.each(n) as i:
        other = order + pivots.item(i) * 8
        own = order + i * 8
        x, y = own.load(), other.load()
        own.store(y)
        other.store(x)


def _system(r: Real, part: Native, identity: bool) -> Callable[..., Any]:
    def one(c: NativeBuilder, operands: Any, dims: Any, index: Any, space: Any) -> Any:
        n = dims.item(1)
        m = n if identity else dims.item(2)
        ldw = r.padded(n)
        x = r.at(_ptr(operands, 0), index * (n * n if identity else dims.item(3)))
        y = Literal(KINDS["ptr"], "null") if identity else r.at(_ptr(operands, 1), index * dims.item(4))
        out = r.at(_ptr(operands, 1 if identity else 2), index * n * m)
        _copied(r, c, n, n, x, space, ldw)
        pivots = r.at(space, n * ldw)
        order = pivots + n * 8
        b = order + n * 8
        c.ret_if(r.lu(c, n, n, space, ldw, pivots) != 0, 1)
        _order(c, n, pivots, order)
        count = r.padded(m) // r.lanes
        r.shared(c, part, (n, m, space, order, y, out, b), count, r.block(c, count, n * n * m))
        return 0

    return one


def _bytes_of_system(r: Real, c: NativeBuilder, n: Any, m: Any) -> Any:
    return n * (r.padded(n) + r.padded(m)) * r.size + n * 16


def _triangular(r: Real) -> tuple[Callable[..., Any], Native]:
    @native("void", "ptr", "i64", "i64")
    def substituted(c: NativeBuilder, given: Any, lo: Any, hi: Any) -> None:
        """Columns of the solution."""
        fields = ("i64", "i64", "ptr", "i64", "i64", "ptr", "ptr", "ptr")
        n, m, x, upper, unit, y, out, b = (given.item(k, kind) for k, kind in enumerate(fields, 1))
        ldb = r.padded(m)

        def each(first: Any, count: Any) -> None:
            start = first * r.lanes
            some, own = c.least(count * r.lanes, m - start), r.at(b, start)
            with c.each(n) as i:
                _row(r, c, some, r.at(y, i * m + start), r.at(own, i * ldb))
            r.triangle(c, n, count, x, n, 1, upper, unit, own, ldb)
            _out(r, c, n, some, own, ldb, r.at(out, start), m)

        blocks(c, given, lo, hi, each)

    def one(c: NativeBuilder, operands: Any, dims: Any, index: Any, space: Any) -> Any:
        n, m, upper, unit = (dims.item(k) for k in (1, 2, 5, 6))
        x, y = (r.at(_ptr(operands, k), index * dims.item(3 + k)) for k in (0, 1))
        out = r.at(_ptr(operands, 2), index * n * m)
        with c.if_then(unit == 0):
            with c.each(n) as i:
                c.ret_if(c.fcmp_ordered("==", r.get(c, r.at(x, i * (n + 1))), r.number(_ZERO)), 1)
        count = r.padded(m) // r.lanes
        r.shared(c, substituted, (n, m, x, upper, unit, y, out, space), count, r.block(c, count, n * n * m >> 1))
        return 0

    return one, substituted


def _determinant(r: Real, logarithm: bool) -> Callable[..., Any]:
    """det: the product of the pivots, by numbers of moderate size and a power of 2^500; slogdet: its sign and the sum
    of their logarithms. Both in double precision."""
    double = KINDS["double"]

    def wide(c: NativeBuilder, x: Any) -> Any:
        return c.fpext(x, double)

    def put(c: NativeBuilder, x: Any, out: Any, index: Any) -> None:
        with c.if_then(out != 0):  # one that nobody reads has no memory
            c.store(c.fptrunc(x, r.scalar), r.at(out, index))

    def moderate(c: NativeBuilder, x: Any, power: Any) -> Any:
        size = c.intrinsic("fabs", double, [x], [double])
        big = c.fcmp_ordered(">", size, Literal(double, _BIG))
        small = c.fcmp_ordered("<", size, Literal(double, _SMALL)) & c.fcmp_ordered(">", size, Literal(double, _ZERO))
        power.value = c.select(big, power.value + 1, c.select(small, power.value - 1, power.value))
        factor = c.select(small, Literal(double, _BIG), Literal(double, _ONE))
        return c.fmul(x, c.select(big, Literal(double, _SMALL), factor))

    def one(c: NativeBuilder, operands: Any, dims: Any, index: Any, space: Any) -> Any:
        n = dims.item(1)
        ldw = r.padded(n)
        pivots = r.at(space, n * ldw)
        _copied(r, c, n, n, r.at(_ptr(operands, 0), index * n * n), space, ldw)
        zero = r.lu(c, n, n, space, ldw, pivots) != 0
        total, power = c.variable(Literal(double, _ZERO if logarithm else _ONE)), c.variable(0)
        sign = c.variable(Literal(double, _ONE))
        with c.each(n) as i:
            x = wide(c, r.get(c, r.at(space, i * (ldw + 1))))
            turned = c.select(pivots.item(i) == i, Literal(double, _ONE), Literal(double, "-1.0"))
            sign.value = c.fmul(sign.value, turned)
            if logarithm:
                negative = c.fcmp_ordered("<", x, Literal(double, _ZERO))
                sign.value = c.select(negative, c.fneg(sign.value), sign.value)
                size = c.intrinsic("fabs", double, [x], [double])
                total.value = c.fadd(total.value, c.extern("double", "log", size))
            else:
                part = moderate(c, x, power)
                total.value = moderate(c, c.fmul(total.value, part), power)
        if logarithm:
            less = Literal(double, "0xFFF0000000000000")
            put(c, c.select(zero, Literal(double, _ZERO), sign.value), _ptr(operands, 1), index)
            put(c, c.select(zero, less, total.value), _ptr(operands, 2), index)
            return 0
        found = c.variable(c.fmul(total.value, sign.value))
        for factor, step in ((_BIG, -1), (_SMALL, 1)):
            with c.loop():
                c.break_if(c.icmp_signed("<=" if step < 0 else ">=", power.value, 0))
                found.value = c.fmul(found.value, Literal(double, factor))
                power.value += step
        put(c, c.select(zero, Literal(double, _ZERO), found.value), _ptr(operands, 1), index)
        return 0

    return one


# ---------------------------------------------------------------- batches


def _routine(r: Real, name: str, one: Callable[..., Any], nbytes: Callable[..., Any]) -> Native:
    """`hml_NAME_LETTER`. `nbytes(c, dims)`: those that a matrix is worked on in."""

    @native("i64", "ptr", "ptr", "i64", "ptr", name=f"{name}_one")
    def single(c: NativeBuilder, operands: Any, dims: Any, index: Any, space: Any) -> None:
        c.ret(one(c, operands, dims, index, space))

    @native("void", "ptr", "i64", "i64", name=f"{name}_part")
    def part(c: NativeBuilder, given: Any, lo: Any, hi: Any) -> None:
        operands, dims, size = given.item(0, "ptr"), given.item(1, "ptr"), given.item(2)
        near = c.local("i8", STACK + LINE)
        far = c.variable(Literal(KINDS["ptr"], "null"))
        with c.if_then(size > STACK):
            far.value = c.extern("ptr", "malloc", size + LINE)
            with c.if_then(far.value == 0):
                (given + 24).store(1)
                c.ret_void()
        start = c.select(size > STACK, far.value, near)
        space = start + ((LINE - (c.word(start) & (LINE - 1))) & (LINE - 1))
        with c.each(hi, lo) as index:
            with c.if_then(single(c, operands, dims, index, space) != 0):
                (given + 24).store(1)
        c.extern("void", "free", far.value)

    @native("i64", "ptr", "ptr", name=f"hml_{name}_{r.letter}")
    def routine(c: NativeBuilder, operands: Any, dims: Any) -> None:
        given, batch, n = c.local("i64", 4), dims.load(), dims.item(1)
        for k, field in enumerate((operands, dims, nbytes(c, dims), 0)):
            (given + 8 * k).store(field)
        with c.if_then(n > HELD):
            c.extern("void", "hml_blas_hold")
        granule = _granule(c, n)
        c.extern("void", "hml_parallel_chunks", c.symbol("hml_pool"), part.define(c.module), given, batch, granule, 4)
        with c.if_then(n > HELD):
            c.extern("void", "hml_blas_release")
        c.ret(given.item(3))

    return routine


def _granule(c: NativeBuilder, n: Any) -> Any:
    """Matrices that a thread takes at once: a range is no less than some microseconds of work."""
    cube = n * n * n + 512
    return c.greatest(c.udiv(Literal(KINDS["i64"], "65536"), cube), 1)


def text(name: str, letter: str, cpu: CpuSpec) -> str:
    """LLVM IR of the module of a routine."""
    return module_text(f"lapack_{name}_{letter}", cpu, routines(Real(letter, cpu))[name])


def routines(r: Real) -> dict[str, Native]:
    """All routines, by name."""
    solved = _solved(r)
    triangular, _ = _triangular(r)

    def square(c: NativeBuilder, dims: Any) -> Any:
        n = dims.item(1)
        return n * r.padded(n) * r.size + n * 8

    def system(c: NativeBuilder, dims: Any) -> Any:
        return _bytes_of_system(r, c, dims.item(1), dims.item(2))

    made = {
        "cholesky": (_cholesky(r), square),
        "solve": (_system(r, solved, False), system),
        "solve_triangular": (triangular, system),
        "inv": (_system(r, solved, True), lambda c, dims: _bytes_of_system(r, c, dims.item(1), dims.item(1))),
        "det": (_determinant(r, False), square),
        "slogdet": (_determinant(r, True), square),
    }
    return {name: _routine(r, name, *parts) for name, parts in made.items()}

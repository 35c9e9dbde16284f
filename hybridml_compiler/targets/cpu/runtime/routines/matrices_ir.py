"""Routines for one matrix of a batch, by the kernels of kernels_ir.py.

    one(c, operands, dims, index, space, work) -> 1 where the matrix is refused
    needs(c, dims) -> bytes of `space`, and elements of LAPACK's working memory in them

`operands` are the addresses of dense arrays, results last, null where nobody reads one; `dims` are the sizes that
ops/routines.py tells, and `index` is the number of the matrix. Matrices are copied to `space`, in padded rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...llvm.native import KINDS, Native, NativeBuilder, i32, native
from ...llvm.values import Literal
from .kernels_ir import Real, blocks

_ZERO, _ONE = "0.0", "1.0"
_BIG, _SMALL = "0x5F30000000000000", "0x20B0000000000000"  # 2^500, 2^-500


Work = tuple[Any, ...]  # bytes; where LAPACK is called, its floats and integers
One = Callable[..., Any]
Needs = Callable[[NativeBuilder, Any], Work]


def pointer(table: Any, k: int) -> Any:
    """Entry k of a table of addresses."""
    return table.item(k, "ptr")


# ---------------------------------------------------------------- copies


def copied(r: Real, c: NativeBuilder, rows: Any, columns: Any, x: Any, w: Any, ldw: Any) -> Any:
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


def not_finite(r: Real, c: NativeBuilder, total: Any) -> Any:
    """Whether such a vector is not of zeros."""
    found = c.intrinsic("vector.reduce.fadd", r.scalar, [r.number(_ZERO), total], [r.vector])
    return c.fcmp_unordered("!=", found, r.number(_ZERO))


def symmetric(r: Real) -> Native:
    @native("void", "ptr", "i64", "i64")
    def averaged(c: NativeBuilder, given: Any, lo: Any, hi: Any) -> None:
        n, x, w, ldw, flag = (given.item(k, kind) for k, kind in enumerate(("i64", "ptr", "ptr", "i64", "ptr"), 1))
        total = c.variable(r.numbers(_ZERO))
        with c.each(hi, lo) as chunk:
            j = chunk * r.lanes
            mask = r.below(c, n - j)
            with c.each(c.least(j + r.lanes, n)) as i:
                one = r.load_some(c, r.at(x, i * n + j), mask)
                other = r.gather(c, r.at(x, j * n + i), n, mask)
                both = c.fadd(c.fmul(one, r.numbers(_ZERO)), c.fmul(other, r.numbers(_ZERO)))
                total.value = c.fadd(total.value, both)
                r.store(c, c.fmul(c.fadd(one, other), r.numbers("0.5")), r.at(w, i * ldw + j))
        with c.if_then(not_finite(r, c, total.value)):
            flag.store(1)

    @native("i64", "i64", "ptr", "ptr", "i64")
    def symmetric(c: NativeBuilder, n: Any, x: Any, w: Any, ldw: Any) -> None:
        """Copies (x + x^T) / 2, from the vector of the diagonal on; 1 where an element is not finite."""
        flag, count = c.local("i64"), r.padded(n) // r.lanes
        flag.store(0)
        r.shared(c, averaged, (n, x, w, ldw, flag), count, r.block(c, count, n * n))
        c.ret(flag.load())

    return symmetric


def _turned(r: Real) -> Native:
    @native("void", "ptr", "i64", "i64")
    def turned(c: NativeBuilder, given: Any, lo: Any, hi: Any) -> None:
        """The transpose of an upper triangle, with zeros above."""
        n, w, ldw, out = (given.item(k, kind) for k, kind in enumerate(("i64", "ptr", "i64", "ptr"), 1))
        with c.each(hi, lo) as chunk:
            j = chunk * r.lanes
            inside = r.below(c, n - j)
            with c.each(n) as i:
                part = r.gather(c, r.at(w, j * ldw + i), ldw, r.below(c, i + 1 - j))
                r.store_some(c, part, r.at(out, i * n + j), inside)

    return turned


# ---------------------------------------------------------------- one matrix


def _cholesky(r: Real) -> Callable[..., Any]:
    averaged, turned = symmetric(r), _turned(r)

    def one(c: NativeBuilder, operands: Any, dims: Any, index: Any, space: Any, work: Any) -> Any:
        n = dims.item(1)
        ldw, step = r.row(c, n), index * n * n
        c.ret_if(averaged(c, n, r.at(pointer(operands, 0), step), space, ldw) != 0, 1)
        c.ret_if(r.cholesky(c, n, space, ldw) != 0, 1)
        count = r.padded(n) // r.lanes
        r.shared(c, turned, (n, space, ldw, r.at(pointer(operands, 1), step)), count, r.block(c, count, n * n))
        return 0

    return one


def _solved(r: Real) -> Native:
    @native("void", "ptr", "i64", "i64")
    def solved(c: NativeBuilder, given: Any, lo: Any, hi: Any) -> None:
        """Columns of the solution: from rows of y in this order, or of the identity where there is no y."""
        fields = ("i64", "i64", "ptr", "ptr", "ptr", "ptr", "ptr")
        n, m, w, order, y, out, b = (given.item(k, kind) for k, kind in enumerate(fields, 1))
        ldw, ldb = r.row(c, n), r.row(c, m)
        b = c.select(ldb == m, out, b)

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
            with c.if_then(ldb != m):  # others are where they are wanted
                _out(r, c, n, some, own, ldb, r.at(out, start), m)

        blocks(c, given, lo, hi, each)

    return solved


def _out(r: Real, c: NativeBuilder, rows: Any, columns: Any, w: Any, ldw: Any, out: Any, ldo: Any) -> None:
    with c.each(rows) as i:
        put_row(r, c, columns, r.at(w, i * ldw), r.at(out, i * ldo))


def put_row(r: Real, c: NativeBuilder, columns: Any, w: Any, out: Any) -> None:
    """Copies a padded row to where there is no padding."""
    with c.each(r.padded(columns), 0, r.lanes) as j:
        r.store_some(c, r.load(c, r.at(w, j)), r.at(out, j), r.below(c, columns - j))


def _order(c: NativeBuilder, rows: Any, pivots: Any, n: Any, order: Any) -> None:
    """The order that n changes of rows bring them to."""
    with c.each(rows) as i:
        (order + i * 8).store(i)
    with c.each(n) as i:
        other = order + pivots.item(i) * 8
        own = order + i * 8
        x, y = own.load(), other.load()
        own.store(y)
        other.store(x)


def _system(r: Real, part: Native, identity: bool) -> Callable[..., Any]:
    def one(c: NativeBuilder, operands: Any, dims: Any, index: Any, space: Any, work: Any) -> Any:
        n = dims.item(1)
        m = n if identity else dims.item(2)
        ldw = r.row(c, n)
        x = r.at(pointer(operands, 0), index * (n * n if identity else dims.item(3)))
        y = Literal(KINDS["ptr"], "null") if identity else r.at(pointer(operands, 1), index * dims.item(4))
        out = r.at(pointer(operands, 1 if identity else 2), index * n * m)
        copied(r, c, n, n, x, space, ldw)
        pivots = r.at(space, n * ldw)
        order = pivots + n * 8
        b = order + n * 8
        c.ret_if(r.lu(c, n, n, space, ldw, pivots) != 0, 1)
        _order(c, n, pivots, n, order)
        count = r.padded(m) // r.lanes
        r.shared(c, part, (n, m, space, order, y, out, b), count, r.block(c, count, n * n * m))
        return 0

    return one


def _bytes_of_system(r: Real, c: NativeBuilder, n: Any, m: Any) -> Any:
    """Memory for the factors of a matrix, m columns beside them, and two orders of its rows."""
    return n * (r.row(c, n) + (0 if m is None else r.row(c, m))) * r.size + n * 16


def _triangular(r: Real) -> Callable[..., Any]:
    @native("void", "ptr", "i64", "i64")
    def substituted(c: NativeBuilder, given: Any, lo: Any, hi: Any) -> None:
        """Columns of the solution."""
        fields = ("i64", "i64", "ptr", "i64", "i64", "ptr", "ptr", "ptr")
        n, m, x, upper, unit, y, out, b = (given.item(k, kind) for k, kind in enumerate(fields, 1))
        ldb = r.row(c, m)
        b = c.select(ldb == m, out, b)

        def each(first: Any, count: Any) -> None:
            start = first * r.lanes
            some, own = c.least(count * r.lanes, m - start), r.at(b, start)
            with c.each(n) as i:
                _row(r, c, some, r.at(y, i * m + start), r.at(own, i * ldb))
            r.triangle(c, n, count, x, n, 1, upper, unit, own, ldb)
            with c.if_then(ldb != m):  # others are where they are wanted
                _out(r, c, n, some, own, ldb, r.at(out, start), m)

        blocks(c, given, lo, hi, each)

    def one(c: NativeBuilder, operands: Any, dims: Any, index: Any, space: Any, work: Any) -> Any:
        n, m, upper, unit = (dims.item(k) for k in (1, 2, 5, 6))
        x, y = (r.at(pointer(operands, k), index * dims.item(3 + k)) for k in (0, 1))
        out = r.at(pointer(operands, 2), index * n * m)
        with c.if_then(unit == 0):
            with c.each(n) as i:
                c.ret_if(c.fcmp_ordered("==", r.get(c, r.at(x, i * (n + 1))), r.number(_ZERO)), 1)
        count = r.padded(m) // r.lanes
        r.shared(c, substituted, (n, m, x, upper, unit, y, out, space), count, r.block(c, count, n * n * m >> 1))
        return 0

    return one


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
        small: Any = c.fcmp_ordered("<", size, Literal(double, _SMALL))
        small = small & c.fcmp_ordered(">", size, Literal(double, _ZERO))
        power.value = c.select(big, power.value + 1, c.select(small, power.value - 1, power.value))
        factor = c.select(small, Literal(double, _BIG), Literal(double, _ONE))
        return c.fmul(x, c.select(big, Literal(double, _SMALL), factor))

    def one(c: NativeBuilder, operands: Any, dims: Any, index: Any, space: Any, work: Any) -> Any:
        n = dims.item(1)
        ldw = r.row(c, n)
        pivots = r.at(space, n * ldw)
        copied(r, c, n, n, r.at(pointer(operands, 0), index * n * n), space, ldw)
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
            put(c, c.select(zero, Literal(double, _ZERO), sign.value), pointer(operands, 1), index)
            put(c, c.select(zero, less, total.value), pointer(operands, 2), index)
            return 0
        found = c.variable(c.fmul(total.value, sign.value))
        for factor, step in ((_BIG, -1), (_SMALL, 1)):
            with c.loop():
                c.break_if(c.icmp_signed("<=" if step < 0 else ">=", power.value, 0))
                found.value = c.fmul(found.value, Literal(double, factor))
                power.value += step
        put(c, c.select(zero, Literal(double, _ZERO), found.value), pointer(operands, 1), index)
        return 0

    return one


def _factors(r: Real) -> Callable[..., Any]:
    """lu: a square or high matrix, and columns beside the square of a wide one."""

    def put(c: NativeBuilder, i: Any, width: Any, w: Any, out: Any, lower: bool) -> None:
        """Row i of a triangle; the lower one has ones on the diagonal."""
        with c.each(r.padded(width), 0, r.lanes) as j:
            part, inside = r.load(c, r.at(w, j)), r.below(c, i - j)
            if lower:
                rest = c.select(r.below(c, i + 1 - j), r.numbers(_ONE), r.numbers(_ZERO))
                part = c.select(inside, part, rest)
            else:
                part = c.select(inside, r.numbers(_ZERO), part)
            r.store_some(c, part, r.at(out, j), r.below(c, width - j))

    def one(c: NativeBuilder, operands: Any, dims: Any, index: Any, space: Any, work: Any) -> Any:
        rows, columns = dims.item(1), dims.item(2)
        some = c.least(rows, columns)
        rest = columns - some
        ldw, ldb = r.row(c, some), r.row(c, rest)
        beside = r.at(space, rows * ldw)
        pivots = r.at(beside, rows * ldb)
        order = pivots + rows * 8
        x = r.at(pointer(operands, 0), index * rows * columns)
        total = c.variable(r.numbers(_ZERO))
        with c.each(rows) as i:
            row = r.at(x, i * columns)
            _row(r, c, some, row, r.at(space, i * ldw), total)
            _row(r, c, rest, r.at(row, some), r.at(beside, i * ldb), total)
        c.ret_if(not_finite(r, c, total.value), 1)
        r.lu(c, rows, some, space, ldw, pivots)  # a pivot of 0 is no error here
        _order(c, rows, pivots, some, order)
        r.swap(c, beside, ldb, pivots, 0, some, ldb // r.lanes)
        r.triangle(c, some, ldb // r.lanes, space, ldw, 1, 0, 1, beside, ldb)
        p, lower, upper = (pointer(operands, k) for k in (1, 2, 3))
        with c.if_then(p != 0):
            out = r.at(p, index * rows * rows)
            c.extern("ptr", "memset", out, i32(0), rows * rows * r.size)
            with c.each(rows) as i:
                c.store(r.number(_ONE), r.at(out, order.item(i) * rows + i))
        with c.if_then(lower != 0):
            with c.each(rows) as i:
                put(c, i, some, r.at(space, i * ldw), r.at(lower, (index * rows + i) * some), True)
        with c.if_then(upper != 0):
            with c.each(some) as i:
                out = r.at(upper, (index * some + i) * columns)
                put(c, i, some, r.at(space, i * ldw), out, False)
                put_row(r, c, rest, r.at(beside, i * ldb), r.at(out, some))
        return 0

    return one


# ---------------------------------------------------------------- memory


def _square(r: Real) -> Needs:
    return lambda c, dims: (_bytes_of_system(r, c, dims.item(1), None),)


def _right_sides(r: Real, at: int) -> Needs:
    """Memory of the matrix, and of as many columns beside it as entry `at` of the sizes."""
    return lambda c, dims: (_bytes_of_system(r, c, dims.item(1), dims.item(at)),)


def _wide(r: Real) -> Needs:
    def needs(c: NativeBuilder, dims: Any) -> Work:
        rows, columns = dims.item(1), dims.item(2)
        return ((r.padded(columns) + 3 * r.lanes) * rows * r.size + rows * 16,)

    return needs


ROWS: dict[str, Callable[[Real], tuple[One, Needs]]] = {
    "cholesky": lambda r: (_cholesky(r), _square(r)),
    "solve": lambda r: (_system(r, _solved(r), False), _right_sides(r, 2)),
    "solve_triangular": lambda r: (_triangular(r), _right_sides(r, 2)),
    "inv": lambda r: (_system(r, _solved(r), True), _right_sides(r, 1)),
    "det": lambda r: (_determinant(r, False), _square(r)),
    "slogdet": lambda r: (_determinant(r, True), _square(r)),
    "lu": lambda r: (_factors(r), _wide(r)),
}

"""Factorisations and triangular solutions of matrices of float32 or float64.

Matrices are row-major in memory of our own, their rows padded with zeros to whole vectors: no kernel has a rest.
Factorisations split at half of the columns, so that nearly all of their work is products, which BLAS does on one
thread; columns are shared over the pool in blocks whose size the shapes alone decide, and so are the bits of the
result. Blocks of one vector of columns are eliminated here: OpenBLAS's own triangular solutions and factorisations of
small matrices reach a tenth of the speed of its products ([Note: LAPACK]).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...llvm.native import KINDS, Native, NativeBuilder, i32, native
from ...llvm.native import text as module_text
from ...llvm.values import IntType, Literal, Value, VectorType, every
from ...spec import CpuSpec
from ..blas import NO_TRANS, ROW_MAJOR, TRANS

KERNELS = ("triangle", "lu", "cholesky")  # a module each, which routines share
SMALL = 32  # unknowns of a triangle that is solved without products
WORK = 1 << 19  # multiply-adds from which the pool shares the columns of a step
COLUMNS, MOST_BLOCKS = 96, 32  # in a block, about; blocks that they are shared in
_WIDTHS = (4, 2, 1)  # vectors of columns that a solution takes at once


class Linked:
    """A function of another module, called as one of this."""

    def __init__(self, native: Native) -> None:
        self.native = native

    def __call__(self, c: NativeBuilder, *args: Any) -> Any:
        return c.extern(self.native.result, self.native.name, *args)


class Real:
    """A real type: its vectors, and the kernels over it. Of `KERNELS` a module has its `own` and calls the others."""

    def __init__(self, letter: str, cpu: CpuSpec, own: str = "") -> None:
        self.letter, self.scalar = letter, KINDS["float" if letter == "s" else "double"]
        self.size = self.scalar.nbytes
        self.lanes = max(cpu.vector_bits // 8 // self.size, 2)
        self.vector = VectorType(self.scalar, self.lanes)
        self.index = IntType(8 * self.size)
        self.indices = VectorType(self.index, self.lanes)
        numbers = ", ".join(f"{self.index} {k}" for k in range(self.lanes))
        self.iota = Literal(self.indices, f"<{numbers}>")
        self.every = Literal(VectorType(IntType(1), self.lanes), "splat (i1 true)")
        self.forward, self.panel, self.swap = _forward(self), _panel(self), _swap(self)
        self.columns = _columns(self)
        self.kernels = dict(zip(KERNELS, (_triangle(self), _lu(self), _cholesky(self)), strict=True))
        for name, kernel in self.kernels.items():
            kernel.name = f"hml_kernel_{name}_{letter}"
        found = {name: k if name == own else Linked(k) for name, k in self.kernels.items()}
        self.triangle, self.lu, self.cholesky = found.values()

    # Values

    def number(self, x: str) -> Literal:
        """The literal as a scalar."""
        return Literal(self.scalar, x)

    def numbers(self, x: str) -> Literal:
        """The literal in every lane."""
        return Literal(self.vector, f"splat ({self.scalar} {x})")

    def splat(self, c: NativeBuilder, x: Value) -> Any:
        """The value in every lane."""
        kind = VectorType(x.type, self.lanes)
        first = c.insert_element(Literal(kind, "poison"), x, i32(0))
        return c.shuffle_vector(
            first, Literal(kind, "poison"), Literal(VectorType(KINDS["i32"], self.lanes), "zeroinitializer")
        )

    def lanes_of(self, c: NativeBuilder, i: Any) -> Any:
        """An i64 in every lane of a vector of indices."""
        return self.splat(c, c.trunc(i, self.index))

    def below(self, c: NativeBuilder, count: Any) -> Any:
        """The mask of the first so many lanes, of an i64 that may be negative or large."""
        most = c.select(c.icmp_signed("<", count, self.lanes), count, self.lanes)
        return c.compare("icmp slt", self.iota, self.lanes_of(c, most))

    # Memory

    def at(self, pointer: Any, i: Any) -> Any:
        """The address of element i."""
        return pointer + i * self.size

    def get(self, c: NativeBuilder, pointer: Any) -> Any:
        """The scalar at an address."""
        return c.load(pointer, self.scalar)

    def load(self, c: NativeBuilder, pointer: Any) -> Any:
        """The vector at an address."""
        return c.load(pointer, self.vector, self.size)

    def store(self, c: NativeBuilder, x: Value, pointer: Any) -> None:
        c.store(x, pointer, self.size)

    def load_some(self, c: NativeBuilder, pointer: Any, mask: Value) -> Any:
        """A vector of the lanes of a mask, zeros elsewhere."""
        given = [pointer, i32(self.size), mask, self.numbers(_ZERO)]
        return c.intrinsic("masked.load", self.vector, given, [self.vector, pointer.type])

    def store_some(self, c: NativeBuilder, x: Value, pointer: Any, mask: Value) -> None:
        given = [x, pointer, i32(self.size), mask]
        c.intrinsic("masked.store", KINDS["void"], given, [self.vector, pointer.type])

    def gather(self, c: NativeBuilder, pointer: Any, step: Any, mask: Value) -> Any:
        """Elements at multiples of a step, in elements, of the lanes of a mask."""
        wide = VectorType(KINDS["i64"], self.lanes)
        iota = Literal(wide, f"<{', '.join(f'i64 {k}' for k in range(self.lanes))}>")
        steps = c.binary("mul", iota, self.splat(c, step))
        kind = VectorType(pointer.type, self.lanes)
        places = c.append(f"getelementptr {self.scalar}, {pointer}, {steps}", kind)
        given = [places, i32(self.size), mask, self.numbers(_ZERO)]
        return c.intrinsic("masked.gather", self.vector, given, [self.vector, kind])

    # Arithmetic

    def minus_times(self, c: NativeBuilder, z: Value, x: Value, y: Value) -> Any:
        """The difference z - x y."""
        return c.intrinsic("fmuladd", z.type, [c.fneg(x), y, z], [z.type])

    def absolute(self, c: NativeBuilder, x: Value) -> Any:
        return c.intrinsic("fabs", x.type, [x], [x.type])

    def padded(self, n: Any) -> Any:
        """The number of elements of so many in whole vectors."""
        return (n + (self.lanes - 1)) & -self.lanes

    def row(self, c: NativeBuilder, n: Any) -> Any:
        """Elements from a padded row to the next: columns whose elements are multiples of 512 bytes apart share a few
        sets of a cache."""
        n = self.padded(n)
        return c.select(((n * self.size) & 511) == 0, n + self.lanes, n)

    def half(self, c: NativeBuilder, n: Any) -> Any:
        """Half of so many columns, more than a vector of them, in whole vectors."""
        return self.padded(n >> 1)

    def minus_product(
        self, c: NativeBuilder, m: Any, n: Any, k: Any, a: Any, lda: Any, b: Any, ldb: Any, out: Any, ldo: Any, ta: Any
    ) -> None:
        """Subtracts a b, or a^T b, from `out`."""
        c.extern(
            "void", f"hml_{self.letter}gemm", i32(ROW_MAJOR), ta, i32(NO_TRANS), m, n, k, self.number("-1.0"), a, lda,
            b, ldb, self.number("1.0"), out, ldo,
        )  # fmt: skip

    def shared(self, c: NativeBuilder, part: Native, fields: Sequence[Any], count: Any, block: Any) -> None:
        """Runs `part(fields, lo, hi)` over so many vectors of columns, in blocks that the pool shares."""
        given = c.local("i64", len(fields) + 1)
        for k, field in enumerate((block, *fields)):
            (given + 8 * k).store(field)
        c.extern("void", "hml_parallel_chunks", c.symbol("hml_pool"), part.define(c.module), given, count, block, 4)

    def block(self, c: NativeBuilder, count: Any, work: Any) -> Any:
        """Vectors of columns in a block, of so many vectors and multiply-adds, or moves of elements, in all. Products
        want 64 columns or more; little work is one block."""
        few = c.greatest(count * self.lanes // COLUMNS, 1)
        blocks = c.select(c.icmp_signed("<", work, WORK), 1, c.least(few, MOST_BLOCKS))
        return c.greatest((count + blocks - 1) // blocks, 1)


_ZERO = "0.0"


def blocks(c: NativeBuilder, given: Any, lo: Any, hi: Any, body: Callable[[Any, Any], None]) -> None:
    """Runs the body for each block of a part: its first vector of columns, and their number."""
    block, at = given.load(), c.variable(lo)
    with c.loop():
        now = at.value
        c.break_if(now >= hi)
        count = c.least(hi - now, block)
        at.value = now + count
        body(now, count)


def _forward(r: Real) -> Native:
    @native("void", "i64", "i64", "ptr", "i64", "i64", "i64", "ptr", "i64")
    def forward(c: NativeBuilder, n: Any, m: Any, t: Any, rows: Any, columns: Any, unit: Any, b: Any, ldb: Any) -> None:
        """b = t^-1 b of n rows, for a lower triangle whose rows and columns are so far apart; m is in vectors."""
        done = c.variable(0)
        for width in _WIDTHS:
            with c.loop():
                c.break_if(m - done.value < width)
                start = r.at(b, done.value * r.lanes)
                with c.each(n) as i:
                    row, of_row = r.at(start, i * ldb), r.at(t, i * rows)
                    places = [r.at(row, v * r.lanes) for v in range(width)]
                    sums = [c.variable(r.load(c, place)) for place in places]
                    with c.each(i) as k:
                        factor, other = r.splat(c, r.get(c, r.at(of_row, k * columns))), r.at(start, k * ldb)
                        for v, total in enumerate(sums):
                            total.value = r.minus_times(c, total.value, factor, r.load(c, r.at(other, v * r.lanes)))
                    with c.if_then(unit == 0):
                        one = c.fdiv(r.number("1.0"), r.get(c, r.at(of_row, i * columns)))
                        for total in sums:
                            total.value = c.fmul(total.value, r.splat(c, one))
                    for place, total in zip(places, sums, strict=True):
                        r.store(c, total.value, place)
                done.value += width

    return forward


def _triangle(r: Real) -> Native:
    @native("void", "i64", "i64", "ptr", "i64", "i64", "i64", "i64", "ptr", "i64")
    def triangle(
        c: NativeBuilder, n: Any, m: Any, t: Any, rows: Any, columns: Any, upper: Any, unit: Any, b: Any, ldb: Any
    ) -> None:
        """b = t^-1 b, by halves; an upper triangle from below is a lower one."""
        last = n - 1
        with c.if_then(n <= SMALL):
            with c.if_then(upper == 0):
                r.forward(c, n, m, t, rows, columns, unit, b, ldb)
                c.ret_void()
            end = r.at(t, last * (rows + columns))
            r.forward(c, n, m, end, 0 - rows, 0 - columns, unit, r.at(b, last * ldb), 0 - ldb)
            c.ret_void()
        first = c.variable((n >> 1) + (SMALL // 2 - 1) & -(SMALL // 2)).value
        rest, below = n - first, r.at(b, first * ldb)
        plain = columns == 1
        ta, ldt = c.select(plain, i32(NO_TRANS), i32(TRANS)), c.select(plain, rows, columns)
        corner = r.at(t, first * (rows + columns))
        with c.if_then(upper == 0):
            triangle(c, first, m, t, rows, columns, upper, unit, b, ldb)
            beside = r.at(t, first * rows)
            r.minus_product(c, rest, m * r.lanes, first, beside, ldt, b, ldb, below, ldb, ta)
            triangle(c, rest, m, corner, rows, columns, upper, unit, below, ldb)
            c.ret_void()
        triangle(c, rest, m, corner, rows, columns, upper, unit, below, ldb)
        beside = r.at(t, first * columns)
        r.minus_product(c, first, m * r.lanes, rest, beside, ldt, below, ldb, b, ldb, ta)
        triangle(c, first, m, t, rows, columns, upper, unit, b, ldb)

    return triangle


def _swap(r: Real) -> Native:
    @native("void", "ptr", "i64", "ptr", "i64", "i64", "i64")
    def swap(c: NativeBuilder, a: Any, lda: Any, pivots: Any, first: Any, end: Any, m: Any) -> None:
        """Changes row k with row `pivots[k]`, for k from `first` on, in m vectors of columns."""
        with c.each(end, first) as k:
            other = pivots.item(k)
            with c.if_then(other != k):
                x, y = r.at(a, k * lda), r.at(a, other * lda)
                with c.each(m) as v:
                    p, q = r.at(x, v * r.lanes), r.at(y, v * r.lanes)
                    one, two = r.load(c, p), r.load(c, q)
                    r.store(c, two, p)
                    r.store(c, one, q)

    return swap


def _panel(r: Real) -> Native:
    tiny, large = (
        ("0x3810000000000000", "0x4630000000000000") if r.size == 4 else ("0x0010000000000000", "0x4630000000000000")
    )

    @native("i64", "i64", "i64", "ptr", "i64", "ptr")
    def panel(c: NativeBuilder, m: Any, n: Any, a: Any, lda: Any, pivots: Any) -> None:
        """Eliminates n columns, one vector of them at most, of m rows; 1 where a pivot is 0.

        While the rows below a pivot change, the largest element of every column and its row are found.
        """
        bad = c.variable(0)
        found = [[c.variable(r.numbers("-1.0")), c.variable(Literal(r.indices, every(r.indices, "0")))] for _ in "ab"]

        def look(x: Any, i: Any, which: int) -> None:
            largest, where = found[which]
            size = r.absolute(c, x)
            where.value = c.select(c.fcmp_ordered(">", size, largest.value), r.lanes_of(c, i), where.value)
            largest.value = c.select(c.fcmp_ordered(">", size, largest.value), size, largest.value)

        def each(start: Any, body: Callable[[Any, int], None]) -> None:
            """Rows from `start` on, two at a time: each of them waits for the comparison before."""
            even = start + ((m - start) & -2)
            with c.each(even, start, 2) as i:
                body(i, 0)
                body(i + 1, 1)
            with c.if_then(even != m):
                body(even, 0)

        each(c.variable(0).value, lambda i, which: look(r.load(c, r.at(a, i * lda)), i, which))
        with c.each(n) as k:
            (largest, where), (other_largest, other_where) = found
            more = c.fcmp_ordered(">", other_largest.value, largest.value)
            where.value = c.select(more, other_where.value, where.value)
            pivot = c.zext(c.extract_element(where.value, k), KINDS["i64"])
            (pivots + k * 8).store(pivot)
            row, other = r.at(a, k * lda), r.at(a, pivot * lda)
            x, y = r.load(c, row), r.load(c, other)
            r.store(c, x, other)
            r.store(c, y, row)
            head = r.get(c, r.at(row, k))
            none = c.fcmp_ordered("==", head, r.number(_ZERO))
            bad.value = c.select(none, 1, bad.value)
            # By the reciprocal, which of a number below the normal ones is infinite.
            scale = c.select(c.fcmp_ordered("<", r.absolute(c, head), r.number(tiny)), r.number(large), r.number("1.0"))
            one = c.select(none, r.number(_ZERO), c.fdiv(r.number("1.0"), c.fmul(head, scale)))
            at = r.lanes_of(c, k)
            right, here = c.compare("icmp sgt", r.iota, at), c.compare("icmp eq", r.iota, at)
            tail = c.select(right, y, r.numbers(_ZERO))
            for largest, where in found:
                largest.value, where.value = r.numbers("-1.0"), r.lanes_of(c, k + 1)

            def eliminate(i: Any, which: int) -> None:
                row = r.at(a, i * lda)
                factor = r.splat(c, c.fmul(c.fmul(r.get(c, r.at(row, k)), scale), one))
                left = r.minus_times(c, r.load(c, row), factor, tail)
                left = c.select(here, factor, left)
                r.store(c, left, row)
                look(left, i, which)

            each(k + 1, eliminate)
        c.ret(bad.value)

    return panel


def _columns(r: Real) -> Native:
    @native("void", "ptr", "i64", "i64")
    def columns(c: NativeBuilder, given: Any, lo: Any, hi: Any) -> None:
        """Brings columns right of eliminated ones up to date."""
        m, n, lda, a, pivots = (given.item(k, kind) for k, kind in enumerate(("i64", "i64", "i64", "ptr", "ptr"), 1))

        def each(first: Any, count: Any) -> None:
            top = r.at(a, n + first * r.lanes)
            r.swap(c, top, lda, pivots, 0, n, count)
            r.triangle(c, n, count, a, lda, 1, 0, 1, top, lda)
            with c.if_then(m != n):
                below, left = r.at(top, n * lda), r.at(a, n * lda)
                r.minus_product(c, m - n, count * r.lanes, n, left, lda, top, lda, below, lda, i32(NO_TRANS))

        blocks(c, given, lo, hi, each)

    return columns


def _lu(r: Real) -> Native:
    @native("i64", "i64", "i64", "ptr", "i64", "ptr")
    def lu(c: NativeBuilder, m: Any, n: Any, a: Any, lda: Any, pivots: Any) -> None:
        """Factors of m rows and n columns, no more than rows, in place, with rows changed as `pivots` says; 1 where a
        pivot is 0."""
        with c.if_then(n <= r.lanes):
            c.ret(r.panel(c, m, n, a, lda, pivots))
        first = c.variable(r.half(c, n)).value
        bad = lu(c, m, first, a, lda, pivots)
        count = r.padded(n - first) // r.lanes
        block = r.block(c, count, m * first * (n - first))
        r.shared(c, r.columns, (m, first, lda, a, pivots), count, block)
        corner, rest = r.at(a, first * (lda + 1)), pivots + first * 8
        more = lu(c, m - first, n - first, corner, lda, rest)
        with c.each(n, first) as k:
            (pivots + k * 8).store(pivots.item(k) + first)
        r.swap(c, a, lda, pivots, first, n, first // r.lanes)
        c.ret(bad | more)

    return lu


def _cholesky(r: Real) -> Native:
    @native("i64", "i64", "ptr", "i64")
    def small(c: NativeBuilder, n: Any, a: Any, lda: Any) -> None:
        """`cholesky` of few rows: each minus those above it, divided by the root of its head."""
        end = r.padded(n)
        with c.each(n) as i:
            row = r.at(a, i * lda)
            head, own = r.at(row, i), i & -r.lanes
            total = c.variable(r.load(c, r.at(row, own)))
            with c.each(i) as k:
                other = r.at(a, k * lda)
                factor = r.splat(c, r.get(c, r.at(other, i)))
                total.value = r.minus_times(c, total.value, factor, r.load(c, r.at(other, own)))
            r.store(c, total.value, r.at(row, own))
            square = r.get(c, head)
            fine: Any = c.fcmp_ordered(">", square, r.number(_ZERO))
            fine = fine & c.fcmp_ordered("<", square, r.number(_INFINITY))
            c.ret_if(~fine, 1)
            root = c.intrinsic("sqrt", r.scalar, [square], [r.scalar])
            one = r.splat(c, c.fdiv(r.number("1.0"), root))
            r.store(c, c.fmul(total.value, one), r.at(row, own))
            c.store(root, head)
            with c.each(end, own + r.lanes, r.lanes) as j:
                total.value = r.load(c, r.at(row, j))
                with c.each(i) as k:
                    other = r.at(a, k * lda)
                    factor = r.splat(c, r.get(c, r.at(other, i)))
                    total.value = r.minus_times(c, total.value, factor, r.load(c, r.at(other, j)))
                r.store(c, c.fmul(total.value, one), r.at(row, j))
        c.ret(0)

    @native("void", "ptr", "i64", "i64")
    def beside(c: NativeBuilder, given: Any, lo: Any, hi: Any) -> None:
        """Rows of the factor, right of the triangle that is known."""
        n, lda, a = (given.item(k, kind) for k, kind in enumerate(("i64", "i64", "ptr"), 1))
        blocks(
            c, given, lo, hi,
            lambda first, count: r.triangle(c, n, count, a, 1, lda, 0, 0, r.at(a, n + first * r.lanes), lda),
        )  # fmt: skip

    @native("void", "ptr", "i64", "i64")
    def below(c: NativeBuilder, given: Any, lo: Any, hi: Any) -> None:
        """The rest of the matrix, up to the diagonal, minus products of the rows above."""
        n, lda, a, m = (given.item(k, kind) for k, kind in enumerate(("i64", "i64", "ptr", "i64"), 1))

        top, corner = r.at(a, n), r.at(a, n * (lda + 1))

        def update(row: Any, rows: Any, column: Any, count: Any) -> None:
            left, right = r.at(top, row), r.at(top, column)
            out = r.at(corner, row * lda + column)
            r.minus_product(c, rows, count * r.lanes, n, left, lda, right, lda, out, lda, i32(TRANS))

        def each(first: Any, count: Any) -> None:
            """Rows above the block's triangle, and that by halves of its columns: a quarter of it is in vain."""
            start, half = first * r.lanes, count >> 1
            some = half * r.lanes
            middle = start + some
            with c.if_then(middle != 0):
                update(c.variable(0).value, middle, start, count)
            update(middle, c.least((count - half) * r.lanes, m - middle), middle, count - half)

        blocks(c, given, lo, hi, each)

    @native("i64", "i64", "ptr", "i64")
    def cholesky(c: NativeBuilder, n: Any, a: Any, lda: Any) -> None:
        """U with U^T U = a, in place of the upper triangle; 1 where a is not positive definite."""
        with c.if_then(n <= SMALL):
            c.ret(small(c, n, a, lda))
        first = c.variable(r.half(c, n)).value
        c.ret_if(cholesky(c, first, a, lda) != 0, 1)
        rest = n - first
        count = r.padded(rest) // r.lanes
        block = r.block(c, count, first * rest * first)
        r.shared(c, beside, (first, lda, a), count, block)
        r.shared(c, below, (first, lda, a, rest), count, block)
        c.ret(cholesky(c, rest, r.at(a, first * (lda + 1)), lda))

    return cholesky


_INFINITY = "0x7FF0000000000000"


def text(name: str, letter: str, cpu: CpuSpec) -> str:
    """LLVM IR of the module of a kernel."""
    return module_text(f"lapack_kernel_{name}_{letter}", cpu, Real(letter, cpu, name).kernels[name])

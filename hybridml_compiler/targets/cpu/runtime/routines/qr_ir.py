"""QR by Householder reflections, I - V T V^T for a block of columns, so that nearly all of the work is products.

Source: Elmroth and Gustavson, Applying recursion to serial and parallel QR factorization, 2000; Schreiber and Van Loan,
A storage-efficient WY representation for products of Householder transformations, 1989.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...llvm.native import KINDS, Native, NativeBuilder, i32, native
from ...llvm.values import Literal
from ..blas import NO_TRANS, ROW_MAJOR, TRANS
from .kernels_ir import Real, blocks
from .matrices_ir import Needs, One, Work, copied, not_finite, pointer, put_row

BLOCK = 64  # columns that are reflected together
_ZERO, _ONE = "0.0", "1.0"
# Squares of norms that are exact enough, by the bytes of a number: 2^-80 to 2^120, and 2^-900 to 2^1000.
_RANGE = {4: ("0x3AF0000000000000", "0x4770000000000000"), 8: ("0x07B0000000000000", "0x7E70000000000000")}


class Reflections:
    """The functions of a module. V has ones on its diagonal and zeros above, T zeros below."""

    def __init__(self, r: Real) -> None:
        self.r = r
        self.applied = self._applied()
        self.panel = self._panel()
        self.block = self._block()

    def product(
        self, c: NativeBuilder, a: tuple[Any, Any, int], b: tuple[Any, Any, int], out: tuple[Any, Any], sizes: Any,
        scale: tuple[str, str] = (_ONE, _ZERO),
    ) -> None:  # fmt: skip
        """out = a b times the first scale, plus out times the second; operands with their rows' distance, and whether
        they are transposed."""
        r, (m, n, k) = self.r, sizes
        (x, ldx, tx), (y, ldy, ty) = a, b
        c.extern(
            "void", f"hml_{r.letter}gemm", i32(ROW_MAJOR), i32(tx), i32(ty), m, n, k, r.number(scale[0]), x, ldx, y,
            ldy, r.number(scale[1]), out[0], out[1],
        )  # fmt: skip

    def _applied(self) -> Native:
        r = self.r

        @native("void", "ptr", "i64", "i64")
        def applied(c: NativeBuilder, given: Any, lo: Any, hi: Any) -> None:
            """x -= V T V^T x, or V T^T V^T x, in columns of x of m rows; n reflections."""
            fields = ("i64", "i64", "ptr", "i64", "ptr", "i64", "ptr", "i64", "ptr", "i64")
            m, n, v, ldv, t, ldt, x, ldx, w, turned = (given.item(k, kind) for k, kind in enumerate(fields, 1))

            def each(first: Any, count: Any) -> None:
                start, width = first * r.lanes, count * r.lanes
                own, one = (r.at(x, start), ldx), (r.at(w, start), ldx)
                other = r.at(one[0], ldx * BLOCK), ldx
                self.product(c, (v, ldv, TRANS), (*own, NO_TRANS), one, (n, width, m))
                for how, holds in ((TRANS, turned != 0), (NO_TRANS, turned == 0)):
                    with c.if_then(holds):
                        self.product(c, (t, ldt, how), (*one, NO_TRANS), other, (n, width, n))
                self.product(c, (v, ldv, NO_TRANS), (*other, NO_TRANS), own, (m, width, n), ("-1.0", _ONE))

            blocks(c, given, lo, hi, each)

        return applied

    def apply(
        self, c: NativeBuilder, m: Any, n: Any, v: Any, ldv: Any, t: Any, ldt: Any, x: Any, ldx: Any, w: Any,
        count: Any, turned: int,
    ) -> None:  # fmt: skip
        """`applied` to so many vectors of columns."""
        with c.if_then(count != 0):
            fields = (m, n, v, ldv, t, ldt, x, ldx, w, turned)
            self.r.shared(c, self.applied, fields, count, self.r.block(c, count, m * n * count * self.r.lanes))

    def _panel(self) -> Native:
        r = self.r
        least, most = _RANGE[r.size]

        @native("i64", "i64", "i64", "ptr", "i64", "ptr", "i64", "ptr", "i64")
        def panel(c: NativeBuilder, m: Any, n: Any, a: Any, lda: Any, v: Any, ldv: Any, t: Any, ldt: Any) -> None:
            """Reflections of n columns, one vector of them at most, of m rows; 1 where the square of a column's norm is
            out of range, unless the column is 0.

            While the rows below a reflection change, their products with the next column are added up.
            """
            sums = [c.variable(r.numbers(_ZERO)) for _ in "ab"]
            width = r.lanes

            def each(start: Any, body: Any) -> None:
                rows = c.select(c.icmp_signed(">", m, start), m - start, 0)
                even = start + (rows & -2)
                with c.each(even, start, 2) as i:
                    body(i, 0)
                    body(i + 1, 1)
                with c.if_then((rows & 1) != 0):
                    body(even, 0)

            def add(x: Any, factor: Any, which: int) -> None:
                total = sums[which]
                total.value = c.intrinsic("fmuladd", r.vector, [r.splat(c, factor), x, total.value], [r.vector])

            def first(i: Any, which: int) -> None:
                row = r.at(a, i * lda)
                add(r.load(c, row), r.get(c, row), which)

            each(c.variable(1).value, first)
            with c.each(n) as j:
                row = r.at(a, j * lda)
                at = r.lanes_of(c, j)
                right, here = c.compare("icmp sgt", r.iota, at), c.compare("icmp eq", r.iota, at)
                products = c.fadd(sums[0].value, sums[1].value)
                rest, alpha = c.extract_element(products, j), r.get(c, r.at(row, j))
                total = c.fadd(c.fmul(alpha, alpha), rest)
                fine: Any = c.fcmp_ordered(">", total, r.number(least))
                fine = fine & c.fcmp_ordered("<", total, r.number(most))
                with c.if_then(~fine):
                    with c.each(m, j) as i:
                        c.ret_if(c.fcmp_unordered("!=", r.get(c, r.at(a, i * lda + j)), r.number(_ZERO)), 1)
                norm = c.intrinsic("sqrt", r.scalar, [total], [r.scalar])
                none = c.fcmp_ordered("==", rest, r.number(_ZERO))
                beta = c.select(c.fcmp_ordered(">=", alpha, r.number(_ZERO)), c.fneg(norm), norm)
                tau = c.select(none, r.number(_ZERO), c.fdiv(c.fsub(beta, alpha), beta))
                scale = c.select(none, r.number(_ZERO), c.fdiv(r.number(_ONE), c.fsub(alpha, beta)))
                beta = c.select(none, alpha, beta)
                c.store(tau, r.at(t, j * (ldt + 1)))
                own = r.load(c, row)
                w = c.intrinsic("fmuladd", r.vector, [r.splat(c, scale), products, own], [r.vector])
                w = c.select(right, w, r.numbers(_ZERO))
                own = r.minus_times(c, own, r.splat(c, tau), w)
                r.store(c, c.select(here, r.splat(c, beta), own), row)
                both = c.fmul(tau, scale)
                for variable in sums:
                    variable.value = r.numbers(_ZERO)

                def reflect(i: Any, which: int) -> None:
                    row = r.at(a, i * lda)
                    head = r.get(c, r.at(row, j))
                    x = r.minus_times(c, r.load(c, row), r.splat(c, c.fmul(both, head)), w)
                    x = c.select(here, r.splat(c, c.fmul(scale, head)), x)
                    r.store(c, x, row)
                    if which >= 0:
                        add(x, r.get(c, r.at(row, j + 1)), which)

                with c.if_then(j + 1 < m):
                    reflect(j + 1, -1)
                each(j + 2, reflect)
            with c.each(m) as i:  # V by itself
                x = r.load(c, r.at(a, i * lda))
                mask = r.below(c, c.least(i, n))
                below = c.select(mask, x, r.numbers(_ZERO))
                at = c.select(i < n, i, -1)
                here = c.compare("icmp eq", r.iota, r.lanes_of(c, at))
                r.store(c, c.select(here, r.numbers(_ONE), below), r.at(v, i * ldv))
            # Column j of T: -tau_j times T of the columns before it times V^T v_j.
            gram = c.local(r.scalar.text, width * width)
            self.product(c, (v, ldv, TRANS), (v, ldv, NO_TRANS), (gram, Literal(KINDS["i64"], str(width))), (n, n, m))
            with c.each(n) as j:
                tau = r.get(c, r.at(t, j * (ldt + 1)))
                with c.each(j) as i:
                    dot = c.variable(r.number(_ZERO))
                    with c.each(j, i) as k:
                        x, y = r.get(c, r.at(t, i * ldt + k)), r.get(c, r.at(gram, k * width + j))
                        dot.value = c.intrinsic("fmuladd", r.scalar, [x, y, dot.value], [r.scalar])
                    c.store(c.fneg(c.fmul(tau, dot.value)), r.at(t, i * ldt + j))
            c.ret(0)

        return panel

    def _block(self) -> Native:
        r = self.r

        @native("i64", "i64", "i64", "ptr", "i64", "ptr", "i64", "ptr", "i64", "ptr")
        def block(
            c: NativeBuilder, m: Any, n: Any, a: Any, lda: Any, v: Any, ldv: Any, t: Any, ldt: Any, w: Any
        ) -> None:
            """Reflections of n columns of m rows, by halves; 1 as of `panel`."""
            with c.if_then(n <= r.lanes):
                c.ret(self.panel(c, m, n, a, lda, v, ldv, t, ldt))
            first = c.variable(r.half(c, n)).value
            rest = n - first
            c.ret_if(block(c, m, first, a, lda, v, ldv, t, ldt, w) != 0, 1)
            self.apply(c, m, first, v, ldv, t, ldt, r.at(a, first), lda, w, r.padded(rest) // r.lanes, 1)
            other, corner = r.at(v, first * (ldv + 1)), r.at(t, first * (ldt + 1))
            c.ret_if(block(c, m - first, rest, r.at(a, first * (lda + 1)), lda, other, ldv, corner, ldt, w) != 0, 1)
            # T of both: -T1 V1^T V2 T2 beside the two.
            left, one, two = r.at(v, first * ldv), (w, ldt), (r.at(w, ldt * BLOCK), ldt)
            self.product(c, (left, ldv, TRANS), (other, ldv, NO_TRANS), one, (first, rest, m - first))
            self.product(c, (*one, NO_TRANS), (corner, ldt, NO_TRANS), two, (first, rest, rest))
            beside = r.at(t, first), ldt
            self.product(c, (t, ldt, NO_TRANS), (*two, NO_TRANS), beside, (first, rest, first), ("-1.0", _ZERO))
            c.ret(0)

        return block


def _qr(r: Real) -> One:
    f = Reflections(r)

    def one(c: NativeBuilder, operands: Any, dims: Any, index: Any, space: Any, work: Any) -> Any:
        rows, columns, inner = (dims.item(k) for k in (1, 2, 3))
        some = c.least(rows, columns)
        lda, ldv, ldq = r.row(c, columns), r.row(c, some), r.row(c, inner)
        v = r.at(space, rows * lda)
        t = r.at(v, rows * ldv)
        w = r.at(t, ldv * BLOCK)
        q = r.at(w, c.greatest(c.greatest(lda, ldq), ldv) * (2 * BLOCK))
        total = copied(r, c, rows, columns, r.at(pointer(operands, 0), index * rows * columns), space, lda)
        c.ret_if(not_finite(r, c, total), 1)
        c.extern("ptr", "memset", v, i32(0), (rows + BLOCK) * ldv * r.size)
        with c.each(r.padded(some) + (BLOCK - 1) & -BLOCK, 0, BLOCK) as k:
            n = c.least(some - k, BLOCK)
            place, own = r.at(v, k * (ldv + 1)), r.at(t, k)
            bad = f.block(c, rows - k, n, r.at(space, k * (lda + 1)), lda, place, ldv, own, ldv, w)
            c.ret_if(bad != 0, 1)
            after = k + r.padded(n)  # columns in a vector with these have been reflected
            count = (r.padded(columns) - after) // r.lanes
            f.apply(c, rows - k, n, place, ldv, own, ldv, r.at(space, k * lda + after), lda, w, count, 1)
        triangle, out = pointer(operands, 2), pointer(operands, 1)
        with c.if_then(triangle != 0):
            with c.each(inner) as i:
                target = r.at(triangle, (index * inner + i) * columns)
                with c.each(r.padded(columns), 0, r.lanes) as j:
                    part = c.select(r.below(c, i - j), r.numbers(_ZERO), r.load(c, r.at(space, i * lda + j)))
                    r.store_some(c, part, r.at(target, j), r.below(c, columns - j))
        with c.if_then(out != 0):
            c.extern("ptr", "memset", q, i32(0), rows * ldq * r.size)
            with c.each(inner) as i:
                c.store(r.number(_ONE), r.at(q, i * (ldq + 1)))
            k = c.variable((some - 1) & -BLOCK)
            with c.loop():
                now = k.value
                count = (r.padded(inner) - now) // r.lanes
                x = r.at(q, now * (ldq + 1))
                n = c.least(some - now, BLOCK)
                f.apply(c, rows - now, n, r.at(v, now * (ldv + 1)), ldv, r.at(t, now), ldv, x, ldq, w, count, 0)
                c.break_if(now == 0)
                k.value = now - BLOCK
            with c.each(rows) as i:
                put_row(r, c, inner, r.at(q, i * ldq), r.at(out, (index * rows + i) * inner))
        return 0

    return one


def _needs(r: Real) -> Needs:
    def needs(c: NativeBuilder, dims: Any) -> Work:
        rows, columns, inner = (dims.item(k) for k in (1, 2, 3))
        lda, ldv, ldq = r.row(c, columns), r.row(c, c.least(rows, columns)), r.row(c, inner)
        widest = c.greatest(c.greatest(lda, ldq), ldv)
        return ((rows * (lda + ldv + ldq) + (ldv + widest * 2) * BLOCK + r.lanes) * r.size,)

    return needs


ROWS: dict[str, Callable[[Real], tuple[One, Needs]]] = {"qr": lambda r: (_qr(r), _needs(r))}

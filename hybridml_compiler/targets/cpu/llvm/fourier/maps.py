"""Passes over the numbers of rows, one by one: products with tables, and spectra of real numbers cut and completed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .....schedule.kernels.roots import chirp, chirp_spectrum
from .....schedule.kernels.transform import Transform
from .. import ir
from ..contraction.loops import i64, repeat
from .butterflies import Arithmetic
from .points import Columns, Scratch, join, split, stored

Row = Callable[[Any, Any], None]  # emits what is done with the rows at two addresses


class Maps:
    """Emitters of the passes of a transform, each with the steps from row to row of its operands, in real numbers."""

    def __init__(self, v: Arithmetic, spec: Transform) -> None:
        self.v, self.b, self.spec, self.n, self.w = v, v.b, spec, spec.points, v.lanes
        self.half_spectrum = 2 * (self.n // 2 + 1)

    def chirp(self) -> tuple[Row, int, int]:
        """Points times the chirp, and zeros behind them."""
        spec, n = self.spec, self.n
        table = self._table(chirp(self.n, self.spec.inverse))
        first, end = 2 * n, 2 * spec.padded

        def row(x: Any, y: Any) -> None:
            self._multiply(x, y, n, table, spec.real)
            self._each(end - first, lambda at, live: self._clear(self.v.at(y, (first, 1), (at, 1)), live))

        return row, (1 if spec.real else 2) * n, end

    def product(self) -> tuple[Row, int, int]:
        """Conjugates of the transform of padded points times that of the chirp that they are convolved with."""
        padded = self.spec.padded
        table = self._table(chirp_spectrum(self.n, padded, self.spec.inverse))
        return lambda x, y: self._multiply(x, y, padded, table, result=-1), 2 * padded, 2 * padded

    def unchirp(self) -> tuple[Row, int, int]:
        """Conjugates of the convolved points times the chirp."""
        table = self._table(chirp(self.n, self.spec.inverse) * self.spec.scale)
        return lambda x, y: self._multiply(x, y, self.n, table, source=-1), 2 * self.spec.padded, 2 * self.n

    def half(self) -> tuple[Row, int, int]:
        """The first half of a spectrum."""
        v, count = self.v, self.half_spectrum

        def numbers(x: Any, y: Any, at: Any, live: Any) -> None:
            mask = None if live is None else v.mask(live, 0)
            v.store(v.load(v.at(x, (at, 1)), mask), v.at(y, (at, 1)), mask)

        row: Row = lambda x, y: self._each(count, lambda at, live: numbers(x, y, at, live))  # noqa: E731
        return row, 2 * self.n, count

    def mirror(self) -> tuple[Row, int, int]:
        """The whole of a spectrum: the frequencies behind the first half are conjugates."""
        b, v, n, w = self.b, self.v, self.n, self.w

        def row(x: Any, y: Any) -> None:
            v.b.store(v.scalar(x), y, align=v.dtype.itemsize)
            v.b.store(ir.Literal(v.scalar_type, "0.0"), v.element(y, i64(1)), align=v.dtype.itemsize)

            def block(at: Any, live: Any) -> None:
                first = b.add(at, i64(1))
                other = b.sub(i64(n - w + 1), first)
                live = b.mul(i64(w) if live is None else live, i64(2))
                dead = b.sub(i64(2 * w), live)
                forward, backward = v.masks(live, 2), [b.not_(v.mask(dead, j)) for j in (0, 1)]
                real, imag = split(v, *v.row(v.at(x, (first, 2)), forward))
                for value, start, masks, back in (
                    ((real, imag), first, forward, False),
                    ((real, b.fneg(imag)), other, backward, True),
                ):
                    for j, (vector, mask) in enumerate(zip(join(v, *value, backward=back), masks, strict=True)):
                        v.store(vector, v.element(v.at(y, (start, 2)), i64(j * w)), mask)

            self._each(n // 2, block)

        return row, self.half_spectrum, 2 * n

    def parts(self) -> tuple[Row, int, int]:
        """The real parts of complex numbers."""
        v, n = self.v, self.n

        def numbers(x: Any, y: Any, at: Any, live: Any) -> None:
            real, _ = Columns(v, x, 0, live).load(v.at(x, (at, 2)), 0)
            v.store(real, v.at(y, (at, 1)), None if live is None else v.mask(live, 0))

        row: Row = lambda x, y: self._each(n, lambda at, live: numbers(x, y, at, live))  # noqa: E731
        return row, 2 * n, n

    def _table(self, values: np.ndarray) -> Any:
        """The numbers as `Scratch` reads them, of all lanes."""
        padded = np.zeros(-(-values.size // self.w) * self.w, values.dtype)
        padded[: values.size] = values
        blocks = padded.reshape(-1, self.w)
        return stored(self.b.module, self.spec.stage, np.stack([blocks.real, blocks.imag], 1), self.v.dtype)

    def _multiply(
        self, x: Any, y: Any, count: int, table: Any, real: bool = False, *, source: int = 1, result: int = 1
    ) -> None:
        """Rows times a table; the conjugates of the source or the result where it is -1."""
        v = self.v

        def numbers(at: Any, live: Any) -> None:
            value = Columns(v, x, 0, live, real=real).load(v.at(x, (at, 1 if real else 2)), 0)
            place = v.at(table, (at, 2))
            value = value[0], v.b.fneg(value[1]) if source < 0 else value[1]
            found = v.times(value, Scratch(v, table).load(place, 0))
            found = found[0], v.b.fneg(found[1]) if result < 0 else found[1]
            Columns(v, y, 0, live).store(found, v.at(y, (at, 2)), 0)

        self._each(count, numbers)

    def _clear(self, pointer: Any, live: Any) -> None:
        self.v.store(self.v.zero, pointer, None if live is None else self.v.mask(live, 0))

    def _each(self, count: int, body: Callable[[Any, Any], None]) -> None:
        """`body(at, live)` for vectors of numbers; `live` of them are there, None for all."""

        def one(at: Any) -> None:
            body(at, self.b.sub(i64(count), at) if count % self.w else None)

        repeat(self.b, i64(0), i64(count), self.w, one)

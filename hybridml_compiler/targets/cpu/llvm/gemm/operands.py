"""The operands of a matrix product as its micro-kernels read them: rows of A of a tile, and panels of columns of B."""

from __future__ import annotations

from typing import Any

from .....loops.ir import Kernel
from .....schedule.fusion.prologue import with_pitch
from .....schedule.kernels.gemm import Product
from ...kernels.gemm_blocking import Blocking
from ...kernels.low_precision import Format
from ..contraction.emission import Emission, Range
from ..contraction.loops import i64, least, loop, repeat
from ..contraction.packing import Packer
from ..contraction.words import SIGNS, Words, multiply_add
from ..kernel import emit_epilogue
from ..types import PTR, Literal


class Rows:
    """Rows of A where they are: from one to the next, and from a step of k to the next."""

    def __init__(self, words: Words, product: Product) -> None:
        self.words, self.between = words, product.a.row
        self.row, self.step = product.a.row // words.group, product.a.column

    def of_tile(self, a: Any, row: Any, rows: int, k: Any, depth: Any) -> Any:
        """Address of so many rows of A from this one on; `a` is where those of this block of k begin."""
        return self.words.at(a, (row, self.between))


class PackedRows(Rows):
    """Rows of words, [row][k] or, if A is transposed, [k][row]."""

    def __init__(self, e: Emission, words: Words, product: Product, blocking: Blocking) -> None:
        super().__init__(words, product)
        pitch = -(-blocking.rows // blocking.lanes) * blocking.lanes
        self.turned, self.between_steps = product.a.transposed, product.a.column
        self.row, self.step = (1, pitch) if self.turned else (blocking.depth, 1)
        self.packer, self.memory = Packer(words, product.k), e.memory(pitch * blocking.depth)

    def of_tile(self, a: Any, row: Any, rows: int, k: Any, depth: Any) -> Any:
        source, v = super().of_tile(a, row, rows, k, depth), self.packer.v
        if not self.turned:
            self.packer.along(source, self.between, i64(rows), depth, self.memory, self.row)
            return self.memory
        masks = [v.first(rows - at) for at in range(0, self.step, v.lanes)]

        def word(steps: list[Any], number: Any) -> None:
            self.packer.across(steps, v.at(self.memory, (number, self.step)), masks)

        self.packer.over_words(source, self.between_steps, depth, word)
        return self.memory


class ComputedRows(Rows):
    """Rows of an A that has no memory: a prologue (see schedule/fusion) computes them, [row][k] or, if A is
    transposed, [k][row].

    The prologue's own table has A first, then the operands of the launch before B. As A it is given the place where the
    first element of all of it would be.
    """

    def __init__(self, e: Emission, product: Product, blocking: Blocking, prologue: Kernel) -> None:
        self.e, self.turned, self.pitch = e, product.a.transposed, blocking.pitch
        self.row, self.step = (1, self.pitch) if self.turned else (self.pitch, 1)
        self.function = emit_epilogue(e.module, f"{e.name}_prologue", with_pitch(prologue, self.pitch))
        self.memory = e.memory((blocking.depth if self.turned else blocking.rows) * self.pitch)
        self.count = len(prologue.operands) - 1 + prologue.checked  # operands before B
        self.table = e.b.memory(PTR, 1 + self.count)
        for k in range(self.count):
            self._set(1 + k, e.buffer(k))

    def _set(self, number: int, pointer: Any) -> None:
        self.e.b.store(pointer, self.e.b.gep(self.table, [i64(number)], source_etype=PTR))

    def of_tile(self, a: Any, row: Any, rows: int, k: Any, depth: Any) -> Any:
        b = self.e.b
        ends = [(row, b.add(row, i64(rows))), (k, b.add(k, depth))]
        outer, inner = reversed(ends) if self.turned else ends
        before = b.add(b.mul(outer[0], i64(self.pitch)), inner[0])
        self._set(0, self.e.v.element(self.memory, b.neg(before)))
        b.call(self.function, [self.table, *outer, *inner])
        return self.memory


class Panels:
    """Columns of B, one tile wide, where they are: from a step of k to the next."""

    def __init__(self, words: Words, product: Product, blocking: Blocking) -> None:
        self.words, self.columns, self.step = words, blocking.columns, product.b.row

    def pack(self, right: Any, panels: Range, depth: Any) -> None:
        """Prepares the panels from this place in B on, of a block of k."""

    def panel(self, right: Any, j: Any, first: Any) -> Any:
        """Address of a panel, of those from `first` on."""
        return self.words.at(right, (j, self.columns))


class PackedPanels(Panels):
    """[panel][word][column]; columns beyond B are never stored by a tile. If A is shifted, each has a row of initial
    sums before."""

    def __init__(
        self, e: Emission, words: Words, product: Product, blocking: Blocking, how: Format, turn: str, starts: bool
    ) -> None:
        super().__init__(words, product, blocking)
        self.b, self.v, self.product, self.blocking, self.how = e.b, e.v, product, blocking, how
        self.starts, self.step = starts, blocking.columns
        self.size = (blocking.depth + starts) * blocking.columns
        self.memory = e.memory(self.size * blocking.unit_panels)
        self.packer = Packer(words, product.k, turn)

    def panel(self, right: Any, j: Any, first: Any) -> Any:
        return self._row(j, first, None)

    def _row(self, j: Any, first: Any, word: Any) -> Any:
        """Address of a word's row in a panel; of its first one if None."""
        at = self.v.at(self.memory, (self.b.sub(j, first), self.size))
        return at if word is None else self.v.at(at, (self.b.add(word, i64(int(self.starts))), self.columns))

    def pack(self, right: Any, panels: Range, depth: Any) -> None:
        b, v, p = self.b, self.v, self.product
        if p.b.transposed:
            repeat(b, *panels, 1, lambda j: self._turn(right, j, panels[0], depth))
        else:
            whole = least(b, panels[1], i64(p.n // self.columns))
            rest, live = p.n % self.columns, b.sub(i64(p.n), b.mul(whole, i64(self.columns)))
            vectors = self.blocking.vectors
            some = v.masks(live, vectors) if rest else []

            def word(steps: list[Any], number: Any) -> None:  # to all panels: each has few bytes of a line
                def panel(j: Any, masks: list[Any]) -> None:
                    here = [self.words.at(step, (j, self.columns)) for step in steps]
                    self.packer.across(here, self._row(j, panels[0], number), masks)

                repeat(b, panels[0], whole, 1, lambda j: panel(j, [None] * vectors))
                if rest:
                    repeat(b, whole, panels[1], 1, lambda j: panel(j, some))

            self.packer.over_words(right, p.b.row, depth, word)
        if self.starts:
            repeat(b, *panels, 1, lambda j: self._start(j, panels[0], depth))

    def _turn(self, right: Any, j: Any, first: Any, depth: Any) -> None:
        """Packs one panel, whose columns are lines of memory."""
        b, lanes, to_column = self.b, self.blocking.lanes, self.product.b.column

        def group(at: Any) -> None:
            column = b.add(b.mul(j, i64(self.columns)), at)
            lines = least(b, i64(lanes), b.sub(i64(self.product.n), column))
            target = self.v.element(self._row(j, first, i64(0)), at)
            self.packer.turned(
                self.words.at(right, (column, to_column)), to_column, lines, depth, target, self.columns, roomy=True
            )

        repeat(b, i64(0), i64(self.columns), lanes, group)

    def _start(self, j: Any, first: Any, depth: Any) -> None:
        """Stores the initial sums of a panel's columns: minus the excess that the shift of A adds."""
        b, v, none = self.b, self.v, [None] * self.blocking.vectors
        shift, group = Literal(self.words.type, SIGNS), self.how.group
        words = b.udiv(b.add(depth, i64(group - 1)), i64(group))

        def add(k: Any, sums: list[Any]) -> list[Any]:
            across = v.row(self._row(j, first, k), none)
            return [multiply_add(b, self.how, shift, x, total) for x, total in zip(across, sums, strict=True)]

        for k, total in enumerate(loop(b, i64(0), words, 1, [v.zero] * len(none), add)):
            v.store(b.neg(total), v.element(self._row(j, first, None), i64(k * v.lanes)))

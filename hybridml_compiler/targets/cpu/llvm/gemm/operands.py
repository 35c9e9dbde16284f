"""The operands of a matrix product as its micro-kernels read them: rows of A of a tile, and panels of columns of B."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .....loops.ir import Kernel
from .....schedule.fusion.prologue import with_pitch
from .....schedule.kernels.gemm import Matrix, Product
from .....sizes.dims import Size, same
from ...kernels.gemm_blocking import Blocking
from ...kernels.low_precision import Format
from .. import ir
from ..contraction.emission import Emission, Range
from ..contraction.loops import ceiling, i64
from ..contraction.words import Words
from ..kernel import emit_epilogue
from ..types import PTR


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

    def __init__(self, e: Emission[Product, Blocking], words: Words) -> None:
        from ..contraction.packing import Packer  # with the first product that is packed, as below

        product, blocking = e.call, e.plan
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

    def __init__(self, e: Emission[Product, Blocking], prologue: Kernel) -> None:
        product, blocking = e.call, e.plan
        self.e, self.turned, self.pitch = e, product.a.transposed, blocking.pitch
        self.row, self.step = (1, self.pitch) if self.turned else (self.pitch, 1)
        self.function = emit_epilogue(e.module, f"{e.name}_prologue", with_pitch(prologue, self.pitch))
        self.memory = e.memory((blocking.depth if self.turned else blocking.rows) * self.pitch)
        self.count = len(prologue.operands) - 1 + prologue.checked  # operands before B
        self.table = e.b.memory(PTR, 1 + self.count)
        for k in range(self.count):
            self._set(1 + k, e.buffer(k))

    def _set(self, number: int, pointer: Any) -> None:
        self.e.b.set_operand(self.table, number, pointer)

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
    """[panel][word][column]. If A is shifted, each has a row of initial sums before."""

    def __init__(self, e: Emission[Product, Blocking], words: Words, how: Format, starts: bool) -> None:
        from ..contraction.packing import PanelPacker

        product, blocking = e.call, e.plan
        super().__init__(words, product, blocking)
        self.product, self.how, self.starts, self.step = product, how, starts, blocking.columns
        size = (blocking.depth + starts) * blocking.columns
        self.memory = e.memory(size * blocking.unit_panels)
        self.packer = PanelPacker(words, product.k, e.symbols, product.n, blocking.columns, size)

    def panel(self, right: Any, j: Any, first: Any) -> Any:
        return self.packer.v.at(self.memory, (self.packer.b.sub(j, first), self.packer.size))

    def pack(self, right: Any, panels: Range, depth: Any) -> None:
        packer, of_b = self.packer, self.product.b
        words = packer.v.element(self.memory, i64(self.starts * self.columns))
        packer.pack(right, of_b.row, of_b.column, panels, depth, words, roomy=True)
        if self.starts:
            packer.start(self.how, panels, ceiling(packer.b, depth, self.how.group), words)


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

"""Products of matrices that products make, as one kernel, which has tiles of the matrices in shared memory alone.

    p = f(q @ k.mT);  s = p * (g @ v.mT - d);  dq, dk, dv = s @ k, s.mT @ q, p.mT @ g

These are the gradients of attention, as of Dao, "FlashAttention-2" (2023), without its atomic additions: a block has
some rows of the matrices and goes over their columns, or some columns, and goes over the rows. For each tile it makes
the matrices that it needs, element by element as the launches would that it stands for, rounding included, and adds
their products to sums in registers. So every sum has an order, which the shapes fix.
"""

from __future__ import annotations

import numpy as np

from .... import dtypes
from ....record import record
from ....schedule.fusion.tile_fusion import TileFusion
from ..emit.functions import DeviceFunctions
from ..emit.types import c_type
from .attention import emit_attention
from .contraction import Addresses
from .kernel import COMMIT, WAIT, CallSource, finish_function, matrix_of
from .multiply import Multiplication, multiplication, renamed
from .operands import COPY, HALF, Operand, load_function, operand
from .tile_elements import Elements
from .tile_form import Form, Maker, Reader, form_of
from .tile_warps import WarpWriter
from .tiles import SHARED_BYTES, Tile

_DEPTH = 16  # features of operands are filled up to a multiple of this with zeros
_FILL = 32  # columns that tiles of a result are filled up to a multiple of
_SIZES = ((64, 64), (64, 32), (32, 32), (16, 32))  # lines that a block has, and that it goes over at a time


def emit_tiles(fusion: TileFusion, *, wide: bool = True) -> CallSource | None:
    """The source of a fusion; None where no kernel is written for it, or a block has no room for its tiles."""
    attention = emit_attention(fusion, wide=wide)
    if attention is not None:
        return attention
    form = form_of(fusion)
    if form is None:
        return None
    warps = WarpWriter(form, wide)
    if warps.fits:
        return warps.source()
    writers = (_Writer(form, lines, others, wide) for lines, others in _SIZES)
    fitting = next((writer for writer in writers if writer.shared_bytes <= SHARED_BYTES), None)
    return None if fitting is None else fitting.source()


# ---- the kernel


@record
class _Section:
    """The tiles of the blocks that have rows, or where `turned` columns, and how they are multiplied."""

    turned: bool
    lines: int  # of the matrices in all: their rows, or columns
    others: int
    blocks: int  # in all
    makers: tuple[tuple[int, Maker], ...]
    readers: tuple[Reader, ...]
    own: tuple[Operand, ...]  # of each maker
    passed: tuple[Operand, ...]
    right: tuple[Operand, ...]  # of each reader
    to_make: tuple[Multiplication, ...]
    to_read: tuple[Multiplication, ...]
    results: tuple[Tile, ...]

    @property
    def sides(self) -> tuple[Operand, ...]:
        return (*self.own, *self.passed, *self.right)


class _Writer(Elements):
    def __init__(self, form: Form, lines: int, others: int, wide: bool) -> None:
        super().__init__(form, DeviceFunctions())
        self.lines, self.others, self.wide = lines, others, wide
        # At least 128 threads: of fewer, each would have more sums than registers.
        down, across = (lines // 16, max(64 // lines, 1)) if form.tensor else (max(lines // 4, 8), 16)
        self.tile = Tile(lines, others, _DEPTH, down, across, form.tensor)
        self.each = self.tile.threads // lines  # threads of a line
        turns = dict.fromkeys(reader.turned for reader in form.readers)
        self.sections = [self._section(turned) for turned in turns]
        self.numbers = {number: k for k, number in enumerate(form.dtypes)}

    # ---- tiles

    def _value(self, stored: np.dtype) -> np.dtype:
        return stored if self.form.tensor else dtypes.float32

    def _operand(self, name: str, where: Addresses, stored: np.dtype, rows: int, steps: int) -> Operand:
        return operand(name, where, stored, self._value(stored), rows, steps, self.form.tensor, self.wide)

    def _matrix(self, number: int) -> Operand:
        """The tile of a matrix, as multiplications read it."""
        tensor, dtype = self.form.tensor, self.form.dtypes[number]
        pitch = (self.others if tensor else self.lines) + 16 // dtype.itemsize
        where = Addresses(0, (), (), ())
        return Operand(f"m{number}", where, dtype, dtype, bool(tensor), 1, self.lines, self.others, pitch, not tensor)

    def _section(self, turned: bool) -> _Section:
        form, tile = self.form, self.tile
        readers = tuple(reader for reader in form.readers if reader.turned == turned)
        needed = {reader.matrix for reader in readers}
        makers: list[tuple[int, Maker]] = []
        for k, maker in reversed([*enumerate(form.makers)]):
            if needed.intersection(maker.matrices):
                needed.update(maker.reads)
                makers.insert(0, (k, maker))
        own, passed, right, to_make, to_read, results = [], [], [], [], [], []
        ending = "t" * turned
        for k, maker in makers:
            product = maker.form
            sides = [(product.a, product.stored[0]), (product.b, product.stored[1])]
            (a, a_stored), (b, b_stored) = sides[::-1] if turned else sides
            depth = -(-product.k // _DEPTH) * _DEPTH
            own.append(self._operand(f"own{k}{ending}", a, a_stored, self.lines, depth))
            passed.append(self._operand(f"passed{k}{ending}", b, b_stored, self.others, depth))
            scores = Tile(tile.rows, tile.columns, depth, tile.down, tile.across, tile.tensor)
            to_make.append(multiplication(dtypes.float32, scores, own[-1], passed[-1]))
        for reader in readers:
            columns = -(-reader.form.n // _FILL) * _FILL
            name, (_, stored) = f"right{form.readers.index(reader)}", reader.form.stored
            right.append(self._operand(name, reader.form.b, stored, columns, self.others))
            results.append(Tile(tile.rows, columns, self.others, tile.down, tile.across, tile.tensor))
            to_read.append(multiplication(dtypes.float32, results[-1], self._matrix(reader.matrix), right[-1]))
        length, others = (form.columns, form.rows) if turned else (form.rows, form.columns)
        blocks = form.makers[0].form.matrices * -(-length // self.lines)
        return _Section(turned, length, others, blocks, tuple(makers), readers, tuple(own), tuple(passed), tuple(right),
                        tuple(to_make), tuple(to_read), tuple(results))  # fmt: skip

    def _places(self, section: _Section) -> tuple[dict[str, int], int]:
        """(where each tile of a section begins in shared memory, bytes of all)."""
        places, end = {}, 0
        for side in section.own:
            places[side.name] = end
            end += side.nbytes
        places |= dict.fromkeys((side.name for side in (*section.passed, *section.right)), end)
        end += max(side.nbytes for side in (*section.passed, *section.right))
        places["scores"] = end
        end += self.lines * (self.others + section.to_make[0].pad) * 4
        for number in self._made(section):
            places[f"m{number}"] = end
            end += self._matrix(number).nbytes
        for name, dtype in self._row_values(section):
            places[name] = end
            end += (self.others if section.turned else self.lines) * dtype.itemsize
        sums = (
            self.lines * (tile.columns + m.pad) * 4 for tile, m in zip(section.results, section.to_read, strict=True)
        )
        return places, max(end, *sums)

    def _made(self, section: _Section) -> list[int]:
        """The matrices whose tiles a section has."""
        read = {reader.matrix for reader in section.readers}
        read.update(number for _, maker in section.makers for number in maker.reads)
        return [number for _, maker in section.makers for number in maker.matrices if number in read]

    def _row_values(self, section: _Section) -> list[tuple[str, np.dtype]]:
        """Names and types of the values of rows that a section has in shared memory."""
        return [(f"row{k}_{n}", e.dtype) for k, maker in section.makers for n, e in enumerate(maker.of_rows)]

    @property
    def shared_bytes(self) -> int:
        return max(self._places(section)[1] for section in self.sections)

    # ---- text

    def source(self) -> CallSource:
        form, threads = self.form, self.tile.threads
        sides = [side for section in self.sections for side in section.sides]
        copies = {f"copy_{side.width * side.stored.itemsize}" for side in sides if side.is_asynchronous}
        multiplies = {text: None for section in self.sections for m in (*section.to_make, *section.to_read)
                      for text in m.functions}  # fmt: skip
        makes = [make(k, maker) for k, maker in enumerate(form.makers)
                 for make in (self._row_function, self._make_function)]  # fmt: skip
        finishes = [
            finish_function(f"finish{k}", reader.call, reader.nest, self.functions)[0]
            for k, reader in enumerate(form.readers)
        ]
        texts = [COPY[name] for name in sorted(copies)] + [COMMIT, WAIT.format(0)] * bool(copies)
        texts += [HALF] * any(s.stored is dtypes.float16 and s.value is not s.stored for s in sides)
        texts += [*(load_function(side, threads) for side in sides), *multiplies, self.functions.text()]
        body = [f"__shared__ __align__(16) unsigned char shared[{self.shared_bytes}];"]
        body += ["for (long long tile = lo + blockIdx.x; tile < hi; tile += gridDim.x) {"]
        start = 0
        for section in self.sections:
            last = section is self.sections[-1]
            end = start + section.blocks
            condition = "" if last else f"if (tile < {end}) "
            body.append(f"  {'else ' if start else ''}{condition}{{")
            body += [f"    {line}" for line in self._section_lines(section, start, bool(copies))]
            body.append("  }")
            start = end
        body.append("}")
        alignment = max(side.width * side.stored.itemsize for side in sides)
        size = f"{self.lines}x{self.others}"
        return self.kernel([*texts, *makes, *finishes], size, body, threads, 1, alignment, start)

    def _section_lines(self, section: _Section, start: int, copies: bool) -> list[str]:
        form, tile = self.form, self.tile
        blocks = -(-section.lines // self.lines)
        places, _ = self._places(section)
        matrices = [self._matrix(number) for number in self._made(section)]
        tiles = [(side.name, c_type(side.value), side.pitch) for side in (*section.sides, *matrices)]
        tiles.append(("scores", "float", self.others + section.to_make[0].pad))
        arrive = ["commit();", "wait();"] * copies + ["__syncthreads();"]
        row, column = ("other + at", "first + line") if section.turned else ("first + line", "other + at")
        lines = [
            *(f"{kind} (*const {name}_tile)[{pitch}] = ({kind} (*)[{pitch}])(shared + {places[name]});"
              for name, kind, pitch in tiles),
            *(f"{c_type(dtype)}* const {name} = ({c_type(dtype)}*)(shared + {places[name]});"
              for name, dtype in self._row_values(section)),
            f"const long long place = tile{f' - {start}' if start else ''}, matrix = place / {blocks};",
            f"const int first = (int)(place % {blocks}) * {self.lines};",
            f"const int line = threadIdx.x / {self.each}, part = threadIdx.x % {self.each};",
        ]  # fmt: skip
        for (_, maker), own, passed in zip(section.makers, section.own, section.passed, strict=True):
            numbers = maker.operands[1::-1] if section.turned else maker.operands[:2]
            lines += [matrix_of(side, f"p{n}") for side, n in zip((own, passed), numbers, strict=True)]
        for reader, right in zip(section.readers, section.right, strict=True):
            lines.append(matrix_of(right, f"p{reader.operands[1]}"))
        lines += section.to_make[0].setup
        for k, made in enumerate(section.to_read):
            lines += renamed([made.setup[-1], *made.sums], _result_names(k))
        lines += [f"load_{side.name}({side.name}_tile, {side.name}_matrix, first, 0);" for side in section.own]
        row_values = [line for k, maker in section.makers for line in self._row_lines(k, maker, section)]
        lines += [] if section.turned else row_values
        lines += ["#pragma unroll 1", f"for (int other = 0; other < {section.others}; other += {self.others}) {{"]
        lines += [f"  {line}" for line in row_values if section.turned]
        for (k, maker), own, passed, made in zip(
            section.makers, section.own, section.passed, section.to_make, strict=True
        ):
            names = {"a_tiles[stage]": f"{own.name}_tile", "b_tiles[stage]": f"{passed.name}_tile", "sums": "scores",
                     "FIRST": "0", "LAST": str(made.fragments)}  # fmt: skip
            lines += [
                "  {",
                f"    load_{passed.name}({passed.name}_tile, {passed.name}_matrix, other, 0);",
                *(f"    {text}" for text in arrive),
                *(f"    {text}" for text in renamed([*made.sums, *made.step, *made.keep], names)),
                "    __syncthreads();",
                "  }",
                *(f"  {text}" for text in self._element_lines(k, maker, section, row, column)),
            ]
        for k, (reader, right, made) in enumerate(zip(section.readers, section.right, section.to_read, strict=True)):
            names = {"a_tiles[stage]": f"m{reader.matrix}_tile", "b_tiles[stage]": f"{right.name}_tile"}
            lines += [
                f"  load_{right.name}({right.name}_tile, {right.name}_matrix, 0, other);",
                *(f"  {text}" for text in arrive),
                *(f"  {text}" for text in renamed(made.step, names | _result_names(k))),
                "  __syncthreads();",
            ]
        lines.append("}")
        for k, (reader, made, result) in enumerate(zip(section.readers, section.to_read, section.results, strict=True)):
            number = form.readers.index(reader)
            names = {"FIRST": "0", "LAST": str(made.fragments)} | _result_names(k)
            pitch = result.columns + made.pad
            lines += [
                "{",
                f"  float (*result{k}_tile)[{pitch}] = (float (*)[{pitch}])shared;",
                *(f"  {text}" for text in renamed(made.keep, names)),
                "  __syncthreads();",
                f"  for (int index = threadIdx.x; index < {self.lines * result.columns}; index += {tile.threads}) {{",
                f"    const int line = index / {result.columns}, at = index % {result.columns}, i = first + line;",
                f"    if (i < {section.lines} && at < {reader.form.n})",
                f"      finish{number}(result{k}_tile[line][at], matrix, i, at{self._pointers(reader.operands[2:])});",
                "  }",
                "  __syncthreads();  // shared memory is free for what follows",
                "}",
            ]
        return lines

    def _row_lines(self, k: int, maker: Maker, section: _Section) -> list[str]:
        """The values of the rows of a block, or of those that it comes to."""
        if not maker.of_rows:
            return []
        first, count = ("other", self.others) if section.turned else ("first", self.lines)
        places = ", ".join(f"&row{k}_{n}[at]" for n in range(len(maker.of_rows)))
        place = f"matrix * {self.form.rows} + {first} + at"
        return [
            f"for (int at = threadIdx.x; at < {count}; at += {self.tile.threads})",
            f"  if ({first} + at < {self.form.rows}) rows{k}({places}, {place}{self._pointers(maker.operands[2:])});",
        ]

    def _element_lines(self, k: int, maker: Maker, section: _Section, row: str, column: str) -> list[str]:
        """The elements of a tile of the matrices, each computed by one thread; what is outside of them is zero."""
        at = {number: f"m{number}_tile[at][line]" if self._matrix(number).by_depth else f"m{number}_tile[line][at]"
              for number in (*maker.reads, *maker.matrices)}  # fmt: skip
        tiled = set(self._made(section))
        own = "at" if section.turned else "line"
        given = ["scores_tile[line][at]", *(f"row{k}_{n}[{own}]" for n in range(len(maker.of_rows)))]
        given += [*(at[n] for n in maker.reads), *(f"&made{n}" for n in maker.matrices)]
        given += [f"matrix * {self.form.rows} + {row}", column]
        pointers = self._pointers(maker.operands[2:] if maker.nest is not None else ())
        declared = [f"  {c_type(self.form.dtypes[n])} made{n} = 0;" for n in maker.matrices]
        return [
            f"for (int at = part; at < {self.others}; at += {self.each}) {{",
            *declared,
            f"  if (first + line < {section.lines} && other + at < {section.others})",
            f"    make{k}({', '.join(given)}{pointers});",
            *(f"  {at[n]} = made{n};" for n in maker.matrices if n in tiled),
            "}",
        ]


def _result_names(k: int) -> dict[str, str]:
    return {"thread_": f"result{k}_", "warp_": f"result{k}_", "sums": f"result{k}"}

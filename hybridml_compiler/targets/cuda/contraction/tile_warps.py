"""Products of matrices that products make, on tensor cores of 16 bits, with the matrices in registers alone.

As in attention_warps.py a warp has whole lines of the matrices, of which an `mma` leaves the elements where the next
one has its operand. A block has some rows (or, transposed, some columns) and goes over the others, whose operands come
to shared memory a tile ahead; what is multiplied with them to make the matrices is in registers throughout. The tile
that a matrix is made with is also the one that it is multiplied with: keys make scores, and the scores' gradients times
keys are the queries' gradients. Exponentials are the hardware's.
"""

from __future__ import annotations

from collections.abc import Sequence

from .... import dtypes
from ....loops.ir import Expr, perfect_nest
from ....record import record
from ....walk import postorder
from ..emit.types import c_type
from .attention_mask import Mask, masked
from .contraction import Addresses
from .kernel import COMMIT, WAIT, CallSource, finish_function, matrix_of
from .multiply import LOAD, MULTIPLY
from .near import NARROW, NearFunctions
from .operands import COPY, Operand, load_function, operand
from .softmax_rows import rounded_from, vanishes
from .tile_elements import Elements
from .tile_form import Form, Maker, Reader
from .tiles import SHARED_BYTES, WARP

_STEP = 16  # of k in a multiplication of 16 bits; rows of its result
_COLUMNS = 8  # of its result


@record
class Shape:
    """Warps of a block, groups of 16 lines that each has, how many others it goes over at a time, and the number of
    blocks that a multiprocessor shall have room for."""

    warps: int
    high: int
    others: int
    blocks: int

    @property
    def lines(self) -> int:
        """The lines of a block."""
        return self.warps * self.high * _STEP


def shape_for(features: int) -> Shape:
    """The shape for operands of so many features: the fastest of two to four that an H100 has been given, for 32, 64
    and 128, of those that fit the registers. Twice the rows at 64, or the others at 128, were 10 and 12 % faster there
    with 332 and 96 bytes of spills."""
    if features <= 32:
        return Shape(4, 1, 32, 4)
    return Shape(4, 1, 32, 2) if features <= 64 else Shape(4, 1, 16, 2)


@record
class _Section:
    """The tiles of the blocks that have rows, or where `turned` columns."""

    turned: bool
    lines: int  # of the matrices in all: their rows, or columns
    others: int
    blocks: int  # in all
    makers: tuple[tuple[int, Maker], ...]
    readers: tuple[tuple[int, Reader], ...]
    own: tuple[Operand, ...]  # of each maker
    passed: tuple[Operand, ...]
    right: tuple[int, ...]  # of each reader: which of the passed operands it reads


class WarpWriter(Elements):
    """Writes the kernel of a form on tensor cores of 16 bits; `fits` says whether there is one."""

    def __init__(self, form: Form, wide: bool) -> None:
        super().__init__(form, NearFunctions())
        self.wide = wide
        features = max(part.form.k for part in form.makers)
        self.depth = -(-features // _STEP) * _STEP
        self.shape = shape_for(self.depth)
        self.wide_of: dict[int, Expr] = {}  # elements of narrow matrices before they are rounded
        for maker in form.makers:
            for number, store in maker.matrices.items():
                source = None if store is None or not dtypes.is_narrow(store.value.dtype) else rounded_from(store.value)
                if source is not None:
                    self.wide_of[number] = source
        self.mask, self.masked = self._mask()
        self.sections = [self._section(turned) for turned in dict.fromkeys(r.turned for r in form.readers)]

    @property
    def fits(self) -> bool:
        """Whether all that is read passes by, and a block has room for it."""
        found = all(-1 not in section.right for section in self.sections)
        narrow = all(number in self.wide_of or x is dtypes.float32 for number, x in self.form.dtypes.items())
        narrow = narrow and all(r.matrix in self.wide_of for r in self.form.readers)
        return found and narrow and self.form.tensor in ("bf16", "f16") and self.shared_bytes <= SHARED_BYTES

    def _mask(self) -> tuple[Mask, dict[int, Expr]]:
        """(the mask of the matrices, what it is of in the loop nest of each maker).

        Elements that do not count are zero in all matrices that are read, and a row has some that count."""
        form, none = self.form, (Mask(()), dict[int, Expr]())
        first = form.makers[0]
        if first.nest is None:
            return none
        loops, _ = perfect_nest(first.nest.body)
        value = next((e for e in first.nest.expressions if e.op == "load" and e.attr is first.nest.operands[0]), None)
        for e in first.nest.expressions:
            if e.op != "select" or value not in e.args:
                continue
            mask, plain = masked(e, loops[0].var, loops[1].var, form.rows)
            stores = [store.value for store in first.matrices.values() if store is not None]
            elsewhere = [*postorder(stores, lambda part: () if part is e else part.args)]  # noqa: B023
            if plain is not value or value in elsewhere or not mask.counts_in_each_row(form.rows, form.columns):
                continue
            zero: dict[int, bool] = {}
            for maker in form.makers:
                for number, store in maker.matrices.items():
                    read = {} if maker.nest is None else dict(
                        zip((x.name for x in maker.nest.operands), maker.operands[2:], strict=True))  # fmt: skip
                    gone = {name for name, n in read.items() if zero.get(n)}
                    zero[number] = store is not None and vanishes(store.value, e, gone)
            if all(zero[reader.matrix] for reader in form.readers):
                return mask, {0: e}
        return none

    def _section(self, turned: bool) -> _Section:
        form, shape = self.form, self.shape
        readers = tuple((k, reader) for k, reader in enumerate(form.readers) if reader.turned == turned)
        needed = {reader.matrix for _, reader in readers}
        makers: list[tuple[int, Maker]] = []
        for k, maker in reversed([*enumerate(form.makers)]):
            if needed.intersection(maker.matrices):
                needed.update(maker.reads)
                makers.insert(0, (k, maker))
        own, passed, arrays = [], [], []
        ending = "t" * turned
        for k, maker in makers:
            product = maker.form
            sides = [(product.a, product.stored[0]), (product.b, product.stored[1])]
            (a, a_stored), (b, b_stored) = sides[::-1] if turned else sides
            own.append(self._operand(f"own{k}{ending}", a, a_stored, shape.lines))
            passed.append(self._operand(f"passed{k}{ending}", b, b_stored, shape.others))
            arrays.append((maker.operands[0 if turned else 1], _transposed(b)))
        right = []
        for _, reader in readers:
            array = reader.operands[1], reader.form.b
            right.append(arrays.index(array) if array in arrays else -1)
        length, others = (form.columns, form.rows) if turned else (form.rows, form.columns)
        blocks = form.makers[0].form.matrices * -(-length // shape.lines)
        return _Section(turned, length, others, blocks, tuple(makers), readers, tuple(own), tuple(passed), tuple(right))

    def _operand(self, name: str, where: Addresses, stored: object, lines: int) -> Operand:
        return operand(name, where, stored, stored, lines, self.depth, self.form.tensor, self.wide)  # type: ignore[arg-type]

    # ---- shared memory

    def _row_values(self, section: _Section) -> list[tuple[str, str]]:
        """Types and names of the values of rows that pass by."""
        if not section.turned:
            return []
        return [(c_type(e.dtype), f"row{k}_{n}") for k, maker in section.makers for n, e in enumerate(maker.of_rows)]

    def _places(self, section: _Section) -> tuple[dict[str, int], int]:
        """(where what passes by begins in shared memory, of two tiles each; bytes of all)."""
        places, end = {}, 0
        for side in section.passed:
            places[side.name] = end
            end += 2 * side.nbytes
        for _, name in self._row_values(section):
            places[name] = end
            end += 2 * self.shape.others * 4
        return places, end

    @property
    def shared_bytes(self) -> int:
        return max(max(self._places(section)[1], *(side.nbytes for side in section.own)) for section in self.sections)

    # ---- text

    def source(self) -> CallSource:
        form, threads = self.form, self.shape.warps * WARP
        sides = [side for section in self.sections for side in (*section.own, *section.passed)]
        copies = {f"copy_{side.width * side.stored.itemsize}" for side in sides if side.is_asynchronous}
        makes = []
        for k, maker in enumerate(form.makers):
            makes += [self._row_function(k, maker), self._make_function(k, maker, self.masked.get(k), self.wide_of)]
        finishes = [
            finish_function(f"finish{k}", reader.call, reader.nest, self.functions)[0]
            for k, reader in enumerate(form.readers)
        ]
        texts = [COPY[name] for name in sorted(copies)] + [COMMIT, WAIT.format(0)]
        texts += [load_function(side, threads) for side in sides]
        texts += [LOAD.format(name="", way=""), LOAD.format(name="_turned", way=".trans")]
        texts += [MULTIPLY.format(depth=_STEP, kind=form.tensor), NARROW.format(kind=form.tensor)]
        texts.append(self.functions.text())
        body = [f"__shared__ __align__(16) unsigned char shared[{self.shared_bytes}];"]
        body += ["const int lane = threadIdx.x % 32, quad = lane / 4, pair = lane % 4 * 2;"]
        body += [f"const int warp_line = threadIdx.x / 32 * {self.shape.high * _STEP};"]
        body += ["for (long long tile = lo + blockIdx.x; tile < hi; tile += gridDim.x) {"]
        start = 0
        for section in self.sections:
            end = start + section.blocks
            condition = "" if section is self.sections[-1] else f"if (tile < {end}) "
            body.append(f"  {'else ' if start else ''}{condition}{{")
            body += [f"    {line}" for line in self._section_lines(section, start)]
            body.append("  }")
            start = end
        body.append("}")
        alignment = max(side.width * side.stored.itemsize for side in sides)
        size = f"{self.shape.lines}x{self.shape.others}"
        return self.kernel([*texts, *makes, *finishes], size, body, threads, self.shape.blocks, alignment, start)

    def _section_lines(self, section: _Section, start: int) -> list[str]:
        shape, steps = self.shape, self.depth // _STEP
        high, others = shape.high, shape.others
        blocks, matrices = -(-section.lines // shape.lines), self.form.makers[0].form.matrices
        mask = self.mask.turned() if section.turned else self.mask
        places, _ = self._places(section)
        lines = [
            *(f"{c_type(side.value)} (*const {side.name}_tiles)[{side.lines}][{side.pitch}] = "
              f"({c_type(side.value)} (*)[{side.lines}][{side.pitch}])(shared + {places[side.name]});"
              for side in section.passed),
            *(f"{kind} (*const {name}_tiles)[{others}] = ({kind} (*)[{others}])(shared + {places[name]});"
              for kind, name in self._row_values(section)),
            f"const long long place = tile{f' - {start}' if start else ''}, matrix = place % {matrices};",
            # Under a mask lines differ in how many others count: those of most come first.
            f"const int block = {self._order(section, mask, blocks, matrices)}, line = block * {shape.lines};",
            f"const int first = line + warp_line, last = min(first + {high * _STEP}, {section.lines}) - 1;",
            f"int begin = 0, end = {section.others};",
            *mask.limits(("line", f"(min(line + {shape.lines}, {section.lines}) - 1)"), others),
        ]  # fmt: skip
        for (_, maker), own, passed in zip(section.makers, section.own, section.passed, strict=True):
            numbers = maker.operands[1::-1] if section.turned else maker.operands[:2]
            lines += [matrix_of(side, f"p{n}") for side, n in zip((own, passed), numbers, strict=True)]
        for own in section.own:
            at = _fragment_of_a(own)
            tile = f"(*({c_type(own.value)} (*)[{own.lines}][{own.pitch}])shared)"
            lines += [
                f"load_{own.name}({tile}, {own.name}_matrix, line, 0);",
                "commit();",
                "wait();",
                "__syncthreads();",
                f"unsigned int {own.name}[{high}][{steps}][4];",
                "#pragma unroll",
                f"for (int i = 0; i < {high}; ++i)",
                "  #pragma unroll",
                f"  for (int k = 0; k < {steps}; ++k) "
                f"load_matrices{'_turned' * own.by_depth}({own.name}[i][k], &{tile}{at});",
                "__syncthreads();",
            ]
        if not section.turned:
            lines += self._own_row_values(section)
        for n, _ in section.readers:
            lines.append(f"float result{n}[{high}][{self.depth // _COLUMNS}][4] = {{}};")
        load = [f"load_{x.name}({x.name}_tiles[STAGE], {x.name}_matrix, OTHER, 0);" for x in section.passed]
        ahead = f"other + {others}"
        lines += [
            *(x.replace("STAGE", "0").replace("OTHER", "begin") for x in load),
            "commit();",
            *self._row_values_ahead(section, "begin", "0"),
            "#pragma unroll 1",
            f"for (int other = begin, stage = 0; other < end; other += {others}, stage ^= 1) {{",
            "  wait();",
            "  __syncthreads();",
            f"  if ({ahead} < end) {{",
            *(f"    {x.replace('STAGE', 'stage ^ 1').replace('OTHER', ahead)}" for x in load),
            *(f"    {x}" for x in self._row_values_ahead(section, ahead, "stage ^ 1")),
            "  }",
            "  commit();",
        ]
        some = mask.holds_somewhere(("first", "last"), ("other", f"(other + {others - 1})"))
        lines += [
            f"  if ({' && '.join(some)}) {{" if some else "  {",
            *(f"    {x}" for x in [*self._made(section, mask), *self._read(section)]),
            "  }",
            "}",
            *self._results(section),
            "__syncthreads();  // shared memory is free for what follows",
        ]
        return lines

    def _order(self, section: _Section, mask: Mask, blocks: int, matrices: int) -> str:
        place = f"(int)(place / {matrices})"
        return f"{blocks - 1} - {place}" if mask.bounds and not section.turned else place

    def _own_row_values(self, section: _Section) -> list[str]:
        """The values of the rows that a lane has elements of."""
        lines = []
        for k, maker in section.makers:
            if not maker.of_rows:
                continue
            names = [f"row{k}_{n}" for n in range(len(maker.of_rows))]
            lines += [f"{c_type(e.dtype)} {name}[{self.shape.high}][2];"
                      for name, e in zip(names, maker.of_rows, strict=True)]  # fmt: skip
            lines += [
                "#pragma unroll",
                f"for (int i = 0; i < {2 * self.shape.high}; ++i) {{",
                f"  const int at = min(first + i / 2 * {_STEP} + quad + i % 2 * 8, {section.lines - 1});",
                f"  rows{k}({', '.join(f'&{name}[i / 2][i % 2]' for name in names)}, "
                f"matrix * {self.form.rows} + at{self._pointers(maker.operands[2:])});",
                "}",
            ]
        return lines

    def _row_values_ahead(self, section: _Section, other: str, stage: str) -> list[str]:
        """Computes the values of the rows of a tile that passes by."""
        lines = []
        for k, maker in section.makers if section.turned else ():
            if maker.of_rows:
                names = ", ".join(f"&row{k}_{n}_tiles[{stage}][threadIdx.x]" for n in range(len(maker.of_rows)))
                lines += [
                    f"if (threadIdx.x < {self.shape.others} && {other} + threadIdx.x < {section.others})",
                    f"  rows{k}({names}, matrix * {self.form.rows} + {other} + threadIdx.x"
                    f"{self._pointers(maker.operands[2:])});",
                ]
        return lines

    def _made(self, section: _Section, mask: Mask) -> list[str]:
        """The elements of a tile of all matrices: products, and what is computed of them."""
        high, across, steps = self.shape.high, self.shape.others // _COLUMNS, self.depth // _STEP
        lines = []
        for (k, _), own, passed in zip(section.makers, section.own, section.passed, strict=True):
            lines += [
                f"float scores{k}[{high}][{across}][4] = {{}};",
                "#pragma unroll",
                f"for (int k = 0; k < {steps}; ++k) {{",
                "  #pragma unroll",
                f"  for (int j = 0; j < {across}; j += 2) {{",
                "    unsigned int y[2][2];",
                f"    load_matrices{'_turned' * passed.by_depth}(y[0], "
                f"&{passed.name}_tiles[stage]{_fragment_of_b(passed.by_depth)});",
                "    #pragma unroll",
                f"    for (int i = 0; i < {2 * high}; ++i) "
                f"multiply(scores{k}[i / 2][j + i % 2], {own.name}[i / 2][k], y[i % 2]);",
                "  }",
                "}",
            ]
        narrow = [n for _, maker in section.makers for n in maker.matrices if n in self.wide_of]
        lines += [f"unsigned int m{number}[{high}][{across}][2];" for number in narrow]
        whole = mask.holds_everywhere(("first", "last"), ("other", f"(other + {self.shape.others - 1})"))
        if whole and self.masked:
            holds = " && ".join(mask.holds("at", "to"))
            lines += [
                f"if (!({' && '.join(whole)})) {{",
                '  asm volatile("");  // a branch: chosen element by element, it would be computed in every tile',
                *(f"  {line}" for line in self._for_each(self._pair([
                    f"if (!({holds})) scores0[i][j][2 * h + c] = __uint_as_float(0xff800000u);"]))),
                "}",
            ]  # fmt: skip
        return [*lines, *self._for_each(self._element(section))]

    def _for_each(self, lines: Sequence[str]) -> list[str]:
        """A loop over the pairs of neighbours of a lane."""
        return [
            "#pragma unroll",
            f"for (int i = 0; i < {self.shape.high}; ++i)",
            "  #pragma unroll",
            f"  for (int j = 0; j < {self.shape.others // _COLUMNS}; ++j)",
            "    #pragma unroll",
            "    for (int h = 0; h < 2; ++h) {",
            *(f"      {line}" for line in lines),
            "    }",
        ]

    def _pair(self, lines: Sequence[str]) -> list[str]:
        """A loop over two neighbours."""
        return [
            "#pragma unroll",
            "for (int c = 0; c < 2; ++c) {",
            f"  const int at = first + i * {_STEP} + quad + h * 8, to = other + j * {_COLUMNS} + pair + c;",
            *(f"  {line}" for line in lines),
            "}",
        ]

    def _element(self, section: _Section) -> list[str]:
        """Two neighbours of all matrices, which fill a register; outside of the matrices they are zero."""
        form, turned = self.form, section.turned
        row, column = ("to", "at") if turned else ("at", "to")
        inside = [f"at < {section.lines}"] * (section.lines % self.shape.lines != 0)
        inside += [f"to < {section.others}"] * (section.others % self.shape.others != 0)
        where = f"if ({' && '.join(inside)}) " if inside else ""
        lines = []
        for k, maker in section.makers:
            own = f"_tiles[stage][j * {_COLUMNS} + pair + c]" if turned else "[i][h]"
            given = [f"scores{k}[i][j][2 * h + c]", *(f"row{k}_{n}{own}" for n in range(len(maker.of_rows)))]
            given += [f"(unsigned short)(m{n}[i][j][h] >> 16 * c)" if n in self.wide_of else f"made{n}[c]"
                      for n in maker.reads]  # fmt: skip
            given += [*(f"&made{n}[c]" for n in maker.matrices), f"matrix * {form.rows} + {row}", column]
            pointers = self._pointers(maker.operands[2:] if maker.nest is not None else ())
            lines += [f"float made{n}[2] = {{}};" for n in maker.matrices]
            lines += self._pair([f"{where}make{k}({', '.join(given)}{pointers});"])
            lines += [f"m{n}[i][j][h] = narrow(made{n}[0], made{n}[1]);" for n in maker.matrices if n in self.wide_of]
        return lines

    def _read(self, section: _Section) -> list[str]:
        """Adds up the products of the matrices."""
        high, columns, lines = self.shape.high, self.depth // _COLUMNS, []
        for (n, reader), right in zip(section.readers, section.right, strict=True):
            passed, matrix = section.passed[right], f"m{reader.matrix}"
            lines += [
                "#pragma unroll",
                f"for (int k = 0; k < {self.shape.others // _STEP}; ++k) {{",
                "  #pragma unroll",
                f"  for (int j = 0; j < {columns}; j += 2) {{",
                "    unsigned int y[2][2];",
                f"    load_matrices{'_turned' * (not passed.by_depth)}(y[0], "
                f"&{passed.name}_tiles[stage]{_fragment_of_b(not passed.by_depth)});",
                "    #pragma unroll",
                f"    for (int i = 0; i < {high}; ++i) {{",
                f"      const unsigned int x[4] = {{{matrix}[i][2 * k][0], {matrix}[i][2 * k][1], "
                f"{matrix}[i][2 * k + 1][0], {matrix}[i][2 * k + 1][1]}};",
                f"      multiply(result{n}[i][j], x, y[0]);",
                f"      multiply(result{n}[i][j + 1], x, y[1]);",
                "    }",
                "  }",
                "}",
            ]
        return lines

    def _results(self, section: _Section) -> list[str]:
        """The sums from registers through what follows them."""
        lines = []
        for n, reader in section.readers:
            inside = [f"at < {section.lines}"] * (section.lines % self.shape.lines != 0)
            inside += [f"column < {reader.form.n}"] * (reader.form.n != self.depth)
            where = f"if ({' && '.join(inside)}) " if inside else ""
            finish = f"finish{n}(result{n}[i][j][c], matrix, at, column{self._pointers(reader.operands[2:])});"
            lines += [
                "#pragma unroll",
                f"for (int i = 0; i < {self.shape.high}; ++i)",
                "  #pragma unroll",
                f"  for (int j = 0; j < {self.depth // _COLUMNS}; ++j)",
                "    #pragma unroll",
                "    for (int c = 0; c < 4; ++c) {",
                f"      const int at = first + i * {_STEP} + quad + c / 2 * 8, column = j * {_COLUMNS} + pair + c % 2;",
                f"      {where}{finish}",
                "    }",
            ]
        return lines


def _transposed(where: Addresses) -> Addresses:
    return Addresses(where.offset, where.batch, where.steps, where.rows, where.inside)


def _fragment_of_a(side: Operand) -> str:
    row, step = f"warp_line + i * {_STEP}", f"k * {_STEP}"
    if side.by_depth:
        return f"[{step} + lane / 16 * 8 + lane % 8][{row} + lane / 8 % 2 * 8]"
    return f"[{row} + lane % 16][{step} + lane / 16 * 8]"


def _fragment_of_b(by_depth: bool) -> str:
    """Two neighbours of columns, of a tile whose lines are steps, or columns."""
    if by_depth:
        return f"[k * {_STEP} + lane % 16][j * {_COLUMNS} + lane / 16 * 8]"
    return f"[j * {_COLUMNS} + lane / 16 * 8 + lane % 8][k * {_STEP} + lane / 8 % 2 * 8]"

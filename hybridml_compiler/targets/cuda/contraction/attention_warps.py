"""Attention on tensor cores of 16 bits as one kernel whose scores and weights are in registers alone.

The algorithm is that of Dao, "FlashAttention-2" (2023). A warp has whole rows: the scores that an `mma` leaves in the
registers of a lane are, as weights, the operand of the next one, and a maximum over a row is one over the four lanes of
a quad. Keys and values come to shared memory asynchronously, a tile ahead.

The chain says that a weight is exp(rate * (x - most)) (softmax_rows.py). Here that is 2^(x * c - most * c), with
c = rate * log2(e): one fused multiply-add and the hardware's power of two, which is as near as 2 units in the last
place of float32. So weights differ from those of the launches in their rounding; all else is as these compute it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .... import dtypes
from ....loops.ir import Expr, perfect_nest
from ....record import record
from ....schedule.fusion.tile_fusion import TileFusion
from ....walk import postorder
from ..emit.kernel import ENTRY
from ..emit.types import c_type, literal
from .attention_form import LARGER, Attention, Ends, demand
from .attention_mask import Mask, masked
from .kernel import COMMIT, WAIT, CallSource, matrix_of
from .multiply import LOAD, MULTIPLY
from .near import NARROW, POWER
from .operands import COPY, load_function, operand
from .tiles import SHARED_BYTES, WARP

_STEP = 16  # of k in a multiplication of 16 bits; rows of its result
_COLUMNS = 8  # of its result
_SLACK = "8.0"  # powers of two that a weight may be above one, before what was added up is multiplied


@record
class Shape:
    """The division of a block's work: warps of 16 * `high` rows each, so many keys at a time, and the number of blocks
    that a multiprocessor shall have room for."""

    warps: int
    high: int
    keys: int
    blocks: int

    @property
    def rows(self) -> int:
        """The number of rows of a block."""
        return self.warps * self.high * _STEP


def shape_for(features: int, columns: int) -> Shape:
    """The shape for operands of so many features, and results of so many columns: the fastest of five to eight that an
    H100 has been given, for 32, 64 and 128 of both."""
    widest = max(features, columns)
    if widest <= 32:
        return Shape(4, 1, 32, 4)
    return Shape(4, 2, 64, 2) if widest <= 64 else Shape(4, 1, 32, 3)


_ONES = {"bf16": "0x3f803f80u", "f16": "0x3c003c00u"}  # two of them
_ARRIVE = ("commit();", "wait();", "__syncthreads();")


class WarpWriter(Attention):
    """The kernel of tensor cores whose fragments of a result are those of an operand."""

    inverts = True

    def __init__(self, chain: TileFusion, wide: bool) -> None:
        super().__init__(chain)
        demand(self.tensor in _ONES)
        one, two = self.one, self.two
        (q_stored, k_stored), (w_stored, v_stored) = one.stored, two.stored
        demand(self.rows.weight.value.dtype is w_stored)
        self.depth, self.columns = (-(-size // _STEP) * _STEP for size in (one.k, two.n))
        self.shape = shape = shape_for(self.depth, self.columns)
        self.q = operand("q", one.a, q_stored, q_stored, shape.rows, self.depth, self.tensor, wide)
        self.k = operand("k", one.b, k_stored, k_stored, shape.keys, self.depth, self.tensor, wide)
        self.v = operand("v", two.b, v_stored, v_stored, self.columns, shape.keys, self.tensor, wide)
        self.shared_bytes = max(self.q.nbytes, 2 * (self.k.nbytes + self.v.nbytes))
        demand(self.shared_bytes <= SHARED_BYTES)
        most = self.rows.most
        mask, self.ranked = masked(most.value, self.rows.row, most.vars[0], one.m)
        self.mask, self.plain = mask, self._score
        nest = self.first.nest
        loops = [] if nest is None else perfect_nest(nest.body)[0]
        if self._score is not None and len(loops) == 2 and (not mask.bounds or self.ranked.op == "load"):
            first, self.plain = masked(self._score, loops[0].var, loops[1].var, one.m)
            self.mask = Mask((*mask.bounds, *first.bounds))

    def source(self) -> CallSource:
        shape, threads = self.shape, self.shape.warps * WARP
        sides = (self.q, self.k, self.v)
        copies = {f"copy_{side.width * side.stored.itemsize}" for side in sides if side.is_asynchronous}
        ends = self._ends()
        texts = [COPY[name] for name in sorted(copies)] + [COMMIT, WAIT.format(0)]
        texts += [load_function(side, threads) for side in sides]
        texts += [LOAD.format(name="_turned" * way, way=".trans" * way) for way in sorted({s.by_depth for s in sides})]
        texts += [MULTIPLY.format(depth=_STEP, kind=self.tensor), LARGER, POWER, NARROW.format(kind=self.tensor)]
        elements = [*(self._score_function(self.plain) if self._computes_scores else []), self._ranked(self.ranked)]
        texts += [self.functions.text(), *elements, *ends.texts]
        buffers = self._buffers()
        parameters = [f"{'const ' * (x.role == 'in')}{c_type(x.dtype)}* {x.name}" for x in buffers]
        lines = [
            f"// attention of {self.one.text} and {self.two.text}, {shape.rows} rows by {shape.keys} keys at a time",
            f'extern "C" __global__ void __launch_bounds__({threads}, {shape.blocks})',
            f"{ENTRY}({', '.join([*parameters, 'long long lo', 'long long hi'])}) {{",
            *(f"  {line}" for line in self._kernel(ends)),
            "}\n",
        ]
        text = "\n".join(part for part in [*texts, "\n".join(lines)] if part)
        alignment = max(side.width * side.stored.itemsize for side in sides)
        total = self.one.matrices * -(-self.one.m // shape.rows)
        return CallSource(text, False, threads, 1, alignment, tuple(buffers), total)

    @property
    def _computes_scores(self) -> bool:
        """Whether there is more to a score than a mask of the product."""
        return self.plain is not None and self.plain.op != "load"

    def _reads_memory(self) -> bool:
        """Whether what scores are computed from is in memory, where nothing is beyond the edges."""
        first = self.first.nest.operands[0].name if self.first.nest is not None else ""
        loads = [e for e in _parts(self.plain) if e.op == "load" and e.attr.name != first]
        loads += [e for e in _parts(self.ranked) if e.op == "load" and self._number(e.attr) != self.scores]
        return bool(loads)

    def _kernel(self, ends: Ends) -> list[str]:
        shape, one = self.shape, self.one
        blocks, high = -(-one.m // shape.rows), shape.high
        places = {"q": 0, "k": 0, "v": 2 * self.k.nbytes}
        tiles = [
            f"{c_type(side.value)} (*const {side.name}_tiles)[{side.lines}][{side.pitch}] = "
            f"({c_type(side.value)} (*)[{side.lines}][{side.pitch}])(shared + {places[side.name]});"
            for side in (self.q, self.k, self.v)
        ]
        # Under a mask rows differ in how many keys they see: the last ones, of most, come first.
        place = f"tile % {one.matrices}", f"({blocks - 1} - (int)(tile / {one.matrices}))"
        matrix, row = place if self.mask.bounds else (f"tile / {blocks}", f"(int)(tile % {blocks})")
        sources = ((self.q, 0, 0), (self.k, 0, 1), (self.v, 2, 1))
        lines = [
            f"const long long matrix = {matrix};",
            f"const int row = {row} * {shape.rows}, first = row + warp_row;  // of the block, and of the warp",
            f"const int last = min(first + {high * _STEP}, {one.m}) - 1;",
            f"int begin = 0, end = {one.n};  // of the keys that the rows of the block see",
            *self.mask.limits(("row", f"(min(row + {shape.rows}, {one.m}) - 1)"), shape.keys),
            *(matrix_of(side, self._pointer(self.numbers[stage][k])) for side, stage, k in sources),
            *self._queries(),
            f"float sums[{high}][{self.columns // _COLUMNS}][4] = {{}}, totals[{high}][4] = {{}};",
            f"float most[{high}][2], base[{high}][2];  // the largest scores, and those that weights are below",
            "#pragma unroll",
            f"for (int i = 0; i < {2 * high}; ++i) most[i / 2][i % 2] = base[i / 2][i % 2] = none;",
            *self._keys(),
            *self._results(ends),
            "__syncthreads();  // shared memory is free for the next rows",
        ]
        rate = literal(self.rows.rate * math.log2(math.e), dtypes.float32)
        return [
            f"__shared__ __align__(16) unsigned char shared[{self.shared_bytes}];",
            *tiles,
            "const int lane = threadIdx.x % 32, quad = lane / 4, pair = lane % 4 * 2;",
            f"const int warp_row = threadIdx.x / 32 * {high * _STEP};",
            f"const float none = {literal(-np.inf, dtypes.float32)}, rate = {rate};",
            "for (long long tile = lo + blockIdx.x; tile < hi; tile += gridDim.x) {",
            *(f"  {line}" for line in lines),
            "}",
        ]

    def _queries(self) -> list[str]:
        """All operands that a warp has of its rows, through the memory of keys."""
        high, steps, turned = self.shape.high, self.depth // _STEP, "_turned" * self.q.by_depth
        row, step = f"warp_row + i * {_STEP}", f"k * {_STEP}"
        at = f"[{step} + lane / 16 * 8 + lane % 8][{row} + lane / 8 % 2 * 8]" if self.q.by_depth else (
            f"[{row} + lane % 16][{step} + lane / 16 * 8]")  # fmt: skip
        return [
            "load_q(q_tiles[0], q_matrix, row, 0);",
            *_ARRIVE,
            f"unsigned int x[{high}][{steps}][4];",
            "#pragma unroll",
            f"for (int i = 0; i < {high}; ++i)",
            "  #pragma unroll",
            f"  for (int k = 0; k < {steps}; ++k) load_matrices{turned}(x[i][k], &q_tiles[0]{at});",
            "__syncthreads();",
        ]

    def _keys(self) -> list[str]:
        """The loop over keys: the next tile of them comes while this one is computed with."""
        keys = self.shape.keys
        return [
            "load_k(k_tiles[0], k_matrix, begin, 0);",
            "load_v(v_tiles[0], v_matrix, 0, begin);",
            "commit();",
            "#pragma unroll 1",
            f"for (int key = begin, stage = 0; key < end; key += {keys}, stage ^= 1) {{",
            "  wait();",
            "  __syncthreads();",
            f"  if (key + {keys} < end) {{",
            f"    load_k(k_tiles[stage ^ 1], k_matrix, key + {keys}, 0);",
            f"    load_v(v_tiles[stage ^ 1], v_matrix, 0, key + {keys});",
            "  }",
            "  commit();",
            *(f"  {line}" for line in self._seen_by_warp()),
            *(f"    {line}" for line in [*self._scores_of(), *self._softmax(), *self._weighted()]),
            "  }",
            "}",
        ]

    def _seen_by_warp(self) -> list[str]:
        """The head of a block of lines for a tile of which the warp's rows see some key."""
        bounds = self.mask.holds_somewhere(("first", "last"), ("key", f"(key + {self.shape.keys - 1})"))
        return [f"if ({' && '.join(bounds)}) {{" if bounds else "{"]

    def _scores_of(self) -> list[str]:
        """A tile of scores in registers, as a row's maximum is of: -inf where there are none."""
        high, across = self.shape.high, self.shape.keys // _COLUMNS
        turned, step = "_turned" * self.k.by_depth, f"k * {_STEP}"
        at = f"[{step} + lane % 16][j * 8 + lane / 16 * 8]" if self.k.by_depth else (
            f"[j * 8 + lane / 16 * 8 + lane % 8][{step} + lane / 8 % 2 * 8]")  # fmt: skip
        return [
            f"float scores[{high}][{across}][4] = {{}};",
            "#pragma unroll",
            f"for (int k = 0; k < {self.depth // _STEP}; ++k) {{",
            "  #pragma unroll",
            f"  for (int j = 0; j < {across}; j += 2) {{",
            "    unsigned int y[2][2];",
            f"    load_matrices{turned}(y[0], &k_tiles[stage]{at});",
            "    #pragma unroll",
            f"    for (int i = 0; i < {2 * high}; ++i) multiply(scores[i / 2][j + i % 2], x[i / 2][k], y[i % 2]);",
            "  }",
            "}",
            *self._seen(),
        ]

    def _seen(self) -> list[str]:
        keys, one = self.shape.keys, self.one
        value = "scores[i][j][c]"
        if self._computes_scores:
            value = f"score({value}, at_row, column{self._given(0, 2)})"
        found = f"scores[i][j][c] = ranked({value}, at_row, column{self._given(1)});"
        whole = self.mask.holds_everywhere(("first", "last"), ("key", f"(key + {keys - 1})"))
        holds = self.mask.holds("at", "column")
        if one.n % keys:
            whole.append(f"key + {keys} <= {one.n}")
            holds.append(f"column < {one.n}")
        if self._reads_memory():
            whole = ["false"]
            holds.append(f"at < {one.m}")
        all_of = [*self._for_each_score([found])]
        if not whole:
            return all_of
        some_of = self._for_each_score(
            [
                f"const bool counts = {' && '.join(holds)};",
                "if (counts) {",
                f"  {found}",
                "} else scores[i][j][c] = none;",
            ]
        )
        return [
            f"if ({' && '.join(whole)}) {{",
            *(f"  {line}" for line in all_of),
            "} else {",
            '  asm volatile("");  // a branch: chosen element by element, both sides would be computed in every tile',
            *(f"  {line}" for line in some_of),
            "}",
        ]

    def _for_each_score(self, lines: Sequence[str]) -> list[str]:
        return [
            "#pragma unroll",
            f"for (int i = 0; i < {self.shape.high}; ++i)",
            "  #pragma unroll",
            f"  for (int j = 0; j < {self.shape.keys // _COLUMNS}; ++j)",
            "    #pragma unroll",
            "    for (int c = 0; c < 4; ++c) {",
            f"      const int at = first + i * {_STEP} + quad + c / 2 * 8, column = key + j * 8 + pair + c % 2;",
            f"      const long long at_row = matrix * {self.one.m} + at;",
            *(f"      {line}" for line in lines),
            "    }",
        ]

    def _softmax(self) -> list[str]:
        """Scores become weights, of the largest score up to now or of one before that is not much smaller; what was
        added up is multiplied when another one is taken, which is rarely."""
        across, columns = self.shape.keys // _COLUMNS, self.columns // _COLUMNS
        each = [
            "#pragma unroll",
            f"for (int i = 0; i < {self.shape.high}; ++i)",
            "  #pragma unroll",
            "  for (int h = 0; h < 2; ++h) {",
        ]
        return [
            f"bool grows = false, by_row[{self.shape.high}][2];",
            *each,
            "    float now = most[i][h];",
            "    #pragma unroll",
            f"    for (int j = 0; j < {across}; ++j)",
            "      now = larger(now, larger(scores[i][j][2 * h], scores[i][j][2 * h + 1]));",
            "    now = larger(now, __shfl_xor_sync(0xffffffffu, now, 1));",
            "    now = larger(now, __shfl_xor_sync(0xffffffffu, now, 2));",
            "    most[i][h] = now;",
            f"    by_row[i][h] = (now - base[i][h]) * rate > {_SLACK}f;",
            "    grows = grows || by_row[i][h];",
            "  }",
            "if (__any_sync(0xffffffffu, grows)) {",
            *(f"  {line}" for line in each),
            "      const float now = by_row[i][h] ? most[i][h] : base[i][h];",
            "      const float factor = by_row[i][h] ? power_of_two((base[i][h] - now) * rate) : 1.0f;",
            "      base[i][h] = now;",
            "      totals[i][2 * h] *= factor;",
            "      #pragma unroll",
            f"      for (int j = 0; j < {columns}; ++j) {{",
            "        sums[i][j][2 * h] *= factor;",
            "        sums[i][j][2 * h + 1] *= factor;",
            "      }",
            "    }",
            "}",
            *each,
            "    const float shift = base[i][h] == none ? 0.0f : base[i][h] * rate;  // unseen: weights are zero",
            "    #pragma unroll",
            f"    for (int j = 0; j < {across}; ++j)",
            "      #pragma unroll",
            "      for (int c = 2 * h; c < 2 * h + 2; ++c)",
            "        scores[i][j][c] = power_of_two(fmaf(scores[i][j][c], rate, -shift));",
            "  }",
        ]

    def _weighted(self) -> list[str]:
        """Adds up the products of weights and values, and the weights themselves, by a column of ones."""
        high, columns = self.shape.high, self.columns // _COLUMNS
        turned, step = "_turned" * self.v.by_depth, f"k * {_STEP}"
        at = f"[{step} + lane % 16][j * 8 + lane / 16 * 8]" if self.v.by_depth else (
            f"[j * 8 + lane / 16 * 8 + lane % 8][{step} + lane / 8 % 2 * 8]")  # fmt: skip
        return [
            "#pragma unroll",
            f"for (int k = 0; k < {self.shape.keys // _STEP}; ++k) {{",
            f"  unsigned int w[{high}][4];",
            f"  const unsigned int ones[2] = {{{_ONES[self.tensor]}, {_ONES[self.tensor]}}};",
            "  #pragma unroll",
            f"  for (int i = 0; i < {high}; ++i) {{",
            "    #pragma unroll",
            "    for (int e = 0; e < 4; ++e)",
            "      w[i][e] = narrow(scores[i][2 * k + e / 2][e % 2 * 2], scores[i][2 * k + e / 2][e % 2 * 2 + 1]);",
            "    multiply(totals[i], w[i], ones);",
            "  }",
            "  #pragma unroll",
            f"  for (int j = 0; j < {columns}; j += 2) {{",
            "    unsigned int y[2][2];",
            f"    load_matrices{turned}(y[0], &v_tiles[stage]{at});",
            "    #pragma unroll",
            f"    for (int i = 0; i < {2 * high}; ++i) multiply(sums[i / 2][j + i % 2], w[i / 2], y[i % 2]);",
            "  }",
            "}",
        ]

    def _results(self, ends: Ends) -> list[str]:
        """The lines that take the sums of each row from registers to memory."""
        two, columns = self.two, self.columns // _COLUMNS
        kept = "".join(f", &{name}" for name in ends.names)
        values = "".join(f", {name}" for name in ends.names)
        inside = f"if (column < {two.n}) " if two.n % _COLUMNS or two.n < self.columns else ""
        return [
            "#pragma unroll",
            f"for (int i = 0; i < {self.shape.high}; ++i)",
            "  #pragma unroll",
            "  for (int h = 0; h < 2; ++h) {",
            f"    const int at = first + i * {_STEP} + quad + h * 8;",
            f"    const long long at_row = matrix * {self.one.m} + at;",
            "    const float seen = power_of_two((base[i][h] - most[i][h]) * rate);  // nan where the row sees nothing",
            f"    if (at < {self.one.m}) {{",
            *(f"      {text};" for text in ends.kept),
            f"      end_row(most[i][h], totals[i][2 * h] * seen{kept}, pair == 0, at_row{ends.row_buffers});",
            "      #pragma unroll",
            f"      for (int j = 0; j < {columns}; ++j)",
            "        #pragma unroll",
            "        for (int c = 0; c < 2; ++c) {",
            "          const int column = j * 8 + pair + c;",
            f"          {inside}finish(sums[i][j][2 * h + c] * seen, at_row, column{values}{ends.buffers});",
            "        }",
            "    }",
            "  }",
        ]


def _parts(value: Expr | None) -> list[Expr]:
    """All that a value is computed from."""
    return [] if value is None else [*postorder([value], lambda part: part.args)]

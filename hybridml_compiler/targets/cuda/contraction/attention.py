"""Two products with a softmax between them as one kernel, whose scores are in shared memory alone.

See [Note: GPU attention].

    scores = q @ k.T -> elementwise -> weights = f(scores, max of a row) -> (weights @ v, sum of a row) -> elementwise

It is read off a chain of launches (schedule/fusion/tile_fusion.py): a product, a loop nest over rows, a product. A
block has some rows, and goes over the keys once: what it has added up shrinks as the maximum of a row grows
(softmax_rows.py). Scores and weights are computed as the launches would compute them, rounding included, whatever masks
and factors are among them, but for the maximum, which is that of the keys up to then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from .... import dtypes
from ....schedule.fusion.tile_fusion import TileFusion
from ..emit.kernel import ENTRY, KernelWriter
from ..emit.scalars import C
from ..emit.types import c_type, literal
from .attention_form import LARGER, Attention, Ends, Unfit, demand, is_attention
from .attention_warps import WarpWriter
from .kernel import COMMIT, WAIT, CallSource, matrix_of
from .multiply import multiplication, renamed
from .operands import COPY, Operand, load_function, operand
from .tiles import SHARED_BYTES, Tile

_DEPTH = 16  # features of queries are filled up to a multiple of this with zeros
_FILL = 32  # columns that tiles of the result are filled up to a multiple of


def emit_attention(chain: TileFusion, *, wide: bool = True) -> CallSource | None:
    """The source of a chain; None where it is none of two products, or a block has no room for its tiles."""
    if not is_attention(chain.specs):
        return None
    attempts: list[Callable[[], CallSource]] = [lambda: WarpWriter(chain, wide).source()]
    attempts += [lambda rows=rows: _Writer(chain, rows, wide).source() for rows in (64, 32)]  # type: ignore[misc]
    for attempt in attempts:
        try:
            return attempt()
        except Unfit:
            pass
    return None


class _Writer(Attention):
    """The kernel of threads, and of tensor cores whose fragments are no operands of one another (tf32)."""

    def __init__(self, chain: TileFusion, rows: int, wide: bool) -> None:
        super().__init__(chain)
        self._tiles(rows, self.tensor, wide)

    def _tiles(self, rows: int, tensor: str, wide: bool) -> None:
        (q_stored, k_stored), (w_stored, v_stored) = self.one.stored, self.two.stored
        float32 = dtypes.float32
        demand(bool(tensor) or (w_stored is float32 and self.rows.weight.value.dtype is float32))
        keys = 64 if tensor and tensor != "tf32" else 32
        depth = -(-self.one.k // _DEPTH) * _DEPTH
        columns = -(-self.two.n // _FILL) * _FILL
        down, across = (rows // 16, 1) if tensor else (rows // 4, 16)
        self.tile = Tile(rows, keys, depth, down, across, tensor)
        self.result = Tile(rows, columns, keys, down, across, tensor)

        def value(stored: np.dtype) -> np.dtype:
            return stored if tensor else float32

        one, two = self.one, self.two
        self.q = operand("q", one.a, q_stored, value(q_stored), rows, depth, tensor, wide)
        self.k = operand("k", one.b, k_stored, value(k_stored), keys, depth, tensor, wide)
        self.v = operand("v", two.b, v_stored, value(v_stored), columns, keys, tensor, wide)
        pad = 16 // value(w_stored).itemsize
        pitch = (keys if tensor else rows) + pad
        self.w = Operand("w", two.a, w_stored, value(w_stored), bool(tensor), 1, rows, keys, pitch, by_depth=not tensor)
        self.to_scores = multiplication(float32, self.tile, self.q, self.k)
        self.to_result = multiplication(float32, self.result, self.w, self.v)
        shared = max(self.k.nbytes, self.v.nbytes)
        self.offsets = np.cumsum([0, self.q.nbytes, shared, rows * (keys + self.to_scores.pad) * 4, self.w.nbytes])
        whole = max(int(self.offsets[-1]), rows * (columns + self.to_result.pad) * 4)
        demand(whole + 4 * rows + 8 * rows * len(self.rows.stores) <= SHARED_BYTES)
        self.shared_bytes = whole

    # ---- the kernel

    def source(self) -> CallSource:
        tile, threads = self.tile, self.tile.threads
        elements, calls = self._elements()
        ends = self._ends()
        sides = (self.q, self.k, self.v)
        copies = {f"copy_{side.width * side.stored.itemsize}" for side in sides if side.is_asynchronous}
        multiplies = dict.fromkeys([*self.to_scores.functions, *self.to_result.functions])
        loads = [load_function(side, threads) for side in sides]
        writer = KernelWriter(self.nest, self.functions)
        c = {name: C(name, dtypes.float32) for name in ("most", "total", "value", "before")}
        grown = writer.s.mul(writer.s.sub(c["before"], c["most"]), writer.s.const(self.rows.rate, dtypes.float32))
        combined = {
            "most": "larger(most, value)",
            "total": str(writer.combined("add", c["total"], c["value"])),
            "before": str(writer.s.exp(grown)),
        }
        body = self._body(calls, ends, combined, bool(copies))
        texts = [COPY[name] for name in sorted(copies)] + [COMMIT, WAIT.format(0)] * bool(copies)
        texts += [LARGER, *loads, *multiplies, self.functions.text(), *elements, *ends.texts]
        buffers = self._buffers()
        parameters = [f"{'const ' * (x.role == 'in')}{c_type(x.dtype)}* {x.name}" for x in buffers]
        head = [
            f"// attention of {self.one.text} and {self.two.text}, {tile.rows} rows by {tile.columns} keys at a time",
            f'extern "C" __global__ void __launch_bounds__({threads}, 1)',
            f"{ENTRY}({', '.join([*parameters, 'long long lo', 'long long hi'])}) {{",
        ]
        declared = [f"__shared__ {text}[{tile.rows}];" for text in ends.kept]
        lines = [*head, *(f"  {line}" for line in [*declared, *body]), "}\n"]
        text = "\n".join(part for part in [*texts, "\n".join(lines)] if part)
        alignment = max(side.width * side.stored.itemsize for side in sides)
        total_blocks = self.one.matrices * -(-self.one.m // tile.rows)
        return CallSource(text, False, threads, 1, alignment, tuple(buffers), total_blocks)

    def _elements(self) -> tuple[list[str], dict[str, str]]:
        """(functions of elements, how each is called)."""
        rows = self.rows
        texts = [*self._score_function(self._score), self._ranked(rows.most.value)]
        score, weight = c_type(dtypes.float32 if self._score is None else self._score.dtype), rows.weight.value
        for name, array, given, var, value in (
            ("weight", self.scores, [(score, "score"), ("float", "most")], rows.key, weight),
            ("counted", self.weights, [(c_type(weight.dtype), "weight")], rows.total.vars[0], rows.total.value),
        ):
            texts.append(self._row_function(name, array, given, var, value))
        places, element = f"at_row, key + at{self._given(1)})", "scores_tile[line][at]"
        if self._score is not None:
            element = f"score({element}, at_row, key + at{self._given(0, 2)})"
        calls = {"ranked": f"ranked({element}", "weight": f"weight({element}, most", "counted": "counted(w"}
        return texts, {name: f"{call}, {places}" for name, call in calls.items()}

    def _body(self, calls: Mapping[str, str], ends: Ends, combined: Mapping[str, str], copies: bool) -> list[str]:
        """The lines of the kernel after its declarations."""
        tile, one, two, result = self.tile, self.one, self.two, self.result
        each, blocks = tile.threads // tile.rows, -(-one.m // tile.rows)
        q, kv, s, w, _ = (int(x) for x in self.offsets)
        kinds = [(side.name, c_type(side.value), side.pitch, at)
                 for side, at in ((self.q, q), (self.k, kv), (self.v, kv), (self.w, w))]  # fmt: skip
        kinds.append(("scores", "float", tile.columns + self.to_scores.pad, s))
        kinds.append(("sums", "float", result.columns + self.to_result.pad, 0))
        tiles = [f"{kind} (*{name}_tile)[{pitch}] = ({kind} (*)[{pitch}])(shared + {at});"
                 for name, kind, pitch, at in kinds]  # fmt: skip
        arrive = ["commit();", "wait();"] * copies + ["__syncthreads();"]
        first = {"a_tiles[stage]": "q_tile", "b_tiles[stage]": "k_tile", "sums": "scores",
                 "FIRST": "0", "LAST": str(self.to_scores.fragments)}  # fmt: skip
        then = {"a_tiles[stage]": "w_tile", "b_tiles[stage]": "v_tile", "thread_": "result_",
                "FIRST": "0", "LAST": str(self.to_result.fragments)}  # fmt: skip
        scores = renamed([*self.to_scores.sums, *self.to_scores.step, *self.to_scores.keep], first)
        inside = f"key + at < {one.n}" if one.n % tile.columns else "true"
        place = "w_tile[at][line]" if self.w.by_depth else "w_tile[line][at]"
        kind = c_type(self.rows.weight.value.dtype)

        addresses = "".join(f", &{name}[line]" for name in ends.names)
        end_row = f"end_row(most, total{addresses}, true, at_row{ends.row_buffers});"
        values = "".join(f", {name}[line]" for name in ends.names)
        finish = f"finish(sums_tile[line][at], matrix * {two.m} + i, j{values}{ends.buffers});"

        def across(name: str) -> list[str]:
            """Combines what the threads of a row have."""
            return [
                f"for (int step = 1; step < {each}; step *= 2) {{",
                f"  const float value = __shfl_xor_sync(0xffffffffu, {name}, step);",
                f"  {name} = {combined[name]};",
                "}",
            ]

        lines = [
            f"const long long matrix = tile / {blocks};",
            f"const int row = (int)(tile % {blocks}) * {tile.rows};",
            matrix_of(self.q, self._pointer(self.numbers[0][0])),
            matrix_of(self.k, self._pointer(self.numbers[0][1])),
            matrix_of(self.v, self._pointer(self.numbers[2][1])),
            f"const int line = threadIdx.x / {each}, part = threadIdx.x % {each};",
            f"const bool exists = {f'row + line < {one.m}' if one.m % tile.rows else 'true'};",
            f"const long long at_row = matrix * {one.m} + row + line;",
            f"const float none = {literal(-np.inf, dtypes.float32)};",
            "float most = none, total = 0.0f;",
            *self.to_result.sums,
            "load_q(q_tile, q_matrix, row, 0);",
            "#pragma unroll 1",
            f"for (int key = 0; key < {one.n}; key += {tile.columns}) {{",
            "  load_k(k_tile, k_matrix, key, 0);",
            *(f"  {text}" for text in arrive),
            *(f"  {text}" for text in scores),
            "  __syncthreads();",
            "  const float before = most;",
            f"  for (int at = part; at < {tile.columns}; at += {each})",
            f"    if (exists && {inside}) {{",
            f"      const float value = {calls['ranked']};",
            f"      most = {combined['most']};",
            "    }",
            *(f"  {text}" for text in across("most")),
            f"  const float factor = most == before ? 1.0f : {combined['before']};",
            "  total *= factor;",
            "  if (part == 0) factors[line] = factor;",
            "  load_v(v_tile, v_matrix, 0, key);",
            f"  for (int at = part; at < {tile.columns}; at += {each}) {{",
            f"    {kind} w = 0;",
            f"    if (exists && {inside} && most != none) {{",
            f"      w = {calls['weight']};",
            f"      total += {calls['counted']};",
            "    }",
            f"    {place} = w;",
            "  }",
            *(f"  {text}" for text in arrive),
            *(f"  {text}" for text in renamed([*self.to_result.scale, *self.to_result.step], then)),
            "  __syncthreads();",
            "}",
            *across("total"),
            "const float seen = most == none ? most - most : 1.0f;  // a row that sees nothing is nan",
            "total *= seen;",
            f"if (exists && part == 0) {end_row}",
            "if (part == 0) factors[line] = seen;",
            "__syncthreads();",
            *renamed([*self.to_result.scale, *self.to_result.keep], then),
            "__syncthreads();",
            f"for (int index = threadIdx.x; index < {tile.rows * result.columns}; index += {tile.threads}) {{",
            f"  const int line = index / {result.columns}, at = index % {result.columns};",
            "  const int i = row + line, j = at;",
            f"  if (i < {two.m} && j < {two.n}) {finish}",
            "}",
            "__syncthreads();  // shared memory is free for the next rows",
        ]
        return [
            f"__shared__ __align__(16) unsigned char shared[{self.shared_bytes}];",
            f"__shared__ float factors[{tile.rows}];  // by which what was added up is multiplied",
            *tiles,
            *self.to_scores.setup,
            *([] if tile.tensor else renamed(self.to_result.setup, then)),
            "for (long long tile = lo + blockIdx.x; tile < hi; tile += gridDim.x) {",
            *(f"  {text}" for text in lines),
            "}",
        ]

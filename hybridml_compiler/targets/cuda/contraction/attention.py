"""Two products with a softmax between them as one kernel, whose scores are in shared memory alone.

    scores = q @ k.T -> elementwise -> weights = f(scores, max of a row) -> (weights @ v, sum of a row) -> elementwise

It is read off a chain of launches (schedule/fusion/tile_fusion.py): a product, a loop nest over rows, a product. A
block has some rows, and goes over the keys once: what it has added up shrinks as the maximum of a row grows
(softmax_rows.py). Scores and weights are computed as the launches would compute them, rounding included, whatever masks
and factors are among them, but for the maximum, which is that of the keys up to then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .... import config, dtypes
from ....loops.index import affine_terms
from ....loops.ir import Buffer, Expr, Kernel, KernelSpec, Role, Store, expressions, perfect_nest
from ....record import replace
from ....schedule.fusion.epilogue import Fused
from ....schedule.fusion.tile_fusion import TileFusion
from ....schedule.kernels.gemm import Product
from ..emit.functions import DeviceFunctions
from ..emit.kernel import ENTRY, KernelWriter
from ..emit.scalars import C
from ..emit.types import c_type, literal
from .contraction import Digit, contraction_of
from .kernel import COMMIT, WAIT, CallSource, matrix_of
from .multiply import multiplication, renamed
from .operands import COPY, Operand, load_function, operand
from .softmax_rows import rows_of
from .tiles import MOST_FEATURES, SHARED_BYTES, Tile, tensor_type

_DEPTH = 16  # features of queries are filled up to a multiple of this with zeros
_FILL = 32  # columns that tiles of the result are filled up to a multiple of


def is_attention(specs: Sequence[KernelSpec]) -> bool:
    """Whether launches are a product, rows of a softmax and a product: `emit_attention` may write them as one."""
    first, rows, last = specs if len(specs) == 3 else (None, None, None)
    if not isinstance(rows, Kernel) or rows.checked or rows_of(rows) is None:
        return False
    calls = [spec.call if isinstance(spec, Fused) else spec for spec in (first, last)]
    products = [call for call in calls if isinstance(call, Product) and call.dtype is dtypes.float32]
    return len(products) == 2 and products[0].k <= MOST_FEATURES and products[1].n <= MOST_FEATURES


class _Unfit(Exception):
    """The launches are no attention that a kernel is written for."""


def emit_attention(chain: TileFusion, *, wide: bool = True) -> CallSource | None:
    """The source of a chain; None where it is none of two products, or a block has no room for its tiles."""
    if not is_attention(chain.specs):
        return None
    for rows in (64, 32):
        try:
            return _Writer(chain, rows, wide).source()
        except _Unfit:
            pass
    return None


def _demand(holds: bool) -> None:
    if not holds:
        raise _Unfit


class _Writer:
    def __init__(self, chain: TileFusion, rows: int, wide: bool) -> None:
        first, nest, last = chain.specs
        assert isinstance(nest, Kernel)
        self.first, self.nest, self.last = first, nest, last
        self.given = chain.operands
        self.numbers = [stage.operands for stage in chain.stages]
        one, two = (spec.call if isinstance(spec, Fused) else spec for spec in (first, last))
        assert isinstance(one, Product) and isinstance(two, Product)
        self.one, self.two = contraction_of(one), contraction_of(two)
        found = rows_of(nest)
        assert found is not None
        self.rows, self.functions = found, DeviceFunctions()
        self.scores = self._scores()
        self.weights = self.numbers[2][0]
        _demand(min(self.scores, self.weights) >= self.given and self._is_handed_on(one, two))
        tf32 = config.read().tf32
        tensors = {tensor_type(form, tf32=tf32) for form in (self.one, self.two)}
        tensor = tensors.pop() if len(tensors) == 1 else ""
        self._tiles(rows, tensor, wide)

    def _scores(self) -> int:
        """The number of the array of scores."""
        if not isinstance(self.first, Fused) or self.first.epilogue is None:
            return self.numbers[0][2]
        stores = [stmt for stmt in perfect_nest(self.first.epilogue.body)[1] if isinstance(stmt, Store)]
        _demand(len(stores) == 1)
        return self.numbers[0][2 + self.first.epilogue.operands.index(stores[0].buffer)]

    def _is_handed_on(self, one: Product, two: Product) -> bool:
        """Whether the second product reads all weights of a row, and the rows of the first in its order."""
        form, keys = self.two, self.one.n
        batch = () if form.matrices == 1 else (Digit(form.matrices, form.m * keys),)
        alike = self.one.matrices == form.matrices and self.one.m == form.m and form.k == keys
        plain = form.a.batch == batch and form.a.offset == 0 and two.a.row == keys and two.a.column == 1
        stored = [e for e in self.nest.expressions if e.op == "load" and self._number(e.attr) >= self.given]
        places = [(e.args[0], e) for e in stored] + [(self.rows.weight.index, self.rows.weight.value)]
        variables = (self.rows.most.vars[0], self.rows.key, self.rows.total.vars[0])
        regular = all(affine_terms(at) in [({self.rows.row: keys, var: 1}, 0) for var in variables] for at, _ in places)
        one_each = all(stmt.index is self.rows.row for stmt in self.rows.stores)
        return alike and plain and regular and one_each and self._number(self.rows.weight.buffer) == self.weights

    def _number(self, buffer: Buffer) -> int:
        """The number of a buffer of the loop nest over rows among the operands of the chain."""
        return self.numbers[1][[x.name for x in self.nest.operands].index(buffer.name)]

    def _tiles(self, rows: int, tensor: str, wide: bool) -> None:
        (q_stored, k_stored), (w_stored, v_stored) = self.one.stored, self.two.stored
        float32 = dtypes.float32
        _demand(bool(tensor) or (w_stored is float32 and self.rows.weight.value.dtype is float32))
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
        _demand(whole + 4 * rows + 8 * rows * len(self.rows.stores) <= SHARED_BYTES)
        self.shared_bytes = whole

    # ---- functions of elements

    def _function(
        self, name: str, kind: str, given: Sequence[str], buffers: Sequence[Buffer], lines: Sequence[str]
    ) -> str:
        pointers = [f"{'const ' * (x.role == 'in')}{c_type(x.dtype)}* {x.name}" for x in buffers]
        head = f"static __device__ __forceinline__ {kind} {name}({', '.join([*given, *pointers])}) {{"
        return "\n".join([head, *lines, "}\n"])

    def _given(self, stage: int, skip: int = 0) -> str:
        """The arguments that are the buffers of a stage's loop nest."""
        return "".join(f", {self._pointer(n)}" for n in self.numbers[stage][skip:])

    def _pointer(self, number: int) -> str:
        return f"p{number}" if number < self.given else "0"

    def _elements(self) -> tuple[list[str], dict[str, str]]:
        """(functions of elements, how each is called)."""
        texts, calls = [], {}
        places = ["long long row", "long long column"]
        score: np.dtype = dtypes.float32
        if isinstance(self.first, Fused) and self.first.epilogue is not None:
            nest = self.first.epilogue
            (store,) = perfect_nest(nest.body)[1]
            assert isinstance(store, Store)
            score = store.value.dtype
            lines, found = KernelWriter(nest, self.functions).value(self._matrix_names(nest, "value"), store.value)
            given = ["float value", *places]
            texts.append(self._function("score", c_type(score), given, nest.operands, [*lines, f"  return {found};"]))
            calls["score"] = f"score(scores_tile[line][at], at_row, key + at{self._given(0, 2)})"
        else:
            calls["score"] = "scores_tile[line][at]"
        rows, writer = self.rows, KernelWriter(self.nest, self.functions)

        def name_of(array: int, text: str, var: Expr, within: Expr) -> dict[Expr, C]:
            names = {rows.row: C("row", dtypes.int64), var: C("column", dtypes.int64)}
            read = [e for e in expressions((Store(rows.weight.buffer, rows.row, within),)) if e.op == "load"]
            return names | {e: C(text, e.dtype) for e in read if self._number(e.attr) == array}

        kind = f"{c_type(score)} score"
        for name, given, names, value in (
            ("ranked", [kind], name_of(self.scores, "score", rows.most.vars[0], rows.most.value), rows.most.value),
            ("weight", [kind, "float most"], name_of(self.scores, "score", rows.key, rows.weight.value)
             | {rows.most.result: C("most", dtypes.float32)}, rows.weight.value),
            ("counted", [f"{c_type(rows.weight.value.dtype)} weight"],
             name_of(self.weights, "weight", rows.total.vars[0], rows.total.value), rows.total.value),
        ):  # fmt: skip
            lines, found = writer.value(names, value)
            text = self._function(
                name, c_type(value.dtype), [*given, *places], self.nest.operands, [*lines, f"  return {found};"]
            )
            texts.append(text)
        end = f"at_row, key + at{self._given(1)})"
        calls["ranked"] = f"ranked({calls['score']}, {end}"
        calls["weight"] = f"weight({calls['score']}, most, {end}"
        calls["counted"] = f"counted(w, {end}"
        return texts, calls

    def _matrix_names(self, nest: Kernel, text: str) -> dict[Expr, C]:
        """Names of row, column and the element at hand in a loop nest over a matrix."""
        loops, body = perfect_nest(nest.body)
        found = {loop.var: C(name, dtypes.int64) for loop, name in zip(loops, ("row", "column"), strict=False)}
        first = nest.operands[0].name
        return found | {e: C(text, e.dtype) for e in expressions(body) if e.op == "load" and e.attr.name == first}

    def _ends(self) -> tuple[list[str], list[str], str, str]:
        """(functions of rows and results, declarations of what is kept for a row, the calls of each)."""
        rows, kept = self.rows, {}
        names = {rows.row: C("row", dtypes.int64), rows.most.result: C("most", dtypes.float32)}
        names[rows.total.result] = C("total", dtypes.float32)
        writer, lines, given = KernelWriter(self.nest, self.functions), [], ["float most", "float total"]
        for k, store in enumerate(rows.stores):
            more, value = writer.value(names, store.value)
            number, kind = self._number(store.buffer), c_type(store.value.dtype)
            if number >= self.given:
                kept[number] = f"{kind} kept{k}"
                given.append(f"{kind}* kept{k}")
            to = f"*kept{k}" if number >= self.given else f"{store.buffer.name}[row]"
            lines += ["  {", *(f"  {line}" for line in more), f"    {to} = {value};", "  }"]
        texts = [self._function("end_row", "void", [*given, "long long row"], self.nest.operands, lines)]
        addresses = "".join(f", &{text.split()[1]}[line]" for text in kept.values())
        row_call = f"end_row(most, total{addresses}, at_row{self._given(1)});"
        nest = self.last.epilogue if isinstance(self.last, Fused) else None
        given = ["float value", "long long row", "long long column", *kept.values()]
        if nest is None:
            number = self.numbers[2][2]
            text = f"  p{number}[row * {self.two.n} + column] = value;"
            texts.append(self._function("finish", "void", [*given, f"float* p{number}"], (), [text]))
            arguments = f", p{number}"
        else:
            within = self._matrix_names(nest, "value")
            row = next(expr for expr, c in within.items() if c.text == "row")
            for e in nest.expressions:
                if e.op == "load" and e not in within:
                    number = self.numbers[2][2 + [x.name for x in nest.operands].index(e.attr.name)]
                    if number >= self.given:
                        _demand(number in kept and e.args == (row,))
                        within[e] = C(kept[number].split()[1], e.dtype)
            body = perfect_nest(nest.body)[1]
            lines = KernelWriter(nest, self.functions).inside(within, body)
            call = self.last.call if isinstance(self.last, Fused) else None
            first = nest.operands[0]
            writes = [x for x in body if isinstance(x, Store)]
            out = [self.numbers[2][2 + nest.operands.index(x.buffer)] for x in writes]
            assert isinstance(call, Product)
            if not call.passing and first.name not in [x.buffer.name for x in writes]:
                out.append(self.numbers[2][2])
                lines = [f"  {first.name}[row * {self.two.n} + column] = value;", *lines]
            _demand(max(out) < self.given)
            result = first if call.passing else replace(first, role="inout")
            texts.append(self._function("finish", "void", given, (result, *nest.operands[1:]), lines))
            arguments = self._given(2, 2)
        values = "".join(f", {text.split()[1]}[line]" for text in kept.values())
        finish = f"finish(sums_tile[line][at], matrix * {self.two.m} + i, j{values}{arguments});"
        declared = [f"__shared__ {text}[{self.tile.rows}];" for text in kept.values()]
        return texts, declared, row_call, finish

    # ---- the kernel

    def source(self) -> CallSource:
        tile, threads = self.tile, self.tile.threads
        elements, calls = self._elements()
        ends, declared, end_row, finish = self._ends()
        sides = (self.q, self.k, self.v)
        copies = {f"copy_{side.width * side.stored.itemsize}" for side in sides if side.is_asynchronous}
        multiplies = dict.fromkeys([*self.to_scores.functions, *self.to_result.functions])
        loads = [load_function(side, threads) for side in sides]
        writer = KernelWriter(self.nest, self.functions)
        c = {name: C(name, dtypes.float32) for name in ("most", "total", "value", "before")}
        grown = writer.s.mul(writer.s.sub(c["before"], c["most"]), writer.s.const(self.rows.rate, dtypes.float32))
        combined = {
            "most": str(writer.combined("max", c["most"], c["value"])),
            "total": str(writer.combined("add", c["total"], c["value"])),
            "before": str(writer.s.exp(grown)),
        }
        body = self._body(calls, end_row, finish, combined, bool(copies))
        texts = [COPY[name] for name in sorted(copies)] + [COMMIT, WAIT.format(0)] * bool(copies)
        texts += [*loads, *multiplies, self.functions.text(), *elements, *ends]
        buffers = self._buffers()
        parameters = [f"{'const ' * (x.role == 'in')}{c_type(x.dtype)}* {x.name}" for x in buffers]
        head = [
            f"// attention of {self.one.text} and {self.two.text}, {tile.rows} rows by {tile.columns} keys at a time",
            f'extern "C" __global__ void __launch_bounds__({threads}, 1)',
            f"{ENTRY}({', '.join([*parameters, 'long long lo', 'long long hi'])}) {{",
        ]
        lines = [*head, *(f"  {line}" for line in [*declared, *body]), "}\n"]
        text = "\n".join(part for part in [*texts, "\n".join(lines)] if part)
        alignment = max(side.width * side.stored.itemsize for side in sides)
        total_blocks = self.one.matrices * -(-self.one.m // tile.rows)
        return CallSource(text, False, threads, 1, alignment, tuple(buffers), total_blocks)

    def _buffers(self) -> list[Buffer]:
        """The operands that the launch is given, in order."""
        found: dict[int, Buffer] = {}

        def add(number: int, dtype: np.dtype, size: int, *, out: bool) -> None:
            if number < self.given:
                before = found.get(number)
                role: Role = "inout" if out or (before is not None and before.role != "in") else "in"
                _demand(before is None or before.dtype is dtype)
                found[number] = Buffer(f"p{number}", dtype, max(size, 0 if before is None else int(before.size)), role)

        add(self.numbers[0][0], self.one.stored[0], self.one.sizes[0], out=False)
        add(self.numbers[0][1], self.one.stored[1], self.one.sizes[1], out=False)
        add(self.numbers[2][1], self.two.stored[1], self.two.sizes[1], out=False)
        nests = [(0, 2, self.first.nest), (1, 0, self.nest), (2, 2, self.last.nest)]
        for stage, skip, nest in nests:
            for number, x in zip(self.numbers[stage][skip:], () if nest is None else nest.operands, strict=False):
                result = nest is not None and nest is self.last.nest and x is nest.operands[0]
                add(number, x.dtype, int(x.size), out=result or x.role != "in")
        if self.last.nest is None:
            add(self.numbers[2][2], dtypes.float32, self.two.result[0] * self.two.result[1], out=True)
        return [
            found.get(number, Buffer(f"p{number}", dtypes.uint8, 1, "in")) for number in range(self.given)
        ]  # one that is not found is the place of a result that has none

    def _body(
        self, calls: Mapping[str, str], end_row: str, finish: str, combined: Mapping[str, str], copies: bool
    ) -> list[str]:
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
        inside = f"key + at < {one.n}"
        place = "w_tile[at][line]" if self.w.by_depth else "w_tile[line][at]"
        kind = c_type(self.rows.weight.value.dtype)

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
            f"const bool exists = row + line < {one.m};",
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

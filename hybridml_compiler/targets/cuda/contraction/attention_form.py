"""Attention read off a chain of launches: its products, its rows, and the functions of their elements as CUDA C."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .... import config, dtypes
from ....loops.index import affine_terms
from ....loops.ir import Buffer, Expr, Kernel, KernelSpec, Role, Store, expressions, perfect_nest
from ....record import record, replace
from ....schedule.fusion.epilogue import Fused
from ....schedule.fusion.tile_fusion import TileFusion
from ....schedule.kernels.gemm import Product
from ..emit.functions import DeviceFunctions
from ..emit.kernel import KernelWriter
from ..emit.scalars import C
from ..emit.types import c_type
from .contraction import Digit, contraction_of
from .softmax_rows import rows_of
from .tiles import MOST_FEATURES, tensor_type

LARGER = """\
static __device__ __forceinline__ float larger(float x, float y) {
  float z;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
"""
PLACES = ("long long row", "long long column")


def is_attention(specs: Sequence[KernelSpec]) -> bool:
    """Whether launches are a product, rows of a softmax and a product: `emit_attention` may write them as one."""
    first, rows, last = specs if len(specs) == 3 else (None, None, None)
    if not isinstance(rows, Kernel) or rows.checked or rows_of(rows) is None:
        return False
    calls = [spec.call if isinstance(spec, Fused) else spec for spec in (first, last)]
    products = [call for call in calls if isinstance(call, Product) and call.dtype is dtypes.float32]
    return len(products) == 2 and products[0].k <= MOST_FEATURES and products[1].n <= MOST_FEATURES


class Unfit(Exception):
    """The launches are no attention that a kernel is written for."""


def demand(holds: bool) -> None:
    """Raises Unfit unless it holds."""
    if not holds:
        raise Unfit


@record
class Ends:
    """The expression that a row's sums become.

    `end_row(most, total, places of what is kept, leads, row)` stores what is for each row, where the thread leads those
    of the row; `finish(value, row, column, what is kept)` stores an element of the result.
    """

    texts: Sequence[str]
    kept: Sequence[str]  # declarations of what is kept of a row
    row_buffers: str  # the last arguments of either
    buffers: str

    @property
    def names(self) -> list[str]:
        """Names of what is kept of a row."""
        return [text.split()[1] for text in self.kept]


class Attention:
    """The part that writers of kernels share: they add tiles, and the kernel's own lines."""

    inverts = False  # whether results are multiplied by the inverse of what they are divided by, once for a row

    def __init__(self, chain: TileFusion) -> None:
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
        demand(min(self.scores, self.weights) >= self.given and self._is_handed_on(one, two))
        tf32 = config.field("tf32")
        tensors = {tensor_type(form, tf32=tf32) for form in (self.one, self.two)}
        self.tensor = tensors.pop() if len(tensors) == 1 else ""

    def _scores(self) -> int:
        """The number of the array of scores."""
        if not isinstance(self.first, Fused) or self.first.epilogue is None:
            return self.numbers[0][2]
        stores = [stmt for stmt in perfect_nest(self.first.epilogue.body)[1] if isinstance(stmt, Store)]
        demand(len(stores) == 1)
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

    @property
    def _score(self) -> Expr | None:
        """The value of a score, of an element of the product; None where it is that."""
        if not isinstance(self.first, Fused) or self.first.epilogue is None:
            return None
        (store,) = perfect_nest(self.first.epilogue.body)[1]
        assert isinstance(store, Store)
        return store.value

    def _score_function(self, score: Expr | None) -> list[str]:
        """`score(value, row, column)`, where there is more to it than the value."""
        if score is None or self.first.nest is None:
            return []
        nest, given = self.first.nest, ["float value", *PLACES]
        lines, found = KernelWriter(nest, self.functions).value(self._matrix_names(nest, "value"), score)
        return [self._function("score", c_type(score.dtype), given, nest.operands, [*lines, f"  return {found};"])]

    def _row_function(self, name: str, array: int, given: Sequence[tuple[str, str]], var: Expr, value: Expr) -> str:
        """A function `name(given, row, column)` of the loop nest over rows; the first that is given is an element of an
        array."""
        rows = self.rows
        names = {rows.row: C("row", dtypes.int64), var: C("column", dtypes.int64)}
        names[rows.most.result] = C("most", dtypes.float32)
        read = [e for e in expressions((Store(rows.weight.buffer, rows.row, value),)) if e.op == "load"]
        names |= {e: C(given[0][1], e.dtype) for e in read if self._number(e.attr) == array}
        lines, found = KernelWriter(self.nest, self.functions).value(names, value)
        places = [*map(" ".join, given), *PLACES]
        return self._function(name, c_type(value.dtype), places, self.nest.operands, [*lines, f"  return {found};"])

    def _ranked(self, value: Expr) -> str:
        """`ranked(score, row, column)`, of which a row's maximum is."""
        kind = c_type(dtypes.float32 if self._score is None else self._score.dtype)
        return self._row_function("ranked", self.scores, [(kind, "score")], self.rows.most.vars[0], value)

    def _matrix_names(self, nest: Kernel, text: str) -> dict[Expr, C]:
        """Names of row, column and the element at hand in a loop nest over a matrix."""
        loops, body = perfect_nest(nest.body)
        found = {loop.var: C(name, dtypes.int64) for loop, name in zip(loops, ("row", "column"), strict=False)}
        first = nest.operands[0].name
        return found | {e: C(text, e.dtype) for e in expressions(body) if e.op == "load" and e.attr.name == first}

    def _ends(self) -> Ends:
        """The functions of rows and results."""
        rows, kept = self.rows, {}
        names = {rows.row: C("row", dtypes.int64), rows.most.result: C("most", dtypes.float32)}
        names[rows.total.result] = C("total", dtypes.float32)
        writer, lines, given = KernelWriter(self.nest, self.functions), [], ["float most", "float total"]
        for k, store in enumerate(rows.stores):
            more, value = writer.value(names, store.value)
            number, kind = self._number(store.buffer), c_type(store.value.dtype)
            kept[number] = f"{kind} kept{k}"
            given.append(f"{kind}* kept{k}")
            more = [*more, f"  *kept{k} = {value};"]
            if number < self.given:
                more.append(f"  if (leads) {store.buffer.name}[row] = *kept{k};")
            lines += ["  {", *(f"  {line}" for line in more), "  }"]
        given += ["bool leads", "long long row"]
        texts = [self._function("end_row", "void", given, self.nest.operands, lines)]
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
                    demand(number < self.given or number in kept)
                    if number in kept:
                        demand(e.args == (row,))
                        within[e] = C(kept[number].split()[1], e.dtype)
            body = perfect_nest(nest.body)[1]
            for e in nest.expressions if self.inverts else ():
                if e.op == "div" and e.dtype is dtypes.float32 and set(e.args) <= within.keys():
                    value, divisor = (within[arg] for arg in e.args)
                    within[e] = C(f"({value} * (1.0f / {divisor}))", e.dtype)
            lines = KernelWriter(nest, self.functions).inside(within, body)
            call = self.last.call if isinstance(self.last, Fused) else None
            first = nest.operands[0]
            writes = [x for x in body if isinstance(x, Store)]
            out = [self.numbers[2][2 + nest.operands.index(x.buffer)] for x in writes]
            assert isinstance(call, Product)
            if not call.passing and first.name not in [x.buffer.name for x in writes]:
                out.append(self.numbers[2][2])
                lines = [f"  {first.name}[row * {self.two.n} + column] = value;", *lines]
            demand(max(out) < self.given)
            result = first if call.passing else replace(first, role="inout")
            texts.append(self._function("finish", "void", given, (result, *nest.operands[1:]), lines))
            arguments = self._given(2, 2)
        return Ends(texts, [*kept.values()], self._given(1), arguments)

    def _buffers(self) -> list[Buffer]:
        """The operands that the launch is given, in order."""
        found: dict[int, Buffer] = {}

        def add(number: int, dtype: np.dtype, size: int, *, out: bool) -> None:
            if number < self.given:
                before = found.get(number)
                role: Role = "inout" if out or (before is not None and before.role != "in") else "in"
                demand(before is None or before.dtype is dtype)
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

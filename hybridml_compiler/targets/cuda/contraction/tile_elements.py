"""The elements of matrices that products make, as device functions, and the operands of the kernel around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from .... import dtypes
from ....loops.ir import Buffer, Expr, Role, expressions, perfect_nest
from ....once import lazy
from ..emit.functions import DeviceFunctions
from ..emit.kernel import ENTRY, KernelWriter
from ..emit.scalars import C
from ..emit.types import c_type
from .kernel import CallSource
from .tile_form import Form, Maker, Reader


class Elements:
    """The part that writers of kernels share: they add tiles, and the kernel's own lines."""

    def __init__(self, form: Form, functions: DeviceFunctions) -> None:
        self.form, self.functions = form, functions

    def _pointer(self, number: int) -> str:
        return f"p{number}" if number in self._buffers else "0"

    def _pointers(self, numbers: Sequence[int]) -> str:
        return "".join(f", {self._pointer(number)}" for number in numbers)

    def _row_function(self, k: int, maker: Maker) -> str:
        """`rows0(places of the values of a row, row, buffers)`."""
        nest = maker.nest
        if nest is None or not maker.of_rows:
            return ""
        given = [*(f"{c_type(e.dtype)}* row{n}" for n, e in enumerate(maker.of_rows)), "long long row"]
        given += [f"{'const ' * (x.role == 'in')}{c_type(x.dtype)}* {x.name}" for x in nest.operands]
        names = {perfect_nest(nest.body)[0][0].var: C("row", dtypes.int64)}
        lines = []
        for n, e in enumerate(maker.of_rows):
            more, value = KernelWriter(nest, self.functions).value(names, e)
            lines += ["  {", *(f"  {line}" for line in more), f"    *row{n} = {value};", "  }"]
        return "\n".join([f"static __device__ __forceinline__ void rows{k}({', '.join(given)}) {{", *lines, "}\n"])

    def _make_function(
        self, k: int, maker: Maker, masked: Expr | None = None, wide: Mapping[int, Expr] = MappingProxyType({})
    ) -> str:
        """`make0(value, values of its row, matrices that it reads, places of those that it makes, row, column,
        buffers)`; the value has been through the mask that is given, and some matrices' elements are not yet rounded.
        """
        nest = maker.nest
        given = ["float value", *(f"{c_type(e.dtype)} row{n}" for n, e in enumerate(maker.of_rows))]
        given += [f"{c_type(self.form.dtypes[number])} m{number}" for number in maker.reads]
        made = {n: wide[n].dtype if n in wide else self.form.dtypes[n] for n in maker.matrices}
        given += [f"{c_type(dtype)}* to{number}" for number, dtype in made.items()]
        given += ["long long row", "long long column"]
        names: dict[Expr, C] = {e: C(f"row{n}", e.dtype) for n, e in enumerate(maker.of_rows)}
        if nest is not None:
            given += [f"{'const ' * (x.role == 'in')}{c_type(x.dtype)}* {x.name}" for x in nest.operands]
            numbers = dict(zip((x.name for x in nest.operands), maker.operands[2:], strict=True))
            loops, body = perfect_nest(nest.body)
            names |= {x.var: C(name, dtypes.int64) for x, name in zip(loops, ("row", "column"), strict=True)}
            for e in expressions(body):
                if e.op == "load" and e.attr.name == nest.operands[0].name:
                    names[e] = C("value", e.dtype)
                elif e.op == "load" and numbers[e.attr.name] >= self.form.given:
                    names[e] = C(f"m{numbers[e.attr.name]}", e.dtype)
        if masked is not None:
            names[masked] = C("value", masked.dtype)
        lines = []
        for number, store in maker.matrices.items():
            if nest is None or store is None:
                lines.append(f"  *to{number} = value;")
                continue
            more, value = KernelWriter(nest, self.functions).value(names, wide.get(number, store.value))
            lines += ["  {", *(f"  {line}" for line in more), f"    *to{number} = {value};", "  }"]
        return "\n".join([f"static __device__ __forceinline__ void make{k}({', '.join(given)}) {{", *lines, "}\n"])

    @lazy
    def _buffers(self) -> dict[int, Buffer]:
        """The operands that the kernel reads or writes, by number."""
        found: dict[int, Buffer] = {}

        def add(number: int, dtype: np.dtype, size: int, *, out: bool) -> None:
            if number < self.form.given:
                before = found.get(number)
                role: Role = "inout" if out or (before is not None and before.role != "in") else "in"
                found[number] = Buffer(f"p{number}", dtype, max(size, 0 if before is None else int(before.size)), role)

        parts: list[Maker | Reader] = [*self.form.makers, *self.form.readers]
        for part in parts:
            for number, stored, size in zip(part.operands, part.form.stored, part.form.sizes, strict=False):
                add(number, stored, size, out=False)
            call = part.call if isinstance(part, Reader) else None
            if part.nest is None and call is not None:
                add(part.operands[2], call.dtype, call.result[0] * call.result[1], out=True)
            for k, (number, x) in enumerate(
                zip(part.operands[2:], part.nest.operands if part.nest else (), strict=False)
            ):
                if k or (call is not None and not call.passing):
                    add(number, x.dtype, int(x.size), out=x.role != "in" or not k)
        return found

    def kernel(
        self,
        texts: Sequence[str],
        size: str,
        body: Sequence[str],
        threads: int,
        blocks: int,
        alignment: int,
        total: int,
    ) -> CallSource:
        """The source of a kernel of these functions and lines, of which a multiprocessor shall have room for so many
        blocks."""
        form = self.form
        buffers = [self._buffers.get(k, Buffer(f"p{k}", dtypes.uint8, 1, "in")) for k in range(form.given)]
        parameters = [f"{'const ' * (x.role == 'in')}{c_type(x.dtype)}* {x.name}" for x in buffers]
        lines = [
            f"// {len(form.readers)} products of {len(form.dtypes)} matrices {form.rows}x{form.columns}, "
            f"made in tiles of {size}",
            f'extern "C" __global__ void __launch_bounds__({threads}, {blocks})',
            f"{ENTRY}({', '.join([*parameters, 'long long lo', 'long long hi'])}) {{",
            *(f"  {line}" for line in body),
            "}\n",
        ]
        text = "\n".join(part for part in [*texts, "\n".join(lines)] if part)
        return CallSource(text, False, threads, 1, alignment, tuple(buffers), total)

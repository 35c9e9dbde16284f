"""A kernel `void name(ptr buffers, i64 lo, i64 hi)` over units, the functions that it calls, and its epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from .....record import record
from .....sizes.dims import Size
from ...kernels.plan import Plan
from .. import ir
from ..kernel import KERNEL_TYPE
from ..sizes import Sizes
from ..types import PTR, VOID
from .loops import i64, repeat
from .vectors import Vectors

Range = tuple[Any, Any]
# For a function of loops around calls of micro-kernels: LLVM makes it in half the time, and it takes no longer to run
# ([Note: Compile time]).
AS_EMITTED = ("nounwind", "noinline", "optnone")


class _Call(Protocol):
    @property
    def dtype(self) -> np.dtype: ...
    @property
    def symbolic(self) -> bool: ...
    @property
    def symbols(self) -> Sequence[str]: ...


C = TypeVar("C", bound=_Call)
P = TypeVar("P", bound=Plan)


@record(frozen=False, eq=False)
class Emission(Generic[C, P]):
    """The emission of one kernel, of a call as it is planned. Its buffers are the operands, and the result or what an
    epilogue reads and writes, `count` of them; then the table of sizes, of a call with sizes that come with it.

    `symbols`: names of the functions of the plan's parts. `optimized`: whether the function has loops of its own,
    beside those around calls.
    """

    module: ir.Module
    name: str
    call: C
    plan: P
    epilogue: ir.Function | None = None
    symbols: Sequence[str] = ()
    count: int = 3
    optimized: bool = False

    def __post_init__(self) -> None:
        self.function = ir.Function(self.module, KERNEL_TYPE, self.name)
        self.function.attributes.update(AS_EMITTED[:1] if self.optimized else AS_EMITTED)
        self.table, self.lo, self.hi = self.function.args
        self.b = self.function.build()
        self.v = Vectors(self.b, self.call.dtype, self.plan.lanes)
        self.sizes = Sizes(self.b, self.buffer(self.count), self.call.symbols) if self.call.symbolic else None

    def size(self, size: Size) -> Any:
        """A size as a value; one that comes with the call is computed where it is first asked for, before all loops."""
        return i64(size) if self.sizes is None else self.sizes.value(size)

    def emit(self) -> ir.Function:
        raise NotImplementedError

    def buffer(self, number: int) -> Any:
        return self.b.operand(self.table, number)

    def buffers(self, count: int) -> list[Any]:
        return [self.buffer(k) for k in range(count)]

    def memory(self, size: int) -> Any:
        """Memory of so many elements until the function returns."""
        return self.b.memory(self.v.scalar_type, size, ir.LINE)

    def helper(self, name: str, arguments: Sequence[Any]) -> tuple[ir.Function, ir.IRBuilder, Vectors]:
        """A function of this kernel, with its builder."""
        function = internal(self.module, f"{self.name}_{name}", arguments)
        b = function.build()
        return function, b, Vectors(b, self.v.dtype, self.v.lanes)

    def own_table(self) -> None:
        """From now on, the table is a copy, of this call, in which buffers may be replaced."""
        count = self.count + self.call.symbolic
        pointers, self.table = self.buffers(count), self.b.memory(PTR, count)
        for k, pointer in enumerate(pointers):
            self.replace_buffer(k, pointer)

    def replace_buffer(self, number: int, pointer: Any) -> None:
        self.b.set_operand(self.table, number, pointer, align=8)

    def finish(self, rows: Range, columns: Range, first: int = 2) -> None:
        """Calls the epilogue over a part of the result that is final. Its buffers begin with number `first`."""
        if self.epilogue is not None:
            buffers = self.b.gep(self.table, [i64(first)], source_etype=PTR)
            self.b.call(self.epilogue, [buffers, *rows, *columns])

    def over_units(self, unit: Callable[[Any], None], step: int = 1) -> ir.Function:
        """Ends the function: `unit(index)` for all units of the call."""
        repeat(self.b, self.lo, self.hi, step, unit)
        self.b.ret_void()
        return self.function


def internal(module: ir.Module, name: str, arguments: Sequence[Any]) -> ir.Function:
    """A function that others of its module call, and that is not put in the place of a call."""
    function = ir.Function(module, ir.FunctionType(VOID, list(arguments)), name)
    function.linkage = "internal"
    for attribute in AS_EMITTED[:2]:
        function.attributes.add(attribute)
    return function

"""Launches as data of the step: rows of a table, which a loop goes through.

As code, an operand's pointer is three instructions and a launch two calls: a step of 363 launches took the emitter
20 ms and LLVM 31. With operands as data it was 8 and 19, with launches 4 and 6. A step of few launches has
all of them as code, which costs nothing to speak of there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .... import dtypes
from ....schedule.launch import BufferRef
from . import ir
from .callee import Callee
from .kernel import KERNEL_TYPE
from .types import I8, I64, PTR, VOID, Literal, constant

MANY = 48  # launches from which on it is worth it
TOGETHER = 4  # operands that a turn of the loop writes, which waits for the one before
_FILL, _RUN = "hml_fill_operands", "hml_run_launches"
_HEAD = 4  # words of a row before its places


class OperandTables:
    """The rows of one step, launch after launch: [iterations, granule, ranges per thread or 0 for one thread, operands]
    and the place of each operand, as the number of a pointer in the step's table and an offset.

    `first`: of each base, the number of its first pointer there.
    """

    def __init__(self, b: ir.IRBuilder, table: Any, operands: Any, first: Mapping[str, int]) -> None:
        self.b, self.table, self.operands, self.first = b, table, operands, first
        self.numbers: list[int] = []
        self.kernels: list[str] = []
        self.begun = 0, 0  # the first row that is not run yet: its kernel, and where it begins
        self.places = ir.GlobalVariable(b.module, I64, f"{b.function.name}.places")
        self.functions = ir.GlobalVariable(b.module, PTR, f"{b.function.name}.kernels")

    def launch(self, function: Any, callee: Callee, places: Sequence[BufferRef]) -> bool:
        """Adds a row; False, and nothing, where one of the operands is in no table."""
        if not self._has(places):
            return False
        ranges = callee.ranges_a_thread if callee.parallel else 0
        self.numbers += callee.total, callee.granule, ranges, -(-len(places) // TOGETHER) * TOGETHER
        self._add(places)
        self.kernels.append(f"ptr {function.text}")
        return True

    def run(self) -> None:
        """Emits what runs the rows that have been added since."""
        kernel, number = self.begun
        if kernel < len(self.kernels):
            functions = self.b.gep(self.functions, [_i64(kernel)], source_etype=PTR)
            rows = self.b.gep(self.places, [_i64(number)], source_etype=I64)
            given = [self.operands, self.table, functions, rows, _i64(len(self.kernels) - kernel)]
            self.b.call(self._run(), given)
        self.begun = len(self.kernels), len(self.numbers)

    def fill(self, places: Sequence[BufferRef]) -> bool:
        """Emits what writes the pointers of a launch to the table of its operands; False, and nothing, where one of
        them is in no table."""
        if not self._has(places):
            return False
        start = self.b.gep(self.places, [_i64(len(self.numbers))], source_etype=I64)
        self.b.call(self._fill(), [self.operands, self.table, start, _i64(len(places))])
        self._add(places)
        self.begun = len(self.kernels), len(self.numbers)
        return True

    def end(self) -> None:
        """Gives the module the tables."""
        _define(self.places, I64, [f"i64 {n}" for n in self.numbers])
        _define(self.functions, PTR, self.kernels)

    def _has(self, places: Sequence[BufferRef]) -> bool:
        return all([place.base in self.first for place in places])  # a constant is a symbol

    def _add(self, places: Sequence[BufferRef]) -> None:
        for place in places:
            self.numbers += self.first[place.base] + place.number, place.offset
        self.numbers += [0] * (2 * (-len(places) % TOGETHER))

    def _run(self) -> Any:
        """`void run(ptr operands, ptr table, ptr kernels, ptr row, i64 launches)`."""
        module = self.b.module
        found = module.globals.get(_RUN)
        if found is not None:
            return found
        made = ir.Function(module, ir.FunctionType(VOID, [PTR, PTR, PTR, PTR, I64]), _RUN)
        made.linkage = "internal"
        b = made.build()
        operands, table, kernels, rows, launches = made.args
        entry, body, after = b.block, b.append_basic_block("launch"), b.append_basic_block("after")
        b.branch(body)
        b.position_at_end(body)
        number, row = b.phi(I64), b.phi(PTR)
        number.add_incoming(_i64(0), entry)
        row.add_incoming(rows, entry)
        total, granule, ranges, count = (b.load(b.gep(row, [_i64(k)], source_etype=I64), typ=I64) for k in range(_HEAD))
        places = b.gep(row, [_i64(_HEAD)], source_etype=I64)
        b.call(self._fill(), [operands, table, places, count])
        kernel: Any = KernelAt(b.load(b.gep(kernels, [number], source_etype=PTR), typ=PTR))
        with b.if_else(b.icmp_signed("==", ranges, _i64(0))) as (alone, shared):
            with alone:
                b.call(kernel, [operands, _i64(0), total])
            with shared:
                in_parallel(b, kernel, [operands, total, granule, ranges])
        following = b.add(number, _i64(1))
        number.add_incoming(following, b.block)
        row.add_incoming(b.gep(places, [b.add(count, count)], source_etype=I64), b.block)
        b.cbranch(b.icmp_signed("<", following, launches), body, after)
        b.position_at_end(after)
        b.ret_void()
        return made

    def _fill(self) -> Any:
        """`void fill(ptr operands, ptr table, ptr places, i64 count)`."""
        module = self.b.module
        found = module.globals.get(_FILL)
        if found is not None:
            return found
        made = ir.Function(module, ir.FunctionType(VOID, [PTR, PTR, PTR, I64]), _FILL)
        made.linkage = "internal"
        b = made.build()
        operands, table, places, count = made.args
        entry, body, after = b.block, b.append_basic_block("place"), b.append_basic_block("after")
        b.branch(body)
        b.position_at_end(body)
        number = b.phi(I64)
        number.add_incoming(_i64(0), entry)
        place = b.gep(places, [b.add(number, number)], source_etype=I64)
        operand = b.gep(operands, [number], source_etype=PTR)
        for k in range(TOGETHER):
            base, offset = (b.load(b.gep(place, [_i64(2 * k + n)], source_etype=I64), typ=I64) for n in range(2))
            start = b.load(b.gep(table, [base], source_etype=PTR), typ=PTR)
            b.store(b.gep(start, [offset], source_etype=I8), b.gep(operand, [_i64(k)], source_etype=PTR))
        following = b.add(number, _i64(TOGETHER))
        number.add_incoming(following, body)
        b.cbranch(b.icmp_signed("<", following, count), body, after)
        b.position_at_end(after)
        b.ret_void()
        return made


class KernelAt(ir.Value):
    """A kernel by its address."""

    __slots__ = ("ftype",)

    def __init__(self, address: ir.Value) -> None:
        super().__init__(address.type, address.text)
        self.ftype = KERNEL_TYPE


def in_parallel(b: ir.IRBuilder, kernel: Any, job: Sequence[Any], *, stops: bool = False) -> None:
    """Emits a launch by threads. `job`: operands, iterations, granule, ranges per thread. `stops`: it may end early."""
    name, words = ("hml_parallel_stops", 4) if stops else ("hml_parallel_chunks", 3)
    run = b.module.function(name, ir.FunctionType(VOID, [PTR, PTR, PTR, *[I64] * words]))
    b.call(run, [b.module.variable("hml_pool", I8), kernel, *job, *[_i64(1)] * stops])


def _define(variable: ir.GlobalVariable, kind: ir.Type, values: Sequence[str]) -> None:
    variable.kind = ir.ArrayType(kind, len(values))
    variable.linkage, variable.global_constant, variable.align = "internal", True, 64
    variable.initializer = Literal(variable.kind, f"[{', '.join(values)}]")


def _i64(value: int) -> Any:
    return constant(value, dtypes.int64)

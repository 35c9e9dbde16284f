"""Operands of launches as data of the step: where they are, in a table that a loop reads.

As code, a pointer is three instructions: a step of 363 launches took the emitter 20 ms and LLVM 31, with a table 8 and
19. A step of few launches has them as code, which costs nothing to speak of there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .... import dtypes
from ....schedule.launch import BufferRef
from . import ir
from .types import I8, I64, PTR, VOID, Literal, constant

MANY = 48  # launches from which on it is worth it
TOGETHER = 4  # operands that a turn of the loop writes, which waits for the one before
_FILL = "hml_fill_operands"


class OperandTables:
    """The places of one step, launch after launch, each as the number of a pointer in the step's table and an offset.

    `first`: of each base, the number of its first pointer there.
    """

    def __init__(self, b: ir.IRBuilder, table: Any, operands: Any, first: Mapping[str, int]) -> None:
        self.b, self.table, self.operands, self.first = b, table, operands, first
        self.numbers: list[int] = []
        self.places = ir.GlobalVariable(b.module, I64, f"{b.function.name}.places")

    def fill(self, places: Sequence[BufferRef]) -> bool:
        """Emits what writes the pointers of a launch to the table of its operands; False, and nothing, where one of
        them is in no table."""
        if not all([place.base in self.first for place in places]):  # a constant is a symbol
            return False
        start = self.b.gep(self.places, [_i64(len(self.numbers))], source_etype=I64)
        self.b.call(self._function(), [self.operands, self.table, start, _i64(len(places))])
        for place in places:
            self.numbers += self.first[place.base] + place.number, place.offset
        self.numbers += [0] * (2 * (-len(places) % TOGETHER))
        return True

    def end(self) -> None:
        """Gives the module the places."""
        variable = self.places
        variable.kind = ir.ArrayType(I64, len(self.numbers))
        variable.linkage, variable.global_constant, variable.align = "internal", True, 64
        variable.initializer = Literal(variable.kind, f"[{', '.join([f'i64 {n}' for n in self.numbers])}]")

    def _function(self) -> Any:
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


def _i64(value: int) -> Any:
    return constant(value, dtypes.int64)

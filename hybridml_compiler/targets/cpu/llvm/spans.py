"""Readings of the clock in a step, for a profile; its kernels are those of the ordinary step, to the last bit.

Every launch writes a record to the memory behind `hml_spans` (see runtime/spans.py); one that threads share writes one
more for each range that a thread runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..runtime.spans import CAPACITY, CLOCK, COUNT, FIELDS, HEADER, MEMORY, NOW, THREAD
from . import ir
from .ir import i64
from .kernel import KERNEL_TYPE
from .types import I8, I32, I64, PTR, VOID

_SECOND = 1_000_000_000


class Spans:
    """Functions of a module that read the clock and write records."""

    def __init__(self, module: ir.Module) -> None:
        self.module, self.memory = module, ir.GlobalVariable(module, I8, MEMORY)
        self.now = self._emit_now()
        self.write = self._emit_write()

    @contextmanager
    def span(self, b: ir.IRBuilder, number: int) -> Iterator[None]:
        """Context that records the time of the code emitted inside."""
        start = b.call(self.now, [])
        yield
        b.call(self.write, [i64(number), start])

    def of_parts(self, function: Any, number: int) -> Any:
        """The kernel with a record of its own each time that a thread calls it; parts have numbers below zero."""
        part = ir.Function(self.module, KERNEL_TYPE, f"hml_part_{number}")
        part.linkage = "internal"
        b = part.build()
        with self.span(b, ~number):
            b.call(function, list(part.args))
        b.ret_void()
        return part

    def _emit_now(self) -> Any:
        """`i64 now()`: nanoseconds of the clock that Python's `perf_counter_ns` reads."""
        read = ir.Function(self.module, ir.FunctionType(I32, [I32, PTR]), NOW)
        now = ir.Function(self.module, ir.FunctionType(I64, []), "hml_now")
        now.linkage = "internal"
        b = now.build()
        time = b.memory(I64, 2)
        b.call(read, [ir.Constant(I32, CLOCK), time])
        seconds = b.load(time, typ=I64)
        rest = b.load(b.gep(time, [i64(1)], source_etype=I64), typ=I64)
        b.ret(b.add(b.mul(seconds, i64(_SECOND)), rest))
        return now

    def _emit_write(self) -> Any:
        """`void write(i64 number, i64 start)`: a record that ends now, if there is memory for it."""
        this = ir.Function(self.module, ir.FunctionType(I64, []), THREAD)
        write = ir.Function(self.module, ir.FunctionType(VOID, [I64, I64]), "hml_write_span")
        write.linkage = "internal"
        number, start = write.args
        b = write.build()
        end = b.call(self.now, [])
        count = b.gep(self.memory, [i64(COUNT)], source_etype=I64)
        at = b.append(f"atomicrmw add ptr {count.text}, i64 1 monotonic", I64)
        with b.if_then(b.icmp_signed("<", at, i64(CAPACITY))):
            first = b.add(b.mul(at, i64(FIELDS)), i64(HEADER))
            for k, value in enumerate((number, b.call(this, []), start, end)):
                b.store(value, b.gep(self.memory, [b.add(first, i64(k))], source_etype=I64))
        b.ret_void()
        return write

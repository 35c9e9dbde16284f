"""Stores that go past the caches, for results too large to be found there by their readers.

    store <16 x float> %v, ptr %p  ->  if %p is on a cache line: store <16 x float> %v, ptr %p, align 64, !nontemporal

An ordinary store reads the line that it writes into, so a result moves twice; one past the caches writes whole lines
only. Lines written in pieces gain nothing, so stores that are not on a line stay ordinary, and large results are put on
one by targets/cpu/runtime/allocation.py ([Note: Nontemporal stores]).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .....loops.ir import Buffer
from .....schedule import cost
from .....sizes.dims import is_dim
from ...spec import CpuSpec
from .. import ir
from ..types import I64, VOID

LINE = 64


def streamed(buffer: Buffer, cpu: CpuSpec) -> bool:
    """Whether this may be a result that the caches cannot hold. On x86 only, which has a fence for such stores."""
    size = buffer.nbytes
    large = is_dim(size) or size >= cost.STREAM_BYTES
    return buffer.role == "out" and large and cpu.architecture == "x86_64"


def beside(b: ir.IRBuilder, nbytes: Any) -> Any:
    """Bits that are zero in addresses in a result of so many bytes which are stored to past the caches."""
    large = b.icmp_signed(">=", nbytes, ir.Constant(I64, cost.STREAM_BYTES))
    return b.select(large, ir.Constant(I64, LINE - 1), ir.Constant(I64, -1))


def stream(b: ir.IRBuilder, data: Any, pointer: Any, bits: Any, full: Any, otherwise: Callable[[], None]) -> None:
    """Whole lines past the caches if the address has none of the bits, and if all lanes are wanted (None: they are)."""
    past = b.icmp_signed("==", b.and_(b.ptrtoint(pointer, I64), bits), ir.Constant(I64, 0))
    with b.if_else(past if full is None else b.and_(past, full)) as (line, other):
        with line:
            b.store(data, pointer, align=LINE, nontemporal=True)
        with other:
            otherwise()


def fence(b: ir.IRBuilder) -> None:
    """A fence: nobody sees later stores before those stores."""
    b.intrinsic("x86.sse.sfence", VOID, [])

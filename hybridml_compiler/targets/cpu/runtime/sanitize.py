"""Functions that code calls to check its accesses (`HYBRIDML_SANITIZE`), and the error that a violation becomes.

Bounds are {first byte, byte behind the last, text}. The first violation of the process is written down, whichever
thread it is in, until a step sees it; an access that violates bounds is made to memory that is nobody's, or left out.
"""

from __future__ import annotations

import ctypes
from typing import NoReturn

from hybridml_compiler.errors import CompileError
from hybridml_compiler.once import once
from hybridml_compiler.targets.cpu.runtime import jit
from hybridml_compiler.targets.cpu.runtime.linking import loader

INSIDE, WITHIN, MASKED, LANES = "hml_inside", "hml_within", "hml_within_masked", "hml_within_lanes"
NARROW, VIOLATED = "hml_narrow", "hml_violated"
SYMBOLS = (INSIDE, WITHIN, MASKED, LANES, NARROW, VIOLATED)
LARGEST = 1 << 12  # bytes of an access
_RECORD, _NOWHERE = "hml_violation", "hml_nowhere"
# Words of the record: 0 for none, 1 while it is written, 2; texts of kernel and buffer; offset, size, bytes wanted.
_STATE, _KERNEL, _BUFFER, _OFFSET, _SIZE, _WANTED = range(6)

TEXT = f"""
@{_RECORD} = external global i64
@{_NOWHERE} = external global i8
declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.ctlz.i64(i64, i1)

; Are so many bytes inside of the bounds? None are, and there may be no bounds. If not, that is written down.
define i1 @{WITHIN}(ptr %p, ptr %bounds, i64 %wanted, ptr %kernel) {{
  %unknown = icmp eq ptr %bounds, null
  %none = icmp sle i64 %wanted, 0
  %free = or i1 %unknown, %none
  br i1 %free, label %fine, label %look
look:
  %low = load i64, ptr %bounds
  %high.p = getelementptr i64, ptr %bounds, i64 1
  %high = load i64, ptr %high.p
  %first = ptrtoint ptr %p to i64
  %behind = add i64 %first, %wanted
  %above = icmp uge i64 %first, %low
  %below = icmp ule i64 %behind, %high
  %well = and i1 %above, %below
  br i1 %well, label %fine, label %bad
bad:
  %exchange = cmpxchg ptr @{_RECORD}, i64 0, i64 1 acquire monotonic, align 8
  %won = extractvalue {{ i64, i1 }} %exchange, 1
  br i1 %won, label %write, label %done
write:
  %text.p = getelementptr i64, ptr %bounds, i64 2
  %text = load i64, ptr %text.p
  %kernel.i = ptrtoint ptr %kernel to i64
  %offset = sub i64 %first, %low
  %size = sub i64 %high, %low
  %w1 = getelementptr i64, ptr @{_RECORD}, i64 {_KERNEL}
  %w2 = getelementptr i64, ptr @{_RECORD}, i64 {_BUFFER}
  %w3 = getelementptr i64, ptr @{_RECORD}, i64 {_OFFSET}
  %w4 = getelementptr i64, ptr @{_RECORD}, i64 {_SIZE}
  %w5 = getelementptr i64, ptr @{_RECORD}, i64 {_WANTED}
  store i64 %kernel.i, ptr %w1
  store i64 %text, ptr %w2
  store i64 %offset, ptr %w3
  store i64 %size, ptr %w4
  store i64 %wanted, ptr %w5
  store atomic i64 2, ptr @{_RECORD} release, align 8
  br label %done
done:
  ret i1 false
fine:
  ret i1 true
}}

; The pointer, or one to memory that is nobody's.
define ptr @{INSIDE}(ptr %p, ptr %bounds, i64 %wanted, ptr %kernel) {{
  %well = call i1 @{WITHIN}(ptr %p, ptr %bounds, i64 %wanted, ptr %kernel)
  %chosen = select i1 %well, ptr %p, ptr @{_NOWHERE}
  ret ptr %chosen
}}

; The lanes of a vector that are on, a bit each: from the first to the last of them.
define i1 @{MASKED}(ptr %p, ptr %bounds, i64 %on, i64 %each, ptr %kernel) {{
  %none = icmp eq i64 %on, 0
  br i1 %none, label %fine, label %look
look:
  %first = call i64 @llvm.cttz.i64(i64 %on, i1 true)
  %left = call i64 @llvm.ctlz.i64(i64 %on, i1 true)
  %behind = sub i64 64, %left
  %count = sub i64 %behind, %first
  %wanted = mul i64 %count, %each
  %before = mul i64 %first, %each
  %start = getelementptr i8, ptr %p, i64 %before
  %well = call i1 @{WITHIN}(ptr %start, ptr %bounds, i64 %wanted, ptr %kernel)
  ret i1 %well
fine:
  ret i1 true
}}

; The lanes that are on, a bit each, but for those whose address is outside.
define i64 @{LANES}(ptr %addresses, i64 %lanes, ptr %bounds, i64 %on, i64 %each, ptr %kernel) {{
entry:
  br label %lane
lane:
  %k = phi i64 [0, %entry], [%next, %after]
  %kept = phi i64 [0, %entry], [%kept.more, %after]
  %bit = shl i64 1, %k
  %this = and i64 %on, %bit
  %is.on = icmp ne i64 %this, 0
  br i1 %is.on, label %look, label %after
look:
  %address.p = getelementptr ptr, ptr %addresses, i64 %k
  %address = load ptr, ptr %address.p
  %well = call i1 @{WITHIN}(ptr %address, ptr %bounds, i64 %each, ptr %kernel)
  %add = select i1 %well, i64 %bit, i64 0
  br label %after
after:
  %more = phi i64 [0, %lane], [%add, %look]
  %kept.more = or i64 %kept, %more
  %next = add i64 %k, 1
  %again = icmp ult i64 %next, %lanes
  br i1 %again, label %lane, label %out
out:
  ret i64 %kept.more
}}

; Bounds of what is inside of others and begins at the pointer.
define void @{NARROW}(ptr %bounds, ptr %outer, ptr %p, i64 %size, ptr %text) {{
entry:
  %first = ptrtoint ptr %p to i64
  %behind = add i64 %first, %size
  %alone = icmp eq ptr %outer, null
  br i1 %alone, label %set, label %cut
cut:
  %low.outer = load i64, ptr %outer
  %high.p = getelementptr i64, ptr %outer, i64 1
  %high.outer = load i64, ptr %high.p
  %low.less = icmp ult i64 %first, %low.outer
  %low.cut = select i1 %low.less, i64 %low.outer, i64 %first
  %high.more = icmp ugt i64 %behind, %high.outer
  %high.cut = select i1 %high.more, i64 %high.outer, i64 %behind
  br label %set
set:
  %low = phi i64 [%first, %entry], [%low.cut, %cut]
  %high = phi i64 [%behind, %entry], [%high.cut, %cut]
  %p1 = getelementptr i64, ptr %bounds, i64 1
  %p2 = getelementptr i64, ptr %bounds, i64 2
  store i64 %low, ptr %bounds
  store i64 %high, ptr %p1
  store ptr %text, ptr %p2
  ret void
}}

define i64 @{VIOLATED}() {{
  %state = load atomic i64, ptr @{_RECORD} acquire, align 8
  ret i64 %state
}}
"""


@once
def _memory() -> ctypes.Array[ctypes.c_int64]:
    """Memory of the record, then memory that is nobody's."""
    return (ctypes.c_int64 * (8 + LARGEST // 8))()


@once
def _library() -> loader.Library:
    start = ctypes.addressof(_memory())
    imports = {_RECORD: start, _NOWHERE: start + 64}
    return loader.load([jit.compile_cached(TEXT)], imports, SYMBOLS, keep=[_memory()])


def symbols() -> dict[str, int]:
    """Addresses of the functions that generated code imports."""
    return {name: _library().address(name) for name in SYMBOLS}


def complain() -> NoReturn:
    """Raise the error of the violation that is written down, and forget it."""
    words = _memory()
    kernel, buffer = (ctypes.string_at(words[k]).decode() for k in (_KERNEL, _BUFFER))
    offset, size, wanted = (words[k] for k in (_OFFSET, _SIZE, _WANTED))
    words[_STATE] = 0
    raise CompileError(
        f"HYBRIDML_SANITIZE: {kernel} {wanted} bytes at offset {offset} of {buffer}, which has {size} bytes. This is a "
        "defect of hybridml; please report it with the program"
    )


def violations() -> bool:
    """Whether one is written down."""
    return bool(_memory()[_STATE])

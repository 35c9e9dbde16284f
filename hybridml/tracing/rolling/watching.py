"""Calls at chosen instructions of running code: before it runs them, in the thread of a trace; and its variables.

Python 3.12 and later tell of the instructions of one code object (`sys.monitoring`, PEP 669), earlier ones of those of
a frame (`sys.settrace`). Where a debugger or a profiler has taken that, there is none of it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

Told = Callable[[FrameType, int], None]  # frame, offset of the instruction that it is about to run
_TOOLS = (4, 3)  # numbers that no kind of tool has for its own


Watch = Callable[[FrameType], None]  # has instructions of the code of a running frame told, too


@contextmanager
def watched(codes: Iterable[CodeType], told: Told) -> Iterator[Watch]:
    """A context in which `told` is called before each instruction of these code objects, and of those that it is given
    then."""
    with (_monitored if sys.version_info >= (3, 12) else _traced)(codes, told) as watch:
        yield watch


@contextmanager
def _monitored(codes: Iterable[CodeType], told: Told) -> Iterator[Watch]:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    used, known = list[int](), set[CodeType]()

    def called(code: CodeType, offset: int) -> None:
        frame = sys._getframe(1)
        if frame.f_code is code:
            told(frame, offset)

    def watch(code: CodeType) -> None:
        if not used:
            used.extend([tool for tool in _TOOLS if monitoring.get_tool(tool) is None][:1])
            for tool in used:
                monitoring.use_tool_id(tool, "hybridml")
                monitoring.register_callback(tool, monitoring.events.INSTRUCTION, called)
        if used and code not in known:
            known.add(code)
            monitoring.set_local_events(used[0], code, monitoring.events.INSTRUCTION)

    for code in codes:
        watch(code)
    try:
        yield lambda frame: watch(frame.f_code)
    finally:
        for tool in used:
            for code in known:
                monitoring.set_local_events(tool, code, 0)
            monitoring.register_callback(tool, monitoring.events.INSTRUCTION, None)
            monitoring.free_tool_id(tool)


@contextmanager
def _traced(codes: Iterable[CodeType], told: Told) -> Iterator[Watch]:
    known = {*codes}

    def called(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "call":
            if frame.f_code not in known:
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            told(frame, frame.f_lasti)
        return called

    shown: Any = called

    def watch(frame: FrameType) -> None:
        if sys.gettrace() is None:
            sys.settrace(called)
        if sys.gettrace() is called and frame.f_trace is not called:
            known.add(frame.f_code)
            frame.f_trace_opcodes, frame.f_trace_lines, frame.f_trace = True, False, shown

    if known and sys.gettrace() is None:
        sys.settrace(called)
    try:
        yield watch
    finally:
        if sys.gettrace() is called:
            sys.settrace(None)


def assign(frame: FrameType, values: Mapping[str, Any]) -> None:
    """Gives local variables of running code values."""
    if not values:
        return
    frame.f_locals.update(values)
    if sys.version_info < (3, 13):
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))

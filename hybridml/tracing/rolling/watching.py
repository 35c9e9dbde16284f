"""Calls at chosen instructions of running code: before it runs them, in the thread of a trace.

Python 3.12 and later tell of the instructions of one code object (`sys.monitoring`, PEP 669), earlier ones of those of
a frame (`sys.settrace`). Where a debugger or a profiler has taken that, there is none of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

Told = Callable[[FrameType, int], None]  # frame, offset of the instruction that it is about to run
_TOOLS = (4, 3)  # numbers that no kind of tool has for its own


@contextmanager
def watched(codes: Iterable[CodeType], told: Told) -> Iterator[None]:
    """A context in which `told` is called before each instruction of these code objects."""
    codes = frozenset(codes)
    if not codes:
        yield
    elif sys.version_info >= (3, 12):
        with _monitored(codes, told):
            yield
    else:
        with _traced(codes, told):
            yield


@contextmanager
def _monitored(codes: Iterable[CodeType], told: Told) -> Iterator[None]:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    tool = next((tool for tool in _TOOLS if monitoring.get_tool(tool) is None), None)
    if tool is None:
        yield
        return

    def called(code: CodeType, offset: int) -> None:
        frame = sys._getframe(1)
        if frame.f_code is code:
            told(frame, offset)

    monitoring.use_tool_id(tool, "hybridml")
    try:
        monitoring.register_callback(tool, monitoring.events.INSTRUCTION, called)
        for code in codes:
            monitoring.set_local_events(tool, code, monitoring.events.INSTRUCTION)
        yield
    finally:
        for code in codes:
            monitoring.set_local_events(tool, code, 0)
        monitoring.register_callback(tool, monitoring.events.INSTRUCTION, None)
        monitoring.free_tool_id(tool)


@contextmanager
def _traced(codes: Iterable[CodeType], told: Told) -> Iterator[None]:
    if sys.gettrace() is not None:
        yield
        return

    def called(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "call":
            if frame.f_code not in codes:
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            told(frame, frame.f_lasti)
        return called

    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(None)

"""Lines of the user's program: where a value was kept for its gradient, and where it was overwritten.

A place is a code object and an instruction in it, which take 0.1 us to note; the line is looked up when an error tells
it.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any

from hybridml_compiler.errors import describe_line, is_internal, line_number

from .context import clock

Place = tuple[CodeType, int]
users: set[str] = set()  # files that are the user's, as far as they have been met
_ours: set[str] = set()  # those that are not
_frame = sys._getframe
_LINE = re.compile(r"(.*?)(?::|, line )(\d+)(?:: (.*))?$", re.DOTALL)
_MOST = 4096  # writes whose lines are remembered
_written: list[tuple[int, Any, int]] = [(-1, None, 0)] * _MOST

# Writes by native code: (stamp, number of the user's code, instruction). It notes by itself what the code does that
# wrote last, `known_user`; the first write of another one asks `stamped`.
native_writes = (ctypes.c_int64 * (3 * _MOST))()
known_user: list[CodeType | None] = [None]
known_number = ctypes.c_int64(0)
_codes: list[CodeType | None] = [None] * _MOST  # by number: each new one comes with a write


def outer(frame: FrameType) -> FrameType:
    """The frame of the user's code that has called this one."""
    at: FrameType | None = frame
    while at is not None:
        name = at.f_code.co_filename
        if name in users:
            return at
        if name not in _ours:
            if not is_internal(name):
                users.add(name)
                return at
            _ours.add(name)
        at = at.f_back
    return frame


def here() -> Place:
    """The line of the user that is running."""
    frame = outer(_frame(1))
    return frame.f_code, frame.f_lasti


def write_stamp() -> int:
    """A stamp for a write in place, with the line that does it."""
    frame = _frame(2)
    if frame.f_code.co_filename not in users:
        frame = outer(frame)
    stamp = clock()
    _written[stamp % _MOST] = stamp, frame.f_code, frame.f_lasti
    return stamp


def stamped() -> int:
    """`write_stamp`, for a write by native code, which has no frame of its own."""
    caller = _frame(1)
    frame = caller if caller.f_code.co_filename in users else outer(caller)
    if frame is caller:
        known_number.value += 1
        _codes[known_number.value % _MOST] = known_user[0] = frame.f_code
    stamp = clock()
    _written[stamp % _MOST] = stamp, frame.f_code, frame.f_lasti
    return stamp


def stamped_for_user() -> int:
    """`write_stamp`, for a write by native code that functions of ours have called for the user."""
    frame = outer(_frame(1))
    if frame.f_code.co_filename in users:
        known_number.value += 1
        _codes[known_number.value % _MOST] = known_user[0] = frame.f_code
    stamp = clock()
    _written[stamp % _MOST] = stamp, frame.f_code, frame.f_lasti
    return stamp


def overwritten_at(stamp: int) -> str:
    """The line of a write; empty when it is no longer known."""
    its, code, instruction = _written[stamp % _MOST]
    at = 3 * (stamp % _MOST)
    if native_writes[at] == stamp:
        its, number, instruction = native_writes[at : at + 3]
        code = _codes[number % _MOST]
    return line_of((code, instruction)) if its == stamp else ""


def line_of(place: Sequence[Any]) -> str:
    code, instruction = place
    return describe_line(code.co_filename, line_number(code, instruction))


def split_line(where: str) -> tuple[str, int, str]:
    """File, number and text of a described line; number 0 and no text where it is none.

    >>> split_line("model.py:12: y = x @ w")[1:]
    (12, 'y = x @ w')
    >>> split_line("In [3], line 12: y = x @ w")
    ('In [3]', 12, 'y = x @ w')
    """
    found = _LINE.match(where)
    return (found[1], int(found[2]), found[3] or "") if found is not None else (where, 0, "")

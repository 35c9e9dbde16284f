"""`return float(x.sum())`: a float that Python makes of a tensor only to return it has no need of a value in the trace.

Whether that is so is read in the bytecode behind the call of `float`: what is on the stack above the float may be
anything, the float itself only an item of a tuple, a list or a dict that is returned.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType, FrameType

from hybridml_compiler.errors import user_frame

from ..bytecode import instructions, running

# What straight code takes off the stack; what it puts there is that and its effect.
_TAKES = {
    **dict.fromkeys(("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_CONST", "LOAD_SMALL_INT"), 0),
    **dict.fromkeys(("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME", "PUSH_NULL", "NOP"), 0),
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD", "UNARY_NEGATIVE", "POP_TOP"), 1),
    **dict.fromkeys(("BINARY_OP", "BINARY_SUBSCR", "COMPARE_OP"), 2),
}
# Containers -> items that they take off the stack, for their argument.
_HOLDS: dict[str, Callable[[int], int]] = {
    "BUILD_TUPLE": lambda n: n,
    "BUILD_LIST": lambda n: n,
    "BUILD_MAP": lambda n: 2 * n,
    "BUILD_CONST_KEY_MAP": lambda n: n + 1,
}


def is_returned(root: CodeType | None) -> bool:
    """Whether the user's innermost frame runs `root`, not for another call of it, and calls `float` there for what it
    returns."""
    frame = user_frame() if root is not None else None
    if root is None or frame is None or frame.f_code is not root or "float" in frame.f_globals:
        return False
    return _returns(root, frame.f_lasti) and all(f.f_code is not root for f in _behind(frame))


def _behind(frame: FrameType) -> Iterator[FrameType]:
    at = frame.f_back
    while at is not None:
        yield at
        at = at.f_back


@lru_cache(maxsize=4096)
def _returns(code: CodeType, call: int) -> bool:
    """Whether the call at this place is one of `float`, and what it gives is returned."""
    found = list(instructions(code))
    at = running(found, call)
    if at is None or not any(_calls(found[k : at + 1]) for k in range(at)):
        return False
    above = 0  # items on the stack above the float
    for i, takes, gives in _steps(found[at + 1 :]):
        if i.opname == "RETURN_VALUE":
            return above == 0
        if takes > above:
            if i.opname not in _HOLDS or (i.opname == "BUILD_MAP" and above % 2):  # a key is looked at
                return False
            above = 0  # it is in a container by now
        else:
            above += gives - takes
    return False


def _calls(found: list[dis.Instruction]) -> bool:
    """Whether the last of these calls the `float` that the first has loaded, with one argument."""
    first, last = found[0], found[-1]
    if first.opname != "LOAD_GLOBAL" or first.argval != "float" or last.opname != "CALL" or last.arg != 1:
        return False
    height = 0  # above the function
    for i, takes, gives in _steps(found[1:]):
        if takes > height:
            return i is last and height == 1
        height += gives - takes
    return False


def _steps(found: list[dis.Instruction]) -> Iterator[tuple[dis.Instruction, int, int]]:
    """Yields (instruction, values popped, values pushed) of straight-line code; ends at a jump or anything unusual."""
    for i in found:
        if i.opname in ("PRECALL", "KW_NAMES"):
            continue
        if i.opname == "CALL":
            yield i, (i.arg or 0) + 2, 1
        elif i.opname == "RETURN_VALUE":
            yield i, 1, 0
        elif i.opname in _HOLDS:
            yield i, _HOLDS[i.opname](i.arg or 0), 1
        elif i.opname in _TAKES and not i.is_jump_target:
            takes = _TAKES[i.opname]
            yield i, takes, takes + dis.stack_effect(i.opcode, i.arg)
        else:
            return

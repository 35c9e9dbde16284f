"""Instructions of a code object, one variable each: Python 3.13 and later have instructions for two at once."""

from __future__ import annotations

import dis
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from types import CodeType

_LOCAL = re.compile(r"(?:LOAD|STORE)_FAST(?:_BORROW|_CHECK)?")  # LOAD_FAST_BORROW_LOAD_FAST_BORROW holds two


def instructions(code: CodeType) -> Iterator[dis.Instruction]:
    """Instructions as `dis` gives them, a pair of local variables as two instructions at one offset."""
    for i in dis.get_instructions(code):
        if not isinstance(i.argval, tuple) or not (names := _LOCAL.findall(i.opname)):
            yield i
            continue
        for opname, name in zip(names, i.argval, strict=True):
            yield i._replace(opname=opname, opcode=dis.opmap[opname], arg=0, argval=name)


@lru_cache(maxsize=1024)
def is_updated(code: CodeType, offset: int) -> bool:
    """Whether the item that is read at an offset is that of `a[k] += v`, which is stored at its place again."""
    found = list(dis.get_instructions(code))
    at = running(found, offset) or 0
    return at > 1 and found[at - 1].opname == found[at - 2].opname == "COPY"


def running(found: Sequence[dis.Instruction], offset: int) -> int | None:
    """The index of the instruction that runs at an offset: Python 3.11 does some calls in what prepares them, and up to
    3.12 the offset is that of an instruction's last cache while it runs a function of Python."""
    at = bisect_right(found, offset, key=attrgetter("offset")) - 1
    if at < 0:
        return None
    return at + 1 if found[at].opname == "PRECALL" else at


def called_with_dtype(found: Sequence[dis.Instruction], last: int) -> tuple[str | None, str] | None:
    """The names of the method that is called with what is loaded here as its last argument, or as `dtype`, and of the
    global variable that it is of, if it is; None where that is no such call."""
    end = last + 1
    while end < len(found) and (found[end].opname in ("KW_NAMES", "PRECALL") or _names_arguments(found, end)):
        if found[end].argval and type(found[end].argval) is tuple and found[end].argval[-1] != "dtype":
            return None
        end += 1
    if end == len(found) or found[end].opname not in ("CALL", "CALL_KW"):
        return None
    wanted, k = (found[end].arg or 0) - 1, last
    while wanted > 0 and k > 0:  # the other arguments
        k -= 1
        i = found[k]
        if i.opname.startswith(("POP_JUMP", "JUMP", "FOR_ITER", "STORE_", "SEND")):
            return None
        wanted -= dis.stack_effect(i.opcode, i.arg if i.opcode >= dis.HAVE_ARGUMENT else None)
    k -= 2 if found[k - 1].opname == "PUSH_NULL" else 1
    if wanted or k < 1 or found[k].opname not in ("LOAD_ATTR", "LOAD_METHOD"):
        return None
    of = found[k - 1]
    return of.argval if of.opname == "LOAD_GLOBAL" else None, found[k].argval


def _names_arguments(found: Sequence[dis.Instruction], k: int) -> bool:
    return found[k].opname == "LOAD_CONST" and k + 1 < len(found) and found[k + 1].opname == "CALL_KW"

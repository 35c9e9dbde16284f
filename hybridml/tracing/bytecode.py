"""Instructions of a code object, one variable each: Python 3.13 and later have instructions for two at once."""

from __future__ import annotations

import dis
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
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
    at = next((k for k, i in enumerate(found) if i.offset == offset), 0)
    return at > 1 and found[at - 1].opname == found[at - 2].opname == "COPY"


def running(found: Sequence[dis.Instruction], offset: int) -> int | None:
    """The index of the instruction that runs at an offset: Python 3.11 does some calls in what prepares them."""
    at = next((k for k, i in enumerate(found) if i.offset == offset), None)
    return at + 1 if at is not None and found[at].opname == "PRECALL" else at

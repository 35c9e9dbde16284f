"""`for` loops of a code object, by their instructions: what a step reads of the one before, and what follows reads.

for k in range(1, n):           assigned    k, beta, alpha
    beta *= 1.0 - alpha ** 2    carried     beta, alpha     read in a step before they are assigned
    alpha = f(k, beta)          after       alpha           read after the loop
return alpha
"""

from __future__ import annotations

import dis
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import CodeType

from hybridml_compiler.record import record

from ..bytecode import instructions

_LEAVES = ("RETURN_", "YIELD_", "SEND", "RAISE_", "RERAISE", "IMPORT_", "STORE_GLOBAL", "STORE_NAME", "STORE_DEREF",
           "DELETE_", "GET_AWAITABLE", "GET_AITER")  # fmt: skip
_COLLECTS = ("LIST_APPEND", "SET_ADD", "MAP_ADD")  # of a comprehension, whose list is in no variable


@record
class ForLoop:
    """Names of local variables. `place`: of the loop in its code."""

    place: tuple[CodeType, int]
    assigned: frozenset[str]
    read: frozenset[str]
    target: str | None  # what is given to each step
    carried: tuple[str, ...]
    after: tuple[str, ...]


@lru_cache(maxsize=4096)
def for_loop_over(code: CodeType, offset: int) -> ForLoop | None:
    """The loop over what the call at this offset gives, if that is its first use, and the loop does nothing but assign
    local variables and call: it is left by no `break` and no `return`."""
    found, at = _numbered(code)
    call = at[max(k for k in at if k <= offset)]  # it may be at a cache of the call
    if found[call].opname == "PRECALL":  # which Python 3.11 does with the call
        call += 1
    names = [i.opname for i in found]
    if names[call + 1 : call + 3] != ["GET_ITER", "FOR_ITER"]:
        return None
    head = call + 2
    end = at[found[head].argval]
    if any(names[j].startswith(_LEAVES) for j in range(head, end)):
        return None
    inner = [(j, at[found[j].argval]) for j in range(head + 1, end) if names[j] == "FOR_ITER"]
    own = [j for j in range(head + 1, end) if not any(a < j < b for a, b in inner)]
    jumps = [at[found[j].argval] for j in range(head + 1, end) if _is_jump(found[j])]
    if any(names[j] in _COLLECTS for j in own) or not all(head <= to < end for to in jumps):
        return None
    assigned = frozenset(i.argval for i in found[head:end] if _stores(i))
    read = frozenset(i.argval for i in found[head:end] if _loads(i))
    live = _live(found, at)
    (target,) = [i.argval for i in found[head + 1 : head + 2] if _stores(i)] or [None]
    carried = (live[head + 1] & assigned) - ({target} if target is not None else set())
    return ForLoop(
        (code, found[head].offset), assigned, read, target, tuple(sorted(carried)), tuple(sorted(live[end] & assigned)),
    )  # fmt: skip


def _numbered(code: CodeType) -> tuple[list[dis.Instruction], dict[int, int]]:
    """The instructions, and the number of the one at each offset; what only extends the next one is that."""
    found: list[dis.Instruction] = []
    at: dict[int, int] = {}
    for i in instructions(code):
        at.setdefault(i.offset, len(found))  # two at one offset: the first
        if i.opname not in ("EXTENDED_ARG", "CACHE"):
            found.append(i)
    return found, at


def _is_jump(i: dis.Instruction) -> bool:
    return i.opcode in dis.hasjrel or i.opcode in dis.hasjabs


def _stores(i: dis.Instruction) -> bool:
    return i.opname.startswith("STORE_FAST")


def _loads(i: dis.Instruction) -> bool:
    return i.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE", "DELETE_FAST"))


def _live(found: Sequence[dis.Instruction], at: Mapping[int, int]) -> list[frozenset[str]]:
    """The local variables that are read before they are assigned, from each instruction on (Aho et al., "Compilers",
    2006, section 9.2.5)."""
    after: list[list[int]] = []
    for k, i in enumerate(found):
        ends = i.opname.startswith(("RETURN_", "RAISE_", "RERAISE"))
        always = ends or i.opname in ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
        following = [] if always or k + 1 == len(found) else [k + 1]
        after.append([*following, *([at[i.argval]] if _is_jump(i) else [])])
    live: list[frozenset[str]] = [frozenset()] * len(found)
    changed = True
    while changed:
        changed = False
        for k in range(len(found) - 1, -1, -1):
            i = found[k]
            now = frozenset[str]().union(*(live[n] for n in after[k]))
            if _stores(i):
                now -= {i.argval}
            elif _loads(i):
                now |= {i.argval}
            if now != live[k]:
                live[k], changed = now, True
    return live

"""`while a or b`: questions of the condition of a loop of which one answer begins the next step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from types import CodeType

from ..code_loops import Flow, Position, flow_of, is_question

_ONLY_COMPUTE = (
    "PUSH_NULL", "KW_NAMES", "NOP", "CACHE", "EXTENDED_ARG", "COMPARE_OP", "LOAD_", "BINARY_", "UNARY_", "BUILD_",
    "TO_BOOL", "PRECALL", "JUMP_", "NOT_TAKEN", "COPY", "SWAP", "CALL",
)  # fmt: skip
PURE = frozenset(("len", "abs", "min", "max"))  # functions of Python's that a condition may call in vain


@lru_cache(maxsize=1024)
def early_questions(code: CodeType, head: int, position: Position) -> Mapping[Position, bool]:
    """The questions before one that ends a step, of which an answer has the next one begin, and the other one does
    nothing but ask on: `while a or b`."""
    flow, begins = flow_of(code), set[int]()
    inside = flow.loops[flow.at[head]]
    for k in inside if position is not None else ():
        if is_question(flow.found[k]) and flow.position(k) == position:
            begins |= {flow.goes_on(n) for n in flow.following[k] if n in inside}
    found = dict[Position, bool]()
    for k in inside if len(begins) == 1 else ():
        goes = [n for n in flow.following[k] if flow.goes_on(n) in begins]
        others = [n for n in flow.following[k] if n not in goes]
        if is_question(flow.found[k]) and flow.position(k) != position and len(goes) == len(others) == 1:
            if not _only_asks(flow, others[0], inside, begins, position):
                continue
            found[flow.position(k)] = (goes[0] == flow.jump(k)) is ("IF_TRUE" in flow.found[k].opname)
    return found


def _only_asks(flow: Flow, at: int, inside: frozenset[int], ends: Collection[int], position: Position) -> bool:
    """Whether all ways from an instruction to the question at a place, or to one of `ends`, or out of the loop,
    do nothing but compute and ask."""
    pending, seen = [at], set[int]()
    while pending:
        at = pending.pop()
        if at in seen or at not in inside or at in ends:
            continue
        seen.add(at)
        i = flow.found[at]
        known = i.opname.startswith(_ONLY_COMPUTE)
        is_pure = i.opname not in ("LOAD_METHOD", "CALL_FUNCTION_EX") and not (
            i.opname == "LOAD_GLOBAL" and i.argval not in PURE
        )
        if not (is_question(i) or (known and is_pure)):
            return False
        if not (is_question(i) and flow.position(at) == position):
            pending += flow.following[at]
    return True

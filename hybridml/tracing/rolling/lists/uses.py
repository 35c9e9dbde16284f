"""Lists that code makes, and all that it does with them, by its instructions: they may be lists of the program.

    found = []                          the list is new, and in no other place
    for ...: found.append((start, i))   a list of the program has that method; and `pop`, `reverse`, `found[-1]`,
                                        `len(found)`, `if found`, `np.array(found)`
    return m, found                     it may be returned

A list that is given to anything else is Python's.
"""

from __future__ import annotations

import dis
from collections.abc import Mapping
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any

from hybridml_compiler.record import record

from ..code_loops import Flow, flow_of, is_question

_METHODS = {"append": 1, "pop": 0, "reverse": 0}  # arguments that they are called with
_ARRAYS = {"numpy": ("array", "asarray", "stack"), "hybridml": ("stack",)}  # functions that make an array of a list
_PASSED = ("NOP", "CACHE", "EXTENDED_ARG", "RESUME", "PRECALL", "KW_NAMES", "NOT_TAKEN")
_CALLS = {"CALL": 2, "CALL_KW": 3}  # items that they take beside arguments
_MOST = 64  # instructions of a statement that makes a list


@record
class Uses:
    """All that code does with a list. `appends`: places where it grows; `is_read`: whether items are; `returned`,
    `as_array`: whether it, or an array of it, is what a call gives; `functions`: global names that it is given to."""

    appends: int
    is_read: bool
    returned: bool
    as_array: bool
    functions: frozenset[str]

    def are_as_named(self, space: Mapping[str, Any]) -> bool:
        """Whether those names mean what code that is traced finds for them."""
        return all(_is_known(space, *name.split(".")) for name in self.functions)


def _is_known(space: Mapping[str, Any], name: str, function: str = "") -> bool:
    found = space.get(name, len if name == "len" else None)
    if name == "len":
        return found is len or getattr(found, "stands_for", None) is len
    return type(found) is ModuleType and function in _ARRAYS.get(found.__name__, ())


@lru_cache(maxsize=1024)
def lists_in(code: CodeType) -> Mapping[str, Uses]:
    """The local variables that are new lists wherever they are assigned, with which code does nothing but what lists of
    the program can do."""
    flow = flow_of(code)
    at: dict[str, list[int]] = {}
    for k, i in enumerate(flow.found):
        if type(i.argval) is str and i.opname.startswith(("LOAD_FAST", "STORE_FAST", "DELETE_FAST", "LOAD_CLOSURE")):
            at.setdefault(i.argval, []).append(k)
    found = {name: _uses_of(flow, places) for name, places in at.items() if name not in _not_own(code)}
    return {name: uses for name, uses in found.items() if uses is not None}


@lru_cache(maxsize=1024)
def grows_by_data(code: CodeType, head: int, name: str) -> bool:
    """Whether a loop, by the offset of its first instruction, seems to append to a list where data decides: not in each
    step, in a `while`, or in one that reads the list."""
    flow = flow_of(code)
    inside = flow.loops[flow.at[head]]
    loads = [k for k in sorted(inside) if flow.found[k].argval == name and flow.found[k].opname.startswith("LOAD_FAST")]
    methods = [flow.found[k + 1].argval for k in loads]
    if "append" not in methods:
        return False
    return {*methods} != {"append"} or not all(_in_each_step(flow, k) for k in loads)


@lru_cache(maxsize=1024)
def stacks_of(code: CodeType, head: int) -> tuple[str, ...]:
    """The lists of which a `while`, by the offset of its first instruction, takes items until there are none."""
    flow, found = flow_of(code), list[str]()
    inside = flow.loops[flow.at[head]]
    for name in lists_in(code):
        loads = [k for k in sorted(inside) if flow.found[k].argval == name and flow.found[k].opname.startswith("LOAD_")]
        ends = [k for k in loads if _leaves(flow, k, inside)]
        if ends and any(flow.found[k + 1].argval == "pop" for k in loads):
            found.append(name)
    return tuple(found)


def _leaves(flow: Flow, k: int, inside: frozenset[int]) -> bool:
    """Whether a question about a list, or its length, leaves a loop."""
    if _use(flow, k, k - 1) not in ("asked", "len len"):
        return False
    at = next(n for n in range(k, len(flow.found)) if _is_jump(flow.found[n]))
    return any(n not in inside for n in flow.following[at])


def _is_in(flow: Flow, head: int, name: Any) -> bool:
    """Whether a loop does anything with a variable."""
    return any(flow.found[k].argval == name for k in flow.loops.get(head, ()))


def _in_each_step(flow: Flow, k: int) -> bool:
    """Whether each step of the innermost loop that an instruction is in, a `for`, comes to it."""
    head = min((h for h, nodes in flow.loops.items() if k in nodes), key=lambda h: len(flow.loops[h]))
    if flow.found[head].opname != "FOR_ITER":
        return False
    pending, seen = [head + 1], {k}
    while pending:
        at = pending.pop()
        if at == head or at not in flow.loops[head]:
            return False
        if at not in seen:
            seen.add(at)
            pending += flow.following[at]
    return True


def _not_own(code: CodeType) -> frozenset[str]:
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return frozenset((*code.co_cellvars, *code.co_freevars, *code.co_varnames[:count]))


def _uses_of(flow: Flow, places: list[int]) -> Uses | None:
    what = list[str]()
    for k in places:
        name = flow.found[k].opname
        if name.startswith("STORE_FAST"):
            if not _stores_new(flow, k):
                return None
        elif name in ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"):
            use = _use(flow, k, k - 1)
            if use is None:
                return None
            what.append(use)
        else:
            return None
    functions = {use.partition(" ")[2] for use in what} - {""}
    as_array = any(use.startswith("returned ") for use in what)
    is_read = not {"item", "pop", "over"}.isdisjoint(what)
    return Uses(what.count("append"), is_read, "returned" in what, as_array, frozenset(functions))


def _use(flow: Flow, k: int, before: int) -> str | None:
    """The use of a list that an instruction puts on the stack; `before`: the instruction before its expression.
    With a name: of a function that it is given to."""
    found = flow.found
    following = found[k + 1]
    if following.opname in ("LOAD_METHOD", "LOAD_ATTR") and following.argval in _METHODS:
        is_called = following.opname == "LOAD_METHOD" or (following.arg or 0) & 1
        call = _call_above(flow, k + 1) if is_called else None
        return following.argval if call == _METHODS[following.argval] else None
    if is_question(found[k + 1 + (following.opname == "TO_BOOL")]) or following.opname == "UNARY_NOT":
        return "asked"
    if following.opname == "GET_ITER":
        return "over" if found[k + 2].opname == "FOR_ITER" and not _is_in(flow, k + 2, found[k].argval) else None
    return _use_below(flow, k, before)


def _use_below(flow: Flow, k: int, before: int) -> str | None:
    """The same, where more is put on the stack first."""
    above, held = 0, False  # items above it; whether it is in a container that the code has made around it
    for at, i in enumerate(flow.found[k + 1 :], k + 1):
        if i.opname in _PASSED:
            continue
        if i.opname == "RETURN_VALUE":
            return "returned" if above == 0 else None
        if _is_jump(i) or i.opname.startswith(("STORE_", "SWAP", "COPY", "DELETE_", "YIELD_", "RAISE_")):
            return "set" if i.opname == "STORE_SUBSCR" and above == 1 and not held else None
        takes = _takes(i)
        if takes > above:
            if i.opname in ("BUILD_TUPLE", "BUILD_LIST"):
                above, held = 0, True
            elif held:
                return None
            elif i.opname == "BINARY_SUBSCR" or (i.opname == "BINARY_OP" and "[" in i.argrepr):
                return _of_item(flow, at, before) if above == 1 else None
            elif i.opname in _CALLS:
                return _of_call(flow, at, before, above)
            else:
                return None
        else:
            above += _effect(i)
    return None


def _of_item(flow: Flow, at: int, before: int) -> str | None:
    """The use of an item, or of a list from its last item to the first one."""
    found = flow.found
    if found[at - 1].opname != "BUILD_SLICE":
        return None if type(found[at - 1].argval) is slice else "item"
    parts = [(i.opname, i.argval) for i in found[at - 4 : at - 1]]
    backwards = [("LOAD_CONST", None), ("LOAD_CONST", None), ("LOAD_CONST", -1)]
    use = _use(flow, at, before) if parts == backwards else None
    return use if use is not None and use.startswith("returned") else None


def _of_call(flow: Flow, at: int, before: int, above: int) -> str | None:
    """The use by a function whose first argument it is."""
    found = flow.found
    count = (found[at].arg or 0) + (found[at].opname == "CALL_KW")
    before -= found[before].opname == "PUSH_NULL"  # Python 3.13, of a module
    if before < 1 or above + 1 != count:
        return None
    called, module = found[before], found[before - 1]
    if called.opname == "LOAD_GLOBAL" and called.argval == "len" and count == 1:
        return "len len"
    if called.opname not in ("LOAD_METHOD", "LOAD_ATTR") or module.opname != "LOAD_GLOBAL":
        return None
    return f"returned {module.argval}.{called.argval}" if _use(flow, at, -1) == "returned" else None


def _call_above(flow: Flow, k: int) -> int | None:
    """The number of arguments with which a method is called that an instruction loads."""
    above, depths = 0, dict[int, int]()  # of the stack where ways of `a if c else b` lead to
    for at, i in enumerate(flow.found[k + 1 :], k + 1):
        above = depths.get(at, above)
        if i.opname in _PASSED:
            continue
        if i.opname == "CALL" and (i.arg or 0) == above:
            return above
        if is_question(i) and above > 0 and flow.jump(at) > at:
            above -= 1
            depths[flow.jump(at)] = above
            continue
        if i.opname == "JUMP_FORWARD" and depths.get(at + 1) == above - 1:
            depths[flow.jump(at)] = above
            continue
        if _is_jump(i) or i.opname.startswith(("STORE_", "RETURN_")) or _takes(i) > above:
            return None
        above += _effect(i)
    return None


def _stores_new(flow: Flow, k: int) -> bool:
    """Whether a variable is given a list there that is made in the same statement, and is nowhere else."""
    return any(_gives_new(flow, start, k) for start in range(k - 1, max(-1, k - _MOST), -1))


def _gives_new(flow: Flow, start: int, end: int) -> bool:
    """The same, of a statement that begins with an instruction with nothing on the stack."""
    stack: list[Any] = []
    for at, i in enumerate(flow.found[start:end], start):
        if i.opname in _PASSED:
            continue
        takes = _takes(i)
        if _is_jump(i) or (at != start and at in flow.targets):
            return False
        if i.opname in ("SWAP", "COPY"):
            if len(stack) < (i.arg or 0):
                return False
            k = -(i.arg or 0)
            if i.opname == "SWAP":
                stack[k], stack[-1] = stack[-1], stack[k]
            else:
                stack[k] = None
                stack.append(None)
            continue
        if takes > len(stack):
            return False
        taken = [stack.pop() for _ in range(takes)][::-1]
        if i.opname == "BUILD_LIST":
            stack.append("list")
        elif i.opname == "BUILD_TUPLE":
            stack.append(tuple(taken))
        elif i.opname == "UNPACK_SEQUENCE":
            parts = taken[0] if type(taken[0]) is tuple else (None,) * (i.arg or 0)
            stack += parts[::-1]
        else:
            stack += [None] * (takes + _effect(i))
    return bool(stack) and stack[-1] == "list"


def _is_jump(i: dis.Instruction) -> bool:
    return i.opcode in dis.hasjrel or i.opcode in dis.hasjabs


def _effect(i: dis.Instruction) -> int:
    if i.opname in _CALLS:
        return 1 - _takes(i)
    return dis.stack_effect(i.opcode, i.arg if i.opcode >= dis.HAVE_ARGUMENT else None)


def _takes(i: dis.Instruction) -> int:
    """The number of items that an instruction takes from the stack: all but those that put one there make one."""
    if i.opname.startswith(("LOAD_FAST", "LOAD_CONST", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_SMALL_INT", "LOAD_CLOSURE",
                            "LOAD_NAME", "PUSH_NULL")):  # fmt: skip
        return 0
    if i.opname in ("UNPACK_SEQUENCE", "LOAD_ATTR", "LOAD_METHOD", "STORE_FAST", "POP_TOP", "TO_BOOL"):
        return 1
    if i.opname in ("BUILD_LIST", "BUILD_TUPLE"):
        return i.arg or 0
    if i.opname in _CALLS:
        return (i.arg or 0) + _CALLS[i.opname]
    return max(0, 1 - _effect(i))

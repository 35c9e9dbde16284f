"""`while` loops that Python's own numbers end: which these are, and how many steps they take.

while t < t_end:            ends      where the condition begins that says whether there is a further step
    u = f(u, t)             begin     where a step begins, after that
    t += dt                 numbers   t: what decides, which is computed from nothing but numbers
    k += 1

So a step goes from the body's first instruction to the condition's, and the condition itself only ever sees Python's
numbers. How many steps there are tells a function made of the instructions that compute those numbers (a slice, Weiser,
"Program slicing", 1984), which is Python's own arithmetic.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

import numpy as np

from hybridml_compiler.record import record, replace
from hybridml_compiler.sizes.dims import is_dim
from hybridml_compiler.sizes.steps import is_step

from ...core.proxies.integer import IntProxy
from ...core.tensor import Tensor
from .code_loops import CodeLoop, Flow, Position, flow_of, is_question, stores

ASKED = "asked"  # of a DataLoop: data has been found to have a part
MOST_STEPS = 1 << 24  # that are counted: 40 ns each
_OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "<<", ">>", "&", "|", "^")
_CALLS = ("len", "min", "max", "abs", "int", "float")
_SIZES = ("shape", "size", "ndim")
_SKIPPED = ("PRECALL", "PUSH_NULL", "TO_BOOL", "NOP", "RESUME")


class _Unknown(Exception):
    """An instruction computes something else than a number of numbers."""


@record
class NumberLoop:
    """`begin` and `ends` are offsets; `count(most, numbers, others)` gives steps and the numbers after them; `others`
    are expressions of what the loop does not change."""

    loop: CodeLoop
    begin: int
    ends: frozenset[int]
    numbers: tuple[str, ...]
    others: tuple[Callable[[Mapping[str, Any], Mapping[str, Any]], Any], ...]
    count: Callable[..., tuple[int, tuple[Any, ...]]]

    def steps(self, frame: FrameType, most: int = MOST_STEPS) -> tuple[int, tuple[Any, ...]] | None:
        """The number of steps from `begin` on, at most so many, and the numbers after them; None where Python does
        not know."""
        variables, numbers = frame.f_locals, []
        try:
            for name in self.numbers:
                numbers.append(_number(variables[name]))
            others = [_number(of(variables, frame.f_globals)) for of in self.others]
            taken, after = self.count(most, *numbers, *others)
        except (_Unknown, LookupError, AttributeError, TypeError, ArithmeticError):
            return None  # where it is an error, Python's own step raises it
        return (taken, after) if taken < MOST_STEPS and all(type(x) in (int, float) for x in after) else None


@record
class Condition:
    """The condition of a loop. `begin`: the instruction with which a step begins; `chain`: the questions that all have
    to be answered so that there is one, each with the start of what it asks in `starts`; `ends`: where it begins."""

    loop: CodeLoop
    inside: frozenset[int]
    begin: int
    ends: Set[int]
    starts: Mapping[int, int]
    chain: Sequence[int]


@record
class DataLoop:
    """A loop that would be ended by numbers, if only data had no part in them: `if a[mid] < t: lo = mid + 1`. A step
    goes from `begin` to the question at `position`, the last one of the condition."""

    loop: CodeLoop
    begin: int
    position: Position
    asks: frozenset[int]  # offsets of other questions in it


@lru_cache(maxsize=1024)
def number_loops(code: CodeType) -> tuple[NumberLoop | DataLoop, ...]:
    """The loops of a code object that numbers end, outer ones first."""
    flow = flow_of(code)
    found: dict[int, NumberLoop | DataLoop] = {}
    for head in sorted(flow.loops, key=lambda head: -len(flow.loops[head])):
        if flow.found[head].opname == "FOR_ITER":
            continue
        condition = _condition(flow, head, flow.loops[head])
        if condition is not None:
            loop = _number_loop(flow, condition) or _data_loop(flow, condition)
            found.setdefault(loop.begin, loop)
    return tuple(found.values())


def data_loops_of(code: CodeType, offset: int) -> list[DataLoop]:
    """The loops around a question in which data would have a part, inner ones first."""
    flow = flow_of(code)
    asked = flow.question(offset)
    at = None if asked is None else flow.offset(asked)
    return [loop for loop in reversed(number_loops(code)) if isinstance(loop, DataLoop) and at in loop.asks]


def _condition(flow: Flow, head: int, inside: frozenset[int]) -> Condition | None:
    questions = [k for k in sorted(inside) if any(n not in inside for n in flow.following[k])]
    if not questions or not all(is_question(flow.found[k]) for k in questions):
        return None
    loop = flow.loop(head, questions[-1], None)
    if loop is None:
        return None
    try:
        at = {_start(flow, k): k for k in questions}
        later = {start for k in questions if (start := _goes_on(flow, k, inside)) in at}
        chains = {start: _chain(flow, start, inside, at) for start in at.keys() - later}
    except _Unknown:
        return None
    begins = {begin for _, begin in chains.values()}
    chain, *copies = (group for group, _ in chains.values())
    if len(begins) != 1 or any(_what(flow, chain) != _what(flow, copy) for copy in copies):
        return None
    (begin,) = begins
    if begin in chains or any(flow.offset(k) is None for k in (begin, *chains)):
        return None
    # It has a step: what follows it has the values of one.
    carried = tuple(sorted(flow.live[begin] & loop.assigned))
    starts = {k: start for start, k in at.items()}
    return Condition(replace(loop, carried=carried), inside, begin, chains.keys(), starts, chain)


def _number_loop(flow: Flow, of: Condition) -> NumberLoop | None:
    try:
        return _sliced(flow, of.loop, of.inside, of.begin, of.ends, of.starts, of.chain)
    except _Unknown:
        return None


def _data_loop(flow: Flow, of: Condition) -> DataLoop:
    asks = {k for k in of.inside if is_question(flow.found[k]) and not any(k in flow.loops[n] for n in flow.loops
            if n in of.inside and flow.loops[n] < of.inside)} - of.starts.keys()  # fmt: skip
    offsets = frozenset(offset for k in asks if (offset := flow.offset(k)) is not None)
    return DataLoop(of.loop, _known(flow.offset(of.begin)), flow.position(of.chain[-1]), offsets)


def _chain(flow: Flow, start: int, inside: frozenset[int], at: Mapping[int, int]) -> tuple[list[int], int]:
    """The questions from one on that all have to be answered so that there is a step, and where that begins."""
    group = []
    while start in at:
        group.append(at[start])
        start = _goes_on(flow, at[start], inside)
    return group, start


def _goes_on(flow: Flow, k: int, inside: frozenset[int]) -> int:
    """The place at which Python goes on after a question that could leave the loop."""
    (k,) = [n for n in flow.following[k] if n in inside]
    return flow.goes_on(k)


def _what(flow: Flow, chain: Sequence[int]) -> list[object]:
    return [flow.position(k) for k in chain]


def _sliced(
    flow: Flow, loop: CodeLoop, inside: frozenset[int], begin: int, ends: Set[int], starts: Mapping[int, int],
    group: Sequence[int],
) -> NumberLoop:  # fmt: skip
    if not _always(flow, ends, inside, begin, {begin}):
        raise _Unknown
    wanted: set[str] = set()
    pending = [name for k in group for name in _read(flow, starts[k], k)]
    lines: dict[int, tuple[str, int]] = {}
    while pending:
        name = pending.pop()
        if name not in loop.assigned or name in wanted:
            continue
        wanted.add(name)
        for k in inside:
            if stores(flow.found[k]) and flow.found[k].argval == name:
                start = _start(flow, k)
                if not _always(flow, {k}, inside, begin, ends):
                    raise _Unknown
                lines[k] = name, start
                pending += _read(flow, start, k)
    others: dict[str, str] = {}
    body = [
        f"        v_{name} = {_text(flow, start, k, wanted, others)}"
        for k, (name, start) in sorted(lines.items(), key=lambda line: (line[0] < begin, line[0]))
    ]
    stays = []
    for k in group:
        text = _text(flow, starts[k], k, wanted, others)
        (out,) = [n for n in flow.following[k] if n not in inside]
        leaves_if_true = (out == flow.jump(k)) is ("IF_TRUE" in flow.found[k].opname)
        stays.append(f"not ({text})" if leaves_if_true else f"({text})")
    if not wanted:  # the same in each step
        raise _Unknown
    numbers = tuple(sorted(wanted))
    values = ", ".join(f"v_{name}" for name in numbers)
    source = [
        f"def count(most, {', '.join([values, *others.values()])}):", "    steps = 0", "    while steps < most:",
        *body, "        steps += 1", f"        if not ({' and '.join(stays)}):", "            break",
        f"    return steps, ({values},)",
    ]  # fmt: skip
    space: dict[str, Any] = {}
    exec("\n".join(source), space)
    given = tuple(_evaluator(text) for text in others)
    own = replace(loop, exits={})  # all that leaves it is Python's to decide
    offsets = frozenset(_known(flow.offset(k)) for k in ends)
    return NumberLoop(own, _known(flow.offset(begin)), offsets, numbers, given, space["count"])


def _known(offset: int | None) -> int:
    assert offset is not None
    return offset


def _start(flow: Flow, k: int) -> int:
    """The place at which the expression begins whose value an instruction takes."""
    depth = 0
    while depth != 1:
        if k in flow.targets:  # another way leads into the middle of it
            raise _Unknown
        k -= 1
        if k < 0 or depth < -16:
            raise _Unknown
        i = flow.found[k]
        if i.opname.startswith(("STORE_", "POP_", "COPY", "SWAP", "JUMP_", "FOR_ITER", "RETURN_", "YIELD_")):
            raise _Unknown
        depth += dis.stack_effect(i.opcode, i.arg if i.opcode >= dis.HAVE_ARGUMENT else None, jump=False)
    return k


def _always(flow: Flow, some: Set[int], inside: frozenset[int], begin: int, ends: Set[int]) -> bool:
    """Whether each step comes by one of some instructions, once, on its way from where it begins to an end."""
    if any(some & nodes for nodes in flow.loops.values() if nodes < inside and not nodes & ends):
        return False
    seen, pending = set(some), [n for n in ([] if begin in some else [begin])]
    while pending:
        node = pending.pop()
        for n in flow.following[node]:
            if n in ends and n not in some:
                return False
            if n in inside and n not in seen:
                seen.add(n)
                pending.append(n)
    return True


def _read(flow: Flow, start: int, end: int) -> Iterator[str]:
    return (str(i.argval) for i in flow.found[start:end] if i.opname.startswith(("LOAD_FAST", "LOAD_DEREF")))


def _text(flow: Flow, start: int, end: int, wanted: set[str], others: dict[str, str]) -> str:
    """The expression of the instructions from `start` on. `others`: those of what no step changes -> their names."""
    stack: list[tuple[str, bool]] = []  # text, and whether a step changes it

    def named(item: tuple[str, bool]) -> str:
        text, changes = item
        return text if changes else others.setdefault(text, f"o_{len(others)}")

    for i in flow.found[start:end]:
        name, op = i.opname, i.argrepr
        if name in _SKIPPED:
            continue
        if name.startswith(("LOAD_FAST", "LOAD_DEREF")):
            stack.append((f"v_{i.argval}", True) if i.argval in wanted else (f"names[{i.argval!r}]", False))
        elif name == "LOAD_GLOBAL":
            stack.append((f"found({i.argval!r})", False))
        elif name == "LOAD_CONST" and type(i.argval) in (int, float) and math.isfinite(i.argval):
            stack.append((repr(i.argval), False))
        elif name == "LOAD_ATTR" and not stack[-1][1] and not op.startswith("NULL|self"):
            stack.append((f"attribute({stack.pop()[0]}, {i.argval!r})", False))
        elif name == "BINARY_SUBSCR" and not (stack[-1][1] or stack[-2][1]):
            at, of = stack.pop()[0], stack.pop()[0]
            stack.append((f"item({of}, {at})", False))
        elif name == "CALL" and i.arg is not None and len(stack) > i.arg:
            args = [stack.pop() for _ in range(i.arg)][::-1]
            called = stack.pop()[0]
            which = next((f for f in _CALLS if called == f"found({f!r})"), None)
            if which is None or (which == "len" and args[0][1]):
                raise _Unknown
            if any(changes for _, changes in args):
                stack.append((f"{which}({', '.join(map(named, args))})", True))
            else:
                stack.append((f"called({which!r}, {', '.join(text for text, _ in args)})", False))
        elif (name == "BINARY_OP" and op.rstrip("=") in _OPERATORS) or name == "COMPARE_OP":
            b, a = stack.pop(), stack.pop()
            op = op.removeprefix("bool(").removesuffix(")") if name == "COMPARE_OP" else op.rstrip("=")
            changes = a[1] or b[1]
            a_text, b_text = (named(a), named(b)) if changes else (a[0], b[0])
            stack.append((f"({a_text} {op} {b_text})", changes))
        elif name in ("UNARY_NEGATIVE", "UNARY_NOT"):
            text, changes = stack.pop()
            stack.append((f"({'-' if name == 'UNARY_NEGATIVE' else 'not '}{text})", changes))
        else:
            raise _Unknown
    if len(stack) != 1:
        raise _Unknown
    return named(stack[0])


def _evaluator(text: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], Any]:
    source = f"def of(names, found, attribute, item, called):\n    return {text}"
    space: dict[str, Any] = {}
    exec(source, space)
    of = space["of"]

    def value(variables: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
        return of(variables, lambda name: around[name] if name in around else getattr(builtins, name),
                  _attribute, _item, _called)  # fmt: skip

    return value


def _attribute(of: Any, name: str) -> Any:
    """An attribute that is not computed by a user's code."""
    if name in _SIZES and issubclass(type(of), Tensor | np.ndarray):
        return getattr(of, name)
    if name in getattr(of, "__dict__", ()) and inspect.getattr_static(type(of), name, None) is None:
        return vars(of)[name]
    raise _Unknown


def _item(of: Any, at: Any) -> Any:
    if type(of) is not tuple:
        raise _Unknown
    return of[at]


def _called(name: str, *args: Any) -> Any:
    kinds = (int, float) if name != "len" else (tuple, np.ndarray)
    if not all(type(x) in kinds or (name == "len" and issubclass(type(x), Tensor)) for x in args):
        raise _Unknown
    return getattr(builtins, name)(*args)


def _number(value: Any) -> Any:
    """A number that Python knows, of this call. What the condition has looked at is no other one in this program."""
    if type(value) is IntProxy and value._value is not None and not value._asks:
        return int(value)
    if is_dim(value) and not is_step(value):
        return int(value)
    if type(value) in (int, float):
        return value
    raise _Unknown

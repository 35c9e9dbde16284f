"""Loops of a code object, by their instructions: what a step reads of the one before, what follows reads, and where a
loop is left.

for k in range(1, n):           assigned    k, beta, alpha
    beta *= 1.0 - alpha ** 2    carried     beta, alpha     read in a step before they are assigned
    alpha = f(k, beta)          after       alpha           read after the loop
    if beta < tol:              exits       the question, and the answer with which the loop goes on
        break               ways        0: what follows is `return alpha`, as after the last step
return alpha

A loop is what its backward jumps reach (Aho et al., "Compilers", 2006, section 9.6.6). A question is known by its place
in the source: Python has the condition of a `while` twice in the code, before the first step and after each.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from hybridml_compiler.record import record, replace

from ..bytecode import instructions

_LEAVES = ("RETURN_", "YIELD_", "SEND", "RAISE_", "RERAISE", "IMPORT_", "STORE_GLOBAL", "STORE_NAME", "DELETE_",
           "GET_AWAITABLE", "GET_AITER")  # fmt: skip
_CLEARS = "LOAD_FAST_AND_CLEAR"  # of a comprehension in the code around it
_COLLECTS = ("LIST_APPEND", "SET_ADD", "MAP_ADD")  # of a comprehension, whose list is in no variable
NOTHING = ("POP_TOP", "NOP", "JUMP_FORWARD", "END_FOR", "NOT_TAKEN", "POP_ITER")  # on the way out of a loop
_COMPUTES = ("LOAD_FAST", "LOAD_CONST", "LOAD_SMALL_INT", "BINARY_OP", "UNARY_NEGATIVE", "STORE_FAST")
_JUMPS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
_ARITHMETIC = {"BINARY_OP": 2, "COMPARE_OP": 2, "UNARY_NEGATIVE": 1}  # operands that they take
_STORES = {"STORE_SUBSCR": 3}
_PLACES = ("BINARY_SUBSCR", "STORE_SUBSCR", "BINARY_SLICE", "STORE_SLICE")  # instructions that take one, uppermost
_PACKS = ("BUILD_TUPLE", "BUILD_SLICE")
_PUSHES = (
    "LOAD_FAST",
    "LOAD_CONST",
    "LOAD_GLOBAL",
    "LOAD_DEREF",
    "LOAD_CLOSURE",
    "LOAD_SMALL_INT",
    "PUSH_NULL",
    "KW_NAMES",
    "NOP",
    "RESUME",
    "CACHE",
    "EXTENDED_ARG",
)  # and take nothing
_ASKS = ("COMPARE_OP", "TO_BOOL")  # what a conditional jump may ask a moment before it

Position = tuple[int | None, ...] | None


@record
class CodeLoop:
    """Names of local variables. `place`: of the loop in its code."""

    place: tuple[CodeType, int]
    assigned: frozenset[str]
    read: frozenset[str]
    targets: frozenset[str]  # what is given to each step
    carried: tuple[str, ...]
    after: tuple[str, ...]
    always: frozenset[str]  # what is read after it, whichever it is, where it ends by way 0
    exits: Mapping[Position, bool]  # questions that leave it -> the answer to go on
    ways: Mapping[Position, int]  # the same -> which code follows: 0, as at the end of the loop, or another one
    tails: Mapping[Position, Sequence[dis.Instruction]]  # of these: what a way out does before it comes to way 0
    grown: frozenset[str]  # variables with which it does nothing but `name.append(...)`
    numbers: frozenset[str]  # variables that are operands of arithmetic and comparisons, or places, and nothing else
    stored: frozenset[str]  # of these, variables that others read only to store them in elements: `y[i] = s`
    flags: frozenset[str]  # variables that may be bools of the program: Python asks which they are, and nothing else
    told: frozenset[str]  # of these, variables of which Python may need the bool after it: `done is True`
    returned: frozenset[str]  # or only as it is returned
    nests: bool  # whether there is a loop in it, other than those of comprehensions

    @property
    def held(self) -> frozenset[str]:
        """Variables whose values before a step it may read; nobody sees afterwards what it makes itself."""
        return self.read - (self.assigned - {*self.carried})

    @property
    def cells(self) -> frozenset[str]:
        """Variables that other functions may assign."""
        code = self.place[0]
        return self.read.intersection((*code.co_cellvars, *code.co_freevars)) - self.assigned

    def with_variables(self, names: Iterable[str]) -> CodeLoop:
        """The loop with further variables, which its steps read, assign and leave to what follows."""
        more = {*names}
        carried, after = (tuple(sorted({*given, *more})) for given in (self.carried, self.after))
        return replace(self, assigned=self.assigned | more, carried=carried, after=after, always=self.always | more)

    def before_others(self) -> CodeLoop:
        """The loop where steps follow that are not of it, which read what it carries on."""
        after = tuple(sorted({*self.after, *self.carried}))
        return replace(self, after=after, always=self.always.union(self.carried))


def for_loop_over(code: CodeType, offset: int) -> CodeLoop | None:
    """The loop over what the call at this offset gives, or what is made an iterator there, if the loop does nothing but
    assign local variables and call."""
    flow = flow_of(code)
    first = flow.running(offset)
    names = [i.opname for i in flow.found[first : first + 3]]
    begin = first if names[0] == "GET_ITER" else first + 1
    if names[begin - first :][:2] != ["GET_ITER", "FOR_ITER"]:
        return None
    return flow.loop(begin + 1, begin + 2, begin + 2)


def is_in(place: tuple[CodeType, int], other: tuple[CodeType, int]) -> bool:
    """Whether the loop at one place is in the loop at another."""
    flow = flow_of(place[0])
    return place[0] is other[0] and flow.at[place[1]] in flow.loops[flow.at[other[1]]] - {flow.at[other[1]]}


def makes_iterator(code: CodeType, offset: int) -> bool:
    """Whether it is a loop itself, or a comprehension, that asks for an iterator there."""
    flow = flow_of(code)
    return flow.found[flow.running(offset)].opname == "GET_ITER"


@lru_cache(maxsize=1024)
def while_loop_at(code: CodeType, offset: int) -> tuple[CodeLoop, Position] | None:
    """The innermost `while` loop that the question at this offset can leave, as a loop from there to there, and the
    place of the question."""
    flow = flow_of(code)
    asked = flow.question(offset)
    if asked is None:
        return None
    position = flow.position(asked)
    for head in sorted(flow.loops, key=lambda head: len(flow.loops[head])):
        inside = [k for k in flow.loops[head] if flow.position(k) == position and is_question(flow.found[k])]
        chained = any(i.opname == "COPY" for i in flow.found[asked - 3 : asked])  # what a step compares is on the stack
        if not inside:
            continue
        # A loop around this one comes to the question by other ways than its own steps.
        loop = None if chained or flow.found[head].opname == "FOR_ITER" else flow.loop(head, inside[-1], None)
        return (loop, position) if loop is not None and position in loop.exits else None
    return None


@lru_cache(maxsize=1024)
def questions_at(code: CodeType, head: int, position: Position) -> frozenset[int]:
    """The offsets of the questions at a place in the source, in a loop."""
    flow = flow_of(code)
    asked = [k for k in flow.loops[flow.at[head]] if is_question(flow.found[k]) and flow.position(k) == position]
    return frozenset(flow.found[k].offset for k in asked)


def loop_around(loops: Mapping[Any, str], other: str) -> str:
    """The words about the innermost of some loops, by their places, whose step runs now; `other`, if none does."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and loops:
        for (code, offset), said in [item for item in [*loops.items()][::-1] if item[0] is not None]:
            if frame.f_code is code and flow_of(code).is_inside(frame.f_lasti, offset):
                return said
        frame = frame.f_back
    return other


def unrolled(loop: str, loops: Mapping[Any, str]) -> str:
    """The words for a loop that is unrolled, and for the others that are."""
    rest = [said for said in dict.fromkeys(loops.values()) if said != loop]
    return f"as {loop} is unrolled" + (
        f", and so {'is' if len(rest) == 1 else 'are'} {', '.join(rest)}" if rest else ""
    )


@lru_cache(maxsize=1024)
def question_at(code: CodeType, offset: int) -> Position | None:
    """The place in the source of what a conditional jump asks at this offset."""
    flow = flow_of(code)
    asked = flow.question(offset)
    return None if asked is None else flow.position(asked)


class Flow:
    """Instructions of a code object, what follows each, and its loops, by their first instructions."""

    def __init__(self, code: CodeType) -> None:
        self.code, self.known = code, dict[tuple[int, int], CodeLoop | None]()
        self.own = {*code.co_cellvars} - _assigned_inside(code)  # variables of cells that no other function assigns
        self.found: list[dis.Instruction] = []
        self.at: dict[int, int] = {}
        for i in instructions(code):
            self.at.setdefault(i.offset, len(self.found))  # two at one offset: the first
            if i.opname not in ("EXTENDED_ARG", "CACHE"):
                self.found.append(i)
        self.offsets = {k: offset for offset, k in reversed(self.at.items())}
        self.following: list[list[int]] = []
        for k, i in enumerate(self.found):
            ends = i.opname.startswith(("RETURN_", "RAISE_", "RERAISE"))
            always = ends or i.opname in _JUMPS
            goes_on = [] if always or k + 1 == len(self.found) else [k + 1]
            self.following.append([*goes_on, *([self.at[i.argval]] if _is_jump(i) else [])])
        self.targets = {self.at[i.argval] for i in self.found if _is_jump(i)}
        self.loops = self._loops()
        self.unread = self._unread()
        self.live = self._live()

    def live_at(self, offset: int) -> frozenset[str]:
        """The local variables that are read before they are assigned, from an instruction on."""
        return self.live[self.at[offset]]

    def offset(self, k: int) -> int | None:
        """The offset of an instruction; None where it is the second one there."""
        return self.offsets.get(k)

    def position(self, k: int) -> Position:
        """The place in the source of a question: of its jump, which others may share, and of what it loads last."""
        last = next((i for i in reversed(self.found[:k]) if i.opname.startswith("LOAD_")), self.found[k])
        jump, loaded = position_of(self.found[k]), position_of(last)
        return None if jump is None or loaded is None else (*jump, *loaded)

    def jump(self, k: int) -> int:
        """The number of the instruction that a jump goes to."""
        return self.at[self.found[k].argval]

    def running(self, offset: int) -> int:
        """The number of the instruction that runs: it may be at a cache of a call, which Python 3.11 does with what
        prepares it."""
        at = self.at[offset if offset in self.at else max(k for k in self.at if k <= offset)]
        return at + 1 if self.found[at].opname == "PRECALL" else at

    def question(self, offset: int) -> int | None:
        """The number of the conditional jump that asks."""
        at = self.running(offset)
        if self.found[at].opname in _ASKS:
            at += 1
        return at if at < len(self.found) and is_question(self.found[at]) else None

    def is_inside(self, offset: int, head: int) -> bool:
        """Whether an instruction is in the loop that begins at another one."""
        return self.running(offset) in self.loops.get(self.at[head], ())

    def loop(self, head: int, begin: int, first: int | None) -> CodeLoop | None:
        """The loop with this head. Its steps go from `begin` on: from what gives them something to `first`, or from a
        question to itself."""
        key = head, begin
        if key not in self.known:
            self.known[key] = self._loop(head, begin, first)
        return self.known[key]

    def _loop(self, head: int, begin: int, first: int | None) -> CodeLoop | None:
        inside, found = self.loops.get(head), self.found
        if inside is None or any(self._leaves(found[k]) for k in inside):
            return None
        inner = [nodes for other, nodes in self.loops.items() if other in inside and other != head]
        if any(found[k].opname in _COLLECTS and not any(k in nodes for nodes in inner) for k in inside):
            return None
        nests = any(not any(found[k].opname in _COLLECTS for k in nodes) for nodes in inner)
        exits: dict[Position, bool] = {}
        leads: dict[Position, int] = {}
        for k in sorted(inside - ({head} if first is not None else set())):
            out = [n for n in self.following[k] if n not in inside]
            if not out:
                continue
            if not is_question(found[k]) or len(out) > 1:
                return None
            position = self.position(k)
            exits[position] = (out[0] == self.at[found[k].argval]) is ("IF_FALSE" in found[k].opname)
            if not self._are_same(leads.setdefault(position, out[0]), out[0]):
                return None
        if first is None and self.position(begin) not in leads:
            return None
        ends = [leads[self.position(begin)] if first is None else self.at[found[head].argval]]
        others = [end for end in leads.values() if not self._are_same(end, ends[0])]
        if first is None and len(others) == 1 and self._tail(ends[0], others[0]) and not self._tail(others[0], ends[0]):
            ends = others
        ways: dict[Position, int] = {}
        for position, end in leads.items():
            ways[position] = next((k for k, other in enumerate(ends) if self._are_same(end, other)), len(ends))
            ends += [end] if ways[position] == len(ends) else []
        tails = {p: t for p, k in ways.items() if k and (t := self._tail(leads[p], ends[0])) is not None}
        stored = frozenset(i.argval for tail in tails.values() for i in tail if stores(i))
        if first is None:
            stays = [n for n in self.following[begin] if n in inside]
            if len(stays) != 1:
                return None
            begin = stays[0]
        own, outside = [found[k] for k in sorted(inside)], {*range(len(found))} - inside
        assigned = frozenset(i.argval for i in own if stores(i)) | stored
        targets = frozenset[str]() if first is None else self._targets(first)
        seen = {found[k].argval for k in range(len(found)) if k not in inside and self._gives_cell(k)}
        live = [self.live[self._arrives(end)] | seen for end in ends]
        after = frozenset[str]().union(*live) & assigned
        carried = (self.live[begin] & assigned) - targets | (stored & after)
        if first is None:  # it may have no steps
            carried |= after
        return CodeLoop(
            (self.code, found[head].offset), assigned, frozenset(i.argval for i in own if _loads(i)), targets,
            tuple(sorted(carried)), tuple(sorted(after)), live[0], exits, ways, tails,
            self._grown(inside),
            self._numbers(inside), self._numbers(inside) - self._read_otherwise(inside),
            flags := self._flags(inside, assigned), told := flags & self._told(outside, may_return=True),
            flags & self._told(outside) - told, nests,
        )  # fmt: skip

    def _leaves(self, i: dis.Instruction) -> bool:
        """Whether an instruction does something that no step of a loop may do."""
        return i.opname.startswith(_LEAVES) or (i.opname == "STORE_DEREF" and i.argval not in self.own)

    def _gives_cell(self, k: int) -> bool:
        """Whether an instruction gives a function that is made there a variable."""
        i = self.found[k]
        return _loads(i) and i.opname != "LOAD_DEREF" and i.argval in self.code.co_cellvars

    def _tail(self, at: int, end: int) -> list[dis.Instruction] | None:
        """The instructions of a way out that only assign numbers, on its way to another one."""
        found: list[dis.Instruction] = []
        depth = 0
        while depth or not self._are_same(at, end):
            i = self.found[at]
            if i.opname.startswith(_COMPUTES) and "[" not in i.argrepr:
                found.append(i)
                depth += dis.stack_effect(i.opcode, i.arg if i.opcode >= dis.HAVE_ARGUMENT else None)
            elif depth or i.opname not in NOTHING:
                return None
            (at,) = self.following[at]
        return found

    def _targets(self, first: int) -> frozenset[str]:
        """The variables that are given an item: `for i, (a, b) in ...` takes it apart."""
        names, wanted = set[str](), 1
        while wanted and (stores(i := self.found[first]) or i.opname.startswith("UNPACK_SEQUENCE")):
            wanted += -1 if stores(i) else (i.arg or 0) - 1
            names |= {i.argval} if stores(i) else set()
            first += 1
        return frozenset(names)

    def _grown(self, inside: frozenset[int]) -> frozenset[str]:
        loads = [k for k in inside if _loads(self.found[k])]
        others = {self.found[k].argval for k in loads if self.found[k + 1].argval != "append"}
        return frozenset(self.found[k].argval for k in loads) - others

    def _numbers(self, inside: frozenset[int]) -> frozenset[str]:
        loads = [k for k in inside if _loads(self.found[k])]
        others = {self.found[k].argval for k in loads if not (self._is_operand(k) or self._is_place(k))}
        return frozenset(self.found[k].argval for k in loads) - others

    def _read_otherwise(self, inside: frozenset[int]) -> frozenset[str]:
        """The variables that anything but a store in an element reads outside of the loop."""
        loads = [k for k, i in enumerate(self.found) if k not in inside and _loads(i)]
        return frozenset(self.found[k].argval for k in loads if not self._is_operand(k, _STORES))

    def _flags(self, inside: frozenset[int], assigned: frozenset[str]) -> frozenset[str]:
        flags, others = assigned, frozenset[str]()
        while flags != others:  # a copy is one if it may be
            flags, others = flags - self._told(inside, copies=flags), flags
        return flags

    def _told(self, nodes: Iterable[int], copies: Collection[str] = (), may_return: bool = False) -> frozenset[str]:
        """The variables with which these instructions do anything but to ask, compute, copy, store in elements or
        return."""

        def is_copied(k: int) -> bool:
            return stores(self.found[k + 1]) and self.found[k + 1].argval in copies

        return frozenset(
            self.found[k].argval for k in nodes if _loads(self.found[k]) and not (
                self._is_asked(k, may_return) or is_copied(k) or self._is_operand(k) or self._is_operand(k, _STORES)
            )
        )  # fmt: skip

    def _is_asked(self, load: int, may_return: bool) -> bool:
        at = load + 1 + (self.found[load + 1].opname == "TO_BOOL")
        if is_question(self.found[at]) or self.found[at].opname == "UNARY_NOT":
            return True
        while may_return and self.found[at].opname in (*_PUSHES, "BUILD_TUPLE"):
            at += 1
        return may_return and self.found[at].opname == "RETURN_VALUE"

    def _is_operand(self, load: int, takes: Mapping[str, int] = _ARITHMETIC) -> bool:
        """Whether arithmetic, or what else `takes` so many, takes from the stack what is loaded there, and nothing else
        does."""
        above = 0  # items on the stack, above what was loaded
        for i in self.found[load + 1 :]:
            if i.opname in takes and above < takes[i.opname] and "[" not in i.argrepr:
                return takes is _ARITHMETIC or above == 2
            if _is_jump(i) or i.opname.startswith((*_LEAVES, "SWAP", "COPY")):
                return False
            effect = dis.stack_effect(i.opcode, i.arg)
            if not i.opname.startswith(_PUSHES) and above < max(1, 1 - effect):
                return False
            above += effect
        return False

    def _is_place(self, load: int) -> bool:
        """Whether what is loaded there is a place of an element, or a part of one: `x[i, n]`, `x[n] += 1`."""
        above, keeps = 0, False  # items on the stack above it, or above the tuple that it is in
        for k, i in enumerate(self.found[load + 1 :], load + 1):
            if i.opname in _PACKS and above < (i.arg or 0):
                above, keeps = 0, True
                continue
            if i.opname == "COPY" and above == 0 and i.arg == 2:  # and then of the array
                return self.found[k + 1].opname == "COPY" and _takes_place(self.found[k + 2])
            if _takes_place(i) and (above == 0 or ("SLICE" in i.opname and above == 1)):
                return not keeps or "SLICE" not in i.opname
            if _is_jump(i) or i.opname.startswith((*_LEAVES, "SWAP", "COPY")):
                return False
            effect = dis.stack_effect(i.opcode, i.arg if i.opcode >= dis.HAVE_ARGUMENT else None)
            if not i.opname.startswith(_PUSHES) and above < max(1, 1 - effect):
                return False
            above += effect
        return False

    def goes_on(self, at: int) -> int:
        """The instruction that runs after one that may do nothing but jump."""
        while self.found[at].opname in ("NOP", "JUMP_FORWARD", "JUMP_BACKWARD", "NOT_TAKEN"):
            (at,) = self.following[at]
        return at

    def _arrives(self, at: int) -> int:
        """The instruction to which the way out of a loop leads, by others that do nothing there."""
        while self.found[at].opname in NOTHING:
            (at,) = self.following[at]
        return at

    def _are_same(self, a: int, b: int) -> bool:
        """Whether two ways out of a loop do the same: Python copies a short end of a function."""
        a, b = self._arrives(a), self._arrives(b)
        while a != b:
            one, other = self.found[a], self.found[b]
            if _what(one) != _what(other) or _is_jump(one):
                return _what(one) == _what(other) and one.opname in _JUMPS
            if one.opname.startswith("RETURN_"):
                return True
            a, b = a + 1, b + 1
        return True

    def _loops(self) -> dict[int, frozenset[int]]:
        before: dict[int, list[int]] = {}
        for k, following in enumerate(self.following):
            for n in following:
                before.setdefault(n, []).append(k)
        loops: dict[int, frozenset[int]] = {}
        for k, following in enumerate(self.following):
            for head in following:
                if head <= k:
                    nodes, pending = {head}, [k]
                    while pending:
                        if (node := pending.pop()) not in nodes:
                            nodes.add(node)
                            pending += before.get(node, ())
                    loops[head] = loops.get(head, frozenset()) | nodes
        return loops

    def _unread(self) -> set[int]:
        """The instructions that put away variables which nothing but comprehensions reads (Python 3.12)."""
        clears = [k for k, i in enumerate(self.found) if i.opname == _CLEARS]
        inside = dict[str, set[int]]()
        for k in clears:
            head = next((n for n in range(k, len(self.found)) if self.found[n].opname == "FOR_ITER"), k)
            inside.setdefault(self.found[k].argval, {*clears}).update(self.loops.get(head, ()))
        loads = [(k, i.argval) for k, i in enumerate(self.found) if _loads(i)]
        read = {name for k, name in loads if k not in inside.get(name, ())}
        return {k for k in clears if self.found[k].argval not in read}

    def _begins(self, k: int) -> bool:
        """Whether a loop that begins at an instruction has a step in any case: it is one over `range(50)`."""
        if [i.opname for i in self.found[k : k + 2]] != ["GET_ITER", "FOR_ITER"]:
            return False
        made = [i for i in self.found[max(0, k - 7) : k] if i.opname not in ("PRECALL", "PUSH_NULL", "COPY_FREE_VARS")]
        of_call = made[-1] if made and made[-1].opname == "CALL" else None
        if of_call is None or not of_call.arg or len(made) < of_call.arg + 2:
            return False
        called, *args = made[-of_call.arg - 2 : -1]
        is_range = called.opname == "LOAD_GLOBAL" and called.argval == "range"
        are_known = all(i.opname in ("LOAD_CONST", "LOAD_SMALL_INT") and type(i.argval) is int for i in args)
        return is_range and are_known and len(args) < 3 and len(range(*(i.argval for i in args))) > 0

    def _live(self) -> list[frozenset[str]]:
        """The local variables that are read before they are assigned, from each instruction on (Aho et al., section
        9.2.5)."""
        live: list[frozenset[str]] = [frozenset()] * len(self.found)
        changed = True
        while changed:
            changed = False
            for k in range(len(self.found) - 1, -1, -1):
                i = self.found[k]
                then = [k + 2] if self._begins(k) else self.following[k]
                now = frozenset[str]().union(*(live[n] for n in then))
                if stores(i):
                    now -= {i.argval}
                elif _loads(i) and k not in self.unread:
                    now |= {i.argval}
                if now != live[k]:
                    live[k], changed = now, True
        return live


def _assigned_inside(code: CodeType) -> set[str]:
    """The variables around the functions of a code object that these assign."""
    found = set[str]()
    for inner in (const for const in code.co_consts if type(const) is CodeType):
        names = {i.argval for i in instructions(inner) if i.opname in ("STORE_DEREF", "DELETE_DEREF")}
        found |= (names | _assigned_inside(inner)).intersection(inner.co_freevars)
    return found


flow_of = lru_cache(maxsize=4096)(Flow)


def position_of(i: dis.Instruction) -> Position:
    return tuple(i.positions or ())


def _what(i: dis.Instruction) -> tuple[str, object]:
    return i.opname.replace("_CHECK", ""), i.argval


def _takes_place(i: dis.Instruction) -> bool:
    return i.opname in _PLACES or (i.opname == "BINARY_OP" and "[" in i.argrepr)


def _is_jump(i: dis.Instruction) -> bool:
    return i.opcode in dis.hasjrel or i.opcode in dis.hasjabs


def is_question(i: dis.Instruction) -> bool:
    return i.opname.startswith("POP_JUMP_") and i.opname.endswith(("IF_FALSE", "IF_TRUE"))


def stores(i: dis.Instruction) -> bool:
    return i.opname.startswith(("STORE_FAST", "STORE_DEREF"))


def _loads(i: dis.Instruction) -> bool:
    return i.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE", "DELETE_FAST"))

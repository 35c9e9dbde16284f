"""Ways of a step that join where an `if` ends: n ifs one after the other are n + 1 runs of the body, and not 2**n.

    run 1   x > 0: yes      what the step has made by the end of the `if` is kept; the rest of the run is in vain
    run 2   x > 0: no       at the end of the `if` the two are one: s = where(x > 0, s of run 1, s of this run)
            y > 0: yes      kept at its end, and so on: inner ifs join inside

An `if` without `else` needs no run of its own (one_sided.py).

A question of the loop's own code, or of what that calls, has a place where its ways join (join_points.py), about which
Python tells (watching.py). Ways stay apart to the end of the step where there is none, where they leave the loop, where
lists or other objects differ, and where variables do of which no choice is one: a tensor or a number, other types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import reduce
from operator import attrgetter
from types import FrameType
from typing import Any
from weakref import ReferenceType

from hybridml_compiler.aval import Aval
from hybridml_compiler.dtypes import bool_, float64
from hybridml_compiler.errors import user_frame
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import record
from hybridml_compiler.sizes.dims import is_dim
from hybridml_compiler.walk import postorder

from ....core.aliasing import origin_of, write
from ....core.proxies.complex import ComplexProxy
from ....core.proxies.flag import FlagProxy
from ....core.proxies.integer import IntProxy
from ....core.proxies.scalar import ScalarProxy
from ....core.tensor import Tensor, like
from ...capture.loops.one_memory import root_of
from ...capture.loops.taken import raises_in_vain, scalar
from ...capture.loops.ways import joined
from ...capture.memory import is_element
from ...capture.numbers.perhaps import may_be_number
from ...capture.program_arrays import is_program, waits
from ...capture.subgraphs import fresh
from ...capture.waiting_arrays import is_chosen_in
from ..carries import are_one, computed_int, kind_of_number
from ..code_loops import flow_of
from ..held import are_same, held
from ..watching import assign
from .choices import Made, choice_of
from .join_points import JoinPoints, join_points
from .one_sided import answer_of_body

APART = "apart"  # of a loop: its ways do not join
_MISSING = object()
_inputs, _and = attrgetter("inputs"), OPS["logical_and"]
MOST_RUNS = 128  # of a step


@record(frozen=False, eq=False)
class Fork:
    """A question of this run. `join`: the offset where its ways join; all else is what there was when it was asked."""

    site: int  # the offset in the loop's own code
    join: int | None
    variables: Mapping[str, Any]
    arrays: Mapping[int, Any]  # of tensors that had been written to
    tensors: Mapping[int, ReferenceType[Tensor]]  # that the step had made
    memories: Sequence[tuple[Any, bytes]]  # of NumPy's
    held: list[Any] | None
    grown: Sequence[int]
    exits: int
    checks: int
    has_body: bool = False  # whether "yes" goes on to what is in an `if`, and "no" to the place where they join


@record(frozen=False, eq=False)
class Side:
    """State of a step that a way has made by the place where it joins the other one."""

    fork: Fork
    variables: Mapping[str, Any]
    changed: Set[str]  # those that are not what they were at the question
    memory: Mapping[str, tuple[bool, Any]]  # of tensors among these
    written: Mapping[Any, tuple[Tensor, ir.Node]]  # tensors and values, by what says which they are in the other run
    checks: Sequence[ir.Node]

    def changes(self, name: str) -> bool:
        return name in self.changed or name not in self.variables

    @property
    def does_nothing(self) -> bool:
        return not (self.changed or self.written or len(self.checks) > self.fork.checks)


NOWHERE = Fork(-1, None, {}, {}, {}, (), None, (), 0, 0)


def tensor_of(x: Any) -> Tensor | None:
    """The tensor of a variable that may have a history."""
    if type(x) in (ScalarProxy, ComplexProxy):
        return x._tensor
    if type(x) is IntProxy:
        return x._number._tensor
    return x if issubclass(type(x), Tensor) and not waits(x) else None


class CannotJoin(Exception):
    """Two ways stay apart."""


class Joins:
    """The part of a loop by which ways of its steps join."""

    loop: Any
    tracer: Any
    frame: FrameType
    region: Any
    refuse: Any
    after: dict[str, Any]
    grown: Sequence[Any]
    lists: Mapping[str, Any]
    exits: list[Any]
    states: list[Tensor]
    asked: list[ir.Node]
    answers: list[bool]
    masks: bool
    counted: set[str]
    in_steps: bool
    forks: list[Fork]
    joined: set[int]  # the numbers of questions whose ways have joined in this run
    separate: set[int]  # sites of questions whose ways do not
    there: set[ir.Node]  # nodes that were there before the last join, of the program around as well
    two_sided: set[int]  # sites of questions whose ways need a run each
    at_once: set[tuple[bool, ...]]  # answers before questions whose ways have joined in one run
    sides: dict[tuple[bool, ...], Side]  # "yes", by the answers before the question
    shows: dict[int, tuple[Tensor, ...]]  # variables that were chosen, by id, each with what it may show
    places: set[int | None]  # offsets where ways of this run join
    asked_in_vain: dict[int, Mapping[str, Any]]  # offsets where ways join of which none is kept -> variables before
    vain: int | None = None  # the number of the question with whose join a run has become vain; -1: all is begun anew
    in_vain: Any = None  # the loop around, in a run of which nothing of this one is kept: one way will do
    asks_in_vain = 0  # of the run that is the present one
    runs = 0

    def _assigned(self) -> dict[str, Any]:
        variables, counts = self.frame.f_locals, {name: of.count for name, of in self.lists.items()}
        return {name: variables[name] for name in self.loop.assigned if name in variables} | counts

    def assign(self, values: dict[str, Any]) -> None:
        """Gives local variables of the running function values."""
        for name in self.lists.keys() & values.keys():
            self.lists[name].count = values[name]
        assign(self.frame, {name: value for name, value in values.items() if name not in self.lists})

    # -- a run

    def begin_run(self) -> None:
        self.asked, self.forks, self.joined, self.vain = [], [], set(), None
        self.shows, self.places, self.asked_in_vain, self.asks_in_vain = {}, set(), {}, 0
        self.runs += 1

    @property
    def has_joined(self) -> bool:
        """Whether ways of it have joined in this round."""
        return bool(self.sides or self.at_once)

    @property
    def open(self) -> list[int]:
        """The numbers of the questions whose ways have not joined."""
        return [k for k in range(len(self.asked)) if k not in self.joined]

    def body_of(self, node: ir.Node, what: str) -> bool | None:
        """The answer to a question with which the step goes on to what is in an `if` that has nothing else."""
        site, join = self._site()
        if join is None or site in self.two_sided:
            return None
        if any(fork.has_body and fork.site == site for fork in (self.forks[k] for k in self.open)):
            self.two_sided.add(site)  # its instruction asks several questions
            self.vain = -1
            return None
        return answer_of_body(self._points(), self.frame, node, what)

    def fork(self, has_body: bool) -> None:
        """Notes what there is at a question that was not asked before in this run."""
        site, join = self._site()
        if join is None:
            self.forks.append(NOWHERE)
            return
        self.tracer.rolling.numbers.watch(self.frame)  # in Python 3.11 all calls are slower from here on
        variables = self._assigned()
        written = {id(t): t._array for t, *_ in self.region.written.values()}
        self.forks.append(Fork(
            site, join, variables, written, dict(self.region.tensors), _of_numpy(self.tracer),
            held(variables, variables), [len(g.target) for g in self.grown], len(self.exits),
            len(self.region.checks), has_body,
        ))  # fmt: skip

    def ask_in_vain(self) -> None:
        """Notes a question after the end of what is kept: nothing is to be decided by either answer."""
        self.asks_in_vain += 1
        join = self._site()[1]
        if join is not None:
            self.asked_in_vain.setdefault(join, self._assigned())

    def _site(self) -> tuple[int, int | None]:
        """The offset of what the code of the loop does now, and where the ways of a question there join."""
        frame = user_frame()
        while frame is not None and frame is not self.frame:
            frame = frame.f_back
        site = -1 if frame is None else frame.f_lasti
        if frame is None or site in self.separate or self.stays_apart():
            return site, None
        join = self._points().after(site)
        self.places.add(join)
        return site, join

    def _points(self) -> JoinPoints:
        return join_points(*self.loop.place, self.ends_of_step())

    def stays_apart(self) -> bool:
        """Whether no ways of it join. Dual numbers and batches are to know which way they go."""
        return self.tracer.stages is not None or APART in self.tracer.alone.get(self.loop.place, ())

    def ends_of_step(self) -> frozenset[int]:
        """Offsets of the instructions with which a step ends."""
        return frozenset({self.loop.place[1]})

    def arrives(self, offset: int) -> None:
        """Joins ways at an instruction that the code of the loop is about to run."""
        if offset not in self.places:
            return
        if offset in self.asked_in_vain:
            self._blur(self._assigned(), self.asked_in_vain.pop(offset))
        while self.vain is None and self.open and self.forks[n := self.open[-1]].join == offset:
            before = tuple(self.answers[:n])
            try:
                side = self._side(fork := self.forks[n])
                if fork.has_body and self.answers[n] and side.does_nothing:
                    self.two_sided.add(fork.site)
                    self.vain = -1
                elif fork.has_body and self.answers[n]:
                    self._join(n, side, self._as_before(fork, side))
                    self.joined.add(n)
                    self.at_once.add(before)
                    self.answers[n] = False  # there is no other one to be tried
                elif self.answers[n]:
                    self.sides[before], self.vain = side, n
                    self._blur(side.variables, side.fork.variables)
                elif before in self.sides:
                    self._join(n, self.sides[before], side)
                    self.joined.add(n)
                else:
                    raise CannotJoin
            except CannotJoin:
                self.keep_apart(n)

    def keep_apart(self, n: int) -> None:
        """Keeps the ways of a question apart: the runs begin anew."""
        self.separate.add(self.forks[n].site)
        self.vain = -1

    # -- a side

    def _side(self, fork: Fork) -> Side:
        region = self.region
        if len(self.exits) > fork.exits or [len(g.target) for g in self.grown] != fork.grown:
            raise CannotJoin
        if fork.held is None or not are_same(fork.held, held(fork.variables, fork.variables) or []):
            raise CannotJoin
        if any(m.is_traced or m.owner.tobytes() != before for m, before in fork.memories):
            raise CannotJoin
        variables = self._assigned()
        tensors = [*(r() for r in region.tensors.values()), *(w[0] for w in region.written.values())]
        if any(t is not None and t._node is not None for t in (*tensors, *map(tensor_of, variables.values()))):
            raise CannotJoin  # a gradient goes back the way that the step went
        if any(waits(x) for x in variables.values()):
            raise CannotJoin
        written = dict(self._written(fork))
        live = self._live(fork) & variables.keys()
        variables = {name: x for name, x in variables.items() if name in live}
        shown = {name: x for name, x in variables.items() if issubclass(type(x), Tensor)}
        changed = {name for name, x in variables.items() if x is not fork.variables.get(name, _MISSING)}
        memory = {name: self._memory(fork, t) for name, t in shown.items() if name in changed}
        new = [id(root) for is_new, root in memory.values() if is_new]
        if len({*new}) < len(new):
            raise CannotJoin  # one tensor has two names
        for of in self.lists.values():
            of.meets(shown[name] for name in memory)
        variables |= {name: like(t, t._array) for name, t in shown.items()}
        return Side(fork, variables, changed, memory, written, list(region.checks))

    def _as_before(self, fork: Fork, other: Side) -> Side:
        """The side that does nothing: what there was at the question, of tensors with the values that they had."""
        before = self._values_before(fork)
        live = self._live(fork) & fork.variables.keys()
        variables = {name: fork.variables[name] for name in live}
        shown = {name: x for name, x in variables.items() if issubclass(type(x), Tensor)}
        variables |= {name: like(t, before.get(id(t), t._array)) for name, t in shown.items() if name in other.changed}
        return Side(fork, variables, set(), {}, {}, list(self.region.checks)[: fork.checks])

    def _values_before(self, fork: Fork) -> dict[int, ir.Node]:
        """The values at a question of the tensors that have been written to, by their ids."""
        return {**{id(t): array for t, array, *_ in self.region.written.values()}, **fork.arrays}

    def _live(self, fork: Fork) -> frozenset[str]:
        assert fork.join is not None
        return flow_of(self.loop.place[0]).live_at(fork.join) | self.lists.keys()

    def _names(self, fork: Fork) -> dict[int, str]:
        """The variables that held tensors at a question, by the ids of these."""
        found = dict[int, str]()
        for name, x in fork.variables.items():
            t = x._memory.tensor if is_program(x) and x._memory.is_traced else x
            if issubclass(type(t), Tensor):
                found.setdefault(id(root_of(t)), name)
        return found

    def _was_made(self, fork: Fork, t: Tensor) -> bool:
        """Whether the step had made a tensor before a question."""
        found = fork.tensors.get(id(t))
        return found is not None and found() is t

    def _is_outside(self, t: Tensor) -> bool:
        return not self.region.has_made(t) or any(t is s for s in self.tracer.shadows.values())

    def _written(self, fork: Fork) -> Iterator[tuple[Any, tuple[Tensor, ir.Node]]]:
        """The tensors that were there before a question and have been written to since, but for views of others."""
        names = self._names(fork)
        for t, before, _ in [*self.region.written.values()]:
            if t._array is fork.arrays.get(id(t), before) or origin_of(t) is not None:
                continue
            if self._is_outside(t):
                yield id(t), (t, t._array)
            elif self._was_made(fork, t):
                if id(t) not in names:
                    raise CannotJoin
                yield names[id(t)], (t, t._array)

    def _memory(self, fork: Fork, t: Tensor) -> tuple[bool, Any]:
        """Whether a variable has memory that is new since the question, and that: a tensor from outside, or a name."""
        t = self.tracer.lift(t)
        root = root_of(t)
        if is_element(t):
            return False, None
        if self._is_outside(root):
            written = {id(w[0]) for w in self.region.written.values()}
            if id(root) in written or any(root is state for state in self.states):
                raise CannotJoin  # a later step changes what it shows
            return False, root
        if not self._was_made(fork, root):
            return True, root
        name = self._names(fork).get(id(root))
        if name is None:
            raise CannotJoin
        return False, name

    def _blur(self, variables: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        """Makes unknown what is Python's after this way alone, so that nothing is decided by it."""
        found = dict[str, Any]()
        for name, x in variables.items():
            if x is before.get(name, _MISSING):
                continue
            if type(x) is int or is_dim(x):
                self.counted.add(name)
            if type(x) is bool and name in self.loop.flags:
                found[name] = FlagProxy(self.tracer.wrap(fresh(self.tracer, Aval((), bool_))._array, True))
            elif type(x) is int and not self.in_steps:
                node = fresh(self.tracer, Aval((), float64, weak=True))._array
                found[name] = computed_int(self.tracer, ScalarProxy(self.tracer.wrap(node, True)), {node: 1.0})
        self.assign(found)

    def end_of(self, name: str) -> Any:
        """The value of a variable after a step. Elements that a step chooses are refused: nobody can ask for these."""
        end = self.after.get(name)
        if is_chosen_in(self.region.made, end):
            self.refuse(f"{name} has elements that a step chooses")
        return end

    # -- the join

    def _join(self, n: int, yes: Side, no: Side) -> None:
        """Makes one way of two, of which one is the present."""
        tracer, region = self.tracer, self.region
        others = {*yes.checks} ^ {*no.checks}
        if any(node.kind != "control" and (node.op is None or not raises_in_vain(node.op)) for node in others):
            raise CannotJoin
        if others and not self.masks:
            self.masks, self.vain = True, -1  # indices of a branch are checked where it is taken
            return
        tensors = self._both(yes, no)
        names = [name for name in sorted({*yes.variables, *no.variables}) if _differs(name, yes, no)]
        values = {name: self._choice(name, yes, no) for name in names}
        pairs = [(a, b) for _, a, b in tensors] + [(a, b) for a, b, _ in values.values()]
        postorder([self.asked[n], *(node for pair in pairs for node in pair)], _inputs, self.there)
        nodes = joined(scalar(self.asked[n]), [a for a, _ in pairs], [b for _, b in pairs], self._around(n))
        region.made.update(postorder(nodes, _inputs, self.there))
        for (t, *_), node in zip(tensors, nodes, strict=False):
            write(t, tracer.wrap(node), "if")
        chosen = zip(values.items(), nodes[len(tensors) :], strict=True)
        found = {name: make(node) for (name, (*_, make)), node in chosen}
        region.checks.update(dict.fromkeys(yes.checks))
        self._note_memory(found, yes, no)
        self.forks[n] = NOWHERE
        self.assign(found)

    def _around(self, n: int) -> ir.Node | None:
        """The answers to other questions with which the steps of loops come to where the ways of this one join."""
        conditions = [scalar(q) for loop in self.tracer.loops for q in loop.conditions(but=n if loop is self else None)]
        return reduce(lambda a, b: ir.apply(_and, [a, b]), conditions) if conditions else None

    def _both(self, yes: Side, no: Side) -> list[tuple[Tensor, ir.Node, ir.Node]]:
        """The tensors that either side has written to, with the values that they have after each."""
        before = self._values_before(no.fork)
        found = []
        for key in {**yes.written, **no.written}:
            t = yes.written[key][0] if key in yes.written else no.written[key][0]
            if type(key) is str:
                x = no.fork.variables[key]
                if is_program(x) and not x._memory.is_traced:
                    raise CannotJoin
                t = root_of(x._memory.tensor if is_program(x) else x)
            now = before.get(id(t), t._array)
            after = [side.written[key][1] if key in side.written else now for side in (yes, no)]
            if any(may_be_number(self.tracer, node) for node in after):
                raise CannotJoin
            found.append((t, after[0], after[1]))
        return found

    def _choice(self, name: str, yes: Side, no: Side) -> tuple[ir.Node, ir.Node, Made]:
        a, b = yes.variables.get(name, _MISSING), no.variables.get(name, _MISSING)
        found = choice_of(self.tracer, a, b)
        if found is None or (kind_of_number(a) == "flag" and name not in self.loop.flags):
            raise CannotJoin
        return found

    def _note_memory(self, chosen: Mapping[str, Any], yes: Side, no: Side) -> None:
        """Notes whose memory variables may be in: an update of one is an update of others."""
        for name, t in chosen.items():
            if not issubclass(type(t), Tensor) or is_element(t):
                continue
            roots = []
            for side in (yes, no):
                is_new, root = side.memory.get(name, (False, name))
                if type(root) is str:
                    root = root_of(self.tracer.lift(no.fork.variables[root]))
                roots += [] if is_new else [root, *self.shows.get(id(root), (root,))[1:]]
            self.shows[id(t)] = (t, *roots)
            if roots:
                self.tracer.marked.mark([t, *roots], self.loop.place, (APART,))


def _differs(name: str, yes: Side, no: Side) -> bool:
    if not any(side.changes(name) for side in (yes, no)):
        return False
    a, b = yes.variables.get(name, _MISSING), no.variables.get(name, _MISSING)
    kinds = [side.memory.get(name) and side.memory[name][0] for side in (yes, no)]
    return not are_one(a, b) or kinds[0] is not kinds[1]


def _of_numpy(tracer: Any) -> list[tuple[Any, bytes]]:
    """The memory of arrays that is NumPy's now, with what it holds."""
    memories = {id(m): m for r in tracer.arrays if (x := r()) is not None and not (m := x._memory).is_traced}
    return [(m, m.owner.tobytes()) for m in memories.values()]

"""The capture of a loop by one step: what a step does for any step.

A step runs as often as it takes to know what goes from one to the next: local variables that it assigns, tensors that
it updates, lists that it appends to. Then the loop is one node of the program, and the variables have the values of the
last step. Questions about data that leave the loop (`break`, the condition of a `while`) are answered as if it went on,
and what the loop carries is chosen:

    if err < tol: break         go = not (err < tol)        u = where(err < tol, u where it was asked, u after the step)

What cannot be said of all steps at once (a condition on the number that is not always true or never, a value that is
asked for) has the trace begin anew, with that loop step by step (see `Entry.grow`).
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NoReturn

from hybridml_compiler.dtypes import int64
from hybridml_compiler.graph import ir
from hybridml_compiler.sizes.dims import Size, bounds, is_dim

from ...core.context import clock
from ...core.proxies.flag import FlagProxy
from ...core.proxies.integer import IntProxy
from ...core.tensor import Tensor, aval_of, like
from ..capture.loops.branches import Branch, following
from ..capture.loops.data_sizes import DataSizes
from ..capture.loops.loop import zeros
from ..capture.loops.one_memory import WHICH
from ..capture.loops.step_tensors import is_part
from ..capture.loops.taken import raises_in_vain
from ..capture.numbers.perhaps import may_be_number
from ..capture.program_arrays import has_memory, has_tensor, is_over
from ..capture.subgraphs import enter, fresh, leave, snapshot, written_around
from ..capture.tracer import Frame, Tracer
from ..specialize.errors import StepByStep
from .aliases import check_memory, check_new_arrays, own_numbers, shared, sums_of
from .carries import (
    Carry,
    are_one,
    as_tensor,
    as_variable,
    carry_of,
    is_double,
    is_like,
    is_numpy_scalar,
    kind_of_number,
    single_of,
    tensor_in,
    value_of_end,
)
from .code_loops import CodeLoop
from .held import CONSTANTS, are_same, held
from .histories import histories_known
from .lists.grown import Grown, is_new, lists_of
from .lists.of_data import DataList, lists_of_data, note_lists, refuse_lists
from .number_types import begin_flag, compute_as_floats, computes_as_number, end_flag, finds_flags
from .questions import Exit, Questions, taken_after
from .taken import check_taken, refuse_update, take_over
from .ways.joins import APART

_ROUNDS = 16  # of a step, until all that it carries on is known
MOST_PARTS = 8  # of a loop, and steps that are by themselves
_MISSING = object()
_KNOWN = (int, type(None))


class Capture(Questions):
    """A loop while it is captured."""

    length: Size | None = None  # steps at most
    name = ""  # of the symbol that is the number of a step
    most: Size = 0  # the greatest value of that
    position: Any = None  # of the question from which to which a step goes
    home = 0  # the way out where no other one was taken
    parallel = False  # whether threads may share the steps
    is_nest = False  # with too few steps to be captured, but for what loops in it make
    in_steps = False  # whether there is such a number, and ints are polynomials in it

    def __init__(self, tracer: Tracer, loop: CodeLoop, frame: types.FrameType) -> None:
        self.tracer, self.loop, self.place, self.frame = tracer, loop, loop.place, frame
        self.carries: dict[str, Carry] = {}
        self.last: dict[str, Carry] = {}  # tensors and floats that are only read after it
        self.states: list[Tensor] = []  # tensors from outside that it updates
        self.given: list[Tensor] = []
        self.rounds, self.answers = 0, list[bool]()  # to what this step asks, and those before it
        self.branches: list[Branch[Tensor]] = []
        self.made, self.there = set[ir.Node](), set[ir.Node]()
        self.separate, self.two_sided = set[int](), set[int]()
        self.sides, self.at_once = {}, set[tuple[bool, ...]]()
        self.arrays_before: dict[str, set[str | None]] = {}  # whose array a variable is after a step: None of a new one
        self.taken: dict[str, Tensor | None] = {}  # variables whose memory is its own; None of such as are not yet
        self.of_floats = set[ir.Node]()
        self.origins: dict[str, list[Tensor]] = {}  # of variables: what they may be views of after a step, or are
        self.twice, self.views = set[str](), set[str]()  # variables that may be others after a step, or views
        self.chosen: dict[str, list[Tensor]] = {}  # the same of those that `max` or `min` gives
        self.histories: list[Any] = []  # of what it makes, whatever the answers are
        self.recorded: set[Any] = set()  # names and ids of what has a history after a step, and none before the loop
        self.flagged: dict[str, Any] = {}  # variables that may be numbers after a step, and of what type if they are
        self.counted: set[str] = set()  # ints that are no polynomials in the number of a step
        self.grown: list[Grown] = []
        self.lists: dict[str, DataList] = {}  # that grow where data decides, by the names of their counts
        self.appended: dict[str, int] = {}  # items that the step which runs has appended to them
        self.nests: dict[Any, int] = {}  # places of short loops in a step -> operations on few elements before them
        self.is_left = False  # before its last step, by a question about data

    def refuse(self, why: str) -> NoReturn:
        loops = [loop for loop in (self.in_vain, self) if loop is not None]
        may_join = [loop for loop in loops if loop.has_joined and not loop.stays_apart()]
        raise StepByStep((may_join or [self])[0].place, why, (APART,) if may_join else ())

    def refuse_number(self, why: str) -> NoReturn:
        """Refuses a step that does what tensors alone do with what is a number of Python's in the first one."""
        self.refuse(why)

    # -- a step

    def begin(self) -> None:
        """Begins a step in a region of its own."""
        tracer, variables = self.tracer, self.frame.f_locals
        if self.rounds >= _ROUNDS:
            self.refuse("each step updates other tensors")
        if not self.rounds:
            around = tracer.loops[-1] if tracer.loops else None
            if around is not None:
                self.in_vain = around if around.vain is not None else around.in_vain
            if not all(is_over(x) or x._memory.becomes_traced() for r in tracer.arrays if (x := r()) is not None):
                self.refuse("NumPy has memory of an array")
            self.lists = lists_of_data(self)
            self.loop, variables = self.loop.with_variables(self.lists), self.frame.f_locals
            self.before = self._assigned()
            self.own = own_numbers(self, variables)
            self.carries = self.first_carries()
            self.held = self._held()
            self.grown = lists_of(self, variables)
        self.begin_run()
        self.appended, self.instructions = {}, 0
        self._forget()
        if not self.branches and not self.answers:
            self.begin_round()
        tracer.loops.append(self)
        self.region = enter(tracer)
        self.outside = [(t, t._array, t._node) for t in self.states]
        self.grads = [*chain(*tracer.grads())]
        self.said = tracer.ask, tracer.prints, tracer.logs, tracer.clocks
        tracer.ask, tracer.prints, tracer.logs, tracer.clocks = self.question, self._says, self._says, None
        for state, t in zip(self.states, self.given, strict=True):
            state._array, state._node = t._array, t._node
        self.assign({name: self.variable(carry) for name, carry in self.carries.items()})

    def first_carries(self) -> dict[str, Carry]:
        """The variables that are values of the graph from the first round on."""
        return {}

    def _held(self) -> list[Any] | None:
        """Lists the objects that a step may see, with their contents: they must be the same after it."""
        return held(self.frame.f_locals, self.loop.held, self.loop.cells)

    def begin_round(self) -> None:
        """Makes inputs for all that is known to go from one step to the next."""
        self.rounds += 1
        self.into_arrays: list[Any] = []  # of what it writes to NumPy's arrays
        self.sides, self.at_once, self.made, self.runs = {}, set(), set(), 1
        self.origins, self.chosen = {}, {}
        self.sizes, self.since = DataSizes.of(self.tracer, self.place), clock()
        self.given = [self.input(t, id(t)) for t in self.states]
        self.types: dict[str, Carry] = {}
        for name, carry in self.carries.items():
            if carry.kind != "int":
                carry.given = self.input(self.start_of(name, carry), name)
                if carry.kind == "tensor":
                    begin_flag(self, name, carry)

    def variable(self, carry: Carry) -> Any:
        """The value that a variable begins a step with."""
        assert carry.given is not None
        return as_variable(self.tracer, carry, carry.given)

    def input(self, start: Any, key: Any = None) -> Tensor:
        """An input of the region for a value, which is not among the tensors that a question may give out. It has a
        history where that has one before some step: eager code may refuse what asks for `requires_grad`."""
        t = as_tensor(self.tracer, start)
        given = fresh(self.tracer, aval_of(t))
        return like(given, given._array, given._node if t._node is not None or key in self.recorded else None)

    def start_of(self, name: str, carry: Carry) -> Tensor:
        """The value of a variable before the first step."""
        return as_tensor(self.tracer, carry.start)

    def _says(self, *args: Any, **kwargs: Any) -> NoReturn:
        self.refuse("a step prints or logs")

    def _as_now(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Variables of which a sum is the value that it has now: `s += v` updates it in place, once it is a tensor."""
        sums = sums_of(self) | {id(self.carries[name].given) for name in self.taken if name in self.carries}
        return {name: like(t, t._array, t._node) if id(t) in sums else t for name, t in variables.items()}

    def end(self, go: ir.Node | None = None) -> bool:
        """Ends a step; whether all that goes from one to the next was known before it. `go`: whether there is a
        further one."""
        tracer, region = self.tracer, self.region
        self.after = self._assigned()
        self.next = [snapshot(tracer, t) for t in self.states]
        for grown in self.grown:
            grown.take_back()
        self.made |= region.made
        if self.vain is not None:
            return self._end_in_vain()
        self.items = self._items(region)
        check_new_arrays(self)
        views = len(self.views)
        memory = shared(self, self.after)
        self.after = self._as_now(self.after)
        check_taken(self, memory)
        for of in self.lists.values():
            of.check(self, region)
        found = self._leave(region)
        self._check_unchanged()
        if take_over(self, found):
            self.held = self._held()
            return self._again(False)
        self.states += found
        check_memory(self, memory)
        if (n := next((k for k in self.open if tuple(self.answers[:k]) in self.sides), None)) is not None:
            self.keep_apart(n)  # its other way has joined, and this one does not come to that
            return self._again(False)
        known = not found and self.learn() and self._branched(region, go) and len(self.views) == views
        self.answers = (following(self.answers) or []) if known else []
        if known and not self.answers:
            return True
        return self._again(known)

    def _again(self, known: bool) -> bool:
        if not known:
            self.branches, self.answers = [], []
        self.assign({name: self.before.get(name) for name in self.after})
        self._forget()
        return False

    def _end_in_vain(self) -> bool:
        """Ends a run of which only a side is kept, and what it tells of all that goes on."""
        n, region = self.vain, self.region
        found = self._leave(region)
        self._check_unchanged()
        self.states += found
        if n is None or n < 0:
            self.rounds -= 1
            return self._again(False)
        known = not found and self.learn() and self._ends_known(region)
        self.answers = following(self.answers[: n + 1]) or []
        return self._again(known)

    def _check_unchanged(self) -> None:
        if not are_same(self.grads, [*chain(*self.tracer.grads())]):
            self.refuse("a step sets gradients")
        now = self._held()
        if self.held is None or now is None or not are_same(self.held, now):
            why = "a step may change a container or an object"
            note_lists(self, why, self.loop.read - self.loop.grown)
            self.refuse(why)

    def _forget(self) -> None:
        """Drops what a step has made: a view that somebody holds is made anew with each update of what it shows."""
        self.exits, self.after, self.items, self.next = list[Exit](), dict[str, Any](), list[Tensor](), list[Tensor]()
        for grown in self.grown:
            grown.items = []

    def _branched(self, region: Frame, go: ir.Node | None) -> bool:
        """Notes what this step has made of all that goes on, for the answers that it was given; False where that is not
        known, after all."""
        if not self._ends_known(region):
            return False
        if not self.branches:
            self.outs = dict[int, Exit]()
            self.checks, self.histories = list(region.checks), []
            self.last, self.also = self._last(), dict[ir.Node, None]()
            self.leaving = list[tuple[Branch[Tensor], bool]]()  # and whether the step has grown lists by then
            self.named = {name: self.after.get(name) for name in self._others()}
            self.of_first = [grown.items for grown in self.grown]
        elif self.checks != list(region.checks):
            differ = {*self.checks} ^ {*region.checks}
            if any(node.kind != "control" and (node.op is None or not raises_in_vain(node.op)) for node in differ):
                self.refuse("a branch checks a value")
            if not self.masks:
                self.masks = True
                return False
            self.checks = [*dict.fromkeys([*self.checks, *region.checks])]
        if any(not are_one(self.after.get(name), self.named.get(name)) for name in self._others()):
            self.refuse("a variable that is read after it has another value in each branch")
        pairs = zip(self.grown, self.of_first, strict=True)
        if unlike := [grown for grown, items in pairs if not grown.has_like(items)]:
            refuse_lists(self, "a list gets other items in each branch", unlike)
        if not histories_known(self):
            return False
        if not compute_as_floats(region, self.of_floats):
            raise StepByStep(None, "what max() or min() gives may be a float", (WHICH,))
        if finds_flags(self):
            return False
        values = self._values(self.after, self.next)
        before = [c.given for c in self._carried().values()] + self.given
        questions, answers, last = list[ir.Node](), list[bool](), 0
        for exit in self.exits:
            since, last = [k for k in self.open if last <= k < len(exit.answers)], len(exit.answers)
            questions += [self.asked[k] for k in since]
            answers += [self.answers[k] for k in since]
            at = self._values(exit.variables, exit.states)
            self.outs.setdefault(exit.way, exit)
            keeps = [*exit.grown] == [len(grown.items) for grown in self.grown]
            if any(exit.grown) and not keeps:
                refuse_lists(self, "a list gets some of the items of a step where it is left", self.grown)
            is_same = all(t is not None and t._array is a._array for t, a in zip(before, at, strict=True))
            if go is not None and exit.way == self.home and is_same and not any(exit.grown):
                self.also[taken_after(questions, answers, exit)] = None
                continue
            others = [n for n in self._others() if self.after.get(n) is not exit.objects.get(n) or n in exit.numbers]
            apart = [n for n in others if not are_one(self.after.get(n), exit.variables.get(n))]
            if apart and self.carries.keys() >= {*apart}:
                return self._count(apart)
            if apart:
                self.refuse(f"{apart[0]} has another value where it is left")
            questions.append(exit.leaves)
            flags = self._flags(ir.constant(False), exit.way)
            way = Branch(tuple(questions), (*answers, True), [*at, *flags, *self.items])
            if all(
                (b.asked, b.answers) != (way.asked, way.answers) for b, _ in self.leaving
            ):  # before another question
                self.leaving.append((way, keeps))
            answers.append(False)
        if self.is_left:
            values += self._flags(ir.constant(True) if go is None else go, self.home)
        since = [k for k in self.open if k >= last]
        questions, answers = (
            [*questions, *(self.asked[k] for k in since)],
            [*answers, *(self.answers[k] for k in since)],
        )
        self.branches.append(Branch(tuple(questions), tuple(answers), [*values, *self.items]))
        if self.varies and any(g.items for g in self.grown) and not (self.is_left and type(self.length) in _KNOWN):
            refuse_lists(self, "a list grows, and how many steps it takes comes with the call", self.grown)
        return True

    def _ends_known(self, region: Frame) -> bool:
        """Whether it was known that a step may leave the loop, and that some of its checks are for some ways."""
        if self.exits and not self.is_left:
            self.is_left = True
            return False
        if not self.masks and self.exits and [*region.checks.keys()][self.exits[0].checks :]:
            self.masks = True  # what comes after a way out is checked in steps that come to it
            return False
        return True

    def _flags(self, node: ir.Node, way: int) -> list[Tensor]:
        """A flag of a step and its way out, which are not among the tensors that a question may give out."""
        nodes = [node, ir.constant(way, int64)] if self.has_ways else [node]
        return [like(self.tracer.wrap(n), n) for n in nodes]

    @property
    def has_ways(self) -> bool:
        """Whether Python asks which way it was left."""
        return any(way and not self.is_joined(position) for position, way in self.loop.ways.items())

    def _count(self, names: Sequence[str]) -> bool:
        """Makes ints numbers of the graph, from the next step on."""
        self.counted.update(names)
        self.carries = {name: carry for name, carry in self.carries.items() if name not in names}
        return False

    def _items(self, region: Frame) -> list[Tensor]:
        """The tensors that the step appends to lists."""
        found = []
        arrays = [id(c.shown._memory) for c in self.carries.values() if has_memory(c.shown)]
        for grown in self.grown:
            values = grown.values(region)
            arrays += [id(x._memory) for x in grown.leaves if has_memory(x)]
            if values is None or len({*arrays}) < len(arrays):
                refuse_lists(self, "a list gets an item that may be changed later", [grown])
            if any(may_be_number(self.tracer, t._array) for t in values):
                self.refuse("a list gets what may be a number")
            found += values
        return found

    def _carried(self) -> dict[str, Carry]:
        """The variables for which the loop has a value of the graph."""
        return {name: carry for name, carry in self.carries.items() if carry.kind != "int"} | self.last | self.types

    def _others(self) -> list[str]:
        return [name for name in self.loop.after if name not in self._carried()]

    def _values(self, variables: Mapping[str, Any], states: Sequence[Tensor]) -> list[Tensor]:
        """The values of all that a loop carries, as they are now: a later step writes to the same tensors."""
        found = []
        for name, carry in self._carried().items():
            if carry.kind == "type":
                found.append(end_flag(self, carry, variables.get(carry.of)))
                continue
            value = variables.get(name)
            if not is_like(value, carry):
                self.refuse(self.changes(name))
            found.append(value_of_end(self.tracer, carry, value))
        self.histories += [t._node for t in (*found, *states, *self.items)]
        return [like(t, t._array, t._node) for t in (*found, *states)]

    def _last(self) -> dict[str, Carry]:
        """The variables that are read after the loop, and are no carries: the last step has their values."""
        found: dict[str, Carry] = {}
        for name in self.loop.after:
            end = self.after.get(name, _MISSING)
            if name in self.carries or end is _MISSING or end is self.before.get(name, _MISSING):
                continue
            if type(end) is int or is_dim(end):
                continue
            if type(end) in CONSTANTS and name in self.before and are_one(end, self.before[name]):
                continue
            number = "count" if type(end) is IntProxy else kind_of_number(end)
            number = None if number == "flag" and name not in self.loop.flags else number
            if not number and not (issubclass(type(end), Tensor) and (not is_part(end) or is_new(end, self.region))):
                self.refuse(f"{name} is read after it")
            if (name in self.loop.always or self.home) and not self.is_sure_to_begin():
                self.refuse(f"{name} is read after it")
            t = as_tensor(self.tracer, end)
            start = zeros(t)
            kind: Any = number or "tensor"
            self.recorded.add(name)
            found[name] = carry = Carry(kind, start, given=self.input(start, name), is_double=is_double(end))
            carry.is_element = kind == "tensor" and is_numpy_scalar(end)
            carry.is_part = kind == "tensor" and is_part(end)
            if kind == "tensor":
                begin_flag(self, name, carry)
        return found

    def has_steps(self) -> bool:
        """Whether there is a step in any case."""
        return self.length is not None and (bounds(self.length) or 0) > 0

    def is_sure_to_begin(self) -> bool:
        """Whether there is a step; a question of the program, before another trace, where that can be asked."""
        return self.has_steps()

    def _leave(self, region: Frame) -> list[Tensor]:
        """Leaves the region, with all outside as it was before; tensors from outside that were found to be updated."""
        tracer = self.tracer
        leave(tracer)
        assert tracer.loops.pop() is self
        tracer.ask, tracer.prints, tracer.logs, tracer.clocks = self.said
        written = written_around(tracer, region)
        for t, array, node in reversed([*self.outside, *written]):
            t._array, t._node = array, node
        sums = sums_of(self)
        written = [w for w in written if id(w[0]) not in sums]
        if any(may_be_number(tracer, array) for _, array, _ in written):
            self.refuse("a number that changes its type is updated in place")
        carried = {id(carry.given): name for name, carry in self.carries.items()}
        refuse_update(self, [carried[id(t)] for t, *_ in written if id(t) in carried])
        others = [t for t, *_ in written if id(t) not in carried]
        for t in (*self.states, *others):  # histories hold views, which later steps do not write to
            if type(t._version) is list:
                t._version[1:] = [r for r in t._version[1:] if (v := r()) is not None and not region.has_made(v)]
        region.written.clear()  # it holds views that end with the step
        return [t for t in others if all(t is not state for state in self.states)]

    def learn(self) -> bool:
        """Whether all variables that are carried on were known to be; finds those that a step has changed."""
        known = True
        for name in self.loop.carried:
            if name not in self.before:
                self.refuse(f"{name} may have no value before it")
            start, end, carry = self.before[name], self.end_of(name), self.carries.get(name)
            if carry is None:
                if end is start or (type(start) in CONSTANTS and are_one(end, start)):
                    continue
                by_steps = self.in_steps and name not in self.counted and IntProxy not in (type(start), type(end))
                carry, known = self.carry_of(name, start, end, by_steps), False
                if carry is None and name in self.loop.stored and self.may_not_begin():
                    carry = single_of(self.tracer, start, end)
                if carry is not None and carry.kind == "array" and not (has_tensor(end) or self._meets_data()):
                    carry = None  # NumPy computes all of it now
                if carry is not None:
                    self.carries[name] = carry
            elif carry.kind == "int":
                known = (self.grows(carry, end) or self._count([name])) and known
            elif not is_like(end, carry) or (carry.is_single and not computes_as_number(self.region, carry)):
                other = None if carry.kind == "tensor" else self.carry_of(name, start, end)
                carry, known = other, False
                if carry is not None:
                    self.carries[name] = carry
            if carry is None:  # it may have another type in all steps but the first
                self.begin_later(name)
                return False
        return self._learn_numbers() and known

    def _meets_data(self) -> bool:
        """Whether data has been seen to have a part in what a step does."""
        return bool(self.asked or self.exits or self.states or any(c.kind == "tensor" for c in self.carries.values()))

    def _learn_numbers(self) -> bool:
        """The same for numbers that are assigned on ways out."""
        known = True
        for name, value in [item for exit in self.exits for item in exit.numbers.items()]:
            if name in self.carries or name not in self.loop.after:
                continue
            start = self.before.get(name)
            carry, known = self.carry_of(name, start, value), False
            if carry is None or carry.kind == "tensor":
                self.refuse_to_join(f"{name} changes its type")
            self.carries[name] = carry
        return known

    def carry_of(self, name: str, start: Any, end: Any, by_steps: bool = False) -> Carry | None:
        found = carry_of(self.tracer, start, end, by_steps, self.may_be_either)
        if found is None or found.kind != "flag":
            return found
        by_data = FlagProxy in (type(start), type(end)) or self.exits or any(k != self.vain for k in self.open)
        return found if name in self.loop.flags and by_data else None

    def grows(self, carry: Carry, end: Any) -> bool:
        """Whether an int goes on as the first step said."""
        return False

    def begin_later(self, name: str) -> None:
        """Begins after a step that is by itself: a variable has another type before it."""
        self.refuse(self.changes(name))

    def changes(self, name: str) -> str:
        """The words for what a step does to a variable that does not go on."""
        start, end = self.before.get(name), self.after.get(name)
        if type(start) is type(end) and type(end) in CONSTANTS:
            return f"a step sets {name} to {end!r}"
        t: Any = end if issubclass(type(end), Tensor) and end is not None and end.shape == () else None
        return f"{name} changes its type" + (f" to that of a {t.dtype.name} tensor" if t is not None else "")

    @property
    def varies(self) -> bool:
        """Whether data or a loop around it decides how many steps it takes."""
        return self.is_left or type(self.length) is not int

    @property
    def has_gradient(self) -> bool:
        """Whether a gradient of it knows how many steps to keep."""
        return not self.is_left or type(self.length) is int

    def may_be_either(self, end: Any) -> bool:
        """Whether a variable that is a number before it, and a tensor after this step, may be either after any."""
        t = tensor_in(end)
        return bool(self.asked) or (t is not None and may_be_number(self.tracer, t._array)) or self.may_not_begin()

    def may_not_begin(self) -> bool:
        """Whether a variable that a step makes a tensor of is one from the start, as there may be no step."""
        return self.length is not None and not self.has_steps()

"""Lists that grow where data decides: a buffer for each part of an item, and a count, which go from step to step.

    found = []                              starts, ends = zeros(n), zeros(n)    count = 0
    for i in range(n):
        if inside and x[i] < low:
            found.append((start, i))        starts[count], ends[count] = start, i    count += 1
    return found                            each call makes the list of what is in the buffers

They are as long as the loops around may make them, or have a guessed length, about which Python asks after the loop. An
index beyond the list is found by a check: Python makes the call then, with its results or its error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import partial
from itertools import chain
from types import CodeType, FrameType
from typing import Any, NoReturn

from hybridml_compiler.dtypes import int64
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import record
from hybridml_compiler.sizes.dims import Size, at_most, bounds, hint, is_dim, steps_of

from ....core.context import no_grad
from ....core.proxies.base import Proxy
from ....core.proxies.integer import IntProxy
from ....core.tensor import Tensor
from ...capture.loops.counts import can_ask
from ...capture.loops.one_memory import memory_of, root_of
from ...capture.loops.taken import fails_where
from ...capture.tracer import Frame, Tracer
from ...specialize.errors import StepByStep
from ..carries import is_number
from ..code_loops import CodeLoop
from ..taken import tensor_of
from .grown import Grown
from .items import CONSTANTS, Leaf, form_of, leaves_in, put_together, python_array, python_list
from .uses import Uses, grows_by_data, lists_in, stacks_of

FULL = "whether a list is longer than was thought"
_GUESSED = 1 << 10  # items, where nothing tells how many there may be; then 8 times as many, and so on
_MOST = 1 << 24  # items for which there is a place, however few there are
_SLACK = 8  # places for items that are appended after a loop


class _Items:
    """The iterator of a list: its items by their numbers, which a loop may be captured by."""

    def __init__(self, of: DataList, numbers: Iterator[Any]) -> None:
        self._of, self._numbers = of, numbers

    def __iter__(self) -> _Items:
        return self

    def __next__(self) -> Any:
        return self._of.item(next(self._numbers))


class Shown(Proxy):
    """A list as it is at a moment: when the call ends it is made, or what a function makes of it."""

    __slots__ = ("_form", "_function", "_is_reversed", "_of", "_operands")
    _kind = property(type)

    def __init__(self, of: DataList, is_reversed: bool = False) -> None:
        self._of, self._is_reversed = of, is_reversed
        self._function: Callable[..., Any] | None = None
        self._form, self._operands = of.now()

    def as_array(self, function: Callable[..., Any]) -> Shown:
        """The array that a function makes of it. `of_arrays`: of an array of the items as well; others refuse none."""
        self._function = function
        if not getattr(function, "of_arrays", False):
            self._of.check_some()
        return self

    def late(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        function = self._function
        if self._form is None:
            return (list if function is None else partial(function, [])), ()
        if function is None and self._of.is_shared:
            self._of.refuse("a list of tensors is returned that others may be")
        make = python_list if function is None else partial(python_array, function)
        return partial(make, self._form, self._is_reversed), self._operands


@record
class Listed:
    """Note about a loop (see specialize/errors.py): the list of this variable is one of the program. `times`: how often
    it was longer than was thought; -1: it is none."""

    name: str
    times: int = 0


class DataList(Proxy):
    """A list of the program. `place`: of the loop with which it has become one, `home`: the number of loops around
    that."""

    __slots__ = ("_base", "_buffers", "_capacity", "_form", "_frames", "_guess", "_is_guessed", "_most", "_roots",
                 "_sites", "_start", "_token", "_tracer", "_uses", "count", "home", "is_shared", "name",
                 "place")  # fmt: skip
    _kind = property(type)  # code that knows nothing of it must not take it for a list

    def __init__(self, tracer: Tracer, place: Any, name: str, uses: Uses, times: int) -> None:
        self._tracer, self.place, self.name = tracer, place, name
        self._uses, self._sites = uses, uses.appends
        self.home, self._frames = len(tracer.loops), len(tracer.frames)
        self.count: Any = 0  # an int, that of a step's number, or one of the program
        self._form: Any = None  # of an item, once there is one
        self._buffers: list[Tensor] = []
        self._base: list[ir.Node] = []  # their values before the loops that run now
        self._capacity: Size = 0
        self._most: Size = 0  # of `count`, and what that was before these loops
        self._start: Size = 0
        self._guess, self._is_guessed = _GUESSED << 3 * times, False
        self._roots: dict[int, Tensor] = {}  # whose memory items may be in
        self._token: list[Tensor] = []  # of the marks of these
        self.is_shared = False  # whether an item may be a tensor that is elsewhere as well

    # -- what code does with it

    def append(self, item: Any) -> None:
        form = form_of(self._tracer, item, self._uses.is_read)
        if form is None or (self._form is not None and form != self._form):
            self.refuse("a list gets items of several kinds, or of one that is not known")
        if self._form is None:
            self._form = form
            self._buffers = [self._made(leaf, 1) for leaf in leaves_in(form)]
            self._base = [t._array for t in self._buffers]
        self._make_room()
        at = self.count
        if self._is_guessed:
            at = OPS["minimum"].fn(self._int(at), self._int(self._capacity))
        self._put(at, item)
        self.count = self.count + 1
        if not self._tracer.loops[self.home :]:
            self._most = self._most + 1

    def pop(self) -> Any:
        found = self[-1]
        self.count = self.count - 1
        return found

    def reverse(self) -> None:
        for t in self._buffers:
            size = t.shape[0]
            at = OPS["arange"].fn(start=0, stop=size, step=1, dtype=int64)
            count = OPS["minimum"].fn(self._int(self.count), self._int(size))
            with no_grad():
                t[...] = OPS["take"].fn(t, OPS["where"].fn(at < count, count - 1 - at, at), 0)

    def __getitem__(self, key: Any) -> Any:
        if type(key) is slice:
            if (key.start, key.stop, key.step) != (None, None, -1):
                self.refuse("a slice of a list is read")
            return Shown(self, is_reversed=True)
        if self._form is None:
            self.refuse("an empty list is read")
        return self.item(self._place(key))

    def item(self, at: Any) -> Any:
        """The item at a place that there is."""
        leaves, at = list(leaves_in(self._form)), self._int(at)
        with no_grad():
            read = [leaf.read(self._tracer, t[at]) for leaf, t in zip(leaves, self._buffers, strict=True)]
        memory = [x for leaf, x in zip(leaves, read, strict=True) if leaf.is_memory]
        if memory:
            self.is_shared = True
            self.mark(memory)
        return put_together(self._form, iter(read))

    def __setitem__(self, key: Any, item: Any) -> None:
        if self._form is None or form_of(self._tracer, item, self._uses.is_read) != self._form:
            self.refuse("a list gets items of several kinds, or of one that is not known")
        self._put(self._place(key), item)

    def __iter__(self) -> Iterator[Any]:
        numbers = self._tracer.rolling.range(sys._getframe(1), (self.count,))
        return _Items(self, iter(numbers))

    def __bool__(self) -> bool:
        return bool(self.count > 0)

    def __len__(self) -> int:
        return int(self.count)

    def as_array(self, function: Callable[..., Any]) -> Shown:
        """The array that a function of NumPy makes of it, when the call ends."""
        return Shown(self).as_array(function)

    def late(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return Shown(self).late()

    def now(self) -> tuple[Any, Sequence[Any]]:
        """The form of an item, and the count with the present values of the buffers."""
        return self._form, (self.count, *(self._tracer.wrap(t._array) for t in self._buffers))

    def check_some(self) -> None:
        """Adds a check that there are items: Python makes a call in which there are none."""
        fails_where(self._tracer, self._int(self.count) < 1)

    def refuse(self, why: str) -> NoReturn:
        """Begins the trace anew, with a list of Python's."""
        raise StepByStep(self.place, why, (Listed(self.name, -1),))

    # -- its memory

    def _put(self, at: Any, item: Any) -> None:
        tracer, parts = self._tracer, _parts(item)
        with no_grad():
            for leaf, t in zip(leaves_in(self._form), self._buffers, strict=True):
                value = next(parts)
                if leaf.is_memory:
                    root = root_of(tracer.lift(value))
                    self.is_shared |= id(root) in self._roots or not self._is_new(root)
                    self._roots[id(root)] = root
                t[at] = leaf.stored(tracer, value)

    def _is_new(self, t: Tensor) -> bool:
        """Whether a tensor is one that the present step has made, and no choice of others."""
        tracer = self._tracer
        return bool(tracer.loops) and tracer.loops[-1].region.has_made(t) and not tracer.marked.is_marked(t)

    def _place(self, key: Any) -> Tensor:
        """The place of an item, which is checked."""
        at: Any = self._int(key)
        count = self._int(self.count)
        if type(key) is not int:
            at = OPS["where"].fn(at < 0, at + count, at)
        elif key < 0:
            at = count + key
        fails_where(self._tracer, OPS["logical_or"].fn(at < 0, at >= count))
        return at

    def _int(self, value: Any) -> Any:
        """An int as an int64 of the program."""
        if type(value) is IntProxy:
            return value.as_index()
        if type(value) is int or is_dim(value):
            return OPS["full"].fn(shape=(), value=value, dtype=int64)
        if issubclass(type(value), Tensor) and value.dtype.kind in "iu" and value.shape == ():
            return OPS["astype"].fn(value, int64)
        self.refuse("a list is read at a place that is no int")

    @contextmanager
    def _at_home(self) -> Iterator[None]:
        """A context in which values are made before the loops that run now."""
        tracer = self._tracer
        frames, loops = tracer.frames, tracer.loops
        tracer.frames, tracer.loops = frames[: self._frames], loops[: self.home]
        try:
            with no_grad():
                yield
        finally:
            tracer.frames, tracer.loops = frames, loops

    def _made(self, leaf: Leaf, length: Size) -> Tensor:
        value = False if leaf.dtype.kind == "b" else 0
        params = {"shape": (length, *leaf.shape), "value": value, "dtype": leaf.dtype}
        with self._at_home():
            found: Tensor = self._tracer.wrap(ir.apply(OPS["full"], [], params))
        return found

    def _make_room(self) -> None:
        """Makes the buffers as long as they may have to be, with one place more than that."""
        loops = self._tracer.loops[self.home :]
        need = self._most + 1
        if loops:
            counts = loops[-1].appended
            counts[self.name] = counts.get(self.name, 0) + 1
            while counts[self.name] > self._sites:
                self._sites *= 2
            steps = _steps_of(loops)
            self._is_guessed = self._is_guessed or steps is None
            need = self._start + (self._guess if steps is None else steps * self._sites)
        if at_most(need, self._capacity):
            return
        self._capacity, longer = need + _SLACK, list[Tensor]()
        before = self._base if loops else [t._array for t in self._buffers]
        for leaf, node in zip(leaves_in(self._form), before, strict=True):
            made = self._made(leaf, self._capacity + 1)
            if not is_number(self._start, 0) or not loops:
                rest = self._made(leaf, self._capacity + 1 - node.shape[0])
                with self._at_home():
                    made = self._tracer.wrap(ir.apply(OPS["concat"], [node, rest._array], {"axis": 0}))
            longer.append(made)
        self._buffers, self._base = longer, [t._array for t in longer]

    # -- the loops around

    def enters(self) -> None:
        """Begins the outermost loop."""
        self._base, self._start = [t._array for t in self._buffers], self._most

    def refuse_items_in(self, memories: Set[int]) -> None:
        """Refuses items of this step that are in memory which the next one updates."""
        if any(memory_of(root) in memories for root in self._roots.values()):
            self.refuse("a list gets an item that may be changed later")

    def meets(self, values: Iterable[Any]) -> None:
        """Notes whether items of this step are in the memory of one of these tensors as well."""
        memories = {memory_of(t) for t in values if issubclass(type(t), Tensor)}
        self.is_shared |= any(memory_of(root) in memories for root in self._roots.values())

    def check(self, loop: Any, region: Frame) -> None:
        """Refuses items that a step updates, after the end of one; notes those that are elsewhere as well."""
        ends = [x for end in (loop.after, *(exit.objects for exit in loop.exits)) for x in end.values()]
        self.meets([*loop.items, *chain(*loop.origins.values(), *(of._roots.values() for of in loop.lists.values()
                    if of is not self)), *map(tensor_of, ends)])  # fmt: skip
        for key, root in [*self._roots.items()]:
            if key in region.written or any(root is t for t in loop.states):
                self.refuse("a list gets an item that may be changed later")
            if region.has_made(root):
                del self._roots[key]

    def leaves(self, variables: Sequence[Any]) -> None:
        """Ends the outermost loop, which leaves variables with these values."""
        if self._form is None:
            return
        if any(leaf.is_memory for leaf in leaves_in(self._form)):
            self.mark([x for x in (*variables, *self._roots.values()) if issubclass(type(x), Tensor)])
        if not self._is_guessed:
            self._most = self._capacity - _SLACK
            return
        over: Any = self._int(self.count) > self._int(self._capacity)
        if self._tracer.strict or not can_ask(self._tracer):
            fails_where(self._tracer, over)
        elif self._tracer.ask is not None and bool(self._tracer.ask(over._array, FULL)):
            times = max(_times(self._tracer, self.place, self.name), default=0)
            raise StepByStep(self.place, "a list is longer than was thought", (Listed(self.name, times + 1),))
        self._most, self._is_guessed = self._capacity, False

    def mark(self, tensors: Sequence[Tensor]) -> None:
        """Notes that items may be in the memory of tensors."""
        with self._at_home():
            self._token.append(self._tracer.wrap(ir.constant(0, int64)))
        self._tracer.marked.mark([self._token[-1], *tensors], self.place)


def _steps_of(loops: Sequence[Any]) -> Size | None:
    """The number of steps of loops in each other, at most; None where it is not known, or large."""
    found: Size = 1
    for loop in loops:
        most = loop.length
        if most is not None and steps_of(most):
            least = bounds(-most)
            most = None if least is None else -least
        if most is None:
            return None
        found = found * most
    return found if hint(found) <= _MOST else None


def _parts(item: Any) -> Iterator[Any]:
    """The values of an item that have buffers."""
    if type(item) is tuple:
        for part in item:
            yield from _parts(part)
    elif type(item) not in CONSTANTS:
        yield item


def count_of(name: str) -> str:
    """The name of the variable that is the count of a list, among those of a loop."""
    return f"len({name})"


def lists_of_data(loop: Any) -> dict[str, DataList]:
    """The lists of the program that a loop reads, by the names of their counts; those become such that seem to grow
    where data decides, and the ones of notes."""
    tracer, variables, found = loop.tracer, loop.frame.f_locals, dict[str, DataList]()
    for name in sorted(loop.loop.read):
        x, times = variables.get(name), _times(tracer, loop.place, name)
        if type(x) is list and -1 not in times and (times or grows_by_data(*loop.place, name)) and _may_be(loop, name):
            made = DataList(tracer, loop.place, name, lists_in(loop.place[0])[name], max(times, default=0))
            for item in x:
                made.append(item)
            loop.assign({name: made})
            x = made
        if type(x) is DataList:
            if len(tracer.loops) == x.home:
                x.enters()
            found[count_of(name)] = x
    return found


def note_lists(loop: Any, why: str, names: Iterable[str]) -> None:
    """Begins the trace anew with lists of the program, where some of these variables may be such."""
    for name in sorted(names):
        if type(loop.frame.f_locals.get(name)) is not list or not _may_be(loop, name):
            continue
        around = [of for of in (*loop.tracer.loops, loop) if of.frame is loop.frame]
        place = next(of.place for of in around if name in of.loop.read and name not in of.loop.assigned)
        if not _times(loop.tracer, place, name):
            raise StepByStep(place, why, (Listed(name),))


def refuse_lists(loop: Any, why: str, lists: Sequence[Grown]) -> NoReturn:
    """Refuses lists that do not grow by the same in each step, but where they may grow as data decides."""
    note_lists(loop, why, names_of(loop, lists))
    raise loop.refuse(why)


def names_of(loop: Any, lists: Sequence[Grown]) -> list[str]:
    """The variables that are lists to which a loop appends."""
    variables, targets = loop.frame.f_locals, {id(grown.target) for grown in lists}
    return [name for name in loop.loop.grown if id(variables.get(name)) in targets]


def begins_with_stack(tracer: Tracer, loop: CodeLoop, frame: FrameType) -> bool:
    """Whether a `while` that is about to run a step ends with a list that may be one of the program."""
    names = [name for name in stacks_of(*loop.place) if type(frame.f_locals.get(name)) is list]
    names = [name for name in names if -1 not in _times(tracer, loop.place, name)]
    return any(_may_be_in(tracer, loop.place[0], frame, name) for name in names)


def _times(tracer: Tracer, place: Any, name: str) -> list[int]:
    """The numbers in notes about the list of a variable in a loop."""
    notes = tracer.alone.get(place, ())
    return [note.times for note in notes if type(note) is Listed and note.name == name]


def _may_be(loop: Any, name: str) -> bool:
    """Whether the list of a variable may be one of the program."""
    return _may_be_in(loop.tracer, loop.place[0], loop.frame, name)


def _may_be_in(tracer: Tracer, code: CodeType, frame: FrameType, name: str) -> bool:
    uses = lists_in(code).get(name)
    if uses is None or tracer.stages is not None or not uses.are_as_named(frame.f_globals):
        return False
    return not (uses.returned or uses.as_array) or _is_root(tracer, frame)


def _is_root(tracer: Tracer, frame: FrameType) -> bool:
    """Whether a frame is that of the function that is traced."""
    behind = frame.f_back
    while behind is not None and behind.f_code is not tracer.root:
        behind = behind.f_back
    return frame.f_code is tracer.root and behind is None

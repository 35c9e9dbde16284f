"""The loop of the program that a captured loop becomes, and what variables, tensors and lists are after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hybridml_compiler import config
from hybridml_compiler.graph import ir
from hybridml_compiler.record import record
from hybridml_compiler.sizes.dims import Size
from hybridml_compiler.sizes.steps import Undecided

from ...core.aliasing import stamp
from ...core.autodiff.tape import is_recorded
from ...core.context import no_grad
from ...core.tensor import Tensor
from ..capture.loops.branches import Branch
from ..capture.loops.counts import can_ask, most_steps
from ..capture.loops.loop import DataEnds, Loop
from ..capture.loops.segments import run_in_segments, size_of
from ..capture.subgraphs import snapshot
from .aliases import mark, mark_items
from .capture import Capture
from .carries import Carry, as_variable
from .histories import check_arrays, is_differentiated
from .lists.of_data import names_of, note_lists, refuse_lists
from .number_types import may_change, with_types
from .questions import LENGTH, until, way_out

_MOST_BYTES = 16 << 20  # for a gradient of a loop that data may end: zeros for steps that are not taken cost 3 ms
_NO_GRADIENT = "data ends it, so that a gradient does not know how many steps to keep"


@record
class Results:
    """The values of carries and states after a loop, what all steps append to lists, and how many have; where data ends
    it, how many steps it has taken, and which way it was left, if there are several."""

    values: Sequence[Tensor]
    stacked: Sequence[Tensor]
    grown: Size
    steps: Tensor | None = None
    way: Tensor | None = None


class RolledLoop(Capture):
    """A loop that is captured, and goes into the program."""

    reverse = False

    @property
    def counts(self) -> tuple[Tensor | None, Tensor | None]:
        """Numbers of the program, before which steps end and with which they begin."""
        return None, None

    def emit(self) -> None:
        """Adds the loop to the program, and gives variables and tensors the values that they have after it."""
        carried = self._carried()
        found = self._results(carried)
        n, tracer, results = len(carried), self.tracer, found.values
        ends = zip(*(b.values[n : n + len(self.states)] for b in self.branches), strict=True)
        for state, given, after, value in zip(self.states, self.given, ends, results[n:], strict=True):
            tracer.will_write(state)
            state._array = value._array
            if any(end._node is not given._node for end in after):  # else it is written to under no_grad
                state._node = value._node
            stamp(state)
        last = {
            name: self._after(name, c, t) if may_change(self, k, name, c) else self.before[name]
            for k, ((name, c), t) in enumerate(zip(carried.items(), results, strict=False))
            if c.kind != "type"
        }
        last |= self.ints_after(found.steps) | with_types(self, carried, results)
        # Views of arrays of the step must not live on in variables that nobody reads any more.
        unread = self.after.keys() - {*self.loop.after}
        self.ended = {name: self.before.get(name) for name in unread} | last
        self.assign(self.ended)
        mark(self, last)
        of_lists = iter(found.stacked)
        for grown in self.grown:
            grown.extend(tracer, of_lists, found.grown, self.name)
            if len(self.branches) > 1 or self.leaving or self.shows:  # who knows which variable is an item
                mark_items(self, grown, last)
            else:
                grown.share({id(self.after[name]): value for name, value in last.items() if name in carried})
        self._forget()
        for of in self.lists.values():
            if of.home == len(tracer.loops):
                of.leaves(list(last.values()))
        tracer.rolled = True
        self.out = way_out(self, found.way)

    def _after(self, name: str, carry: Carry, t: Tensor) -> Any:
        """The value of a variable: a bool is one of Python's where it may need that."""
        value, loop = as_variable(self.tracer, carry, t), self.loop
        if carry.kind != "flag" or name not in loop.told | (loop.returned if self._is_called() else frozenset()):
            return value
        return bool(value)

    def _is_called(self) -> bool:
        """Whether what the code of the loop returns goes to other traced code."""
        frames, frame = list[Any](), self.frame.f_back
        while frame is not None:
            frames, frame = [*frames, frame.f_code], frame.f_back
        return self.place[0] is not self.tracer.root or self.tracer.root in frames

    def begin_out(self) -> None:
        """Begins the step by which Python leaves the loop."""
        assert self.out is not None
        for grown in self.grown:
            grown.length = len(grown.target)
        self.answers = [*self.out.answers]
        self.begin()

    def finish(self) -> None:
        """Ends that step: nothing of it is kept, and variables are what the loop has given."""
        for grown in self.grown:
            grown.take_back()
        self._leave(self.region)
        self._forget()
        self.assign(self.ended)
        around = self.tracer.loops[-1] if self.tracer.loops else None
        if around is not None and around.frame is self.frame and around.out is not None and self.out is not None:
            if around.out.position == self.out.position:
                around.finish()

    def ints_after(self, steps: Tensor | None) -> dict[str, Any]:
        """The ints that the loop assigns, after it has taken so many steps: all there can be, where that is None."""
        return {}

    def first_go(self) -> ir.Node:
        """Whether there is a first step, of a loop that data ends."""
        return ir.constant(True)

    @property
    def grows_lists(self) -> bool:
        """Whether Python asks how often the steps have appended to lists."""
        return self.is_left and any(grown.items for grown in self.grown)

    def _results(self, carries: Mapping[str, Carry]) -> Results:
        tracer = self.tracer
        inputs = [*(carry.given for carry in carries.values() if carry.given is not None), *self.given]
        start = [*(self.start_of(name, carry) for name, carry in carries.items()), *self.states]
        grown: Any = 0 if self.length is None else self.length
        if not inputs and not self.items and not self.is_left:
            return Results([], [], grown)
        n, go, ways, length, most = len(inputs), None, self.branches, self.length, _MOST_BYTES
        check_arrays(self, inputs, start)
        has_gradient = self.has_gradient and not self.sizes.found
        differentiated = not has_gradient and is_differentiated(self, inputs, start)
        counted = not has_gradient and (self.grows_lists or differentiated)
        ends_itself = self.length is not None or not can_ask(tracer)  # as a range does too
        if differentiated and (self.sizes.found or (ends_itself and not self.grows_lists)):
            self.refuse(_NO_GRADIENT)
        is_known = (has_gradient or counted) and not self.sizes.found
        if self.is_left:
            more, first, go, ways = until(self, n)
            inputs, start = [*inputs, *more], [*start, *first]

        def of(length: Size | None, own: int | None = None) -> Loop:
            count, begin = self.counts
            return Loop(
                tracer, "the loop", self.since, self.made, inputs, [], list(ways[0].values[: len(inputs)]),
                list(ways[0].values[len(inputs) : own]), [snapshot(tracer, t) for t in start], [], length, go=go,
                step=self.name or None, checks=self.checks, steps=None if go is None else n + 1, parallel=self.parallel,
                branches=[Branch(b.asked, b.answers, b.values[:own]) for b in ways], count=count, begin=begin,
                no_gradient="" if is_known else _NO_GRADIENT, reverse=self.reverse, sizes=self.sizes,
            )  # fmt: skip

        if self.grows_lists:
            note_lists(self, "a list grows, and data ends the loop", names_of(self, self.grown))
        if self.grows_lists or counted:
            most = config.field("gradient_memory") << 20
            with no_grad():
                counts = of(length, len(inputs)).run()[: len(inputs)]
            if self.grows_lists:
                grown = self._asked(counts[-1])
                length = min(grown + 1, grown + 1 if length is None else length)
            else:
                length = most_steps(tracer, counts[n + 1])
        loop = of(length)
        # What a step keeps of a tensor that the next one writes to is lost for a gradient, as it is eagerly.
        ends = zip(*(b.values[len(carries) : n] for b in ways), strict=True)
        written = zip(self.states, self.given, ends, strict=True)
        stamp(*(t for t, given, after in written if all(end._array is not given._array for end in after)))
        results = loop.run()
        if not loop.no_gradient and any(is_recorded(t._node) for t in results):
            try:
                loop.try_gradient()
            except (Undecided, DataEnds) as error:
                self.refuse(f"it is differentiated, and {error}")
            may_end = go is not None or loop.count is not None
            if may_end and loop.saves * int(loop.length or 0) > most:
                self.refuse("its gradient would keep too much for a loop that may end early")
            size = size_of(loop, config.field("gradient_memory") << 20)
            results = results if size is None else run_in_segments(loop, size)
        steps, way = (results[n + 1], results[n + 2] if self.has_ways else None) if self.is_left else (None, None)
        return Results(results[:n], results[len(inputs) :], grown, steps, way)

    def _asked(self, count: Tensor) -> int:
        """The number of steps that have grown lists, which Python asks for."""
        if not can_ask(self.tracer):
            refuse_lists(self, "a list grows in a loop that data ends, in another loop", self.grown)
        assert self.tracer.ask is not None
        self.tracer.may_be_slower = True  # it runs twice, and gives out what many steps have made
        return int(self.tracer.ask(count._array, LENGTH))

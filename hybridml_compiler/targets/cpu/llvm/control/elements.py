"""Loops and branches over single elements as code in place, one in the other, with their numbers in registers.

    for (n = 0, i = 0; i < m; i++) {                what a step hands to the next one: phis of the loop
        big = values[i] > t;                        each launch of a step: the code of its kernel
        found[big ? n : 0] = big ? values[i] : found[0];
        n = big ? n + 1 : n;
    }

Arrays are in memory, where the plan has them. A kernel that is called through a table of pointers takes 2 ns, and a
number that it stores and another one loads 1 to 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from ..... import dtypes
from .....loops.ir import Kernel
from .....loops.text import print_kernel
from .....record import record, replace
from .....schedule.control import Choice, Control, Loop
from .....schedule.launch import BufferRef, Copy, Plan
from .. import ir
from ..contraction.loops import i64
from ..scalars import Lanes
from ..sizes import Sizes
from ..types import I64
from .fits import body_homes, home, home_at
from .numbers import Numbers
from .parts import at_byte, border, clear, copy, fields_of, from_zero, poll, steps_a_poll
from .places import Cell, Place


@record(frozen=False)
class _Body:
    """A body, and where what it is given, what it gives and its arena are."""

    plan: Plan
    inputs: Sequence[Place]
    outputs: Sequence[Place]
    arena: Any
    sizes: Sizes
    cells: dict[Any, Cell] = field(default_factory=dict)  # by offset in the arena


class _Parts:
    """The operands of a loop, and its own memory."""

    def __init__(self, b: ir.IRBuilder, loop: Loop, given: Sequence[Place], sizes: Sizes) -> None:
        for size in (loop.first, *loop.carries, *loop.xs, *loop.ys):
            sizes.value(size)  # here, and not first in a branch
        self.b, self.loop, self.sizes = b, loop, sizes
        self.counts, rest = given[: loop.counted], given[loop.counted :]
        n, m = loop.consts, loop.consts + len(loop.carries)
        self.consts, self.starts, self.xs = rest[:n], rest[n:m], rest[m : m + len(loop.xs)]
        *results, memory = rest[m + len(loop.xs) : m + len(loop.xs) + len(loop.wanted) + 1]
        self.results = dict(zip(loop.wanted, results, strict=True))
        self.own = [at_byte(b, memory, i64(offset)) for offset in loop.places[0]]
        c = len(loop.carries)
        self.ys = [self.results.get(c + k, self.own[2 * c + k]) for k in range(len(loop.ys))]
        self.wanted = [c + k in self.results for k in range(len(loop.ys))]

    def arena(self, ranges: Sequence[Any] | None) -> Any:
        if ranges is None:
            return self.own[-2]
        return at_byte(self.b, self.own[-2], self.b.mul(ranges[0], i64(self.loop.arena_bytes)))


def emit_elements(
    b: ir.IRBuilder, control: Control, given: Sequence[ir.Value], failed: ir.Block, sizes: Sizes, ranges: Any
) -> None:
    """The loop or branch at the builder's position, on its operands; an index out of range, or a stop, goes on at
    `failed`."""
    _Elements(b, failed).control(control, given, sizes, ranges)


def elements_source(control: Control) -> str:
    """The text that determines its code."""
    lines = [fields_of(control), f"polls {isinstance(control, Loop) and steps_a_poll(control)}"]
    for plan in control.plans:
        numbers = [(b.offset, b.first, b.last, b.node.aval) for b in plan.buffers if b.node is not None]
        lines.append(f"body {plan.inputs} {plan.outputs} {numbers}")
        for launch in plan.launches:
            spec = launch.spec
            match spec:
                case Kernel():
                    text = print_kernel(replace(spec, cost=0.0))
                case Control():
                    text = elements_source(spec)
                case _:
                    text = str(spec)
            lines += [f"{launch.operands}", text]
    return "\n".join([*lines, "end"])


class _Elements(Numbers):
    def control(self, control: Control, given: Sequence[Place], sizes: Sizes, ranges: Any = None) -> None:
        if isinstance(control, Loop):
            self._loop(control, given, sizes, ranges)
        else:
            assert isinstance(control, Choice)
            self._choice(control, given, sizes)

    # ---- a body

    def _run(self, body: _Body) -> None:
        for number, launch in enumerate(body.plan.launches):
            places = [self._place(body, place, number) for place in launch.operands if place.base != "sizes"]
            match launch.spec:
                case Kernel(operands=buffers):
                    self.kernel(launch.spec, {b.name: p for b, p in zip(buffers, places, strict=False)}, body.sizes)
                case Copy(nbytes):
                    self._copy(places[0], places[1], body.sizes.value(nbytes))
                case Control():
                    self.control(launch.spec, places, body.sizes)

    def _place(self, body: _Body, place: BufferRef, launch: int) -> Place:
        if place.base == "arena":
            if home_at(body.plan, place, launch, (), ()) is not None:
                return body.cells.setdefault(place.offset, Cell())
            base: Place = body.arena
        else:
            base = (body.inputs if place.base == "input" else body.outputs)[place.number]
        return base if isinstance(base, Cell) else at_byte(self.b, base, body.sizes.value(place.offset))

    def _copy(self, source: Place, target: Place, nbytes: Any) -> None:
        if isinstance(source, Cell):
            self.store(target, source.now)
        else:
            assert not isinstance(target, Cell)
            copy(self.b, target, source, nbytes)
            self.stores += 1

    def _given(self, places: Sequence[Place], plan: Plan, first: int = 0) -> list[Place]:
        """Operands of a body, from number `first` on; numbers among them are in registers."""
        return [
            place if isinstance(place, Cell) or home(aval) is None else Cell(self.load(place, aval.dtype))
            for place, aval in zip(places, plan.inputs[first:], strict=False)
        ]

    @contextmanager
    def _inner(self) -> Iterator[None]:
        """Code that may not run: what it finds out about indices, and reads, holds in it alone."""
        outer, self.inside, read, self.read = self.inside, dict(self.inside), self.read, dict(self.read)
        yield
        self.inside, self.read = outer, read

    # ---- a branch

    def _choice(self, choice: Choice, given: Sequence[Place], sizes: Sizes) -> None:
        b, count = self.b, choice.operands
        goes = self.load(given[0], dtypes.bool_).value
        inputs = self._given(given[1 : 1 + count], choice.true)
        *results, arena = given[1 + count : 2 + count + len(choice.wanted)]
        homes = [home(aval) for aval in choice.true.outputs]
        blocks = [b.append_basic_block("true"), b.append_basic_block("false")]
        after, ends = b.append_basic_block("chosen"), []
        b.cbranch(goes, *blocks)
        for block, plan in zip(blocks, choice.plans, strict=True):
            b.position_at_end(block)
            with self._inner():
                outputs = [x if own is None else Cell() for x, own in zip(results, homes, strict=True)]
                self._run(_Body(plan, inputs, outputs, arena, sizes.inside({})))
            ends.append((b.block, [x.now for x in outputs if isinstance(x, Cell)]))
            b.branch(after)
        b.position_at_end(after)
        last, values = zip(*ends, strict=True)
        merged = [_merged(b, pair, last) for pair in zip(*values, strict=True)]
        places = [x for x, own in zip(results, homes, strict=True) if own is not None]
        for place, value in zip(places, merged, strict=True):
            self.store(place, value)

    # ---- a loop

    def _loop(self, loop: Loop, given: Sequence[Place], sizes: Sizes, ranges: Sequence[Any] | None) -> None:
        b, parts = self.b, _Parts(self.b, loop, given, sizes)
        begin, until, last = self._ends(parts, ranges)
        consts = self._given(parts.consts, loop.body)
        homes = [home(aval) for aval in loop.body.inputs[loop.consts :]]
        arrays = {k: self._array(parts, k, ranges) for k in range(len(loop.carries)) if homes[k] is None}
        starts = enumerate(zip(parts.starts, homes, strict=False))
        firsts = {k: self.load(start, own) for k, (start, own) in starts if own is not None}
        if loop.once:
            self._once(parts, consts, firsts, arrays, begin, until)
            return
        entry, (head, run, end) = b.block, [b.append_basic_block(name) for name in ("head", "run", "end")]
        b.branch(head)
        b.position_at_end(head)
        number = b.phi(I64)
        number.add_incoming(begin, entry)
        phis = {k: b.phi(first.value.type) for k, first in firsts.items()}
        for k, phi in phis.items():
            phi.add_incoming(firsts[k].value, entry)
        carried = {k: Lanes(phi, firsts[k].dtype) for k, phi in phis.items()}
        carries = [Cell(carried[k]) if k in carried else arrays[k] for k in range(len(loop.carries))]
        self.stores += 1  # of a step before
        with self._inner():
            if loop.length is not None:
                more = run if loop.condition is None else b.append_basic_block("more")
                b.cbranch(b.icmp_signed("<", number, until), more, end)
                b.position_at_end(more)
            if loop.condition is not None:
                go = Cell()
                self._run(_Body(loop.condition, [*consts, *carries], [go], parts.arena(ranges), sizes.inside({})))
                b.cbranch(go.now.value, run, end)
            b.position_at_end(run)
            poll(b, loop, number, self.failed)
            step = b.sub(b.sub(last, i64(1)), number) if loop.reverse else number
            after = self._step(parts, consts, carries, step, ranges)
            number.add_incoming(b.add(number, i64(1)), b.block)
            for k, phi in phis.items():
                phi.add_incoming(after[k].value, b.block)
            b.branch(head)
        b.position_at_end(end)
        for k, value in carried.items():
            if k in parts.results:
                self.store(parts.results[k], value)

    def _once(
        self,
        parts: _Parts,
        consts: list[Place],
        firsts: dict[int, Lanes],
        arrays: dict[int, Any],
        begin: Any,
        until: Any,
    ) -> None:
        """A single step, if any."""
        b, before = self.b, self.b.block
        run, end = b.append_basic_block("run"), b.append_basic_block("end")
        b.cbranch(b.icmp_signed("<", begin, until), run, end)
        b.position_at_end(run)
        stays = parts.loop.in_place
        read = {k: memory if stays[k] else parts.starts[k] for k, memory in arrays.items()}
        carries = [read[k] if k in read else Cell(firsts[k]) for k in range(len(stays))]
        with self._inner():
            after = self._step(parts, consts, carries, begin, None, arrays)
        last = b.block
        b.branch(end)
        b.position_at_end(end)
        for k, first in firsts.items():
            value = _merged(b, (first, after[k]), (before, last))
            if k in parts.results:
                self.store(parts.results[k], value)

    def _ends(self, parts: _Parts, ranges: Sequence[Any] | None) -> tuple[Any, Any, Any]:
        """The numbers from and up to which there are steps, and how many there would be of all."""
        b, loop = self.b, parts.loop
        last = parts.sizes.value(0 if loop.length is None else loop.length)
        numbers = [from_zero(b, self.load(count, dtypes.int64).value) for count in parts.counts]
        for asked in numbers[:1]:
            last = b.select(b.icmp_signed("<", asked, last), asked, last)
        if parts.counts or loop.condition is not None:  # results of steps that are not run are zero
            for k, size in enumerate(loop.ys):
                if parts.wanted[k]:
                    clear(b, parts.ys[k], parts.sizes.value(size * (0 if loop.length is None else loop.length)))
        begin, until = (i64(0), last) if ranges is None else [border(b, last, k, loop.ranges) for k in ranges]
        for left_out in numbers[1:]:
            begin, until = (begin, b.sub(until, left_out)) if loop.reverse else (left_out, until)
        return begin, until, last

    def _array(self, parts: _Parts, k: int, ranges: Sequence[Any] | None) -> Any:
        """The memory of an array that steps update, with what it is at first."""
        memory, start = parts.results.get(k, parts.own[2 * k]), parts.starts[k]
        assert not isinstance(memory, Cell) and not isinstance(start, Cell)
        if ranges is None:
            with self.b.if_then(self.b.icmp_unsigned("!=", memory, start)):
                copy(self.b, memory, start, parts.sizes.value(parts.loop.carries[k]))
        return memory

    def _step(
        self,
        parts: _Parts,
        consts: list[Place],
        carries: list[Place],
        step: Any,
        ranges: Sequence[Any] | None,
        arrays: Mapping[int, Place] = {},
    ) -> dict[int, Lanes]:
        """The code of a step; the numbers that it hands to the next one. `arrays`: where it writes carries to."""
        b, loop, sizes = self.b, parts.loop, parts.sizes
        inner = sizes.inside({} if loop.step is None else {loop.step: b.add(step, sizes.value(loop.first))})
        xs = [at_byte(b, x, b.mul(step, sizes.value(size))) for x, size in zip(parts.xs, loop.xs, strict=True)]
        inputs = [*consts, *carries, *self._given(xs, loop.body, loop.consts + len(carries))]
        slices = [
            at_byte(b, y, b.mul(step, sizes.value(size))) if wanted else y
            for y, size, wanted in zip(parts.ys, loop.ys, parts.wanted, strict=True)
        ]
        ys = [x if own is None else Cell() for x, own in zip(slices, body_homes(loop)[1][-len(slices) :], strict=False)]
        made: dict[int, Place] = {
            k: arrays.get(k, carry) if loop.in_place[k] or k in arrays else Cell() if y is None else ys[y]
            for k, (carry, y) in enumerate(zip(carries, loop.kept, strict=True))
        }
        outputs = [x for k, x in made.items() if loop.kept[k] is None and not loop.in_place[k]]
        self._run(_Body(loop.body, inputs, [*outputs, *ys], parts.arena(ranges), inner))
        for pointer, y, wanted in zip(slices, ys, parts.wanted, strict=True):
            if isinstance(y, Cell) and wanted:
                self.store(pointer, y.now)
        return {k: x.now for k, x in made.items() if isinstance(x, Cell)}


def _merged(b: ir.IRBuilder, values: Sequence[Lanes], blocks: Sequence[ir.Block]) -> Lanes:
    """The value that one of the blocks comes with."""
    phi = b.phi(values[0].value.type)
    for value, block in zip(values, blocks, strict=True):
        phi.add_incoming(value.value, block)
    return Lanes(phi, values[0].dtype)

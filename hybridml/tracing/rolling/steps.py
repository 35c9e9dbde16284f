"""Python's `for` loops over ranges and arrays, captured as loops of the graph, whatever the number of their steps.

for i in range(1, n):                 the names `range`, `enumerate`, `zip` and `reversed` are ours while a function
    a[i] = a[i - 1] * w               is traced, and so is the iterator: it gives the loop a symbolic number,
                                      `i0 - 1` with i0 = 2, 3, ..., or the elements with that number, and takes what
                                      one step does for what each of them does
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, Literal, NoReturn

from hybridml_compiler.aval import CPU
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import LEAST, Size, hint, is_dim, symbol
from hybridml_compiler.sizes.steps import Undecided, odd_step, replaced, turns

from ...core.tensor import Tensor
from ..capture.loops.whole import is_whole
from ..capture.tracer import Tracer, top_tracer
from ..specialize.errors import ASKED_ALONE, ASKS, Staged, StepByStep
from .capture import MOST_PARTS
from .carries import Carry, as_count, is_number
from .code_loops import CodeLoop, flow_of, for_loop_over, is_in
from .elements import Elements
from .emission import RolledLoop
from .undecided import every
from .ways.choices import choice_of

FEWEST = 16  # steps: fewer fuse with what is around them
FEWEST_LEFT = 2  # of a loop in a loop, where each step may be the last: they would be so many programs
FEWEST_IN_NEST = 6  # of a loop that has another in it, and of that, which make much of few elements in a step
_NEST = "nest"  # of a loop: it is such a one
_FEW_ELEMENTS, _MANY = 16, 100  # 8 * 8 pairs of bodies, 660 operations, compile in 1.1 s, and in 0.1 as loops
FEWEST_IN_PART = 4  # of a loop that is parted: a capture takes two or three
_PEELED = 2  # first steps that may give a variable another type than it has before them


def fewest_steps(tracer: Tracer, loop: CodeLoop) -> int:
    """The number of steps from which on a loop is captured by one."""
    around = tracer.loops[-1] if tracer.loops else None
    if around is not None and loop.exits:
        return FEWEST_LEFT
    in_nest = _NEST in tracer.alone.get(loop.place, ()) or (around is not None and around.is_nest)
    return FEWEST_IN_NEST if in_nest else FEWEST


def look_at_nest(tracer: Tracer, loop: CodeLoop) -> None:
    """Begins the trace anew where short loops in a step have unrolled to many operations on few elements each, which
    take the compiler long: on arrays they are one pass."""
    nests, made = tracer.loops[-1].nests, tracer.frames[-1].made
    count = sum(
        1
        for n in made
        if n.op is not None and not is_dim(n.aval.size) and n.aval.size <= _FEW_ELEMENTS and not n.op.is_view
    )
    if loop.nests:
        nests[loop.place] = count
    for place, before in nests.items():
        if count - before > _MANY and is_in(loop.place, place):
            raise StepByStep(place, "it has many operations", (_NEST,))


def loop_to_capture(tracer: Tracer, frame: types.FrameType, length: Size) -> CodeLoop | None:
    """The loop that begins at this instruction of a frame, if one step of it may stand for all."""
    if any(i.node.aval.device != CPU for i in tracer.inputs):
        return None
    loop = for_loop_over(frame.f_code, frame.f_lasti)
    if loop is None or loop.place in (tracer.step_by_step or ()):
        return None  # where it asks for a number of a step, that loop is done step by step
    if tracer is top_tracer():
        return loop
    stage(tracer, FEWEST if is_dim(length) else length)
    return None


def stage(tracer: Tracer, length: int) -> None:
    """Raises Staged for a long loop in a function of a transform, which is captured first then."""
    if length >= FEWEST and tracer.stages is None:
        raise Staged


def parts(tracer: Tracer, loop: CodeLoop, length: int) -> list[tuple[int, int]]:
    """Numbers of steps with which parts of a loop begin, and before which they end."""
    known = () if is_whole(tracer, loop.place) else tracer.alone.get(loop.place, ())
    ends = sorted({k for k in known if type(k) is int and 0 < k < length})
    return [*zip((0, *ends), (*ends, length), strict=True)]


def keep_whole(tracer: Tracer, frame: types.FrameType | None) -> None:
    """Begins the trace anew where a step by itself asks about data, which would be a program for each answer: the
    outermost loop that is parted is not."""
    found, places = None, [at for at in tracer.alone if at is not None and at not in tracer.step_by_step]
    while frame is not None:
        code, now = frame.f_code, frame.f_lasti
        inside = [at for at in places if at[0] is code and flow_of(code).is_inside(now, at[1])]
        parted = [at for at in inside if any(type(k) is int for k in tracer.alone[at])]
        found = max(parted, key=lambda at: len(flow_of(code).loops[flow_of(code).at[at[1]]]), default=found)
        frame = frame.f_back
    if found is not None and not {ASKS, ASKED_ALONE} & {*tracer.alone[found]}:
        raise StepByStep(found, "a step by itself asks about data", (ASKS,))


class Counted(RolledLoop):
    """A loop whose steps are numbered, and whose ints are polynomials in the number: as many steps as there are in any
    call, but for what data ends."""

    length: Size
    in_steps = True
    has_blocks = False  # it may be a loop over blocks of steps

    def __init__(
        self, tracer: Tracer, loop: CodeLoop, frame: types.FrameType, part: tuple[Size, Size], is_last: bool
    ) -> None:
        """`part`: numbers of the first step, and of the one after the last; whether that is the end of the loop."""
        alone = tracer.alone.get(loop.place, [])
        self.firsts, self.lasts = alone.count("first"), alone.count("last")
        super().__init__(tracer, loop if is_last and not self.lasts else loop.before_others(), frame)
        self.name, self.is_last = f"i{len(tracer.loops)}", is_last
        self.done, end = part  # steps so far
        self.length = end - self.done - self.lasts  # that are left, but for the last ones
        self.is_nest, self.is_parted = _NEST in alone, "first" in alone
        self.peeled = 0
        self.now: Literal["", "captured", "alone", "after"] = ""  # how the step runs that has been begun

    def apart(self, error: Undecided) -> Sequence[Any]:
        known = self.tracer.alone.get(self.place, ())
        if len(known) >= MOST_PARTS or is_whole(self.tracer, self.place):
            return ()
        if type(self.length) is int and type(self.done) is int:
            found = turns(error, self.name, self.length)
            in_blocks = any(type(what) is tuple for what in known)
            if self.has_blocks and not (found or in_blocks or self.loop.exits or self.parallel):
                return every(error, self.name, self.done, self.length)
            return tuple([k + self.done for k in found if k + self.done not in known])
        alone = odd_step(error, self.name, self.most)
        return () if alone is None else (alone,)

    def begin_round(self) -> None:
        self.most = self.length + (LEAST - 1)
        self.number = symbol(self.name, max(LEAST, (hint(self.most) + LEAST) // 2), self.most) - LEAST
        super().begin_round()

    def variable(self, carry: Carry) -> Any:
        return carry.start + self.number * carry.by if carry.kind == "int" else super().variable(carry)

    def grows(self, carry: Carry, end: Any) -> bool:
        now = carry.start + self.number * carry.by
        return (type(end) is int or is_dim(end)) and is_number(end - now, carry.by)

    def refuse_number(self, why: str) -> NoReturn:
        if not self.is_parted and type(self.length) is int and self.has_steps():
            raise StepByStep(self.place, why, ("first",))  # after it there may be tensors alone
        super().refuse_number(why)

    def begin_later(self, name: str) -> None:
        if self.peeled >= _PEELED or not self.has_steps():
            self.refuse(self.changes(name))
        self.tracer.unlike[self.place] = str(StepByStep(self.place, self.changes(name)))
        self.peeled, self.firsts, self.carries, self.rounds, self.now = self.peeled + 1, 1, {}, 0, "alone"

    def may_not_begin(self) -> bool:
        return super().may_not_begin() or (self.peeled > 0 and bool(self.tracer.loops))  # `e = max(e, x[i])` keeps it

    def begin_alone(self) -> None:
        """Begins one of the first steps that are by themselves."""
        self.firsts, self.length, self.now = self.firsts - 1, self.length - 1, "alone"
        self.done += 1

    def ints_after(self, steps: Tensor | None) -> dict[str, Any]:
        if self.is_left and (self.lasts or not self.is_last):
            self.refuse("it may be left before its last step, which is by itself")
        found: dict[str, Any] = {}
        for name in self._others():
            end, carry = self.after.get(name), self.carries.get(name)
            if not (type(end) is int or is_dim(end)):
                continue
            last: Any = replaced(end, self.name, self.length + (LEAST - 1))
            if steps is not None and is_dim(end):
                start = replaced(end, self.name, LEAST)
                by = carry.by if carry is not None else replaced(end, self.name, LEAST + 1) - start
                if not (type(start) is type(by) is int and is_number(last - start - by * (self.length - 1), 0)):
                    self.refuse(f"{name} is read after it")
                last = as_count(self.tracer, steps, start - by, by)
            known = carry is not None or self.has_steps() or name not in self.loop.always  # of a step that leaves
            found[name] = last if known else self._or_before(name, last, steps)
        return found

    def _or_before(self, name: str, last: Any, steps: Tensor | None) -> Any:
        """The int of the last step, or what the variable was before a loop that may have none."""
        taken = self.tracer.size(self.length) if steps is None else steps
        found = choice_of(self.tracer, last, self.before.get(name))
        if found is None:
            self.refuse(f"{name} is read after it")
        a, b, made = found
        return made(ir.apply(OPS["where"], [(taken > 0)._array, a, b]))


class Steps(Counted):
    """The iterator of a loop that is captured."""

    has_blocks = True

    def __init__(
        self, tracer: Tracer, loop: CodeLoop, frame: types.FrameType, over: Elements, part: tuple[Size, Size],
        is_last: bool, parallel: bool,
    ) -> None:  # fmt: skip
        super().__init__(tracer, loop, frame, part, is_last)
        self.over, self.parallel = over, parallel

    def __iter__(self) -> Steps:
        return self

    def __next__(self) -> Any:
        if self.now == "captured" and self.end():
            first = self.done
            self.emit()
            self.done, self.now = self.done + self.length, "after"
            if self.out is not None:
                self.begin_out()
                return self.over.at(first + self.number)
        if self.now in ("", "alone") and self.firsts:
            self.begin_alone()
            return self.over.at(self.done - 1)
        if self.now == "after":
            if not self.lasts:
                raise StopIteration
            self.lasts, self.done = self.lasts - 1, self.done + 1
            return self.over.at(self.done - 1)
        self.now = "captured"
        self.begin()
        return self.over.at(self.done + self.number)

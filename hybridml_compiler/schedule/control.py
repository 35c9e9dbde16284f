"""Control flow as a launch: plans of the bodies, and how the operands of the launch become theirs.

    loop    operands: [count], constants, starts, xs, then the results that are wanted, then memory of its own
            of a step: constants, carries, slices -> carries, slices of the ys
    cond    operands: the predicate, operands, results, memory

Carries alternate between two buffers, one of them that of the result. A carry that is an output of every step as
well has no buffer of its own: the next step reads it where this one has written it. One that steps update in place
(see graph/updates.py) has a single buffer, and where the array that it starts from is not needed later, that one's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..graph.body import Body
from ..graph.independence import Dependence, dependence
from ..graph.ir import Graph, Node
from ..graph.updates import updates_carry
from ..loops.ir import KernelSpec
from ..ops.table import OPS
from ..record import record
from ..sizes.dims import Size, at_most, same, symbols_of
from ..sizes.steps import most_of
from .checks import settled
from .fusion.in_place import stays_in_place
from .fusion.time_tiling import TimeTiles, tiled_in_time
from .host_call import HostCall
from .launch import Plan

Planned = Callable[..., Plan]  # of a body, what it donates, and those of its inputs that come from the step before
_ALIGNMENT = 64
# Ranges of steps for each core: one that is done takes over others, and in triangular loops the last ones are long.
# Each has an arena of its own, of so many bytes all together.
_RANGES, _RANGE_BYTES = 16, 1 << 26


class Control(KernelSpec):
    """A loop or a choice. `wanted`: numbers of the results that are operands."""

    wanted: tuple[int, ...]

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Plans of its bodies."""
        raise NotImplementedError

    @property
    def given(self) -> int:
        """Number of arrays that it reads."""
        raise NotImplementedError

    @property
    def symbolic(self) -> bool:
        return bool(self.symbols)

    @property
    def around(self) -> list[str]:
        """The symbols of steps that its bodies read, but for its own."""
        return sorted({name for plan in self.plans for name in plan.symbols} - {getattr(self, "step", None)})

    @property
    def memory(self) -> Size:
        """Bytes that it works in."""
        raise NotImplementedError

    @property
    def checked(self) -> bool:
        return any(plan.checked for plan in self.plans)

    def written(self, operands: int) -> list[bool]:
        """Its results, and its memory."""
        own = len(self.wanted) + 1
        return [False] * (operands - own) + [True] * own

    def part_counts(self, takes_epilogue: Callable[[Any], bool]) -> set[int]:
        return set()


def _largest(sizes: Sequence[Size]) -> Size:
    """A size that none of these is above."""
    found = sizes[0]
    for size in sizes[1:]:
        found = size if at_most(found, size) else found if at_most(size, found) else found + size
    return found


@record(eq=False)
class Loop(Control):
    """A loop as a launch. Sizes are in bytes: of a carry, of a slice of an operand or of a result."""

    body: Plan
    condition: Plan | None
    consts: int
    carries: tuple[int, ...]
    xs: tuple[int, ...]
    ys: tuple[int, ...]
    kept: tuple[int | None, ...]  # carry -> the one of the ys that it is
    in_place: tuple[bool, ...]  # carry -> whether steps update it where it is
    wanted: tuple[int, ...]  # numbers of the results that are operands
    length: Size | None
    counted: int  # numbers by which data decides where steps end, and where they begin
    reverse: bool
    step: str | None  # the symbol of the number of the step
    first: Size  # of these numbers
    slots: int = 1  # that threads share: each takes all steps, in its part of every array (see batch_split.py)
    ranges: int = 1  # of steps that threads share, where steps do not need each other
    once: bool = False  # whether it has a single step, if any: what binds a size that data decides
    tiles: TimeTiles | None = None  # that steps run in, where all of them together do not fit a cache

    @property
    def symbols(self) -> list[str]:
        """Symbols in its sizes, where those come with the call or a step of a loop around it."""
        own = map(
            str, symbols_of(self.first, 0 if self.length is None else self.length, *self.carries, *self.xs, *self.ys)
        )
        return sorted({*own, *self.around})

    @property
    def plans(self) -> tuple[Plan, ...]:
        return (self.body,) if self.condition is None else (self.body, self.condition)

    @property
    def places(self) -> tuple[list[Size], Size]:
        """Offsets in its memory: two places for each carry, one for each of the ys, the arenas; and bytes in all."""
        sizes: list[Size] = []
        for k, size in enumerate(self.carries):
            own = [0 if k in self.wanted else size, 0 if self.in_place[k] else size]
            sizes += [0, 0] if self.kept[k] is not None else map(most_of, own)
        sizes += [*map(most_of, self.ys), self.slots * self.ranges * self.arena_bytes, 1]
        offsets: list[Size] = []
        total: Size = 0
        for size in sizes:
            offsets.append(total)
            total += -(-size // _ALIGNMENT) * _ALIGNMENT
        return offsets, total

    @property
    def arena_bytes(self) -> Size:
        """Bytes of arena per slot or range, enough for each of the bodies."""
        return -(-_largest([plan.arena_bytes for plan in self.plans]) // _ALIGNMENT) * _ALIGNMENT

    @property
    def given(self) -> int:
        return self.counted + self.consts + len(self.carries) + len(self.xs)

    @property
    def memory(self) -> Size:
        return self.places[1]

    def __str__(self) -> str:
        steps = "as long as its condition holds" if self.length is None else f"of {self.length} steps"
        apart = f" in {self.slots} slots" if self.slots > 1 else " that threads share" if self.ranges > 1 else ""
        tiles = "" if self.tiles is None else f" {self.tiles}"
        return f"loop {steps}{apart}{tiles}, {len(self.body.launches)} launches a step"


@record(eq=False)
class Choice(Control):
    true: Plan
    false: Plan
    operands: int
    wanted: tuple[int, ...]

    @property
    def symbols(self) -> list[str]:
        return self.around

    @property
    def plans(self) -> tuple[Plan, ...]:
        return self.true, self.false

    @property
    def given(self) -> int:
        return 1 + self.operands

    @property
    def memory(self) -> Size:
        return _largest([1, *(plan.arena_bytes for plan in self.plans)])

    def __str__(self) -> str:
        return f"choice of {len(self.true.launches)} or {len(self.false.launches)} launches"


def control_of(results: list[Node], planned: Planned, cores: int, tiles_time: bool = False) -> Control:
    """The launch that computes these results of one control operation, in the order of their numbers."""
    node = results[0]
    p = node.params
    wanted = tuple(result.params["result"] for result in results)
    if "true" in p:
        true, false = (_restricted(p[name], wanted) for name in ("true", "false"))
        return Choice(planned(true), planned(false), len(node.inputs) - 1, wanted)
    body: Graph = p["body"].graph
    n, first = p["carries"], p["consts"] + p["carries"]
    after, ys = body.outputs[:n], body.outputs[n:]
    given = {y: k for k, y in enumerate(ys) if n + k in wanted}
    kept = tuple(given.get(node) for node in after)
    in_place = tuple(kept[k] is None and updates_carry(body, p, k) for k in range(n))
    own = [k for k in range(n) if kept[k] is None]
    donate = {position: p["consts"] + k for position, k in enumerate(own) if in_place[k]}
    known = p["condition"] is None and not p["counted"] and not same(p["length"], 0)
    step = settled(Graph(body.inputs, (*(after[k] for k in own), *ys), "body", body.checks))
    apart = p["parallel"] and why_in_order(results) is None and stays_in_place(step, donate)
    carried = body.inputs[p["consts"] : first] if known and not apart else None
    plan = planned(step, donate, carried)
    shared = apart and not calls_python(plan)
    ranges = 1 if not shared else max(cores, min(_RANGES * cores, _RANGE_BYTES // max(plan.arena_bytes, 1)))
    tiles = None
    if tiles_time and p["condition"] is None and own == [*range(n)] and not shared:
        plan, tiles = tiled_in_time(plan, p["consts"], in_place, p["length"], cores) or (plan, None)
    return Loop(
        plan,
        None if p["condition"] is None else planned(p["condition"].graph),
        p["consts"], tuple(node.aval.nbytes for node in after), tuple(x.aval.nbytes for x in body.inputs[first:]),
        tuple(y.aval.nbytes for y in ys), kept, in_place, wanted, p["length"], p["counted"], p["reverse"], p["step"],
        p["first"], plan.slots, ranges, _once(node), tiles,
    )  # fmt: skip


def _once(node: Node) -> bool:
    """Whether its steps end with the one that they begin with."""
    if node.params["counted"] != 2 or node.params["reverse"] or node.params["condition"] is not None:
        return False
    end, begin = node.inputs[:2]
    return end.op is OPS["add"] and end.inputs[0] is begin and end.inputs[1].value == 1


def calls_python(plan: Plan) -> bool:
    """Whether a launch calls Python: the thread that waits for others has the interpreter lock."""
    specs = [launch.spec for launch in plan.launches]
    inner = [own for spec in specs if isinstance(spec, Control) for own in spec.plans]
    return any(isinstance(spec, HostCall) for spec in specs) or any(map(calls_python, inner))


def why_in_order(results: list[Node]) -> Dependence | None:
    """Why the steps of a loop run one after the other, though threads may share them."""
    node = results[0]
    if not node.params.get("parallel"):
        return None
    p, wanted = node.params, {result.params["result"] for result in results}
    if not wanted >= {*range(p["carries"], len(p["body"].outputs))}:
        return Dependence("each step overwrites a result of the one before", node.where)
    return dependence(node)


def _restricted(body: Body, wanted: tuple[int, ...]) -> Graph:
    outputs = tuple(body.graph.outputs[k] for k in wanted)
    return settled(Graph(body.graph.inputs, outputs, body.graph.name, body.graph.checks))

"""Whether steps of a loop need each other: where they do not, threads share them.

    for i in prange(n):
        a[i, :i] = f(x[i])        steps i < j touch rows i and j of `a`: apart on axis 0
        a[i] += a[i - 1]          step j = i + 1 reads row i, which step i writes: in order, for this line

Arrays that a step updates (updates.py) are looked at by the slices that it reads and writes, whose bounds are
polynomials in the number of the step: two accesses are apart where bounds on one axis are in order for all i < j. What
an inner loop touches is the hull over its steps. An access whose place is data touches all of the array.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..ops.control import COND, LOOP
from ..record import record
from ..sizes.dims import LEAST, Size, at_most, hint, steps_of, symbol
from ..sizes.steps import Undecided, number_in, replaced
from .body import family
from .ir import Graph, Node
from .updates import is_update, updates_carry, versions

Window = tuple[tuple[Size, Size], ...]  # from and to, on each axis


@record
class Access:
    """A slice of an array that a step reads or writes; `window` is None where it may be anything."""

    writes: bool
    window: Window | None
    where: str  # the user's line


@record
class Dependence:
    """Why steps run in order, and the user's line."""

    why: str
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}" if self.where else self.why


def dependence(node: Node) -> Dependence | None:
    """The first reason for which the steps of a loop have to run in order; None where they need not."""
    p = node.params
    if p["condition"] is not None or p["counted"]:
        return Dependence("data ends it", node.where)
    body: Graph = p["body"].graph
    found = (dependence_of(body, p, k) for k in range(p["carries"]))
    return next((d for d in found if d is not None), None)


def dependence_of(body: Graph, params: Mapping[str, Any], k: int) -> Dependence | None:
    """The same for one carry."""
    end = body.outputs[k]
    if end is body.inputs[params["consts"] + k]:
        return None
    if not updates_carry(body, params, k):
        return Dependence("a step needs what the one before has computed", end.where)
    if params["step"] is None:
        return Dependence("all steps write the same place", end.where)
    touched = [*_accesses(body, body.inputs[params["consts"] + k], end)]
    between = _Between(params["step"], params["length"])
    for a in touched:
        for b in touched:
            if (a.writes or b.writes) and not between.apart(a, b):
                first, second = (a, b) if a.writes else (b, a)
                what = "writes" if second.writes else "reads"
                why = "the place is data, and may be one that another step" if None in (a.window, b.window) else (
                    "a step may write what another one"
                )  # fmt: skip
                return Dependence(f"{why} {what}", first.where or second.where)
    return None


class _Between:
    """Two steps of a loop, i < j."""

    def __init__(self, step: str, length: Size) -> None:
        most = length + (LEAST - 1)
        at = (hint(most) + LEAST) // 2
        self.step, self.alone = step, type(length) is int and length < 2
        # i is at most the last but one; j is i + 1 and up: a symbol begins at 2.
        self.i: Size = LEAST if self.alone else symbol(step, max(LEAST, at - 1), most - 1)
        self.j: Size = (
            self.i + 1 if self.alone else self.i + symbol(f"i{number_in(step) + 1}", LEAST, most - self.i + 1) - 1
        )

    def apart(self, a: Access, b: Access) -> bool:
        """Whether `a` in step i and `b` in step j have no element in common."""
        if self.alone:
            return True
        if a.window is None or b.window is None:
            return False
        for (low, high), (other_low, other_high) in zip(a.window, b.window, strict=True):
            low, high = (replaced(x, self.step, self.i) for x in (low, high))
            other_low, other_high = (replaced(x, self.step, self.j) for x in (other_low, other_high))
            if at_most(high, other_low) or at_most(other_high, low):
                return True
        return False


def _accesses(graph: Graph, start: Node, end: Node) -> Iterator[Access]:
    """The slices of an array that are read and written, from `start` to what it is after all updates, `end`."""
    array = {*versions(start, end)} if end is not start else {start}
    seen = set[Any]()
    for node in graph.nodes():
        at = [k for k, n in enumerate(node.inputs) if n in array]
        if not at or node.op is None:
            continue
        if node.op is LOOP or node.op is COND:
            if family(node) not in seen:
                seen.add(family(node))
                for k in at:
                    yield from _accesses_inside(node, k)
        elif is_update(node) and at == [0] and node in array:
            yield Access(True, _window(node), node.where)
        elif node.op.name == "slice":
            yield Access(False, _window(node), node.where)
        else:
            yield Access(node in array, None, node.where)


def _accesses_inside(node: Node, operand: int) -> Iterator[Access]:
    """The slices of an operand that loops and branches touch."""
    p = node.params
    if node.op is COND:
        for branch in (p["true"].graph, p["false"].graph):
            if operand:
                yield from _accesses(branch, branch.inputs[operand - 1], branch.inputs[operand - 1])
        return
    body: Graph = p["body"].graph
    position = operand - p["counted"]
    k = position - p["consts"]
    if p["condition"] is not None or k >= p["carries"] or position < 0:
        yield Access(True, None, node.where)
        return
    own = body.inputs[position]
    end = body.outputs[k] if k >= 0 else own
    if end is not own and not updates_carry(body, p, k):
        yield Access(False, None, node.where)  # it is the first value of something else
        return
    for access in _accesses(body, own, end):
        yield Access(access.writes, _hull(access.window, p["step"], p["length"]), access.where or node.where)


def _window(node: Node) -> Window | None:
    """The bounds of a slice or of an update."""
    starts, stops, steps = (node.params[name] for name in ("starts", "stops", "steps"))
    if steps is not None and any(step < 0 for step in steps):
        return tuple(
            (start, stop) if step > 0 else (stop + 1, start + 1)
            for start, stop, step in zip(starts, stops, steps, strict=True)
        )
    return tuple(zip(starts, stops, strict=True))


def _hull(window: Window | None, step: str | None, length: Size) -> Window | None:
    """The bounds over all steps of an inner loop."""
    if window is None or step is None:
        return window
    ends = [(_end(low, step, length, 0), _end(high, step, length, 1)) for low, high in window]
    known = [(low, high) for low, high in ends if low is not None and high is not None]
    return tuple(known) if len(known) == len(ends) else None


def _end(size: Size, step: str, length: Size, which: int) -> Size | None:
    """The least or the greatest value of a bound over the steps of a loop; None where its form does not tell."""
    if not any(s.name == step for s in steps_of(size)):
        return size
    most = length + (LEAST - 1)
    here = symbol(step, LEAST, most)
    try:
        rise = replaced(size, step, here + 1) - replaced(size, step, here)
    except Undecided:
        return None
    if at_most(0, rise):
        return replaced(size, step, (LEAST, most)[which])
    if at_most(rise, 0):
        return replaced(size, step, (most, LEAST)[which])
    return None

"""Loop-invariant code: which nodes of a loop's body are computed in every step, and which once before it. Capture
asks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from .graph import ir
from .graph.body import steps_in
from .graph.facts import CALLED, dependent, is_expensive, may_fail
from .sizes.guards import structural


def varying(
    outputs: Sequence[ir.Node], inputs: Iterable[ir.Node], made: set[ir.Node], steps: Collection[str | None] = ()
) -> Callable[[ir.Node], bool]:
    """Test for nodes that the body of a loop computes: those that vary from step to step, that may fail, or that are as
    cheap to compute as to read. All others are computed once, before the loop. `steps`: symbols that vary."""
    with structural():
        return _varying(outputs, inputs, made, steps)


def _varying(
    outputs: Sequence[ir.Node], inputs: Iterable[ir.Node], made: set[ir.Node], steps: Collection[str | None]
) -> Callable[[ir.Node], bool]:
    from .schedule.lowering.pretranspose import packings  # imported with the first loop, and not with the package

    varies = dependent(outputs, inputs)
    for node in ir.topological(outputs):
        if node.op is None or node in varies:
            continue
        by_number = not steps_in(node).isdisjoint(steps)
        fails = node in made and may_fail(node) and node.op.name not in CALLED  # whose failure has Python make the call
        if by_number or fails or any(n in varies for n in node.inputs):
            varies.add(node)
    operands = [(node, n) for node in varies if node.op is not None for n in node.inputs if n not in varies]
    turned = {n for node, n in operands if packings(n, node)}  # by every step, where it is a view

    def inside(node: ir.Node) -> bool:
        return node in varies or (_is_free(node) and node not in turned)

    return inside


def _is_free(node: ir.Node) -> bool:
    """A view, a fill, or an elementwise value that is larger than its operands, and cheap."""
    assert node.op is not None
    if node.kind == "elementwise":
        return not is_expensive(node) and node.aval.nbytes > sum(n.aval.nbytes for n in node.inputs)
    return node.kind in ("movement", "creation")


def is_dear(node: ir.Node) -> bool:
    """Whether a value of a step is worth keeping, rather than computing it again."""
    assert node.op is not None
    return node.kind not in ("elementwise", "movement", "creation") or is_expensive(node)

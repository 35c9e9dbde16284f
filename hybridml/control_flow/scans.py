"""`scan` and `map`: a function of each slice, with a carry."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import replace

from ..arrays.creation import zeros, zeros_like
from ..arrays.shaping import manipulation
from ..core.autodiff.tape import Node, boundary, is_node, kept_by, make_node, part
from ..core.batching.interpreter import Batching
from ..core.context import placed
from ..core.nested import top_nesting
from ..core.pytree import Structure
from ..core.tensor import Tensor, aval_of
from .batches import Recorded, is_below_a_trace, scan_below, step_of
from .containers import (
    check_alike,
    flatten,
    is_count,
    paths,
    top_tracer,
    unflatten,
)
from .duals import scan_of_duals

if TYPE_CHECKING:
    from ..tracing.capture.tracer import Tracer


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    checkpoint: bool | int = False,
) -> tuple[Any, Any]:
    """`carry, y = f(carry, x)` for each slice x of `xs` along its first axis: (the last carry, the ys stacked).

    xs: a container of tensors whose first axes agree, or None with `length`. reverse: from the last slice to the
    first. unroll: steps a round of the compiled loop (True: all); results are the same. checkpoint: what the traced
    gradient keeps. False: all that is dear to compute again; True: the carries of each step; k: those of every k-th
    step. Errors: ShapeError where sizes differ, and where carry or y change (ArgumentError, DTypeError, DeviceError)
    from one step to the next, naming the leaf.

    >>> import hybridml as hm
    >>> hm.scan(lambda total, x: (total + x, total), hm.tensor(0.0), hm.tensor([1.0, 2.0, 3.0]))
    (Tensor(6.), Tensor([0., 1., 3.]))
    """
    slices, shape = flatten(xs, "scan: xs")
    carry, structure = flatten(init, "scan: init", slices)
    steps = _length(slices, shape, length)
    if not is_count(unroll, 1):
        raise ArgumentError(f"scan: unroll is a number of steps, at least 1, or True, got {unroll!r}")
    if not is_count(checkpoint, 0):
        raise ArgumentError(f"scan: checkpoint is True, False or a number of steps, got {checkpoint!r}")
    tracer, around = top_tracer(), top_nesting()
    given = (f, carry, structure, slices, shape, steps, reverse)
    if around is not None and steps and is_below_a_trace():
        lowered = scan_below if type(around) is Batching else scan_of_duals
        with suppress(Recorded):
            return lowered(around, scan, *given, unroll=unroll, checkpoint=checkpoint)
    if steps and (tracer is None or unroll is True or unroll >= steps):
        return _python_scan(*given)
    if tracer is None:
        return _empty_scan(*given)
    given = (*given[:5], int(steps), reverse) if unroll > 1 or checkpoint > 1 else given
    if unroll > 1:
        return _in_chunks(*given, unroll, lambda g, c, x: scan(g, c, x, unroll, reverse, True), checkpoint)
    if checkpoint > 1 and checkpoint is not True:
        return _in_chunks(*given, checkpoint, lambda g, c, x: scan(g, c, x, checkpoint, reverse), True)
    return _traced_scan(tracer, *given, bool(checkpoint))


def _length(slices: Sequence[Tensor], structure: Structure, length: int | None) -> int:
    if length is not None and not is_count(length, 0):
        raise ArgumentError(f"scan: length is a number of steps, got {length!r}")
    if length is None and not slices:
        raise ArgumentError("scan: xs holds no tensor, so it does not say how many steps there are; pass length")
    found = length
    for path, x in zip(paths(structure), slices, strict=True):
        if x.ndim == 0:
            raise ShapeError(f"scan: xs{path} has no axis to take slices of; it has shape ()")
        if found is not None and x.shape[0] != found:
            raise ShapeError(f"scan: xs{path} has shape {x.shape}, which is {x.shape[0]} steps and not {found}")
        found = x.shape[0]
    assert found is not None
    return found


def _python_scan(
    f: Any, carry: list[Tensor], structure: Structure, xs: list[Tensor], shape: Structure, steps: int, reverse: bool
) -> tuple[Any, Any]:
    rows: list[list[Tensor]] = []
    first: Structure | None = None
    for k in builtins.range(steps)[:: -1 if reverse else 1]:
        carry, ys, new = step_of(f, carry, structure, [x[k] for x in xs], shape)
        first = new if first is None else first
        check_alike("scan: two steps differ", "y", rows[0] if rows else ys, first, ys, new)
        rows.append(ys)
    assert first is not None
    stacked = [manipulation.stack(list(column)) for column in zip(*rows[:: -1 if reverse else 1], strict=True)]
    return unflatten(structure, carry), unflatten(first, stacked)


@placed
def _empty_scan(
    f: Any, carry: list[Tensor], structure: Structure, xs: list[Tensor], shape: Structure, steps: int, reverse: bool
) -> tuple[Any, Any]:
    """Result of a scan without steps: capturing one finds the form of the ys, and what they and the carry depend on."""

    from ..tracing.capture.tracer import Tracer

    tracer = Tracer("scan")

    def captured() -> Any:
        given = [[tracer.lift(t) for t in tensors] for tensors in (carry, xs)]
        return _traced_scan(tracer, f, given[0], structure, given[1], shape, steps, reverse, False)

    after, ys = tracer.run(captured)
    found, whole = flatten(ys, "scan: y")
    traced = [*flatten(after, "scan: carry")[0], *found]
    results = [*carry, *(zeros(y.shape, dtype=y.dtype, device=y.device) for y in found)]
    recorded = [k for k, t in enumerate(traced) if is_node(t._node)]
    ends = {id(end) for end in boundary([traced[k]._node for k in recorded], -1)}
    sources = [i.real for i in tracer.inputs if id(i.leaf) in ends]
    joint = make_node(_pull_nothing, None, [t._node for t in sources], sources, carry)
    for k in recorded:
        results[k] = results[k].detach().clone()
        results[k]._node = part(joint, k, results[k].shape)
    n = len(carry)
    return unflatten(structure, results[:n]), unflatten(whole, results[n:])


def _pull_nothing(bundle: dict[int, Tensor], node: Node) -> list[tuple[Any, Tensor]]:
    """Pullback of a scan without steps: the initial carry gets the cotangent of the carry, all others zeros."""
    sources, carry = kept_by(node)
    found = [(t._node, zeros_like(t)) for t in sources]
    return found + [(t._node, bundle[k]) for k, t in enumerate(carry) if k in bundle and t._node is not None]


def _in_chunks(
    f: Any,
    carry: list[Tensor],
    structure: Structure,
    xs: list[Tensor],
    shape: Structure,
    steps: int,
    reverse: bool,
    size: int,
    inner: Callable[..., Any],
    checkpoint: bool | int,
) -> tuple[Any, Any]:
    """A loop over chunks of `size` steps, and one over the steps that are left."""
    whole = steps - steps % size
    parts = [(0, whole), (whole, steps)]
    value, found = unflatten(structure, carry), {}
    for low, high in parts[:: -1 if reverse else 1]:
        if low == high:
            continue
        part = [x[low:high] for x in xs]
        if low:
            value, found[low] = scan(f, value, unflatten(shape, part), high - low, reverse, checkpoint=checkpoint)
            continue
        cut = unflatten(shape, [x.reshape((whole // size, size, *x.shape[1:])) for x in part])
        value, ys = scan(lambda c, x: inner(f, c, x), value, cut, whole // size, reverse, checkpoint=checkpoint)
        leaves, new = flatten(ys, "scan: y")
        found[low] = unflatten(new, [y.reshape((whole, *y.shape[2:])) for y in leaves])
    both = [flatten(found[low], "scan: y") for low in sorted(found)]
    joined = [OPS["concat"].fn(list(ys), axis=0) for ys in zip(*(ys for ys, _ in both), strict=True)]
    return value, unflatten(both[0][1], joined)


def _traced_scan(
    tracer: Tracer,
    f: Any,
    carry: list[Tensor],
    structure: Structure,
    xs: list[Tensor],
    shape: Structure,
    steps: int,
    reverse: bool,
    again: bool,
) -> tuple[Any, Any]:
    from ..tracing.capture.loops.loop import Loop
    from ..tracing.capture.subgraphs import capture_region, snapshot

    n, made = len(carry), []

    def step(tensors: list[Tensor]) -> list[Tensor]:
        after, ys, new = step_of(f, tensors[:n], structure, tensors[n:], shape)
        made.append(new)
        return [*after, *ys]

    avals = [*(aval_of(t) for t in carry), *(replace(aval_of(x), shape=x.shape[1:]) for x in xs)]
    region = capture_region(tracer, "the body of scan", avals, step, (f,))
    end = len(region.outputs) - len(region.states)
    carries = [*region.inputs[:n], *region.inputs[n + len(xs) :]]
    after = [*region.outputs[:n], *region.outputs[end:]]
    results = Loop(
        tracer, "scan", region.since, region.made, carries, region.inputs[n : n + len(xs)], after,
        region.outputs[n:end], [snapshot(tracer, t) for t in (*carry, *region.states)],
        [snapshot(tracer, x) for x in xs], steps, reverse, again=again, checks=region.checks,
    ).run()  # fmt: skip
    region.leave(results[n : len(after)])
    return unflatten(structure, results[:n]), unflatten(made[-1], results[len(after) :])


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """`f` of each slice of `xs` along its first axis, the results stacked.

    >>> import hybridml as hm
    >>> hm.map(lambda row: row.sum(), hm.ones((2, 3))).tolist()
    [3.0, 3.0]
    """
    return scan(partial(_mapped, f), None, xs)[1]


# Partial functions of these, and not closures: what they call is looked at (see tracing/python_state/guards.py).


def _mapped(f: Callable[[Any], Any], _: None, x: Any) -> Any:
    return None, f(x)

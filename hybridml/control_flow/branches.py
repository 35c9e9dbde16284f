"""`cond`: one of two functions."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hybridml_compiler.errors import ArgumentError

from ..core.forward.interpreter import Forward
from ..core.nested import top_nesting
from ..core.pytree import Structure
from ..core.tensor import Tensor
from .batches import Recorded, is_below_a_trace, selected, varies
from .containers import (
    check_alike,
    flag_of,
    flatten,
    top_tracer,
    unflatten,
)
from .duals import cond_of_duals

if TYPE_CHECKING:
    from ..tracing.capture.tracer import Tracer


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any) -> Any:
    """`true_fn(*operands)` where `pred` is true, `false_fn(*operands)` where it is not; only one of them runs.

    `pred` is a bool or a tensor of one element. In a traced function both are captured, and must return containers
    of one structure, shapes, dtypes and devices: ArgumentError, ShapeError, DTypeError or DeviceError names the leaf.
    A Python bool is decided on the spot in either style.

    >>> import hybridml as hm
    >>> x = hm.tensor([1.0, -2.0])
    >>> hm.cond(x.sum() > 0, lambda t: t * 2, lambda t: -t, x).tolist()
    [-1.0, 2.0]
    """
    if not all(builtins.map(callable, (true_fn, false_fn))):
        raise ArgumentError("cond: takes a predicate and two functions: cond(pred, true_fn, false_fn, *operands)")
    predicate = flag_of(pred, "cond: pred")
    tracer, around = top_tracer(), top_nesting()
    if type(around) is Forward and not isinstance(predicate, bool) and is_below_a_trace():
        with suppress(Recorded):
            return cond_of_duals(around, cond, predicate, true_fn, false_fn, operands)
    if around is not None and varies(predicate):
        return selected(around, predicate, true_fn, false_fn, operands)
    if tracer is None or isinstance(predicate, bool):
        name, fn = ("true_fn", true_fn) if predicate else ("false_fn", false_fn)
        tensors, structure = flatten(fn(*operands), f"cond: what {name} returns")
        return unflatten(structure, tensors)
    return _traced_cond(tracer, predicate, true_fn, false_fn, operands)


def _traced_cond(tracer: Tracer, predicate: Tensor, true_fn: Any, false_fn: Any, operands: Sequence[Any]) -> Any:
    from ..tracing.capture.cond import Branch, Choice
    from ..tracing.capture.subgraphs import Region, capture_region, snapshot

    structures: list[Structure] = []
    regions = []
    for name, fn in (("true_fn", true_fn), ("false_fn", false_fn)):

        def branch(_: list[Tensor], fn: Any = fn, name: str = name) -> list[Tensor]:
            tensors, structure = flatten(fn(*operands), f"cond: what {name} returns")
            structures.append(structure)
            return tensors

        regions.append(capture_region(tracer, f"{name} of cond", (), branch, (fn,), True))
        del structures[len(regions) : -1]  # of captures before the last
        structures[len(regions) - 1 :] = structures[-1:]
    true, false = regions
    counts = [len(r.outputs) - len(r.states) for r in regions]
    check_alike(
        "cond: true_fn and false_fn differ", "result", true.outputs[: counts[0]], structures[0],
        false.outputs[: counts[1]], structures[1],
    )  # fmt: skip
    states = list({id(t): t for r in regions for t in r.states}.values())
    silent = [t for t in states if all(any(t is s for s in (*r.silent, *_missing(states, r.states))) for r in regions)]
    branches = []
    for region, count in zip(regions, counts, strict=True):
        left = {id(t): value for t, value in zip(region.states, region.outputs[count:], strict=True)}
        kept = [left[id(t)] if id(t) in left else snapshot(tracer, t) for t in states]
        outputs = [*region.outputs[:count], *kept]
        branches.append(Branch(region.since, region.made, [], outputs, region.checks))
    results = Choice(tracer, predicate, branches[0], branches[1], []).run()
    Region(tracer, 0, [], [], states, silent, set()).leave(results[counts[0] :])
    return unflatten(structures[0], results[: counts[0]])


def _missing(all_: Sequence[Tensor], some: Sequence[Tensor]) -> list[Tensor]:
    return [t for t in all_ if all(t is not s for s in some)]

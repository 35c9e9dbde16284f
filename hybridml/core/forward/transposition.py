"""Transposition: the derivative along tangents from a pullback, which is linear.

A pullback maps cotangents of results to cotangents of inputs; its own pullback, for the tangents of the inputs, is the
derivative itself, whatever cotangents it is taken at. Source: J. Townsend, "A new trick for calculating Jacobian vector
products" (2017).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from hybridml_compiler import dtypes
from hybridml_compiler.errors import GradientError
from hybridml_compiler.ops.table import OPS

from ..autodiff.tape import Leaf, Mark, leading, run
from ..context import at_place, clock, enable_grad, grad_is_off
from ..tensor import Tensor, like

_full, _broadcast_to = OPS["full"], OPS["broadcast_to"]

Pull = Callable[[Sequence[Tensor | None]], Sequence[tuple[Tensor, Tensor]]]


def transposed(outs: Sequence[Tensor], pull: Pull) -> list[Tensor | None]:
    """The tangents of results, None where they are zero.

    `pull` is given a cotangent for each of `outs`, None for one of integers, and returns the cotangents of the inputs
    that have a tangent, each with that tangent.
    """
    with enable_grad():
        before = clock()  # histories up to here do not lead to the cotangents
        seeds = [_cotangent(out) if dtypes.is_inexact(out.dtype) else None for out in outs]
        pairs = [(c, t) for c, t in pull(seeds) if c._node is not None]
    moving = [g for g in seeds if g is not None]
    tangents = [t if t.shape == c.shape else _broadcast_to.fn(t, c.shape) for c, t in pairs]
    found = iter(pulled([c for c, _ in pairs], tangents, moving, before))
    return [None if g is None else next(found) for g in seeds]


def by_pullback(
    fn: Callable[..., Sequence[Tensor]], args: Sequence[Any], tangents: Sequence[Tensor | None]
) -> tuple[Sequence[Tensor], list[Tensor | None]]:
    """The results of a function that the tape records, and their tangents for those of its arguments."""
    start, is_recorded = clock(), any(isinstance(a, Tensor) and a._node is not None for a in (*args, *tangents))
    with enable_grad():
        inner = [a if t is None else differentiated(a) for a, t in zip(args, tangents, strict=True)]
        outs = fn(*inner)
        moving = [(a, t) for a, t in zip(inner, tangents, strict=True) if t is not None]

        def pull(gs: Sequence[Tensor | None]) -> list[tuple[Tensor, Tensor]]:
            given = [(o, g) for o, g in zip(outs, gs, strict=True) if g is not None]
            found = pulled([o for o, _ in given], [g for _, g in given], [a for a, _ in moving], start)
            return [(c, t) for c, (_, t) in zip(found, moving, strict=True) if c is not None]

        found = transposed(outs, pull)
    if is_recorded:
        return outs, found
    return [bare(o) for o in outs], [None if t is None else bare(t) for t in found]


def differentiated(t: Tensor) -> Tensor:
    """The tensor as one whose cotangents are wanted; those of its own history flow on."""
    own: Tensor = _leaf(t) if t._node is None or type(t._node) is Mark else t.clone()
    return own


def pulled(outs: Sequence[Tensor], gs: Sequence[Tensor], ins: Sequence[Tensor], since: int) -> list[Tensor | None]:
    """The cotangents of `ins`, which are differentiated since the stamp, for those of `outs`; what does not lead to
    them is constant.
    """
    seeds = [(o._node, g) for o, g in zip(outs, gs, strict=True) if o._node is not None]
    nodes = [t._node for t in ins]
    wanted, only = {id(node): 0 for node in nodes}, leading([node for node, _ in seeds], nodes, since)
    found = run(seeds, retain=True, create=not grad_is_off(), wanted=wanted, since=since, only=only)
    return [found[id(node)][1] if id(node) in found else None for node in nodes]


def pulled_from_rule(
    rule: Any, what: str, outs: Sequence[Tensor], gs: Sequence[Tensor], ts: Sequence[Tensor], since: int
) -> list[Tensor | None]:
    """The cotangents of the tangents `ts` from those of the results of a user's rule, which has to be linear in them.

    The first time that this happens to a rule it is looked at, and GradientError says that it is not: then a cotangent
    depends on the tangents, at which there is nothing to take it.
    """
    if rule in _LINEAR:
        return pulled(outs, gs, ts, since)
    with enable_grad():
        found = pulled(outs, gs, ts, since)
    histories = [c._node for c in found if c is not None and c._node is not None]
    if not leading(histories, [t._node for t in ts], since).isdisjoint(map(id, histories)):
        raise GradientError(
            f"{what}: the rule is not linear in the tangents, and a gradient needs its transpose; a tangent may be "
            "multiplied by what does not depend on tangents, and added to others"
        )
    with suppress(TypeError):  # it has no weak references
        _LINEAR.add(rule)
    return found if not grad_is_off() else [None if c is None else bare(c) for c in found]


_LINEAR: WeakSet[Any] = WeakSet()  # rules that have been looked at


def bare(t: Tensor) -> Tensor:
    """The tensor without its history."""
    return like(t, t._array)


def _leaf(t: Tensor) -> Tensor:
    return like(t, t._array, Leaf(t.shape, t.dtype))


def _cotangent(out: Tensor) -> Tensor:
    """A leaf where tangents of a result arrive; of ones, as a rule may divide by it."""
    return _leaf(at_place(out.device.type, lambda: _full.fn(shape=out.shape, value=1.0, dtype=out.dtype)))

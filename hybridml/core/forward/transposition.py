"""Transposition: the derivative along tangents from a pullback, which is linear.

A pullback maps cotangents of results to cotangents of inputs; its own pullback, for the tangents of the inputs, is the
derivative itself, whatever cotangents it is taken at. Source: J. Townsend, "A new trick for calculating Jacobian vector
products" (2017).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.ops.table import OPS

from ..autodiff.tape import Leaf, Mark, run
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
    wanted = {id(g._node): k for k, g in enumerate(seeds) if g is not None}
    starts = [(c._node, t if t.shape == c.shape else _broadcast_to.fn(t, c.shape)) for c, t in pairs]
    found = run(starts, retain=True, create=not grad_is_off(), wanted=wanted, since=before)
    return [None if g is None or id(g._node) not in found else found[id(g._node)][1] for g in seeds]


def by_pullback(
    fn: Callable[..., Sequence[Tensor]], args: Sequence[Any], tangents: Sequence[Tensor | None]
) -> tuple[Sequence[Tensor], list[Tensor | None]]:
    """The results of a function that the tape records, and their tangents for those of its arguments."""
    start, is_recorded = clock(), any(isinstance(a, Tensor) and a._node is not None for a in (*args, *tangents))
    with enable_grad():
        inner = [a if t is None else differentiated(a) for a, t in zip(args, tangents, strict=True)]
        outs = fn(*inner)
        wanted = {id(a._node): t for a, t in zip(inner, tangents, strict=True) if t is not None}

        def pull(gs: Sequence[Tensor | None]) -> list[tuple[Tensor, Tensor]]:
            seeds = [(o._node, g) for o, g in zip(outs, gs, strict=True) if g is not None and o._node is not None]
            found = run(seeds, retain=True, create=True, wanted=dict.fromkeys(wanted, 0), since=start)
            return [(found[key][1], t) for key, t in wanted.items() if key in found]

        found = transposed(outs, pull)
    if is_recorded:
        return outs, found
    return [_bare(o) for o in outs], [None if t is None else _bare(t) for t in found]


def differentiated(t: Tensor) -> Tensor:
    """The tensor as one whose cotangents are wanted; those of its own history flow on."""
    own: Tensor = _leaf(t) if t._node is None or type(t._node) is Mark else t.clone()
    return own


def _bare(t: Tensor) -> Tensor:
    return like(t, t._array)


def _leaf(t: Tensor) -> Tensor:
    return like(t, t._array, Leaf(t.shape, t.dtype))


def _cotangent(out: Tensor) -> Tensor:
    """A leaf where tangents of a result arrive; of ones, as a rule may divide by it."""
    return _leaf(at_place(out.device.type, lambda: _full.fn(shape=out.shape, value=1.0, dtype=out.dtype)))

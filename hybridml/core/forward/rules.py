"""Rules by which tangents go through an operation: by the kind of the row, and some for single rows.

What a row's pullbacks keep says what it is. One that keeps none of the operands is linear in all of them together, and
its derivative is the row itself of the tangents; one that keeps the other operands alone is linear in each. The
pullback of an elementwise row multiplies by a factor, and so does its derivative; that of a reduction along axes does,
and its derivative adds up what that gives. All other rows transpose their pullback.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS

from ..batching.rules import stretches
from ..context import beside
from ..nested import called
from ..tensor import Tensor
from .transposition import bare, transposed

Params = Mapping[str, Any]
Tangents = Sequence[Tensor | None]
_add, _astype, _broadcast_to, _full = OPS["add"], OPS["astype"], OPS["broadcast_to"], OPS["full"]


def pushed(op: Op, xs: Sequence[Tensor], ts: Tangents, outs: Sequence[Tensor], params: Params) -> list[Tensor | None]:
    """The tangents of the results `outs` of a row, for those of its operands: None where they are zero."""
    rules = op.jvp or (op.vjp * len(xs) if op.variadic else op.vjp)
    if op.kind != "transfer":
        ts = [t if rule is not None else None for t, rule in zip(ts, rules, strict=True)]
    if all([t is None for t in ts]) or not any([dtypes.is_inexact(out.dtype) for out in outs]):
        return [None] * len(outs)

    def run() -> list[Tensor | None]:
        found: Tangents
        rule = _RULES.get(op)
        if op.jvp:
            found = _said(op, xs, ts, outs, params)
        elif rule is not None:
            found = [rule(op, xs, ts, params)]
        elif op.results:
            found = _transposed(op, xs, ts, outs, params)
        elif stretches(op):
            is_complex = any([x.dtype.kind == "c" for x in (*xs, *outs)])
            found = _transposed(op, xs, ts, outs, params) if is_complex else [_factors(op, xs, ts, outs[0], params)]
        elif _is_linear(op):
            found = [_itself(op, xs, ts, params)]
        elif op.kind == "reduction" and "keepdims" in op.params:
            found = [_reduced(op, xs, ts, outs[0], params)]
        else:
            found = _by_operand(op, xs, ts, outs, params)
        return [None if t is None else fitting(t, out) for t, out in zip(found, outs, strict=True)]

    return beside(xs, run)


def fitting(t: Tensor, out: Tensor) -> Tensor:
    """A tangent of the shape and dtype of the result."""
    t = t if t.dtype is out.dtype else _astype.fn(t, out.dtype)
    return t if t.shape == out.shape else _broadcast_to.fn(t, out.shape)


def zeros_like(x: Tensor) -> Tensor:
    made: Tensor = beside((x,), lambda: _full.fn(shape=x.shape, value=0, dtype=x.dtype))
    return made


def summed(parts: Sequence[Tensor]) -> Tensor | None:
    """The sum of tangents; None without any."""
    total: Tensor | None = None
    for part in parts:
        total = part if total is None else _add.fn(total, part)
    return total


def _said(op: Op, xs: Sequence[Tensor], ts: Tangents, outs: Sequence[Tensor], params: Params) -> Tangents:
    """The sum of what the rules of the row itself say."""
    known = _known(op, xs, outs, params)
    parts: list[list[Tensor]] = [[] for _ in outs]
    for t, rule, needs in zip(ts, op.jvp, op.jvp_needs, strict=True):
        if t is None or rule is None:
            continue
        given = rule(t, **{need: known[need] for need in needs or ()})
        for own, part in zip(parts, given if op.results else (given,), strict=True):
            own += [] if part is None else [part]
    return [summed(own) for own in parts]


# -- rules of kinds


@cache
def _is_linear(op: Op) -> bool:
    """Whether a row that is not elementwise is linear in its differentiable operands together."""
    if op.kind == "transfer" or op.version:  # the gradient of a user's row may be that of another function
        return op.kind == "transfer"
    moving = {x for x, rule in zip(op.inputs, op.vjp, strict=True) if rule is not None} | {"out"}
    return not any(moving.intersection(needs or ()) for needs in op.needs)


@cache
def _is_linear_in(op: Op, k: int) -> bool:
    """Whether a row is linear in one operand, the others fixed."""
    return not op.version and not {op.inputs[k], "out"}.intersection(op.needs[k] or ())


def _itself(op: Op, xs: Sequence[Tensor], ts: Tangents, params: Params) -> Tensor:
    """The row of the tangents, beside operands that have none because they are not differentiated."""
    rules = op.vjp * len(xs) if op.variadic else op.vjp
    moving = op.kind == "transfer"
    given = [
        t if t is not None else zeros_like(x) if rule is not None or moving else x
        for x, t, rule in zip(xs, ts, rules, strict=True)
    ]
    found: Tensor = called(op, given, params)
    return found


def _factors(op: Op, xs: Sequence[Tensor], ts: Tangents, out: Tensor, params: Params) -> Tensor | None:
    known = _known(op, xs, [out], params)
    return summed([_pulled(op, k, t, known) for k, t in enumerate(ts) if t is not None])


def _reduced(op: Op, xs: Sequence[Tensor], ts: Tangents, out: Tensor, params: Params) -> Tensor:
    (t,) = ts
    factor = _pulled(op, 0, _full.fn(shape=out.shape, value=1, dtype=out.dtype), _known(op, xs, [out], params))
    found: Tensor = OPS["sum"].fn(factor * t, axis=params["axis"], keepdims=params["keepdims"])
    return found


def _by_operand(op: Op, xs: Sequence[Tensor], ts: Tangents, outs: Sequence[Tensor], params: Params) -> Tangents:
    """The sum over operands: the row itself where it is linear in one, its pullback transposed for the rest."""
    parts = []
    rest = list(ts)
    for k, t in enumerate(ts):
        if t is not None and _is_linear_in(op, k):
            parts.append(called(op, [*xs[:k], t, *xs[k + 1 :]], params))
            rest[k] = None
    if any(t is not None for t in rest):
        (found,) = _transposed(op, xs, rest, outs, params)
        parts += [] if found is None else [found]
    return [summed(parts)]


def _transposed(op: Op, xs: Sequence[Tensor], ts: Tangents, outs: Sequence[Tensor], params: Params) -> Tangents:
    known = _known(op, xs, outs, params)

    def pull(gs: Tangents) -> list[tuple[Tensor, Tensor]]:
        g: Any = tuple(gs) if op.results else gs[0]
        return [(_pulled(op, k, g, known), t) for k, t in enumerate(ts) if t is not None]

    found = transposed(outs, pull)
    if any(t is not None and t._node is not None for t in (*xs, *ts)):
        return found
    return [None if t is None else bare(t) for t in found]  # what is left leads to the cotangents alone


def _known(op: Op, xs: Sequence[Tensor], outs: Sequence[Tensor], params: Params) -> dict[str, Any]:
    """All that the pullbacks of a row may ask for, by name."""
    known = {**params, "out": tuple(outs) if op.results else outs[0]}
    if op.variadic:
        name = op.inputs[0]
        return known | {name: xs, f"{name}_shapes": [x.shape for x in xs], f"{name}_dtypes": [x.dtype for x in xs]}
    for name, x in zip(op.inputs, xs, strict=True):
        known |= {name: x, f"{name}_shape": x.shape, f"{name}_dtype": x.dtype}
    return known


def _pulled(op: Op, k: int, g: Any, known: Mapping[str, Any]) -> Tensor:
    """The cotangent of operand k, before it is summed over axes along which that was stretched."""
    at = 0 if op.variadic else k
    rule = op.vjp[at]
    assert rule is not None, f"{op.name} has a tangent in an operand that has no derivative"
    found: Tensor = rule(g, **{need: k if op.variadic and need == "k" else known[need] for need in op.needs[at] or ()})
    return found


# -- rules of rows


def _product(op: Op, xs: Sequence[Tensor], ts: Tangents, params: Params) -> Tensor | None:
    if xs[0] is xs[1] and ts[0] is not None:  # a square: both products are one
        half = called(op, [ts[0], xs[1]], params)
        return summed([half, half])
    return summed([called(op, [*xs[:k], t, *xs[k + 1 :]], params) for k, t in enumerate(ts) if t is not None])


def _pad(op: Op, xs: Sequence[Tensor], ts: Tangents, params: Params) -> Tensor:
    return _itself(op, xs, ts, {**params, "value": 0})


def _sort(op: Op, xs: Sequence[Tensor], ts: Tangents, params: Params) -> Tensor:
    places = OPS["argsort"].fn(xs[0], **params)
    found: Tensor = OPS["take_along_axis"].fn(ts[0], places, axis=params["axis"])
    return found


def _max_pool(op: Op, xs: Sequence[Tensor], ts: Tangents, params: Params) -> Tensor:
    """The tangents at the places of the maxima, where `unpool` puts elements and its pullback takes them from."""
    places, unpool = OPS["argmax_pool"].fn(xs[0], **params), OPS["unpool"]
    return _pulled(unpool, 0, ts[0], {**params, "places": places})


Rule = Callable[[Op, Sequence[Tensor], Tangents, Params], Tensor | None]

_RULES: dict[Op, Rule] = {OPS[name]: rule for name, rule in {
    **dict.fromkeys(("astype", "real", "imag", "conj", "complex"), _itself),
    "multiply": _product, "pad": _pad, "sort": _sort, "max_pool": _max_pool,
}.items()}  # fmt: skip

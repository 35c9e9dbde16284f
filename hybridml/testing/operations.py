"""`check_op`: the checks that the operations of the table go through, for an operation of a user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.op import Sample as Sample

from ..arrays.creation import asarray
from ..core.tensor import Tensor
from ..extend.operation import op_of
from ..extend.row_of_function import Unknown
from ..tracing.decorator import trace
from ..transforms.grad import jvp, vjp
from ..transforms.vmap import vmap
from .gradients import gradcheck


def check_op(op: Callable[..., Any], samples: Iterable[Sample] | None = None, *, seed: int = 0) -> int:
    """Runs an operation of `hm.op` or `hm.kernel` on samples, and returns their number.

    For each sample: `infer` says what the function returns; the traced program, and for an operation with `lower` the
    interpreted one, give the bits of the function; where there are rules, the gradient agrees with finite differences
    to second order, and the derivative along tangents with the gradient; vmap agrees with a loop. `samples` are those
    of the operation unless they are given here.

    Raises AssertionError with what differs, ArgumentError where there is nothing to run.

    >>> import hybridml as hm
    >>> @hm.kernel
    ... def cube(x):
    ...     return x * x * x
    >>> hm.testing.check_op(cube, [hm.testing.Sample((np.linspace(-1, 1, 5),))])
    1
    """
    row = op_of(op)
    if row is None:
        raise ArgumentError(f"check_op: takes what hm.op or hm.kernel has made, got {type(op).__name__}")
    rng = np.random.default_rng(seed)
    given = list(row.samples(rng) if samples is None else samples)
    if not given:
        raise ArgumentError(f"check_op: {row.name} has no samples; give some, hm.testing.Sample((array, ...), {{...}})")
    for number, sample in enumerate(given):
        _check(op, row, sample, f"{row.name}, sample {number}")
    return len(given)


def _check(op: Callable[..., Any], row: Op, sample: Sample, what: str) -> None:
    params = dict(sample.params)
    tensors = [asarray(array) for array in sample.args]

    def run(*tensors: Tensor) -> Any:
        return op(*tensors, **params)

    eager = _listed(run(*tensors))
    types = row.infer_from([Aval(t.shape, t.dtype) for t in tensors], row.canonical_params([], params))
    for found, aval in zip(eager, types if row.results else (types,), strict=True):
        _expect(f"{what}: infer", (tuple(aval.shape), aval.dtype), (found.shape, found.dtype))
    _agree(f"{what}: the traced program", _listed(trace(run)(*tensors)), eager)
    if row.kind == "elementwise":
        there = run(*[t.to("reference") for t in tensors])
        _agree(f"{what}: `lower`", [each.cpu() for each in _listed(there)], eager)
    doubled = [asarray(np.stack([array, array])) for array in sample.args]
    batch = _listed(vmap(run, randomness="different")(*doubled))
    for found, one in zip(batch, eager, strict=True):
        _agree(f"{what}: vmap", [found[0], found[1]], [one, one])
    has_rules = row.differentiable and not any(isinstance(rule, Unknown) for rule in row.vjp)
    if has_rules and sample.grad and all(dtypes.is_inexact(each.dtype) for each in eager):
        wide = [t.astype(np.float64) if t.dtype.kind == "f" else t for t in tensors]
        gradcheck(run, *wide, order=2)
        _check_tangents(f"{what}: the derivative along tangents", run, wide)


def _check_tangents(what: str, run: Callable[..., Any], tensors: list[Tensor]) -> None:
    """Asserts that forward mode is the transpose of reverse mode, which differences have confirmed."""
    rng, moving = np.random.default_rng(0), [k for k, t in enumerate(tensors) if dtypes.is_inexact(t.dtype)]

    def of_moving(*given: Tensor) -> Any:
        at = dict(zip(moving, given, strict=True))
        return run(*[at.get(k, t) for k, t in enumerate(tensors)])

    primals = [tensors[k] for k in moving]
    tangents = [asarray(rng.standard_normal(t.shape).astype(t.dtype)) for t in primals]
    value, ahead = jvp(of_moving, primals, tangents)
    weights = [asarray(rng.standard_normal(t.shape).astype(t.dtype)) for t in _listed(value)]
    gradients = vjp(of_moving, *primals)[1](tuple(weights) if isinstance(value, tuple) else weights[0])
    sums = []
    for pairs in (zip(weights, _listed(ahead), strict=True), zip(gradients, tangents, strict=True)):
        products = [(np.conj(w.numpy()) * t.numpy()).real for w, t in pairs]
        sums.append((sum(p.sum() for p in products), sum(abs(p).sum() for p in products)))
    (pushed, size), (pulled, _) = sums
    agree = abs(pushed - pulled) <= 1e-8 * (1 + size)
    assert agree, f"{what} is {pushed:.9g} in a random direction, where that of gradients is {pulled:.9g}"


def _listed(found: Any) -> list[Tensor]:
    return list(found) if isinstance(found, tuple | list) else [found]


def _expect(what: str, said: Any, found: Any) -> None:
    assert said == found, f"{what} says {said}, and the result has {found}"


def _agree(what: str, found: list[Tensor], expected: list[Tensor]) -> None:
    """Asserts that the bits of tensors are equal."""
    for a, b in zip(found, expected, strict=True):
        x, y = a.detach().numpy(), b.detach().numpy()
        _expect(what, (y.shape, y.dtype), (x.shape, x.dtype))
        same = np.array_equal(x, y, equal_nan=x.dtype.kind in "fc")
        assert same, f"{what} differs from the function: {x!r} and {y!r}"

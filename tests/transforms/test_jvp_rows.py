"""Every row of the table in forward mode: against reverse mode, against differences, and in a traced program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.core.pytree import tree_leaves
from hybridml_compiler.ops.op import Op, Sample
from hybridml_compiler.ops.table import OPS
from tests.support.examples import every

ROWS = [op for op in OPS.values() if op.inputs and op.kind != "control" and any(op.vjp)]
STEP = 1e-6
_SAMPLES = 5  # of a row

Case = tuple[Sample, Callable[..., Any], list[np.ndarray]]


def cases(op: Op) -> Iterator[Case]:
    """Samples of a row, each as a function of its operands of floats and complex numbers that have a derivative."""
    for sample in op.samples(np.random.default_rng(0)):
        args = [np.asarray(a) for a in (sample.args[0] if op.variadic else sample.args)]
        rules = op.vjp * len(args) if op.variadic else op.vjp
        moving = [k for k, a in enumerate(args) if rules[k] is not None and a.dtype.kind in "fc"]
        if not moving or (op is OPS["zeta"] and 0 in moving):  # of its exponent it has none
            moving = [k for k in moving if k and op is OPS["zeta"]]
        call = partial(called, op, sample, args, moving)
        inputs = [args[k] for k in moving]
        if moving and any(t.dtype.kind in "fc" for t in tree_leaves(call(*map(hm.asarray, inputs)))):
            yield sample, call, inputs


def called(op: Op, sample: Sample, args: Sequence[np.ndarray], moving: Sequence[int], *inputs: hm.Tensor) -> Any:
    values = dict(zip(moving, inputs, strict=True))
    tensors = [values.get(k, hm.asarray(a)) for k, a in enumerate(args)]
    return op.fn(tensors, **sample.params) if op.variadic else op.fn(*tensors, **sample.params)


def directions(rng: np.random.Generator, like: Sequence[Any]) -> tuple[hm.Tensor, ...]:
    def one(x: Any) -> hm.Tensor:
        if x.dtype.kind not in "fc":
            return hm.zeros(x.shape, dtype=x.dtype)
        values = rng.normal(size=x.shape) + (1j * rng.normal(size=x.shape) if x.dtype.kind == "c" else 0)
        return hm.asarray(np.asarray(values, x.dtype))

    return tuple(one(x) for x in like)


def inner(gradients: Sequence[Any], tangents: Sequence[Any]) -> tuple[float, float]:
    """The real inner product, and the sum of the magnitudes of its terms."""
    products = [np.conj(np.asarray(g)) * np.asarray(t) for g, t in zip(gradients, tangents, strict=True)]
    floats = [p for p in products if p.dtype.kind in "fc"]
    return sum(float(p.real.sum()) for p in floats), sum(float(np.abs(p).sum()) for p in floats)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # inner products of samples with nan and inf
@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_forward_is_the_transpose_of_reverse(op: Op) -> None:
    """<w, J t> = <J^T w, t>, and the value is that of the row: the tangent has its dtype."""
    rng = np.random.default_rng(1)
    for sample, call, inputs in itertools.islice(cases(op), _SAMPLES):
        primals, tangents = tuple(map(hm.asarray, inputs)), directions(rng, inputs)
        value, product = hm.jvp(call, primals, tangents)
        outs, moved = tree_leaves(value), tree_leaves(product)
        for v, t, plain in zip(outs, moved, tree_leaves(call(*primals)), strict=True):
            assert v.shape == t.shape and v.dtype == t.dtype
            np.testing.assert_array_equal(np.asarray(v), np.asarray(plain))
        weights = directions(rng, outs)
        gradients = hm.vjp(call, *primals)[1](weights if op.results else weights[0])
        ahead, _ = inner(weights, moved)
        back, size = inner(gradients, tangents)
        precise = all(a.dtype in (np.float64, np.complex128) for a in (*inputs, *outs) if a.dtype.kind in "fcV")
        if np.isfinite(back) and (sample.grad or np.isfinite(ahead)):
            assert abs(ahead - back) <= (1e-9 if precise else 3e-5) * (1 + size), sample


@pytest.mark.parametrize("op", every(3, ROWS), ids=lambda op: op.name)
def test_forward_is_the_limit_of_differences_and_the_same_traced(op: Op) -> None:
    chosen = (c for c in cases(op) if c[0].grad and all(a.dtype in (np.float64, np.complex128) for a in c[2]))
    for sample, call, inputs in itertools.islice(chosen, 2):
        primals = tuple(map(hm.asarray, inputs))
        tangents = directions(np.random.default_rng(2), inputs)

        def push(*given: Any, call: Any = call, n: int = len(inputs)) -> Any:
            return hm.jvp(call, given[:n], given[n:])[1]

        moved = tree_leaves(push(*primals, *tangents))
        ends = [call(*(x + sign * STEP * t for x, t in zip(primals, tangents, strict=True))) for sign in (1, -1)]
        for t, high, low in zip(moved, *map(tree_leaves, ends), strict=True):
            if t.dtype.kind in "fc":
                change = (np.asarray(high) - np.asarray(low)) / (2 * STEP)
                np.testing.assert_allclose(np.asarray(t), change, rtol=3e-4, atol=3e-4, err_msg=str(sample))
        traced = tree_leaves(hm.trace(push, backend="interpret")(*primals, *tangents))
        for a, b in zip(traced, moved, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-9, atol=1e-9)

"""Every row of the operation table with a gradient: its rules against differences, order 1 and 2, by random
projection. Of complex numbers: a step u changes a result of gradient w by the real part of conj(w) * u."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import hybridml as hm
from hybridml.core.codegen import generate
from hybridml_compiler.errors import GradientError
from hybridml_compiler.ops.computed import Refused
from hybridml_compiler.ops.elementwise import elementwise
from hybridml_compiler.ops.op import Op, Sample
from hybridml_compiler.ops.table import OPS
from tests.support.cases import case

STEP = 1e-6


def arrays_of(op: Op, sample: Sample) -> list[np.ndarray]:
    return list(sample.args[0]) if op.variadic else [np.asarray(a) for a in sample.args]


def call(op: Op, tensors: list[hm.Tensor], sample: Sample) -> list[hm.Tensor]:
    found = op.fn(tensors, **sample.params) if op.variadic else op.fn(*tensors, **sample.params)
    return list(found) if op.results else [found]


def random(rng: np.random.Generator, like: np.ndarray | hm.Tensor) -> np.ndarray:
    found = rng.standard_normal(like.shape)
    return found + 1j * rng.standard_normal(like.shape) if like.dtype.kind == "c" else found


def change(w: np.ndarray, u: np.ndarray) -> float:
    return float((w.conj() * u).real.sum())


def check(function: object, points: list[np.ndarray], floats: list[int], rng: np.random.Generator, order: int) -> None:
    """<v, (f(x + hu) - f(x - hu)) / 2h> against <vjp(v), u>; then the same for the function x -> vjp(v)."""
    directions = [random(rng, points[k]) for k in floats]

    def value(shift: float) -> list[np.ndarray]:
        moved = list(points)
        for k, u in zip(floats, directions, strict=True):
            moved[k] = points[k] + shift * u
        return [np.asarray(t.detach()) for t in function([hm.asarray(np.array(p)) for p in moved])]

    inputs = [hm.tensor(p) for p in points]
    for k in floats:
        inputs[k].requires_grad_()
    outputs = [t for t in function(inputs) if t.requires_grad]
    if not outputs:
        return
    kept = [k for k, t in enumerate(function(inputs)) if t.requires_grad]
    weights = [random(rng, t) for t in outputs]
    wanted = [inputs[k] for k in floats]

    def pulled(tensors: list[hm.Tensor]) -> list[hm.Tensor]:
        outs = [t for j, t in enumerate(function(tensors)) if j in kept]
        found = hm.autograd.grad(
            outs, [tensors[k] for k in floats], [hm.asarray(w) for w in weights], create_graph=True, allow_unused=True
        )
        return [hm.zeros_like(tensors[k]) if g is None else g for k, g in zip(floats, found, strict=True)]

    gradients = pulled(inputs)
    for g, t in zip(gradients, wanted, strict=True):
        assert g.shape == t.shape and g.dtype is t.dtype
    analytic = sum(change(np.asarray(g.detach()), u) for g, u in zip(gradients, directions, strict=True))
    high, low = value(STEP), value(-STEP)
    numeric = sum(change(w, (high[j] - low[j]) / (2 * STEP)) for j, w in zip(kept, weights, strict=True))
    assert analytic == pytest.approx(numeric, rel=2e-5, abs=2e-6), f"order {order}"
    if order == 1:
        check(lambda ts: pulled([t if t.requires_grad or k not in floats else t.requires_grad_()
                                 for k, t in enumerate(ts)]), points, floats, rng, 2)  # fmt: skip


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.differentiable], ids=str)
def test_gradient(op: Op) -> None:
    for k, sample in enumerate(op.samples(np.random.default_rng(0))):
        if sample.grad and any(a.dtype.char in "dD" and a.size for a in arrays_of(op, sample)):
            with case(f"sample {k}"):
                check_gradient(op, sample)


def check_gradient(op: Op, sample: Sample) -> None:
    points = arrays_of(op, sample)
    rules = range(len(points)) if op.variadic else [k for k, rule in enumerate(op.vjp) if not is_without(rule)]
    floats = [k for k in rules if points[k].dtype.kind in "fc"]
    if op.name == "astype" and np.dtype(sample.params["dtype"]).kind not in "fc":
        return
    wide = [p.astype({"f": "f8", "c": "c16"}.get(p.dtype.kind, p.dtype)) for p in points]
    check(lambda ts: call(op, ts, sample), wide, floats, np.random.default_rng(1), 1)


def is_without(rule: object) -> bool:
    return rule is None or isinstance(rule, Refused)


def refusals() -> Iterator[object]:
    for op in OPS.values():
        for k, rule in enumerate(op.vjp):
            if isinstance(rule, Refused):
                yield pytest.param(op, k, id=f"{op.name}-{k}")


@pytest.mark.parametrize(("op", "k"), list(refusals()))
def test_refused_gradient(op: Op, k: int) -> None:
    inputs = [hm.asarray(a) for a in next(iter(op.samples(np.random.default_rng(0)))).args]
    inputs[k].requires_grad_()
    with pytest.raises(GradientError, match=f"^{op.name}: no derivative with respect to"):
        op.fn(*inputs).sum().backward()


def test_an_input_or_a_parameter_may_have_any_name() -> None:
    """Rules are called by generated code, which has names of its own."""
    row = elementwise(
        "weighted", np.multiply, (lambda g, x: g * x, lambda g, n: g * n), "n * x.", inputs=("n", "x"), accepts="float",
        method=False, lower=lambda s, n, x: s.mul(n, x),
    )  # fmt: skip
    n, x = hm.tensor([2.0], requires_grad=True), hm.tensor([3.0], requires_grad=True)
    generate(row)(n, x).sum().backward()
    assert (n.grad.item(), x.grad.item()) == (3, 2)

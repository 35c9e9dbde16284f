"""Histories that cross devices: each gradient is on the device of what it belongs to, whatever the rules create."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.errors import DeviceError, GradientError
from hybridml_compiler.ops.computed import Refused
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS
from tests.support.closeness import assert_close
from tests.support.examples import every

DEVICE = "reference"
STYLES = pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
PLACES = pytest.mark.parametrize("place, end", [("cpu", DEVICE), (DEVICE, "cpu")])


def has_gradient(op: Op) -> bool:
    return any(rule is not None and not isinstance(rule, Refused) for rule in op.vjp)


def gradients(op: Op, place: str, end: str) -> list[np.ndarray]:
    """First and second derivatives of a row at its first sample, computed in one place and asked for in another."""
    sample = next(iter(op.samples(np.random.default_rng(0))))
    given = sample.args[0] if op.variadic else sample.args
    inputs = [hm.tensor(np.asarray(a)).to(place) for a in given]
    for t, rule in zip(inputs, op.vjp * len(inputs) if op.variadic else op.vjp, strict=True):
        if t.dtype.kind in "fVc" and rule is not None and not isinstance(rule, Refused):
            t.requires_grad_()
    leaves = [t for t in inputs if t.requires_grad]
    found = op.fn(inputs, **sample.params) if op.variadic else op.fn(*inputs, **sample.params)
    outs = [t.to(end) for t in (found if op.results else [found]) if t.requires_grad]
    if not outs:
        return []
    seeds = [hm.ones(t.shape, t.dtype, device=end) for t in outs]
    firsts = hm.autograd.grad(outs, leaves, seeds, create_graph=True, allow_unused=True)
    again = [hm.abs(g).to(end).sum() for g in firsts if g is not None and g.requires_grad]
    try:
        seconds = hm.autograd.grad(again, leaves, allow_unused=True) if again else ()
    except GradientError:  # a row that is itself a derivative, of the last order that there is
        seconds = ()
    assert {g.device.type for g in (*firsts, *seconds) if g is not None} <= {place}
    return [g.detach().cpu().numpy() for g in (*firsts, *seconds) if g is not None]


@pytest.mark.parametrize("op", every(2, [op for op in OPS.values() if op.inputs and has_gradient(op)]), ids=str)
def test_gradients_of_a_row_from_another_device(op: Op) -> None:
    here = gradients(op, "cpu", "cpu")
    for place, end in (("cpu", DEVICE), (DEVICE, "cpu")):
        for a, b in zip(here, gradients(op, place, end), strict=True):
            assert_close(b, a)


@STYLES
@PLACES
def test_checkpoints_and_derivatives(style: Callable[..., Any], place: str, end: str) -> None:
    def cube(t: hm.Tensor) -> hm.Tensor:
        return t.to(end) ** 3 * hm.arange(3.0, device=end) + hm.ones(3).to(end)

    def f(t: hm.Tensor) -> Any:
        hm.checkpoint(cube, t).sum().backward()
        value, product = hm.jvp(cube, (t.detach(),), (hm.ones_like(t),))
        slope = hm.vjp(cube, t.detach())[1](hm.ones(3, device=end))[0]
        return t.grad, value, product, slope, hm.grad(lambda t: cube(t)[1].sum())(t)

    t = hm.tensor([1.0, 2.0, 3.0], device=place, requires_grad=True)
    grad, value, product, slope, second = style(f)(t)
    assert grad.tolist() == slope.tolist() == [0.0, 12.0, 54.0] and second.tolist() == [0.0, 12.0, 0.0]
    assert value.tolist() == [1.0, 9.0, 55.0] and product.tolist() == [0.0, 12.0, 54.0]
    assert {t.device.type for t in (grad, slope, second)} == {place}
    assert value.device == product.device == end


@STYLES
def test_a_function_with_results_on_two_devices(style: Callable[..., Any]) -> None:
    class Both(hm.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: hm.Tensor) -> Any:
            here, there = x * 2, x.to(DEVICE) * 3
            ctx.save_for_backward(here, there)
            return here, there

        @staticmethod
        def backward(ctx: Any, g: hm.Tensor, h: hm.Tensor) -> hm.Tensor:
            here, there = ctx.saved_tensors
            assert g.device == here.device == hm.ones(1).device == "cpu" and h.device == there.device == DEVICE
            return g * here + (h * there).cpu() + hm.ones(2)

    def f(x: hm.Tensor) -> Any:
        one, other = Both.apply(x)
        return hm.autograd.grad([one.sum(), other.sum()], [x], retain_graph=True)[0], hm.autograd.grad(other.sum(), x)[
            0
        ]

    both, single = style(f)(hm.tensor([1.0, 2.0], requires_grad=True))
    assert both.tolist() == [6.0, 11.0] and single.tolist() == [4.0, 7.0]


@PLACES
def test_what_a_hook_creates_is_where_it_says(place: str, end: str) -> None:
    seen: list[str] = []
    x = hm.ones(3, device=place).requires_grad_()
    y = x * 2
    for t in (x, y):
        t.register_hook(lambda g: seen.extend([g.device.type, hm.ones(3).device.type]))  # type: ignore[func-returns-value]
    y.to(end).sum().backward()
    assert seen == [place, "cpu"] * 2


@STYLES
def test_a_gradient_is_given_on_the_device_of_its_tensor(style: Callable[..., Any]) -> None:
    def seed(x: hm.Tensor) -> None:
        (x * 2).backward(hm.ones(3))

    def assign(x: hm.Tensor) -> None:
        x.grad = hm.ones(3)

    def by_hook(x: hm.Tensor) -> None:
        x.register_hook(lambda g: g.cpu())
        x.sum().backward()

    class Wrong(hm.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: hm.Tensor) -> Any:
            return x + 0

        @staticmethod
        def backward(ctx: Any, g: hm.Tensor) -> hm.Tensor:
            return g.cpu()

    def by_function(x: hm.Tensor) -> None:
        Wrong.apply(x).sum().backward()

    for f in (seed, assign, by_hook, by_function):
        with pytest.raises(DeviceError, match=rf"the gradient is on 'cpu', its tensor on '{DEVICE}'; use \.to"):
            style(f)(hm.ones(3, device=DEVICE).requires_grad_())
    x = hm.ones((), device=DEVICE).requires_grad_()
    style(lambda x: (x * 2).backward(hm.tensor(3.0)))(x)
    assert x.grad is not None and x.grad.device == DEVICE and x.grad.item() == 6

"""Control flow whose functions move tensors between devices."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

import hybridml as hm
from hybridml.tracing.specialize.errors import TraceWarning
from hybridml_compiler.errors import DeviceError
from tests.support.closeness import assert_close

DEVICE = os.environ.get("HYBRIDML_TEST_DEVICE", "reference")


def x() -> hm.Tensor:
    return hm.arange(12.0).reshape(4, 3) / 4 - 1


def branches(t: hm.Tensor) -> Any:
    there = hm.cond(t.sum() > 0, lambda: t.to(DEVICE) * 2, lambda: (t - 2).to(DEVICE))
    here = hm.cond(there.sum() < 0, lambda: there.cpu() + t, lambda: t * t)
    return there, here


def steps(t: hm.Tensor) -> Any:
    return hm.scan(lambda c, row: ((c.to(DEVICE) * row.to(DEVICE)).cpu() + row, row.to(DEVICE) * c.to(DEVICE)), t[0], t)


def numbers(t: hm.Tensor) -> Any:
    """A number of Python's in a carry is beside the tensors."""
    total, ys = hm.scan(lambda c, row: (c + (row**2).sum(), row * c), 0.0, t.to(DEVICE))
    count, doubled = hm.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1] * 2), (0, t.to(DEVICE)), max_steps=5)
    return total, ys, doubled * count


def nested(t: hm.Tensor) -> Any:
    def step(c: hm.Tensor, row: hm.Tensor) -> Any:
        return hm.cond(row.sum() > 0, lambda: (c.to(DEVICE) * row.to(DEVICE)).cpu(), lambda: c - 1), row.to(DEVICE)

    return hm.scan(step, t[0], t)


def none(t: hm.Tensor) -> Any:
    return hm.scan(lambda c, row: (c * 2, row.to(DEVICE) * c), t.sum(0).to(DEVICE), t[:0])


@pytest.mark.parametrize("program", [branches, steps, numbers, nested, none])
def test_values_and_gradients_are_where_eager_code_has_them(program: Callable[..., Any]) -> None:
    def derived(t: hm.Tensor) -> Any:
        outs = hm.tree_leaves(program(t))
        losses = [(out**2).sum().cpu() for out in outs]
        (first,) = hm.autograd.grad(sum(losses[1:], losses[0]), t, create_graph=True)
        (second,) = hm.autograd.grad((first**2).sum(), t)
        return [out.detach() for out in outs], first.detach(), second

    for given in (x(), -x()):
        eager, traced = (hm.tree_leaves(f(given.clone().requires_grad_())) for f in (derived, hm.trace(derived)))
        assert [t.device.type for t in traced] == [t.device.type for t in eager]
        assert {t.device.type for t in eager[-2:]} == {"cpu"} and DEVICE in [t.device.type for t in eager]
        for a, b in zip(eager, traced, strict=True):
            assert_close(b.cpu().numpy(), a.cpu().numpy())


@pytest.mark.parametrize(
    "program",
    [
        lambda t: hm.scan(lambda c, row: (c.to(DEVICE) + row.to(DEVICE), row), t[0], t),
        lambda t: hm.while_loop(lambda c: c.sum() < 9, lambda c: (c + 1).to(DEVICE), t),
    ],
)
def test_a_carry_stays_on_its_device(program: Callable[..., Any]) -> None:
    for f in (program, hm.trace(program)):
        with pytest.raises(DeviceError, match=rf"carry is on 'cpu' before a step and on '{DEVICE}' after it; .*\.to\("):
            f(x())


def test_traced_branches_give_results_on_one_device() -> None:
    program = hm.trace(lambda t: hm.cond(t.sum() > 0, lambda: t.to(DEVICE), lambda: t))
    with pytest.warns(TraceWarning, match=f"result is on '{DEVICE}' and on 'cpu'"):
        assert program(x()).device == DEVICE

"""L-BFGS beside PyTorch's (recorded): parameters, losses, iterations and evaluations, with closures of both styles."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.optim.lbfgs import Point, cubic
from hybridml.tracing.specialize.errors import TraceWarning
from tests.support.torch_optimizers import SEARCHES, recorded_optimizers, searched


@pytest.mark.parametrize("style", [lambda fn: fn, hm.trace], ids=["eager", "traced"])
@pytest.mark.parametrize("name", SEARCHES)
def test_runs_are_pytorchs(name: str, style: Any) -> None:
    record, keys = recorded_optimizers()
    params, optimizer, losses = searched(hm, name, style)
    found = np.concatenate([np.asarray(p.detach()) for p in params])
    np.testing.assert_allclose(found, record[f"search {name}"], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(losses, record[f"search {name}|losses"], rtol=1e-7, atol=1e-14)
    state = optimizer.state[params[0]]
    assert [state["n_iter"], state["func_evals"]] == keys[f"search {name}"]


def bowl(params: list[hm.Tensor], optimizer: Any) -> Any:
    def closure() -> Any:
        optimizer.zero_grad()
        loss = sum((hm.abs(p - k) ** 4).sum() for k, p in enumerate(params))
        loss.backward()
        return loss

    return closure


def test_a_state_goes_on() -> None:
    params = [hm.tensor([3.0, -2.0], dtype=hm.float64, requires_grad=True)]
    optimizer = hm.optim.LBFGS(params, max_iter=4, history_size=3)
    optimizer.step(bowl(params, optimizer))
    twins = [hm.tensor(params[0].detach(), requires_grad=True)]
    twin = hm.optim.LBFGS(twins, max_iter=4, history_size=3)
    twin.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for some, held in ((params, optimizer), (twins, twin)):
        held.step(bowl(some, held))
    assert params[0].tolist() == twins[0].tolist()
    assert len(twin.state[twins[0]]["old_dirs"]) == 3


def test_a_traced_closure_is_not_traced_again_by_what_a_step_keeps() -> None:
    params = [hm.tensor([3.0, -2.0], requires_grad=True)]
    optimizer = hm.optim.LBFGS(params, line_search_fn="strong_wolfe")
    closure = hm.trace(bowl(params, optimizer))
    for _ in range(3):
        optimizer.step(closure)
    assert not closure.retraces and "1 compiled" in repr(closure)


def test_a_traced_step_runs_as_python_does() -> None:
    found = []
    for style in (lambda fn: fn, hm.trace):
        params = [hm.tensor([3.0, -2.0], requires_grad=True)]
        optimizer = hm.optim.LBFGS(params)

        @style
        def step(params: Any = params, optimizer: Any = optimizer) -> Any:
            return optimizer.step(bowl(params, optimizer))

        with pytest.warns(TraceWarning, match="trace the closure") if style is hm.trace else nullcontext():
            step()
        found.append(params[0].tolist())
    assert found[0] == found[1]


def test_parameters_without_gradients_and_complex_ones() -> None:
    rng = np.random.default_rng(0)
    start = rng.standard_normal(3) + 1j * rng.standard_normal(3)
    w, unused = hm.tensor(start, requires_grad=True), hm.tensor([1.0], dtype=hm.float64, requires_grad=True)
    optimizer = hm.optim.LBFGS([w, unused], line_search_fn="strong_wolfe", max_iter=50)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (hm.abs(w - (1 + 2j)) ** 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    np.testing.assert_allclose(np.asarray(w.detach()), [1 + 2j] * 3, rtol=1e-6)
    assert unused.tolist() == [1.0]


def test_a_step_needs_a_closure_and_a_rate_may_be_scheduled() -> None:
    params = [hm.tensor([3.0], requires_grad=True)]
    optimizer = hm.optim.LBFGS(params)
    with pytest.raises(TypeError, match="closure"):
        optimizer.step()
    hm.optim.lr_scheduler.StepLR(optimizer, 1, 0.5).step()
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_a_cubic_is_least_between_its_points_or_in_their_middle() -> None:
    gradient = hm.zeros((1,))
    left, right = Point(0.0, 1.0, gradient, -2.0), Point(2.0, 1.0, gradient, 2.0)  # of (x - 1) ** 2
    assert cubic(left, right, 0.0, 2.0) == cubic(right, left, 0.0, 2.0) == 1.0
    assert cubic(left, right, 1.5, 2.0) == 1.5
    falling = Point(2.0, -3.0, gradient, -2.0)
    assert cubic(left._replace(slope=-2.0), falling, 0.0, 2.0) == 1.0

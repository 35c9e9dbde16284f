"""Optimizers that write `step` and their state themselves, as in PyTorch; schedules after each other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.optim import lr_scheduler


class ByHand(hm.optim.Optimizer):
    """Adam in PyTorch's manner."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        super().__init__(params, {"lr": lr, "betas": betas})

    @hm.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["exp_avg"] = hm.zeros_like(p)
                    state["exp_avg_sq"] = hm.zeros_like(p)
                state["step"] += 1
                state["exp_avg"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                state["exp_avg_sq"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                root = (state["exp_avg_sq"].sqrt() / math.sqrt(1 - beta2 ** state["step"])).add_(1e-8)
                p.addcdiv_(state["exp_avg"], root, value=-group["lr"] / (1 - beta1 ** state["step"]))


def model(optimizer: type[hm.optim.Optimizer]) -> tuple[hm.nn.Module, Any]:
    hm.manual_seed(0)
    layer = hm.nn.Linear(3, 2)
    return layer, optimizer(layer.parameters(), lr=0.1)  # type: ignore[arg-type, call-arg]


def train(layer: hm.nn.Module, optimizer: Any, steps: int, style: Any = lambda fn: fn) -> list[np.ndarray]:
    @style
    def step(x: hm.Tensor) -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = layer(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for k in range(steps):
        step(hm.ones((4, 3)) * (k + 1))
    return [p.detach().numpy().copy() for p in layer.parameters()]


def test_an_optimizer_by_hand_gives_the_numbers_of_ours() -> None:
    for mine, ours in zip(train(*model(ByHand), 5), train(*model(hm.optim.Adam), 5), strict=True):
        np.testing.assert_allclose(mine, ours, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::hybridml.tracing.specialize.errors.TraceWarning")
def test_a_traced_step_by_hand_is_the_eager_one() -> None:
    layer, optimizer = model(ByHand)
    for traced, eager in zip(train(layer, optimizer, 5, hm.trace), train(*model(ByHand), 5), strict=True):
        np.testing.assert_allclose(traced, eager, rtol=1e-5, atol=1e-6)
    assert [state["step"] for state in optimizer.state.values()] == [5, 5]


def test_state_by_hand_is_saved_and_goes_on() -> None:
    layer, optimizer = model(ByHand)
    train(layer, optimizer, 3)
    weights, state = {k: v.clone() for k, v in layer.state_dict().items()}, optimizer.state_dict()
    assert state["state"][0].keys() == {"step", "exp_avg", "exp_avg_sq"} and state["param_groups"][0]["lr"] == 0.1
    again, resumed = model(ByHand)
    again.load_state_dict(weights)
    resumed.load_state_dict(state)
    assert resumed.state[next(iter(again.parameters()))]["step"] == 3
    for mine, theirs in zip(train(again, resumed, 2), train(layer, optimizer, 2), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_schedule_sets_the_rate_of_an_optimizer_by_hand() -> None:
    layer, optimizer = model(ByHand)
    schedule = lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    train(layer, optimizer, 1)
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.05 and optimizer.defaults["lr"] == 0.1


def rates(schedule: lr_scheduler.LRScheduler, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        found += schedule.get_last_lr()
        schedule.step()
    return found


def warmed(optimizer: hm.optim.Optimizer) -> lr_scheduler.LRScheduler:
    warm = lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=5)
    cosine = lr_scheduler.CosineAnnealingLR(optimizer, T_max=20, eta_min=1e-5)
    return lr_scheduler.SequentialLR(optimizer, [warm, cosine], milestones=[5])


def test_a_cosine_after_a_warm_up_starts_at_the_rate_of_the_optimizer() -> None:
    found = rates(warmed(hm.optim.SGD([hm.ones((1,))], lr=1e-3)), 20)
    wanted = [1e-3 * (0.1 + 0.9 * k / 5) for k in range(5)]
    wanted += [1e-5 + (1e-3 - 1e-5) / 2 * (1 + math.cos(math.pi * k / 20)) for k in range(15)]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_schedules_after_each_other_step_in_traced_functions() -> None:
    schedule, eager = warmed(hm.optim.SGD([hm.ones((1,))], lr=1e-3)), warmed(hm.optim.SGD([hm.ones((1,))], lr=1e-3))
    step = hm.trace(schedule.step)
    for _ in range(7):
        step()
        eager.step()
    np.testing.assert_allclose(schedule.get_last_lr(), eager.get_last_lr(), rtol=1e-9)
    with pytest.raises(hm.ArgumentError, match="2 schedules need 1 milestones"):
        lr_scheduler.SequentialLR(schedule.optimizer, [schedule, eager], [1, 2])


def test_one_cycle_counts_its_steps_in_epochs() -> None:
    def cycle(**steps: int) -> list[float]:
        return rates(lr_scheduler.OneCycleLR(hm.optim.SGD([hm.ones((1,))], lr=1.0), max_lr=1.0, **steps), 12)

    assert cycle(epochs=3, steps_per_epoch=4) == cycle(total_steps=12)
    with pytest.raises(hm.ArgumentError, match="total_steps > 1"):
        cycle(epochs=3)


def test_switches_among_pytorchs_implementations_say_nothing() -> None:
    w = hm.ones((1,), requires_grad=True)
    assert "fused" not in repr(hm.optim.AdamW([w], fused=True)) + repr(hm.optim.SGD([w], foreach=False))

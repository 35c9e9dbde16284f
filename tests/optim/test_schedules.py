"""Schedules beside PyTorch's (recorded): rates and momentum, eager and traced, combined, saved, and their errors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.optim import lr_scheduler, swa_utils
from tests.support.torch_optimizers import EPOCHS, PLATEAUS, SCHEDULES, losses, recorded_optimizers

# Functions of the epoch as a Python integer.
PYTHON = ("MultiplicativeLR", "CyclicLR scale_fn", "ChainedScheduler lambda", "SequentialLR after others")


@pytest.fixture(scope="module")
def record() -> dict[str, np.ndarray]:
    return recorded_optimizers()[0]


def made(name: str) -> tuple[hm.optim.Optimizer, Any]:
    optimizer = hm.optim.Adam([hm.zeros((1,))], lr=SCHEDULES[name].lr)
    return optimizer, SCHEDULES[name].make(lr_scheduler, optimizer)


def rates(schedule: Any, epochs: int, step: Any = None) -> list[float]:
    found = []
    for _ in range(epochs):
        found += schedule.get_last_lr()
        (step or schedule.step)()
    return found


def taken(optimizer: hm.optim.Optimizer, step: Any, epochs: int) -> np.ndarray:
    found = []
    for _ in range(epochs):
        group = optimizer.param_groups[0]
        found.append((group["lr"].item(), group["betas"][0].item()))
        step()
    return np.asarray(found)


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_and_momenta_are_pytorchs_in_both_styles(name: str, record: Any) -> None:
    optimizer, schedule = made(name)
    eager = taken(optimizer, schedule.step, EPOCHS)
    np.testing.assert_allclose(eager, record[name], rtol=1e-12, atol=1e-15)
    optimizer, schedule = made(name)
    with warnings.catch_warnings():
        if name in PYTHON:
            warnings.simplefilter("ignore")
        traced = taken(optimizer, hm.trace(schedule.step), EPOCHS)
    assert traced.tobytes() == eager.tobytes()


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_saved_schedule_goes_on(name: str) -> None:
    optimizer, schedule = made(name)
    taken(optimizer, schedule.step, 11)
    other, resumed = made(name)
    other.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(schedule.state_dict())
    assert resumed.last_epoch == 11 and resumed.get_last_lr() == schedule.get_last_lr()
    ahead = taken(optimizer, schedule.step, 15)
    assert taken(other, resumed.step, 15).tobytes() == ahead.tobytes()


@pytest.mark.parametrize("name", SCHEDULES)
def test_states_of_schedules_are_pytorchs(name: str, record: Any) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=SCHEDULES[name].lr)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        twin = SCHEDULES[name].make(torch.optim.lr_scheduler, theirs)
        optimizer, schedule = made(name)
        taken(optimizer, schedule.step, 11)
        twin.load_state_dict(schedule.state_dict())
        theirs.param_groups[0]["lr"] = optimizer.lr.item()
        back = made(name)[1]
        back.load_state_dict(twin.state_dict())
        for _ in range(5):
            twin.step(), back.step()
    for found in (theirs.param_groups[0]["lr"], back.get_last_lr()[0]):
        assert found == pytest.approx(record[name][16, 0], rel=1e-9)


@pytest.mark.parametrize("style", [lambda fn: fn, hm.trace], ids=["eager", "traced"])
@pytest.mark.parametrize("name", PLATEAUS)
def test_rates_fall_where_a_metric_stays(name: str, style: Any, record: Any) -> None:
    def fresh() -> Any:
        return lr_scheduler.ReduceLROnPlateau(hm.optim.SGD([hm.zeros((1,))], lr=0.5), **PLATEAUS[name])

    plateau = fresh()
    step, found = style(plateau.step), []
    for count, loss in enumerate(losses()):
        step(hm.tensor(loss, dtype=hm.float64) if count else hm.asarray(np.asarray(loss)))
        found.append((plateau.get_last_lr()[0], plateau.best, plateau.num_bad_epochs, plateau.cooldown_counter))
        if count == 20:  # saved and loaded on the way
            again = fresh()
            again.load_state_dict(plateau.state_dict())
            assert again.state_dict() == plateau.state_dict()
    np.testing.assert_allclose(found, record[f"plateau {name}"], rtol=1e-12)


def test_schedules_that_step_after_each_other_multiply() -> None:
    """As PyTorch's do, of which it is the usual way."""
    optimizer = hm.optim.SGD([hm.zeros((1,))], lr=1.0)
    schedules = [lr_scheduler.ExponentialLR(optimizer, 0.5), lr_scheduler.MultiStepLR(optimizer, [2], 0.25)]
    found = rates(schedules[0], 4, lambda: [schedule.step() for schedule in schedules])
    assert found == [1.0, 0.5, 0.0625, 0.03125]


def test_a_rate_that_was_changed_by_hand_stays_changed() -> None:
    optimizer = hm.optim.SGD([hm.zeros((1,))], lr=1.0)
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.lr = 8.0
    schedule.step()
    assert schedule.get_last_lr() == [4.0]


def test_a_schedule_goes_on_from_a_last_epoch() -> None:
    optimizer = hm.optim.SGD([{"params": [hm.zeros((1,))], "lr": 0.25}], lr=1.0)
    with pytest.raises(KeyError, match="initial_lr"):
        lr_scheduler.StepLR(optimizer, 2, 0.5, last_epoch=3)
    optimizer.param_groups[0]["initial_lr"] = 1.0
    schedule = lr_scheduler.StepLR(optimizer, 2, 0.5, last_epoch=3)
    assert schedule.last_epoch == 4 and schedule.get_last_lr() == [0.25]
    assert rates(schedule, 3) == [0.25, 0.25, 0.125]


def test_warm_restarts_take_epochs_between_two() -> None:
    schedule = lr_scheduler.CosineAnnealingWarmRestarts(hm.optim.SGD([hm.zeros((1,))], lr=1.0), 2, 2)
    schedule.step(0.5)
    assert schedule.get_last_lr()[0] == pytest.approx((1 + np.cos(np.pi / 4)) / 2)
    schedule.step(6)
    assert schedule.get_last_lr() == [1.0]
    with pytest.raises(hm.ArgumentError, match="non-negative epoch"):
        schedule.step(-1)


@pytest.mark.parametrize("style", [lambda fn: fn, hm.trace], ids=["eager", "traced"])
def test_a_schedule_of_swa_starts_at_the_rate_that_is_set(style: Any) -> None:
    optimizer = hm.optim.SGD([hm.zeros((1,))], lr=1.0)
    before = lr_scheduler.ExponentialLR(optimizer, 0.5)
    schedule = swa_utils.SWALR(optimizer, 0.05, anneal_epochs=4, anneal_strategy="linear")
    rates(before, 2)
    found = rates(schedule, 7, style(schedule.step))
    np.testing.assert_allclose(found, [0.25, 0.2, 0.15, 0.1, 0.05, 0.05, 0.05], rtol=1e-12)


def test_a_schedule_of_swa_after_another_goes_on_from_its_rate() -> None:
    optimizer = hm.optim.SGD([hm.zeros((1,))], lr=1.0)
    schedules = [lr_scheduler.ExponentialLR(optimizer, 0.5), swa_utils.SWALR(optimizer, 0.05, 2, "linear")]
    found = rates(lr_scheduler.SequentialLR(optimizer, schedules, [3]), 6)
    np.testing.assert_allclose(found, [1.0, 0.5, 0.25, 0.25, 0.15, 0.05], rtol=1e-12)


def test_chained_schedules_may_be_one_of_a_sequence() -> None:
    s, o = lr_scheduler, hm.optim.SGD([hm.zeros((1,))], lr=1.0)
    chained = s.ChainedScheduler([s.ConstantLR(o, 0.5, 2), s.ExponentialLR(o, 0.5)])
    assert rates(s.SequentialLR(o, [s.ConstantLR(o, 0.125, 9), chained], [2]), 5) == [0.125, 0.125, 0.5, 0.25, 0.25]


OPTIMIZER = hm.optim.SGD([hm.zeros((1,))], lr=1.0)
PLAIN = hm.optim.Adagrad([hm.zeros((1,))])


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda s: s.StepLR(1, 2), TypeError, "int is not an Optimizer"),
        (lambda s: s.ConstantLR(OPTIMIZER, 2.0), ValueError, "factor expected to be between 0 and 1"),
        (lambda s: s.LinearLR(OPTIMIZER, 0.0), ValueError, "Starting multiplicative factor expected to be greater"),
        (lambda s: s.LinearLR(OPTIMIZER, 0.5, 2.0), ValueError, "Ending multiplicative factor expected"),
        (lambda s: s.MultiplicativeLR(OPTIMIZER, [abs, abs]), ValueError, "Expected 1 lr_lambdas, but got 2"),
        (lambda s: s.CosineAnnealingWarmRestarts(OPTIMIZER, 0), ValueError, "Expected positive integer T_0, but got 0"),
        (lambda s: s.CosineAnnealingWarmRestarts(OPTIMIZER, 2, 0), ValueError, "Expected integer T_mult >= 1"),
        (lambda s: s.CyclicLR(OPTIMIZER, 0.1, 1.0, mode="other"), ValueError, "mode is invalid and scale_fn is None"),
        (lambda s: s.CyclicLR(PLAIN, 0.1, 1.0), ValueError, "optimizer must support momentum or beta1"),
        (lambda s: s.CyclicLR(OPTIMIZER, [0.1, 0.2], 1.0), ValueError, "base_lr must have the same length"),
        (lambda s: s.OneCycleLR(OPTIMIZER, 1.0), ValueError, "You must define either total_steps OR"),
        (lambda s: s.OneCycleLR(OPTIMIZER, 1.0, 9, anneal_strategy="x"), ValueError, "must be one of 'cos'"),
        (lambda s: s.ReduceLROnPlateau(OPTIMIZER, factor=1.0), ValueError, "Factor should be < 1.0"),
        (lambda s: s.ReduceLROnPlateau(OPTIMIZER, "other"), ValueError, "mode other is unknown!"),
        (lambda s: s.ReduceLROnPlateau(OPTIMIZER, threshold_mode="x"), ValueError, "threshold mode x is unknown!"),
        (lambda s: s.ReduceLROnPlateau(OPTIMIZER).step(), TypeError, "missing 1 required positional argument"),
        (lambda s: s.ChainedScheduler([]), ValueError, "expects at least one scheduler to be chained"),
        (lambda s: s.ChainedScheduler([s.ReduceLROnPlateau(OPTIMIZER)]), ValueError, "`ReduceLROnPlateau` scheduler"),
        (lambda s: s.ChainedScheduler([s.StepLR(PLAIN, 1)], OPTIMIZER), ValueError, "belong to the same optimizer"),
        (lambda s: swa_utils.SWALR(OPTIMIZER, 0.1, -1), ValueError, "anneal_epochs must be equal or greater than 0"),
        (lambda s: swa_utils.SWALR(OPTIMIZER, 0.1, 1, "x"), ValueError, "anneal_strategy must be one of"),
    ],
)
def test_errors_are_in_pytorchs_words(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        make(lr_scheduler)
    assert words in str(caught.value)

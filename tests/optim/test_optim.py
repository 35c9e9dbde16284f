"""Optimizers and schedules against recorded values of PyTorch, their groups, their state, and Ctrl-C in a step."""

from __future__ import annotations

import copy
import gc
import pickle
import signal
import threading
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn, optim
from hybridml.nn.parameter import commit
from hybridml.tracing.specialize.errors import TraceWarning
from tests.support.torch_cases import EPOCHS, OPTIMIZERS, SCHEDULES, gradients, recorded, start


@pytest.fixture(scope="module")
def torch_record() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    return recorded()


def take_steps(optimizer: optim.Optimizer, params: list[hm.Tensor], rows: list[list[np.ndarray | None]]) -> None:
    for row in rows:
        for parameter, gradient in zip(params, row, strict=True):
            parameter.grad = None if gradient is None else hm.asarray(gradient)
        optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_pytorchs(name: str, torch_record: Any) -> None:
    values, keys = torch_record
    params = [hm.tensor(array, requires_grad=True) for array in start(name)]
    optimizer = OPTIMIZERS[name].make(optim, params)
    take_steps(optimizer, params, gradients(name))
    for k, parameter in enumerate(params):
        np.testing.assert_allclose(parameter.detach().numpy(), values[f"O {name}|{k}"], rtol=1e-6, atol=1e-7)
    own = {str(k): set(entry) for k, entry in optimizer.state_dict()["state"].items()}
    assert all(set(keys[f"O {name}"].get(k, ())) <= entry for k, entry in own.items())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_dict_continues_the_run(name: str) -> None:
    rows = gradients(name)
    params = [hm.tensor(array, requires_grad=True) for array in start(name)]
    optimizer = OPTIMIZERS[name].make(optim, params)
    take_steps(optimizer, params, rows[:3])
    twins = [hm.tensor(parameter.detach(), requires_grad=True) for parameter in params]
    twin = OPTIMIZERS[name].make(optim, twins)
    twin.load_state_dict(pickle.loads(pickle.dumps(optimizer.state_dict())))
    take_steps(optimizer, params, rows[3:])
    take_steps(twin, twins, rows[3:])
    for one, other in zip(params, twins, strict=True):
        assert (one.detach().numpy() == other.detach().numpy()).all()


def test_a_deep_copy_of_model_and_optimizer_goes_on_alike() -> None:
    model = nn.Linear(3, 2)
    optimizer = optim.Adam(model.parameters(), lr=0.1)

    def train(model: nn.Module, optimizer: optim.Optimizer) -> None:
        model(hm.ones((1, 3))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    train(model, optimizer)
    twin, twin_optimizer = copy.deepcopy((model, optimizer))
    train(twin, twin_optimizer)
    assert (twin.weight.detach().numpy() != model.weight.detach().numpy()).all()
    train(model, optimizer)
    assert (twin.weight.detach().numpy() == model.weight.detach().numpy()).all()


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_are_pytorchs(name: str, torch_record: Any) -> None:
    case = SCHEDULES[name]
    optimizer = optim.SGD([hm.zeros((1,))], lr=case.lr)
    scheduler = case.make(optim.lr_scheduler, optimizer)
    rates = [optimizer.lr.item()]
    for _ in range(EPOCHS):
        scheduler.step()
        rates.append(optimizer.lr.item())
    np.testing.assert_allclose(rates, torch_record[0][f"S {name}"], rtol=1e-12)
    assert scheduler.last_epoch == EPOCHS and scheduler.get_last_lr() == rates[-1:]
    again = case.make(optim.lr_scheduler, optim.SGD([hm.zeros((1,))], lr=case.lr))
    again.load_state_dict(scheduler.state_dict())
    assert again.get_last_lr() == rates[-1:]


def test_numbers_are_tensors_written_in_place() -> None:
    optimizer = optim.Adam([hm.zeros((1,))], lr=0.1)
    group = optimizer.param_groups[0]
    lr, betas = group["lr"], group["betas"]
    assert lr.shape == () and lr.dtype == hm.float64 and lr.item() == 0.1
    group["lr"] = 0.01
    group["lr"] *= 0.5
    group["betas"] = (0.5, 0.6)
    assert group["lr"] is lr and lr.item() == pytest.approx(0.005)
    assert group["betas"][0] is betas[0] and [b.item() for b in betas] == [0.5, 0.6]
    optimizer.lr = 1
    assert lr.item() == 1 and optimizer.lr is lr
    group.update(eps=1e-3)
    assert group["eps"].item() == 1e-3
    with pytest.raises(TypeError, match="lr must be a number"):
        group["lr"] = "fast"
    with pytest.raises(ValueError, match="is 2 numbers"):
        group["betas"] = (0.9,)


def test_a_rate_given_as_tensor_is_that_tensor() -> None:
    lr = hm.tensor(0.5)
    w = hm.tensor([1.0], requires_grad=True)
    optimizer = optim.SGD([w], lr=lr)
    w.grad = hm.ones((1,))
    optimizer.step()
    lr.fill_(0.25)
    optimizer.step()
    assert w.tolist() == [0.25] and w.dtype == hm.float32


def test_momentum_switched_on_later() -> None:
    w = hm.tensor([1.0], requires_grad=True)
    optimizer = optim.SGD([w], lr=1.0)
    w.grad = hm.ones((1,))
    optimizer.step()
    assert optimizer.state[w] == {}
    optimizer.param_groups[0]["momentum"] = 0.5
    optimizer.step()
    optimizer.step()
    assert w.tolist() == [1 - 1 - 1 - 1.5]


def test_step_runs_a_closure_and_updates_in_place() -> None:
    w = hm.tensor([2.0], requires_grad=True)
    memory = w.detach().numpy()
    optimizer = optim.SGD([w], lr=0.25)

    def closure() -> hm.Tensor:
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 4
    assert w.tolist() == [1] and memory.tolist() == [1] and w.is_leaf and w.requires_grad


def test_a_value_kept_for_a_gradient_is_noticed_when_a_step_overwrites_it() -> None:
    w = hm.tensor([2.0], requires_grad=True)
    loss = (w * w).sum()
    w.grad = hm.ones((1,))
    optim.SGD([w], lr=0.1).step()
    with pytest.raises(hm.GradientError, match="overwritten"):
        loss.backward()


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda w: optim.SGD([], lr=0.1), ValueError, "no parameters"),
        (lambda w: optim.SGD([w], lr=-1), ValueError, "Invalid learning rate: -1"),
        (lambda w: optim.SGD([w], lr=float("nan")), ValueError, "Invalid learning rate: nan"),
        (lambda w: optim.SGD([w, w], lr=0.1), ValueError, "more than once"),
        (lambda w: optim.SGD([w * 2], lr=0.1), ValueError, "only leaf"),
        (lambda w: optim.SGD([np.ones(2)], lr=0.1), TypeError, "not a Tensor"),
        (lambda w: optim.SGD([hm.arange(3)], lr=0.1), TypeError, "only floats"),
        (lambda w: optim.SGD([{"params": [w], "betas": 1}], lr=0.1), TypeError, "unknown settings ['betas']"),
        (lambda w: optim.SGD([w], lr=0.1, nesterov=True), ValueError, "nesterov needs momentum"),
        (lambda w: optim.Adam([w], betas=(0.9, 1.0)), ValueError, "Invalid beta parameter at index 1: 1.0"),
        (lambda w: optim.StepLR(w, 3), TypeError, "needs an Optimizer"),
        (
            lambda w: optim.Adam([w]).load_state_dict({"state": {}, "param_groups": []}),
            ValueError,
            "hold [1] parameters",
        ),
        (lambda w: optim.Adam([w]).load_state_dict({"a": 1}), ValueError, "state, param_groups is missing"),
        (lambda w: optim.Adam([w]).load_state_dict(None), ValueError, "needs what state_dict gave, got NoneType"),
        (lambda w: optim.StepLR(optim.SGD([w]), 3).load_state_dict({}), ValueError, "base_lrs, last_epoch is missing"),
    ],
)
def test_errors_say_what_is_wrong(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        make(hm.ones((2,)).requires_grad_())
    assert words in str(caught.value)


def test_loading_a_state_that_does_not_fit_writes_nothing() -> None:
    w = hm.ones((2,)).requires_grad_()
    optimizer = optim.Adam([w], lr=0.1)
    state = copy.deepcopy(optimizer.state_dict())
    state["param_groups"][0]["lr"] = 5.0
    state["state"][0]["exp_avg_sq"] = np.ones(3, np.float32)
    with pytest.raises(ValueError, match=r"exp_avg_sq of parameter 0 has shape \(3,\)"):
        optimizer.load_state_dict(state)
    assert optimizer.lr.item() == 0.1


def test_clip_grad_norm_is_pytorchs() -> None:
    params = [hm.zeros((2,)).requires_grad_(), hm.zeros(()).requires_grad_(), hm.zeros((1,)).requires_grad_()]
    params[0].grad, params[1].grad = hm.asarray([3.0, 0.0]), hm.asarray(4.0)
    grad = params[0].grad
    assert nn.utils.clip_grad_norm_(params, 1.0).item() == 5
    assert params[0].grad is grad  # scaled in place
    np.testing.assert_allclose(grad.numpy(), [0.6, 0], rtol=1e-6)
    assert nn.utils.get_total_norm([p.grad for p in params[:2]], 1.0).item() == pytest.approx(1.4)
    nn.utils.clip_grads_with_norm_(params, 4.0, hm.tensor(2.0))  # nothing is made larger
    assert optim.clip_grad_norm_(params, 10.0).item() == pytest.approx(1)
    np.testing.assert_allclose(params[1].grad.item(), 0.8, rtol=1e-6)
    assert optim.clip_grad_norm_(params, 1.0, norm_type=float("inf")).item() == pytest.approx(0.8)
    assert optim.clip_grad_norm_(params, 100.0, norm_type=1).item() == pytest.approx(1.4)
    params[0].grad = hm.asarray([float("nan"), 0.0])
    with pytest.raises(hm.GradientError, match="nan"):
        optim.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    nn.utils.clip_grads_with_norm_(params[1], 0.4, hm.tensor(0.8))
    assert params[1].grad.item() == pytest.approx(0.4, rel=1e-5)
    params[1].grad = hm.asarray(0.8)
    optim.clip_grad_value_(params[1], 0.5)
    assert params[1].grad.item() == 0.5


def test_ctrl_c_leaves_parameters_whole() -> None:
    """Interrupts at random moments of many steps: parameters and state are those of some number of whole steps."""
    count = 40
    params = [hm.zeros((3,)).requires_grad_() for _ in range(count)]
    optimizer = optim.SGD(params, lr=1.0, momentum=0.5)
    for parameter in params:
        parameter.grad = hm.ones((3,))
    for _ in range(200):  # what is imported and compiled late is there before the first interrupt
        optimizer.step()
    main, rng = threading.main_thread(), np.random.default_rng(0)
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    # Python loses an interrupt that arrives in a callback of the collector, as hypothesis has one.
    callbacks = gc.callbacks.copy()
    gc.callbacks.clear()
    interrupted = 0
    try:
        for _ in range(60):
            timer = threading.Timer(rng.uniform(0.0002, 0.004), signal.pthread_kill, (main.ident, signal.SIGINT))
            try:
                timer.start()
                for _ in range(10_000):  # of 0.5 ms
                    optimizer.step()
            except KeyboardInterrupt:
                interrupted += 1
            timer.join()
            values = {float(v) for parameter in params for v in parameter.detach().numpy()}
            momenta = {float(v) for parameter in params for v in optimizer.state[parameter]["momentum_buffer"].numpy()}
            assert len(values) == 1 and len(momenta) == 1
    finally:
        gc.callbacks.extend(callbacks)
        signal.signal(signal.SIGINT, previous)
    assert interrupted == 60


def test_commit_checks_everything_before_it_writes() -> None:
    first, second = hm.zeros((2,)), hm.zeros((2,))
    with pytest.raises(ValueError, match="cannot write"):
        commit([(first, hm.ones((2,))), (second, hm.ones((3,)))])
    assert first.tolist() == [0, 0]


@pytest.mark.parametrize("style", [lambda step: step, hm.trace], ids=["eager", "traced"])
@pytest.mark.parametrize(
    "make",
    [
        optim.Adam,
        lambda p, lr: optim.AdamW(p, lr, weight_decay=0.1, amsgrad=True),
        lambda p, lr: optim.SGD(p, lr, momentum=0.9, weight_decay=0.1),
        lambda p, lr: optim.RMSprop(p, lr, momentum=0.9, centered=True, weight_decay=0.1, maximize=True),
    ],
    ids=["Adam", "AdamW", "SGD", "RMSprop"],
)
def test_complex_parameters_train_as_pairs_of_real_ones(make: Any, style: Any) -> None:
    """Which is what PyTorch does."""
    rng = np.random.default_rng(0)
    x, start_ = (rng.standard_normal((3, 3)) + 1j * rng.standard_normal((3, 3)) for _ in range(2))

    def trained(params: list[hm.Tensor], whole: Any) -> np.ndarray:
        optimizer = make(params, lr=0.05)

        @style
        def step() -> None:
            optimizer.zero_grad()
            (hm.abs(hm.asarray(x) @ whole() - x.T) ** 2).sum().backward()
            optimizer.step()

        for _ in range(3):
            step()
        return np.asarray(whole().detach())

    w = hm.tensor(start_, requires_grad=True)
    re, im = (hm.tensor(part, requires_grad=True) for part in (start_.real, start_.imag))
    np.testing.assert_allclose(trained([w], lambda: w), trained([re, im], lambda: re + 1j * im), rtol=1e-12)


def test_the_norm_of_complex_gradients_is_that_of_their_sizes() -> None:
    w = hm.tensor([3.0 + 4.0j, 0.0], requires_grad=True)
    (hm.abs(w[:1]) ** 2).sum().backward()
    assert optim.clip_grad_norm_([w], 1.0).item() == pytest.approx(10.0)
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), [0.6 + 0.8j, 0.0], rtol=1e-5)


def test_an_optimizer_that_is_made_in_a_traced_function() -> None:
    def fit(x: hm.Tensor) -> hm.Tensor:
        w = hm.ones((3,)).requires_grad_()
        optimizer = hm.optim.Adam([w], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            ((w * x) ** 2).sum().backward()
            optimizer.step()
        return w.detach()

    x, traced = hm.tensor([1.0, 2.0, 3.0]), hm.trace(fit)
    with pytest.warns(TraceWarning, match="an optimizer of tensors that the call itself makes"):
        first = traced(x)
    for given, found in ((x, first), (x * 2, traced(x * 2))):
        np.testing.assert_allclose(found.numpy(), fit(given).numpy(), rtol=1e-6)


def test_the_repr_of_a_schedule_has_its_settings_and_its_rate() -> None:
    schedule = hm.optim.StepLR(hm.optim.SGD([hm.ones((1,))], lr=1.0), step_size=1, gamma=0.5)
    schedule.step()
    assert repr(schedule) == "StepLR(step_size=1, gamma=0.5, epoch=1, lr=0.5)"
    assert (
        repr(hm.optim.LambdaLR(schedule.optimizer, lambda epoch: 1.0)) == "LambdaLR(epoch=0, lr=1)"
    )  # of the first rate

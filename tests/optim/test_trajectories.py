"""A hundred steps of each optimizer beside PyTorch's (recorded), traced beside eager, and from each other's state."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import optim
from tests.support.torch_optimizers import (
    HALF,
    OPTIMIZERS,
    STEPS,
    gradient_rows,
    recorded_optimizers,
    run,
    start,
)

SUMS = ("Adafactor", "LAMB", "Muon")  # of whole parameters, which compiled loops add in another order
OURS = {
    "Lion": lambda optim, p: optim.Lion(p, 0.01, weight_decay=0.1),
    "LAMB": lambda optim, p: optim.LAMB(p, 0.01, weight_decay=0.1),
}
ALL = {**{name: case.make for name, case in OPTIMIZERS.items()}, **OURS}


@pytest.fixture(scope="module")
def record() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    return recorded_optimizers()


def near(name: str) -> dict[str, float]:
    """Tolerances of float64; Muon rounds to bfloat16, where a number may fall to the other side: 2**-8 of a step."""
    return {"rtol": 1e-10, "atol": 5e-5 if name.startswith("Muon") else 1e-12}


def params_of(arrays: list[Any], dtype: Any = np.float64) -> list[hm.Tensor]:
    return [hm.tensor(np.asarray(array, dtype), requires_grad=True) for array in arrays]


def values(params: list[hm.Tensor]) -> list[np.ndarray]:
    return [np.array(p.detach()) for p in params]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_hundred_steps_are_pytorchs(name: str, record: Any) -> None:
    params = params_of(start(name))
    optimizer = OPTIMIZERS[name].make(optim, params)
    run(hm.tensor, params, optimizer.step, gradient_rows(name, 0, HALF))
    for k, entry in optimizer.state_dict()["state"].items():
        assert set(record[1][name].get(str(k), ())) <= set(entry)
    run(hm.tensor, params, optimizer.step, gradient_rows(name, HALF, STEPS))
    for k, value in enumerate(values(params)):
        np.testing.assert_allclose(value, record[0][f"{name}|end|{k}"], **near(name))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_of_pytorchs_continues_its_run(name: str, record: Any) -> None:
    recorded, keys = record
    params = params_of([recorded[f"{name}|half|{k}"] for k in range(len(start(name)))])
    optimizer = OPTIMIZERS[name].make(optim, params)
    state = {
        int(k): {key: recorded[f"{name}|state|{k}|{key}"] for key in entry_keys} for k, entry_keys in keys[name].items()
    }
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    run(hm.tensor, params, optimizer.step, gradient_rows(name, HALF, STEPS))
    for k, value in enumerate(values(params)):
        np.testing.assert_allclose(value, recorded[f"{name}|end|{k}"], **near(name))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_of_ours_continues_in_pytorch(name: str, record: Any) -> None:
    torch = pytest.importorskip("torch")
    params = params_of(start(name))
    optimizer = OPTIMIZERS[name].make(optim, params)
    run(hm.tensor, params, optimizer.step, gradient_rows(name, 0, HALF))
    theirs = [torch.tensor(value, requires_grad=True) for value in values(params)]
    twin = OPTIMIZERS[name].make(torch.optim, theirs)
    saved = optimizer.state_dict()
    state = {k: {key: torch.tensor(np.array(t)) for key, t in entry.items()} for k, entry in saved["state"].items()}
    twin.load_state_dict({"state": state, "param_groups": saved["param_groups"]})
    run(torch.tensor, theirs, twin.step, gradient_rows(name, HALF, STEPS))
    for k, parameter in enumerate(theirs):
        np.testing.assert_allclose(
            parameter.detach().numpy(), record[0][f"{name}|end|{k}"], **(near(name) | {"rtol": 1e-6})
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f4", "f8"])
@pytest.mark.parametrize("name", ALL)
def test_a_traced_step_is_the_eager_one(name: str, dtype: Any) -> None:
    found = []
    for style in (lambda fn: fn, hm.trace):
        params = params_of(start(name), dtype)
        optimizer = ALL[name](optim, params)
        run(hm.tensor, params, style(optimizer.step), gradient_rows(name, 0, 20))
        states = [np.asarray(t) for entry in optimizer.state_dict()["state"].values() for t in entry.values()]
        found.append([*values(params), *states])
    for eager, traced in zip(*found, strict=True):
        if name.split()[0] in SUMS:
            tight = 1e-12 if dtype is np.float64 else 1e-5
            np.testing.assert_allclose(traced, eager, rtol=tight, atol=tight / 10)
        else:
            assert traced.tobytes() == eager.tobytes()


@pytest.mark.parametrize("name", ALL)
def test_states_and_copies_go_on_alike(name: str) -> None:
    params = params_of(start(name))
    optimizer = ALL[name](optim, params)
    run(hm.tensor, params, optimizer.step, gradient_rows(name, 0, 6))
    twins = params_of(values(params))
    loaded = ALL[name](optim, twins)
    run(hm.tensor, twins, loaded.step, gradient_rows(name, 6, 7))  # a state that loading has to replace
    for twin, value in zip(twins, values(params), strict=True):
        with hm.no_grad():
            twin.copy_(hm.tensor(value))
    loaded.load_state_dict(pickle.loads(pickle.dumps(optimizer.state_dict())))
    copied, copy_ = copy.deepcopy((params, optimizer))
    for some, held in ((params, optimizer), (twins, loaded), (copied, copy_)):
        run(hm.tensor, some, held.step, gradient_rows(name, 6, 12))
    for one, other, third in zip(values(params), values(twins), values(copied), strict=True):
        assert one.tobytes() == other.tobytes() == third.tobytes()


@pytest.mark.parametrize("name", [name for name in ALL if name.split()[0] not in SUMS])
def test_a_traced_step_is_one_loop_over_each_parameter(name: str) -> None:
    """And up to two over the numbers of all of them."""
    params = [hm.ones((k % 5 + 1, 3), requires_grad=True) for k in range(40)]
    optimizer = ALL[name](optim, params)
    for parameter in params:
        parameter.grad = hm.ones(parameter.shape)
    step = hm.trace(optimizer.step)
    step()
    assert len(step.explain().kernels) <= len(params) + 2


def test_lion_and_lamb_are_those_of_the_papers() -> None:
    p, g, h = np.random.default_rng(1).standard_normal((3, 3, 4))
    for make, formula in ((OURS["Lion"], lion), (OURS["LAMB"], lamb)):
        params = params_of([p])
        optimizer = make(optim, params)
        expected, state = p.copy(), [np.zeros_like(p), np.zeros_like(p)]
        for t in range(1, 101):
            gradient = 0.5 * expected + (g if t % 2 else h)
            params[0].grad = hm.tensor(0.5 * values(params)[0] + (g if t % 2 else h))
            optimizer.step()
            expected = formula(expected, gradient, state, t)
        np.testing.assert_allclose(values(params)[0], expected, rtol=1e-9)


def lion(p: np.ndarray, g: np.ndarray, state: list[np.ndarray], t: int) -> np.ndarray:
    """Chen et al. 2023, program 1."""
    direction = np.sign(0.9 * state[0] + 0.1 * g)
    state[0] = 0.99 * state[0] + 0.01 * g
    return p - 0.01 * (direction + 0.1 * p)


def lamb(p: np.ndarray, g: np.ndarray, state: list[np.ndarray], t: int) -> np.ndarray:
    """You et al. 2019, algorithm 2."""
    state[:] = 0.9 * state[0] + 0.1 * g, 0.999 * state[1] + 0.001 * g * g
    ratio = state[0] / (1 - 0.9**t) / (np.sqrt(state[1] / (1 - 0.999**t)) + 1e-6)
    direction = ratio + 0.1 * p
    return p - 0.01 * np.linalg.norm(p) / np.linalg.norm(direction) * direction


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda w: optim.Adagrad([w], lr=-1), "Invalid learning rate: -1"),
        (lambda w: optim.Adagrad([w], lr_decay=-1), "Invalid lr_decay value: -1"),
        (lambda w: optim.Adagrad([w], initial_accumulator_value=-1), "Invalid initial_accumulator_value value: -1"),
        (lambda w: optim.Adadelta([w], rho=1.5), "Invalid rho value: 1.5"),
        (lambda w: optim.Adamax([w], eps=-1), "Invalid epsilon value: -1"),
        (lambda w: optim.NAdam([w], betas=(1.0, 0.9)), "Invalid beta parameter at index 0: 1.0"),
        (lambda w: optim.RAdam([w], betas=(0.9, -1)), "Invalid beta parameter at index 1: -1"),
        (lambda w: optim.NAdam([w], momentum_decay=-1), "Invalid momentum_decay value: -1"),
        (lambda w: optim.ASGD([w], weight_decay=-1), "Invalid weight_decay value: -1"),
        (lambda w: optim.Rprop([w], etas=(1.5, 1.2)), "Invalid eta values: 1.5, 1.2"),
        (lambda w: optim.Adafactor([w], lr=-1), "Learning rate should be >= 0 but is: -1"),
        (lambda w: optim.Adafactor([w], beta2_decay=1), "beta2_decay should be <= 0 but is: 1"),
        (lambda w: optim.Adafactor([w], eps=(-1, 1)), "epsilon1 should be >= 0 but is: -1"),
        (lambda w: optim.Adafactor([w], d=0.5), "Clipping threshold d should be >= 1 but is: 0.5"),
        (lambda w: optim.Adafactor([w.astype(hm.complex64).detach()]), "does not support complex parameters"),
        (lambda w: optim.Muon([w], momentum=-1), "momentum should be >= 0 but is: -1"),
        (lambda w: optim.Muon([hm.ones((3,))]), "Muon only supports 2D parameters"),
        (lambda w: optim.Muon([w], adjust_lr_fn="other"), "Adjust learning rate function other is not supported"),
        (lambda w: optim.Muon([w], ns_steps=100), "Number of steps must be less than 100"),
        (lambda w: optim.LBFGS([w], lr=-1), "Invalid learning rate: -1"),
        (lambda w: optim.LBFGS([w], line_search_fn="other"), "only 'strong_wolfe' is supported"),
        (lambda w: optim.LBFGS([{"params": [w]}, {"params": [hm.ones((1,))]}]), "parameter groups"),
        (lambda w: optim.SGD([{"params": [w], "lr": -1}]), "Invalid learning rate: -1"),
    ],
)
def test_errors_are_in_pytorchs_words(make: Any, words: str) -> None:
    with pytest.raises(hm.ArgumentError) as caught:
        make(hm.ones((2, 2)).requires_grad_())
    assert words in str(caught.value)


def test_a_dampened_state_of_pytorchs_is_past_its_first_step() -> None:
    """Which PyTorch's SGD does not count."""
    w = hm.tensor([0.0], requires_grad=True)
    optimizer = optim.SGD([w], lr=1.0, momentum=0.5, dampening=0.5)
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict(
        {"state": {0: {"momentum_buffer": np.asarray([2.0], np.float32)}}, "param_groups": groups}
    )
    w.grad = hm.ones((1,))
    optimizer.step()
    assert w.tolist() == [-1.5]


def test_gradients_add_up_over_several_batches() -> None:
    """Four quarters of a batch, added up by `backward`, are the step of the whole, in both styles."""
    rng = np.random.default_rng(0)
    x, y = hm.tensor(rng.standard_normal((8, 3))), hm.tensor(rng.standard_normal((8, 2)))
    found = []
    for parts, style in ((1, lambda fn: fn), (4, lambda fn: fn), (4, hm.trace)):
        hm.manual_seed(0)
        model = hm.nn.Linear(3, 2).double()
        optimizer = optim.AdamW(model.parameters(), lr=0.1)

        @style
        def step(model: Any = model, optimizer: Any = optimizer, parts: int = parts) -> None:
            optimizer.zero_grad()
            for some, wanted in zip(x.chunk(parts), y.chunk(parts), strict=True):
                (hm.nn.functional.mse_loss(model(some), wanted) / parts).backward()
            optimizer.step()

        for _ in range(3):
            step()
        found.append([np.array(p.detach()) for p in model.parameters()])
    for whole, eager, traced in zip(*found, strict=True):
        np.testing.assert_allclose(eager, whole, rtol=1e-9)
        np.testing.assert_allclose(traced, eager, rtol=1e-12)

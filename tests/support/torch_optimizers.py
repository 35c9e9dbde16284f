"""Optimizers, schedules and L-BFGS on PyTorch and on hybridml: 100 steps of each, and what PyTorch's state holds.

``python -m tests.support.torch_optimizers`` (needs PyTorch) writes the recorded values anew, in float64.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .torch_cases import OptimizerCase, ScheduleCase, recorded, rng, store

RECORDED = Path(__file__).with_name("torch_optimizers.npz")
STEPS, HALF, EPOCHS = 100, 50, 30
SHAPES = ((3, 4), (4,), (), (2, 3, 2))
MATRICES = ((3, 4), (5, 2))
WITHOUT_GRADIENT = {4: 1}  # at step 4 parameter 1 has none: what is counted for it must not move

OPTIMIZERS: dict[str, OptimizerCase] = {
    "Adam": OptimizerCase(lambda optim, p: optim.Adam(p, 0.05, weight_decay=0.1, decoupled_weight_decay=True)),
    "Adagrad": OptimizerCase(lambda optim, p: optim.Adagrad(p)),
    "Adagrad settings": OptimizerCase(lambda optim, p: optim.Adagrad(p, 0.1, 0.01, 0.1, 0.2, maximize=True)),
    "Adadelta": OptimizerCase(lambda optim, p: optim.Adadelta(p)),
    "Adadelta settings": OptimizerCase(lambda optim, p: optim.Adadelta(p, 0.5, 0.8, 1e-4, 0.1)),
    "Adamax": OptimizerCase(lambda optim, p: optim.Adamax(p)),
    "Adamax settings": OptimizerCase(lambda optim, p: optim.Adamax(p, 0.05, (0.8, 0.95), 1e-4, 0.1)),
    "NAdam": OptimizerCase(lambda optim, p: optim.NAdam(p)),
    "NAdam settings": OptimizerCase(
        lambda optim, p: optim.NAdam(p, 0.05, (0.8, 0.95), 1e-4, 0.1, 0.01, decoupled_weight_decay=True)
    ),
    "RAdam": OptimizerCase(lambda optim, p: optim.RAdam(p)),
    "RAdam settings": OptimizerCase(lambda optim, p: optim.RAdam(p, 0.05, (0.8, 0.95), 1e-4, 0.1)),
    "ASGD": OptimizerCase(lambda optim, p: optim.ASGD(p)),
    "ASGD settings": OptimizerCase(lambda optim, p: optim.ASGD(p, 0.1, 0.01, 0.6, 20, 0.1)),
    "Rprop": OptimizerCase(lambda optim, p: optim.Rprop(p)),
    "Rprop settings": OptimizerCase(lambda optim, p: optim.Rprop(p, 0.1, (0.4, 1.3), (1e-3, 0.5), maximize=True)),
    "Adafactor": OptimizerCase(lambda optim, p: optim.Adafactor(p)),
    "Adafactor settings": OptimizerCase(lambda optim, p: optim.Adafactor(p, 0.1, -0.5, (1e-3, 0.01), 2.0, 0.1)),
    "Muon": OptimizerCase(lambda optim, p: optim.Muon(p)),
    "Muon settings": OptimizerCase(
        lambda optim, p: optim.Muon(p, 0.01, 0.2, 0.9, nesterov=False, adjust_lr_fn="match_rms_adamw")
    ),
}

SCHEDULES: dict[str, ScheduleCase] = {
    "ConstantLR": ScheduleCase(lambda s, o: s.ConstantLR(o, 0.25, 4)),
    "LinearLR": ScheduleCase(lambda s, o: s.LinearLR(o, 0.25, 0.5, 7)),
    "PolynomialLR": ScheduleCase(lambda s, o: s.PolynomialLR(o, 9, 2.0)),
    "no epochs": ScheduleCase(
        lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.5, 0), s.LinearLR(o, 0.5, 1.0, 0), s.PolynomialLR(o, 0)])
    ),
    "MultiStepLR": ScheduleCase(lambda s, o: s.MultiStepLR(o, [2, 2, 5], 0.3)),
    "MultiplicativeLR": ScheduleCase(lambda s, o: s.MultiplicativeLR(o, lambda epoch: 1 - 1 / (epoch + 2))),
    "CosineAnnealingLR": ScheduleCase(lambda s, o: s.CosineAnnealingLR(o, 8, 0.05)),
    "CosineAnnealingWarmRestarts": ScheduleCase(lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.05)),
    "warm restarts alike": ScheduleCase(lambda s, o: s.CosineAnnealingWarmRestarts(o, 7)),
    "OneCycleLR": ScheduleCase(lambda s, o: s.OneCycleLR(o, 0.8, 40)),
    "OneCycleLR settings": ScheduleCase(
        lambda s, o: s.OneCycleLR(
            o, 0.8, epochs=4, steps_per_epoch=10, three_phase=True, anneal_strategy="linear", base_momentum=0.7
        )
    ),
    "CyclicLR": ScheduleCase(lambda s, o: s.CyclicLR(o, 0.1, 0.6, 4, 7)),
    "CyclicLR triangular2": ScheduleCase(lambda s, o: s.CyclicLR(o, 0.1, 0.6, 4, mode="triangular2")),
    "CyclicLR exp_range": ScheduleCase(
        lambda s, o: s.CyclicLR(o, 0.1, 0.6, 4, mode="exp_range", gamma=0.95, cycle_momentum=False)
    ),
    "CyclicLR scale_fn": ScheduleCase(lambda s, o: s.CyclicLR(o, 0.1, 0.6, 4, scale_fn=lambda x: 1 / x)),
    "SequentialLR": ScheduleCase(
        lambda s, o: s.SequentialLR(
            o, [s.LinearLR(o, 0.1, total_iters=5), s.CosineAnnealingLR(o, 20, 1e-3), s.ExponentialLR(o, 0.9)], [5, 20]
        )
    ),
    "SequentialLR momentum": ScheduleCase(
        lambda s, o: s.SequentialLR(o, [s.ConstantLR(o, 0.1, total_iters=5), s.OneCycleLR(o, 0.8, 50)], [7])
    ),
    "ChainedScheduler": ScheduleCase(
        lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 5), s.ExponentialLR(o, 0.9), s.StepLR(o, 3, 0.5)])
    ),
    "SequentialLR after others": ScheduleCase(  # whose base rates are their own
        lambda s, o: s.SequentialLR(
            o, [s.LambdaLR(o, lambda epoch: (epoch + 1) / 7), s.CyclicLR(o, 0.1, 0.6, 3), s.StepLR(o, 2)], [4, 9]
        )
    ),
    "SequentialLR in a chain": ScheduleCase(
        lambda s, o: s.ChainedScheduler(
            [s.SequentialLR(o, [s.ConstantLR(o, 0.5, 2), s.ExponentialLR(o, 0.9)], [3]), s.StepLR(o, 2, 0.5)]
        )
    ),
    "ChainedScheduler of one that has begun": ScheduleCase(
        lambda s, o: s.ChainedScheduler([s.ExponentialLR(o, 0.9), s.LinearLR(o, 0.1, total_iters=9, last_epoch=2)])
    ),
    "ChainedScheduler cosine": ScheduleCase(
        lambda s, o: s.ChainedScheduler([s.ExponentialLR(o, 0.9), s.CosineAnnealingLR(o, 6, 0.05)])
    ),
    "ChainedScheduler lambda": ScheduleCase(
        lambda s, o: s.ChainedScheduler(
            [s.PolynomialLR(o, 9), s.LambdaLR(o, lambda epoch: 1 / (epoch + 1)), s.MultiplicativeLR(o, lambda e: 0.99)]
        )
    ),
}

PLATEAUS: dict[str, dict[str, Any]] = {
    "defaults": {"patience": 3},
    "max": {"mode": "max", "threshold_mode": "abs", "threshold": 0.05, "cooldown": 2, "patience": 1, "min_lr": 0.01},
    "eps": {"patience": 0, "factor": 0.5, "eps": 0.03},
}

SEARCHES: dict[str, dict[str, Any]] = {
    "wolfe": {"line_search_fn": "strong_wolfe"},
    "fixed": {"lr": 0.1, "max_iter": 10},
    "short history": {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 7},
    "maximize": {"line_search_fn": "strong_wolfe", "maximize": True},
}


def shapes(name: str) -> tuple[tuple[int, ...], ...]:
    return MATRICES if name.startswith("Muon") else SHAPES


def start(name: str) -> list[np.ndarray]:
    return [rng(name + " start").normal(size=shape) for shape in shapes(name)]


def losses() -> list[float]:
    """Metrics for a plateau: they fall, with noise, and then stay."""
    noise = rng("losses").normal(size=60)
    return [float(1 / (t + 1) + 0.05 * x) for t, x in enumerate(noise)]


def gradient_rows(name: str, first: int, last: int) -> list[list[Any]]:
    """For each step and parameter the gradient as a function of the parameter: of a bowl, with noise."""

    def gradient(t: int, k: int, shape: tuple[int, ...]) -> Any:
        noise = rng(f"{name} {t} {k}").normal(size=shape)
        return None if WITHOUT_GRADIENT.get(t) == k else lambda p: 0.5 * p + noise

    return [[gradient(t, k, shape) for k, shape in enumerate(shapes(name))] for t in range(first, last)]


def run(tensor: Callable[[Any], Any], params: list[Any], step: Callable[[], Any], rows: list[list[Any]]) -> None:
    for row in rows:
        for parameter, gradient in zip(params, row, strict=True):
            value = np.asarray(parameter.detach().numpy())
            parameter.grad = None if gradient is None else tensor(gradient(value).astype(value.dtype))
        step()


def rosenbrock(x: Any) -> Any:
    return ((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2).sum()


def searched(lib: Any, name: str, style: Any = lambda fn: fn) -> tuple[Any, Any, list[float]]:
    """(parameters, optimizer, losses) of five steps of L-BFGS on Rosenbrock's function, of two parameters."""
    values = rng("rosenbrock").normal(size=6)
    params = [lib.tensor(values[:2]).requires_grad_(), lib.tensor(values[2:]).requires_grad_()]
    optimizer = lib.optim.LBFGS(params, **SEARCHES[name])
    sign = -1 if SEARCHES[name].get("maximize") else 1

    def closure() -> Any:
        optimizer.zero_grad()
        loss = sign * rosenbrock(lib.concatenate(params))
        loss.backward()
        return loss

    called = style(closure)
    return params, optimizer, [float(optimizer.step(called).detach()) for _ in range(5)]


def record() -> None:
    """Run every case on PyTorch."""
    import torch

    torch.set_default_dtype(torch.float64)  # of scalars in its state, too
    warnings.simplefilter("ignore")
    values: dict[str, np.ndarray] = {}
    keys: dict[str, Any] = {}
    for name, case in OPTIMIZERS.items():
        params = [torch.tensor(array, requires_grad=True) for array in start(name)]
        optimizer = case.make(torch.optim, params)
        run(torch.tensor, params, optimizer.step, gradient_rows(name, 0, HALF))
        state = optimizer.state_dict()["state"]
        keys[name] = {str(k): sorted(entry) for k, entry in state.items()}
        for k, parameter in enumerate(params):
            values[f"{name}|half|{k}"] = parameter.detach().numpy().copy()
            values |= {f"{name}|state|{k}|{key}": np.array(value) for key, value in state[k].items()}
        run(torch.tensor, params, optimizer.step, gradient_rows(name, HALF, STEPS))
        values |= {f"{name}|end|{k}": parameter.detach().numpy() for k, parameter in enumerate(params)}
    for name, schedule_case in SCHEDULES.items():
        optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=schedule_case.lr)
        scheduler = schedule_case.make(torch.optim.lr_scheduler, optimizer)
        rates = []
        for _ in range(EPOCHS):
            group = optimizer.param_groups[0]
            rates.append((float(group["lr"]), float(group["betas"][0])))
            scheduler.step()
        values[name] = np.asarray(rates)
    for name, settings in PLATEAUS.items():
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **settings)
        found = []
        for loss in losses():
            plateau.step(loss)
            found.append((plateau.get_last_lr()[0], plateau.best, plateau.num_bad_epochs, plateau.cooldown_counter))
        values[f"plateau {name}"] = np.asarray(found)
    for name in SEARCHES:
        params, optimizer, found_losses = searched(torch, name)
        values[f"search {name}"] = np.concatenate([parameter.detach().numpy() for parameter in params])
        values[f"search {name}|losses"] = np.asarray(found_losses)
        state = optimizer.state[params[0]]
        keys[f"search {name}"] = [state["n_iter"], state["func_evals"]]
    store(RECORDED, values, {"torch": torch.__version__, "keys": keys})
    print(f"{len(values)} values of PyTorch {torch.__version__}, {RECORDED.stat().st_size} bytes")


def recorded_optimizers() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(values by name, the state keys of each optimizer and the counts of each search)."""
    return recorded(RECORDED)


if __name__ == "__main__":
    record()

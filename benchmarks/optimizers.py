"""Optimizers beside PyTorch's: steps over the parameters of a ResNet-50, and whole runs of L-BFGS.

``python -m benchmarks.optimizers [names]`` (needs PyTorch) prints the least times of alternating runs, about three
minutes in all; ``--seconds 60`` gives each optimizer a minute. PyTorch's steps are its fused ones where it has them and
the faster of its loops and lists of tensors elsewhere; ours are eager and traced. L-BFGS fits a Gaussian process (200
points, 5 numbers) and a logistic regression (5,000 x 50, 10 classes), ours with a traced closure, and has to take the
iterations of PyTorch's.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import hybridml as hm

from .measure import PAUSE

SECONDS = 7.0  # of rounds, for each optimizer
ROUNDS = 2, 25  # at least and at most
FUSED = ("SGD", "Adam", "AdamW", "Adagrad")
SETTINGS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9},
    **{name: {} for name in ("Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD")},
    **{name: {} for name in ("Rprop", "Adafactor", "Muon", "Lion", "LAMB")},
}


def resnet50() -> list[tuple[int, ...]]:
    """Shapes of the 161 parameters, 25.6 million numbers."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    inner = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            outer = 4 * width
            weights = [(width, inner, 1, 1), (width, width, 3, 3), (outer, width, 1, 1)]
            for weight in [*weights, (outer, inner, 1, 1)] if block == 0 else weights:
                shapes += [weight, weight[:1], weight[:1]]
            inner = outer
    return [*shapes, (1000, 2048), (1000,)]


@functools.cache
def arrays_of(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """A parameter of this shape and its gradient."""
    rng = np.random.default_rng(0)
    value, gradient = (rng.standard_normal(shape, np.float32) for _ in range(2))
    return value * np.float32(0.05), gradient * np.float32(0.01)


def least(runs: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """The least milliseconds of each, run in turns for so long; PyTorch's threads are asleep before the next run."""
    found = dict.fromkeys(runs, float("inf"))
    end = time.perf_counter() + seconds
    for k in range(ROUNDS[1]):
        if k >= ROUNDS[0] and time.perf_counter() > end:
            break
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            found[name] = min(found[name], 1e3 * (time.perf_counter() - start))
            time.sleep(PAUSE if name.startswith("torch") else 0)
    return found


def steps(name: str) -> dict[str, Callable[[], Any]]:
    """A step of an optimizer over the parameters in each library and style."""
    shapes = [shape for shape in resnet50() if name != "Muon" or len(shape) > 1]
    if name == "Muon":  # matrices, as Muon has them: a convolution is one of its outputs
        shapes = [(shape[0], int(np.prod(shape[1:]))) for shape in shapes]
    arrays = [arrays_of(shape) for shape in shapes]

    def made(lib: Any, **style: Any) -> Any:
        params = [lib.tensor(value, requires_grad=True) for value, _ in arrays]
        for parameter, (_, gradient) in zip(params, arrays, strict=True):
            parameter.grad = lib.tensor(gradient)
        return getattr(lib.optim, name)(params, **SETTINGS[name], **style).step

    theirs = {"fused": {"fused": True}} if name in FUSED else {"loop": {"foreach": False}, "lists": {"foreach": True}}
    if name == "Muon":
        theirs = {"loop": {}}
    found = {
        f"torch {style}": made(torch, **options) for style, options in theirs.items() if hasattr(torch.optim, name)
    }
    return {**found, "eager": made(hm), "traced": hm.trace(made(hm))}


def gaussian_process(lib: Any) -> tuple[list[Any], Callable[[], Any]]:
    """Length scales, variance and noise by the marginal likelihood, in float64."""
    rng = np.random.default_rng(0)
    x, y = lib.tensor(rng.standard_normal((200, 3))), lib.tensor(np.sin(rng.standard_normal((200, 1))))
    numbers, eye = lib.tensor(np.zeros(5)).requires_grad_(), lib.eye(200, dtype=lib.float64)

    def loss() -> Any:
        scaled = x * lib.exp(-numbers[:3])
        squares = (scaled * scaled).sum(-1)
        distances = squares[:, None] + squares[None, :] - 2 * scaled @ scaled.T
        covariance = lib.exp(numbers[3]) * lib.exp(-0.5 * distances) + (lib.exp(numbers[4]) + 1e-6) * eye
        factor = lib.linalg.cholesky(covariance)
        white = lib.linalg.solve_triangular(factor, y, upper=False)
        return 0.5 * (white * white).sum() + lib.log(lib.diagonal(factor)).sum()

    return [numbers], loss


def logistic_regression(lib: Any) -> tuple[list[Any], Callable[[], Any]]:
    """Ten classes, with a penalty on the weights, in float32."""
    rng = np.random.default_rng(0)
    x, y = lib.tensor(rng.standard_normal((5000, 50), np.float32)), lib.tensor(rng.integers(0, 10, 5000))
    weight, bias = (lib.tensor(np.zeros(shape, np.float32)).requires_grad_() for shape in ((50, 10), (10,)))
    return [
        weight,
        bias,
    ], lambda: lib.nn.functional.cross_entropy(x @ weight + bias, y) + 1e-3 * (weight * weight).sum()


def fit(lib: Any, problem: Callable[[Any], tuple[list[Any], Callable[[], Any]]], style: Any) -> Callable[[], Any]:
    """A whole run of L-BFGS from the start; it returns iterations, evaluations and the last loss."""
    params, loss = problem(lib)
    search = {"line_search_fn": "strong_wolfe", "tolerance_grad": 1e-5}
    optimizer = lib.optim.LBFGS(params, max_iter=50, **search)

    @style
    def closure() -> Any:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    def run() -> Any:
        with lib.no_grad():
            for parameter in params:
                parameter.zero_()
        optimizer.state[params[0]].clear()
        optimizer.step(closure)
        state = optimizer.state[params[0]]
        return state["n_iter"], state["func_evals"], float(state["prev_loss"])

    run()
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    torch.set_num_threads(2)
    wanted = options.names
    for name in SETTINGS:
        if not wanted or name in wanted:
            runs = steps(name)
            for run in runs.values():
                run()
            times = least(runs, options.seconds)
            theirs = [ms for run, ms in times.items() if run.startswith("torch")]
            quotients = {run: times[run] / min(theirs) for run in ("eager", "traced") if theirs}
            report(name, times, quotients)
    for problem in (gaussian_process, logistic_regression):
        if not wanted or problem.__name__ in wanted:
            runs = {
                "torch": fit(torch, problem, lambda fn: fn),
                "eager": fit(hm, problem, lambda fn: fn),
                "traced": fit(hm, problem, hm.trace),
            }
            (theirs_, ours, traced) = (run() for run in runs.values())
            # Near the end a search compares losses that differ in their last bits: evaluations may be more or fewer.
            assert theirs_[0] == ours[0] == traced[0], (theirs_, ours, traced)
            times = least(runs, options.seconds)
            counts = f"{ours[0]} iterations, {theirs_[1]}, {ours[1]} and {traced[1]} evaluations"
            report(f"{problem.__name__}, {counts}", times, {k: times[k] / times["torch"] for k in times})


def report(name: str, times: dict[str, float], quotients: dict[str, float]) -> None:
    """One line: milliseconds, and quotients to PyTorch's best."""
    shown = ", ".join(f"{run} {ms:.1f} ms" for run, ms in times.items())
    print(f"{name}: {shown}; {', '.join(f'{run} {q:.2f}' for run, q in quotients.items())}", flush=True)


if __name__ == "__main__":
    main()

"""Random programs of views and updates in place: NumPy, eager, recorded and traced agree on every tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm

SHAPES = [(4, 6), (3, 4), (6,), (2, 3, 2)]


def steps(seed: int) -> list[tuple[Any, ...]]:
    """A program as a list of instructions over a growing list of arrays; written once, run by every style."""
    rng = np.random.default_rng(seed)
    arrays = [np.zeros(SHAPES[k]) for k in rng.integers(0, len(SHAPES), 2)]
    shapes = [a.shape for a in arrays]
    program: list[tuple[Any, ...]] = [("new", shape, int(rng.integers(100))) for shape in shapes]
    for _ in range(int(rng.integers(4, 12))):
        k = int(rng.integers(len(shapes)))
        shape = shapes[k]
        kind = rng.choice(["index", "reshape", "transpose", "add", "scale", "set", "fresh"])
        if kind == "index":
            key: list[Any] = []
            for n in shape[: int(rng.integers(0, len(shape) + 1))]:
                start = int(rng.integers(n))
                choices = [start, slice(start, None), slice(None, None, -1), slice(None, start + 1, 2)]
                key += [choices[int(rng.integers(len(choices)))]] + [None] * int(rng.integers(5) == 0)
            program.append(("index", k, tuple(key)))
            shapes.append(np.zeros(shape)[tuple(key)].shape)
        elif kind == "reshape":
            size = int(np.prod(shape))
            factor = next(f for f in (3, 2, 1) if size % f == 0)
            program.append(("reshape", k, (factor, size // factor)))
            shapes.append((factor, size // factor))
        elif kind == "transpose":
            program.append(("transpose", k))
            shapes.append(shape[::-1])
        elif kind == "fresh":
            program.append(("fresh", k))
            shapes.append(shape)
        elif kind == "set":
            other = int(rng.integers(len(shapes)))
            if shapes[other] == shape:
                program.append(("set", k, other))
        elif kind in ("add", "scale"):
            program.append((kind, k, float(rng.integers(1, 4))))
    return program


def run(program: list[tuple[Any, ...]], make: Callable[[tuple[int, ...], int], Any]) -> list[Any]:
    xs: list[Any] = []
    for step in program:
        match step:
            case ("new", shape, start):
                xs.append(make(shape, start))
            case ("index", k, key):
                xs.append(xs[k][(*key, ...)])
            case ("reshape", k, shape):
                xs.append(xs[k].reshape(shape))
            case ("transpose", k):
                xs.append(xs[k].T)
            case ("fresh", k):
                xs.append(xs[k] * 2)
            case ("set", k, other):
                xs[k][...] = xs[other]
            case ("add", k, value):
                xs[k] += value
            case ("scale", k, value):
                xs[k] *= value
    return xs


def start_values(shape: tuple[int, ...], start: int) -> np.ndarray:
    return np.arange(start, start + np.prod(shape), dtype=np.float64).reshape(shape)


@pytest.mark.parametrize("seed", range(150))
def test_views_and_updates(seed: int) -> None:
    program = steps(seed)
    expected = run(program, start_values)
    eager = run(program, lambda shape, start: hm.tensor(start_values(shape, start)))
    for got, want in zip(eager, expected, strict=True):
        np.testing.assert_array_equal(got, want)
    inputs = [hm.tensor(start_values(shape, start)) for kind, shape, start in program[:2]]

    def traced(*given: hm.Tensor) -> list[hm.Tensor]:
        left = iter(given)
        return run(program, lambda shape, start: next(left))

    for got, want in zip(hm.trace(traced, backend="interpret")(*inputs), expected, strict=True):
        np.testing.assert_array_equal(got, want)
    for got, want in zip(inputs, expected, strict=False):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("seed", range(100))
def test_their_gradients(seed: int) -> None:
    """The sum of squares of all that a program has made, differentiated: recorded and traced against differences."""
    program = steps(seed)

    def value(given: list[Any], run_on: Callable[..., Any] = lambda x: x) -> Any:
        left = iter(given)
        xs = run(program, lambda shape, start: run_on(next(left)))
        total = 0
        for k, x in enumerate(xs):
            total = total + (x * x).sum() * (0.1 + k % 3)
        return total

    points = [start_values(shape, start) / 50 for kind, shape, start in program[:2]]
    rng = np.random.default_rng(seed)
    directions = [rng.standard_normal(p.shape) for p in points]
    h = 1e-6
    numeric = (value([p + h * d for p, d in zip(points, directions, strict=True)])
               - value([p - h * d for p, d in zip(points, directions, strict=True)])) / (2 * h)  # fmt: skip
    for style in (value, hm.trace(lambda given: value(given, lambda x: x * 1), backend="interpret")):
        leaves = [hm.tensor(p, requires_grad=True) for p in points]
        if style is value:
            loss = value(leaves, lambda x: x * 1)
        else:
            loss = style(leaves)
        loss.backward()
        analytic = sum(  # an input that the program overwrites as a whole has no gradient
            float((np.asarray(t.grad) * d).sum()) for t, d in zip(leaves, directions, strict=True) if t.grad is not None
        )
        assert analytic == pytest.approx(float(numeric), rel=1e-5, abs=1e-6)

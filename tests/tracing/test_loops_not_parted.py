"""Loops with conditions on their numbers that turn near the ends, and questions about data: one program for all data,
which decides the conditions in each step."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.specialize.errors import TraceWarning
from tests.support.loops import assert_same

N = 18


def image(seed: int) -> hm.Tensor:
    return hm.asarray(np.random.default_rng(seed).random((N, N)))


def alike(fn: Callable[..., Any], seeds: int = 5) -> Any:
    """The traced function, after calls that gave what eager ones give, in errors and in arguments too."""
    traced = hm.trace(fn)
    for seed in range(seeds):
        a, b = image(seed), image(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TraceWarning)
            try:
                expected = fn(a)
            except IndexError as error:
                with pytest.raises(IndexError) as found:
                    traced(b)
                assert str(found.value) == str(error)
            else:
                assert_same(expected, traced(b))
        assert_same(a, b)
    return traced


def dilated(x: Any) -> Any:
    out = np.zeros((N, N))
    for y in range(N):
        for k in range(N):
            hit = False
            for dy in range(-1, 2):
                if 0 <= y + dy < N and x[y + dy, k] > 0.8:
                    hit = True
                if 0 <= k + dy < N and x[y, k + dy] > 0.8:
                    hit = True
            out[y, k] = 1 if hit else 0
    return out


def components(x: Any) -> Any:
    label, count = np.zeros((N, N), dtype=int), 0
    for y in range(N):
        for k in range(N):
            if x[y, k] > 0.4:
                if y > 0 and x[y - 1, k] > 0.4:
                    label[y, k] = label[y - 1, k]
                elif k > 0 and x[y, k - 1] > 0.4:
                    label[y, k] = label[y, k - 1]
                else:
                    count += 1
                    label[y, k] = count
    return label, count


def around_the_ends(x: Any) -> Any:
    out, turns = np.zeros(N), 0
    for i in range(N):
        if x[0, i] > x[0, i - 1]:
            turns += 1
        out[i - 2] = x[1, i] if i == 0 or x[1, i] > 0.5 else out[i - 1]
    return out, turns


def updates(x: Any) -> Any:
    s = 0.0
    for i in range(N):
        if i > 0:
            x[0, i] += x[0, i - 1]
            x[1, i - 1] = s
        if x[0, i] > 2:
            s = s + x[1, i]
    return s


def while_loop(x: Any) -> Any:
    i, found = 0, 0
    while i < N:
        if (i > 0 and x[0, i - 1] < x[0, i]) or x[1, i] > 0.5:
            found += 1
        i += 1
    return found


def of_called_code(x: Any) -> Any:
    def higher(i: int) -> Any:
        return x[0, i] > x[0, i - 1] if i > 0 else x[0, i] > 0.5

    count = 0
    for i in range(N):
        if higher(i):
            count += i
    return count


@pytest.mark.parametrize("program", [dilated, components, around_the_ends, updates, while_loop, of_called_code],
                         ids=lambda f: f.__name__)  # fmt: skip
def test_one_program_for_all_data(program: Callable[..., Any]) -> None:
    traced = alike(program)
    assert traced.cache_info().compiles == 1 and " loop(" in traced.ir


def clipped(x: Any) -> Any:
    out = np.zeros(N)
    for i in range(N):
        if i > 1 and x[0, i] > 0.5:
            out[i] = x[0, i - 1 : i + 2].sum()
        else:
            out[i] = x[1, max(i - 1, 0) : i + 2].sum()
    return out


def left(x: Any) -> Any:
    for i in range(N):
        if i > 2 and x[0, i] > 0.8:
            break
        x[1, i] = x[0, i - 1]
    return i


def beyond(x: Any) -> Any:
    s = 0.0
    for i in range(N):
        if i == 0 or x[0, i] > 0.1:
            s = s + x[0, i + 1]
    return s


def of_other_types(x: Any) -> Any:
    s, found = None, []
    for i in range(N):
        if i == 0 or x[0, i] > 0.9:
            s = x[1, i]
        if i > 3 and x[0, i] > 0.5:
            found.append((i, "a"))
    return s, found


@pytest.mark.parametrize("program", [clipped, left, beyond, of_other_types], ids=lambda f: f.__name__)
def test_others_are_as_in_eager_code(program: Callable[..., Any]) -> None:
    alike(program)


def _drawn(seed: int) -> str:
    draw = random.Random(seed)
    places = ["i", "i - 1", "i + 1", "i - 2"]
    on_numbers = ["i > 0", "i < N - 1", "i == 0", "0 <= i - 2", "i + 1 < N", "i != 3", "i > 0 and i < N - 1"]
    values = ["x[0, {}]", "y[{}]", "c", "s", "x[{}, 1] + 1", "i"]

    def place() -> str:
        return draw.choice(places[:1] * 2 + places)

    def value() -> str:
        return draw.choice(values).format(place())

    def condition() -> str:
        on_data = f"{value()} {draw.choice('<>')} {draw.choice(('0.3', '0.7', value()))}"
        return draw.choice([draw.choice(on_numbers), on_data, f"{draw.choice(on_numbers)} and {on_data}"])

    lines = ["y, s, c = np.zeros(N), x[0, 0] * 2, 0", "for i in range(N):"]
    for _ in range(draw.randint(2, 4)):
        lines.append(f"    if {condition()}:")
        for _ in range(draw.randint(1, 2)):
            what = ["c += 1", "s = s + {1}", "y[{0}] = {1}", "x[0, {0}] = {1}", "y[{0}] += {1}", "x[{0}, 2] += s"]
            lines.append("        " + draw.choice(what).format(place(), value()))
        if draw.random() < 0.3:
            lines += ["    else:", f"        y[{place()}] = {value()}"]
    return "\n    ".join(["def f(x):", *lines, "return y, s, c"])


@pytest.mark.parametrize("seed", range(12))
def test_drawn_programs(seed: int) -> None:
    space: dict[str, Any] = {"N": N, "np": np}
    exec(_drawn(seed), space)
    alike(space["f"], seeds=3)

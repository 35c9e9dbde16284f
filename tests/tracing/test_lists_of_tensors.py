"""Lists of tensors that grow where data decides, and are returned: each item is one that nothing else is."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.specialize.errors import TraceWarning
from tests.support.loops import assert_same, flat

N = 40


def made(seed: int) -> hm.Tensor:
    return hm.asarray(np.random.default_rng(seed).random(N))


def assert_alike(fn: Callable[..., Any]) -> Any:
    """The traced function, whose results are in one memory with each other and with arguments where eager ones are."""
    traced = hm.trace(fn)
    for seed in range(4):
        a, b = made(seed), made(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TraceWarning)
            expected, found = fn(a), traced(b)
        assert_same(expected, found)
        for k, (x, y) in enumerate(zip([a, *flat(expected)], [b, *flat(found)], strict=True)):
            if isinstance(x, hm.Tensor):
                x += k
                y += k
                assert_same([a, *flat(expected)], [b, *flat(found)])
    return traced


def trades(x: Any) -> Any:
    held, entry, cash, gains = False, 0.0, 1.0, []
    for i in range(1, N):
        if not held and x[i] < x[i - 1]:
            held, entry = True, x[i]
        elif held and x[i] > entry + 0.3:
            gains.append(x[i] / entry - 1)
            held, cash = False, cash * x[i] / entry
    return gains, cash


def rows(x: Any) -> Any:
    found, total = [], 0.0
    for i in range(2, N):
        if x[i] > 0.5:
            found.append((i, x[i - 2 : i] * x[i], 2.0))
            total += x[i]
    return found, total


def until(x: Any) -> Any:
    low, high, total = [], [], 0.0
    for i in range(N):
        total = total + x[i]
        if x[i] < 0.4:
            low.append(x[i] * 2)
        else:
            high.append((x[i] + total).reshape(1, 1))
        if total > 12:
            break
    return low, high[::-1]


@pytest.mark.parametrize("program", [trades, rows, until], ids=lambda f: f.__name__)
def test_one_program_for_all_lengths(program: Callable[..., Any]) -> None:
    traced = assert_alike(program)
    assert traced.cache_info().compiles == 1 and " loop(" in traced.ir


def of_arguments(x: Any) -> Any:
    found = []
    for i in range(N):
        if x[i] > 0.5:
            found.append(x[i])
    return found


def a_variable(x: Any) -> Any:
    found, best = [], x[0] * 1
    for i in range(N):
        if x[i] > 0.5:
            best = x[i] * 2
            found.append(best)
    return found, best


def a_sum(x: Any) -> Any:
    found, s = [], x[0] * 1
    for i in range(N):
        s = s + x[i]
        if x[i] > 0.5:
            found.append(s)
            s += 1
    return found, s


def twice(x: Any) -> Any:
    found = []
    for i in range(N):
        y = x[i] * 2
        if x[i] > 0.5:
            found.append(y)
            found.append(y)
    return found


def of_two_lists(x: Any) -> Any:
    found, others = [], []
    for i in range(N):
        y = x[i] * 2
        if x[i] > 0.5:
            found.append(y)
        if x[i] > 0.7:
            others.append(y)
    return found, others


def chosen(x: Any) -> Any:
    found, last = [], x[0] * 1
    for i in range(N):
        y = x[i] * 2
        z = last if x[i] > 0.6 else y
        if x[i] > 0.5:
            found.append(z)
        last = y
    return found, last


def views(x: Any) -> Any:
    found = []
    for i in range(2, N):
        y = x[i - 2 : i] * 2
        if x[i] > 0.5:
            found.append(y)
            found.append(y[1:])
    return found


def read_again(x: Any) -> Any:
    found, last = [], x[0] * 1
    for i in range(N):
        if x[i] > 0.5:
            found.append(x[i] * 2)
        if found:
            last = found[-1]
    return found, last


def left(x: Any) -> Any:
    found, y = [], x[0] * 1
    for i in range(N):
        y = x[i] * 2
        if x[i] > 0.5:
            found.append(y)
            if x[i] > 0.9:
                break
        y = y + 1
    return found, y


def updated_later(x: Any) -> Any:
    found = []
    for i in range(N):
        y = x[i] * 2
        if x[i] > 0.5:
            found.append(y)
        y += 1
    return found


def of_a_loop_around(x: Any) -> Any:
    found = []
    for i in range(N):
        y = x[i] * 2
        for k in range(16):
            if x[k] + y > 2.4:
                found.append(y)
    return found


@pytest.mark.parametrize(
    "program",
    [of_arguments, a_variable, a_sum, twice, of_two_lists, chosen, views, read_again, left,
     updated_later, of_a_loop_around],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_items_that_are_elsewhere_as_well(program: Callable[..., Any]) -> None:
    assert_alike(program)


def _drawn(seed: int) -> str:
    """The source of a program that appends to two lists what other names may be too."""
    draw, lines = random.Random(seed), ["y, z, a, b = x[0] * 1, x[1] + 1, [], []", "for i in range(2, N):"]
    new = ["x[i] * 2", "y + x[i]", "x[i - 2 : i].sum()", "z * 0.5"]
    for _ in range(draw.randint(2, 5)):
        indent = "    "
        if draw.random() < 0.7:
            lines.append(f"    if x[i] {draw.choice('<>')} {draw.choice((0.3, 0.5, 0.7))}:")
            indent *= 2
        for _ in range(draw.randint(1, 2)):
            what = draw.choice(["a.append({})", "b.append({})", "y = {}", "z = {}"])
            of = new if "=" in what or len(indent) < 8 or draw.random() < 0.7 else ["y", "z", "x[i]"]
            lines.append(indent + what.format(draw.choice(of)))
    if draw.random() < 0.3:
        lines.append("    if x[i] > 0.95: break")
    return "\n    ".join(["def f(x):", *lines, f"return {draw.choice(['a, b', 'a, b, y', 'a, z, y', 'a'])}"])


@pytest.mark.parametrize("seed", range(12))
def test_drawn_programs(seed: int) -> None:
    space: dict[str, Any] = {"N": N}
    source = _drawn(seed)
    exec(source, space)
    try:
        assert_alike(space["f"])
    except AssertionError as error:
        raise AssertionError(source) from error

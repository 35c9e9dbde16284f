"""Variables that are NumPy's arrays before a loop and tensors after steps that data chooses: `theta = new`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridml as hm
from tests.support.loops import flat

N = 40
_LINES = [
    "new = theta + 0.5 * x[k]",
    "if x[k, 0] > limit: theta = new",
    "if x[k, 1] > 0.75: theta = theta + x[k]",
    "chain[k] = theta",
    "if k % 5 == 4 and k < 30: width = width * 0.5",
    "total = total + (theta * x[k]).sum()",
    "theta = theta if x[k, 0] < 0.5 else new",
    "other = theta * 2",
    "theta[0] = 1.0",
    "chain[k, 0] = theta[1]",
    "theta = theta * 2",
    "theta += x[k]",
    "if x[k, 0] > 2: theta = np.ones(3)",
    "total = total + theta.sum()",
    "first[1] = x[k, 2]",
    "for _ in range(2): theta = theta + x[k] if x[k, 0] > limit else theta",
    "total = total + len(theta)",
]
_USUAL = _LINES[:2], [*_LINES[:2], _LINES[3]], [*_LINES[:2], _LINES[4], _LINES[3], _LINES[5]]


def _program(lines: list[str]) -> Any:
    source = "\n".join(
        ["def program(x, limit):", "    theta, chain, width, total = np.zeros(3), np.zeros((len(x), 3)), 1.0, 0.0",
         "    first = new = theta", "    for k in range(len(x)):", *(f"        {line}" for line in lines),
         "    return theta, first, chain, width, total"]
    )  # fmt: skip
    space: dict[str, Any] = {"np": np}
    exec(compile(source, "<program>", "exec"), space)
    return space["program"]


def _told(fn: Any, seed: int, limit: float) -> Any:
    x = hm.tensor(np.random.default_rng(seed).integers(0, 8, (N, 3)) / 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = flat(fn(x, limit))
        except Exception as error:
            return type(error)
    return [(type(v), np.asarray(v).dtype, np.asarray(v).tolist()) for v in found]


def _same(program: Any, traced: Any) -> None:
    for seed, limit in ((0, 0.7), (1, 0.7), (0, 3.0), (0, -1.0), (2, 0.7)):
        assert _told(traced, seed, limit) == _told(program, seed, limit)


@pytest.mark.parametrize("lines", _USUAL, ids=["taken", "kept", "in blocks"])
def test_a_loop_carries_them(lines: list[str]) -> None:
    program = _program(lines)
    traced: Any = hm.trace(program)
    _told(traced, 0, 0.7)
    assert traced._last.rolled
    _same(program, traced)
    assert traced.cache_info().compiles <= (5 if lines is _USUAL[2] else 3)  # Python asks after each part of a loop


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(_LINES), min_size=1, max_size=4, unique=True))
def test_programs_are_those_of_eager_code(lines: list[str]) -> None:
    program = _program(lines)
    _same(program, hm.trace(program))

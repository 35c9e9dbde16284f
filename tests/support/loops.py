"""Arrays for programs of loops, and what is the same of their results."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import hybridml as hm
from hybridml.tracing.specialize.errors import TraceWarning


def data(*shape: int) -> Callable[[], hm.Tensor]:
    return lambda: hm.asarray(np.random.default_rng(1).random(shape))


def flat(value: Any) -> list[Any]:
    return [x for v in value for x in flat(v)] if isinstance(value, list | tuple) else [value]


def assert_same(expected: Any, found: Any) -> None:
    for a, b in zip(flat(expected), flat(found), strict=True):
        assert type(a) is type(b)
        if isinstance(a, hm.Tensor | np.ndarray):
            assert a.dtype == b.dtype
            with hm.no_grad():
                np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        else:
            assert a == b


def both(fn: Callable[..., Any], *makes: Callable[[], Any], calls: int = 3) -> Any:
    """The traced function, after calls that gave what eager ones give, in results and in arguments."""
    traced = hm.trace(fn)
    for _ in range(calls):
        given, same = [make() for make in makes], [make() for make in makes]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TraceWarning)
            found = traced(*same)
        assert_same((fn(*given), given), (found, same))
    return traced


def number(value: float) -> Callable[[], float]:
    return lambda: value


def is_loop(traced: Any) -> bool:
    return " loop(" in traced.ir and traced.cache_info().compiles == 1


def as_eager(program: Any) -> Any:
    """The traced program, after calls with five numbers that gave what eager ones give, and left these alike."""
    traced = hm.trace(program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(3):
            a, b = (hm.tensor((0.1 + seed) * np.random.default_rng(seed).random(5)) for _ in range(2))
            assert_same(program(a), traced(b))
            np.testing.assert_array_equal(a, b)
    return traced

"""Arrays for programs of loops, and what is the same of their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hybridml as hm


def data(*shape: int) -> Callable[[], hm.Tensor]:
    return lambda: hm.asarray(np.random.default_rng(1).random(shape))


def flat(value: Any) -> list[Any]:
    return [x for v in value for x in flat(v)] if isinstance(value, list | tuple) else [value]


def assert_same(expected: Any, found: Any) -> None:
    for a, b in zip(flat(expected), flat(found), strict=True):
        assert type(a) is type(b)
        if isinstance(a, hm.Tensor | np.ndarray):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        else:
            assert a == b

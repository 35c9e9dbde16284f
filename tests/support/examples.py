"""How many examples hypothesis draws, and which cases of a table run without `--slow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

all_of_them = False  # with `--slow`


def examples(count: int, **options: Any) -> settings:
    """Settings of a test with so many examples, of which a run without `--slow` draws half."""
    return settings(max_examples=count if all_of_them else count // 2, **options)


def every(step: int, cases: Iterable[Any]) -> list[Any]:
    """Cases for `parametrize`, a value or a tuple of them each, of which a run without `--slow` takes the first of so
    many."""
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*row, marks=[pytest.mark.slow] * (k % step > 0)) for k, row in enumerate(rows)]

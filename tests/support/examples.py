"""How many examples hypothesis draws."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

all_of_them = False  # with `--slow`


def examples(count: int, **options: Any) -> settings:
    """Settings of a test with so many examples, of which a run without `--slow` draws half."""
    return settings(max_examples=count if all_of_them else count // 2, **options)

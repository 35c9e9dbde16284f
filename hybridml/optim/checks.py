"""Bounds of hyper-parameters, in PyTorch's words: what an optimizer refuses can only be a mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Check(NamedTuple):
    """A bound: PyTorch's words for a value outside of it, what holds inside, and the bound in words."""

    words: str
    holds: Callable[[Any], bool]
    bound: str


def not_negative(words: str) -> Check:
    """Bound of a number that is at least 0."""
    return Check(words, lambda value: value >= 0, "must not be negative")


BELOW_ONE = Check("Invalid beta parameter at index {index}: {value}", lambda value: 0 <= value < 1, "must be in [0, 1)")
USUAL = {
    "lr": not_negative("Invalid learning rate: {value}"),
    "eps": not_negative("Invalid epsilon value: {value}"),
    "betas": BELOW_ONE,
}


def complaint(name: str, value: Any, checks: dict[str, Check]) -> str | None:
    """Returns what is wrong with the setting `name`, or None; tensors pass, as their values may change."""
    check = checks.get(name) or USUAL.get(name) or not_negative(f"Invalid {name} value: {{value}}")
    for index, number in enumerate(value if isinstance(value, tuple | list) else [value]):
        if isinstance(number, int | float) and not check.holds(number):
            return f"{check.words.format(index=index, value=number)}; it {check.bound}"
    return None

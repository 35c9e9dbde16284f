"""Warnings of calls that run eagerly: what happened, at which line, what it costs, and what to do in this case."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.specialize.errors import TraceWarning


def clock(x: hm.Tensor, k: int) -> hm.Tensor:
    return x * time.perf_counter()


def value(x: hm.Tensor, k: int) -> hm.Tensor:
    return x * float(f"{(x + k).sum().item():.4f}")


def container(x: hm.Tensor, k: int) -> dict[Any, Any]:
    return {x * 2: k}


def failing(x: hm.Tensor, k: int) -> hm.Tensor:
    if not isinstance((x * 2)._array, np.ndarray):  # as code that takes no stand-in does
        raise RuntimeError("takes arrays alone")
    return x


CASES: list[tuple[Callable[..., Any], str, str]] = [
    (clock, "computes with the time", "Do that after the call, with what the function returns"),
    (value, "asks", "Return the tensor and read it after the call"),
    (container, "returns a dict that has tensors as keys", "Return tensors, numbers"),
    (failing, "cannot be traced", "Move that line out of the traced function"),
]


@pytest.mark.parametrize(("program", "what", "instead"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_what_where_costs_and_what_to_do(program: Callable[..., Any], what: str, instead: str) -> None:
    traced = hm.trace(program)
    with pytest.warns(TraceWarning) as found:
        for k in range(20):
            traced(hm.full((3,), float(k)), 1)
    (message,) = {str(warning.message) for warning in found}
    assert message.startswith(f"{program.__name__} {what}") and "run eagerly" in message
    assert "in the time that they take without hm.trace" in message and message.count(instead) == 1
    assert {warning.filename for warning in found} == {__file__}

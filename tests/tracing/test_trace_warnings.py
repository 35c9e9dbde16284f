"""Warnings of calls that run eagerly: what happened, at which line, what it costs, and what to do in this case."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.capture import tracer
from hybridml.tracing.rolling.code_loops import flow_of
from hybridml.tracing.specialize.errors import StepByStep, TraceWarning


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
    (clock, "computes with the time", "pass the time as an argument"),
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


def looks_up(x: hm.Tensor, k: int) -> hm.Tensor:
    names = {3: 1.0}
    for i in range(40):
        x = x * names.get(i, 0.5)
        if x.sum() > 1e9:
            x = x * 0.5
    return x


def sets_a_text(x: hm.Tensor, k: int) -> hm.Tensor:
    for i in range(2):
        state = "as before"
        for _ in range(20):
            if x[i] > x[i + 1]:
                x[i] = x[i + 1] * 1
                state = "changed"
        x = x * len(state)
    return x


def keeps_in_an_object(x: hm.Tensor, k: int) -> hm.Tensor:
    found: dict[str, Any] = {}
    for i in range(20):
        found["last"] = x * i
        if x.sum() > 1e9:
            x = x * 0.5
    return x + found["last"]


LOOPS = [
    (looks_up, "`for i in range(40)`", "something is looked up by its number", "put what is looked up into an array"),
    (sets_a_text, "`for _ in range(20)`", "a step sets state to 'changed'", "count in its place"),
    (
        keeps_in_an_object,
        "`for i in range(20)`",
        "a step may change a container",
        "keep what a step changes in variables",
    ),
]


@pytest.mark.parametrize(("program", "loop", "why", "instead"), LOOPS, ids=lambda case: getattr(case, "__name__", ""))
def test_a_loop_that_is_unrolled_says_why(
    program: Callable[..., Any], loop: str, why: str, instead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = hm.tensor([3.0, 1.0, 2.0], dtype="float64")
    with pytest.raises(hm.TraceError) as error:
        hm.trace(program, strict=True)(x, 1)
    monkeypatch.setattr(tracer, "MOST_STEP_BY_STEP", 30)
    with pytest.warns(TraceWarning) as found:
        hm.trace(program)(x, 1)
    (warning,) = {str(warning.message) for warning in found}
    for message in (warning, str(error.value)):
        assert f"the loop {loop} at test_trace_warnings.py:" in message and why in message and instead in message
    assert "has more than 30 operations, as the loop" in warning and "run eagerly" in warning


def test_a_question_behind_a_loop_is_not_about_it() -> None:
    def fn(x: hm.Tensor) -> hm.Tensor:
        names, y = {3: 1.0}, 1
        for i in range(20):
            x = x * names.get(i, 0.5)
        for _ in range(20):
            y = y * x
        return x if y.sum() > 0 else x * 2

    with pytest.raises(hm.TraceError, match=r"traced with strict=True; use hm.where instead"):
        hm.trace(fn, strict=True)(hm.ones(3))


@pytest.mark.parametrize("line", [3, 4, 5])
def test_the_line_of_a_loop_is_where_it_begins(line: int) -> None:
    loops = {3: "while x.sum() > k:", 4: "while k < 40:", 5: "for k in range(20):"}
    source = ["def f(x, k, seen):", *[""] * (line - 2), f"    {loops[line]}", "        x = x * 0.5", "        k += 1"]
    space: dict[str, Any] = {}
    exec("\n".join([*source, "        seen.append(list(seen))", "    return x"]), space)
    code = space["f"].__code__
    (head,) = flow_of(code).loops
    assert f"<string>:{line}" in str(StepByStep((code, flow_of(code).found[head].offset), "of no reason"))

"""A call that is traced again says why, in one line."""

from __future__ import annotations

import contextvars
import logging
from typing import Any
from unittest import TestCase

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.function import TracedFunction

RATE, RATES = 3, contextvars.ContextVar[int]("rates")


class Generic:
    pass


class Model(hm.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps, self.sizes = 2, [1.0, 2.0]

    def forward(self, x: hm.Tensor) -> hm.Tensor:
        return x * len(range(self.steps)) * self.sizes[1]


def test_reasons(trace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, depth, w = hm.ones((2, 3)), 1, hm.ones((3,))

    @trace
    def f(x: Any, n: int = 1, *, mode: str = "a") -> Any:
        first = x[0] if isinstance(x, list) else x
        return first * n * RATE * depth * w.sum()

    def why() -> str:
        return f.retraces[-1].removeprefix("f retraced: ")

    f(x, 3)
    assert f.retraces == ()
    with TestCase().assertLogs("hybridml", logging.INFO) as found:
        f(x, 4)
    assert why() == "argument n 3 -> 4: now for any n" and found.records[-1].getMessage() == "f retraced: " + why()
    f(hm.ones((5, 3)), 4)
    assert why() == "argument x float32[2, 3] -> float32[5, 3]: now for any size of axis 0 of x"
    f(hm.ones((2, 3), requires_grad=True), 4)
    assert why() == "argument x float32[2, 3] -> float32[2, 3] that requires grad"
    f([x, x * 2], 4)
    assert why() == "the arguments are ([x, x], x) and not (x, x)"
    f([x, x[:1]], 4)
    assert why() == "argument x[1] float32[2, 3] -> float32[1, 3]"
    f(x, n=3)
    assert why().startswith("the arguments are (x, n=x) and not")
    monkeypatch.setitem(globals(), "RATE", 4)
    f(x, 3)
    assert why() == "RATE 3 -> 4: now for any size of axis 0 of x"
    depth = 2
    f(x, 3)
    assert why().startswith("depth 1 -> 2")
    w.requires_grad_()
    f(x, 3)
    assert why().startswith("a captured tensor of shape [3] requires grad")
    with hm.no_grad():
        f(x, 3)
    assert why().startswith("gradients are off")


def test_reasons_in_attributes_containers_and_branches(trace: Any) -> None:
    model, x = trace(Model()), hm.tensor([1.0])
    model(x)
    model.steps = 3
    model(x)
    model.sizes[1] = 5.0
    model(x)
    model.sizes.append(1.0)
    model(x)
    reasons = [line.partition(": ")[2] for line in model.forward.retraces]
    assert reasons == ["steps 2 -> 3", "sizes[1] 2.0 -> 5.0", "the size of sizes 2 -> 3"]
    f = trace(lambda t: t if t.sum() > 0 else -t)
    f(x), f(-x)
    assert "bool() at" in f.retraces[0] and "if t.sum() > 0" in f.retraces[0]


def test_reasons_name_what_is_another(trace: Any) -> None:
    """A class, its bases, a context variable, a set and a long list: none is told by its `repr`."""

    class Twice:
        factor = 2

    class Thrice:
        factor = 3

    class Model(Twice, Generic):
        pass

    model, kinds, rates, x = Model(), {"a"}, [float(k) for k in range(150)], hm.tensor([1.0])
    RATES.set(1)
    f = trace(lambda t: t * model.factor * len(kinds) * rates[3] * RATES.get())
    f(x)
    Model.__bases__ = (Thrice, Generic)
    f(x)
    model.__class__ = Thrice  # type: ignore[assignment]
    f(x)
    kinds.symmetric_difference_update("ab")
    f(x)
    rates[3] = 4.0
    f(x)
    RATES.set(2)
    assert f(x).item() == 3 * 4 * 2
    assert [line.partition(": ")[2] for line in f.retraces] == [
        "the bases of Model are others",
        "the class of model Model -> Thrice",
        "kinds frozenset({'a'}) -> frozenset({'b'})",
        "the items of rates are others",
        "rates 1 -> 2",
    ]


def test_a_value_that_makes_program_after_program_is_reported_once(trace: Any) -> None:
    model, x = trace(Model()), hm.tensor([1.0])
    with pytest.warns(UserWarning, match=r"traced 8 times because another value was found \(steps 8 -> 9\)") as found:
        for k in range(1, 13):
            model.steps = k
            assert model(x).item() == 2.0 * k
    assert len(found) == 1


def test_functions_of_the_library_are_no_news() -> None:
    """A program that logs at INFO has no lines about functions inside of ours."""
    f = TracedFunction(lambda x: x * 2, silent=True)
    with TestCase().assertNoLogs("hybridml", logging.INFO), TestCase().assertLogs("hybridml", logging.DEBUG) as found:
        f(hm.ones((2,)))
        f(hm.ones((2, 2)))
    assert [record.getMessage() for record in found.records] == list(f.retraces) != []


@pytest.mark.filterwarnings("ignore::hybridml.tracing.specialize.errors.TraceWarning")
def test_calls_that_all_end_with_an_error_have_that_one() -> None:
    def f(w: Any) -> Any:
        p, d = w + 1, 2
        for i in range(1, 20):
            if p[d] > 1:
                d = w[i]
            p[w[i]] = d + 16
            d = p[w[i]] + d
        return p

    traced = hm.trace(f)
    for seed in range(6):
        for fn in (f, traced):
            with pytest.raises(IndexError):
                fn(hm.tensor(np.random.default_rng(seed).integers(0, 4, 20)))

"""What a trace does that no guard sees is said with its line; what its results depend on makes the calls eager."""

from __future__ import annotations

import logging
import random
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm

GENERATOR = np.random.default_rng(0)
LOG = logging.getLogger("test")


def batches() -> Any:
    for k in range(100):
        yield hm.tensor([float(k)])


def uses() -> dict[str, Callable[[], tuple[Callable[[hm.Tensor], Any], str]]]:
    """name -> () -> (a function, a piece of the line that the report names)."""
    loader, items, draws = batches(), iter([1.0] * 3 + [float(k) for k in range(90)]), random.Random(0)

    def next_batch(x: hm.Tensor) -> hm.Tensor:
        return x + next(loader)

    def loop(x: hm.Tensor) -> hm.Tensor:
        for k in items:
            return x * k
        return x

    pairs = enumerate(map(float, range(10)))

    def enumerated(x: hm.Tensor) -> hm.Tensor:
        k, v = next(pairs)
        return x * k + v

    data = iter(hm.data.DataLoader(hm.data.TensorDataset(hm.asarray(np.arange(40.0, dtype="f4"))), batch_size=1))

    def data_loader(x: hm.Tensor) -> hm.Tensor:
        return x + next(data)[0]

    def numpy_random(x: hm.Tensor) -> hm.Tensor:
        return x * np.random.rand()

    def numpy_generator(x: hm.Tensor) -> hm.Tensor:
        return x + GENERATOR.standard_normal(1)

    def python_random(x: hm.Tensor) -> hm.Tensor:
        return x * random.uniform(0, 1)

    def python_generator(x: hm.Tensor) -> hm.Tensor:
        return x * draws.randint(0, 1 << 40)

    return {fn.__name__: fn for fn in locals().values() if callable(fn) and hasattr(fn, "__code__")}


@pytest.mark.parametrize("name", uses())
def test_hidden_state_makes_calls_eager(name: str, trace: Any) -> None:
    def results(style: Any) -> Any:
        np.random.seed(3), random.seed(3)
        global GENERATOR
        GENERATOR = np.random.default_rng(0)
        f = style(uses()[name])
        return [f(hm.tensor([2.0])).tolist() for _ in range(4)]

    expected = results(lambda fn: fn)
    with pytest.warns(UserWarning, match="run eagerly") as found:
        assert results(trace) == expected
    assert len(found) == 1 and expected[-1] != expected[-2]


def test_clocks(trace: Any) -> None:
    f = trace(lambda x: (x, time.perf_counter()))
    with pytest.warns(UserWarning, match=r"perf_counter \(test_trace_hidden.py.*run eagerly"):
        first = f(hm.ones((1,)))[1]
    assert f(hm.ones((1,)))[1] > first and sys.getprofile() is None


def test_output_is_said_to_come_once(trace: Any, capsys: pytest.CaptureFixture[str]) -> None:
    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        print("here")
        LOG.info("there")
        return x + 1

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(4):
            f(hm.ones((1,)))
    assert capsys.readouterr().out == "here\n" and f.cache_info().compiles == 1
    (message,) = [str(w.message) for w in found]
    assert 'print("here")' in message and 'LOG.info("there")' in message and "only when it is traced" in message


def test_code_that_could_print_but_does_not(trace: Any) -> None:
    def f(x: hm.Tensor, verbose: bool) -> hm.Tensor:
        if verbose:
            print(x)
        return x + 1

    assert trace(f)(hm.ones((1,)), False).item() == 2


def test_strict() -> None:
    with pytest.raises(hm.TraceError, match=r"changes np.random"):
        hm.trace(lambda x: x * np.random.rand(), strict=True)(hm.ones((1,)))
    with pytest.raises(hm.TraceError, match="print"):
        hm.trace(lambda x: print("") or x, strict=True)(hm.ones((1,)))

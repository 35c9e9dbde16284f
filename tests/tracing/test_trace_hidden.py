"""What a trace does that no guard sees is said with its line; what its results depend on makes the calls eager."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import sys
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any
from unittest import TestCase

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
    first = f(hm.ones((1,)))[1]
    assert f(hm.ones((1,)))[1] > first and sys.getprofile() is None


def test_every_call_prints_its_own_values(trace: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: hm.Tensor, scale: float) -> hm.Tensor:
        kept = [x]
        print("before", x, kept, scale * 2, sep=" | ")
        y = x * scale
        x += 1
        kept.append(y)
        print(y.sum().item(), y > 2, end=".\n")
        LOG.debug("not said")
        return y

    def printed(f: Any) -> str:
        for k in range(4):
            f(hm.tensor([1.0, 2.0 * k]), k + 0.5)
        return capsys.readouterr().out

    f = trace(program)
    assert printed(f) == printed(program) and f.cache_info().compiles == 1


def test_what_is_printed_elsewhere_is_printed_by_eager_calls(trace: Any, capsys: pytest.CaptureFixture[str]) -> None:
    w = hm.tensor([1.0], requires_grad=True)
    text = io.StringIO()

    def redirected(x: hm.Tensor) -> hm.Tensor:
        with contextlib.redirect_stdout(text):
            print("inside", x)
        return x + 1

    def recorded(x: hm.Tensor) -> hm.Tensor:
        print(w * x)
        return x + 1

    def made(x: hm.Tensor) -> hm.Tensor:
        print(x, file=io.StringIO())
        return x + 1

    def written(x: hm.Tensor) -> hm.Tensor:
        text.write("line\n")
        return x + 1

    def thing(x: hm.Tensor) -> hm.Tensor:
        print("object", Fraction(1, 3))
        return x + 1

    for program in (redirected, recorded, made, written, thing):
        seen = []
        for f in (program, trace(program)):
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                for k in range(3):
                    f(hm.tensor([float(k)]))
            seen.append((capsys.readouterr().out, text.getvalue()))
            text.seek(0), text.truncate()
        assert seen[0] == seen[1] and ["run eagerly" in str(w.message) for w in found] == [True], program


def test_prints_into_files_stay_compiled(trace: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text, other = io.StringIO(), io.StringIO()

    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        print("loss", x.sum().item(), file=text)
        print(x, file=sys.stderr, end="!")
        return x + 1

    for k in range(4):
        with contextlib.redirect_stderr(other) if k == 3 else contextlib.nullcontext():
            f(hm.tensor([float(k)]))
    assert text.getvalue() == "".join(f"loss {float(k)}\n" for k in range(4))
    assert capsys.readouterr().err == "".join(f"Tensor([{k}.])!" for k in range(3))
    assert other.getvalue() == "Tensor([3.])!" and f.cache_info().compiles == 1


def test_loggers_that_are_silent_stay_compiled(trace: Any) -> None:
    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        LOG.info("now %s", "here")
        return x + 1 if LOG.isEnabledFor(logging.INFO) else x

    assert [f(hm.ones(1)).item() for _ in range(3)] == [1.0] * 3 and f.cache_info().compiles == 1
    logs = TestCase().assertLogs("test", logging.INFO)
    with logs as found:
        assert [f(hm.ones(1)).item() for _ in range(3)] == [2.0] * 3
    assert [record.getMessage() for record in found.records] == ["now here"] * 3


class Trainer:
    def __init__(self) -> None:
        self.n, self.log = 0, logging.LoggerAdapter(LOG)

    def step(self, x: hm.Tensor) -> hm.Tensor:
        self.n += 1
        LOG.info("loss %.3f of %s at %d", x.sum().item(), x, self.n)
        LOG.debug("not %s", x)
        self.log.warning(f"mean {x.mean().item():.2f}", extra={"mean": x.mean().item()})
        return x * self.n


def test_loggers_say_in_every_call_what_they_do_eagerly(trace: Any) -> None:
    def run(style: Any) -> Any:
        trainer = Trainer()
        call = style(trainer.step)
        with TestCase().assertLogs("test", logging.INFO) as found:
            for k in range(4):
                call(hm.tensor([1.0, k]))
            LOG.setLevel(logging.ERROR)
            call(hm.tensor([5.0, 5.0]))
        said = [(r.levelname, r.funcName, r.lineno, r.getMessage()) for r in found.records]
        return (said, [r.mean for r in found.records if hasattr(r, "mean")]), call

    expected, (said, traced) = run(lambda fn: fn)[0], run(trace)
    assert said == expected and len(said[0]) == 8
    assert traced.cache_info().compiles == 2  # and one for the other level


def test_messages_with_exceptions_run_eagerly(trace: Any) -> None:
    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        try:
            raise KeyError(1)
        except KeyError:
            LOG.exception("no")
        return x * 2

    with TestCase().assertLogs("test") as found, pytest.warns(UserWarning, match="logs in a way .*run eagerly"):
        assert [f(hm.ones(1)).item() for _ in range(3)] == [2.0] * 3
    assert [record.exc_info is not None for record in found.records] == [True] * 3


def test_strict_calls_a_message_an_error() -> None:
    @hm.trace(strict=True)
    def f(x: hm.Tensor) -> hm.Tensor:
        LOG.error("here")
        return x

    with TestCase().assertNoLogs("test"), pytest.raises(hm.TraceError, match=r"f logs .*strict=True"):
        f(hm.ones(1))


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

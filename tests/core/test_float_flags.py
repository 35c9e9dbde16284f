"""Division by zero, overflow and nan are values: no warning and no exception, and NumPy's own policy is left alone."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest

import hybridml as hm

INF = float("inf")


STRICT: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "warnings are errors": lambda: warnings.catch_warnings(action="error"),
    "np.seterr(all='raise')": lambda: np.errstate(all="raise"),
}


@pytest.mark.parametrize("strict", STRICT)
def test_no_policy_reaches_an_operation(strict: str) -> None:
    x, w = hm.tensor([0.0, 1.0, -1.0, INF, 1e38]), hm.tensor([0.0, 1.0], requires_grad=True)
    with STRICT[strict]():
        assert (x / 0).tolist()[1:4] == [INF, -INF, INF]
        assert (x * 1e38)[4].item() == INF and (x * 1e300)[1].item() == INF
        assert (x - x).sum().isnan().item() and x.sum().item() == INF and x.mean().item() == INF
        assert hm.zeros((0, 2)).mean(0).isnan().all().item()
        assert hm.log(x)[0].item() == -INF and x.var().isnan().item()
        assert (hm.tensor([1, 2]) // hm.tensor([0, 1])).tolist() == [0, 2]
        assert hm.concat([x, x / 0]).shape == (10,)
        assert hm.asarray(1e300, dtype=hm.float32).item() == INF and hm.full((), 1e300, dtype=hm.float32).item() == INF
        assert hm.tensor([1e300], dtype=hm.float64).astype(hm.float32).item() == INF
        (hm.log(w) / w).sum().backward()
        assert w.grad is not None and w.grad[1].item() == 1
        assert hm.trace(lambda x: x / 0)(x).tolist()[1:4] == [INF, -INF, INF]


@pytest.mark.parametrize("strict", STRICT)
def test_updates_in_place_are_done_once(strict: str) -> None:
    with STRICT[strict]():
        y = hm.tensor([1.0, 2.0])
        y /= hm.zeros((2,))
        assert y.tolist() == [INF, INF]
        for take in (lambda t: (t[1:], t[:-1]), lambda t: (t[:-1], t[1:]), lambda t: (t, t.flip(0))):  # shared memory
            expected = np.array([0.0, 1.0, 2.0, 0.0], np.float32)
            t = hm.asarray(expected.copy())
            a, b = take(t)
            with np.errstate(all="ignore"):
                want = np.asarray(a).copy() / np.asarray(b).copy()
            a /= b
            np.testing.assert_array_equal(np.asarray(a), want)


def test_policy_of_the_user() -> None:
    """In a fresh process, in the importing thread and another: our operations are silent, NumPy warns as it did."""
    program = """
import threading, warnings
import numpy as np
import hybridml as hm
def work():
    hm.log(hm.zeros((2,))) / 0 - hm.tensor([1.0, 0.0]).sum() / 0
    x = hm.tensor([0.0, 3e38]); x *= hm.tensor([1.0, 3e38]); (x - x).mean(); x.var(); hm.functional.softmax(x, -1)
    hm.add(np.array([1e308]), np.array([1e308])); x * 1e300
    print(np.geterr()["divide"])
work()
thread = threading.Thread(target=work); thread.start(); thread.join()
np.log(np.zeros(1))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["warn", "warn"]
    assert done.stderr.count("RuntimeWarning") == 1 and "divide by zero encountered in log" in done.stderr

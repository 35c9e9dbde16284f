"""`debug_nans` names what made a NaN, and nothing of the call is left behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm

BAD = np.array([[1.0, 2.0], [3.0, -4.0]], np.float32)


def test_eager_operations() -> None:
    x = hm.tensor(BAD)
    with hm.debug_nans():
        assert np.isfinite(np.asarray(hm.log(x * x))).all()
        with pytest.raises(FloatingPointError, match=r"sqrt made nan at index \(1, 1\), of -4.0\n.*hm.sqrt\(x\)"):
            hm.sqrt(x)
        with pytest.raises(FloatingPointError, match=r"subtract made nan at index .*, of inf, inf"):
            _ = (x / 0 * x) - x / 0 * x
        with pytest.raises(FloatingPointError, match=r"divide made nan .*\n.*hm.zeros"):  # operators, too
            _ = (x * 0) / hm.zeros((2, 2))
        nan = hm.tensor([float("nan")])
        assert np.isnan(np.asarray(nan * 2 + hm.full((1,), float("nan")))).all()  # NaN from NaN
    assert np.isnan(np.asarray(hm.sqrt(x))[1, 1])


def test_rows_that_are_made_inside_of_the_block() -> None:
    made = hm.kernel(lambda x: x / x)
    with hm.debug_nans(), pytest.raises(FloatingPointError, match="kernel made nan at index"):
        made(hm.zeros(2))
    assert bool(hm.isnan(made(hm.zeros(2))).all())


def test_infinities_and_bfloat16() -> None:
    with hm.debug_nans():
        hm.exp(hm.tensor([1000.0]))
    with hm.debug_nans(infinities=True), pytest.raises(FloatingPointError, match="exp made inf at index"):
        hm.exp(hm.tensor([1000.0]))
    with hm.debug_nans(), pytest.raises(FloatingPointError, match="log made nan"):
        hm.log(hm.tensor([-1.0]).astype("bfloat16"))


def test_switch() -> None:
    hm.debug_nans(True)
    try:
        with pytest.raises(FloatingPointError):
            hm.log(hm.tensor([-1.0]))
    finally:
        hm.debug_nans(False)
    hm.log(hm.tensor([-1.0]))


@pytest.mark.parametrize("backend", ["llvm", "interpret"])
def test_traced_calls_commit_nothing(backend: str) -> None:
    w, log = hm.tensor([1.0, 4.0]), []

    @hm.trace(backend=backend)
    def step(x: hm.Tensor) -> Any:
        w.sub_(x)
        if w.sum() > 1000:
            return w
        root = hm.sqrt(w)
        log.append(1)
        w.add_(root)
        return root

    for _ in range(6):
        step(hm.tensor([0.0, 0.0]))
    kept, logged = np.asarray(w).copy(), len(log)
    with hm.debug_nans():
        with pytest.raises(FloatingPointError, match=r"sqrt made nan at index \(1,\).*\n.*root = hm.sqrt\(w\)"):
            step(hm.tensor([0.0, 1e4]))
        np.testing.assert_array_equal(np.asarray(w), kept)
        assert len(log) == logged
        step(hm.tensor([0.0, 0.0]))
    assert len(log) == logged + 1 and (np.asarray(w) != kept).all()


def test_gradients() -> None:
    x = hm.tensor([0.0, 1.0], requires_grad=True)
    loss = (hm.sqrt(x) * 0).sum()
    with hm.debug_nans(), pytest.raises(FloatingPointError, match="made nan"):
        loss.backward()
    traced = hm.trace(lambda x: (hm.sqrt(x) * 0).sum())(x)
    with hm.debug_nans(), pytest.raises(FloatingPointError, match="made nan"):
        traced.backward()


def test_composites_name_the_line_that_calls_them() -> None:
    good, bad = hm.ones((2, 3)), hm.full((2, 3), float("inf"))
    hm.functional.softmax(good, 1)
    with hm.debug_nans(), pytest.raises(FloatingPointError, match=r"hm.functional.softmax.bad, 1."):
        hm.functional.softmax(bad, 1)


def test_a_nan_of_the_compiled_program_alone_is_told() -> None:
    """Code that left a part of its result unwritten once made a network's loss NaN, and nothing named it."""
    traced = hm.trace(lambda x: x * 2)
    traced(hm.ones(3))
    path = traced.last_path
    assert path is not None
    path.program._executable = lambda arrays: [np.array([2, np.nan, 2], np.float32)]
    with hm.debug_nans(), pytest.raises(FloatingPointError, match=r"made nan at index \(1,\) of its result 0, which"):
        traced(hm.ones(3))

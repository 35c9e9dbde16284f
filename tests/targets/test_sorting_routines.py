"""Orders, searches and positions by routines of our own: NumPy's stable results, whatever the number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.ops.routines import of_lines, of_searches
from hybridml_compiler.runtime import host_callback
from hybridml_compiler.targets.cpu.eager import routines

Array = np.ndarray[Any, Any]
DTYPES = "?bBhHiIlLqQfd"
SHAPES = (((1,), 0), ((2,), 0), ((33,), 0), ((1000,), 0), ((5000,), 0), ((70_001,), 0), ((7, 33), 0), ((3, 50, 4), 1))
INT64 = np.dtype(np.int64)


@pytest.fixture(params=[1, 2])
def threads(request: Any) -> Iterator[int]:
    before = hm.get_num_threads()
    hm.set_num_threads(request.param)
    yield request.param
    hm.set_num_threads(before)


def _numbers(shape: tuple[int, ...], dtype: str, wide: bool) -> Array:
    """Numbers of a wide range, or with many ties; floats with nans and zeros of both signs."""
    rng = np.random.default_rng(len(shape))
    if dtype not in "fd":
        return (rng.integers(-(2**62), 2**62, shape) if wide else rng.integers(0, 99, shape)).astype(dtype)
    x = (rng.standard_normal(shape) * 1e3 if wide else rng.integers(-9, 9, shape)).astype(dtype)
    for value in (np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0):
        x[rng.random(shape) < 0.04] = value
    return x


def _ordered(name: str, x: Array, axis: int, descending: bool) -> Array:
    params = {"axis": axis, "descending": descending}
    found = routines.run(name, [x], of_lines(x, **params), [(x.shape, x.dtype if name == "sort" else INT64)])
    assert found is not None
    return found[0]


def _check_orders(x: Array, axis: int) -> None:
    for descending in (False, True):
        back = (..., slice(None, None, -1 if descending else 1), *(slice(None),) * (x.ndim - 1 - axis))
        order = np.argsort(x[back], axis, kind="stable")[back]
        order = x.shape[axis] - 1 - order if descending else order
        np.testing.assert_array_equal(_ordered("argsort", x, axis, descending), order)
        found = _ordered("sort", x, axis, descending)
        assert found.tobytes() == np.take_along_axis(x, order, axis).tobytes()  # signs of zeros and nans, too


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wide", [False, True])
def test_orders_are_stable(dtype: str, wide: bool, threads: int) -> None:
    for shape, axis in SHAPES:
        _check_orders(_numbers(shape, dtype, wide), axis)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "u8"])
def test_keys_with_the_same_first_bits(dtype: str, threads: int) -> None:
    """A number far away leaves all others the same first bits: insertion gives up, and all bits have passes."""
    rng = np.random.default_rng(0)
    for n in (32, 33, 4000, 70_000):
        near = 1 + rng.integers(0, 2**20, n) * (1 if dtype[0] != "f" else 2.0**-23 if dtype == "f4" else 2.0**-50)
        x = near.astype(dtype)
        x[n // 2] = 1e30 if dtype[0] == "f" else 2**62
        for line in (x, np.sort(x), np.sort(x)[::-1].copy()):
            _check_orders(line, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_searches(dtype: str, threads: int) -> None:
    for n in (1, 2, 7, 100, 5000):
        row = np.sort(_numbers((n,), dtype, False))
        for size in (1, 7, 8, 13, 1100):
            values = _numbers((size,), dtype, False)
            for right in (False, True):
                sizes = of_searches(row, values, right)
                found = routines.run("searchsorted", [row, values], sizes, [((size,), INT64)])
                assert found is not None
                np.testing.assert_array_equal(found[0], np.searchsorted(row, values, "right" if right else "left"))


def test_positions(threads: int) -> None:
    rng = np.random.default_rng(0)
    for n in (1, 7, 8, 9, 1000, 200_003):
        for share in (0.01, 0.5, 1.0):
            mask = rng.random(n) < share
            mask[0] = True
            count = int(mask.sum())
            found = routines.run("true_positions", [mask], (1, n, count), [((count,), INT64)])
            assert found is not None
            np.testing.assert_array_equal(found[0], np.flatnonzero(mask))
            assert routines.run("true_positions", [mask], (1, n, count + 1), [((count + 1,), INT64)]) is None


def _searched(x: Any) -> Any:
    return hm.searchsorted(x[0], x), hm.digitize(x, x[0]), hm.histogram(x, 10)[0]


@pytest.mark.parametrize(
    "fn", [hm.argsort, hm.unique_inverse, lambda x: hm.sort(x > 0), _searched, lambda x: hm.nonzero(x > 0), hm.mode]
)
def test_programs_do_not_call_python(fn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(text: bytes) -> Any:
        raise AssertionError(f"called NumPy: {text.decode()}")

    monkeypatch.setattr(host_callback, "_parse", parse)
    monkeypatch.setattr(host_callback, "_runs", {})
    x = hm.asarray(np.sort(_numbers((20, 70), "d", True), axis=1)[:, :50].copy())
    eager, program = fn(x), hm.trace(fn)
    for a, b in zip(hm.tree_leaves(eager), hm.tree_leaves(program(x)), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))

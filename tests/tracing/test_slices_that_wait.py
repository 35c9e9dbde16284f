"""Slices of NumPy arrays whose ends a loop has counted: one program for all counts, with the views of eager code."""

from __future__ import annotations

import warnings
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridml as hm

_COUNT = """def program(x):
    out, rows, k, m = np.zeros(len(x)), np.zeros((len(x), 2)), 0, 0
    for i in range(len(x)):
        if x[i] > 0.5:
            out[k] = x[i]
            rows[i, 1] = 2 * x[i]
            k += 1
        elif x[i] > 0.375:
            m += 1
    """
_READS = ["out[:k]", "out[k:]", "out[m:k]", "out[-m:]", "out[: k + 1] * 2", "out[k:m]", "rows[:k]", "rows[1, : k - 8]",
          "rows[m:k, 1] + out[m:k]", "np.sqrt(out[:k])", "out[: k - 30]", "out[:k].sum()", "rows[:k].max(axis=1)",
          "rows[: k + 1].sum(axis=0)", "out[m : k + 1].max()", "out[:k] > 0.75", "k", "out",
          "out[:k].copy()"]  # fmt: skip
_LINES = ["v = out[:k]", "v[:1] = 7", "out[1] = 5.0", "v += 1", "out[:k] *= 2", "v = v[1:]", "rows[:k, 0] = v[0]",
          "v = v * out[:k] if len(v) == k else v", "v.sort()", "v = rows[:k, 1]"]  # fmt: skip


def _told(results: tuple[Any, ...]) -> Any:
    """A description of results, and which of them share memory."""
    arrays = [np.asarray(r) for r in results]
    shared = [np.shares_memory(a, b) for a, b in combinations([r for r in results if type(r) is np.ndarray], 2)]
    return [(type(r), a.dtype, a.shape, a.strides, a.tolist()) for r, a in zip(results, arrays, strict=True)], shared


def _program(lines: list[str], reads: list[str]) -> Any:
    space: dict[str, Any] = {"np": np}
    source = _COUNT + "\n    ".join(["v = out[:2]", *lines, f"return {', '.join(reads)}, v"])
    exec(compile(source, "<program>", "exec"), space)
    return space["program"]


def _data(seed: int) -> hm.Tensor:
    """Eighths, whose sums are exact in any order."""
    return hm.tensor(np.random.default_rng(seed).integers(0, 9, 24) / 8)


def _same(program: Any, traced: Any) -> None:
    for seed in (0, 1, 2, 0):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert _told(traced(_data(seed))) == _told(program(_data(seed)))


def _is_one(program: Any) -> None:
    traced = hm.trace(program)
    _same(program, traced)
    assert traced.cache_info().compiles == 1, traced.retraces


@settings(max_examples=40)
@given(st.lists(st.sampled_from(_LINES), max_size=3), st.lists(st.sampled_from(_READS), min_size=1, max_size=3))
def test_programs_are_those_of_eager_code(lines: list[str], reads: list[str]) -> None:
    program = _program(lines, reads)
    _same(program, hm.trace(program))


@pytest.mark.parametrize("read", _READS)
def test_one_program_serves_all_counts(read: str) -> None:
    _is_one(_program([], [read]))


def test_a_selection_that_is_returned_serves_all_counts() -> None:
    def program(x: Any) -> Any:
        out = np.zeros(len(x))
        out[:] = x
        return out[out > 0.5], np.sqrt(out[out < 0.25]), out[:2]

    _is_one(program)


@pytest.mark.parametrize("name", ["max", "min"])
def test_an_extreme_of_no_elements_is_the_error_of_numpy(name: str) -> None:
    program = _program([], [f"out[k + 30 :].{name}()"])
    with pytest.raises(ValueError, match="zero-size array"):
        hm.trace(program)(_data(0))


def test_a_slice_that_a_loop_goes_on_with_is_an_array() -> None:
    def program(x: Any) -> Any:
        out, k = np.zeros(len(x)), 0
        for i in range(len(x)):
            if x[i] > 0.5:
                out[k] = x[i]
                k += 1
        v = out[:k]
        for i in range(len(x)):
            v = v * 0.5 + x[i]
        return v, v.mean()

    _same(program, hm.trace(program))

"""Elements whose places data decides, of two axes and of NumPy arrays that a program makes, are updated where they
are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.graph.text import parse_graph
from hybridml_compiler.graph.updates import updates_carry
from hybridml_compiler.ops.control import LOOP
from tests.support.loops import both

N = 40


def of(*arrays: Any) -> list[Callable[[], hm.Tensor]]:
    return [lambda a=a: hm.tensor(np.array(a)) for a in arrays]


def places(most: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, most, N)


VALUES = np.random.default_rng(1).random(N)


# -- two axes


def histogram(h: Any, a: Any, b: Any) -> Any:
    for i in range(len(a)):
        h[a[i], b[i]] += 1
    return h


def windows(h: Any, a: Any, b: Any) -> Any:
    for i in range(len(a)):
        for j in range(16):
            h[a[i], b[j]] += h[b[j], a[i]] * 0.5
            h[b[j], a[j]] -= 1
    return h, h.sum(axis=0)


def three_axes(h: Any, a: Any, b: Any) -> Any:
    for i in range(len(a)):
        h[a[i], b[i], a[i]] = h[b[i], a[i], b[i]] + h[0].sum()
    return h


@pytest.mark.parametrize(("program", "loops"), [(histogram, 1), (windows, 2), (three_axes, 1)])
def test_arrays_of_several_axes_are_updated_in_place(program: Callable[..., Any], loops: int) -> None:
    h = np.random.default_rng(2).integers(0, 9, (6, 6, 6) if program is three_axes else (6, 6)).astype("f8")
    traced = both(program, *of(h, places(6), places(6, 1)))
    assert loops_in_place(parse_graph(traced._shown().program.executable.ir)) == loops


def loops_in_place(graph: Any) -> int:
    """The number of loops in one another whose carry stays where it is."""
    nodes = [n for n in graph.nodes() if n.op is LOOP]
    assert all(updates_carry(n.params["body"].graph, n.params, n.params["result"]) for n in nodes)
    return sum(1 + loops_in_place(n.params["body"].graph) for n in nodes)


def test_a_place_out_of_range_is_eager_codes_error() -> None:
    a = places(6)
    a[-1] = 6
    for fn in (histogram, hm.trace(histogram)):
        h = hm.zeros((6, 6), dtype="float64")
        with pytest.raises(IndexError, match="index 6 is out of range"):
            fn(h, hm.tensor(a), hm.tensor(places(6, 1)))


# -- NumPy arrays that the program makes


def compacted(x: Any) -> Any:
    out = np.zeros(N)
    k = 0
    for i in range(N):
        if x[i] > 0.5:
            out[k] = x[i]
            k += 1
    return out[:k]


def with_count(x: Any) -> Any:
    out, where, k = np.zeros(N), np.zeros(N, np.int64), 0
    for i in range(N):
        if x[i] > 0.5:
            out[k] = x[i] * 2
            where[k] = i
            k += 1
    return out, where, k


def rows(x: Any) -> Any:
    out, k = np.zeros((N, 3)), 0
    for i in range(N):
        out[k] = out[k] + x[i]
        out[k, 1] = out[k, 0] + 1
        if x[i] > 0.5:
            k += 1
    return out, k


def runs(x: Any) -> Any:
    sizes, k = np.zeros(N, np.int64), 0
    for i in range(1, N):
        if (x[i] > 0.5) != (x[i - 1] > 0.5):
            k += 1
        sizes[k] += 1
    return sizes, k


@pytest.mark.parametrize("program", [compacted, with_count, rows, runs])
def test_counts_of_data_are_places_of_numpy_arrays(program: Callable[..., Any]) -> None:
    traced = both(program, *of(VALUES))
    assert " loop(" in traced.ir and len(traced.ir.splitlines()) < 100


def test_a_count_beyond_an_array_is_numpys_error() -> None:
    def written(x: Any) -> Any:
        out, k = np.zeros(4), 0
        for i in range(N):
            if x[i] > 0.5:
                out[k] = x[i]
                k += 1
        return out

    for fn in (written, hm.trace(written)):
        with pytest.raises(IndexError, match="index 4 is out of bounds"):
            fn(hm.tensor(VALUES))


def shifted(x: Any) -> Any:
    last, before = np.zeros(N), np.ones(N)
    for i in range(N):
        t = last[i]
        last[i] = x[i]
        before[i] = t
    return last, before


def rebound(x: Any) -> Any:
    last, before = np.zeros(N), np.ones(N)
    for i in range(N):
        t = u = last[i]
        t += x[i]
        last[i] = t
        before[i] = u
    return last, before


def at_counts(x: Any) -> Any:
    last, k = np.zeros(N), 0
    for i in range(N):
        t = last[k]
        last[k] = x[i]
        last[k] += t
        if x[i] > 0.5:
            k += 1
    return last, k


@pytest.mark.parametrize("program", [shifted, rebound, at_counts])
def test_elements_of_numpy_arrays_are_no_views(program: Callable[..., Any]) -> None:
    assert " loop(" in both(program, *of(VALUES)).ir


# -- rows of NumPy arrays, which are views


def in_rows(a: Any) -> Any:
    h = np.zeros((6, 6))
    for i in range(N):
        h[a[i]][a[i]] += 2
        h[int(a[i])][1:] += h[a[0]].sum()
    return h


def in_rows_of_ints(a: Any) -> Any:
    h = np.zeros((6, 6), np.int64)
    for i in range(N):
        h[a[i]][1] += i
    return h


def one_row(a: Any) -> Any:
    h = np.zeros((6, 6))
    row, column = h[a[0]], h[:, a[1]]
    row += a[:6]
    h[a[2]] = 7
    column *= 2
    np.add(h[a[3], 2:], 1, out=h[a[3], 2:])
    return h, row, column, h[a[4], a[4]]


def read_after(a: Any) -> Any:
    h = np.zeros((N, 6))
    for i in range(N):
        h[i] = a[:6] + i
        row = h[a[i]]
    return h, row


@pytest.mark.parametrize("program", [in_rows, in_rows_of_ints, one_row, read_after])
def test_rows_of_numpy_arrays_at_places_of_data_are_views(program: Callable[..., Any]) -> None:
    traced = both(program, *of(places(6)))
    assert (" loop(" in traced.ir) == (program in (in_rows, in_rows_of_ints))


def test_an_update_of_a_row_asks_for_no_place() -> None:
    def fn(a: Any, x: Any) -> Any:
        h = np.zeros((6, 6))
        h[a[0]] += x[:6]
        h[a[1], 1:] -= 1.0
        return h

    traced = hm.trace(fn)
    for seed in range(3):
        r = np.random.default_rng(seed)
        a, x = hm.asarray(r.integers(0, 6, 4)), hm.asarray(r.random(8))
        np.testing.assert_array_equal(traced(a, x), fn(a, x))
    assert traced.cache_info().compiles == 1

"""Loops over arrays, and lists that grow: captured by one step, they compute what Python does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.loops import assert_same, both, data, is_loop

# -- over arrays


def rows(a: hm.Tensor, b: hm.Tensor) -> Any:
    s = hm.zeros(a.shape[1], dtype=a.dtype)
    for row in a:
        s = s * 0.5 + row
    return s, row


def numbered(a: hm.Tensor, b: hm.Tensor) -> Any:
    s = hm.zeros(a.shape[1], dtype=a.dtype)
    for k, row in enumerate(a, 3):
        s += row * k
        b[k - 3] = s
    return s, k


def side_by_side(a: hm.Tensor, b: hm.Tensor) -> Any:
    s = hm.zeros(a.shape[1], dtype=a.dtype)
    for x, y, k in zip(a[:-1], b[1:], range(1, 100), strict=False):
        s = s + x * y * k
    return s, x, k


def numbered_pairs(a: hm.Tensor, b: hm.Tensor) -> Any:
    s = hm.zeros(a.shape[1], dtype=a.dtype)
    for k, (x, y) in enumerate(zip(a, b, strict=False)):
        s = s + x * y * k
    return s


def from_the_end(a: hm.Tensor, b: hm.Tensor) -> Any:
    for k in reversed(range(a.shape[0] - 1)):
        b[k] = b[k + 1] * 0.5 + a[k]
    return k


def updated(a: hm.Tensor, b: hm.Tensor) -> Any:
    for row in a:
        row *= 2
        row[0] = row[1]
        b += row


def elements(a: hm.Tensor, b: hm.Tensor) -> Any:
    s = 0.0
    for v in a[:, 0]:
        s = s * 0.5 + v
    for v in b[:, 1]:
        if v > 0.5:
            s = s + v
    return s


def rebound(a: hm.Tensor, b: hm.Tensor) -> Any:
    for row in a:
        a = a * 0.5
        b = b + row
    return a, b


def place_of_the_largest(a: hm.Tensor, b: hm.Tensor) -> Any:
    best, k = a[0, 0], 0
    for i in range(1, 20):
        if a[i, 0] > best:
            best, k = a[i, 0] * 1, i
    least, at = b[0, 0] * 1, -1
    for i, v in enumerate(b[:, 0]):
        if v < least:
            least, at = v * 1, i + 2
    return k, best, at, at + 1, least


OVER = [place_of_the_largest, rows, numbered, side_by_side, numbered_pairs, from_the_end, updated, elements, rebound]


@pytest.mark.parametrize("fn", OVER, ids=lambda f: f.__name__)
def test_loops_over_arrays(fn: Callable[..., Any]) -> None:
    traced = both(fn, data(20, 4), data(20, 4))
    assert is_loop(traced)


def test_arrays_of_numpy_are_gone_over() -> None:
    def fn(x: hm.Tensor) -> Any:
        table = np.zeros((20, 3))
        table[:, 1] = x
        s = 0.0
        for k, row in enumerate(table):
            s = s + row[1] * k
        return s

    both(fn, data(20))


def test_objects_of_python_stay_what_they_are() -> None:
    def fn(x: hm.Tensor) -> Any:
        pairs = zip(x, range(20), strict=False)
        first = next(pairs)
        names = dict(zip("ab", (1, 2), strict=True))
        turned = list(reversed([1, 2]))
        return first, len(list(pairs)), names, turned, list(enumerate("ab")), isinstance(pairs, zip)

    both(fn, data(20))


# -- lists


def collected(x: hm.Tensor) -> Any:
    out = [x]
    for k in range(20):
        x = x * 0.5 + k
        out.append(x)
    return hm.stack(out), out[3], len(out)


def sums(x: hm.Tensor) -> Any:
    found, numbers, kinds = [], [], []
    for k in range(20):
        found.append((x * k).sum().item())
        numbers.append(2 * k)
        kinds.append("a")
        found.append(x[0] * k)
    return found, numbers, kinds


def rows_of_rows(x: hm.Tensor) -> Any:
    out = []
    for i in range(16):
        for j in range(17):
            out.append(x[1] * (i + 2.0 * j))
    return hm.stack(out).sum(0), len(out)


@pytest.mark.parametrize("fn", [collected, sums, rows_of_rows], ids=lambda f: f.__name__)
def test_lists_grow(fn: Callable[..., Any]) -> None:
    assert is_loop(both(fn, data(3)))


def an_item_is_the_variable(x: hm.Tensor) -> Any:
    out = []
    for _ in range(20):
        x = x * 0.5
        out.append(x)
    x += 1
    return out[-1], x, out[-1] is x


def items_are_one(x: hm.Tensor) -> Any:
    out = []
    for _ in range(20):
        x += 1
        out.append(x)
    return out[0], out[19], x


def items_are_views(x: hm.Tensor) -> Any:
    out = []
    for k in range(20):
        out.append(x[k])
    x += 1
    return out[0], out[19]


def an_item_is_read(x: hm.Tensor) -> Any:
    out = [x]
    for _ in range(20):
        out.append(out[-1] * 0.5)
    return out


def read_by_way_of_a_container(x: hm.Tensor) -> Any:
    out: list[hm.Tensor] = []
    around, s = {"out": out}, 0 * x
    for k in range(20):
        out.append(x * k)
        s = s + x * len(around["out"])
    return s


def read_by_a_function(x: hm.Tensor) -> Any:
    out: list[hm.Tensor] = []
    length, s = lambda: len(out), 0 * x
    for k in range(20):
        out.append(x * k)
        s = s + x * length()
    return s


def read_by_a_default(x: hm.Tensor) -> Any:
    out: list[hm.Tensor] = []
    length, s = lambda of=out: len(of), 0 * x
    for k in range(20):
        out.append(x * k)
        s = s + x * length()
    return s


def known_by_another_name(x: hm.Tensor) -> Any:
    out = []
    same = out
    for _ in range(20):
        out.append(x * len(same))
    return out


def data_decides(x: hm.Tensor) -> Any:
    out = []
    for k in range(20):
        if x[k] > 0.5:
            out.append(x * k)
    return out


def until(x: hm.Tensor) -> Any:
    out = []
    for _ in range(20):
        x = x * 0.5
        if x.max() < 0.1:
            break
        out.append(x)
    return out


def numbers_in_turn(x: hm.Tensor) -> Any:
    evens, rest = [], []
    for k in range(20):
        if k % 2 == 0:
            evens.append(k)
        else:
            rest.append("rest")
    return evens, rest


def data_decides_numbers(x: hm.Tensor) -> Any:
    bits, found, first, rest = [], [], [], []
    for k in range(20):
        bits.append(1 if x[k] > 0.5 else 0)
        if x[k] > 0.5:
            first.append(k)
        else:
            rest.append(None)
        if x[k] < 0.3:
            continue
        found.append(k)
    return bits, found, first, rest


def data_decides_an_update(x: hm.Tensor) -> Any:
    y, out = hm.zeros(20, dtype="float64"), []
    for k in range(20):
        if x[k] > 0.5:
            y[k] = x[k]
            out.append(k)
    return y, out


def while_numbers_are_left(x: hm.Tensor) -> Any:
    out, k = [], 0
    while k < 20:
        if x[k] > 0.5:
            out.append(k)
        k += 1
    return out


def while_data_goes_on(x: hm.Tensor) -> Any:
    out, k = [], 0
    while x[k] < 0.9:
        out.append(k)
        k += 1
    return out


def by_its_method(x: hm.Tensor) -> Any:
    out = []
    add = out.append
    for k in range(20):
        add(k)
        x[k] = k
    return out


def by_its_method_partly(x: hm.Tensor) -> Any:
    out = []
    add = partial(out.insert, 0)
    for k in range(20):
        add(k)
    return out


class Items(list[int]):
    pass


def in_a_list_of_another_class(x: hm.Tensor) -> Any:
    out = Items()
    for k in range(20):
        out.append(k)
    return list(out)


LISTS = [an_item_is_the_variable, items_are_one, items_are_views, an_item_is_read, known_by_another_name,
    read_by_way_of_a_container, read_by_a_function, read_by_a_default, data_decides,
    until, numbers_in_turn, data_decides_numbers, data_decides_an_update, while_numbers_are_left, while_data_goes_on,
    by_its_method, by_its_method_partly, in_a_list_of_another_class]  # fmt: skip


@pytest.mark.parametrize("fn", LISTS, ids=lambda f: f.__name__)
def test_lists_that_are_used_otherwise(fn: Callable[..., Any]) -> None:
    both(fn, data(20))


# -- lists in loops that data ends


def simulated(u: hm.Tensor, t_end: float) -> Any:
    t, kept, times, steps = 0.0, [], [], []
    while t < t_end:
        u = u + 0.1 * hm.sin(u)
        kept.append(u)
        times.append(t)
        steps.append(len(u))
        t += 0.1
    return kept, times, steps, u


def errors(u: hm.Tensor, t_end: float) -> Any:
    found, n, err = [], 0, 1.0
    while err > 0.01 * t_end and n < 40:
        v = u.copy()
        u[1:-1] = 0.5 * (v[:-2] + v[2:])
        err = abs(u - v).max()
        n += 1
        found.append((n, err)[1])
        found.append(n)
    return found, n


def left_before(u: hm.Tensor, t_end: float) -> Any:
    found = [1.0]
    for k in range(20):
        u = u * 0.7
        if u.max() < 0.1 * t_end:
            break
        found.append(u.max().item() * k)
        found.append(k)
    return found, u, k


def left_after(u: hm.Tensor, t_end: float) -> Any:
    found = []
    for _ in range(20):
        u = u * 0.7
        found.append(u)
        if u.max() < 0.1 * t_end:
            return found, "small"
    return found, u


def found_on_the_way(u: hm.Tensor, t_end: float) -> Any:
    lo, hi, middles = 0.0, 4.0, []
    while hi - lo > 1e-6:
        mid = 0.5 * (lo + hi)
        middles.append(mid)
        if mid * mid < t_end:
            lo = mid
        else:
            hi = mid
    return middles, mid


def items_of_branches(u: hm.Tensor, t_end: float) -> Any:
    found = []
    for k in range(20):
        x = u[k] * 2 if u[k] > 0.3 * t_end else u[0] - k
        found.append(x)
    return found, x


ENDED = [simulated, errors, left_before, left_after, found_on_the_way, items_of_branches]


@pytest.mark.parametrize("fn", ENDED, ids=lambda f: f.__name__)
def test_lists_grow_in_loops_that_data_ends(fn: Callable[..., Any]) -> None:
    traced = hm.trace(fn)
    for t_end in (1.0, 0.35, 1e-9, 1.0, 7.0):
        given, same = data(20)(), data(20)()
        assert_same((fn(given, t_end), given), (traced(same, t_end), same))
        assert " loop(" in traced.ir and len(traced.ir.splitlines()) < 600


def changed_after(u: hm.Tensor, t_end: float) -> Any:
    found = []
    while u.max() > t_end:
        u = u * 0.7
        found.append(u)
        if u.min() < 0.01:
            break
    u += 1
    return found, u


def changed_in_a_branch(u: hm.Tensor, t_end: float) -> Any:
    found = []
    for k in range(20):
        if u[k] > t_end:
            u = u * 0.9
        found.append(u * 1)
    found[-1] += 1
    return found, u


def changed_where_it_was_chosen(u: hm.Tensor, t_end: float) -> Any:
    found, v = [], u * 1
    for k in range(20):
        v = v * 0.9
        x = v if u[k] > t_end else u * 2.0
        found.append(x)
    v += 1
    return found, v


def grown_in_a_loop(u: hm.Tensor, t_end: float) -> Any:
    found = []
    for k in range(20):
        x = u * k
        while x.max() > t_end:
            x = x * 0.5
            found.append(x.max())
    return found


@pytest.mark.parametrize(
    "fn", [changed_after, changed_in_a_branch, changed_where_it_was_chosen, grown_in_a_loop], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("t_end", [0.5, 0.2])
def test_items_of_such_lists_are_pythons(fn: Callable[..., Any], t_end: float) -> None:
    both(fn, data(20), lambda: t_end)


def test_gradients_of_lists_in_loops_that_data_ends() -> None:
    def fn(u: hm.Tensor, t_end: float) -> Any:
        kept, _, _, last = simulated(u, t_end)
        return sum(k.sum() for k in kept) + (last**2).sum()

    for t_end in (1.0, 0.5):
        u = data(5)()
        np.testing.assert_allclose(
            np.asarray(hm.trace(hm.grad(fn))(u, t_end)), np.asarray(hm.grad(fn)(u, t_end)), rtol=1e-12
        )

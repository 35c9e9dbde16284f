"""Lengths of selections, and their elements by number: one program for all counts. Random programs of them are in
test_random_selections.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm


def _places(x: Any) -> Any:
    i = np.where(x > 0.5)[0]
    if len(i) == 0:
        return -1, i
    return i[0] * 1, i[-1] * 1, len(i), i


def _searched(x: Any) -> Any:
    total = 0.0
    for k in np.nonzero(x > 0.5)[0]:
        total = total * 0.5 + x[k]
    return total


def _gone_over(x: Any) -> Any:
    b, t = x[x > 0.5], 0.0
    for i in range(1, len(b)):
        t = t + abs(b[i] - b[i - 1])
    for row in x.reshape(-1, 2)[x[::2] > 0.25]:
        t = t + row[0] * row[1]
    return t


def _until_none(x: Any) -> Any:
    n = 0
    while len(x[x > 0.125]) > 0:
        x = x * 0.5
        n += 1
    return n


def _of_numpy(x: Any) -> Any:
    z, k = np.zeros(len(x)), np.zeros(len(x), dtype=int)
    z[:] = x
    k[:] = x * 8
    b = z[z > 0.5]
    return len(b), b.size, b[-1], np.unique(k), len(np.unique(k)), np.nonzero(k)[0], z[k > 3].shape


PROGRAMS: dict[str, tuple[Callable[..., Any], int]] = {  # and how many programs they are
    "means": (lambda x: x[x > 0.5].sum() / len(x[x > 0.5]), 1),
    "shapes": (lambda x: (x[x > 0.5].size + 0.5, x[x > 0.5].shape, x[x > 0.5].shape[0] // 2), 1),
    "calls": (lambda x: x[x > 0.5].size(0), 3),
    "returned": (lambda x: (x[x > 0.5], x.reshape(-1, 2)[x[::2] > 0.5], len(x[x < 0.5])), 1),
    "unique": (lambda x: (hm.unique(hm.floor(x * 4)), len(hm.unique(hm.floor(x * 4)))), 1),
    "pairs": (lambda x: [i.sum() / len(i) for i in hm.nonzero(x.reshape(-1, 2) > 0.5)], 1),
    "places": (_places, 2),
    "searched": (_searched, 1),
    "gone over": (_gone_over, 1),
    "until none": (_until_none, 1),
    "of NumPy": (_of_numpy, 1),
    "in steps": (lambda x: sum(len(x[x > 0.05 * k]) for k in range(20)), 1),
}


def _told(values: Any) -> Any:
    leaves = hm.tree_leaves(values)
    return [(type(v), np.asarray(v).dtype, np.asarray(v).tolist()) for v in leaves]


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_for_all_counts(name: str) -> None:
    program, programs = PROGRAMS[name]
    traced = hm.trace(program)
    for seed in range(5):
        x = hm.tensor(np.random.default_rng(seed).integers(0, 9, 24) / 8) * (0 if seed == 3 and name == "places" else 1)
        assert _told(traced(x)) == _told(program(x))
    assert traced.cache_info().compiles == programs


@pytest.mark.parametrize("k", [0, 3, -1, -4])
def test_an_element_that_is_not_there_is_eager_codes_error(k: int) -> None:
    def element(x: Any) -> Any:
        return x[x > 0][k]

    traced, x = hm.trace(element), hm.tensor([3.0, -1.0, 5.0, 2.0, 4.0])
    assert traced(x).item() == element(x).item()
    for few in (hm.tensor([-1.0] * 5), hm.tensor([1.0, 1.0, -1.0, -1.0, 2.0])):
        found = []
        for f in (element, traced):
            try:
                found.append(f(few).item())
            except hm.OutOfBoundsError as error:
                found.append(str(error).splitlines()[0])
        assert found[0] == found[1]


def test_a_selection_that_is_returned_twice_is_one_tensor() -> None:
    first, second = hm.trace(lambda x: (y := x[x > 0], y))(hm.tensor([1.0, -1.0, 2.0]))
    assert first is second


def _element_of_column(x: Any) -> Any:
    b = x.reshape(-1, 2)[x[::2] > 0]
    e = b[:, 0][0]
    b *= 2
    return b, e


def _elements_of_column(x: Any) -> Any:
    b = x.reshape(-1, 2)[x[::2] > 0]
    for e in b[:, 0]:
        e += 1
    return b, b[0]


VIEWS: list[Callable[[Any], Any]] = [
    lambda x: (b := x[x > 0], b[0]),
    lambda x: ((b := x[x > 0])[1], b[1]),
    lambda x: ((b := x.reshape(-1, 2)[x[::2] > 0])[0], b),
    lambda x: ((i := hm.nonzero(x > 0)[0]), i[-1]),
    _element_of_column,
    _elements_of_column,
]


@pytest.mark.parametrize("program", VIEWS)
def test_elements_are_views_of_the_selection(program: Callable[[Any], Any]) -> None:
    def updated(f: Callable[[Any], Any]) -> Any:
        results = f(hm.tensor([3.0, 1.0, -1.0, 5.0, 2.0, 4.0]))
        results[1].add_(10)
        return _told(results)

    assert updated(hm.trace(program)) == updated(program)


def test_an_element_that_nobody_reads_is_checked() -> None:
    def unused(x: Any) -> Any:
        e = x[x > 0][0]
        e += 1
        return x

    traced = hm.trace(unused)
    assert traced(hm.tensor([-1.0, 3.0])).tolist() == [-1.0, 3.0]
    with pytest.raises(hm.OutOfBoundsError):
        traced(hm.tensor([-1.0, -3.0]))


def test_selections_with_a_history_keep_it() -> None:
    x = hm.tensor([1.0, -1.0, 2.0], requires_grad=True)
    y = hm.trace(lambda x: x[x > 0] * len(x[x > 0]))(x)
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 0.0, 2.0]


def test_an_update_of_a_row_that_a_loop_goes_over_is_one_of_the_selection() -> None:
    def doubled(x: Any) -> Any:
        b = x[x[:, 0] > 0.25]
        for row in b:
            row *= 2
        return b

    traced = hm.trace(doubled)
    for seed in range(2):
        x = hm.tensor(np.random.default_rng(seed).random((20, 2)))
        assert traced(x).tolist() == doubled(x).tolist()


def test_elements_that_a_step_asks_for_have_lengths_asked_for() -> None:
    def sorted_in_steps(x: Any) -> Any:
        b, total = x[x > 0.5], 0.0
        for _ in range(len(b)):
            total = total + hm.sort(b)[0]
        return total

    x = hm.tensor(np.random.default_rng(0).random(40))
    traced = hm.trace(sorted_in_steps)
    assert traced(x).item() == sorted_in_steps(x).item() and traced.ir.count(" loop(") == 1


def _chosen_by_steps(x: Any) -> Any:
    b, c, total = x[x > 0.5], np.where(x > 0.5)[0], 0.0
    for k in range(20):
        total = total * 0.5 + len(b) + b.sum() + len(c)
        b, c = x[x > x[k]], np.where(x > x[k])[0]
    return total


def _chosen_again(x: Any) -> Any:
    b = x[x > 0.25]
    for _ in range(20):
        b = b[b > 0.5]
    return b


@pytest.mark.parametrize("program", [_chosen_by_steps, _chosen_again])
def test_steps_that_go_on_with_what_others_chose_are_apart(program: Callable[[Any], Any]) -> None:
    x, traced = hm.tensor(np.random.default_rng(0).integers(0, 9, 24) / 8), hm.trace(program)
    assert _told(traced(x)) == _told(program(x)) and " loop(" not in traced.ir

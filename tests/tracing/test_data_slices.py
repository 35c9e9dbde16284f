"""Slices whose ends data decides are native loops in the steps of loops, with eager code's views, sizes and errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.specialize.errors import TraceWarning
from tests.support.loops import assert_same, both

N, M = 20, 60
ENDS = np.sort(np.random.default_rng(0).integers(0, M, N + 1))
FILLED = np.linspace(0, M, N + 1).astype(int)


def arrays(ends: Any = ENDS) -> list[Callable[[], hm.Tensor]]:
    """Whole numbers, so that the order of a sum does not matter; ends of segments; and results."""
    x = np.random.default_rng(1).integers(-9, 9, M).astype("f8")
    return [lambda a=a: hm.tensor(np.array(a)) for a in (x, ends, np.zeros(N))]


# -- reductions


def sums(x: Any, p: Any, y: Any) -> Any:
    for i in range(N):
        y[i] = x[p[i] : p[i + 1]].sum() - x[: p[i]].sum() + x[p[i + 1] :].sum()
    return y


def means(x: Any, p: Any, y: Any) -> Any:
    for i in range(N):
        y[i] = x[p[i] : p[i + 1]].mean()
    return y


def extremes(x: Any, p: Any, y: Any) -> Any:
    for i in range(N):
        s = x[p[i] : p[i + 1]]
        y[i] = s.max() - s.min() + s.argmax()
    return y


def deviations(x: Any, p: Any, y: Any) -> Any:
    for i in range(N):
        s = x[p[i] : p[i + 1]]
        y[i] = (s * s).sum() * s.shape[0] - s.sum() ** 2
    return y


def products(x: Any, p: Any, y: Any) -> Any:
    a = x.reshape(6, 10)
    for i in range(N):
        n = p[i] % 9
        y[i] = (a[2:, n:] @ a[i % 6, n:]).sum() + x[:n] @ x[:n]
    return y


def looked_up(x: Any, p: Any, y: Any) -> Any:
    columns = hm.arange(M) * 7 % N
    for i in range(N):
        y[i] = (x[p[i] : p[i + 1]] * y[columns[p[i] : p[i + 1]]]).sum() + 1
    return y


def windows(x: Any, p: Any, y: Any) -> Any:
    for i in range(N):
        k = p[i] // 2
        y[i] = x[k : k + 3].sum() + x[k + 1 : k + 4] @ x[k : k + 3]
    return y


def of_ints(x: Any, p: Any, y: Any) -> Any:
    for i in range(N):
        n, m = int(p[i]), int(x[i]) + 9
        y[i] = x[n : n + 2].sum() + x[: -m - 1].sum() + x[-m - 1 :].sum()
    return y


# -- updates


def prefixes(x: Any, p: Any, y: Any) -> Any:
    for i in range(N):
        x[: p[i]] += 1
        x[p[i] :] *= -1
    return x


def packed(x: Any, p: Any, y: Any) -> Any:
    best = np.zeros(30)
    for i in range(N):
        w = int(p[i]) + 1
        best[w:] = np.maximum(best[w:], best[:-w] + x[i])
    return best


def centred(x: Any, p: Any, y: Any) -> Any:
    for i in range(N):
        s = x[p[i] : p[i + 1]]
        s -= s.sum()
        s *= 2
        y[i] = x[p[i] : p[i + 1]].sum()  # what has been written is seen
        x[p[i]] = 3
        y[i] += s.sum()
    return x, y


def reversed_parts(x: Any, p: Any, y: Any) -> Any:
    for i in range(N):
        x[p[i] : p[i + 1]] = x[p[i] : p[i + 1]][::-1]
    return x


def of_branches(x: Any, p: Any, y: Any) -> Any:
    for i in range(N):
        if x[i] > 0:
            y[i] = x[p[i] : p[i + 1]].sum()
            x[p[i] : p[i + 1]] += 1
        elif p[i] > 20:
            x[-p[i] :] = x[p[i] // 2]
    return x, y


def inner(x: Any, p: Any, y: Any) -> Any:
    for i in range(N):
        s = x[p[i] : p[i + 1]]
        for j in range(17):
            s += x[j]
            y[i] += x[p[j] : p[i]].sum()
    return x, y


def to_shorter(x: Any, p: Any, y: Any) -> Any:
    for i in range(N):
        n = p[i] % 13
        y[:n] = x[:n]
        x[n : n + 3] = y[n]
    return x, y


def of_sizes(x: Any, p: Any, y: Any) -> Any:
    for i in range(N):
        n = x[p[i] : p[i + 1]].sum().astype(int) % 10
        y[:n] += x[:n]
    return y


def of_counts(x: Any, p: Any, y: Any) -> Any:
    n = 1
    for i in range(N):
        if x[i] > 0:
            y[:n] += x[i]
            n += 1
    return y, n


def of_arrays(x: Any, p: Any, y: Any) -> Any:
    a = np.zeros(M)
    for i in range(N):
        a[p[i] : p[i + 1]] += 1
        a[: p[i]] *= 0.5
    return a


def rows(x: Any, p: Any, y: Any) -> Any:
    a = x.reshape(6, 10)
    for i in range(N):
        n = p[i] % 6
        a[n:, 2] = 5
        a[1, : n + 1] += a[:n].sum() + a[:n, None, 1:3].sum()
    return a


LOOPS = [
    sums, deviations, products, looked_up, windows, of_ints, prefixes, packed, reversed_parts, of_branches, inner,
    to_shorter, of_sizes, of_counts, of_arrays, rows,
]  # fmt: skip


@pytest.mark.parametrize(
    ("program", "ends"), [*((of, ENDS) for of in LOOPS), *((of, FILLED) for of in (means, extremes, centred))]
)
def test_slices_of_data_are_loops(program: Callable[..., Any], ends: Any) -> None:
    traced = both(program, *arrays(ends))
    assert " loop(" in traced.ir and len(traced.ir.splitlines()) < 250 and traced.cache_info().compiles == 1


def outcome(fn: Callable[..., Any], args: list[Any]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fn(*args)
    except (IndexError, ValueError) as error:
        return type(error).__name__, str(error).split("\n")[0]


@pytest.mark.parametrize("program", [*LOOPS, means, extremes])
def test_any_ends_are_those_of_eager_code(program: Callable[..., Any]) -> None:
    """Ends that are turned, below 0, and beyond the array; empty slices; sizes that are not equal."""
    traced = hm.trace(program)
    rng = np.random.default_rng(3)
    for low, high, is_sorted in ((0, M, 1), (0, M, 0), (0, 2 * M, 1), (-5, 5, 0), (0, 1, 1), (-2 * M, 2 * M, 0)):
        ends = rng.integers(low, high, N + 1)
        makes = arrays(np.sort(ends) if is_sorted else ends)
        given, same = ([make() for make in makes] for _ in range(2))
        assert_same((outcome(program, given), given), (outcome(traced, same), same))


def test_one_program_serves_all_data() -> None:
    traced = hm.trace(sums)
    for seed in range(4):
        makes = arrays(np.random.default_rng(seed).integers(0, 2 * M, N + 1))
        given, same = ([make() for make in makes] for _ in range(2))
        assert_same((sums(*given), given), (traced(*same), same))
    assert traced.cache_info().compiles == 1


@pytest.mark.parametrize("in_list", [False, True])
def test_gradients_are_those_of_eager_code(in_list: bool) -> None:
    def loss(x: Any, p: Any) -> Any:
        s, found = hm.tensor(1.0, dtype="float64"), []
        for i in range(N):
            s = s + (x[p[i] : p[i + 1]] ** 2).sum()
        for i in range(N if in_list else 0):
            found.append((x[p[i] : p[i + 1]] ** 2).sum())
        return hm.stack(found).sum() if in_list else s

    x, p = (make() for make in arrays()[:2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        found = hm.trace(hm.grad(loss))(x, p)
        around = hm.grad(hm.trace(loss))(x, p)
    expected = hm.grad(loss)(x, p).numpy()
    np.testing.assert_array_equal(found.numpy(), expected)
    np.testing.assert_array_equal(around.numpy(), expected)


def kept(x: Any, p: Any, y: Any) -> Any:
    for i in range(N):
        s = x[: p[i]]
    return s


def appended(x: Any, p: Any, y: Any) -> Any:
    found = []
    for i in range(N):
        found.append(x[: p[i]])
    return found


def of_pieces(x: Any, p: Any, y: Any) -> Any:
    s = hm.zeros(0, dtype="float64")
    for i in range(N):
        s = hm.concat([s, x[p[i] : p[i + 1]]])
    return s


def by_size(x: Any, p: Any, y: Any) -> Any:
    for i in range(N):
        s = x[p[i] : p[i + 1]]
        if len(s) > 3:
            y[i] = s[2]
    return y


@pytest.mark.parametrize("program", [kept, appended, of_pieces, by_size])
def test_what_no_loop_can_have_is_step_by_step(program: Callable[..., Any]) -> None:
    both(program, *arrays(), calls=2)


def test_steps_that_threads_may_share_are_in_order() -> None:
    def shared(x: Any, p: Any, y: Any) -> Any:
        for i in hm.prange(N):
            x[p[i] : p[i] + 4] += x[p[i + 1] : p[i + 1] + 4].sum()
            y[i] = x[: p[i]].sum()
        return x, y

    both(shared, *arrays())


# -- ints of data


def counted(x: Any, p: Any, y: Any) -> Any:
    for i in range(M):
        y[int(abs(x[i])) % N] += 1
        y[int(x[i] * 0.7) % N] += int(p[i % N]) // 2
    return y


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "u1"])
def test_int_of_an_element_is_an_int_of_the_program(dtype: str) -> None:
    x, *others = arrays()
    traced = both(counted, lambda: x().astype(np.dtype(dtype).name), *others)
    assert " loop(" in traced.ir and traced.cache_info().compiles == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, 2.0**60, -1.0])
def test_ints_that_no_program_has_are_pythons(value: float) -> None:
    def last_digit(x: Any, y: Any) -> Any:
        for i in range(N):
            y[int(x[i]) % 10] += 1
        return y

    traced = hm.trace(last_digit)
    for at in (0, N - 1):
        x = np.arange(float(N))
        x[at] = value
        given, same = ([hm.tensor(x.copy()), hm.zeros(N)] for _ in range(2))
        try:
            expected: Any = last_digit(*given)
        except (ValueError, OverflowError) as error:
            with pytest.raises(type(error)):
                traced(*same)
            continue
        assert_same(expected, traced(*same))


def test_sizes_of_a_call_and_numbers_of_steps_are_told_apart() -> None:
    def prefix(x: Any, n: int) -> Any:
        for i in range(N):
            x[:n] += i
        return x

    traced = hm.trace(prefix)
    for n in (3, 5, 9, 11, 19):
        x = np.arange(float(M))
        assert_same(prefix(hm.tensor(x), n), traced(hm.tensor(x), n))
    assert " loop(" in traced.ir


def test_a_loop_that_comes_again_with_narrower_arrays_learns_once() -> None:
    def carved(image: Any) -> Any:
        for _ in range(4):
            h, w = image.shape
            place, new = np.argmin(image[:, 0]), np.zeros((h, w - 1))
            for i in range(h):
                new[i, :place] = image[i, :place]
                new[i, place:] = image[i, place + 1 :]
            image = new
        return image

    traced = hm.trace(carved)
    for seed in range(3):
        image = np.random.default_rng(seed).random((20, 24))
        np.testing.assert_array_equal(traced(hm.asarray(image)), carved(hm.asarray(image)))
    assert " loop(" in traced.ir

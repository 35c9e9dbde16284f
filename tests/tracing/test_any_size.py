"""Loops of any number of steps, and NumPy arrays of any size: one program for all of them, with eager values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.specialize import often
from hybridml.tracing.specialize.errors import TraceWarning

from .programs_of_any_size import PROGRAMS


def clone(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return x.copy(order="K")
    return x.clone() if isinstance(x, hm.Tensor) else x


def leaves(x: Any) -> Iterator[Any]:
    for value in x if isinstance(x, tuple | list) else (x,):
        yield from leaves(value) if isinstance(value, tuple | list) else (value,)


def assert_same(got: Any, wanted: Any) -> None:
    for a, b in zip(leaves(got), leaves(wanted), strict=True):
        assert type(a) is type(b)
        if isinstance(b, np.ndarray | np.generic | hm.Tensor):
            assert (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides)
            rtol = 1e-6 if b.dtype == np.float32 else 1e-12  # sums may have another order
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol)
        else:
            assert a is b is None or a == pytest.approx(b, rel=1e-12)


def memory(values: Any, given: tuple[Any, ...]) -> list[list[bool]]:
    """Which results have memory of an argument, or of one another."""
    arrays = [x for x in leaves(values) if isinstance(x, np.ndarray)]
    return [[np.shares_memory(x, y) for y in (*arrays, *leaves(given)) if isinstance(y, np.ndarray)] for x in arrays]


def assert_as_eager(name: str, sizes: Sequence[int]) -> Any:
    """Calls a program with arguments of these sizes, traced and eagerly; the traced function."""
    fn, make = PROGRAMS[name]
    traced, rng = hm.trace(fn), np.random.default_rng(0)
    for n in sizes:
        args = make(rng, n)
        mine, eager = (tuple(map(clone, args)) for _ in range(2))
        got, wanted = traced(*mine), fn(*eager)
        assert_same(got, wanted)
        assert_same(mine, eager)
        assert memory(got, mine) == memory(wanted, eager)
    return traced


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_for_all_sizes(name: str) -> None:
    traced = assert_as_eager(name, (18, 25, 31, 40, 22, 31))
    assert any("for any" in reason for reason in traced.retraces)
    assert traced.cache_info().compiles <= 3  # an int is a length from its third value on


@pytest.mark.parametrize("name", PROGRAMS)
def test_small_sizes(name: str) -> None:
    assert_as_eager(name, (18, 25, 31, 4, 3, 2))


@pytest.mark.parametrize("transform", ["grad", "vmap"])
def test_transforms_of_loops_of_any_length(transform: str) -> None:
    def steps(w: Any, n: int) -> Any:
        for _ in range(n):
            w = hm.tanh(w * 1.1)
        return w.sum()

    fns = {"grad": lambda w, n: hm.grad(steps)(w, n), "vmap": lambda w, n: hm.vmap(lambda v: steps(v, n))(w)}
    fn, w = fns[transform], hm.tensor([0.3, 0.2], dtype="float64")
    traced = hm.trace(fn)
    for n in (20, 24, 28, 33):
        np.testing.assert_array_equal(traced(w, n).numpy(), fn(w, n).numpy())
    assert traced.cache_info().compiles == 3


def test_gradients_of_loops_over_sequences_of_any_length() -> None:
    def loss(w: Any, x: Any) -> Any:
        s = w * 0.0
        for i in range(len(x)):
            s = s * 0.5 + hm.tanh(w * x[i])
        return s.sum()

    traced = hm.trace(loss)
    for n in (20, 24, 28, 33):
        x, found = hm.tensor(np.linspace(0, 1, n)), []
        for fn in (traced, loss):
            w = hm.tensor([0.3, 0.2], dtype="float64", requires_grad=True)
            fn(w, x).backward()
            found.append(w.grad.numpy())
        np.testing.assert_array_equal(*found)
    assert traced.cache_info().compiles == 2


def test_what_needs_numpys_own_array_is_a_program_for_each_size() -> None:
    traced = hm.trace(lambda x: np.sort(x) + 1)
    for n in (5, 6, 7):
        x = np.random.default_rng(0).random(n)
        np.testing.assert_array_equal(traced(x), np.sort(x) + 1)
    assert traced.cache_info().compiles == 3
    assert "stays as it is: np.sort is asked for at" in traced.retraces[0]


def test_an_except_of_the_function_does_not_see_that_a_trace_begins_anew() -> None:
    @hm.trace
    def f(x: Any) -> Any:
        try:
            return np.sort(x)
        except Exception:
            return None

    for n in (5, 6, 7):
        np.testing.assert_array_equal(f(np.arange(n)[::-1].copy()), np.arange(n))


def test_read_only_arguments_are_not_written_to() -> None:
    @hm.trace
    def f(x: Any) -> Any:
        x[1:] = 2.0 * x[:-1]

    for n in (5, 6, 7, 8):
        f(np.ones(n))
    x = np.ones(8)
    x.flags.writeable = False
    with pytest.warns(TraceWarning, match="read-only"), pytest.raises(ValueError, match="read-only"):
        f(x)
    np.testing.assert_array_equal(x, np.ones(8))


def test_an_array_that_each_step_copies_is_no_argument() -> None:
    @hm.trace
    def f(u: Any) -> Any:
        for _ in range(20):
            u = u.copy()
        return u

    x = np.ones(4)
    assert not np.shares_memory(f(x), x) and not np.shares_memory(f(x), x)


def test_calls_of_one_size_that_come_often_have_a_program_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(often, "_TIMES", 0.0)
    traced = hm.trace(lambda x: x * 2 + 1)
    for n in (5, 6):
        traced(np.ones(n))
    assert traced.cache_info().compiles == 2
    for n in (7, 8):
        for _ in range(40):
            np.testing.assert_array_equal(traced(np.ones(n)), np.full(n, 3.0))
    assert traced.cache_info().compiles == 4
    assert traced.retraces[1:] == ("<lambda> retraced: such calls come often: a program for their sizes alone",) * 2
    traced(np.ones(9))
    assert traced.cache_info().compiles == 4


def test_a_step_that_may_not_end_is_python_s() -> None:
    @hm.trace
    def collatz(n: int) -> Any:
        steps = np.zeros(n, dtype=np.int64)
        for i in range(1, n):
            k, count = i, 0
            while k != 1:
                k = k // 2 if k % 2 == 0 else 3 * k + 1
                count += 1
            steps[i] = count
        return steps

    assert collatz(20).tolist() == [0, 0, 1, 7, 2, 5, 8, 16, 3, 19, 6, 14, 9, 9, 17, 17, 4, 12, 20, 20]


def test_two_ints_of_which_one_is_a_size() -> None:
    def f(x: Any, n: int, m: int) -> Any:
        _ = (n - m) / n
        for j in range(m):
            x[:, j] = x[:, j] * j
        return np.zeros(m)

    traced = hm.trace(f)
    for n, m in [(12, 12), (17, 5), (21, 30), (8, 9), (12, 12), (3, 1)]:
        x, y = np.ones((n, m)), np.ones((n, m))
        assert_same(traced(x, n, m), f(y, n, m))
        assert_same(x, y)


def test_strides_of_views_that_are_returned() -> None:
    def f(x: Any) -> Any:
        y, z = np.zeros(len(x)), np.zeros((len(x), 4))
        return y[None], y.reshape(-1, 1), z[:, 1], y[::2], y[1:], z[::2].T

    traced = hm.trace(f)
    for n in (30, 31, 2, 3, 5):
        assert_same(traced(np.ones(n)), f(np.ones(n)))


def test_errors_are_numpys() -> None:
    @hm.trace
    def element(x: Any) -> Any:
        try:
            return x[25]
        except IndexError as error:
            return str(error)

    for n in (20, 30, 41, 23):
        found = element(np.ones(n))
        assert found == 1.0 or found == f"index 25 is out of bounds for axis 0 with size {n}"

    @hm.trace
    def multiples(n: int) -> Any:
        found = np.zeros(n, np.int32)
        for i in range(n):
            found[i] = i * -100000000
        return found

    for n in (20, 21, 19):
        assert multiples(n)[-1] == -100000000 * (n - 1)
    with pytest.raises(OverflowError, match="out of bounds for int32"):
        multiples(30)


def test_an_argument_whose_axes_lie_turned_is_updated_in_a_loop() -> None:
    def f(x: Any) -> None:
        for _ in range(18):
            x[1:-1] = x[1:-1] + 0.1 * (x[2:] - 2 * x[1:-1] + x[:-2])

    traced = hm.trace(f)
    for n in (12, 15, 9):
        x = np.random.default_rng(0).random((n, n)).T
        y = x.copy("K")
        traced(x)
        f(y)
        np.testing.assert_allclose(x, y, rtol=1e-12)


def test_an_array_of_arguments() -> None:
    traced = hm.trace(lambda x, y: np.array([x, y]))
    for n in (20, 30, 1):
        assert traced(np.ones(n), np.ones(n)).shape == (2, n)


@pytest.mark.filterwarnings("ignore::hybridml.tracing.specialize.errors.TraceWarning")  # such calls may be eager
def test_elements_in_another_order() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        return y.ravel("F"), y.flatten("F")

    traced = hm.trace(f)
    for n in (3, 4, 5):
        x = np.random.default_rng(0).random((n, 3))
        assert_same(traced(x), f(x))


def test_a_value_that_the_dtype_does_not_have() -> None:
    @hm.trace
    def filled(n: int) -> Any:
        try:
            return np.full(n, 300, np.uint8)
        except OverflowError as error:
            return str(error)

    for n in (3, 4, 5, 6):
        assert filled(n) == "Python integer 300 out of bounds for uint8"

"""Objects that a step of a loop makes and drops: containers, functions, and the variables that these have of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hybridml as hm
from tests.support.loops import both, data, is_loop, number

N = 20


def tuples(x: Any) -> Any:
    s = 0.0
    for i in range(N):
        row = (x[i], i)
        s = s + row[0] * row[1]
    return s


def dictionaries(x: Any) -> Any:
    s = 0.0
    for i in range(N):
        of = {"a": x[i], "b": [i, 2]}
        of["b"].append(x[i])
        s = s + of["a"] * of["b"][0] + of["b"][-1]
    return s


def functions(x: Any) -> Any:
    s = 0.0
    for i in range(N):

        def f(y: Any, t: float) -> Any:
            return y * t + x[0]

        s = s + f(x[i], 0.5 * i)
    return s


def of_its_number(x: Any) -> Any:
    s = 0.0
    for i in range(N):
        f = lambda y: y * i + s  # noqa: B023, E731
        s = s + f(x[i]) * 0.001
    return s, i


def sums(x: Any) -> Any:
    s = 0.0
    for i in range(N):
        s = s + sum(x[i] * x[k] for k in range(3)) + sum([x[i] * x[k] * j for k in range(2) for j in range(2)])
    return s


def whiles(x: Any) -> Any:
    s, i = 0.0, 0
    while i < N:
        s = s + sum([x[i] * x[k] for k in range(3)])
        i += 1
    return s, i


def targets(x: Any) -> Any:
    s = 0.0
    for i, (p, q) in enumerate(zip(x, x)):  # noqa: B905
        s = s + sum(p * q * i for _ in range(2))
    return s, i


def before_assigned(x: Any) -> Any:
    s, t = 0.0, 0.0
    for i in range(N):
        f = lambda: t  # noqa: B023, E731
        if x[i] > 0.3:
            t = x[i] * 2.0
        s = s + f()
    return s


def read_after(x: Any) -> Any:
    s, t = 0.0, 1.0
    f = lambda: t  # noqa: E731
    for i in range(N):
        t = t + x[i]
        s = s + x[i]
    return s + f()


def same_name(x: Any) -> Any:
    k, s = 0, 0.0
    for i in range(N):
        t = [x[k] * 2.0 for k in range(3)]
        s = s + k * t[0] + x[i]
        k = k + 1
    return s, k


def to_where(x: Any, tol: float) -> Any:
    n = 0
    while x.max() > tol:
        pair = [x * 0.5, 0.1]
        scale = lambda y: y * pair[1]  # noqa: B023, E731
        x = pair[0] + scale(x)
        n += 1
    return x, n


LOOPS = [tuples, dictionaries, functions, of_its_number, sums, whiles, targets, before_assigned, read_after, same_name]


@pytest.mark.parametrize("program", LOOPS)
def test_what_a_step_makes_and_drops_is_of_one_loop(program: Callable[..., Any]) -> None:
    assert is_loop(both(program, data(N)))


def test_of_loops_that_data_ends() -> None:
    assert is_loop(both(to_where, data(5), number(1e-3)))


def variable_of_a_function(x: Any) -> Any:
    s, t = 0.0, 1.0
    f = lambda: t  # noqa: E731
    for i in range(N):
        t = t + x[i]
        s = s + f()
    return s


def assigned_after_a_function_reads_it(x: Any) -> Any:
    s, t = 0.0, x[0]
    f = lambda: t  # noqa: E731
    for i in range(N):
        s = s + f()
        t = x[i]
    return s


def of_a_container_that_is_read_later(x: Any) -> Any:
    s, t = 0.0, x[0]
    fs = {"f": lambda: t}
    for i in range(N):
        s = s + fs["f"]()
        t = x[i]
    return s


def in_a_container(x: Any) -> Any:
    s, t, fs = 0.0, 1.0, {"f": lambda: t}
    for i in range(N):
        t = t + x[i]
        s = s + fs["f"]()
    return s


def kept(x: Any) -> Any:
    s, fs = 0.0, []
    for i in range(N):
        fs.append(lambda: i)  # noqa: B023
        s = s + x[i]
    return s + sum(f() for f in fs)


def kept_in_a_dictionary(x: Any) -> Any:
    s, of = 0.0, dict[str, Any]()
    for i in range(N):
        of["f"] = lambda: i  # noqa: B023
        s = s + x[i] * of["f"]()
    return s, of["f"]()


def of_the_step_before(x: Any) -> Any:
    s, f = x[0], None
    for i in range(N):
        if f is not None:
            s = s + f()
        f = lambda: x[i]  # noqa: B023, E731
    return s


def assigned_by_a_function(x: Any) -> Any:
    s, t = 0.0, 1.0
    for i in range(N):

        def bump() -> None:
            nonlocal t
            t = t + 1.0

        bump()
        t = t * 0.5
        s = s + x[i] * t
    return s, t


def counted_by_a_function(x: Any) -> Any:
    s, n = 0.0, 0
    for i in range(N):

        def f(y: Any) -> Any:
            nonlocal n
            n += 1
            return y * 2.0

        s = s + f(x[i])
    return s, n


def container_of_an_object(x: Any) -> Any:
    class Kept:
        rows: list[int]

    of, s = Kept(), 0.0
    of.rows = []
    for i in range(N):
        rows = of.rows
        rows.append(i)
        s = s + x[i]
    return s, of.rows


def iterated(x: Any) -> Any:
    numbers, s = iter(range(100)), 0.0
    for i in range(N):
        row = (numbers, i)
        s = s + x[i] * next(row[0])
    return s


@pytest.mark.parametrize(
    "program",
    [
        variable_of_a_function, assigned_after_a_function_reads_it, of_a_container_that_is_read_later, in_a_container,
        kept, kept_in_a_dictionary, of_the_step_before, assigned_by_a_function,
        counted_by_a_function, container_of_an_object, iterated,
    ],
)  # fmt: skip
def test_what_a_later_step_sees_is_as_in_eager_code(program: Callable[..., Any]) -> None:
    both(program, data(N))


def test_functions_of_a_step_are_differentiated() -> None:
    def loss(x: Any) -> Any:
        s = 0.0
        for i in range(N):
            f = lambda y: y * y * i  # noqa: B023, E731
            s = s + f(x[i])
        return s

    x = hm.ones((N,), requires_grad=True)
    traced = hm.trace(hm.grad(loss))
    for _ in range(2):
        assert traced(x).tolist() == hm.grad(loss)(x).tolist()
    assert " loop(" in traced.ir

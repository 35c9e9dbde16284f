"""Python's loops over a `range`, captured as loops of the graph: what they compute is what Python computes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import hybridml as hm
from hybridml.tracing.capture import tracer
from hybridml.tracing.specialize.errors import TraceWarning
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.text import parse_graph, print_graph
from tests.support.examples import examples
from tests.support.loops import assert_same, data
from tests.support.random_loops import M, N, program_of

# -- loops that are one loop of the graph


def integers(x: hm.Tensor) -> Any:
    y = hm.arange(5)
    for i in range(30):
        y = y + i
    return y


def numbers(x: hm.Tensor) -> Any:
    s, n = 0.5, 1
    for i in range(30):
        x = x * i + i / 3
        s = s * 0.5
        n += 2
    return x, x * s, n, i


def triangle(a: hm.Tensor) -> Any:
    for i in range(a.shape[0]):
        a[i, i:] = a[i, i:] * 2 + i
        a[i, :i] += a[:i, i]
    return a


def swapped(x: hm.Tensor) -> Any:
    a, b = x, x * 2
    for _ in range(21):
        a, b = b, a + 1
    return a, b


def viewed(x: hm.Tensor) -> Any:
    r = x[1:-1]
    for _ in range(20):
        r += 1
    return x, r


def backwards(x: hm.Tensor) -> Any:
    for i in range(19, -1, -2):
        x = x * 0.5 + i
    for i in range(40, 0, -2):
        x = x * 0.5 + i
    return x


def decided_by_data(a: hm.Tensor) -> Any:
    for i in range(1, 25):
        if a[i] > 0.5:
            a[i] = a[i - 1] * 2
            a[i - 1] = 1.0
        elif a[i] > 0.2:
            a[i] = 0.0
    return a


def largest(x: hm.Tensor) -> Any:
    m = x[0]
    for i in range(1, x.shape[0]):
        m = max(m, x[i])
    return m, max(1, 2), max([1, 5]), min(x[0], x[1])


def alignment(x: hm.Tensor) -> Any:
    score, first = hm.zeros((21, 21), dtype=hm.int64), (x * 3).astype("int64")
    for i in range(1, 21):
        for j in range(1, 21):
            step = 3 if first[i - 1] == first[j - 1] else -2
            score[i, j] = max(0, score[i - 1, j - 1] + step, score[i - 1, j] - 2, score[i, j - 1] - 2)
    return score


def odd_ends(a: hm.Tensor) -> Any:
    n = a.shape[0]
    for i in range(n):
        if i > 0:
            a[i] = a[i] + a[i - 1]
        if i + 1 < n:
            a[i] = a[i] * a[i + 1]
    return a


def dynamic_program(a: hm.Tensor) -> Any:
    n = a.shape[0]
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            if j - 1 >= 0:
                a[i, j] = max(a[i, j], a[i, j - 1])
            if i + 1 < n:
                a[i, j] = a[i, j] + a[i + 1, j]
            if i < j - 1:
                a[i, j] = a[i, j] * 0.5
            for k in range(i + 1, j):
                a[i, j] = min(a[i, j], a[i, k] + a[k + 1, j])
    return a


def changing_type(x: hm.Tensor) -> Any:
    y = 1
    for _ in range(20):
        y = y * x
    return y


def nested_sum(x: hm.Tensor) -> Any:
    s = 0.0
    for i in range(20):
        for j in range(i):
            s = s + x[i % 3] * 0 + j
    return s


def only_after(x: hm.Tensor) -> Any:
    for i in range(20):
        t = x * i
    return t


def largest_so_far(a: hm.Tensor) -> Any:
    s = 0.0
    for i in range(1, 20):
        s = s + a[:i].max() + hm.mean(a[: i + 1])
    return s


def numpy_arrays(x: hm.Tensor) -> Any:
    p, q = np.empty((20, 4)), np.zeros(20)
    p[0] = 1.0
    for i in range(1, 20):
        p[i] = p[i - 1] * 0.5 + x
        q[i] = p[i, 1] - q[i - 1]
    return p, q


ROLLED = [
    (integers, data(3)), (numbers, data(3)), (triangle, data(30, 30)), (swapped, data(3)), (viewed, data(9)),
    (backwards, data(3)), (decided_by_data, data(25)), (largest, data(30)), (odd_ends, data(30, 3)),
    (alignment, data(20)),
    (dynamic_program, data(20, 20)), (changing_type, data(3)), (nested_sum, data(3)), (only_after, data(3)),
    (largest_so_far, data(25)), (numpy_arrays, data(4)),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "make"), ROLLED, ids=lambda x: getattr(x, "__name__", ""))
def test_a_loop_is_a_loop_of_the_graph(fn: Callable[..., Any], make: Callable[[], hm.Tensor]) -> None:
    traced, given, same = hm.trace(fn), make(), make()
    for _ in range(3):
        assert_same((fn(given), given), (traced(same), same))
    assert traced.cache_info().compiles == 1 and " loop(" in traced.ir
    assert len(traced.ir.splitlines()) < 250


# -- what the compiler makes of steps


def with_a_row_added(x: hm.Tensor, w: hm.Tensor) -> Any:
    h = x[0] * 0
    for t in range(x.shape[0]):
        h = w @ h + x[t]
    return h


def with_no_rows_at_first(x: hm.Tensor, w: hm.Tensor) -> Any:
    y = x[0] * 0
    for i in range(x.shape[0]):
        y[:i] = y[:i] + (x[i, :i].reshape(-1, 1) @ w[0, :1].reshape(1, 1)).reshape(-1)
    return y


def with_squares(x: hm.Tensor, w: hm.Tensor) -> Any:
    y = x.clone()
    for i in range(x.shape[0]):
        y[i:, i:] = y[i:, i:] * 0.5 + hm.cumsum(y[i:, i:], axis=0) @ x[i:, i:]
        y[:i, i:] = hm.sin(hm.cumsum(y[:i, i:], axis=1))
    return y


@pytest.mark.parametrize("fn", [with_a_row_added, with_no_rows_at_first, with_squares], ids=lambda f: f.__name__)
def test_products_in_steps(fn: Callable[..., Any]) -> None:
    x, w = hm.asarray(np.random.default_rng(1).random((20, 20)) * 0.1), hm.asarray(np.eye(20) * 0.5)
    traced = hm.trace(fn)
    np.testing.assert_allclose(np.asarray(traced(x, w)), np.asarray(fn(x, w)), rtol=1e-12, atol=1e-15)
    assert " loop(" in traced.ir


def test_a_triangle_is_no_view_of_its_matrix() -> None:
    a, b = data(20, 20)(), data(20)()
    for fn in (lambda a, b: hm.tril(a) @ b, lambda a, b: hm.triu(a, k=1) @ a):
        np.testing.assert_allclose(np.asarray(hm.trace(fn)(a, b)), np.asarray(fn(a, b)), rtol=1e-12)


def test_an_array_in_between_is_given_out_as_it_was() -> None:
    def step(c: hm.Tensor, x: hm.Tensor) -> Any:
        between = c.at[1:3].set(c[1:3] * x)
        return between.at[0:2].set(between[0:2] + 1), between

    def f(a: hm.Tensor, xs: hm.Tensor) -> Any:
        return hm.scan(step, a, xs)

    a, xs = data(7)(), data(20)()
    assert_same(list(f(a, xs)), list(hm.trace(f)(a, xs)))


# -- loops that are not


COUNT = {"n": 0}


def a_list_that_grows(x: hm.Tensor) -> Any:
    out = []
    for i in range(20):
        out.append(x * i)
    return out[3], len(out)


def an_item_by_number(x: hm.Tensor) -> Any:
    d, s = {3: 5.0}, 0.0
    for i in range(20):
        s = s + d.get(i, 1.0)
    return x * s


def an_attribute(x: hm.Tensor) -> Any:
    class Box:
        v: Any = 0

    b = Box()
    for _ in range(20):
        b.v += 1
    return b.v * x


def a_float_attribute_twice(x: hm.Tensor) -> Any:
    class Box:
        v: Any = 1000.5

    b = Box()
    b.v = b.v * 1.25
    for _ in range(20):
        b.v = b.v + 0.25
        b.v = b.v + 0.25
    return b.v * x


def an_iterator(x: hm.Tensor) -> Any:
    z, s = iter([1.0, 2.0] * 10), 0
    for _ in range(20):
        s = s + next(z) * x
    return s


def numpy_alone(x: hm.Tensor) -> Any:
    acc = np.zeros(3)
    for _ in range(20):
        acc += 1
        x = x + 1
    return x * acc[0]


def parity(x: hm.Tensor) -> Any:
    for i in range(20):
        x = x + i if i % 2 else x * 0.9
    return x


def left_early(x: hm.Tensor) -> Any:
    for i in range(20):
        x = x + i
        if i == 7:
            break
    return x, i


def a_closure(x: hm.Tensor) -> Any:
    n = 0

    def up() -> Any:
        nonlocal n
        n += 1
        return x * n

    s = 0
    for _ in range(20):
        s = s + up()
    return s, n


def text(x: hm.Tensor) -> Any:
    s = ""
    for i in range(20):
        s += f"{i},"
    return x, s


def python_math(x: hm.Tensor) -> Any:
    for i in range(20):
        x = x + math.sqrt(i) + 2**i
    return x


def fibonacci(x: hm.Tensor) -> Any:
    a, b = 0, 1
    for _ in range(21):
        a, b = b, a + b
    return x * a


def squeezed(a: hm.Tensor) -> Any:
    n = 0
    for i in range(20):
        n = n + hm.squeeze(a[: i + 1]).ndim
    return a, n


def a_comprehension(x: hm.Tensor) -> Any:
    return sum([x * i for i in range(20)]), [x * i for i in range(20)][7]


def drawn(x: hm.Tensor) -> Any:
    for _ in range(20):
        x = x + hm.rand(*x.shape)
    return x


def differentiated(x: hm.Tensor) -> Any:
    return hm.grad(lambda y: only_after(y).sum())(x)


STEP_BY_STEP = [
    a_list_that_grows, an_item_by_number, an_attribute, an_iterator, numpy_alone, parity, left_early, a_closure, text,
    python_math, a_float_attribute_twice, fibonacci, squeezed, a_comprehension, differentiated,
]  # fmt: skip


@pytest.mark.parametrize("fn", STEP_BY_STEP, ids=lambda f: f.__name__)
def test_what_differs_from_step_to_step_is_what_it_is(fn: Callable[..., Any]) -> None:
    make = data(25) if fn is squeezed else data(3)
    traced, given, same = hm.trace(fn), make(), make()
    for _ in range(2):
        assert_same((fn(given), given), (traced(same), same))


def test_random_numbers_are_drawn_in_each_step() -> None:
    traced = hm.trace(drawn)
    hm.manual_seed(3)
    expected = [drawn(hm.zeros(4)) for _ in range(2)]
    hm.manual_seed(3)
    assert_same(expected, [traced(hm.zeros(4)) for _ in range(2)])


def test_a_global_counter_is_counted_in_each_step() -> None:
    def f(x: hm.Tensor) -> Any:
        for _ in range(20):
            COUNT["n"] += 1
        return x * COUNT["n"]

    COUNT["n"] = 0
    expected = [f(hm.ones(2)) for _ in range(2)]
    COUNT["n"] = 0
    traced = hm.trace(f)
    assert_same(expected, [traced(hm.ones(2)) for _ in range(2)])
    assert COUNT["n"] == 40


def test_gradients_that_a_step_sets_are_those_of_each_step() -> None:
    def gradient(style: Callable[..., Any]) -> Any:
        w = hm.tensor([1.0, 2.0, 3.0], requires_grad=True)

        def f(x: hm.Tensor) -> hm.Tensor:
            for i in range(20):
                loss = ((w * x) ** 2).sum() * i
                loss.backward()
            return loss

        return style(f)(hm.ones(3)), w.grad

    assert_same(gradient(lambda f: f), gradient(hm.trace))


def test_errors_are_those_of_eager_code() -> None:
    def beyond(x: hm.Tensor) -> hm.Tensor:
        for i in range(20):
            x[i] = 1.0
        return x

    def of_nothing(x: hm.Tensor) -> Any:
        s = 0.0
        for i in range(20):
            s = s + x[:i].max()
        return s

    for fn in (beyond, of_nothing):
        with pytest.raises(Exception) as eager:
            fn(hm.ones(10))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(type(eager.value)):
                hm.trace(fn)(hm.ones(10))


def test_a_long_loop_step_by_step_runs_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer, "MOST_STEP_BY_STEP", 500)

    def f(x: hm.Tensor) -> hm.Tensor:
        d = {3: 1.0}
        for i in range(300):
            x = x * d.get(i, 0.5) + 1
        return x

    with pytest.warns(
        TraceWarning,
        match=r"the loop `for i in range.300.` at .* \(something is looked up by its number\) is unrolled: .* put what",
    ):
        found = hm.trace(f)(hm.ones(2))
    assert_same(f(hm.ones(2)), found)


def test_all_loops_that_are_unrolled_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer, "MOST_STEP_BY_STEP", 500)

    def f(x: hm.Tensor) -> hm.Tensor:
        d, found = {3: 1.0}, list[Any]()
        for i in range(30):
            x = x * d.get(i, 0.5)
        for _ in range(300):
            x = x * 0.5 + len(found)
            found.append(d)
        return x

    named = (
        r"range.300.` at .* \(a step may .*\) is unrolled, and so is the loop `for i in range.30.` at .* \(.*looked up"
    )
    with pytest.warns(TraceWarning, match=rf"{named}.* Instead, keep what"):
        found = hm.trace(f)(hm.ones(2))
    assert_same(f(hm.ones(2)), found)


def test_the_interpreter_and_the_text_know_steps() -> None:
    traced, a = hm.trace(triangle), data(20, 20)
    x = a()
    traced(x)
    graph = parse_graph(traced.ir)
    assert print_graph(graph) == traced.ir.rstrip("\n") or print_graph(graph) == traced.ir
    assert "i0" in traced.ir
    np.testing.assert_array_equal(interpret(graph, [np.asarray(a())])[0], np.asarray(x))


@examples(10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 360))
def test_random_programs(seed: int) -> None:
    check(*program_of(seed), seed)


@examples(10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1000))
def test_random_programs_that_data_ends(seed: int) -> None:
    check(*program_of(seed, ends=True), seed)


def check(source: str, program: Callable[..., Any], seed: int) -> None:

    def make() -> list[hm.Tensor]:
        r = np.random.default_rng(seed)
        return [hm.asarray(r.random(shape)) for shape in ((N, M), (N,), (M,))]

    given, same = make(), make()
    try:
        expected = program(*given)
    except NameError:  # of a loop without a step
        with pytest.raises(NameError):
            hm.trace(program)(*same)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        found = hm.trace(program)(*same)
    try:
        assert_same((expected, given), (found, same))
    except AssertionError as error:
        raise AssertionError(f"{source}\n{error}") from None

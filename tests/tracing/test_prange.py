"""`hm.prange`: what loops over it compute is what Python computes in order, whatever they do, on several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import hybridml as hm
from hybridml_compiler.graph.body import bodies_of
from hybridml_compiler.graph.independence import dependence
from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.passes import run_passes
from hybridml_compiler.schedule import cost
from tests.support.examples import examples
from tests.support.loops import assert_same, both, data
from tests.support.random_loops import M, N, program_of


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads, and loops that they share however short they are."""
    monkeypatch.setattr(cost, "PARALLEL_THRESHOLD_NS", 0.0)
    before = hm.get_num_threads()
    hm.set_num_threads(2)
    yield
    hm.set_num_threads(before)


def shared(traced: Any) -> list[bool]:
    """Whether threads share the steps, for each loop over `prange` in the optimized program."""
    pending: list[Graph] = [run_passes(traced._last.shown().program.graph)[0]]
    found: dict[Any, bool] = {}
    while pending:
        for node in pending.pop().nodes():
            pending += [body.graph for body in bodies_of(node)]
            if node.params.get("parallel"):
                found[node.inputs, node.params["body"]] = dependence(node) is None
    return [*found.values()]


# -- loops that threads share


def rows(x: Any) -> Any:
    out = hm.zeros((30, 7), dtype="float64")
    for i in hm.prange(30):
        out[i] = hm.exp(x[i]) * i
    return out


def triangle(x: Any) -> Any:
    out = hm.zeros((30, 30), dtype="float64")
    for i in hm.prange(30):
        out[i, :i] = x[:i, 0] * x[i, 1]
        out[i, i] = 1.0
    return out


def backwards(x: Any) -> Any:
    for i in hm.prange(29, -1, -1):
        x[i] = x[i] * 2 + i
    return x


def every_third(x: Any) -> Any:
    for i in hm.prange(0, 60, 2):
        x[i // 2, 1:3] = x[i // 2, 3:5] + 1
    return x


def pairs(x: Any) -> Any:
    out = hm.zeros((60,), dtype="float64")
    for i in hm.prange(30):
        out[2 * i] = x[i, 0]
        out[2 * i + 1] = x[i, 1] + out[2 * i]
    return out


def other_half(x: Any) -> Any:
    x = hm.concat([x, x])
    for i in hm.prange(30):
        x[i] = x[i + 30] + x[59]
    return x


def two_arrays(x: Any) -> Any:
    a, b = hm.zeros((30,), dtype="float64"), hm.zeros((30, 2), dtype="float64")
    for i in hm.prange(30):
        a[i] = x[i].max()
        b[i, 0] = a[i] * 2
        b[i, 1] += x[i, 3]
    return a, b


def inner_loop(x: Any) -> Any:
    out = hm.zeros((30, 7), dtype="float64")
    for i in hm.prange(30):
        for j in range(i):
            out[i] += x[j] * x[i, 2]
    return out


def nested(x: Any) -> Any:
    out = hm.zeros((30, 40), dtype="float64")
    for i in hm.prange(30):
        for j in hm.prange(40):
            out[i, j] = x[i, 0] * j
    return out


def temporaries(x: Any) -> Any:
    out = hm.zeros((30, 7), dtype="float64")
    for i in hm.prange(30):
        t = x[i] + 1
        t = hm.cumsum(t) * t
        u = t[::-1].clone()
        u[1] = 3.0
        out[i] = t + u
    return out


def an_if(x: Any) -> Any:
    out = hm.zeros((30,), dtype="float64")
    for i in hm.prange(30):
        if x[i, 0] > 0.5:
            out[i] = x[i, 1]
        else:
            out[i] = -x[i].max()
    return out


def early_exit(x: Any) -> Any:
    out = hm.zeros((30,), dtype="int64")
    for i in hm.prange(30):
        z, n = x[i, 0], 0
        while z < 20.0 and n < 50:
            z = z * z + x[i, 1] + 0.4
            n += 1
        out[i] = n
    return out


def numpy_arrays(x: Any) -> Any:
    out = np.zeros((30, 7))
    for i in hm.prange(30):
        out[i] = np.sqrt(x[i]) + i
    return out


def a_product(x: Any) -> Any:
    out = hm.zeros((30, 7), dtype="float64")
    for i in hm.prange(30):
        out[i] = (x[i].reshape(7, 1) * x[i]).max(axis=0)
    return out


SHARED = [rows, triangle, backwards, every_third, pairs, other_half, two_arrays, inner_loop, nested,
          temporaries, an_if, early_exit, numpy_arrays, a_product]  # fmt: skip


@pytest.mark.parametrize("fn", SHARED, ids=lambda f: f.__name__)
def test_steps_that_need_no_other(fn: Callable[..., Any]) -> None:
    traced = both(fn, data(30, 7) if fn is not triangle else data(30, 30))
    assert shared(traced) and all(shared(traced)), fn
    assert hm.audit(fn, data(30, 30)() if fn is triangle else data(30, 7)()).in_order == ()


# -- sums, which are a loop of their own


def a_sum(x: Any) -> Any:
    s = 0.0
    for i in hm.prange(30):
        s += hm.exp(x[i]).max()
    return s


def sum_and_rows(x: Any) -> Any:
    out, s, n = hm.zeros((30, 7), dtype="float64"), 0.0, 0
    for i in hm.prange(30):
        out[i] = hm.cumsum(x[i]) * 2
        s += out[i].max()
        n += i
    return out, s, n


def product_and_largest(x: Any) -> Any:
    p, m = hm.ones((), dtype="float64"), hm.zeros((), dtype="float64")
    for i in hm.prange(30):
        t = hm.sort(x[i])[3]
        p *= t * 0.25
        m = hm.maximum(m, t)
    return p, m


def of_integers(x: Any) -> Any:
    k, n = hm.zeros((), dtype="int64"), hm.zeros((3,), dtype="int32")
    for i in hm.prange(30):
        t = (x[i] * 100).astype("int64").sum()
        k += t
        n += (t + hm.arange(3)).astype("int32")
    return k, n


def the_last(x: Any) -> Any:
    out, t = hm.zeros((30, 7), dtype="float64"), x[0]
    for i in hm.prange(30):
        t = hm.cumsum(x[i])
        out[i] = t
    return out, t


def not_associative(x: Any) -> Any:
    s = hm.ones((), dtype="float64")
    for i in hm.prange(30):
        s = s * 0.5 + x[i].max()
    return s


SUMS = [a_sum, sum_and_rows, product_and_largest, of_integers, the_last, not_associative]


@pytest.mark.parametrize("fn", SUMS, ids=lambda f: f.__name__)
def test_what_steps_add_up_has_the_bits_of_the_loop_in_order(fn: Callable[..., Any]) -> None:
    traced = both(fn, data(30, 7))
    assert any(shared(traced)), fn


# -- races: the result is that of the steps in order, and an audit tells


def reads_the_last(x: Any) -> Any:
    for i in hm.prange(1, 30):
        x[i] = x[i - 1] * 0.5 + x[i]
    return x


def reads_the_next(x: Any) -> Any:
    for i in hm.prange(29):
        x[i] = x[i + 1] * 0.5
    return x


def writes_two(x: Any) -> Any:
    for i in hm.prange(29):
        x[i : i + 2] = x[i : i + 2] * 0.5 + i
    return x


def one_place(x: Any) -> Any:
    for i in hm.prange(30):
        x[3] = x[i] + 1
    return x


def crossing(x: Any) -> Any:
    for i in hm.prange(30):
        x[i] = x[29 - i] * 2 + i
    return x


def whole(x: Any) -> Any:
    for i in hm.prange(30):
        x[i] = x.max(axis=0) * 0.5
    return x


def by_data(x: Any) -> Any:
    index = (x[:, 0] * 29).astype("int64")
    for i in hm.prange(30):
        x[index[i]] = x[i] * 0.5
    return x


def needed(x: Any) -> Any:
    s = x[0]
    for i in hm.prange(30):
        s = s * 0.5 + x[i]
        x[i] = s
    return x, s


def inner_reaches_out(x: Any) -> Any:
    for i in hm.prange(20):
        for j in range(i + 1):
            x[i] += x[j] * 0.1
    return x


def inner_writes_columns(x: Any) -> Any:
    for i in hm.prange(30):
        for j in range(7):
            x[j, 1] = x[j, 1] * 0.5 + i
    return x


def sum_that_is_read(x: Any) -> Any:
    s = 0.0
    for i in hm.prange(30):
        s += x[i].max()
        x[i] = s
    return x, s


def old_value(x: Any) -> Any:
    for i in hm.prange(1, 30):
        old = x[i].clone()
        x[i] = x[i] * 2
        x[i - 1] = old
    return x


RACES = [reads_the_last, reads_the_next, writes_two, one_place, crossing, whole, by_data, needed,
         inner_reaches_out, inner_writes_columns, sum_that_is_read, old_value]  # fmt: skip


@pytest.mark.parametrize("fn", RACES, ids=lambda f: f.__name__)
def test_a_race_is_run_in_order_and_told(fn: Callable[..., Any]) -> None:
    both(fn, data(30, 7))
    found = hm.audit(fn, data(30, 7)())
    assert found, str(found)
    assert len(found.in_order) >= 1 and "test_prange.py" in found.in_order[0]
    assert "prange, in order: " in str(found)


def test_the_line_of_a_race() -> None:
    (why,) = hm.audit(reads_the_last, data(30, 7)()).in_order
    assert "x[i] = x[i - 1] * 0.5 + x[i]: a step may write what another one reads" in why


def test_explain_says_why_steps_run_in_order() -> None:
    text = str(hm.explain(reads_the_last, data(30, 7)()))
    assert "its steps run in order, on one thread" in text
    assert "its steps run in order" not in str(hm.explain(rows, data(30, 7)()))


def test_a_step_that_calls_python_is_on_one_thread() -> None:
    """The thread that waits for the others has the interpreter lock."""
    twice = hm.op(lambda x: np.multiply(x, 2), infer=lambda x: x, name="twice_by_numpy")

    def f(x: Any) -> Any:
        out = hm.zeros((30, 7), dtype="float64")
        for i in hm.prange(30):
            for _ in range(i):
                out[i] += twice(x[i])
        return out

    for _ in range(20):
        both(f, data(30, 7))
    assert "a step calls Python" in str(hm.explain(f, data(30, 7)()))


def test_a_loop_of_which_no_step_stands_for_all_is_told() -> None:
    def odd(x: Any) -> Any:
        for i in hm.prange(30):
            x[i] = {0: 1.0, 1: 2.0}[i % 2]
        return x

    both(odd, data(30, 7))
    (why,) = hm.audit(odd, data(30, 7)()).in_order
    assert "for i in hm.prange(30)" in why


# -- ends


@pytest.mark.parametrize(
    "bounds", [(0,), (1,), (5, 2), (3, 3), (0, 1), (0, 2), (16,), (17,), (40, 0, -3), (0, 40, 7), (-3, 17)]
)
def test_any_number_of_steps(bounds: tuple[int, ...]) -> None:
    def f(x: Any) -> Any:
        s = 0
        for i in hm.prange(*bounds):
            x[i] = x[i] * 2 + i
            s += i
        return x, s

    both(f, data(60, 3))


def test_as_range_in_eager_code() -> None:
    assert hm.prange(3) == range(3) and hm.prange(1, 9, 2) == range(1, 9, 2)
    for args in ((1.5,), (), (1, 2, 0)):
        with pytest.raises((TypeError, ValueError)):
            hm.prange(*args)


@pytest.mark.parametrize("n", [2, 3, 16, 17, 64])
def test_sizes_that_change(n: int) -> None:
    def f(x: Any) -> Any:
        out, s = hm.zeros(x.shape, dtype="float64"), 0.0
        for i in hm.prange(x.shape[0]):
            out[i] = hm.exp(x[i]) * i
            s += out[i].max()
        return out, s

    traced = hm.trace(f)
    for size in (30, n, 31, n):
        x = hm.asarray(np.random.default_rng(size).random((size, 5)))
        assert_same(f(x), traced(x))


def test_the_error_is_that_of_the_first_step_that_fails() -> None:
    def f(x: Any, index: Any) -> Any:
        out = hm.zeros((40, 3), dtype="float64")
        for i in hm.prange(40):
            out[i] = x[index[i]]
        return out

    x, index = data(9, 3)(), np.arange(40) % 9
    traced = hm.trace(f)
    assert_same(f(x, hm.asarray(index)), traced(x, hm.asarray(index)))
    bad = index.copy()
    bad[30], bad[35] = 77, 99
    for style in (f, traced):
        with pytest.raises(hm.OutOfBoundsError, match="77"):
            style(x, hm.asarray(bad))
    assert_same(f(x, hm.asarray(index)), traced(x, hm.asarray(index)))


def test_an_error_leaves_arrays_as_they_were() -> None:
    def f(x: Any, index: Any) -> Any:
        for i in hm.prange(40):
            x[i] = x[i] + hm.linspace(0, 1, 3)[index[i]]
        return x

    index = np.zeros(40, int)
    index[20] = 7
    x, y = data(40, 2)(), data(40, 2)()
    for style, a in ((f, x), (hm.trace(f), y)):
        with pytest.raises(hm.OutOfBoundsError):
            style(a, hm.asarray(index))


def test_results_do_not_depend_on_the_threads() -> None:
    found = []
    for n in (1, 2, 3):
        hm.set_num_threads(n)
        found.append(hm.trace(sum_and_rows)(data(30, 7)()))
    for other in found[1:]:
        assert_same(found[0], other)


# -- gradients, and functions of functions


def loss(x: Any) -> Any:
    out, s = hm.zeros((30, 7), dtype="float64"), 0.0
    for i in hm.prange(30):
        out[i] = hm.tanh(x[i]) * x[i, 0] + i
        s += (hm.tanh(x[i]) * x[i]).sum()
    return s + (out * out).sum()


def test_gradients() -> None:
    x = data(30, 7)()
    np.testing.assert_allclose(hm.trace(hm.grad(loss))(x), hm.grad(loss)(x), rtol=1e-12)

    def twice(f: Any) -> Any:
        return hm.grad(lambda x: (hm.grad(f)(x) ** 2).sum())

    np.testing.assert_allclose(hm.trace(twice(loss))(x), twice(loss)(x), rtol=1e-10)


def test_a_gradient_of_weights_that_all_steps_read() -> None:
    def f(x: Any, w: Any) -> Any:
        s = 0.0
        for i in hm.prange(30):
            s += hm.tanh(w @ x[i]).sum()
        return s

    x, w = data(30, 7)(), data(4, 7)()
    for k in (0, 1):
        np.testing.assert_allclose(hm.trace(hm.grad(f, k))(x, w), hm.grad(f, k)(x, w), rtol=1e-12)


def test_forward_mode_and_vmap() -> None:
    x, t = data(30, 7)(), data(30, 7)()
    one, other = hm.jvp(loss, (x,), (t,)), hm.trace(lambda x, t: hm.jvp(loss, (x,), (t,)))(x, t)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    batch = hm.stack([x, t])
    np.testing.assert_allclose(hm.trace(hm.vmap(loss))(batch), hm.vmap(loss)(batch), rtol=1e-12)


# -- random programs, of which most are races


@pytest.mark.usefixtures("threads")
@pytest.mark.filterwarnings("ignore::hybridml.tracing.specialize.errors.TraceWarning")  # some loops are unrolled
@pytest.mark.filterwarnings("ignore::hybridml_compiler.errors.CompileWarning")
@given(seed=st.integers(0, 1 << 30))
@examples(12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_programs(seed: int) -> None:
    source, _ = program_of(seed)
    space: dict[str, Any] = {"hm": hm}
    exec(compile(source.replace("range(", "hm.prange("), f"<program {seed}>", "exec"), space)
    program = space["program"]
    traced = hm.trace(program)
    for _ in range(2):
        with np.errstate(all="ignore"):
            given_ = [data(*shape)() for shape in ((N, M), (N,), (M,))]
            same = [data(*shape)() for shape in ((N, M), (N,), (M,))]
            assert_same((program(*given_), given_), (traced(*same), same))

"""Data-dependent Python in traced functions: a tree of paths, each of them what eager Python does."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.core import pytree
from hybridml.tracing import function
from hybridml.tracing.run import native_call
from hybridml.tracing.specialize import path_tree

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def compare(make: Callable[[Callable[[Any], Any]], tuple[Any, list[hm.Tensor]]], trace: Any, calls: list[Any]) -> Any:
    """`make(style)` gives a function and its state: results, errors and state of each call are the same in both."""
    (eager, eager_state), (traced, traced_state) = make(lambda fn: fn), make(trace)
    for call in calls:
        found = []
        for fn, state in ((eager, eager_state), (traced, traced_state)):
            hm.manual_seed(0)
            try:
                value = fn(*call)
            except (ValueError, ZeroDivisionError, AssertionError) as error:
                value = (type(error), str(error))
            leaves = [np.asarray(v.detach()) if isinstance(v, hm.Tensor) else v for v in pytree.tree_leaves(value)]
            grads = [None if t.grad is None else np.asarray(t.grad) for t in state]
            found.append((leaves, [np.asarray(t.detach()) for t in state], grads))
        for a, b in zip(pytree.tree_leaves(found[0]), pytree.tree_leaves(found[1]), strict=True):
            assert type(a) is type(b), (a, b)
            if isinstance(a, np.ndarray | float):
                np.testing.assert_allclose(b, a, rtol=2e-6, atol=1e-6)
            else:
                assert a == b or a != a
    return traced


def stateless(fn: Callable[..., Any]) -> Any:
    return lambda style: (style(fn), [])


def test_if_has_two_ways(trace: Any) -> None:
    def f(x: hm.Tensor) -> hm.Tensor:
        y = x * 3
        return y + 1 if x.sum() > 0 else -y

    up, down = (hm.tensor([1.0, 2.0]),), (hm.tensor([-1.0, -2.0]),)
    traced = compare(stateless(f), trace, [up, down, up, down, up, down])
    assert (traced.cache_info().compiles, traced.cache_info().hits) == (2, 4)


def test_while_takes_as_many_rounds_as_it_takes(trace: Any) -> None:
    def root(a: hm.Tensor) -> Any:
        x, rounds = a, 0
        while abs(x * x - a) > 1e-4:
            x = 0.5 * (x + a / x)
            rounds += 1
        return x, rounds

    traced = compare(stateless(root), trace, [(hm.tensor(v),) for v in (2.0, 3.0, 100.0, 2.0, 9.0, 100.0, 0.5)])
    assert traced.cache_info().compiles <= 4 and traced.cache_info().hits >= 3


def test_values_as_python_numbers(trace: Any) -> None:
    def f(x: hm.Tensor, n: hm.Tensor) -> Any:
        out = x
        for k in range(n):
            out = out + k
        picked = [x, x * 2, x * 3][n]
        return out, picked, int(n) + 1, [n.item()] * int(n), len(range(int(n))), n.tolist(), float(n), x.reshape(n, -1)

    calls = [(hm.asarray(X), hm.tensor(n)) for n in (1, 2, 1, 2)]
    assert compare(stateless(f), trace, calls).cache_info().compiles == 2


def test_arrays_are_values_too(trace: Any) -> None:
    def f(x: hm.Tensor) -> Any:
        a = (x > 0).numpy()
        return x * int(a.sum()), np.median(x), x[a], np.asarray(x > 1).tolist()

    assert compare(stateless(f), trace, [(hm.asarray(X),), (hm.asarray(-X),), (hm.asarray(X),)]).cache_info().hits == 1
    x, fill = hm.zeros(3), trace(lambda x: x.numpy().fill(1))
    with pytest.warns(UserWarning, match="read-only.*run eagerly"):  # a write could reach no compiled program
        fill(x)
    assert x.tolist() == [1.0] * 3
    with pytest.raises(ValueError, match="read-only"):
        hm.trace(lambda x: hm.asarray(1.0).numpy().fill(1), strict=True)(x)


def test_nested_branches_over_captured_state(trace: Any) -> None:
    def make(style: Any) -> Any:
        w, steps = hm.tensor([2.0, 3.0], requires_grad=True), hm.tensor(0)

        @style
        def step(x: hm.Tensor, y: hm.Tensor) -> Any:
            w.grad = None
            loss = ((x * w - y) ** 2).sum()
            steps.add_(1)
            if loss > 50:
                return loss.detach()
            loss.backward()
            with hm.no_grad():
                w.sub_(w.grad * 0.1)
                if (w < 0).any():
                    w.abs_() if hasattr(w, "abs_") else w.copy_(abs(w))
            if steps % 3 == 0:
                w.grad.mul_(0)
            return loss.detach()

        return step, [w, steps]

    rng = np.random.default_rng(0)
    calls = [
        (hm.asarray(rng.standard_normal(2).astype("f4") * s), hm.ones((2,))) for s in [1, 10, 1, 1, 5, 1, 20, 1] * 2
    ]
    assert compare(make, trace, calls).cache_info().hits > 4


def test_updates_before_an_error_are_made(trace: Any) -> None:
    def make(style: Any) -> Any:
        count, w = hm.zeros(()), hm.tensor([1.0], requires_grad=True)

        @style
        def f(x: hm.Tensor) -> hm.Tensor:
            count.add_(1)
            (w * x).sum().backward()
            if x.isnan().any():
                raise ValueError("not a number")
            if x.sum() >= 10:
                raise AssertionError(f"too large: {x.sum().item():.1f}")
            count.add_(10)
            return x * count

        return f, [count, w]

    calls = [(hm.tensor([v]),) for v in (1.0, math.nan, 2.0, 11.0, 3.0, math.nan, 12.0)]
    assert compare(make, trace, calls).cache_info().entries == 2  # without and with a gradient to add to


def test_errors_that_the_function_catches(trace: Any) -> None:
    def f(x: hm.Tensor) -> Any:
        try:
            return 1 // int(x.sum())
        except ZeroDivisionError:
            return x + 1

    compare(stateless(f), trace, [(hm.tensor([v]),) for v in (1.0, 0.0, 0.0, 2.0)])


def test_a_loss_that_is_only_returned_or_used_in_arithmetic_is_no_guard(trace: Any) -> None:
    def f(x: hm.Tensor) -> Any:
        loss = (x * x).sum().item()
        return x * loss, loss, (loss + 1) / 2, {"mean": x.mean().item()}, isinstance(loss, float), loss > 1

    calls = [(hm.asarray(X * k),) for k in range(1, 12)]
    assert compare(stateless(f), trace, calls).cache_info().compiles == 1


def test_numbers_do_what_floats_do(trace: Any) -> None:
    def f(x: hm.Tensor) -> Any:
        v = x.sum().item()
        return (
            round(v, 2), f"{v:.3f}", str(v), repr(v), math.sqrt(v), math.floor(v), math.ceil(v), v.is_integer(), int(v),
            {v: 1}[v], v in {v}, v == v, -v, v // 2, v % 2, divmod(v, 2), bool(v), max(v, 1.0), sorted([v, 0.5]),
            v.hex(), float(v), np.float64(v) * 2, sum([v, v]), v.as_integer_ratio(), v.item() if hasattr(v, "q") else 0,
        )  # fmt: skip

    compare(stateless(f), trace, [(hm.tensor([v]),) for v in (2.5, 4.0, 2.5)])


def test_segments_give_what_python_still_holds(trace: Any) -> None:
    x = hm.asarray(X)

    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        big = hm.exp(x) @ x.T
        gone = hm.sin(big)
        if (gone.sum() > 1000).item():
            return gone
        del gone
        return big.T * 2

    for _ in range(3):
        np.testing.assert_allclose(f(x), (np.exp(X) @ X.T).T * 2, rtol=1e-5)
    first, question, rest = f.ir.partition("# item() is False at test_trace_branches.py:")
    assert "exp" in first and "matmul" in first and "if (gone.sum() > 1000).item():" in rest.split("\n")[0]
    assert question and "exp" not in rest and "matmul" not in rest  # what is left after the question
    y = hm.tensor(X, requires_grad=True)
    f(y).sum().backward()  # the gradient goes through the segments
    np.testing.assert_allclose(y.grad, hm.grad(lambda t: (hm.exp(t) @ t.T).sum() * 2)(x), rtol=1e-4)


def test_gradients_of_every_order_through_branches(trace: Any) -> None:
    def f(x: hm.Tensor) -> hm.Tensor:
        y = x**3
        return (y * 2 if y > 5 else y * x).sum()

    for v in (1.0, 2.0, 1.0, 3.0):
        t = trace(f)
        assert hm.grad(t)(hm.tensor(v)).item() == hm.grad(f)(hm.tensor(v)).item()
        assert hm.grad(hm.grad(t))(hm.tensor(v)).item() == hm.grad(hm.grad(f))(hm.tensor(v)).item()


def test_random_numbers_after_a_branch(trace: Any) -> None:
    def f(x: hm.Tensor) -> hm.Tensor:
        noise = hm.random.uniform((4,))
        if noise.sum() > 2:
            return noise + hm.random.uniform((4,))
        return noise * hm.random.normal((4,))

    traced, found = trace(f), []
    for g in (f, traced):
        hm.manual_seed(1)
        found.append([g(hm.zeros(())).tolist() for _ in range(12)])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
    assert traced.cache_info().compiles == 2


def test_nothing_is_committed_before_the_last_question(trace: Any) -> None:
    seen: list[float] = []
    state = hm.zeros((2,))

    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        state.add_(x)
        if state.sum() > 4:
            state.mul_(0)
        return state + 0

    for k in range(8):
        seen += f(hm.ones((2,))).tolist()[:1]
        assert state.tolist()[0] == seen[-1], k
    assert seen == [1, 2, 0, 1, 2, 0, 1, 2] and f.cache_info().compiles == 2


def test_the_line_that_asks_is_known(trace: Any) -> None:
    f = trace(lambda x: x if x.sum() > 0 else -x)
    f(hm.ones((2,)))
    (entry,) = next(iter(f._entries.values()))
    assert "x if x.sum() > 0" in entry.root.where and entry.root.what == "bool()"


def test_a_value_that_is_another_each_time_is_reported_once_and_eager(trace: Any) -> None:
    seen: list[float] = []

    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        y = x * 2
        shown = f"{y.sum().item():.4f}"
        return y + float(shown)

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for k in range(40):
            seen.append(f(hm.tensor([float(k)])).item())
    assert seen == [4.0 * k for k in range(40)]
    assert [w.category.__name__ for w in found] == ["TraceWarning"] and found[0].filename == __file__
    assert 'shown = f"{y.sum()' in str(found[0].message) and "run eagerly from now on" in str(found[0].message)
    assert f.cache_info().compiles <= function.MOST_OTHERS + 1


def test_growth_is_bounded(trace: Any) -> None:
    f = hm.trace.__globals__["TracedFunction"](lambda x: x * len([0] * int(x.sum())), most=4)
    with pytest.warns(UserWarning, match="more than 4 programs.*further values run eagerly") as found:
        for _ in range(2):
            for k in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 5.0):
                assert f(hm.tensor([k])).item() == k * k
    assert len(found) == 1 and f.cache_info().entries == 4


def test_a_loop_without_end_in_sight_is_eager(trace: Any, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(path_tree, "MOST_ASKED", 20)

    def count(x: hm.Tensor) -> int:
        rounds = {0: 0}
        while x.sum() > 0:
            x, rounds[0] = x - 1, rounds[0] + 1
        return rounds[0]

    f = trace(count)
    assert f(hm.tensor([5.0])) == 5
    with pytest.warns(UserWarning, match="more than 20 values in one call"):
        assert f(hm.tensor([30.0])) == 30
    assert f(hm.tensor([40.0])) == 40 and f(hm.tensor([5.0])) == 5


def test_the_short_way_leaves_out_paths_that_came_after_it() -> None:
    """Another thread may store it just after a path has been added, whose guards and draws it does not know."""
    f = hm.trace(lambda x: x * hm.rand((2,)) if x.sum() > 0 else x * 1)
    less, more = hm.full((2,), -1.0), hm.ones(2)
    for _ in range(3):
        f(less)
    (entry,) = next(iter(f._entries.values()))
    early = entry.fast
    assert early is not None and early.call(less) is not native_call.MISS
    for _ in range(3):
        f(more)
    assert early.call(more) is native_call.MISS and early.call(less) is not native_call.MISS
    entry.fast = early
    assert f(more).tolist() != f(more).tolist() and f.cache_info().compiles == 2

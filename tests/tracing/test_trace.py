"""Traced programs give the eager values; when they compile again, and what they say when they cannot be traced."""

from __future__ import annotations

import copy
import functools
import math
import pickle
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import hybridml as hm

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def same(a: hm.Tensor, b: hm.Tensor) -> None:
    assert type(a) is hm.Tensor and a.shape == b.shape and a.dtype is b.dtype
    np.testing.assert_allclose(np.asarray(a.detach()), np.asarray(b.detach()), rtol=2e-6, atol=1e-6)


def gelu(x: hm.Tensor) -> hm.Tensor:
    return 0.5 * x * (1 + hm.tanh(0.79788456 * (x + 0.044715 * x**3)))


PROGRAMS: list[Callable[..., Any]] = [
    lambda x: x * 2 + 1,
    lambda x: gelu(x) * hm.exp(-x) - x / 3,
    lambda x: (x - x.max(-1, keepdims=True)).exp().sum(0) if hasattr(x, "exp") else x,
    lambda x: hm.where(x > 0, x, 0.1 * x).mean(1),
    lambda x: (x @ x.T).sum(),
    lambda x: x[::-1, 1:].T.reshape(-1)[::2],
    lambda x: hm.concat([x, x * 2], axis=1)[:, [0, 5]],
    lambda x: hm.stack([x[0], x[1]]).var(1),
    lambda x: x.argmax(1),
    lambda x: hm.cumulative_sum(x, axis=1),
]


@pytest.mark.parametrize("k", range(len(PROGRAMS)))
def test_programs(k: int, trace: Any) -> None:
    program, x = PROGRAMS[k], hm.asarray(X)
    traced = trace(program)
    for _ in range(3):
        same(traced(x), program(x))
    assert traced.cache_info().compiles == 1 and traced.cache_info().hits == 2


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Batch:
    data: Any
    label: str


def test_nested_containers(trace: Any) -> None:
    @trace
    def f(p: Point, batch: Batch, more: dict[str, Any], *rest: Any, scale: float = 1.0) -> Any:
        assert batch.label == "train"
        return {
            "sum": p.x + p.y,
            "batch": Batch(hm.asarray(batch.data) * scale, "out"),
            "rest": [r * 2 for r in rest],
            "n": len(more),
        }

    x = hm.asarray(X)
    for scale in (2.0, 3.0):
        out = f(Point(x, (x * 2)), Batch(X, "train"), {"a": (1, None)}, x, scale=scale)
        same(out["sum"], x * 3)
        assert type(out["batch"]) is Batch and out["batch"].label == "out" and out["n"] == 1
        same(out["batch"].data, x * scale)
        same(out["rest"][0], x * 2)
    assert f.cache_info().compiles == 1


def test_signatures(trace: Any) -> None:
    f = trace(lambda x, n=1, flag=None: x * n)
    x = hm.asarray(X)
    f(x)
    f(x + 1)
    assert f.cache_info() == (type(f.cache_info()))(1, 1, 1)
    f(x, 2), f(x, 2), f(x, True), f(x[:2]), f(x.astype(hm.float64)), f(x.T), f(x, flag="a")
    assert (f.cache_info().compiles, f.cache_info().hits) == (7, 2)
    f(hm.tensor(X, requires_grad=True))
    with hm.no_grad():
        f(x)
    assert f.cache_info().compiles == 9
    f.clear()
    assert f.cache_info().entries == 0
    same(f(x), x)


def test_floats_are_inputs(trace: Any) -> None:
    def program(x: hm.Tensor, lr: float, beta: float) -> Any:
        return x * lr + (1 - beta**2) / lr, lr * 2, hm.exp(beta)

    f, x = trace(program), hm.asarray(X)
    for lr, beta in [(0.1, 0.9), (1e-30, 0.5), (0.25, 0.3), (3.0, -0.0)]:
        got, expected = f(x, lr, beta), program(x, lr, beta)
        np.testing.assert_array_equal(got[0], expected[0])
        assert type(got[1]) is float and got[1] == expected[1] and got[2].dtype is hm.float32
    assert f.cache_info().compiles == 1


def test_a_float_that_steers_is_a_guard(trace: Any) -> None:
    def program(x: hm.Tensor, p: float) -> hm.Tensor:
        return x * 0 if p > 0.5 else x * int(p * 10)

    f, x = trace(program), hm.asarray(X)
    for p in (0.1, 0.7, 0.1, 0.7, 0.2):
        same(f(x, p), program(x, p))
    assert (f.cache_info().compiles, f.cache_info().hits) == (2, 3)


SCALE = 2


def helper(x: hm.Tensor) -> hm.Tensor:
    return x * SCALE


def test_globals_and_closures_are_never_stale(trace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    offset, table, w = 1, {"gain": 3.0, "list": [1]}, hm.tensor([1.0, 2.0])

    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        return helper(x) * table["gain"] + offset * w + table["list"][0]

    x = hm.tensor([1.0, 10.0])
    assert f(x).tolist() == [8, 63]
    monkeypatch.setitem(globals(), "SCALE", 5)
    assert f(x).tolist() == [17, 153]
    offset = 0
    assert f(x).tolist() == [16, 151]
    table["gain"] = 1.0
    table["list"][0] = 2
    assert f(x).tolist() == [7, 52]
    w = hm.tensor([9.0, 9.0])
    offset = 1
    assert f(x).tolist() == [16, 61]
    with hm.no_grad():
        w += 1
    compiles = f.cache_info().compiles
    assert f(x).tolist() == [17, 62] and f.cache_info().compiles == compiles


def test_methods_and_modules(trace: Any) -> None:
    class Scaled:
        def __init__(self, by: float) -> None:
            self.by, self.w = by, hm.tensor([1.0, 2.0])

        @hm.trace
        def run(self, x: hm.Tensor) -> hm.Tensor:
            return x * self.w * self.by

    a, b, x = Scaled(2.0), Scaled(3.0), hm.tensor([1.0, 1.0])
    assert a.run(x).tolist() == [2, 4] and b.run(x).tolist() == [3, 6] and a.run(x).tolist() == [2, 4]
    a.by = 10.0
    assert a.run(x).tolist() == [10, 20]
    a.w = hm.tensor([0.0, 1.0])
    assert a.run(x).tolist() == [0, 10]
    assert a.run.cache_info().entries >= 2
    model = hm.nn.Sequential(hm.nn.Linear(4, 3), hm.nn.ReLU())
    expected, keys = model(hm.asarray(X)), list(model.state_dict())
    assert hm.trace(model) is model and list(model.state_dict()) == keys
    same(model(hm.asarray(X)), expected)
    assert model.forward.cache_info().compiles == 1


def test_strict_traces_do_not_look_at_values() -> None:
    x = hm.asarray(X)
    for program, what, advice in [
        (lambda t: t if t.sum() > 0 else -t, "bool", "use hm.where"),
        (lambda t: [t] * int(t.sum()), "int", "tensor operations instead of Python numbers"),
        (lambda t: [t for _ in range(t.sum().astype(hm.int64))], "index", "instead of Python numbers"),
        (lambda t: t.numpy(), "numpy", "return the tensor and read it after the call"),
        (lambda t: math.fsum([t.sum()]), "float", "tensor operations instead of Python numbers"),
        (lambda t: hm.sort(t[t > 0]), "mask", "use hm.where"),
        (lambda t: np.array_str(t), "NumPy array", "outside of the traced function"),
    ]:
        with pytest.raises(hm.TraceError, match=what) as found:
            hm.trace(program, strict=True)(x)
        assert "test_trace.py" in str(found.value) and advice in str(found.value)
    w = hm.tensor([1.0])
    with pytest.raises(hm.TraceError):
        hm.trace(lambda t: t * float(w), strict=True)(x)
    assert hm.trace(lambda t: t * int(hm.tensor(3)), strict=True)(x).tolist() == (x * 3).tolist()


@pytest.mark.usefixtures("small_heap")
def test_leaks_are_named() -> None:
    store: queue.SimpleQueue[hm.Tensor] = queue.SimpleQueue()  # what happens in it cannot be seen

    @hm.trace
    def f(x: hm.Tensor) -> hm.Tensor:
        y = x * 2
        store.put(y)
        return y + 1

    x = hm.tensor([1.0])
    f(x)
    leaked = [store.get()]
    assert repr(leaked[0]) == "Tensor(traced, shape=(1,), dtype=float32)"
    for use in (
        lambda: leaked[0] + 1,
        lambda: leaked[0].numpy(),
        lambda: f(leaked[0]),
        lambda: hm.trace(lambda t: t + leaked[0])(x),
    ):
        with pytest.raises(hm.TraceError, match="used after the trace") as found:
            use()
        assert "y = x * 2" in str(found.value)


def test_everything_callable(trace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Model:
        gain = 2.0

        def __init__(self) -> None:
            self.bias = 1.0

        def __call__(self, x: hm.Tensor) -> hm.Tensor:
            return helper(x) * self.gain + self.bias

    table = {"a": 2.0}

    def with_default(x: hm.Tensor, table: dict[str, float] = table) -> hm.Tensor:
        return x * table["a"]

    model, x = Model(), hm.tensor([1.0])
    f, g, h = trace(model), trace(functools.partial(helper)), trace(model.__call__)
    assert (f(x).item(), g(x).item(), h(x).item()) == (5, 2, 5)
    model.bias = 0.0
    assert (f(x).item(), h(x).item()) == (4, 4)
    monkeypatch.setitem(globals(), "SCALE", 3)
    assert (f(x).item(), g(x).item(), h(x).item()) == (6, 3, 6)
    d = trace(with_default)
    assert d(x).item() == 2
    table["a"] = 7.0
    assert d(x).item() == 7


def test_python_float_arithmetic(trace: Any) -> None:
    def program(x: hm.Tensor, lr: float) -> Any:
        scaled = -lr
        scaled *= 3
        scaled = abs(scaled) ** 0.5 // 0.01 % 7
        return (
            x * scaled,
            scaled,
            hm.asarray(lr),
            hm.full((2,), lr),
            x.clone().fill_(lr),
            hm.tensor([lr, 1.0]),
        )

    f, x = trace(program), hm.asarray(X.astype(np.float64))
    for lr in (0.1, 0.7, 1e-9):
        for got, want in zip(f(x, lr), program(x, lr), strict=True):
            assert type(got) is type(want)
            np.testing.assert_array_equal(got, want)
            if isinstance(want, hm.Tensor):
                assert got.dtype is want.dtype
    assert f.cache_info().compiles == 1


def test_default_dtype_is_part_of_the_signature(trace: Any) -> None:
    f, x = trace(lambda x: hm.zeros((2,)) + x), hm.tensor([1, 2])
    for _ in range(3):
        assert f(x).dtype is hm.float32
    hm.set_default_dtype(hm.float64)
    try:
        for _ in range(3):
            assert f(x).dtype is hm.float64
    finally:
        hm.set_default_dtype(hm.float32)
    assert f(x).dtype is hm.float32 and f.cache_info().compiles == 2


def test_nested_functions_inline(trace: Any) -> None:
    inner = trace(lambda x: x * 2)
    outer = trace(lambda x: inner(x) + 1)
    assert outer(hm.tensor([1.0])).tolist() == [3]
    assert inner.cache_info().compiles == 0


def test_a_function_that_has_run_often_is_part_of_another(trace: Any) -> None:
    state, rate = hm.zeros(2), [0.5]

    def updates(x: hm.Tensor) -> hm.Tensor:
        state.add_(x)
        return state * 1

    def branches(x: hm.Tensor) -> hm.Tensor:
        return x * hm.rand((2,)) if x.sum() > 0 else x

    def divides(x: hm.Tensor, n: float) -> hm.Tensor:
        return x / n * rate[0]

    def run(*inner: Any) -> list[Any]:
        state.copy_(hm.zeros(2))
        hm.manual_seed(0)
        x, (f, g, h), outer = hm.ones(2), inner, lambda x: f(x) + g(x) + h(x, 4.0)
        for k in range(6):
            rate[0] = 0.5 + (k > 2)
            f(x), g(x), h(x, 2.0 + k)
        outer = outer if inner[0] is updates else trace(outer)
        return [outer(x).tolist() for _ in range(3)] + [state.tolist()]

    expected = run(updates, branches, divides)
    np.testing.assert_allclose(np.asarray(run(trace(updates), trace(branches), trace(divides))), expected, rtol=1e-6)


def test_numpy_functions_trace(trace: Any) -> None:
    f = trace(lambda x: np.sum(np.sqrt(np.abs(x)) * np.float32(2), axis=0))
    same(f(hm.asarray(X)), hm.sum(hm.sqrt(hm.abs(hm.asarray(X))) * 2, axis=0))


def test_without_source(trace: Any) -> None:
    space: dict[str, Any] = {"hm": hm}
    exec("def f(x):\n    return hm.exp(x) + 1", space)
    same(trace(space["f"])(hm.asarray(X)), hm.exp(hm.asarray(X)) + 1)


def test_threads(trace: Any) -> None:
    def program(x: hm.Tensor, n: int) -> hm.Tensor:
        for _ in range(n):
            x = x * 2 + 1
        return x

    f, wrong = trace(program), []

    def work(k: int) -> None:
        try:
            for n in range(1, 4):
                for _ in range(20):
                    x = hm.full((5,), float(k))
                    if not np.array_equal(f(x, n), program(x, n)):
                        wrong.append((k, n))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and f.cache_info().compiles == 3


def test_what_it_shows() -> None:
    @hm.trace
    def chain(x: hm.Tensor) -> hm.Tensor:
        "Doc."
        return x * 2 + 1

    with pytest.raises(hm.ArgumentError, match="has not been called"):
        _ = chain.ir
    chain(hm.asarray(X))
    assert "multiply" in chain.ir and chain.ir.startswith("graph chain(") and "define" in chain.llvm
    stats = chain.stats
    assert stats.kernels == 1 and stats.bytes == 96 and stats.codegen_ms > 0
    assert stats.first_ms > stats.trace_ms + stats.passes_ms + stats.codegen_ms  # what the caller waited for
    assert chain.__doc__ == "Doc." and chain.__name__ == "chain" and "1 compiled" in repr(chain)


@hm.trace
def module_level(x: hm.Tensor) -> hm.Tensor:
    return x + 1


def test_pickling() -> None:
    assert pickle.loads(pickle.dumps(module_level)) is module_level
    model = hm.trace(hm.nn.Linear(4, 2))
    other = copy.deepcopy(model)
    with hm.no_grad():
        other.weight.zero_()
    with hm.no_grad():
        assert not np.array_equal(model(hm.asarray(X)), other(hm.asarray(X)))


def test_bad_arguments() -> None:
    with pytest.raises(hm.ArgumentError, match="backend must be one of"):
        hm.trace(lambda x: x, backend="tpu")
    with pytest.raises(hm.ArgumentError, match="takes a function or a module, got int"):
        hm.trace(3)

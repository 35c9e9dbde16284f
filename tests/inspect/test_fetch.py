"""Partial execution: any value of a traced function, from any others, without the call."""

from __future__ import annotations

import contextlib
import inspect
import types
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.specialize import path_tree

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def make(backend: str = "llvm") -> tuple[Any, hm.nn.Module, list[float]]:
    hm.manual_seed(0)
    model, seen = hm.nn.Linear(4, 2), []

    @hm.trace(backend=backend)
    def step(x: hm.Tensor, scale: float) -> hm.Tensor:
        hidden = model(x)
        noisy = hidden + hm.random.randn(3, 2)
        activated = hm.tanh(noisy) * scale
        loss = (activated**2).mean()
        loss.backward()
        with hm.no_grad():
            model.bias.sub_(1.0)
        seen.append(loss.item())
        return loss

    return step, model, seen


@pytest.mark.parametrize("backend", ["llvm", "interpret"])
def test_names(backend: str) -> None:
    step, model, _ = make(backend)
    x = hm.tensor(X)
    hidden, weight, given, scale = step.run(x, 0.5, fetch=["hidden", "model.weight", "x", "scale"])
    np.testing.assert_array_equal(np.asarray(given), X)
    np.testing.assert_array_equal(np.asarray(weight), np.asarray(model.weight.detach()))
    np.testing.assert_allclose(np.asarray(hidden), np.asarray(model(x).detach()), rtol=1e-5, atol=1e-6)
    assert scale.item() == 0.5 and not hidden.requires_grad
    line = inspect.getsourcelines(step._fn)[1] + 4  # hm.tanh
    by_line = step.run(x, 0.5, fetch=line)
    assert by_line.tolist() == step.run(x, 0.5, fetch=f"test_fetch.py:{line}").tolist()
    assert by_line.tolist() == step.run(x, 0.5, fetch=f"{__file__}:{line}").tolist()
    assert by_line.tolist() == step.run(x, 0.5, fetch="activated").tolist()


def test_nothing_is_written() -> None:
    step, model, seen = make()
    x = hm.tensor(X)
    state = hm.random.default_generator.state.tolist()
    bias = model.bias.detach().tolist()
    first = step.run(x, 0.5, fetch="noisy").tolist()
    assert step.run(x, 0.5, fetch="noisy").tolist() == first  # the generator has not moved
    assert model.bias.detach().tolist() == bias and model.weight.grad is None and not seen
    assert hm.random.default_generator.state.tolist() == state
    step(x, 0.5)
    assert model.bias.detach().tolist() != bias and model.weight.grad is not None and len(seen) == 1


def test_feed() -> None:
    step, _, _ = make()
    x, noisy = hm.tensor(X), np.full((3, 2), 0.25, np.float32)
    fed = step.run(x, 2.0, fetch=["activated", "loss", "noisy"], feed={"noisy": noisy})
    np.testing.assert_array_equal(np.asarray(fed[0]), np.asarray(hm.tanh(hm.tensor(noisy)) * 2.0))
    assert np.array_equal(np.asarray(fed[2]), noisy) and fed[1].shape == ()
    assert step.run(x, 2.0, fetch="scale", feed={"scale": 3.0}).item() == 3.0
    changed = step.run(x, 2.0, fetch="hidden", feed={"model.weight": np.zeros((2, 4), np.float32), "x": x * 5})
    assert (np.asarray(changed) == np.asarray(changed)[0]).all()
    node = step.ir.partition("tanh(")[2].partition(")")[0]  # by the name of a node
    assert step.run(x, 2.0, fetch=node, feed={node: noisy}).tolist() == noisy.tolist()


def test_only_what_is_needed_runs() -> None:
    @hm.trace
    def f(x: hm.Tensor, k: hm.Tensor) -> hm.Tensor:
        good = x * 2
        return hm.take(good, k, axis=0)

    x, k = hm.tensor(X), hm.tensor(np.array([7]))
    assert f.run(x, k, fetch="good").tolist() == (X * 2).tolist()
    with pytest.raises(hm.OutOfBoundsError):
        f(x, k)


def test_branches_sizes_and_orders() -> None:
    @hm.trace
    def f(x: hm.Tensor) -> hm.Tensor:
        total = x.sum()
        if total > 0:
            up = x + 1
            return up * total
        down = x - 1
        return down * total

    for n in (2, 3, 5, 7):
        x = hm.ones((n, 4))
        assert f.run(x, fetch="up").tolist() == (x + 1).tolist()
        f(x)
    assert f.run(-hm.ones((2, 4)), fetch="down").tolist() == [[-2.0] * 4] * 2
    with pytest.raises(hm.ArgumentError, match="no value is called 'down'"):
        f.run(hm.ones((2, 4)), fetch="down")
    turned = hm.tensor(X).T
    assert f.run(turned, fetch="x").tolist() == X.T.tolist()
    assert f.run(turned, fetch="up", feed={"x": np.zeros((4, 3), np.float32), "total": 1.0}).tolist() == [[1.0] * 3] * 4


def test_errors() -> None:
    step, _, _ = make()
    x = hm.tensor(X)
    with pytest.raises(hm.ArgumentError, match=r"'hiden'.*\(hidden"):
        step.run(x, 0.5, fetch="hiden")
    with pytest.raises(hm.ArgumentError, match=r"'q'; names are those .*\((?=.*hidden).*loss"):
        step.run(x, 0.5, fetch="q")
    for wrong in (None, 2.5, ["loss", None]):
        with pytest.raises(hm.ArgumentError, match="run: fetch is a name, a line number or a list of them, got"):
            step.run(x, 0.5, fetch=wrong)
    with pytest.raises(hm.ArgumentError, match="line 3 computes nothing"):
        step.run(x, 0.5, fetch=3)
    with pytest.raises(hm.ShapeError, match=r"feed of 'hidden': the value is f32\[3,2\], got .* \(2, 3\)"):
        step.run(x, 0.5, fetch="loss", feed={"hidden": np.zeros((2, 3), np.float32)})
    with pytest.raises(hm.DTypeError, match="astype"):
        step.run(x, 0.5, fetch="loss", feed={"hidden": np.zeros((3, 2))})


def test_variables_hold_what_they_hold_in_python() -> None:
    def program(a: hm.Tensor, size: float) -> Any:
        c = a + 1
        d = c * 10
        y = a * 1
        y[0] = 7
        p, (q, *rest) = a * 2, [a * 3, a * 4]
        if (w := a.sum()) > 2:
            z = a + size
        else:
            z = a - size
        for h in (p, q):
            last = h
        s = 0.0
        s += d
        kept = p
        del p
        with hm.no_grad() as nothing, contextlib.nullcontext(q * 2) as inside:
            scaled = inside / 2

        def helper(u: hm.Tensor) -> hm.Tensor:
            inner = u * 5
            return inner + 1

        called = helper(a)
        number = w.item()
        hidden.update(locals())
        return z * number, y, s, called, rest, kept, last, nothing, scaled

    x, hidden = hm.tensor([1.0, 2.0]), dict[str, Any]()
    program(x, 100.0)
    names = [name for name, value in hidden.items() if isinstance(value, hm.Tensor)]
    assert len(names) >= 14
    expected = {name: hidden[name].tolist() for name in names}
    traced = hm.trace(_without_effects(program))
    found = traced.run(x, 100.0, fetch=names)
    assert {name: value.tolist() for name, value in zip(names, found, strict=True)} == expected
    assert traced.run(x, 100.0, fetch="inner").tolist() == (x * 5).tolist()
    assert traced.run(x, 100.0, fetch="number").item() == 3.0
    assert traced.run(x, 100.0, fetch="p").tolist() == (x * 2).tolist()  # deleted later
    assert traced.cache_info().compiles == 1 and traced.run(x, 100.0, fetch="d", feed={"c": x}).tolist() == [10.0, 20.0]


def _without_effects(program: Any) -> Any:
    """The function without its `hidden.update`."""

    class Nothing:
        def update(self, *_: Any) -> None:
            pass

    cells = dict(zip(program.__code__.co_freevars, program.__closure__, strict=True))
    cells["hidden"] = types.CellType(Nothing())
    return types.FunctionType(program.__code__, program.__globals__, "program", None, tuple(cells.values()))


def test_fed_values_that_steer(monkeypatch: pytest.MonkeyPatch) -> None:
    @hm.trace
    def f(x: hm.Tensor) -> hm.Tensor:
        total = x.sum()
        if total > 0:
            found = x + 100
        else:
            found = x - 100
        while abs(found).max() > 1.0:
            found = found / 2
        return found

    def plain(x: hm.Tensor, sign: float) -> Any:
        found = x + sign * 100
        while abs(found).max() > 1.0:
            found = found / 2
        return found.tolist()

    x = hm.tensor([1.0, 2.0])
    assert f.run(x, fetch="found").tolist() == plain(x, 1)
    assert f.run(x, fetch="found", feed={"total": -1.0}).tolist() == plain(x, -1)
    assert f.run(x, fetch="found", feed={"x": x * -3}).tolist() == plain(x * -3, -1)
    assert f.run(x, fetch=["found", "total"], feed={"total": 2.0})[0].tolist() == plain(x, 1)
    assert f.run(x, fetch="found").tolist() == plain(x, 1) and f.cache_info().compiles == 1
    monkeypatch.setattr(path_tree, "MOST_ASKED", 30)
    with pytest.raises(hm.TraceError, match="asks for more than"):
        f.run(x, fetch="x", feed={"found": x * 10})  # a loop that never ends
    with pytest.raises(hm.ShapeError, match="feed of 'total'"):
        f.run(x, fetch="found", feed={"total": np.ones(3, np.float32)})

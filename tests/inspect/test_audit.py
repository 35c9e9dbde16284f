"""`audit` and `trace(check=...)` find wrong code, wherever it is planted, and nothing in right code."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.specialize.errors import TraceWarning
from hybridml_compiler import passes
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS

X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)
# What is compiled wrong stays known for this process: sizes that no other test has.
WRONG = np.linspace(-1, 1, 111, dtype=np.float32).reshape(3, 37)
FUSED = np.linspace(-1, 1, 145, dtype=np.float32).reshape(5, 29)


@pytest.fixture
def wrong_cos(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Compiled code of `cos` computes `sin`."""
    monkeypatch.setenv("HYBRIDML_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(OPS["cos"], "lower", OPS["sin"].lower)
    return None


def program(x: hm.Tensor) -> hm.Tensor:
    y = hm.exp(x) * 2
    z = hm.cos(y) + 1
    return z.sum(axis=1) * 3


def test_right_code() -> None:
    hm.manual_seed(0)
    model = hm.nn.Sequential(hm.nn.Linear(16, 8), hm.nn.LayerNorm(8), hm.nn.Dropout(0.5), hm.nn.Linear(8, 3))
    optimizer, target = hm.optim.Adam(model.parameters(), lr=0.1), hm.tensor([0, 1, 2, 0])

    def step(x: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = hm.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    weight, state = np.asarray(model[0].weight.detach()).copy(), hm.random.default_generator.state.tolist()
    found = hm.audit(step, hm.tensor(X))
    assert found and found.first is None and found.operations > 100 and found.state.count > 8
    assert np.array_equal(np.asarray(model[0].weight.detach()), weight)
    assert hm.random.default_generator.state.tolist() == state
    assert "agree" in repr(found) and found.to_dict()["first"] is None


def test_questions_and_sizes() -> None:
    def f(x: hm.Tensor) -> hm.Tensor:
        y = hm.tanh(x)
        return y + 1 if y.sum() > 0 else y.T @ y

    assert hm.audit(f, hm.tensor(X)) and hm.audit(f, hm.tensor(X - 3))


@pytest.mark.usefixtures("wrong_cos")
def test_a_wrong_kernel_is_named() -> None:
    found = hm.audit(program, hm.tensor(WRONG))
    assert not found and found.first is not None and not found.within
    assert found.first.op == "cos" and "z = hm.cos(y) + 1" in found.first.where and found.first.nearer == "eager"
    assert "cos of f32[3,37] at test_audit.py" in repr(found)


def test_a_wrong_fusion_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HYBRIDML_CACHE_DIR", str(tmp_path))
    real = passes.run_passes

    def plant(graph: ir.Graph, **options: Any) -> Any:
        made, *rest = real(graph, **options)
        if len(graph.outputs) > 1:  # each operation for itself is right
            return (made, *rest)
        new: dict[ir.Node, ir.Node] = {}
        for n in made.nodes():
            op = OPS["subtract"] if n.op is not None and n.op.name == "add" else n.op
            new[n] = n if op is None else ir.apply(op, [new[i] for i in n.inputs], n.params, n.where)
        return (ir.Graph(made.inputs, tuple(new[n] for n in made.outputs), made.name), *rest)

    monkeypatch.setattr(passes, "run_passes", plant)
    found = hm.audit(program, hm.tensor(FUSED))
    assert found.first is not None and found.first.op == "add" and found.first.fused
    assert "z = hm.cos(y) + 1" in found.first.where


@pytest.mark.usefixtures("wrong_cos")
@pytest.mark.parametrize("check", ["first", 2, "always"])
def test_checks(check: Any) -> None:
    total = hm.zeros((3,))

    @hm.trace(check=check)
    def f(x: hm.Tensor) -> hm.Tensor:
        out = program(x)
        total.add_(out)
        return out

    x = hm.tensor(WRONG)
    right = np.asarray(program(x))
    if check == 2:
        f(x)
        total.fill_(0.0)
    with pytest.warns(TraceWarning, match=r"the first is cos of f32\[3,37\] at test_audit.py.*z = hm.cos"):
        out = f(x)
    np.testing.assert_array_equal(np.asarray(out), right)
    np.testing.assert_array_equal(np.asarray(total), right)


def test_checks_of_right_code_say_nothing() -> None:
    model = hm.nn.Linear(16, 3)
    optimizer = hm.optim.SGD(model.parameters(), lr=0.1)
    seen: list[float] = []

    def step(x: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = (hm.exp(model(x)) ** 2).mean() + hm.random.rand().sum() * 0
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
        return loss

    for check in ("first", 3, "always"):
        seen.clear()
        traced = hm.trace(step, check=check)
        for _ in range(6):
            traced(hm.tensor(X))
        assert len(seen) == 6 and seen == sorted(seen, reverse=True)
    with pytest.raises(hm.ArgumentError, match="check"):
        hm.trace(step, check="sometimes")


@pytest.mark.usefixtures("wrong_cos")
def test_strict_checks_raise() -> None:
    with pytest.raises(hm.TraceError, match="cos"):
        hm.trace(program, check="first", strict=True)(hm.tensor(WRONG))


def test_iterators() -> None:
    x = hm.ones((4,))
    numbers, ways = [1.0, 2.0, 3.0, 4.0], (iter, map)
    for way in ways:
        taken = way(numbers) if way is iter else way(float, iter(numbers))
        with pytest.warns(UserWarning, match="run eagerly"):
            assert hm.trace(lambda x, taken=taken: x * next(taken), check="first")(x).tolist() == [1.0] * 4
        assert next(taken) == 2.0  # the check has put it back
    for given in (iter(numbers), itertools.count(1.0), (float(k) for k in range(1, 9))):
        with pytest.warns(UserWarning, match="run eagerly"):
            found = hm.audit(lambda x, taken=given: x * next(taken), x)
        assert found and "such calls run eagerly" in repr(found)


def test_checks_take_no_items() -> None:
    for taken in (iter([1.0, 2.0, 3.0]), itertools.count(1.0)):
        f = hm.trace(lambda x, taken=taken: x * next(taken), check="always")
        with pytest.warns(UserWarning, match="run eagerly"):
            assert [f(hm.ones((1,))).item() for _ in range(3)] == [1.0, 2.0, 3.0]

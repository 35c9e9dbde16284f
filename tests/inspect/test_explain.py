"""`explain` shows what a call runs, and changes nothing."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import hybridml as hm

DEPTH = 2


class Settings:
    def __init__(self) -> None:
        self.depth, self.mode = 2, "train"


def test_a_training_step() -> None:
    model = hm.nn.Sequential(hm.nn.Linear(4, 8), hm.nn.ReLU(), hm.nn.Linear(8, 1))
    optimizer = hm.optim.Adam(model.parameters(), lr=0.1)
    settings, losses = Settings(), []

    @hm.trace
    def step(x: hm.Tensor, scale: float) -> hm.Tensor:
        optimizer.zero_grad()
        hidden = model(x) * scale
        for _ in range(settings.depth * DEPTH):
            hidden = hm.sin(hidden)
        loss = (hidden**2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        return loss

    x = hm.ones((3, 4))
    weight = np.asarray(model[0].weight.detach()).copy()
    found = step.explain(x, 0.5)
    assert np.array_equal(np.asarray(model[0].weight.detach()), weight) and not losses
    assert model[0].weight.grad is None
    for _ in range(3):
        step(x, 0.5)
    found = hm.explain(step, x, 0.5)
    captured = {line.name: line.use for line in found.captured}
    assert captured["model[0].weight"] == "written and gradient set"
    assert captured["optimizer.state[model[0].weight]['exp_avg']"] == "written"
    guards = {guard.name: (guard.value, guard.where) for guard in found.guards}
    assert guards["settings.depth"][0] == "2" and "for _ in range" in guards["settings.depth"][1]
    assert guards["DEPTH"][0] == "2"
    assert "scale" in found.lifted and found.calls == 4 and not found.eager
    assert [(e.name, e.when) for e in found.effects] == [("losses", "done by every call")]
    assert any("model(x) * scale" in line for kernel in found.kernels for line in kernel.lines)
    assert all(kernel.reasons or kernel.kind == "copy" for kernel in found.kernels)
    assert found.kernels and sum(line.bytes for line in found.lines) > 0
    assert '"model[0].weight"' in found.ir and '"model[0].weight"' in step.ir
    text = repr(found)
    for part in ("captured state", "guards", "kernels (", "cost of the user's lines", "losses.append"):
        assert part in text
    assert json.loads(json.dumps(found.to_dict()))["schema"] == 1
    assert "<details" in found._repr_html_() and repr(step.explain()).startswith("step: 1 compiled program")


def test_parameters_go_by_the_module_and_not_by_a_place_in_a_list() -> None:
    block = hm.nn.Sequential(hm.nn.Sequential(hm.nn.Sequential(hm.nn.Linear(4, 4))))
    model = hm.nn.Sequential(hm.nn.Sequential(block), hm.nn.Linear(4, 1))
    optimizer = hm.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    parameters, outside = list(model.parameters()), [hm.ones((4,)), {"bias": hm.zeros(())}]

    @hm.trace
    def step(x: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = (model(x * outside[0]) + outside[1]["bias"]).sum()
        loss.backward()
        hm.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss

    names = [line.name for line in hm.explain(step, hm.ones((3, 4))).captured]
    assert {"model[0][0][0][0][0].weight", "model[1].bias", "outside[0]", "outside[1]['bias']"} <= set(names)
    assert "optimizer.state[model[0][0][0][0][0].bias]['momentum_buffer']" in names
    assert not [name for name in names if name.startswith("parameters") or "['params']" in name]


@pytest.mark.filterwarnings("ignore:f does print")
def test_paths_and_retraces() -> None:
    @hm.trace
    def f(x: hm.Tensor, n: int) -> hm.Tensor:
        if x.sum() > 0:
            print("up")
            return x * n
        return x - n

    for value in (1.0, -1.0):
        f(hm.full((3,), value), 2)
    paths = f.explain(hm.ones((3,)), 2).paths
    f(hm.ones((3,)), 3)
    found = f.explain(hm.ones((3,)), 3)
    assert [(p.depth, p.text.partition(" of ")[0]) for p in paths] == [
        (0, "bool()"), (1, "True:"), (2, "a program"), (1, "False:"), (2, "a program"),
    ]  # fmt: skip
    assert "if x.sum() > 0" in paths[0].where
    assert found.retraces == f.retraces and any("n 2 -> 3" in line for line in found.retraces)
    assert [(e.name, e.when) for e in found.effects] == [("print", "done by every call")]


def test_sizes() -> None:
    f = hm.trace(lambda x: hm.exp(x[:-1]) + 1)
    for n in (4, 6, 9):
        f(hm.ones((n, 2)))
    found = f.explain(hm.ones((7, 2)))
    assert found.symbols == ("size of axis 0 of x",) and all(">=" in s.condition or s for s in found.sizes)
    assert f.cache_info().compiles == 2
    assert f.explain().symbols == ("n",), "of the last call, whose arguments are gone"


def test_plain_functions_and_modules() -> None:
    model = hm.nn.Linear(3, 2)
    for fn in (model, lambda x: model(x), hm.trace(hm.nn.Linear(3, 2))):
        found = hm.explain(fn, hm.ones((4, 3)))
        assert len(found.captured) == 2 and found.kernels


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_calls_that_run_eagerly() -> None:
    def make(base: np.ndarray) -> Any:
        def f(x: hm.Tensor) -> hm.Tensor:
            x.add_(1)
            return x * base.sum()

        return f

    frozen = hm.asarray(np.broadcast_to(np.float32(1), (3,)))
    found = hm.explain(make(np.ones(3)), frozen)
    assert "read-only" in found.eager and "run eagerly" in repr(found)


def test_profile_and_explain_count_the_same_operations() -> None:
    def f(a: hm.Tensor, b: hm.Tensor) -> hm.Tensor:
        return hm.tanh(a @ b).sum(axis=0)

    a, b = hm.ones((6, 8, 4)), hm.ones((6, 4, 16))  # a batch of products
    counted = sum(row.flops for row in hm.profile(f, a, b).operations)
    assert sum(kernel.flops for kernel in hm.explain(f, a, b).kernels) == counted == 6 * 8 * 16 * (2 * 4 + 1 + 1)


def test_cost_of_loops() -> None:
    def f(x: hm.Tensor, w: hm.Tensor) -> hm.Tensor:
        h = hm.zeros((8, 8))
        for k in range(40):
            h = hm.tanh(h @ w + x[k])
        return h * 2

    found = hm.explain(f, hm.ones((40, 8, 8)), hm.ones((8, 8)))
    line = found.lines[0]
    assert (
        "hm.tanh(h @ w" in line.where
        and line.flops > 40 * 2 * 8**3
        and line.ns > 0.9 * sum(k.ns for k in found.kernels)
    )


def test_a_function_that_raises_has_no_program() -> None:
    @hm.trace
    def fails(x: hm.Tensor) -> hm.Tensor:
        raise ValueError("mine")

    found = str(fails.explain(hm.ones(3)))
    assert "cannot be traced (ValueError: mine" in found and "run eagerly" in found

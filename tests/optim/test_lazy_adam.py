"""Lazy Adam: rows without a gradient stay as they are; moments are those of steps on all rows."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn, optim

ROWS, WIDTH = 4096, 5
STEPS = 8
FORMS = [(style, sparse) for style in ("eager", "traced") for sparse in (True, False)]


def bits(*tensors: Any) -> str:
    return hashlib.sha1(b"".join(t.detach().numpy().tobytes() for t in tensors)).hexdigest()


def table(sparse: bool, rows: int = ROWS) -> nn.Embedding:
    hm.manual_seed(0)
    return nn.Embedding(rows, WIDTH, sparse=sparse)


def batches(steps: int = STEPS) -> list[tuple[hm.Tensor, hm.Tensor]]:
    """Look-ups of the first 40 rows, some of them twice, and the gradient of each."""
    rng = np.random.default_rng(0)
    drawn = [rng.choice(np.r_[:40, :40], 12, False) for _ in range(steps)]
    return [(hm.asarray(i), hm.asarray(rng.standard_normal((12, WIDTH)).astype("f4"))) for i in drawn]


def train(model: nn.Embedding, opt: optim.Optimizer, style: str, given: Any, linear: bool = True) -> Any:
    def step(i: hm.Tensor, g: hm.Tensor) -> None:
        opt.zero_grad()
        rows = model(i) if linear else hm.sin(model(i)) ** 2
        (rows * g).sum().backward()
        opt.step()

    f = hm.trace(step) if style == "traced" else step
    for i, g in given:
        f(i, g)
    return f


def state_of(opt: optim.Optimizer) -> dict[str, Any]:
    return opt.state_dict()["state"][0]


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (optim.Adam, {}), (optim.Adam, {"amsgrad": True}), (optim.Adam, {"weight_decay": 0.1, "maximize": True}),
        (optim.AdamW, {"weight_decay": 0.1}),
    ],
)  # fmt: skip
def test_all_forms_have_the_same_bits(make: Any, settings: dict[str, Any]) -> None:
    found = []
    for style, sparse in FORMS:
        model = table(sparse)
        opt = make(model.parameters(), lr=0.05, lazy=True, **settings)
        before = model.weight.detach().clone()
        train(model, opt, style, batches(), linear=False)
        state = state_of(opt)
        found.append(bits(model.weight, *[state[name] for name in sorted(state)]))
        assert bits(model.weight[40:]) == bits(before[40:]) and not state["exp_avg_sq"][40:].numpy().any()
    assert len(set(found)) == 1


@pytest.mark.parametrize(("style", "sparse"), FORMS)
def test_moments_are_those_of_steps_on_all_rows(style: str, sparse: bool) -> None:
    lazy, dense = table(sparse), table(False)
    given = batches()
    opts = [optim.Adam(lazy.parameters(), lr=0.05, lazy=True), optim.Adam(dense.parameters(), lr=0.05)]
    train(lazy, opts[0], style, given)
    train(dense, opts[1], "eager", given)
    last = np.zeros(ROWS, "i8")
    for step, (i, _) in enumerate(given, 1):
        last[i.numpy()] = step
    own, whole = map(state_of, opts)
    assert own["last_step"].tolist() == last.tolist() and len(set(last)) > 4
    for name, beta in (("exp_avg", 0.9), ("exp_avg_sq", 0.999)):
        now = own[name].numpy() * beta ** (STEPS - last)[:, None]  # what the rows have missed since
        np.testing.assert_allclose(now, whole[name].numpy(), rtol=2e-6, atol=1e-9)
    # The first step of a row is dense Adam's, to the bit; later its way in between is missing.
    model, other = table(sparse), table(False)
    train(model, optim.Adam(model.parameters(), lazy=True), style, given[:1])
    train(other, optim.Adam(other.parameters()), "eager", given[:1])
    assert bits(model.weight) == bits(other.weight)


@pytest.mark.parametrize("style", ["eager", "traced"])
def test_rows_that_all_have_gradients_are_dense_adams(style: str) -> None:
    found = []
    for lazy in (False, True):
        hm.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        scale = hm.tensor(1.5, requires_grad=True)
        opt = optim.AdamW([*model.parameters(), scale], lr=0.1, lazy=lazy)
        x = hm.asarray(np.random.default_rng(0).standard_normal((6, 3)).astype("f4"))

        def step(model: Any = model, opt: Any = opt, scale: Any = scale, x: Any = x) -> None:
            opt.zero_grad()
            (model(x) * scale).square().mean().backward()
            opt.step()

        f = hm.trace(step) if style == "traced" else step
        for _ in range(3):
            f()
        found.append(bits(*model.parameters(), scale))
    assert found[0] == found[1]


def test_complex_and_one_axis_tables() -> None:
    for start in (np.arange(6) * (1 + 1j), np.arange(6.0)):
        w = hm.tensor(start, requires_grad=True)
        opt = optim.Adam([w], lr=0.5, lazy=True)
        for _ in range(2):
            opt.zero_grad()
            (w[2:4] * w[2:4]).abs().sum().backward()
            opt.step()
        assert (w.detach().numpy() != start).tolist() == [False, False, True, True, False, False]


@pytest.mark.parametrize(("style", "sparse"), FORMS)
def test_resumed(style: str, sparse: bool) -> None:
    given = batches()
    one = table(sparse)
    opt = optim.Adam(one.parameters(), lr=0.05, lazy=True)
    train(one, opt, style, given[:4])
    other = copy.deepcopy(one)
    twin = optim.Adam(other.parameters(), lazy=True)
    twin.load_state_dict(copy.deepcopy(opt.state_dict()))
    train(one, opt, style, given[4:])
    train(other, twin, style, given[4:])
    assert bits(one.weight, *state_of(opt).values()) == bits(other.weight, *state_of(twin).values())


def test_from_dense_to_lazy_and_back() -> None:
    given = batches()
    model, dense = table(False), table(False)
    opt, whole = optim.Adam(model.parameters()), optim.Adam(dense.parameters())
    train(model, opt, "eager", given[:2])
    # A state without steps of rows, as PyTorch's, which does not say whether it is lazy.
    saved = copy.deepcopy(opt.state_dict())
    del saved["param_groups"][0]["lazy"]
    other = copy.deepcopy(model)
    loaded = optim.Adam(other.parameters(), lazy=True)
    loaded.load_state_dict(saved)
    opt.param_groups[0]["lazy"] = True
    train(model, opt, "traced", given[2:5])
    train(other, loaded, "eager", given[2:5])
    assert bits(model.weight, *state_of(opt).values()) == bits(other.weight, *state_of(loaded).values())
    opt.param_groups[0]["lazy"] = False
    train(model, opt, "traced", given[5:6])
    train(dense, whole, "eager", given[:6])
    for name in ("exp_avg", "exp_avg_sq"):
        np.testing.assert_allclose(state_of(opt)[name].numpy(), state_of(whole)[name].numpy(), rtol=1e-6, atol=1e-9)
    assert set(state_of(opt)["last_step"].tolist()) == {6}


def test_a_traced_step_touches_the_rows_alone() -> None:
    model = table(False)
    f = train(model, optim.Adam(model.parameters(), lazy=True), "traced", batches())
    graph = f._shown().program.executable.ir
    written = [line for line in graph.splitlines() if "scatter_set" in line and f"[{ROWS}" in line]
    assert len(written) == 4  # the table, its moments and their steps


def test_a_sparse_gradient_without_lazy() -> None:
    model = table(True)
    model(hm.asarray([1])).sum().backward()
    with pytest.raises(hm.GradientError, match="please consider SparseAdam instead, or lazy=True"):
        optim.Adam(model.parameters()).step()

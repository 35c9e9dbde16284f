"""Sparse gradients of tables: what they are, who takes them, and that steps are those of dense ones, bit by bit."""

from __future__ import annotations

import copy
import hashlib
import warnings
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import functional as F
from hybridml import nn, optim
from hybridml.core.autodiff.sparse import SparseGradient
from hybridml_compiler.compile_policy import WORTH_ROWS

ROWS, WIDTH = 50, 5
LARGE = 4096  # rows of a table that a traced step updates row by row
STYLES = ("eager", "traced")


def bits(t: Any) -> str:
    """A digest of every bit, in which any nan is the same."""
    array = t.detach().numpy()
    return hashlib.sha1(np.where(np.isnan(array), np.nan, array).tobytes()).hexdigest()


def table(rows: int = ROWS, **settings: Any) -> nn.Embedding:
    hm.manual_seed(0)
    return nn.Embedding(rows, WIDTH, **settings)


def batches(rows: int = ROWS, n: int = 12, count: int = 6) -> list[hm.Tensor]:
    rng = np.random.default_rng(0)
    found = rng.integers(0, rows, (count, n))
    found[1:, 5:8] = found[1:, :1]  # rows that are looked up several times, but for the first batch
    return [hm.asarray(row) for row in found]


def trained(style: str, model: nn.Embedding, opt: optim.Optimizer, rows: int = ROWS, clip: float = 0.0) -> list[float]:
    def step(i: hm.Tensor) -> hm.Tensor:
        opt.zero_grad()
        loss = (hm.sin(model(i)) ** 2).sum()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        opt.step()
        return loss

    f = hm.trace(step) if style == "traced" else step
    return [f(i).item() for i in batches(rows)]


def gradient_of(*looked_up: Any, rows: int = 4, sparse: bool = True) -> Any:
    w = hm.tensor(np.arange(rows * 3.0).reshape(rows, 3), requires_grad=True)
    for i in looked_up:
        (F.embedding(hm.asarray(i), w, sparse=sparse) ** 2).sum().backward()
    return w.grad


def test_a_gradient_has_the_rows_that_were_looked_up() -> None:
    g = gradient_of([3, 1, 3])
    assert g.is_sparse and (g.shape, g.dtype, g.sparse_dim(), g.dense_dim()) == ((4, 3), hm.float64, 1, 1)
    assert not g.is_coalesced() and g._nnz() == 3 and g._indices().tolist() == [[3, 1, 3]]
    for name in ("indices", "values"):
        with pytest.raises(RuntimeError, match=f"Cannot get {name} on an uncoalesced"):
            getattr(g, name)()
    once = g.coalesce()
    assert once.is_coalesced() and once.indices().tolist() == [[1, 3]]
    dense = gradient_of([3, 1, 3], sparse=False)
    assert not dense.is_sparse
    assert once.values().tolist() == dense.numpy()[[1, 3]].tolist()
    assert bits(g.to_dense()) == bits(once.to_dense()) == bits(dense)


def test_gradients_add_up() -> None:
    assert bits(gradient_of([1, 2], [2, 0]).to_dense()) == bits(gradient_of([1, 2, 2, 0], sparse=False))
    g = gradient_of([1, 2])
    both = g + g
    assert both.is_sparse and both._nnz() == 4
    summed = g + hm.ones((4, 3), dtype=hm.float64)
    assert isinstance(summed, hm.Tensor) and bits(summed) == bits(g.to_dense() + 1)
    assert bits((g * 2.0).to_dense()) == bits((-g / -0.5).to_dense()) == bits(g.to_dense() * 2.0)
    with pytest.raises(hm.ShapeError, match="have no sum"):
        g + gradient_of([1], rows=5)
    for other in (np.ones((2, 3)), hm.ones((3,)), g):
        with pytest.raises(hm.ShapeError, match="scaled by numbers"):
            g * other
    with pytest.raises(AttributeError, match="to_dense"):
        g.sum()


def test_a_dense_gradient_and_a_sparse_one_are_dense() -> None:
    w = hm.ones((4, 3), requires_grad=True)
    (F.embedding(hm.asarray([1, 1]), w, sparse=True).sum() + w.sum()).backward()
    assert isinstance(w.grad, hm.Tensor) and w.grad.tolist() == [[1.0] * 3, [3.0] * 3, [1.0] * 3, [1.0] * 3]


def test_a_padding_row_has_no_gradient() -> None:
    for style in STYLES:
        model = table(padding_idx=-2, sparse=True)
        before = model.weight.detach().clone()

        def step(i: hm.Tensor, model: nn.Embedding = model) -> None:
            model(i).sum().backward()

        (hm.trace(step) if style == "traced" else step)(hm.asarray([[3, ROWS - 2], [3, 3]]))
        found = model.weight.grad.to_dense().numpy()
        assert found[3].tolist() == [3.0] * WIDTH and not found[ROWS - 2].any()
        assert bits(before) == bits(model.weight)


def test_assigned_dropped_and_zeroed() -> None:
    model = table(sparse=True)
    model(hm.asarray([1])).sum().backward()
    g = model.weight.grad
    model.zero_grad()
    assert model.weight.grad is None
    model.weight.grad = g
    assert model.weight.grad is g
    with pytest.raises(hm.ShapeError):
        model.weight.grad = gradient_of([1])
    model.zero_grad(set_to_none=False)
    assert model.weight.grad._nnz() == 0 and not model.weight.grad.to_dense().numpy().any()


def test_hooks_and_casts_see_it() -> None:
    model = table(sparse=True)
    model.weight.register_hook(lambda g: g * 2.0)
    model(hm.asarray([1, 4])).sum().backward()
    model.to(dtype=hm.float64)
    assert model.weight.grad.is_sparse and model.weight.grad.dtype == hm.float64
    assert model.weight.grad.coalesce().values().tolist() == [[2.0] * WIDTH] * 2


def test_gradients_of_gradients() -> None:
    w = hm.tensor(np.arange(12.0).reshape(4, 3), requires_grad=True)
    i = hm.asarray([1, 1, 2])
    (g,) = hm.autograd.grad((F.embedding(i, w, sparse=True) ** 3).sum(), w, create_graph=True)
    (second,) = hm.autograd.grad(g.to_dense().sum(), w)
    (g,) = hm.autograd.grad((F.embedding(i, w) ** 3).sum(), w, create_graph=True)
    assert bits(second.to_dense()) == bits(hm.autograd.grad(g.sum(), w)[0])


def test_transforms_and_computed_tables_have_dense_gradients() -> None:
    w = hm.tensor(np.arange(12.0).reshape(4, 3))
    i = hm.asarray([1, 1, 2])

    def loss(w: hm.Tensor, sparse: bool = True) -> hm.Tensor:
        return (F.embedding(i, w, sparse=sparse) ** 2).sum()

    wanted = bits(hm.grad(lambda w: loss(w, False))(w))
    assert bits(hm.grad(loss)(w)) == wanted
    assert bits(hm.trace(hm.grad(loss))(w)) == wanted
    leaf = hm.tensor(w, requires_grad=True)
    loss(leaf * 1.0).backward()
    assert bits(leaf.grad) == wanted
    recorded = hm.tensor(w, requires_grad=True)
    hm.trace(loss)(recorded).backward()
    assert bits(recorded.grad) == wanted
    rows = hm.vmap(lambda k: F.embedding(k, leaf, sparse=True))(i)
    assert bits(rows) == bits(F.embedding(i, leaf))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("with_offsets", [False, True])
def test_bags(mode: str, with_offsets: bool) -> None:
    i = hm.asarray([1, 3, 1, 0, 7]) if with_offsets else hm.asarray([[1, 3, 1], [0, 7, 3]])
    offsets = hm.asarray([0, 2]) if with_offsets else None
    found = []
    for sparse in (False, True):
        hm.manual_seed(0)
        model = nn.EmbeddingBag(ROWS, WIDTH, mode=mode, padding_idx=3, sparse=sparse)
        (model(i, offsets) ** 2).sum().backward()
        assert model.weight.grad.is_sparse is sparse
        found.append(bits(model.weight.grad.to_dense() if sparse else model.weight.grad))
    assert found[0] == found[1]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("make", "settings"), [(optim.SGD, {}), (optim.SGD, {"maximize": True}), (optim.Adagrad, {"lr_decay": 0.1})]
)
def test_steps_are_those_of_dense_gradients(style: str, make: Any, settings: dict[str, Any]) -> None:
    one, other = table(), table(sparse=True)
    losses = trained("eager", one, make(one.parameters(), lr=0.1, **settings))
    found = trained(style, other, make(other.parameters(), lr=0.1, **settings))
    np.testing.assert_allclose(found, losses, rtol=1e-6)
    assert bits(one.weight) == bits(other.weight)
    assert other.weight.grad.is_sparse and bits(other.weight.grad.to_dense()) == bits(one.weight.grad)


@pytest.mark.parametrize("rows", [ROWS, LARGE])
def test_sparse_adam_is_pytorchs_rule_in_both_styles(rows: int) -> None:
    model = table(rows, sparse=True)
    p = model.weight.detach().numpy().astype("f8")
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t, i in enumerate(batches(rows), 1):
        g = np.zeros_like(p)
        np.add.at(g, i.numpy(), np.sin(2 * p[i.numpy()]))
        k = np.unique(i.numpy())
        m[k] += (g[k] - m[k]) * (1 - 0.8)
        v[k] += (g[k] ** 2 - v[k]) * (1 - 0.9)
        p[k] -= 0.05 * np.sqrt(1 - 0.9**t) / (1 - 0.8**t) * m[k] / (np.sqrt(v[k]) + 1e-8)
    found = []
    for style in STYLES:
        model = table(rows, sparse=True)
        opt = optim.SparseAdam(model.parameters(), lr=0.05, betas=(0.8, 0.9))
        trained(style, model, opt, rows)
        state = opt.state_dict()["state"][0]
        assert sorted(state) == ["exp_avg", "exp_avg_sq", "step"] and float(state["step"]) == 6
        np.testing.assert_allclose(model.weight.detach().numpy(), p, rtol=1e-5, atol=1e-6)
        found.append((bits(model.weight), bits(state["exp_avg"]), bits(state["exp_avg_sq"])))
    assert found[0] == found[1]


def test_sparse_adam_goes_on_from_its_state() -> None:
    one = table(sparse=True)
    opt = optim.SparseAdam(one.parameters(), lr=0.05)
    trained("eager", one, opt)
    other = copy.deepcopy(one)
    twin = optim.SparseAdam(other.parameters())
    twin.load_state_dict(opt.state_dict())
    trained("eager", one, opt)
    trained("traced", other, twin)
    assert bits(one.weight) == bits(other.weight)


def test_who_takes_which_gradients() -> None:
    model = table(sparse=True)
    model(hm.asarray([1])).sum().backward()
    before = bits(model.weight)
    refused = {
        "Adam does not support sparse gradients": optim.Adam(model.parameters()),
        "RMSprop does not support sparse gradients": optim.RMSprop(model.parameters()),
        "momentum option is not compatible": optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        "weight_decay option is not compatible": optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1),
        "weight_decay option is not compatible with": optim.Adagrad(model.parameters(), weight_decay=0.1),
    }
    for words, opt in refused.items():
        with pytest.raises(RuntimeError, match=words):
            opt.step()
    with pytest.raises(RuntimeError, match="clip_grad_value_ does not support sparse"):
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
    model.weight.grad = model.weight.grad.to_dense()
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients"):
        optim.SparseAdam(model.parameters()).step()
    assert bits(model.weight) == before


@pytest.mark.parametrize("style", STYLES)
def test_norms_are_clipped_as_dense_ones(style: str) -> None:
    one, other = table(), table(sparse=True)
    trained("eager", one, optim.SGD(one.parameters(), lr=0.1), clip=0.5)
    trained(style, other, optim.SGD(other.parameters(), lr=0.1), clip=0.5)
    np.testing.assert_allclose(one.weight.detach().numpy(), other.weight.detach().numpy(), rtol=1e-6, atol=1e-7)


def test_tables_beside_dense_parameters() -> None:
    found = []
    for style, sparse in (("eager", False), ("eager", True), ("traced", True)):
        # A bias has a sum as its gradient, in any order.
        model, head = table(LARGE, sparse=sparse), nn.Linear(WIDTH, 3, bias=False)
        opt = optim.SGD([*head.parameters(), *model.parameters()], lr=0.1)

        def step(i: hm.Tensor, model: Any = model, head: Any = head, opt: Any = opt) -> None:
            opt.zero_grad()
            (head(model(i)) ** 2).sum().backward()
            opt.step()

        f = hm.trace(step) if style == "traced" else step
        for i in batches(LARGE):
            f(i)
        found.append((bits(model.weight), bits(head.weight), opt.state_dict()["state"][1]["step"].item()))
    assert found[0] == found[1] == found[2]


def test_rows_that_cannot_be_written_leave_all_as_it_was() -> None:
    model = table(sparse=True)
    array = np.ones((ROWS, WIDTH), np.float32)
    array.flags.writeable = False
    fixed = hm.from_numpy(array).requires_grad_()
    for weight in (model.weight, fixed):
        F.embedding(hm.asarray([1]), weight, sparse=True).sum().backward()
    before, opt = bits(model.weight), optim.SGD([model.weight, fixed], lr=0.1)
    with pytest.raises(ValueError, match="read-only, clone"):
        opt.step()
    assert bits(model.weight) == before and opt.state_dict()["state"][0]["step"].item() == 0


def test_a_scaler_takes_them() -> None:
    one, other = table(), table(sparse=True)
    for model in (one, other):
        opt, scaler = optim.SGD(model.parameters(), lr=0.1), hm.amp.GradScaler(init_scale=8.0)
        for i in batches():
            opt.zero_grad()
            scaler.scale((model(i) ** 2).sum()).backward()
            scaler.step(opt)
            scaler.update()
    assert bits(one.weight) == bits(other.weight)


@pytest.mark.parametrize("make", [optim.SGD, optim.Adagrad, optim.SparseAdam])
def test_a_traced_call_reads_a_sparse_gradient_from_before_it(make: Any) -> None:
    found = []
    for style in STYLES:
        model = table(sparse=True)
        opt = make(model.parameters(), lr=0.05)

        def add(i: hm.Tensor, model: nn.Embedding = model) -> None:
            (hm.sin(model(i)) ** 2).sum().backward()

        def halve(model: nn.Embedding = model) -> None:
            model.weight.grad.mul_(0.5)

        steps = [add, halve, lambda opt=opt: opt.step(), lambda model=model: model.zero_grad(False)]
        add, halve, step, zero = [hm.trace(f) if style == "traced" else f for f in steps]
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # none of them runs eagerly
            for k, i in enumerate(batches(count=8)):
                add(i)
                held = model.weight.grad
                if k % 2:
                    halve(), step()
                    found.append(bits(held.to_dense()))
                    zero()
                    assert model.weight.grad is held and held._nnz() == 0 and held.is_coalesced()
        found.append(bits(model.weight))
    assert found[: len(found) // 2] == found[len(found) // 2 :]
    assert (step.cache_info().compiles, add.cache_info().compiles) == (1, 2 + 1)  # of no gradient, no rows, 12 rows


@pytest.mark.parametrize("end", ["dropped", "replaced", "added to"])
def test_who_holds_a_sparse_gradient_sees_it_change(end: str) -> None:
    found = []
    for style in STYLES:
        model = table(sparse=True)
        (model(batches()[0]) ** 2).sum().backward()
        held = model.weight.grad

        def change(model: nn.Embedding = model) -> None:
            grad = model.weight.grad
            if end != "added to":
                model.weight.grad = None
            if end != "dropped":
                model(batches()[1]).sum().backward()
            grad.mul_(0.5)

        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it does not run eagerly
            (hm.trace(change) if style == "traced" else change)()
        grad = model.weight.grad
        found.append((bits(held.to_dense()), None if grad is None else bits(grad.to_dense())))
    assert found[0] == found[1]


def test_a_sparse_gradient_that_is_captured_too_makes_it_eager() -> None:
    model = table(sparse=True)
    model(batches()[0]).sum().backward()
    held = model.weight.grad

    @hm.trace
    def halve() -> Any:
        model.weight.grad.mul_(0.5)
        return held is model.weight.grad, held.to_dense().sum()

    with pytest.warns(UserWarning, match="captured, too"):
        is_held, total = halve()
    assert is_held and total.item() == 12 * WIDTH / 2


def test_other_numbers_of_rows_are_other_programs() -> None:
    model, other = table(sparse=True), table(sparse=True)
    opts = [optim.SparseAdam(m.parameters(), lr=0.1) for m in (model, other)]
    step = hm.trace(lambda: opts[0].step())
    for n in (12, 12, 3, 3, 12):
        for m in (model, other):
            m.zero_grad()
            (m(batches()[1][:n]) ** 2).sum().backward()
        step(), opts[1].step()
    other.weight.grad = other.weight.grad.coalesce()
    model.weight.grad = model.weight.grad.coalesce()
    step(), opts[1].step()
    assert bits(model.weight) == bits(other.weight)
    assert step.cache_info().compiles == 3 and "another number of rows" in str(step.retraces)


def test_eager_steps_are_compiled_where_they_come_again() -> None:
    models = [table(LARGE, sparse=True) for _ in range(2)]
    opts = [optim.SparseAdam(m.parameters(), lr=0.1) for m in models]
    traced = hm.trace(lambda: opts[1].step())
    taken = []
    for i in batches(LARGE, count=WORTH_ROWS + 3):
        for m in models:
            m.zero_grad()
            (m(i) ** 2).sum().backward()
        opts[0].step(), traced()
        taken.append(opts[0]._compiled_step().cache_info().compiles)
    assert taken == [0] * WORTH_ROWS + [1] * 3
    assert bits(models[0].weight) == bits(models[1].weight)


def test_look_ups_in_loops_of_a_graph() -> None:
    weights = []
    for style in STYLES:
        model = table(sparse=True)
        opt = optim.SparseAdam(model.parameters(), lr=0.05)

        def step(i: hm.Tensor, model: nn.Embedding = model, opt: Any = opt) -> None:
            opt.zero_grad()
            total: Any = 0.0
            for k in range(30):
                total = total + (model((i + k) % ROWS) ** 2).sum()
            total.backward()
            opt.step()

        f = hm.trace(step) if style == "traced" else step
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it runs eagerly: the gradient of a loop is dense
            for i in batches():
                f(i)
        weights.append(bits(model.weight))
    assert weights[0] == weights[1]


# -- traced steps on tables with dense gradients: the rows alone are updated


def by_optimizer(model: nn.Embedding, opt: optim.SGD, i: hm.Tensor) -> hm.Tensor:
    opt.zero_grad()
    loss = (hm.sin(model(i)) ** 2).sum()
    loss.backward()
    opt.step()
    return loss


def by_hand(model: nn.Embedding, opt: optim.SGD, i: hm.Tensor, adds: bool = False) -> hm.Tensor:
    loss = (hm.sin(model(i)) ** 2).sum()
    (g,) = hm.autograd.grad(loss, model.weight)
    with hm.no_grad():
        if adds:
            model.weight.add_(g, alpha=-0.1)
        else:
            model.weight -= opt.param_groups[0]["lr"].astype(hm.float32) * g
    return loss


def added(model: nn.Embedding, opt: optim.SGD, i: hm.Tensor) -> hm.Tensor:
    return by_hand(model, opt, i, adds=True)


def updates_rows(f: Any) -> bool:
    return "rows of 4,096 are updated" in str(f.explain())


RATES = {
    "usual": [0.1] * 6, "none at first": [0.0, 0.0, 0.1, 0.2, 0.3, 0.4], "uphill": [0.1, -0.1, -0.2, 0.1, 0.1, 0.1],
    "infinite": [0.1, 0.1, float("inf"), 0.1, 0.1, 0.1], "nan": [0.1, float("nan"), 0.1, 0.1, 0.1, 0.1],
}  # fmt: skip


@pytest.mark.parametrize("rates", RATES)
@pytest.mark.parametrize("step", [by_optimizer, by_hand, added], ids=lambda f: f.__name__)
def test_traced_steps_on_few_rows_have_the_bits_of_eager_ones(step: Any, rates: str) -> None:
    weights = []
    for style in STYLES:
        model = table(LARGE)
        with hm.no_grad():
            model.weight[::3] = -0.0  # which an update by -0.0 or by another sign would change
        opt = optim.SGD(model.parameters(), lr=0.1)
        f = hm.trace(lambda i, model=model, opt=opt: step(model, opt, i))
        for lr, i in zip(RATES[rates], batches(LARGE), strict=True):
            opt.lr = lr
            f(i) if style == "traced" else step(model, opt, i)
            weights.append(bits(model.weight))
        assert style == "eager" or updates_rows(f)
    half = len(weights) // 2
    assert weights[:half] == weights[half:]


@pytest.mark.parametrize("n", [0, 1])
def test_few_rows_may_be_one_or_none(n: int) -> None:
    found = []
    for style in STYLES:
        model = table(LARGE)
        opt = optim.SGD(model.parameters(), lr=0.1)
        f = hm.trace(lambda i, model=model, opt=opt: by_optimizer(model, opt, i))
        for i in batches(LARGE, 12):
            f(i[:n]) if style == "traced" else by_optimizer(model, opt, i[:n])
        found.append(bits(model.weight))
    assert found[0] == found[1] and (n == 0 or "1 rows of 4,096 are updated" in str(f.explain()))


def test_the_gradient_is_made_when_somebody_asks_for_it() -> None:
    one, other = table(LARGE), table(LARGE)
    opts = [optim.SGD(model.parameters(), lr=0.1) for model in (one, other)]
    f = hm.trace(lambda i: by_optimizer(other, opts[1], i))
    for i in batches(LARGE):
        by_optimizer(one, opts[0], i)
        f(i)
        assert type(other.weight._node.grad) is SparseGradient
    assert isinstance(other.weight.grad, hm.Tensor) and not other.weight.grad.is_sparse
    assert other.weight.grad is other.weight.grad and bits(other.weight.grad) == bits(one.weight.grad)
    # What is added to it is added to the tensor.
    f(batches(LARGE)[0])
    by_optimizer(one, opts[0], batches(LARGE)[0])
    for model in (one, other):
        (model(batches(LARGE)[1]) ** 2).sum().backward()
    assert bits(other.weight.grad) == bits(one.weight.grad)


def test_a_gradient_that_a_later_traced_call_reads() -> None:
    one, other = table(LARGE), table(LARGE)

    def backward(model: nn.Embedding, i: hm.Tensor) -> None:
        model.zero_grad()
        (hm.sin(model(i)) ** 2).sum().backward()

    opts = [optim.Adam(model.parameters(), lr=0.1) for model in (one, other)]
    first, second = hm.trace(lambda i: backward(other, i)), hm.trace(lambda: opts[1].step())
    for i in batches(LARGE):
        backward(one, i)
        opts[0].step()
        first(i)
        second()
    assert bits(one.weight) == bits(other.weight)


def test_an_index_out_of_range_changes_nothing() -> None:
    model = table(LARGE)
    opt = optim.SGD(model.parameters(), lr=0.1)
    f = hm.trace(lambda i: by_optimizer(model, opt, i))
    f(batches(LARGE)[0])
    before = bits(model.weight)
    for bad in (-1, LARGE):
        with pytest.raises(IndexError, match="out of range"):
            f(hm.asarray([bad] * 12))
    assert bits(model.weight) == before


def test_other_updates_read_the_whole_table() -> None:
    model = table(LARGE)
    for make, settings in ((optim.SGD, {"momentum": 0.9}), (optim.SGD, {"weight_decay": 0.1}), (optim.Adam, {})):
        opt = make(model.parameters(), lr=0.1, **settings)
        f = hm.trace(lambda i, opt=opt: by_optimizer(model, opt, i))
        f(batches(LARGE)[0])
        assert not updates_rows(f)

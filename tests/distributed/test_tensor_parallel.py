"""Layers that processes compute together, beside the same layers in one process."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import distributed as dist
from hybridml.distributed.tensor_parallel import Axis

F = hm.functional
Colwise, Rowwise, Replicate, Shard = dist.ColwiseParallel, dist.RowwiseParallel, dist.Replicate, dist.Shard
VOCABULARY, WIDTH, LENGTH = 24, 16, 6

GPT2 = {
    "transformer.h.*.attn.c_attn": Colwise(packed=3),
    "transformer.h.*.attn.c_proj": Rowwise(),
    "transformer.h.*.mlp.c_fc": Colwise(),
    "transformer.h.*.mlp.c_proj": Rowwise(),
}
TIED = {"transformer.wte": Rowwise(), "lm_head": Colwise(output_layouts=Replicate())}  # one parameter of both
LAYER = "bert.encoder.layer.*"
BERT = {
    **{f"{LAYER}.attention.self.{name}": Colwise() for name in ("query", "key", "value")},
    f"{LAYER}.attention.output.dense": Rowwise(),
    f"{LAYER}.intermediate.dense": Colwise(),
    f"{LAYER}.output.dense": Rowwise(),
    "bert.embeddings.token_type_embeddings": Colwise(output_layouts=Replicate()),
}
styles = pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])


def gpt2(seed: int = 0) -> hm.nn.Module:
    hm.manual_seed(seed)
    return hm.models.gpt2(vocab_size=VOCABULARY, width=WIDTH, layers=1, heads=4, positions=LENGTH, dropout=0.0).double()


def bert(seed: int = 0) -> hm.nn.Module:
    hm.manual_seed(seed)
    return hm.models.bert_base(
        vocab_size=VOCABULARY, width=WIDTH, layers=1, heads=4, hidden=32, positions=LENGTH, dropout=0.0
    ).double()


def tokens(rows: int = 4) -> Any:
    return hm.asarray(np.random.default_rng(0).integers(0, VOCABULARY, (rows, LENGTH)))


def loss_of_gpt2(model: Any, x: Any) -> Any:
    return F.cross_entropy(model(x)[:, :-1].reshape(-1, VOCABULARY), x[:, 1:].reshape(-1))


def loss_of_bert(model: Any, x: Any) -> Any:
    words, follows = model(x, x % 2, (x > 0).astype("int64"))
    return F.cross_entropy(words.reshape(-1, VOCABULARY), x.reshape(-1)) + F.cross_entropy(follows, x[:, 0] % 2)


def trained(
    model: Any, loss_of: Callable[[Any, Any], Any], x: Any, traced: bool, steps: int = 3, optimizer: Any = None
) -> list[float]:
    """Losses of some steps of Adam."""
    optimizer = optimizer or hm.optim.Adam(model.parameters(), lr=1e-2)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(model, x)
        loss.backward()
        optimizer.step()
        return loss

    run = hm.trace(step) if traced else step
    return [run(x).item() for _ in range(steps)]


def whole(model: hm.nn.Module) -> dict[str, np.ndarray]:
    return {name: t.numpy().copy() for name, t in dist.full_state_dict(model).items()}


def assert_same(ours: Mapping[str, np.ndarray], theirs: Mapping[str, Any], atol: float = 1e-9) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_allclose(value, np.asarray(theirs[name]), atol=atol, err_msg=name)


@functools.cache
def alone(make: Callable[[], Any], loss_of: Callable[[Any, Any], Any]) -> tuple[list[float], dict[str, np.ndarray]]:
    model = make()
    losses = trained(model, loss_of, tokens(), traced=False)
    return losses, {name: t.numpy() for name, t in model.state_dict().items()}


@styles
@pytest.mark.parametrize(
    ("make", "loss_of", "plan", "size"),
    [(gpt2, loss_of_gpt2, GPT2, 4), (gpt2, loss_of_gpt2, GPT2 | TIED, 2), (bert, loss_of_bert, BERT, 2)],
    ids=["gpt2", "gpt2 with its vocabulary", "bert"],
)
def test_training_is_that_of_one_process(
    make: Any, loss_of: Any, plan: dict[str, dist.ParallelStyle], size: int, traced: bool
) -> None:
    """To rounding, whatever the ranks begin with but the first, and with the same bits on all ranks."""
    losses, state = alone(make, loss_of)
    models = [make(rank) for rank in range(size)]

    def rank() -> tuple[list[float], dict[str, np.ndarray], int]:
        model = dist.parallelize_module(models[dist.get_rank()], None, plan)
        return trained(model, loss_of, tokens(), traced), whole(model), sum(p.numel() for p in model.parameters())

    found = dist.run_threads(size, rank)
    count = sum(p.numel() for p in make().parameters())
    for ours, parameters, here in found:
        np.testing.assert_allclose(ours, losses, rtol=1e-9)
        assert_same(parameters, state, atol=1e-7)  # Adam's division magnifies what is rounded
        assert here < count
        assert ours == found[0][0]
        assert all((parameters[name] == value).all() for name, value in found[0][1].items())


@styles
def test_beside_data_parallel(traced: bool) -> None:
    """Two times two processes: the rows of the batch over one axis, the layers over the other."""
    losses, state = alone(gpt2, loss_of_gpt2)
    models = [gpt2(rank) for rank in range(4)]

    def rank() -> tuple[list[float], dict[str, np.ndarray]]:
        world = dist.init()
        tensor, data = world.split(world.rank // 2), world.split(world.rank % 2)
        model = dist.parallelize_module(models[world.rank], tensor, GPT2)
        part = tokens()[data.rank * 2 : data.rank * 2 + 2]
        return trained(dist.DataParallel(model, data), loss_of_gpt2, part, traced), whole(model)

    found = dist.run_threads(4, rank)
    np.testing.assert_allclose(np.mean([ours for ours, _ in found], 0), losses, rtol=1e-9)
    for _, parameters in found:
        assert_same(parameters, state, atol=1e-7)


@styles
def test_generated_tokens_are_those_of_one_process(traced: bool) -> None:
    model, models = gpt2().eval(), [gpt2().eval() for _ in range(2)]
    expected = model.generate(tokens(2)[:, :2], 4, temperature=0.0).tolist()

    def rank() -> Any:
        parallel = dist.parallelize_module(models[dist.get_rank()], None, GPT2 | TIED)

        def generate(x: Any) -> Any:
            return parallel.generate(x, 4, temperature=0.0)

        return (hm.trace(generate) if traced else generate)(tokens(2)[:, :2]).tolist()

    assert dist.run_threads(2, rank) == [expected] * 2


def gradients(model: Any, x: Any, traced: bool) -> dict[str, Any]:
    """Result, and gradients of input and parameters, of a loss in which all elements differ."""

    def step(x: Any) -> Any:
        y = model(x)
        (y * hm.arange(y.numel(), dtype="float64").reshape(y.shape)).sum().backward()
        return y

    y = (hm.trace(step) if traced else step)(x)
    found = {name: p.grad for name, p in model.named_parameters()}
    return {"result": y.detach(), **found, **({} if x.grad is None else {"input": x.grad})}


def compared(make: Callable[[], Any], plan: Any, x: np.ndarray, size: int, traced: bool) -> None:
    """Compares result and gradients with those of one process."""

    def given() -> Any:
        return hm.asarray(x).requires_grad_(x.dtype.kind == "f")

    expected = gradients(make(), given(), traced=False)
    models = [make() for _ in range(size)]

    def rank() -> dict[str, Any]:
        model = dist.parallelize_module(models[dist.get_rank()], None, plan)
        layouts = {name: one.layout for name, one in dist.placements.placements(model).items()}
        found = gradients(model, given(), traced)
        return {k: layouts[k].part(v, dist.get_rank()) if k in layouts else v for k, v in expected.items()}, found

    for theirs, ours in dist.run_threads(size, rank):
        assert_same({name: value.numpy() for name, value in ours.items()}, theirs)


def mlp(bias: bool = True) -> hm.nn.Module:
    hm.manual_seed(0)
    return hm.nn.Sequential(hm.nn.Linear(4, 12, bias), hm.nn.Tanh(), hm.nn.Linear(12, 6, bias)).double()


X = np.random.default_rng(1).standard_normal((2, 6, 4))


@styles
def test_layouts_of_linear_layers(traced: bool) -> None:
    """Whatever moves between two layers, results and gradients are those of one process."""
    for between, bias in ((Shard(-1), True), (Replicate(), False)):
        plan = {"0": Colwise(output_layouts=between), "2": Rowwise(input_layouts=between)}
        compared(lambda bias=bias: mlp(bias), plan, X, 3, traced)
    plan = {"0": Rowwise(input_layouts=Replicate(), output_layouts=Shard(1))}
    plan["2"] = Colwise(input_layouts=Shard(1), output_layouts=Replicate())
    compared(mlp, plan, X, 2, traced)


def table(padding_idx: int | None = None) -> hm.nn.Module:
    hm.manual_seed(0)
    return hm.nn.Embedding(12, 6, padding_idx).double()


@styles
@pytest.mark.parametrize("style", [Rowwise(), Colwise(output_layouts=Replicate())], ids=["rows", "columns"])
def test_embeddings(style: dist.ParallelStyle, traced: bool) -> None:
    ids = np.array([[0, 3, 11], [7, 3, 4]])
    for padding_idx in (None, 3, -1):
        compared(lambda p=padding_idx: table(p), style, ids, 3, traced)


def bags() -> hm.nn.Module:
    class Bags(hm.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            hm.manual_seed(0)
            self.table = hm.nn.EmbeddingBag(12, 6, mode="max").double()

        def forward(self, ids: Any) -> Any:
            return self.table(ids, offsets=hm.asarray([0, 2, 5]))

    return Bags()


def test_bags() -> None:
    ids = np.array([3, 11, 0, 3, 4, 7])
    compared(bags, {"table": Colwise(output_layouts=Replicate())}, ids, 2, traced=False)


@styles
def test_rows_that_the_whole_table_does_not_have_are_refused(traced: bool) -> None:
    def raised(layer: Any, k: int) -> str:
        run = hm.trace(lambda ids: layer(ids)) if traced else layer
        with pytest.raises(IndexError) as error:
            run(hm.asarray([1, k]))
        return str(error.value).split("\n")[0]

    def rank() -> list[str]:
        layer = dist.parallelize_module(table(), None, Rowwise())
        return [raised(layer, k) for k in (12, -1)]

    assert dist.run_threads(2, rank) == [[raised(table(), k) for k in (12, -1)]] * 2
    assert "size 12" in raised(table(), 12)


def normed() -> hm.nn.Module:
    hm.manual_seed(0)
    layers = hm.nn.Embedding(12, 6), hm.nn.LayerNorm(6), hm.nn.Linear(6, 8), hm.nn.Tanh(), hm.nn.Linear(8, 6)
    return hm.nn.Sequential(*layers, hm.nn.LayerNorm(6), hm.nn.Linear(6, 12)).double()


@styles
def test_sequences_in_parts_between_layers(traced: bool) -> None:
    plan = {
        "0": Rowwise(output_layouts=Shard(1)),
        "[15]": dist.SequenceParallel(),
        "2": Colwise(input_layouts=Shard(1)),
        "4": Rowwise(output_layouts=Shard(1)),
        "6": Colwise(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    ids = np.random.default_rng(2).integers(0, 12, (3, 4))
    compared(normed, plan, ids, 2, traced)


class Attention(hm.nn.Module):
    """Attention whose result has its weights in it, too."""

    def __init__(self, options: Mapping[str, Any], **arguments: Any) -> None:
        super().__init__()
        hm.manual_seed(0)
        self.attention = hm.nn.MultiheadAttention(8, 4, batch_first=True, **options)
        self.arguments = arguments
        self.double()
        for p in self.attention.parameters():  # biases begin at zero
            hm.nn.init.normal_(p)

    def forward(self, x: Any) -> Any:
        key, value = x[..., : self.attention.kdim], x[..., : self.attention.vdim]
        key, value = (x if t.shape == x.shape else t for t in (key, value))
        y, weights = self.attention(x, key, value, **self.arguments)
        return y if weights is None else hm.concat([y.reshape(-1), weights.reshape(-1)])


MASK = np.random.default_rng(4).standard_normal((12, 5, 5))
PADDING = np.arange(5) > np.array([[4], [3], [2]])
ATTENTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"bias": False}, {"need_weights": False, "attn_mask": MASK[0]}),
    ({"add_bias_kv": True}, {"attn_mask": MASK, "average_attn_weights": False}),
    ({"kdim": 4, "vdim": 6, "add_zero_attn": True}, {"key_padding_mask": PADDING}),
]


@styles
@pytest.mark.parametrize(("options", "arguments"), ATTENTIONS, ids=["fused", "mask of heads", "separate"])
def test_attention(options: dict[str, Any], arguments: dict[str, Any], traced: bool) -> None:
    given = {k: hm.asarray(v) if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
    x = np.random.default_rng(3).standard_normal((3, 5, 8))
    compared(lambda: Attention(options, **given), {"attention": dist.HeadwiseParallel()}, x, 2, traced)


def test_two_layers_cost_one_sum() -> None:
    """One sum travels in the forward, one in the backward, and nothing else."""

    def rank() -> int:
        model = dist.parallelize_module(mlp(), None, {"0": Colwise(), "2": Rowwise()})
        x = hm.asarray(X).requires_grad_()

        @hm.trace
        def step(x: Any) -> Any:
            return hm.autograd.grad(model(x).sum(), [x])[0]

        step(x)
        return len(set(re.findall(r"(?:all_reduce|all_gather|reduce_scatter)\([^)]*\)", step.ir)))

    assert dist.run_threads(2, rank) == [2, 2]


def test_state_dicts() -> None:
    """Whole ones go into models that are not parallel, and come from them; the parameters stay the same objects."""
    source = gpt2(2)

    def rank() -> None:
        model = dist.parallelize_module(gpt2(1), None, GPT2 | TIED)
        before = list(map(id, model.parameters()))
        dist.load_full_state_dict(model, source.state_dict())
        assert list(map(id, model.parameters())) == before
        assert_same(whole(model), source.state_dict(), atol=0)
        other = gpt2(3)
        other.load_state_dict(dist.full_state_dict(model))
        np.testing.assert_allclose(model(tokens()).detach().numpy(), other(tokens()).detach().numpy(), atol=1e-9)
        again = copy.deepcopy(model)
        assert_same(whole(again), source.state_dict(), atol=0)
        assert (again(tokens()) == model(tokens())).all()

    dist.run_threads(2, rank)


@styles
def test_norms_are_of_whole_gradients(traced: bool) -> None:
    def norm(model: Any) -> float:
        def step(x: Any) -> Any:
            (model(x) ** 2).sum().backward()
            return dist.clip_grad_norm_(model, 0.1)

        return float((hm.trace(step) if traced else step)(hm.asarray(X)))

    expected, plan = norm(mlp()), {"0": Colwise(), "2": Rowwise()}
    models = [mlp() for _ in range(2)]
    found = dist.run_threads(2, lambda: norm(dist.parallelize_module(models[dist.get_rank()], None, plan)))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("size", [1, 4])
def test_any_number_of_processes_goes_on_from_a_checkpoint(size: int, tmp_path: Path) -> None:
    """Two processes train and save; others go on as one process does that has not stopped."""
    models = [gpt2(rank) for rank in range(4)]

    def run(steps: int, save: bool) -> list[float]:
        model = dist.parallelize_module(models[dist.get_rank()], None, GPT2)
        optimizer = hm.optim.Adam(model.parameters(), lr=1e-2)
        state = {"model": model, "optimizer": optimizer}
        manager = dist.CheckpointManager(tmp_path)
        manager.restore(state)
        losses = trained(model, loss_of_gpt2, tokens(), traced=False, steps=steps, optimizer=optimizer)
        if save:
            manager.save(1, state)
        return losses

    losses, _ = alone(gpt2, loss_of_gpt2)
    for first in dist.run_threads(2, lambda: run(1, save=True)):
        np.testing.assert_allclose(first, losses[:1], rtol=1e-9)
    for index, seed in enumerate((7, 8, 9, 10)):
        models[index] = gpt2(seed)
    for rest in dist.run_threads(size, lambda: run(2, save=False)):
        np.testing.assert_allclose(rest, losses[1:], rtol=1e-9)


@pytest.mark.parametrize("packed", [1, 3])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_parts_of_an_axis(axis: int, packed: int) -> None:
    """Parts have the elements of NumPy's split of each packed matrix, and make the whole again."""
    tensor = np.arange(6 * 12 * 18).reshape(6, 12, 18)
    layout = Axis(tensor.shape, axis, 2, packed)
    parts = [layout.part(hm.asarray(tensor), rank) for rank in range(2)]
    for rank, part in enumerate(parts):
        matrices = [np.split(matrix, 2, axis)[rank] for matrix in np.split(tensor, packed, axis)]
        np.testing.assert_array_equal(part.numpy(), np.concatenate(matrices, axis))
    np.testing.assert_array_equal(layout.joined(hm.stack(parts)).numpy(), tensor)


def test_a_process_alone_has_the_whole_module() -> None:
    model = dist.parallelize_module(mlp(), None, {"0": Colwise(), "2": Rowwise()})
    assert model[0].weight.shape == (12, 4)
    assert "forward" not in vars(model[0])


@pytest.mark.parametrize(
    ("make", "plan", "error", "text"),
    [
        (mlp, {"1": Colwise()}, hm.errors.ArgumentError, "Tanh does not say which axis"),
        (mlp, {"layer": Colwise()}, hm.errors.ArgumentError, "Sequential has no layer 'layer'; it has 0, 1, 2"),
        (mlp, {"0": Colwise, "2": Rowwise()}, hm.errors.ArgumentError, "parallelize_plan is a style"),
        (mlp, None, hm.errors.ArgumentError, "parallelize_plan is a style"),
        (mlp, {"*": Colwise(), "2": Rowwise()}, hm.errors.ArgumentError, "Tanh|has a style already"),
        (mlp, {"[02]": Colwise(), "2": Rowwise()}, hm.errors.ArgumentError, "2 has a style already"),
        (mlp, {"0": Colwise(packed=5)}, hm.errors.ShapeError, r"axis 0 of weight \(12, 4\) .* 5 matrices of 2 equal"),
        (gpt2, {"lm_head": Colwise()}, hm.errors.ArgumentError, "give transformer.wte a style too"),
        (gpt2, {"lm_head": Colwise(), "transformer.wte": Colwise()}, hm.errors.ArgumentError, "cut in another way"),
        (table, Rowwise(input_layouts=Shard(-1)), hm.errors.ArgumentError, "the input of an Embedding is Replicate"),
        (lambda: hm.nn.EmbeddingBag(4, 2), Rowwise(), hm.errors.ArgumentError, "cannot be cut into rows"),
        (lambda: hm.nn.MultiheadAttention(9, 3), dist.HeadwiseParallel(), hm.errors.ArgumentError, "3 heads do not"),
        (mlp, {"0": dist.HeadwiseParallel()}, hm.errors.ArgumentError, "for MultiheadAttention, got Linear"),
        (lambda: 3, Colwise(), hm.errors.ArgumentError, "module must be a Module, got int"),
    ],
)
def test_plans_that_do_not_fit(make: Any, plan: Any, error: type[Exception], text: str) -> None:
    """They are errors before anything is changed."""

    def rank() -> None:
        model = make()
        with pytest.raises(error, match=text):
            dist.parallelize_module(model, None, plan)
        assert not isinstance(model, hm.nn.Module) or not any("forward" in vars(m) for m in model.modules())

    dist.run_threads(2, rank)


def test_sequences_that_have_no_equal_parts() -> None:
    def rank() -> None:
        layer = dist.parallelize_module(mlp()[0], None, Rowwise(input_layouts=Replicate(), output_layouts=Shard(1)))
        with pytest.raises(hm.errors.ShapeError, match=r"^Shard\(1\): axis 1 of a tensor of shape \(2, 3, 12\)"):
            layer(hm.asarray(X[:, :3]))

    dist.run_threads(2, rank)


def test_layouts_that_styles_do_not_have() -> None:
    for make in (
        lambda: Colwise(output_layouts=Shard(0)),
        lambda: Rowwise(input_layouts=Shard(1)),
        lambda: Rowwise(output_layouts=None),
        lambda: Colwise(input_layouts="whole"),
        lambda: Colwise(packed=0),
    ):
        with pytest.raises(hm.errors.ArgumentError, match=r"^(Col|Row)wiseParallel: "):
            make()


def test_not_in_a_trace() -> None:
    with pytest.raises(hm.errors.TraceError, match="parallelize_module"):
        hm.trace(lambda: dist.parallelize_module(mlp(), None, Colwise()))()


PROCESSES = """
import hybridml as hm
from hybridml import distributed as dist

rank = dist.get_rank()
hm.manual_seed(rank)  # they differ, and draw the same for what is whole
model = hm.models.gpt2(vocab_size=24, width=16, layers=1, heads=4, positions=6, dropout=0.5)
dist.parallelize_module(model, None, {
    "transformer.h.*.attn.c_attn": dist.ColwiseParallel(packed=3),
    "transformer.h.*.attn.c_proj": dist.RowwiseParallel(),
    "transformer.h.*.mlp.c_fc": dist.ColwiseParallel(),
    "transformer.h.*.mlp.c_proj": dist.RowwiseParallel(),
})
optimizer = hm.optim.Adam(model.parameters(), lr=1e-2)
tokens = hm.arange(24).reshape(4, 6)

def step(x):
    optimizer.zero_grad()
    loss = hm.functional.cross_entropy(model(x).reshape(-1, 24), x.reshape(-1))
    loss.backward()
    optimizer.step()
    return loss

run = hm.trace(step)
losses = [run(tokens).item() for _ in range(3)]
states = [t.numpy() for t in dist.full_state_dict(model).values()]
every = [dist.broadcast(hm.asarray(value)).numpy() for value in (losses, *states)]
assert all((ours == first).all() for ours, first in zip((losses, *states), every))
assert len(set(losses)) == 3
print("equal")
"""


def test_processes_drop_the_same_of_what_is_whole(mpi: Any) -> None:
    """With dropout, processes that began with other seeds have the same losses and whole parameters, bit by bit."""
    result = mpi(2, PROCESSES)
    assert result.stdout.count("equal") == 2, result.stderr

"""Modules: PyTorch's state-dict keys, values and gradients (recorded), and the tree that `Module` keeps."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from tests.support.examples import every
from tests.support.torch_cases import MODULES, recorded
from tests.support.torch_checks import in_one_form, module_close_to_record


@pytest.fixture(scope="module")
def torch_record() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    return recorded()


@pytest.mark.parametrize("name", every(2, MODULES))
def test_keys_values_and_gradients_are_pytorchs(name: str, torch_record: Any) -> None:
    module = in_one_form(name, MODULES, lambda: module_close_to_record(name, MODULES[name], *torch_record))
    assert list(module.state_dict()) == list(torch_record[1][name])


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(hm.ones((2,)))
        self.inner = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2, bias=False))
        self.register_buffer("count", hm.zeros(()))
        self.register_buffer("scratch", hm.zeros(()), persistent=False)
        self.plain = hm.ones((1,))
        self.note = "text"

    def forward(self, x: hm.Tensor) -> hm.Tensor:
        return self.inner(x) * self.scale


def test_what_assignment_registers() -> None:
    block = Block()
    assert [name for name, _ in block.named_parameters()] == [
        "scale", "inner.0.weight", "inner.0.bias", "inner.2.weight",
    ]  # fmt: skip
    assert [name for name, _ in block.named_buffers()] == ["count", "scratch"]
    assert [name for name, _ in block.named_modules()] == ["", "inner", "inner.0", "inner.1", "inner.2"]
    assert list(block.state_dict()) == ["scale", "count", "inner.0.weight", "inner.0.bias", "inner.2.weight"]
    assert [type(child).__name__ for child in block.children()] == ["Sequential"]
    assert block.get_submodule("inner.2") is block.inner[2]
    assert block.get_parameter("inner.0.bias") is block.inner[0].bias


def test_shared_parts_are_named_once_or_under_all_their_names() -> None:
    tied = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    tied[1].weight = tied[0].weight
    twice = nn.Sequential(tied, tied)
    assert [name for name, _ in twice.named_parameters()] == ["0.0.weight"]
    assert [name for name, _ in twice.named_modules(None, "net")] == ["net", "net.0", "net.0.0", "net.0.1"]
    names = [name for name, _ in twice.named_parameters(remove_duplicate=False)]
    assert names == list(twice.state_dict()) == ["0.0.weight", "0.1.weight", "1.0.weight", "1.1.weight"]
    assert len(list(twice.named_modules(remove_duplicate=False))) == 7
    norms = nn.Sequential(*[nn.BatchNorm1d(1)] * 2)
    assert [len(list(norms.named_buffers(remove_duplicate=kept))) for kept in (True, False)] == [3, 6]


def test_replacing_and_deleting() -> None:
    block = Block()
    block.scale = nn.Parameter(hm.zeros((2,)))
    assert block.get_parameter("scale").tolist() == [0, 0]
    with pytest.raises(TypeError, match=r"nn.Parameter"):
        block.scale = hm.ones((2,))
    with pytest.raises(TypeError, match="module"):
        block.inner = 3
    block.inner = nn.Identity()
    block.scale = None
    assert list(block.parameters()) == []
    del block.inner
    assert list(block.children()) == [] and not hasattr(block, "inner")
    block.count = hm.ones(())
    assert block.state_dict()["count"].item() == 1


def test_a_frozen_parameter_is_still_one() -> None:
    layer = nn.Linear(2, 2).requires_grad_(False)
    assert len(list(layer.parameters())) == 2 and not layer.weight.requires_grad
    other = nn.Linear(2, 2)
    other.weight = layer.weight
    assert list(other.state_dict()) == ["weight", "bias"]
    layer.requires_grad_()
    assert layer.weight.requires_grad


def test_parameter_is_a_mark_not_a_type() -> None:
    p = nn.Parameter(np.zeros(3, np.float32))
    assert type(p) is hm.Tensor and isinstance(p, nn.Parameter) and p.requires_grad and p.is_leaf
    assert not isinstance(hm.zeros((1,)), nn.Parameter) and not isinstance(p * 2, nn.Parameter)
    assert isinstance(nn.Parameter(hm.zeros((1,)), requires_grad=False), nn.Parameter)


def test_shared_modules_and_parameters_are_found_once() -> None:
    layer = nn.Linear(2, 2)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    assert len(list(model.parameters())) == 2 and len(list(model.modules())) == 3
    assert len(model.state_dict()) == 4
    table, head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    head.weight = table.weight
    assert len(list(nn.Sequential(table, head).parameters())) == 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_equal_and_apart(copied: Any) -> None:
    block = Block().eval()
    twin = copied(block)
    assert type(twin) is Block and not twin.training and list(twin.state_dict()) == list(block.state_dict())
    x = hm.ones((1, 2))
    assert (twin(x).detach().numpy() == block(x).detach().numpy()).all()
    with hm.no_grad():
        twin.scale.fill_(5)
    assert block.scale.tolist() == [1, 1] and twin.scale.requires_grad
    twin(x).sum().backward()
    assert twin.scale.grad is not None and block.scale.grad is None


def test_train_eval_zero_grad_apply() -> None:
    block = Block()
    assert not any(module.training for module in block.eval().modules())
    assert all(module.training for module in block.train().modules())
    block(hm.ones((1, 2))).sum().backward()
    block.zero_grad(set_to_none=False)
    assert block.scale.grad is not None and block.scale.grad.tolist() == [0, 0]
    block.zero_grad()
    assert all(p.grad is None for p in block.parameters())
    seen: list[str] = []
    assert block.apply(lambda module: seen.append(type(module).__name__)) is block
    assert seen == ["Linear", "ReLU", "Linear", "Sequential", "Block"]


def test_to_converts_floats() -> None:
    block = Block().double()
    assert block.scale.dtype == hm.float64 and block.count.dtype == hm.float64 and block.scale.requires_grad
    assert block(hm.ones((1, 2), dtype=hm.float64)).dtype == hm.float64
    assert block.to("cpu") is block
    with pytest.raises(ValueError, match="mps"):
        block.to("mps")


def test_state_dict_is_live_and_loading_is_in_place() -> None:
    one, other = Block(), Block()
    weight = other.inner[0].weight
    assert other.load_state_dict(one.state_dict()) == ([], [])
    assert other.inner[0].weight is weight and (weight.detach().numpy() == one.inner[0].weight.detach().numpy()).all()
    with hm.no_grad():
        one.scale.fill_(3)
    assert other.scale.tolist() == [1, 1]  # copied, not shared


def test_loading_what_does_not_fit_writes_nothing() -> None:
    block = Block()
    good = {name: tensor.numpy().copy() + 1 for name, tensor in block.state_dict().items()}
    before = block.scale.tolist()
    with pytest.raises(ValueError, match=r"(?s)missing:.*inner.0.bias.*unexpected:.*other") as caught:
        block.load_state_dict({**{k: v for k, v in good.items() if k != "inner.0.bias"}, "other": good["scale"]})
    assert "strict=False" in str(caught.value)
    with pytest.raises(ValueError, match=r"inner.2.weight: has \(2, 3\), got \(3, 2\)"):
        block.load_state_dict({**good, "inner.2.weight": good["inner.2.weight"].T})
    with pytest.raises(TypeError, match="count: has float32, got int64"):
        block.load_state_dict({**good, "count": np.asarray(1)})
    assert block.scale.tolist() == before
    result = block.load_state_dict({"scale": good["scale"], "other": good["scale"]}, strict=False)
    assert result.unexpected_keys == ["other"] and "inner.0.weight" in result.missing_keys
    assert block.scale.tolist() == [2, 2]


def test_hooks() -> None:
    layer, seen = nn.Identity(), []
    before = layer.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    after = layer.register_forward_hook(lambda module, args, result: seen.append(args[0].item()))
    double = layer.register_forward_hook(lambda module, args, result: result * 2)
    assert layer(hm.ones(())).item() == 4 and seen == [2]
    before.remove()
    double.remove()
    assert layer(hm.ones(())).item() == 1
    after.remove()
    assert layer(hm.ones(())).item() == 1 and seen == [2, 1]


def test_containers() -> None:
    layers = nn.ModuleList([nn.Linear(2, 2), nn.ReLU()])
    layers.append(nn.Tanh())
    layers.insert(0, nn.Identity())
    assert [type(module).__name__ for module in layers] == ["Identity", "Linear", "ReLU", "Tanh"]
    assert type(layers[-1]) is nn.Tanh and len(layers[1:3]) == 2 and list(layers.state_dict()) == ["1.weight", "1.bias"]
    del layers[0]
    layers[1] = nn.Sigmoid()
    assert [type(module).__name__ for module in layers] == ["Linear", "Sigmoid", "Tanh"]
    with pytest.raises(IndexError, match="3 modules"):
        layers[3]
    named = nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.ReLU()})
    assert list(named) == ["a", "b"] and "a" in named and len(named) == 2 and type(named["b"]) is nn.ReLU
    assert list(named.state_dict()) == ["a.weight", "a.bias"]
    del named["a"]
    assert list(named.keys()) == ["b"]
    with pytest.raises(KeyError):
        named["a"]
    assert [n for n, _ in nn.ParameterList([nn.Parameter(hm.ones((1,)))]).named_parameters()] == ["0"]
    with pytest.raises(TypeError, match="must be a Module, got function"):
        nn.Sequential(lambda x: x)


@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
def test_float64_data_leaves_parameters_and_gradients_as_they_are(style: Any) -> None:
    """NumPy data is float64 unless someone has cast it: the result is float64, what is trained stays float32."""
    layer = hm.nn.Linear(4, 3)
    optimizer = hm.optim.Adam(layer.parameters())

    def step(x: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = layer(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    run = style(step)
    for _ in range(2):
        assert run(hm.asarray(np.ones((2, 4)))).dtype is hm.float64
    assert {p.dtype for p in layer.parameters()} == {p.grad.dtype for p in layer.parameters()} == {hm.float32}


def test_repr() -> None:
    assert repr(Block()) == (
        "Block(\n"
        "  (inner): Sequential(\n"
        "    (0): Linear(in_features=2, out_features=3, bias=True)\n"
        "    (1): ReLU()\n"
        "    (2): Linear(in_features=3, out_features=2, bias=False)\n"
        "  )\n"
        ")"
    )
    assert repr(nn.Conv2d(3, 64, 7, stride=2, padding=3)) == (
        "Conv2d(3, 64, kernel_size=(7, 7), stride=(2, 2), padding=(3, 3))"
    )


def test_mistakes_are_named() -> None:
    class NoSuper(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.ReLU()

    with pytest.raises(AttributeError, match=r"super\(\).__init__\(\)"):
        NoSuper()
    with pytest.raises(NotImplementedError, match="no forward"):
        nn.Module()(1)
    with pytest.raises(KeyError, match="already has"):
        Block().register_buffer("forward", None)
    with pytest.raises(ValueError, match="divide by num_heads"):
        nn.MultiheadAttention(10, 3)
    with pytest.raises(ValueError, match="channels on axis 1"):
        nn.BatchNorm2d(3)(hm.ones((1, 2, 4, 4)))
    with pytest.raises(ValueError, match=r"Conv2d: kernel_size must be an integer or a pair of integers, got 3\.0"):
        nn.Conv2d(3, 4, 3.0)
    with pytest.raises(TypeError, match="embedding: input must be integers, got float32"):
        nn.Embedding(4, 2)(hm.ones((3,)))


@pytest.mark.parametrize("groups", [1, 2])
def test_identities(groups: int) -> None:
    weight = nn.init.dirac_(hm.empty((4, 4 // groups, 3, 5)), groups)
    x = hm.randn(2, 4, 6, 7)
    assert (nn.functional.conv2d(x, weight, padding=(1, 2), groups=groups) == x).all()
    more = nn.init.dirac_(hm.empty((6, 2, 3)), 2)  # more channels out than in: the rest is zero
    assert more.sum().item() == 4 and more[[0, 1, 3, 4], [0, 1, 0, 1], 1].tolist() == [1] * 4
    assert nn.init.eye_(hm.empty((2, 3))).tolist() == [[1, 0, 0], [0, 1, 0]]
    for fill, wrong in ((nn.init.eye_, hm.empty((2, 2, 2))), (nn.init.dirac_, hm.empty((2, 2)))):
        with pytest.raises(hm.ShapeError, match="needs"):
            fill(wrong)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 2, 3), (2, 2, 2, 2)])
def test_orthogonal_weights(shape: tuple[int, ...]) -> None:
    w = nn.init.orthogonal_(hm.empty(shape), gain=2.0).numpy().reshape(shape[0], -1)
    product = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(product, 4 * np.eye(min(w.shape)), atol=1e-5)
    with pytest.raises(hm.ShapeError, match="at least 2 axes"):
        nn.init.orthogonal_(hm.empty((3,)))


@pytest.mark.parametrize(
    ("fill", "low", "high", "std"),
    [
        (lambda t: nn.init.uniform_(t, -2, 3), -2, 3, 5 / 12**0.5),
        (lambda t: nn.init.normal_(t, 0, 2), -12, 12, 2),
        (lambda t: nn.init.trunc_normal_(t, std=1.0, a=-1, b=1), -1, 1, 0.5396),
        (lambda t: nn.init.xavier_uniform_(t, gain=2), -0.49, 0.49, 2 * (2 / 150) ** 0.5),
        (lambda t: nn.init.xavier_normal_(t), -1, 1, (2 / 150) ** 0.5),
        (lambda t: nn.init.kaiming_uniform_(t, nonlinearity="relu"), -0.25, 0.25, (2 / 100) ** 0.5),
        (lambda t: nn.init.kaiming_normal_(t, mode="fan_out", nonlinearity="tanh"), -2, 2, (5 / 3) / 50**0.5),
    ],
)
def test_init_has_the_right_spread(fill: Any, low: float, high: float, std: float) -> None:
    hm.manual_seed(0)
    tensor = nn.Parameter(hm.zeros((50, 100)))
    values = fill(tensor).detach().numpy()
    assert low <= values.min() and values.max() <= high
    assert values.std() == pytest.approx(std, rel=0.05) and abs(values.mean()) < 0.1 + (low + high) / 2
    assert tensor.requires_grad and tensor.is_leaf


def test_default_initial_values_are_pytorchs_distributions() -> None:
    hm.manual_seed(0)
    linear, conv = nn.Linear(400, 100), nn.Conv2d(16, 32, 5)
    for layer, fan_in in ((linear, 400), (conv, 16 * 25)):
        for parameter in (layer.weight, layer.bias):
            values = parameter.detach().numpy()
            assert np.abs(values).max() <= fan_in**-0.5
            assert values.std() == pytest.approx((fan_in * 3) ** -0.5, rel=0.25)
    assert nn.Embedding(100, 50).weight.detach().numpy().std() == pytest.approx(1, rel=0.05)
    assert not nn.Embedding(4, 2, padding_idx=1).weight.detach().numpy()[1].any()
    attention = nn.MultiheadAttention(40, 4)
    bound = (6 / (40 + 120)) ** 0.5
    assert bound * 0.95 < np.abs(attention.in_proj_weight.detach().numpy()).max() <= bound
    assert not attention.in_proj_bias.detach().numpy().any() and not attention.out_proj.bias.detach().numpy().any()


def test_a_traced_module_has_what_a_traced_function_has() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    assert not hasattr(net, "cache_info")
    traced = hm.trace(net)
    traced(hm.ones((4, 2)))
    assert traced is net and traced.cache_info().compiles == 1 and "relu" in traced.ir and traced.stats.kernels
    assert "compiled program" in str(traced.explain(hm.ones((4, 2)))) and set(net.state_dict()) == {
        "0.weight",
        "0.bias",
    }
    with pytest.raises(AttributeError, match="'Sequential' object has no attribute 'cache_inf'"):
        traced.cache_inf  # noqa: B018


def test_parameter_vectors() -> None:
    model = nn.Linear(2, 3)
    vector = nn.utils.parameters_to_vector(model.parameters())
    assert vector.shape == (9,)
    nn.utils.vector_to_parameters(hm.arange(9, dtype=hm.float32), model.parameters())
    assert model.weight.tolist() == [[0, 1], [2, 3], [4, 5]] and model.bias.tolist() == [6, 7, 8]
    with pytest.raises(ValueError, match="9 numbers"):
        nn.utils.vector_to_parameters(hm.zeros((8,)), model.parameters())

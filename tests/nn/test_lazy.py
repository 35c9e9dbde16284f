"""Lazy layers: sizes from the first call, from shapes alone, and from a state dict."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn

FAMILIES = ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm")
OPTIONS: dict[str, dict[str, Any]] = {"Conv": {"groups": 2}, "InstanceNorm": {"affine": True}}
# Lazy layer, arguments after the size, input shapes.
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("Linear", (5,), {"bias": False}, (2, 3)),
    *[
        (
            f"{family}{dims}d",
            (4, 3) if "Conv" in family else (),
            OPTIONS.get(family, {}),
            shape,
        )
        for family in FAMILIES
        for dims in (1, 2, 3)
        for shape in [(2, 6, *[5] * dims)]
    ],
]
SPEC = hm.ShapeDtypeStruct((4, 3, 9, 9), hm.float32)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout, self.conv, self.norm = nn.Dropout(0.5), nn.LazyConv2d(8, 3), nn.LazyBatchNorm2d()
        self.head = nn.LazyLinear(5)

    def forward(self, x: hm.Tensor) -> hm.Tensor:
        return self.head(nn.functional.relu(self.norm(self.conv(self.dropout(x)))).flatten(1))


def state(module: nn.Module) -> dict[str, Any]:
    return {name: t.numpy() for name, t in module.state_dict().items()}


def assert_same(a: nn.Module, b: nn.Module) -> None:
    ours, theirs = state(a), state(b)
    assert list(ours) == list(theirs)
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), CASES, ids=[case[0] for case in CASES])
def test_a_layer_becomes_the_one_of_its_input(name: str, args: Any, kwargs: Any, shape: tuple[int, ...]) -> None:
    x = hm.random.normal(shape, generator=hm.random.Generator(1))
    size = shape[-1] if name == "Linear" else shape[1]
    hm.manual_seed(3)
    plain = getattr(nn, name)(size, *args, **kwargs)
    expected = plain(x)
    hm.manual_seed(3)
    lazy = getattr(nn, f"Lazy{name}")(*args, **kwargs)
    assert all(isinstance(p, nn.UninitializedParameter) for p in lazy.parameters())
    known = list(lazy.parameters())
    found = lazy(x)
    assert type(lazy) is type(plain) and repr(lazy) == repr(plain) and found.tolist() == expected.tolist()
    assert_same(lazy, plain)
    assert all(a is b for a, b in zip(known, lazy.parameters(), strict=True))  # who had them has them now
    found.sum().backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in lazy.parameters())


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), CASES, ids=[case[0] for case in CASES])
def test_the_size_is_known_with_the_shapes(name: str, args: Any, kwargs: Any, shape: tuple[int, ...]) -> None:
    size = shape[-1] if name == "Linear" else shape[1]
    plain = getattr(nn, name)(size, *args, **kwargs)
    made, loaded = [getattr(nn, f"Lazy{name}")(*args, **kwargs) for _ in range(2)]
    before = repr(made)
    hm.eval_shape(made, hm.ShapeDtypeStruct(shape, hm.float32))
    loaded.load_state_dict(plain.state_dict())
    assert repr(made) == repr(loaded) == repr(plain).replace(name, f"Lazy{name}") != before
    assert getattr(loaded, made.size_name) == size


def test_a_traced_lazy_layer_is_lowered() -> None:
    types = hm.ShapeDtypeStruct((2, 3), hm.float32)
    layer = hm.trace(nn.LazyLinear(4))
    lowered = layer.lower(types)
    assert lowered.out_info == hm.ShapeDtypeStruct((2, 4), "float32") and "self.weight" in lowered.as_text()
    assert lowered.compile().memory_analysis().argument_size_in_bytes == 4 * (2 * 3 + 4 * 3 + 4)
    assert layer.in_features == 3 and layer.weight.device == "meta"
    with pytest.raises(hm.TraceError, match="lazy layers that have no values yet"):
        layer.graph_of(hm.ones((2, 3)))
    hm.manual_seed(0)
    found = layer(hm.ones((2, 3)))  # and not by the program of tensors without values
    hm.manual_seed(0)
    assert found.tolist() == nn.Linear(3, 4)(hm.ones((2, 3))).tolist()
    assert type(layer) is nn.Linear and layer.graph_of(hm.ones((2, 3))).inputs[0].label == "input"


def test_the_first_call_of_a_traced_function_is_the_eager_one() -> None:
    x = hm.random.normal(SPEC.shape, generator=hm.random.Generator(1))
    models = [Net(), Net()]
    traced = hm.trace(models[1], strict=True)
    results = []
    for model in (models[0], traced):
        hm.manual_seed(0)
        results.append(model(x).detach().numpy())
    assert np.array_equal(*results)
    assert_same(*models)
    traced(x)
    assert traced.cache_info().compiles == 1


def test_shapes_need_no_memory_and_draw_nothing() -> None:
    hm.manual_seed(0)
    expected = hm.rand(2).tolist()
    hm.manual_seed(0)
    model = Net()
    for _ in range(2):
        assert hm.eval_shape(model, SPEC) == hm.ShapeDtypeStruct((4, 5), "float32")
        assert model.head.weight.shape == (5, 392) and model.norm.running_mean.shape == (8,)
        assert model.head.weight.device == "meta" and type(model.head) is nn.LazyLinear
    assert hm.rand(2).tolist() == expected
    huge = nn.LazyLinear(1 << 18)
    assert hm.eval_shape(huge, hm.ShapeDtypeStruct((2, 1 << 18), hm.float32)).shape == (2, 1 << 18)
    found = hm.trace(lambda x: model(x)).lower(SPEC).compile().memory_analysis()
    assert found.argument_size_in_bytes > (4 * 3 * 81 + 5 * 392) * 4
    assert type(model.head) is nn.LazyLinear and model.head.weight.device == "meta"


@pytest.mark.parametrize("shapes", [lambda m: hm.eval_shape(m, SPEC), lambda m: m(hm.ones(SPEC.shape, device="meta"))])
def test_values_after_shapes(shapes: Any) -> None:
    x = hm.ones(SPEC.shape)
    models = [Net() for _ in range(3)]
    hm.manual_seed(0)
    models[0](x)
    shapes(models[1])
    hm.manual_seed(0)
    models[1](x)  # the first call with values
    assert_same(models[0], models[1])
    shapes(models[2])
    models[2].to_empty(device="cpu")
    hm.manual_seed(0)
    hm.rand(SPEC.shape)  # as dropout draws
    for layer in (models[2].conv, models[2].norm, models[2].head):
        layer.reset_parameters()
    assert_same(models[2], _before_the_call())
    models[2](x)
    assert repr(models[2]) == repr(models[0])


def _before_the_call() -> nn.Module:
    hm.manual_seed(0)
    hm.rand(SPEC.shape)
    return _named(conv=nn.Conv2d(3, 8, 3), norm=nn.BatchNorm2d(8), head=nn.Linear(392, 5))


def _named(**layers: nn.Module) -> nn.Module:
    module = nn.Module()
    for name, layer in layers.items():
        setattr(module, name, layer)
    return module


def test_a_state_dict_has_the_shapes() -> None:
    x = hm.ones(SPEC.shape)
    model, fresh = Net().eval(), Net().eval()
    expected = model(x).tolist()
    fresh.load_state_dict(model.state_dict())
    assert_same(model, fresh)
    assert hm.trace(fresh)(x).tolist() == expected and repr(fresh) == repr(model)
    Net().load_state_dict(Net().state_dict())  # nothing known, nothing to load
    with pytest.raises(hm.ShapeError, match="no shape and no values before the first call"):
        model.load_state_dict(Net().state_dict())


def test_what_comes_before_the_first_call() -> None:
    model = Net().to(hm.float64)
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert all(isinstance(p, nn.UninitializedParameter) and p.requires_grad for p in made.parameters())
        assert not any(a is b for a, b in zip(made.parameters(), model.parameters(), strict=True))
        assert made(hm.ones(SPEC.shape, dtype=hm.float64)).dtype == hm.float64
    assert isinstance(model.norm.running_mean, nn.UninitializedBuffer)
    weight = model.head.weight
    for use in (lambda: weight.shape, lambda: weight + 1, lambda: hm.trace(lambda: weight * 2)(), weight.tolist):
        with pytest.raises(hm.ShapeError, match="call the model with an input"):
            use()
    with pytest.raises(hm.ArgumentError, match=r"parameter 0 is of a lazy layer .* call the model with an input first"):
        hm.optim.SGD(model.parameters(), lr=0.1)
    assert "lazy layers that have no values yet" in str(hm.explain(hm.trace(Net()), hm.ones(SPEC.shape)))


def test_an_input_that_does_not_fit_leaves_the_layer_lazy() -> None:
    layer = nn.LazyConv2d(4, 3)
    with pytest.raises(hm.ShapeError, match="LazyConv2d: input must have 3 or 4 axes, got shape"):
        layer(hm.ones((3, 3)))
    assert layer.has_uninitialized_params()
    assert layer(hm.ones((2, 5, 5))).shape == (4, 3, 3)


def test_layers_of_no_features() -> None:
    assert nn.Linear(0, 4)(hm.ones((2, 0))).tolist() == [nn.Linear(0, 4).bias.tolist()] * 2 == [[0.0] * 4] * 2

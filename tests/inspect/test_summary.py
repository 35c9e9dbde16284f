"""`hybridml.summary`: what it counts, that it leaves no trace, and how it shows itself."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from benchmarks.models.resnet import ResNet18
from hybridml import nn
from hybridml.inspect.summary import Summary
from tests.support.markup import balanced


def heads(found: Summary) -> list[str]:
    return [column.head for column in found.tables[0].columns]


def make() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))


def test_layers_shapes_and_sums() -> None:
    found = hm.summary(make(), hm.ones((3, 4)))
    assert [(line.name, line.input, line.output, line.parameters, line.own_parameters) for line in found.layers] == [
        ("(the model)", "(3, 4)", "(3, 2)", 74, 0), ("0", "(3, 4)", "(3, 8)", 40, 40),
        ("1", "(3, 8)", "(3, 8)", 16, 16), ("2", "(3, 8)", "(3, 8)", 0, 0), ("3", "(3, 8)", "(3, 2)", 18, 18),
    ]  # fmt: skip
    assert (found.parameters, found.trainable, found.bytes) == (74, 74, 74 * 4 + 2 * 8 * 4 + 8)
    assert found.layers[2].bytes == 16 * 4 + 2 * 8 * 4 + 8


# A layer without biases, the shape of its input, and the multiply-adds by the textbook's formula.
FORMULAS: list[tuple[Any, tuple[int, ...], int]] = [
    (lambda: nn.Linear(16, 24, bias=False), (5, 7, 16), 35 * 16 * 24),
    (lambda: nn.Conv1d(8, 16, 3, stride=2, bias=False), (2, 8, 11), 2 * 16 * 5 * 8 * 3),
    (lambda: nn.Conv2d(8, 16, 3, padding=1, bias=False), (2, 8, 10, 10), 2 * 16 * 100 * 8 * 9),
    (lambda: nn.Conv2d(8, 16, 3, padding=1, groups=4, bias=False), (2, 8, 10, 10), 2 * 16 * 100 * 2 * 9),
    (lambda: nn.Conv2d(8, 8, 3, groups=8, bias=False), (2, 8, 10, 10), 2 * 8 * 64 * 9),
    (lambda: nn.Conv3d(3, 4, 3, bias=False), (2, 3, 6, 6, 6), 2 * 4 * 64 * 3 * 27),
]


@pytest.mark.parametrize(("make", "shape", "formula"), FORMULAS, ids=range(len(FORMULAS)))
def test_products_have_two_operations_a_multiply_add(make: Any, shape: tuple[int, ...], formula: int) -> None:
    assert hm.summary(make(), hm.ones(shape)).flops == 2 * formula
    assert hm.summary(make().to("meta"), hm.ones(shape, device="meta")).flops == 2 * formula


# Layers whose elementwise operations come to at most so much of their multiply-adds.
@pytest.mark.parametrize(
    ("make", "inputs", "formula", "more"),
    [
        (lambda: nn.LSTM(12, 16), [(5, 3, 12)], 5 * 3 * 4 * 16 * (12 + 16), 0.1),
        (lambda: nn.GRU(12, 16, bidirectional=True), [(5, 3, 12)], 2 * 5 * 3 * 3 * 16 * (12 + 16), 0.11),
        (lambda: nn.MultiheadAttention(64, 4), [(32, 2, 64)] * 3, 2 * (32 * 4 * 64 * 64 + 2 * 32 * 32 * 64), 0.05),
        (
            lambda: nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True), [(2, 32, 64)],
            2 * (32 * 4 * 64 * 64 + 2 * 32 * 32 * 64 + 2 * 32 * 64 * 256), 0.05,
        ),
    ],
    ids=["lstm", "gru", "attention", "transformer"],
)  # fmt: skip
def test_layers_of_products(make: Any, inputs: list[tuple[int, ...]], formula: int, more: float) -> None:
    found = hm.summary(make().eval().to("meta"), *[hm.ones(shape, device="meta") for shape in inputs])
    assert 2 * formula <= found.flops <= 2 * formula * (1 + more)
    assert found.flops == sum(line.own_flops for line in found.layers)


def test_resnet_18_as_published() -> None:
    """1.814 G multiply-adds of products at 224 x 224, by torchvision's page of its models."""
    found = hm.summary(ResNet18().to("meta"), hm.zeros((1, 3, 224, 224), device="meta"))
    products = [line.flops for line in found.layers if line.kind in ("Conv2d", "Linear")]
    assert sum(products) == 2 * 1_814_073_344 + 1000  # the biases of the last layer
    assert sum(products) < found.flops < 1.01 * sum(products)
    assert found.parameters == 11_689_512


def test_sizes_of_the_call_and_not_of_a_program_before() -> None:
    layer = nn.LSTM(4, 4)
    first = [hm.summary(layer, hm.ones((n, 2, 4))).flops for n in (3, 5, 9, 17)]
    assert np.diff(first).tolist() == [2 * (first[1] - first[0]) // 2 * k for k in (1, 2, 4)]


def test_counts_do_not_depend_on_what_is_compiled() -> None:
    layer, x = nn.Dropout(0.5), hm.ones((3, 4))
    first = hm.summary(layer, x)
    for _ in range(300):  # the operations become programs
        layer(x)
    assert hm.summary(layer, x) == first


class Repeated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4, bias=False)
        self.again = nn.Sequential(self.inner, nn.Flatten(), nn.ReLU())

    def forward(self, x: hm.Tensor, *, scale: hm.Tensor) -> dict[str, hm.Tensor]:
        y = self.again(self.inner(x)) * scale
        return {"y": y, "shape": y[:1]}


def test_several_calls_shared_layers_and_views() -> None:
    found = hm.summary(Repeated(), hm.ones((3, 4)), scale=hm.ones(()))
    assert [(line.name, line.calls, line.input, line.output, line.flops, line.own_flops) for line in found.layers] == [
        ("(the model)", 1, "(3, 4), ()", "(3, 4), (1, 4)", 216, 12), ("inner", 2, "(3, 4)", "(3, 4)", 192, 192),
        ("again", 1, "(3, 4)", "(3, 4)", 108, 0), ("again.1", 1, "(3, 4)", "(3, 4)", 0, 0),
        ("again.2", 1, "(3, 4)", "(3, 4)", 12, 12),
    ]  # fmt: skip
    assert [line.activations for line in found.layers] == [4 * 48, 2 * 48, 2 * 48, 0, 48]
    assert [line.parameters for line in found.layers] == [16, 16, 16, 0, 0]
    assert "calls" in heads(found)
    assert "calls" not in heads(hm.summary(make(), hm.ones((3, 4))))


def test_layers_that_raise_or_run_in_batches() -> None:
    class Tries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bad, self.good = nn.Linear(3, 3), nn.Linear(4, 4, bias=False)

        def forward(self, x: hm.Tensor) -> hm.Tensor:
            try:
                return self.bad(x)
            except hm.ShapeError:
                return hm.vmap(self.good)(x)

    found = hm.summary(Tries(), hm.ones((3, 4)))
    assert [(line.calls, line.flops, line.activations) for line in found.layers] == [
        (1, 96, 48), (0, 0, 0), (1, 96, 48),
    ]  # fmt: skip


def test_it_leaves_no_trace() -> None:
    model = make()
    before = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    state = hm.random.default_generator.state.numpy().copy()
    hm.summary(model, hm.ones((3, 4)))
    assert all(np.array_equal(before[name], tensor.numpy()) for name, tensor in model.state_dict().items())
    assert np.array_equal(state, hm.random.default_generator.state.numpy())
    assert all(module._hooks is None for module in model.modules())
    with pytest.raises(hm.ShapeError):
        hm.summary(model, hm.ones((3, 5)))
    assert all(module._hooks is None and "forward" not in vars(module) for module in model.modules())


def test_lazy_layers_stay_lazy() -> None:
    model = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.LazyLinear(2))
    text = repr(model)
    found = hm.summary(model, hm.ones((3, 4)))
    made = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    assert found.to_dict() == hm.summary(made, hm.ones((3, 4))).to_dict()
    assert repr(model) == text
    assert all(isinstance(p, nn.UninitializedParameter) for p in model.parameters())
    assert hm.summary(model).total.startswith("0 parameters, 0 of them trainable; 0 B with buffers; 6 have no shape")
    hm.manual_seed(1)
    model(hm.ones((5, 6)))  # another size than the summary's
    hm.manual_seed(1)
    other = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    assert all(np.array_equal(a.detach().numpy(), b.detach().numpy()) for a, b in pairs)


def test_traced_models_shared_parameters_and_several_results() -> None:
    assert hm.summary(hm.trace(make()), hm.ones((3, 4))).layers == hm.summary(make(), hm.ones((3, 4))).layers
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    tied[0].weight.requires_grad_(False)
    found = hm.summary(tied)
    assert [line.parameters for line in found.layers] == [8, 6, 6]
    assert (found.parameters, found.trainable, found.layers[0].output) == (8, 4, "")
    assert hm.summary(nn.LSTM(2, 3), hm.ones((5, 1, 2))).layers[0].output == "(5, 1, 3), (1, 1, 3), (1, 1, 3)"


def test_depth() -> None:
    model = nn.Sequential(make(), nn.ReLU())
    whole = hm.summary(model, hm.ones((3, 4)))
    for depth, names in ((0, ["(the model)"]), (1, ["(the model)", "0", "1"])):
        found = hm.summary(model, hm.ones((3, 4)), depth=depth)
        assert [line.name for line in found.layers] == names
        assert found.layers == tuple(line for line in whole.layers if line.name in names)
        assert found.total == whole.total
    for bad in (-1, True, "1"):
        with pytest.raises(hm.ArgumentError, match="depth must be"):
            hm.summary(model, depth=bad)  # type: ignore[arg-type]


def test_forms() -> None:
    found = hm.summary(make(), hm.ones((3, 4)))
    assert repr(found).splitlines()[1].split()[:8] == ["(the", "model)", "Sequential", "(3,", "4)", "(3,", "2)", "74"]
    balanced(found._repr_html_())
    assert "BatchNorm1d" in found._repr_html_()
    assert json.loads(found.to_json())["layers"][1]["kind"] == "Linear"
    assert heads(hm.summary(make())) == ["layer", "kind", "parameters", "size, B"]


def test_it_counts_beside_other_watches() -> None:
    with hm.debug_nans(), hm.deadline(100.0):
        found = hm.summary(make(), hm.ones((3, 4)))
        with pytest.raises(FloatingPointError):
            hm.log(hm.tensor([-1.0]))
    assert found == hm.summary(make(), hm.ones((3, 4)))


def test_what_is_no_module() -> None:
    with pytest.raises(hm.ArgumentError, match="takes a module, got function"):
        hm.summary(lambda x: x)

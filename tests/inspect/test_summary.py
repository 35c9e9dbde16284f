"""`hybridml.summary`: what it counts, that it leaves no trace, and how it shows itself."""

from __future__ import annotations

import json

import numpy as np
import pytest

import hybridml as hm
from tests.support.markup import balanced


def make() -> hm.nn.Sequential:
    return hm.nn.Sequential(hm.nn.Linear(4, 8), hm.nn.BatchNorm1d(8), hm.nn.Dropout(0.5), hm.nn.Linear(8, 2))


def test_layers_shapes_and_sums() -> None:
    found = hm.summary(make(), hm.ones((3, 4)))
    assert [(line.name, line.output, line.parameters) for line in found.layers] == [
        ("(the model)", "(3, 2)", 0), ("0", "(3, 8)", 40), ("1", "(3, 8)", 16), ("2", "(3, 8)", 0), ("3", "(3, 2)", 18),
    ]  # fmt: skip
    assert (found.parameters, found.trainable, found.bytes) == (74, 74, 74 * 4 + 2 * 8 * 4 + 8)


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
    assert all(module._hooks is None for module in model.modules())


def test_traced_models_shared_parameters_and_several_results() -> None:
    assert hm.summary(hm.trace(make()), hm.ones((3, 4))).layers == hm.summary(make(), hm.ones((3, 4))).layers
    tied = hm.nn.Sequential(hm.nn.Linear(2, 2), hm.nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    tied[0].weight.requires_grad_(False)
    found = hm.summary(tied)
    assert [line.parameters for line in found.layers] == [0, 6, 2]
    assert (found.parameters, found.trainable, found.layers[0].output) == (8, 4, "")
    assert hm.summary(hm.nn.LSTM(2, 3), hm.ones((5, 1, 2))).layers[0].output == "(5, 1, 3), (1, 1, 3), (1, 1, 3)"


def test_forms() -> None:
    found = hm.summary(make(), hm.ones((3, 4)))
    assert repr(found).splitlines()[1].split() == ["(the", "model)", "Sequential", "(3,", "2)", "0"]
    balanced(found._repr_html_())
    assert "BatchNorm1d" in found._repr_html_()
    assert json.loads(found.to_json())["layers"][1]["kind"] == "Linear"


def test_what_is_no_module() -> None:
    with pytest.raises(hm.ArgumentError, match="takes a module, got function"):
        hm.summary(lambda x: x)

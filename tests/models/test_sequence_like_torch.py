"""The architectures of speech, text and ratings beside transformers and our text in PyTorch, on the same weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import models
from tests.models.record_sequence import NAMES, RECORDED, decoded
from tests.models.recording import batch, observed, tree, value, values, without_dropout

RECORDS: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))


def _small(name: str) -> Any:
    model = without_dropout(models.get_model(name, tiny=True).to(hm.float64))
    model.load_state_dict({k: hm.asarray(v) for k, v in values(model).items()})
    return model


@pytest.mark.parametrize("name", NAMES)
def test_state_dicts_have_the_names_and_shapes(name: str) -> None:
    with hm.device("meta"):
        state = models.get_model(name).state_dict()
    ours, recorded = tree(state), RECORDS[name]["state_dict"]
    assert ours == recorded


@pytest.mark.parametrize("name", NAMES)
def test_the_same_weights_give_the_same_outputs_and_gradients(name: str) -> None:
    model = _small(name)
    found, recorded = observed(name, model, models.loss_of(name), hm.asarray), RECORDS[name]
    for part in ("training", "loss", "evaluation"):
        np.testing.assert_allclose(found[part], recorded[part], rtol=1e-9, atol=1e-9)
    assert found["gradients"].keys() == recorded["gradients"].keys()
    for path, parameter in model.named_parameters():
        # Gradients of what normalisation or a softmax takes away again are noise around zero.
        size = np.linalg.norm(parameter.grad.numpy()) * np.linalg.norm(value(path, parameter.shape))
        assert found["gradients"][path] == pytest.approx(recorded["gradients"][path], rel=0, abs=1e-9 * size + 1e-13), (
            path
        )


DECODERS = [name for name in NAMES if RECORDS[name]["decoded"]]


def _as_lists(style: Callable[..., Any], name: str) -> list[Any]:
    model = _small(name)
    row = models.architecture(name)
    observed(name, model, models.loss_of(name), hm.asarray)  # moves the statistics of normalisation
    for method in ("greedy", "beam", "transcribe", "infer", "recommend", "generate"):
        if hasattr(model, method):
            setattr(model, method, style(getattr(model, method)))
    assert row.inputs <= len(batch(name))
    return decoded(name, model, hm.asarray)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
def test_decoding_gives_what_it_gives_in_pytorch(name: str, style: Callable[..., Any]) -> None:
    for found, recorded in zip(_as_lists(style, name), RECORDS[name]["decoded"], strict=True):
        np.testing.assert_allclose(found, recorded, rtol=1e-8, atol=1e-8)

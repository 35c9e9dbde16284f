"""The architectures beside PyTorch's, of the same weights: names and shapes, outputs, losses, gradients, decoding."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import models
from tests.models import record_sequence, record_vision
from tests.models.recording import observed, tree, value, values, without_dropout

PATHS = (record_vision.RECORDED, record_sequence.RECORDED)
RECORDS: dict[str, Any] = {k: v for path in PATHS for k, v in json.loads(path.read_text(encoding="utf-8")).items()}
DECODERS = [(name, lambda f: f) for name, record in RECORDS.items() if record.get("decoded")]
TRACED = [(name, hm.trace) for name in ("deep_speech2", "tacotron2", "ncf")]  # the others are in test_decoding.py


def _small(name: str) -> Any:
    model = without_dropout(models.get_model(name, tiny=True).to(hm.float64))
    model.load_state_dict({k: hm.asarray(v) for k, v in values(model).items()})
    return model


def test_each_architecture_has_a_record() -> None:
    assert sorted(RECORDS) == models.list_models()


@pytest.mark.parametrize("name", RECORDS)
def test_published_sizes_have_the_names_and_shapes(name: str) -> None:
    with hm.device("meta"):
        model = models.get_model(name)
    assert sum(p.numel() for p in model.parameters()) == models.architecture(name).parameters
    ours, theirs = tree(model.state_dict()), RECORDS[name]["state_dict"]
    assert ours == theirs
    if name != "bert_base":  # whose heads come in another order
        assert json.dumps(ours) == json.dumps(theirs)


@pytest.mark.parametrize("name", RECORDS)
def test_the_same_weights_give_the_same_outputs_and_gradients(name: str) -> None:
    model = _small(name)
    found, recorded = observed(name, model, models.loss_of(name), hm.asarray), RECORDS[name]
    for part in ("training", "loss", "evaluation"):
        np.testing.assert_allclose(found[part], recorded[part], rtol=1e-9, atol=1e-9)
    ours, theirs = found["gradients"], recorded["gradients"]
    assert ours.keys() == theirs.keys()
    norms = {path: float(np.linalg.norm(p.grad.numpy())) for path, p in model.named_parameters()}
    least = 1e-4 * max(norms.values())  # some are nothing but rounding: a shift before a normalisation or a softmax
    for path, norm in norms.items():
        size = max(norm, least) * float(np.linalg.norm(value(f"{path} projected", model.get_parameter(path).shape)))
        assert ours[path] == pytest.approx(theirs[path], rel=0, abs=1e-9 * size), path


@pytest.mark.parametrize(("name", "style"), DECODERS + TRACED)
def test_decoding_gives_what_it_gives_in_pytorch(name: str, style: Callable[..., Any]) -> None:
    model = _small(name)
    observed(name, model, models.loss_of(name), hm.asarray)  # moves the statistics of normalisation
    for method in ("greedy", "beam", "transcribe", "infer", "recommend", "generate"):
        if hasattr(model, method):
            setattr(model, method, style(getattr(model, method)))
    for found, recorded in zip(record_sequence.decoded(name, model, hm.asarray), RECORDS[name]["decoded"], strict=True):
        np.testing.assert_allclose(found, recorded, rtol=1e-8, atol=1e-8)

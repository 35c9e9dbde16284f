"""The image architectures beside torchvision's: names and shapes, outputs, losses and gradients of the same weights."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import models
from tests.models.record_vision import NAMES, RECORDED, observed, tree, value, values, without_dropout

RECORDS: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_state_dicts_have_the_names_and_shapes(name: str) -> None:
    with hm.device("meta"):
        state = models.get_model(name).state_dict()
    assert json.dumps(tree(state)) == json.dumps(RECORDS[name]["state_dict"])  # the order, too


@pytest.mark.parametrize("name", NAMES)
def test_the_same_weights_give_the_same_outputs_and_gradients(name: str) -> None:
    model = without_dropout(models.get_model(name, tiny=True).to(hm.float64))
    model.load_state_dict({k: hm.asarray(v) for k, v in values(model.state_dict()).items()})
    found, recorded = observed(name, model, models.loss_of(name), hm.asarray), RECORDS[name]
    for part in ("training", "loss", "evaluation"):
        np.testing.assert_allclose(found[part], recorded[part], rtol=1e-9, atol=1e-9)
    named = dict(model.named_parameters())
    norms = {path: float(np.linalg.norm(p.grad.numpy())) for path, p in named.items()}
    least = 1e-4 * max(norms.values())  # some are nothing but rounding: a shift before a normalisation
    for path, ours, theirs in zip(named, found["gradients"], recorded["gradients"], strict=True):
        size = max(norms[path], least) * float(np.linalg.norm(value(path, named[path].shape)))
        assert ours == pytest.approx(theirs, rel=0, abs=1e-9 * size), path

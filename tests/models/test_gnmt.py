"""GNMT's random weights: what a narrow model sees of a source."""

from __future__ import annotations

import pytest

import hybridml as hm
from hybridml import models


@pytest.mark.parametrize("width", [32, 256])
def test_features_of_narrow_models_tell_sentences_apart_as_those_of_wide_ones_do(width: int) -> None:
    hm.manual_seed(0)
    model = models.gnmt(vocab_size=50, width=width, layers=2).eval()
    source = hm.randint(3, 50, (64, 8))
    with hm.no_grad():
        features = model.encoder(source, hm.full((64,), 8, dtype="int64"))
    assert features[:, -1].std(0).mean().item() == pytest.approx(0.05, rel=0.2)

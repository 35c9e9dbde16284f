"""What models make at use: samples, text and translations, by loops that both styles run alike."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import models


def _model(name: str, **options: Any) -> Any:
    hm.manual_seed(0)
    return models.get_model(name, tiny=True, **options).eval()


def _batch(name: str, n: int = 2, **sizes: int) -> list[hm.Tensor]:
    return [hm.asarray(a) for a in models.example_batch(name, n, tiny=True, **sizes)]


def test_samples_of_speech_are_drawn_from_the_distribution_that_training_sees() -> None:
    model, mel = _model("wavenet").to(hm.float64), _batch("wavenet")[1].to(hm.float64)
    hm.manual_seed(1)
    audio = model.sample(mel)
    mean, log_deviation = model(audio, mel)
    hm.manual_seed(1)
    for t in range(audio.shape[1]):
        draw = mean[:, t] + log_deviation[:, t].exp() * hm.randn((2, 1), dtype=hm.float64)[:, 0]
        assert np.allclose(audio[:, t], draw.detach().clamp(-1.0, 1.0), atol=1e-12)
    hm.manual_seed(1)
    traced = hm.trace(model.sample, strict=True)
    assert np.allclose(traced(mel), audio, atol=1e-12)
    assert " loop(" in traced.ir and len(traced.ir.splitlines()) < 1000


def test_text_is_what_the_whole_model_makes_most_likely() -> None:
    model, start = _model("gpt2"), _batch("gpt2")[0][:, :4]
    written = model.generate(start, 8, temperature=0.0)
    assert written[:, :4].tolist() == start.tolist()
    assert written[:, 4:].tolist() == model(written[:, :-1])[:, 3:].argmax(-1).tolist()


def test_text_is_drawn_alike_in_both_styles() -> None:
    model, start = _model("gpt2"), _batch("gpt2")[0][:, :4]
    hm.manual_seed(1)
    eager = model.generate(start, 24)
    hm.manual_seed(1)
    traced = hm.trace(model.generate, strict=True)
    assert traced(start, 24).tolist() == eager.tolist()
    assert " loop(" in traced.ir
    assert model.generate(start, 24).tolist() != eager.tolist()


@pytest.mark.parametrize("name", ["gnmt", "transformer_base"])
def test_the_search_finds_the_likeliest_of_all_translations_where_it_keeps_them_all(name: str) -> None:
    model = _model(name, vocab_size=5)
    source, lengths, *_ = _batch(name, vocab_size=5)
    found = model.beam(source, lengths, 3, width=25, alpha=0.6)
    ended = [(*words, 2) for n in range(3) for words in product((0, 1, 3, 4), repeat=n)]
    whole = [*ended, *product((0, 1, 3, 4), repeat=3)]
    padded = hm.tensor([[*words, *[0] * (3 - len(words))] for words in whole])
    before = hm.concat([hm.ones((len(whole), 1), dtype="int64"), padded[:, :-1]], 1)
    counts = np.array([len(words) for words in whole])
    for row in range(2):
        copies = [x[row : row + 1].repeat_interleave(len(whole), 0) for x in (source, lengths)]
        chances = hm.functional.log_softmax(model(*copies, before), -1).detach().numpy()
        each = np.take_along_axis(chances, padded.numpy()[:, :, None], 2)[:, :, 0] * (np.arange(3) < counts[:, None])
        best = np.argmax(each.sum(1) / ((5 + counts) / 6) ** 0.6)
        assert found[row].tolist() == padded[best].tolist()


@pytest.mark.parametrize("name", ["gnmt", "transformer_base"])
def test_a_search_is_one_loop_of_the_program(name: str) -> None:
    model, (source, lengths, *_) = _model(name), _batch(name)
    for method in (model.greedy, model.beam):
        traced = hm.trace(method, strict=True)
        assert traced(source, lengths, 20).tolist() == method(source, lengths, 20).tolist()
        assert " loop(" in traced.ir and len(traced.ir.splitlines()) < 1000


@pytest.mark.parametrize("name", ["gnmt", "transformer_base", "bert_base", "tacotron2", "deep_speech2"])
def test_what_is_behind_a_sentences_end_does_not_matter(name: str) -> None:
    model, row = _model(name), models.architecture(name)
    inputs = _batch(name)[: row.inputs]
    if name == "tacotron2":
        model.decoder.prenet.dropout = 0.0
    last = inputs[2][1].sum().item() if name == "bert_base" else inputs[1][1].item()
    assert last < inputs[0].shape[-1]
    changed = inputs[0].clone()
    changed[1, ..., last:] = 3
    found = [model(x, *inputs[1:]) for x in (inputs[0], changed)]
    if name == "bert_base":
        found = [(words[:, :last], follows) for words, follows in found]
    pairs = zip(*(outputs if isinstance(outputs, tuple) else (outputs,) for outputs in found), strict=True)
    assert all(np.allclose(before.detach(), after.detach(), atol=1e-5) for before, after in pairs)

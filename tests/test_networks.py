"""The architectures' data, training and inference: what the data are, and both styles of tiny sizes for a few steps."""

from __future__ import annotations

import doctest
import importlib.util
import math
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import hybridml as hm
from hybridml import models
from hybridml.__main__ import main
from hybridml_examples.networks import infer, measures, ratings, speech, text, train, translation
from hybridml_examples.networks.made import Missing, Samples, Unusable, endless, padded
from hybridml_examples.networks.tasks import TASKS, size_of

NAMES = models.list_models()
SPOKEN = {name for name, task in TASKS.items() if "espeak" in task.here}
DRAWN = {name for name, task in TASKS.items() if task.here in ("scanned digits", "photographs")}
QUICK = ("ncf", "gpt2", "vae")  # of which both styles are tried each time


def needs(name: str) -> None:
    """Skips a test where the data of an architecture cannot be made."""
    if name in SPOKEN and shutil.which("espeak-ng") is None:
        pytest.skip("speech is synthesised by espeak-ng, which is not here")
    if name in DRAWN and importlib.util.find_spec("sklearn") is None:
        pytest.skip("the images come with scikit-learn, which is not here")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n == "inception_v3" else n for n in NAMES])
def test_batches_are_of_the_forms_that_the_architectures_train_on(name: str) -> None:
    needs(name)
    size = size_of(name, "tiny")
    data = TASKS[name].data(**size.data)
    assert data.about
    expected = models.example_batch(name, 3, tiny=True)
    for samples in (data.training, data.test):
        batch = samples.batch(np.arange(3))
        assert [(x.dtype, x.ndim, x.shape[0]) for x in batch] == [(hm.asarray(x).dtype, x.ndim, 3) for x in expected]
        assert all(np.array_equal(a, b) for a, b in zip(batch, samples.batch(np.arange(3)), strict=True))
    hm.manual_seed(0)
    with hm.no_grad():
        loss = models.loss_of(name)(models.get_model(name, **size.model), *data.training.batch(np.arange(2)))
    assert math.isfinite(loss.item())


def test_there_is_a_task_for_each_architecture() -> None:
    assert set(NAMES) <= set(TASKS)


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_both_styles_train_alike_and_what_is_saved_is_used(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs(name)
    weights = tmp_path / "weights.safetensors"
    given = ["--size", "tiny", "--steps", "3", "--style", "both", "--dtype", "float64", "--save", str(weights)]
    assert train.main([name, *given]) == 0
    printed = capsys.readouterr().out
    assert "eager and traced agree" in printed and printed.startswith("data: ")
    eager, traced = (line.split()[-1] for line in printed.splitlines()[2:4])
    assert eager == traced  # the last of the figures
    assert infer.main([name, "--load", str(weights), "--output", str(tmp_path / "made")]) == 0
    assert capsys.readouterr().out.startswith("trained on: ")
    with pytest.raises(SystemExit, match=f"is of {name}, not of"):
        infer.load(next(other for other in NAMES if other != name), weights)


def test_losses_of_one_style_that_part_from_the_others_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    def made(*losses: float) -> train.Run:
        return train.Run("made up", "eager", list(losses), [0.1] * len(losses))

    assert train.judge(made(2.0, 1.0), made(2.0, 1.1), "float32") == 0
    assert "--dtype float64 tells" in capsys.readouterr().out
    assert train.judge(made(2.0, 1.0), made(2.0, 1.1), "float64") == 1
    assert train.judge(made(2.0, 1.0), made(2.001, 1.0), "float32") == 1
    assert "PART" in capsys.readouterr().out


def test_the_command_lists_shows_trains_and_tells_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    needs("resnet18")
    assert main(["models"]) == 0
    table = capsys.readouterr().out
    assert all(f"\n{name} " in table for name in NAMES) and "11,689,512" in table
    assert main(["models", "resnet18", "--tiny", "--depth", "1"]) == 0
    assert "ResNet" in capsys.readouterr().out
    assert main(["models", "train", "vae", "--size", "tiny", "--steps", "2", "--style", "eager"]) == 0
    assert "data: scikit-learn" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("resnet19", "no 'resnet19'; do you mean resnet18"),
        ("train zzz", "no 'zzz'; there are alexnet, "),
        ("train", r"of which\? alexnet, "),
        ("gpt2 ncf", "one network at a time, got gpt2, ncf"),
        ("train ncf --tiny", "models train takes no --tiny: "),
        ("ncf --style both --load x", "models NAME takes no --style, --load: "),
        ("infer ncf", "by --load; `python -m hybridml models train ncf --save FILE`"),
        (
            "infer ncf --load nowhere.safetensors",
            "nowhere.safetensors has no weights .*; `python -m hybridml models train",
        ),
        ("infer ncf --load text", "text has no weights .*; `python -m hybridml models train"),
    ],
)
def test_the_command_says_in_a_line_what_to_write_instead(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("no weights", encoding="utf-8")
    with pytest.raises(SystemExit, match=said):
        main(["models", *words.split()])


@pytest.mark.parametrize("steps", ["0", "-3", "many"])
def test_training_takes_a_step_or_more(steps: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["models", "train", "ncf", "--steps", steps])
    assert f"'{steps}' is no number of steps: give 1 or more" in capsys.readouterr().err


def test_data_that_cannot_be_made_skip_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Missing, match="apt-get install espeak-ng"):
        speech.waveform(speech.Utterance("never said before"))
    monkeypatch.setattr(speech, "waveform", speech.waveform.__wrapped__)  # what was said before is remembered
    assert train.main(["wavenet"]) == 2
    assert "wavenet is skipped: speech is synthesised by espeak-ng" in capsys.readouterr().err


def test_epochs_follow_each_other_in_orders_of_the_seed() -> None:
    samples = Samples(5, lambda k: (k,))

    def first(count: int, seed: int) -> list[list[int]]:
        return [batch[0].tolist() for batch, _ in zip(endless(samples, 2, seed), range(count), strict=False)]

    assert first(6, 0) == first(6, 0) != first(6, 1)
    assert len({k for batch in first(2, 0) for k in batch}) == 4  # an epoch repeats none
    assert samples[3][0].item() == 3
    assert padded([np.asarray([1, 2, 3]), np.asarray([4])], 2, 9).tolist() == [[1, 2], [4, 9]]


def test_sentences_are_translated_by_the_law_and_those_that_test_are_held_out() -> None:
    assert translation.number(0) == "zero" and translation.number(40_015) == "forty thousand and fifteen"
    assert translation.number(700_100) == "seven hundred thousand one hundred"
    assert translation.date(1900, 12, 30) == "the thirtieth of december nineteen hundred"
    data = translation.pairs()
    trained, tested = (
        {translation.decode(row) for row in samples.batch(np.arange(200))[3].numpy()}
        for samples in (data.training, data.test)
    )
    assert not trained & tested and all(sum(digits.encode()) % 10 == 0 for digits in tested)
    source, lengths, before, after = data.training.batch(np.arange(50))
    assert (source.numpy() != translation.PAD).sum(1).tolist() == lengths.tolist()
    assert np.array_equal(before[:, 1:] * (after[:, :-1] != translation.END), after[:, :-1] * (after[:, :-1] != 2))
    with pytest.raises(Unusable, match="no translation of 'blue'"):
        translation.source("the blue of march")


def test_a_user_sees_no_item_twice_and_popular_ones_more_often() -> None:
    found = ratings.drawn(200, 100)
    everything = np.sort(np.concatenate([found.items, found.unseen], 1), 1)
    assert (everything == np.arange(100)).all()
    counts = np.sort(np.bincount(found.items.ravel(), minlength=100))[::-1]
    assert counts[:10].sum() > 3 * counts[50:60].sum()
    data = ratings.implicit(200, 130)
    found = ratings.drawn(200, 130)
    users, items, seen = (x.numpy() for x in data.training.batch(np.arange(len(data.training))))
    left_out = found.items[users, -1]
    assert not (items == left_out).any() and seen.mean() == 0.2
    of_user = (users == 7) & (seen == 1)
    assert sorted(items[of_user]) == sorted(found.items[7, :-1])
    users, items, seen = (x.numpy() for x in data.test.batch(np.arange(100, 200)))
    assert (users == 1).all() and len(set(items)) == 100 and seen.tolist() == [1.0] + [0.0] * 99


def test_characters_survive_encoding_and_hidden_ones_are_asked_for() -> None:
    assert text.decode(text.encode("if x < 3:\n")) == "if x < 3:\n" and text.decode(text.encode("a\0b")) == "a_b"
    tokens, segments, mask, asked, follows = (
        x.numpy() for x in text.masked_characters(16).training.batch(np.arange(400))
    )
    hidden = tokens == text.MASK
    assert np.array_equal(hidden, asked >= 0) and 0.15 < hidden.mean() < 0.25 and mask.all()
    assert segments[:, :8].sum() == 0 and segments[:, 8:].all() and 0.4 < follows.mean() < 0.6
    assert len(set(text.words()[:50])) == 50 and "the" in text.words()[:3]


def test_signals_come_through_resampling_spectra_and_mel_frames() -> None:
    time = np.arange(22_050, dtype=np.float32) / 22_050
    tone = np.sin(2 * np.pi * 1000 * time)
    found = speech.resampled(tone, 22_050)
    assert len(found) == speech.RATE
    same = np.sin(2 * np.pi * 1000 * np.arange(speech.RATE) / speech.RATE)
    assert np.abs(found - same)[1000:-1000].max() < 0.02
    loudest = speech.spectrogram(found).mean(0).argmax() * speech.RATE / speech.WINDOW
    assert abs(loudest - 1000) <= speech.RATE / speech.WINDOW
    mel = speech.mel_spectrogram(found)
    again = speech.mel_spectrogram(speech.griffin_lim(mel))
    assert mel.shape[0] == speech.MELS and again.mean(1).argmax() == mel.mean(1).argmax()
    assert speech.decode(speech.encode("Don't, 3 times")) == "don't  times"


@pytest.mark.parametrize("module", [measures, translation])
def test_examples_of_docstrings(module: ModuleType) -> None:
    assert doctest.testmod(module) == (0, 2)


def test_error_rates_count_edits() -> None:
    assert measures.edits("", "abc") == 3 and measures.edits("flaw", "lawn") == 2
    assert measures.error_rates(["a b"], ["a b"]) == {"word error rate": 0, "character error rate": 0}
    rows = np.random.default_rng(0).standard_normal((500, 64))
    assert measures._distance(rows, rows) == pytest.approx(0, abs=1e-8)
    assert measures._distance(rows, rows + 2) == pytest.approx(4 * 64)

"""The training loop: both styles, what callbacks see and do, going on from a file, the search for a rate."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from hybridml.training import (
    Callback,
    Checkpoint,
    CSVLogger,
    EarlyStopping,
    LRFinder,
    Progress,
    TensorBoard,
    fit,
    lr_finder,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(70, 5)).astype("f")
Y = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype("i8")


def _loader(seed: int | None = 0) -> hm.data.DataLoader:
    data = hm.data.TensorDataset(hm.tensor(X), hm.tensor(Y))
    return hm.data.DataLoader(data, batch_size=16, shuffle=True, generator=seed)


def _parts(seed: int = 0, dropout: float = 0.2) -> Any:
    hm.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 2))
    return model, nn.CrossEntropyLoss(), hm.optim.AdamW(model.parameters(), lr=0.02)


def _weights(model: Any) -> list[Any]:
    return [p.tolist() for p in model.parameters()]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_both_styles_train_alike(accumulate: int) -> None:
    results = []
    for traced in (False, True):
        model, loss, optimizer = _parts()
        schedule = hm.optim.StepLR(optimizer, 2, 0.5)
        run = fit(
            model, loss, optimizer, _loader(), 4, validation=_loader(1), scheduler=schedule, accumulate=accumulate,
            metrics={"accuracy": hm.metrics.Accuracy()}, clip_grad_norm=1.0, traced=traced,
        )  # fmt: skip
        assert run.step == 20 and run.epoch == 4 and model.training
        assert all([*logs] == ["loss", "accuracy", "val_loss", "val_accuracy"] for logs in run.history)
        assert optimizer.state_dict()["state"][0]["step"] == 4 * -(-5 // accumulate)
        results.append((run.history, _weights(model), schedule.get_last_lr()))
    (eager, weights, rate), (traced_history, traced_weights, traced_rate) = results
    np.testing.assert_allclose(
        [[*logs.values()] for logs in eager], [[*logs.values()] for logs in traced_history], rtol=1e-5
    )
    for a, b in zip(weights, traced_weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert rate == traced_rate == [0.005]
    assert eager[-1]["val_loss"] < eager[0]["val_loss"]


def test_steps_are_those_of_a_loop_by_hand() -> None:
    model, loss, optimizer = _parts()
    run = fit(model, loss, optimizer, _loader(), 2, validation=_loader(1), clip_grad_norm=0.5, traced=False)
    other, loss, optimizer = _parts()
    loader = _loader()
    for _ in range(2):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            value = loss(other(x), y)
            value.backward()
            nn.utils.clip_grad_norm_(other.parameters(), 0.5)
            optimizer.step()
            total += value.item() * len(y)
    assert _weights(model) == _weights(other)
    validation = loss(other.eval()(hm.tensor(X)), hm.tensor(Y)).item()
    assert run.history[-1] == pytest.approx({"loss": total / 70, "val_loss": validation})


def test_accumulated_gradients_are_those_of_the_whole_batch() -> None:
    weights = []
    for size, accumulate in ((60, 1), (20, 3)):
        model, loss, _ = _parts(dropout=0.0)
        loader = hm.data.DataLoader(hm.data.TensorDataset(hm.tensor(X[:60]), hm.tensor(Y[:60])), batch_size=size)
        fit(model, loss, hm.optim.SGD(model.parameters(), lr=0.1), loader, 2, accumulate=accumulate)
        weights.append(_weights(model))
    for a, b in zip(*weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("seed", [0, None, "fixed"])
def test_a_run_goes_on_where_it_was_saved(tmp_path: Path, seed: Any) -> None:
    path = tmp_path / "run.safetensors"

    def run(epochs: int) -> Any:
        model, loss, optimizer = _parts()
        schedule = hm.optim.StepLR(optimizer, 2, 0.5)
        fixed = [(hm.tensor(X[k : k + 16]), hm.tensor(Y[k : k + 16])) for k in range(0, 70, 16)]
        loader = fixed if seed == "fixed" else _loader(seed)
        found = fit(
            model, loss, optimizer, loader, epochs, scheduler=schedule, callbacks=[Checkpoint(path)], resume=path
        )
        return found.history, _weights(model), found.step, schedule.get_last_lr()

    whole = run(5)
    path.unlink()
    run(3)
    assert run(5) == whole
    assert run(5)[0] == whole[0]  # nothing is left to do


def test_callbacks_are_called_in_order_and_may_stop() -> None:
    called: list[str] = []

    class Notes(Callback):
        def on_train_begin(self, run: Any) -> None:
            called.append("begin")

        def on_epoch_begin(self, run: Any) -> None:
            called.append(f"epoch {run.epoch}")

        def on_batch_end(self, run: Any) -> None:
            assert [*run.logs] == ["loss"] and run.batches == 5
            called.append(f"batch {run.step}")

        def on_epoch_end(self, run: Any) -> None:
            called.append("end of epoch")
            run.stop = run.epoch == 2

        def on_train_end(self, run: Any) -> None:
            called.append("end")

    run = fit(*_parts(), _loader(), 9, callbacks=[Notes()])
    assert run.epoch == 2 and len(run.history) == 2
    epochs = [[f"epoch {k}", *[f"batch {5 * k + n}" for n in range(1, 6)], "end of epoch"] for k in range(2)]
    assert called == ["begin", *epochs[0], *epochs[1], "end"]


@pytest.mark.parametrize("ends", [(9,), (3, 9, 9)])
def test_the_best_epoch_is_kept_and_training_ends_after_it(tmp_path: Path, ends: tuple[int, ...]) -> None:
    last, best = tmp_path / "last.safetensors", tmp_path / "best.safetensors"
    values = [3.0, 2.0, 2.5, 2.4]

    class Values(Callback):
        def on_epoch_end(self, run: Any) -> None:
            run.logs["val_loss"] = values[run.epoch - 1]

    for end in ends:  # each goes on from the one before
        callbacks = [Values(), Checkpoint(last), Checkpoint(best, "val_loss"), EarlyStopping(patience=2)]
        run = fit(*_parts(), _loader(), end, callbacks=callbacks, resume=last)
        assert run.epoch == min(end, 4)
    assert hm.load(best)["epoch"] == 2
    with pytest.raises(hm.ArgumentError, match="no figure 'accuracy'; there are loss"):
        fit(*_parts(), _loader(), 1, callbacks=[EarlyStopping("accuracy")])
    with pytest.raises(hm.ArgumentError, match="mode"):
        EarlyStopping(mode="lowest")


@pytest.mark.parametrize("fails", ["on_train_begin", "on_train_end", "on_epoch_end"])
def test_every_callback_ends_after_errors(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(run: Any) -> None:
        raise RuntimeError(fails)

    callbacks, ended, (model, loss, optimizer) = [Callback() for _ in range(3)], [], _parts()
    for k, callback in enumerate(callbacks):
        monkeypatch.setattr(callback, "on_train_end", lambda run, k=k: ended.append(k))
    monkeypatch.setattr(callbacks[1], fails, fail)
    with pytest.raises(RuntimeError, match=fails):
        fit(model.eval(), loss, optimizer, _loader(), callbacks=callbacks)
    assert ended == ([0, 2] if fails == "on_train_end" else [0, 1, 2]) and model.training


def test_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.csv"
    for _ in range(2):
        run = fit(*_parts(), _loader(), 2, callbacks=[CSVLogger(path), Progress(bar=False)])
    with path.open(newline="") as file:
        rows = [*csv.reader(file)]
    assert rows[0] == ["epoch", "loss"] and [row[0] for row in rows[1:]] == ["1", "2", "1", "2"]
    assert float(rows[-1][1]) == run.history[-1]["loss"]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and lines[0].startswith("epoch 1/2  loss ")
    with pytest.raises(hm.ArgumentError, match="give another file"):
        fit(*_parts(), _loader(), 1, validation=_loader(), callbacks=[CSVLogger(path)])


def test_tensorboard_reads_its_log(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = fit(*_parts(), _loader(), 3, callbacks=[TensorBoard(tmp_path)])
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [event.step for event in events.Tensors("loss")] == [1, 2, 3]
    assert len(run.history) == 3


def test_packages_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboard.summary", None)
    with pytest.raises(hm.ArgumentError, match="pip install tensorboard"):
        fit(*_parts(), _loader(), 1, callbacks=[TensorBoard(tmp_path)])


def test_what_fit_refuses() -> None:
    with pytest.raises(hm.ArgumentError, match="accumulate"):
        fit(*_parts(), _loader(), accumulate=0)
    with pytest.raises(hm.ArgumentError, match="no batch"):
        fit(*_parts(), [])
    with pytest.raises(hm.ArgumentError, match="validation has no batch"):
        fit(*_parts(), _loader(), validation=[])
    with pytest.raises(hm.ArgumentError, match=r"\(\*inputs, target\), got Tensor"):
        fit(*_parts(), [hm.ones((3, 5))])


def test_the_rate_finder_leaves_no_trace() -> None:
    model, loss, optimizer = _parts(dropout=0.0)
    before = _weights(model), optimizer.state_dict()["param_groups"]
    found = lr_finder(model, loss, optimizer, _loader(), 1e-5, 10.0, 60)
    assert before == (_weights(model), optimizer.state_dict()["param_groups"])
    assert not any(
        bool((value != 0).any()) for state in optimizer.state_dict()["state"].values() for value in state.values()
    )
    assert found.rates == sorted(found.rates) and 1e-4 < found.suggestion < 1.0
    assert len(found.plot().axes) == 1
    assert min(found.losses) < found.losses[0]
    for bad in ((1.0, 0.1, 10), (0.1, 1.0, 1), (0.0, 1.0, 10)):
        with pytest.raises(hm.ArgumentError, match="lr_finder"):
            lr_finder(model, loss, optimizer, _loader(), *bad)
    with pytest.raises(hm.ArgumentError, match="no batch"):
        lr_finder(model, loss, optimizer, [])
    assert LRFinder([1.0, 2.0, 3.0], [5.0, 5.0, 1.0]).suggestion == 2.0
    noisy = LRFinder([2.0**k for k in range(40)], [9.0, 5.0, *[7.0] * 12, 9.5, *[7.0] * 5, 6.0, 4.0, *[3.9] * 18])
    assert noisy.suggestion == 2.0**19 and repr(noisy).startswith("LRFinder(40 rates from 1 to")


@pytest.mark.parametrize("validated", [False, True])
def test_a_plateau_is_of_the_loss(validated: bool) -> None:
    model, loss, optimizer = _parts()
    schedule = hm.optim.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.5)
    validation = [(hm.tensor(X), hm.tensor(Y))] if validated else None
    run = fit(model, loss, optimizer, _loader(), 3, validation=validation, scheduler=schedule)
    assert schedule.best == run.history[0]["val_loss" if validated else "loss"]
    assert optimizer.lr.item() == 0.02 / 4


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"metrics": [hm.metrics.Accuracy()]}, r'metrics are given by name, \{"accuracy": Accuracy\(\)\}'),
        ({"loss": nn.MSELoss}, r"loss is the class MSELoss; pass one of it, MSELoss\(...\)"),
        ({"callbacks": [CSVLogger]}, "callbacks is the class CSVLogger"),
        ({"metrics": {"accuracy": hm.metrics.Accuracy}}, "metrics is the class Accuracy"),
        ({"scheduler": hm.optim.CosineAnnealingLR}, "scheduler is the class CosineAnnealingLR"),
    ],
)
def test_mistakes_of_arguments(given: Any, words: str) -> None:
    model, loss, optimizer = _parts()
    with pytest.raises(hm.ArgumentError, match=words):
        fit(**{"model": model, "loss": loss, "optimizer": optimizer, "loader": _loader(), **given})


def test_a_stream_has_no_number_of_batches() -> None:
    class Rows(hm.data.IterableDataset):
        def __iter__(self) -> Any:
            return zip(X, Y, strict=True)

    model, loss, optimizer = _parts()
    run = fit(model, loss, optimizer, hm.data.DataLoader(Rows(), 16), 2, callbacks=[Progress(bar=False)])
    assert run.batches is None and run.step == 10

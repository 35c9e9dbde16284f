"""Callbacks that are there: progress, checkpoints, early stopping, logs."""

from __future__ import annotations

import csv
import importlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hybridml_compiler.errors import ArgumentError

from ..io import save
from .fit import Callback, Fit


class Progress(Callback):
    """Prints a line for each epoch with its figures and seconds; within it a bar, where tqdm is installed.

    >>> Progress(bar=False).bar
    False
    """

    def __init__(self, bar: bool = True) -> None:
        self.bar = bar
        self._bar: Any = None
        self._start = 0.0

    def on_epoch_begin(self, run: Fit) -> None:
        self._start = time.perf_counter()
        try:
            tqdm: Any = importlib.import_module("tqdm.auto") if self.bar else None
        except ImportError:
            tqdm = None
        self._bar = tqdm and tqdm.tqdm(total=run.batches, leave=False, desc=f"epoch {run.epoch + 1}/{run.epochs}")

    def on_batch_end(self, run: Fit) -> None:
        if self._bar is not None:
            self._bar.update()
            self._bar.set_postfix({name: f"{value:.4g}" for name, value in run.logs.items()}, refresh=False)

    def on_epoch_end(self, run: Fit) -> None:
        self._close()
        figures = "  ".join(f"{name} {value:.4f}" for name, value in run.logs.items())
        line = f"epoch {run.epoch}/{run.epochs}  {figures}  {time.perf_counter() - self._start:.1f} s"
        print(line)  # noqa: T201  # what it is for

    def on_train_end(self, run: Fit) -> None:
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class _Best:
    """The best value of a figure so far, and the number of epochs since."""

    def __init__(self, monitor: str, mode: str, min_delta: float = 0.0) -> None:
        if mode not in ("min", "max"):
            raise ArgumentError(f'callbacks: mode is "min" or "max", got {mode!r}')
        self.monitor, self.sign, self.min_delta = monitor, 1 if mode == "min" else -1, min_delta
        self.value, self.since = float("inf"), 0

    def begin(self, run: Fit) -> None:
        """Forgets all but the epochs of the file that a run goes on from."""
        self.value, self.since = float("inf"), 0
        for logs in run.history:
            if self.monitor in logs:
                self.improves(logs)

    def improves(self, logs: Mapping[str, float]) -> bool:
        if self.monitor not in logs:
            raise ArgumentError(f"callbacks: there is no figure {self.monitor!r}; there are {', '.join(logs)}")
        value = self.sign * logs[self.monitor]
        better = value < self.value - self.min_delta
        self.value, self.since = (value, 0) if better else (self.value, self.since + 1)
        return better


class Checkpoint(Callback):
    """Saves a `Fit` after each epoch, atomically, in one file: the last state, or that of the best epoch.

    monitor: the figure, as "val_loss", by which an epoch is better; None: each epoch is saved. mode: "min" or "max" of
    it. `fit(..., resume=path)` goes on from the file; ``hm.load(path)["model"]`` is the model's state dict.

    >>> Checkpoint("best.safetensors", monitor="val_accuracy", mode="max").path.name
    'best.safetensors'
    """

    def __init__(self, path: str | os.PathLike[str], monitor: str | None = None, mode: str = "min") -> None:
        self.path = Path(path)
        self._best = None if monitor is None else _Best(monitor, mode)

    def on_train_begin(self, run: Fit) -> None:
        if self._best is not None:
            self._best.begin(run)

    def on_epoch_end(self, run: Fit) -> None:
        if self._best is None or self._best.improves(run.logs):
            save(run.state_dict(), self.path)


class EarlyStopping(Callback):
    """Ends the training when a figure has not become better by more than `min_delta` for `patience` epochs.

    >>> EarlyStopping("val_loss", patience=5).patience
    5
    """

    def __init__(self, monitor: str = "val_loss", patience: int = 3, min_delta: float = 0.0, mode: str = "min") -> None:
        self.patience, self._best = patience, _Best(monitor, mode, min_delta)

    def on_train_begin(self, run: Fit) -> None:
        self._best.begin(run)
        run.stop = run.stop or self._best.since >= self.patience

    def on_epoch_end(self, run: Fit) -> None:
        self._best.improves(run.logs)
        run.stop = run.stop or self._best.since >= self.patience


class CSVLogger(Callback):
    """Writes a line of figures for each epoch to a CSV file; one that is there goes on with the next line.

    >>> CSVLogger("log.csv").path.name
    'log.csv'
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def on_epoch_end(self, run: Fit) -> None:
        names = ["epoch", *run.logs]
        is_new = not self.path.exists() or not self.path.stat().st_size
        if not is_new:
            with self.path.open(newline="") as file:
                there = next(csv.reader(file))
            if there != names:
                raise ArgumentError(f"CSVLogger: {self.path} has the columns {there}, not {names}; give another file")
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file)
            writer.writerows([names] * is_new + [[run.epoch, *run.logs.values()]])


class TensorBoard(Callback):
    """Writes the figures of each epoch for TensorBoard, by its own `tensorboard.summary.Writer`.

    Raises ArgumentError where the package tensorboard is not installed.

    >>> TensorBoard("runs/first").folder
    'runs/first'
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.fspath(folder)
        self._writer: Any = None

    def on_train_begin(self, run: Fit) -> None:
        try:
            self._writer = importlib.import_module("tensorboard.summary").Writer(self.folder)
        except ImportError:
            raise ArgumentError("TensorBoard: pip install tensorboard, or use CSVLogger") from None

    def on_epoch_end(self, run: Fit) -> None:
        for name, value in run.logs.items():
            self._writer.add_scalar(name, value, run.epoch)
        self._writer.flush()

    def on_train_end(self, run: Fit) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


__all__ = ["CSVLogger", "Checkpoint", "EarlyStopping", "Progress", "TensorBoard"]

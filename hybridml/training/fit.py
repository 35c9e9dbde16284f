"""The loop over epochs and batches, with traced steps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, cast

from hybridml_compiler.errors import ArgumentError

from .. import random
from ..core.context import no_grad
from ..core.tensor import Tensor
from ..io import load
from ..metrics import Mean, Metric
from ..nn.module import Module
from ..nn.utils import clip_grad_norm_
from ..optim import LRScheduler, Optimizer, ReduceLROnPlateau
from ..tracing.decorator import trace


@dataclass
class Fit:
    """A training under way, which callbacks see, and then its result.

    `logs` has the figures of the epoch: "loss" and those of the metrics, of validation with "val_" before; in
    `on_batch_end` the loss of the batch. `history` has those of all epochs. A callback ends the training by `stop`.

    >>> model = hm.nn.Linear(2, 1)
    >>> run = Fit(model, hm.optim.SGD(model.parameters(), lr=0.1), None, epochs=3)
    >>> run.epoch, run.history
    (0, [])
    """

    model: Module
    optimizer: Optimizer
    scheduler: LRScheduler | None
    epochs: int
    epoch: int = 0  # that runs, from 0 on; the next one between two
    step: int = 0  # batches so far, of all epochs
    batches: int | None = None  # of an epoch, where the loader says
    logs: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)
    stop: bool = False
    loader: Any = None

    def state_dict(self) -> dict[str, Any]:
        """All that `fit(..., resume=path)` needs to go on from the end of an epoch, for `hm.save`."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "loader": self.loader.state_dict() if hasattr(self.loader, "state_dict") else None,
            "random": random.default_generator.get_state(),
            "epoch": self.epoch,
            "step": self.step,
            "history": self.history,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes what `state_dict` gave."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None and state["scheduler"] is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        if state["loader"] is not None and hasattr(self.loader, "load_state_dict"):
            self.loader.load_state_dict(state["loader"])
        random.default_generator.set_state(state["random"])
        self.epoch, self.step, self.history = state["epoch"], state["step"], [*state["history"]]


class Callback:
    """Base of callbacks: methods that `fit` calls with its `Fit`, of which a subclass has those that it needs.

    `on_train_end` comes once, also after an error and after a callback that could not begin.

    >>> class Losses(Callback):
    ...     def on_epoch_end(self, run):
    ...         print(run.epoch, sorted(run.logs))
    >>> model = hm.nn.Linear(2, 1)
    >>> loader = [(hm.ones((4, 2)), hm.zeros((4, 1)))]
    >>> _ = hm.training.fit(model, hm.nn.MSELoss(), hm.optim.SGD(model.parameters(), lr=0.1), loader,
    ...                     callbacks=[Losses()])
    1 ['loss']
    """

    def on_train_begin(self, run: Fit) -> None: ...

    def on_epoch_begin(self, run: Fit) -> None: ...

    def on_batch_end(self, run: Fit) -> None: ...

    def on_epoch_end(self, run: Fit) -> None: ...

    def on_train_end(self, run: Fit) -> None: ...


def fit(
    model: Module,
    loss: Callable[..., Tensor],
    optimizer: Optimizer,
    loader: Iterable[Any],
    epochs: int = 1,
    *,
    validation: Iterable[Any] | None = None,
    metrics: Mapping[str, Metric] | None = None,
    scheduler: LRScheduler | None = None,
    callbacks: Sequence[Callback] = (),
    accumulate: int = 1,
    clip_grad_norm: float | None = None,
    resume: str | os.PathLike[str] | None = None,
    traced: bool = True,
) -> Fit:
    """Trains a model: for each batch ``(*inputs, target)`` of `loader` a step on ``loss(model(*inputs), target)``.

    metrics: by name, updated with ``(model(*inputs), target)``, in training and in validation; those of one number are
    figures. scheduler: steps after each epoch, `ReduceLROnPlateau` by "val_loss", or "loss" without validation; one
    that steps after each batch is stepped by a callback. callbacks: see `Callback`. accumulate: batches whose
    gradients, each over their number, one step of the optimizer takes together (the last of an epoch may be fewer).
    clip_grad_norm: what their norm is clipped to. resume: a file of `Checkpoint`, to go on from; where there is none,
    training begins. What follows is that of a run without a break, where random numbers are of the default generator
    and the loader has a `state_dict`, as `DataLoader`, or the same order each time. traced: whether steps are compiled;
    the results are the same. The model is left in training mode. Raises ArgumentError for an `accumulate` below 1, or
    for a `loader` or `validation` without batches.

    >>> model = hm.nn.Linear(2, 1)
    >>> loader = [(hm.ones((4, 2)), hm.zeros((4, 1)))] * 5
    >>> found = fit(model, hm.nn.MSELoss(), hm.optim.SGD(model.parameters(), lr=0.1), loader, epochs=2)
    >>> found.history[1]["loss"] < found.history[0]["loss"]
    True
    """
    if accumulate < 1:
        raise ArgumentError(f"fit: accumulate is 1 or more, got {accumulate}")
    if metrics is not None and not isinstance(metrics, Mapping):
        raise ArgumentError(f'fit: metrics are given by name, {{"accuracy": Accuracy()}}, got {metrics!r}')
    others = [*(("callbacks", c) for c in callbacks), *(("metrics", m) for m in (metrics or {}).values())]
    for name, given in (("loss", loss), ("scheduler", scheduler), *others):
        if isinstance(given, type):
            raise ArgumentError(f"fit: {name} is the class {given.__name__}; pass one of it, {given.__name__}(...)")
    run = Fit(model, optimizer, scheduler, epochs, loader=loader)
    with suppress(TypeError):  # a stream has no length
        run.batches = len(cast(Sized, loader))
    if resume is not None and os.path.exists(resume):
        run.load_state_dict(load(resume))
    losses, metrics = Mean(), metrics or {}

    def figures(output: Tensor, target: Any, value: Tensor) -> None:
        with no_grad():
            losses.update(value, len(target))
            for metric in metrics.values():
                metric.update(output, target)

    style: Callable[[Any], Any] = trace if traced else lambda fn: fn

    @style
    def gradients(*batch: Any) -> Tensor:
        *inputs, target = batch
        output = model(*inputs)
        value = loss(output, target)
        (value / accumulate if accumulate > 1 else value).backward()
        figures(output, target, value)
        return value.detach()

    @style
    def update() -> None:
        if clip_grad_norm is not None:
            clip_grad_norm_(model.parameters(), clip_grad_norm)
        optimizer.step()
        optimizer.zero_grad()

    @style
    def step(*batch: Any) -> Tensor:
        value = gradients(*batch)
        update()
        return value

    @style
    def validate(*batch: Any) -> None:
        *inputs, target = batch
        with no_grad():
            output = model(*inputs)
            figures(output, target, loss(output, target))

    def results(prefix: str = "") -> dict[str, float]:
        values = {"loss": losses, **metrics}
        found = {prefix + name: float(value) for name, m in values.items() if (value := m.compute()).ndim == 0}
        for metric in values.values():
            metric.reset()
        return found

    for metric in (losses, *metrics.values()):
        metric.reset()
    optimizer.zero_grad()
    with ExitStack() as ends:
        for callback in reversed(callbacks):
            ends.callback(callback.on_train_end, run)
        ends.callback(model.train)
        _call(callbacks, "on_train_begin", run)
        while run.epoch < epochs and not run.stop:
            run.logs = {}
            model.train()
            _call(callbacks, "on_epoch_begin", run)
            waiting = 0  # batches whose gradients no step has taken
            for batch in batches_of(loader, "fit: the loader"):
                waiting += 1
                value = (step if waiting == accumulate == 1 else gradients)(*batch)
                if waiting == accumulate:
                    if accumulate > 1:
                        update()
                    waiting = 0
                run.step += 1
                run.logs = {"loss": value.item()}
                _call(callbacks, "on_batch_end", run)
            if waiting:
                update()
            run.logs = results()
            if validation is not None:
                model.eval()
                for batch in batches_of(validation, "fit: validation"):
                    validate(*batch)
                model.train()
                run.logs |= results("val_")
            if isinstance(scheduler, ReduceLROnPlateau):
                scheduler.step(run.logs["loss" if validation is None else "val_loss"])
            elif scheduler is not None:
                scheduler.step()
            run.history.append(run.logs)
            run.epoch += 1
            _call(callbacks, "on_epoch_end", run)
    return run


def batches_of(loader: Iterable[Any], name: str) -> Iterator[Sequence[Any]]:
    """The batches ``(*inputs, target)`` of a loader; ArgumentError for others, and where there are none."""
    empty = True
    for batch in loader:
        empty = False
        if not isinstance(batch, tuple | list) or len(batch) < 2:
            raise ArgumentError(
                f"{name}: a batch is a tuple (*inputs, target), got {type(batch).__name__}; give it a collate_fn that "
                "makes one"
            )
        yield batch
    if empty:
        raise ArgumentError(f"{name} has no batch")


def _call(callbacks: Sequence[Callback], name: str, run: Fit) -> None:
    for callback in callbacks:
        getattr(callback, name)(run)


__all__ = ["Callback", "Fit", "fit"]

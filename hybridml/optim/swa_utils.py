"""Averages of weights: of the last models of a run (Izmailov et al. 2018), or exponential moving ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hybridml_compiler.errors import ArgumentError

from .. import arrays as xp
from ..core.context import no_grad
from ..core.spellings import advise
from ..core.tensor import Tensor
from ..nn.module import Module
from ..nn.normalization import _BatchNorm, _InstanceNorm
from ..nn.parameter import Writes, commit
from .formulas import averaged
from .lr_scheduler.base import LRScheduler, Number, for_groups
from .lr_scheduler.cycles import ANNEALING
from .optimizer import Optimizer
from .parts import held_as, parts

Average = Callable[[Tensor, Tensor, Any], Tensor]
Averages = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """A function of one average, its tensor and the count: the exponential moving average (`AveragedModel`).

    Raises ArgumentError for a `decay` outside of [0, 1].

    >>> get_ema_avg_fn(0.75)(hm.tensor([1.0]), hm.tensor([2.0]), 1).tolist()
    [1.25]
    """
    _check_decay(decay)
    return lambda mean, value, count: mean * decay + value * (1 - decay)


def get_swa_avg_fn() -> Average:
    """A function of one average, its tensor and the count: the average of all models (`AveragedModel`).

    >>> get_swa_avg_fn()(hm.tensor([1.0]), hm.tensor([2.0]), 1).tolist()
    [1.5]
    """
    return lambda mean, value, count: mean + (value - mean) / (count + 1)


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
    """A function that updates lists of averages in place: exponential moving averages (`AveragedModel`).

    Raises ArgumentError for a `decay` outside of [0, 1].

    >>> means = [hm.tensor([1.0])]
    >>> get_ema_multi_avg_fn(0.75)(means, [hm.tensor([2.0])], 1)
    >>> means[0].tolist()
    [1.25]
    """
    _check_decay(decay)
    return lambda means, values, count: _move(means, values, 1 - decay)


def get_swa_multi_avg_fn() -> Averages:
    """A function that updates lists of averages in place: averages of all models (`AveragedModel`).

    >>> means = [hm.tensor([1.0])]
    >>> get_swa_multi_avg_fn()(means, [hm.tensor([2.0])], 1)
    >>> means[0].tolist()
    [1.5]
    """
    return lambda means, values, count: _move(means, values, 1 / (count + 1))


def _check_decay(decay: float) -> None:
    if not 0 <= decay <= 1:
        raise ArgumentError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def _move(means: Sequence[Tensor], values: Sequence[Tensor], share: Any) -> None:
    weight, here = xp.asarray(share, dtype=xp.float64, device="cpu"), averaged.here
    writes: Writes = []
    with no_grad():
        for mean, value in zip(means, values, strict=True):
            if xp.isdtype(mean.dtype, ("real floating", "complex floating")):
                one, other = parts(mean), parts(value)
            else:
                one, other = xp.astype(mean, xp.float64), xp.astype(value, xp.float64)
            writes.append((mean, held_as(here(one, other, xp.astype(weight, one.dtype)), mean.dtype)))
        commit(writes)


class AveragedModel(Module):
    """A copy of `model` whose parameters are averages of those that `update_parameters` is given.

    The average is of all models (SWA), or by `avg_fn`, a function of an average, a tensor and the count of models, or
    by `multi_avg_fn`, which updates lists of averages in place: ``get_ema_multi_avg_fn(0.999)``. Buffers are copied, or
    with `use_buffers` averaged too. `device` moves the copy. Raises ArgumentError for both functions at once.

    >>> model = hm.nn.Linear(1, 1, bias=False)
    >>> average = AveragedModel(model)
    >>> for value in (1.0, 2.0):
    ...     _ = hm.nn.init.constant_(model.weight, value)
    ...     average.update_parameters(model)
    >>> average(hm.ones((1,))).item()
    1.5
    """

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Averages | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ArgumentError("AveragedModel: Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model) if device is None else copy.deepcopy(model).to(device)
        self.register_buffer("n_averaged", xp.zeros((), dtype=xp.int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the averaged model for these arguments."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Takes the parameters of `model` into the averages; the first ones are copied."""
        means, values = (self._averaged_of(module) for module in (self.module, model))
        with no_grad():
            values = [value.detach().to(device=mean.device) for mean, value in zip(means, values, strict=True)]
            count = self.n_averaged
            if self.multi_avg_fn is not None:
                self.multi_avg_fn([mean.detach() for mean in means], values, count)
                new = list(means)
            else:
                average = self.avg_fn or get_swa_avg_fn()
                new = [average(mean.detach(), value, count) for mean, value in zip(means, values, strict=True)]
            first, writes = xp.equal(count, 0), [(count, count + 1)]
            for mean, value, moved in zip(means, values, new, strict=True):
                writes.append((mean, xp.where(first, xp.astype(value, mean.dtype), xp.astype(moved, mean.dtype))))
            if not self.use_buffers:
                pairs = zip(self.module.buffers(), model.buffers(), strict=True)
                writes += [(mine, theirs.to(device=mine.device)) for mine, theirs in pairs]
            commit(writes)

    def _averaged_of(self, module: Module) -> list[Tensor]:
        return [*module.parameters(), *(module.buffers() if self.use_buffers else ())]


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Sets the running statistics of batch normalisation to the means over the batches of `loader`.

    A batch is a tensor, or a list or tuple whose first item is one; `device` is where it is moved. For averaged
    weights, whose activations no model has seen.

    >>> model = hm.nn.Sequential(hm.nn.BatchNorm1d(1))
    >>> update_bn([hm.tensor([[0.0], [2.0]]), hm.tensor([[4.0], [6.0]])], model)
    >>> model[0].running_mean.tolist()
    [3.0]
    """
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and not isinstance(m, _InstanceNorm)]
    if not norms:
        return
    training, momenta = model.training, [norm.momentum for norm in norms]
    try:
        model.train()
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None
        with no_grad():
            for batch in loader:
                first = batch[0] if isinstance(batch, list | tuple) else batch
                model(first if device is None else first.to(device))
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        model.train(training)


class SWALR(LRScheduler):
    """Learning rate from the one that is set to `swa_lr` in `anneal_epochs` steps, and then there.

    `anneal_strategy` is "cos" or "linear", `swa_lr` a number or one per parameter group. Steps begin with the phase in
    which weights are averaged. Raises ArgumentError for another strategy or negative epochs.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> schedule = SWALR(opt, swa_lr=0.5, anneal_epochs=2, anneal_strategy="linear")
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.75]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ANNEALING:
            raise ArgumentError(
                f"SWALR: anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if anneal_epochs < 0 or anneal_epochs != int(anneal_epochs):
            raise ArgumentError(f"SWALR: anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.swa_lrs = for_groups("swa_lr", optimizer, swa_lr)
        self.anneal_epochs, self.anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: Tensor, group: int) -> Number:
        passed = self._passed(epoch)
        return self.swa_lrs[group] * passed + base * (1 - passed)

    def following(self, lr: Number, base: float, epoch: Tensor, group: int) -> Number:
        """The rate on the way from the one that leads to `lr`, which a schedule before this one may have set."""
        wanted, before = self.swa_lrs[group], self._passed(epoch - 1)
        there = xp.equal(before, 1)
        start = xp.where(there, wanted, (lr - before * wanted) / xp.where(there, 1.0, 1 - before))
        passed = self._passed(epoch)
        return wanted * passed + start * (1 - passed)

    begun = following

    def _passed(self, epoch: Tensor) -> Tensor:
        at_once = 1 if self.anneal_epochs == 0 else 0
        share = xp.minimum(xp.maximum((epoch + at_once) / max(1, self.anneal_epochs), 0.0), 1.0)
        return ANNEALING[self.anneal_strategy](0.0, 1.0, share)


advise(globals())

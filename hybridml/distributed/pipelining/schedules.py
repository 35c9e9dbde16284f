"""Schedules: a batch in micro-batches through the stages of a pipeline, and the gradients back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hybridml_compiler.errors import ArgumentError

from ...arrays.shaping.manipulation import concat
from ...core.context import no_grad
from ...core.pytree import tree_leaves, tree_map
from ...core.tensor import Tensor
from ..transport import is_whole
from .actions import Action, actions, grid
from .stage import PipelineStage


@dataclass
class _Batch:
    """A batch on its way through a stage, and what has come of it."""

    name: str  # "step" or "eval"
    xs: Sequence[Any]  # the arguments of each micro-batch, in the first stage
    targets: Sequence[Any]  # the target of each micro-batch, in the last stage; empty where there is none
    losses: list[Tensor] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)

    @property
    def is_eval(self) -> bool:
        return self.name == "eval"


class Schedule:
    """Base class of schedules, which say how many micro-batches a stage begins before its first backward."""

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        *,
        scale_grads: bool = True,
    ) -> None:
        name = type(self).__name__
        if not isinstance(stage, PipelineStage):
            raise ArgumentError(f"{name}: stage must be a PipelineStage, got {type(stage).__name__}")
        if not is_whole(n_microbatches) or n_microbatches < 1:
            raise ArgumentError(f"{name}: n_microbatches must be 1 or more, got {n_microbatches!r}")
        self.stage, self.n_microbatches, self.loss_fn, self.scale_grads = stage, n_microbatches, loss_fn, scale_grads
        if stage.group.size > 1:
            detail = f"{n_microbatches} micro-batches, scale_grads={scale_grads}"
            stage.group.meet(name, None, detail, lambda transport: None)

    def in_flight(self, stage_index: int) -> int:
        """The number of micro-batches of which a stage keeps activations at once, at most."""
        raise NotImplementedError

    def actions(self, stage_index: int) -> list[Action]:
        """The forwards and backwards of a stage in their order."""
        return actions(self.n_microbatches, self.in_flight(stage_index))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.stage!r}, n_microbatches={self.n_microbatches})"

    def __str__(self) -> str:
        """The timeline, a line for each stage, and the share of the time in which stages wait."""
        return f"{type(self).__name__}\n{grid([self.actions(k) for k in range(self.stage.num_stages)])}"

    def step(
        self, *args: Any, target: Any = None, losses: list[Tensor] | None = None, return_outputs: bool = True
    ) -> Any:
        """The outputs for the whole batch in the last process, None in the others; adds up gradients in ``.grad``.

        args: the batch, which counts in the first process: tensors whose first axis is cut into micro-batches.
        target: the targets, which count in the last process, a tensor or a container of them, cut likewise.
        losses: a list that the last process replaces with the losses of the micro-batches.
        return_outputs: whether the last process keeps the outputs.

        With ``scale_grads`` the gradients are those of the mean of the micro-batches' losses, without of their sum.
        All processes must call it; they may give the same arguments. Raises ArgumentError for a batch that does not
        divide and for arguments that are missing, ShapeError for micro-batches of another shape than the stages'
        `input_args`, CollectiveError for a neighbour that does not come.
        """
        if self.loss_fn is None:
            raise ArgumentError(
                f"{type(self).__name__}.step: give the schedule a loss_fn, in all processes, or use eval"
            )
        return self._run("step", args, target, losses, return_outputs)

    def eval(self, *args: Any, target: Any = None, losses: list[Tensor] | None = None) -> Any:
        """The outputs for the whole batch in the last process, None in the others, without gradients.

        Arguments and errors are those of `step`; losses are computed where a target is given. The modules stay in the
        mode that they are in: call `stage.submod.eval()` before.
        """
        with no_grad():
            return self._run("eval", args, target, losses, True)

    def _run(self, name: str, args: tuple[Any, ...], target: Any, losses: list[Tensor] | None, is_kept: bool) -> Any:
        batch = self._batch(name, args, target)
        forwards = [Action("F", k) for k in range(self.n_microbatches)]
        # Micro-batches on their way: nothing else has their activations, so that they are gone once one has gone back.
        held: dict[int, tuple[Tensor, Sequence[Tensor]]] = {}
        for kind, k in forwards if batch.is_eval else self.actions(self.stage.stage_index):
            if kind == "B":
                self.stage.backward(*held.pop(k), k == self.n_microbatches - 1)
            elif batch.is_eval:
                self._forward(k, batch, is_kept)
            else:
                held[k] = self._forward(k, batch, is_kept)
        if self.stage.is_last and losses is not None:
            losses[:] = batch.losses
        return tree_map(lambda *parts: concat(parts), *batch.outputs) if batch.outputs else None

    def _forward(self, k: int, batch: _Batch, is_kept: bool) -> tuple[Tensor, Sequence[Tensor]]:
        """A tensor with the history of a micro-batch, and the arguments of the stage."""
        stage = self.stage
        args = batch.xs[k] if stage.is_first else stage.take(batch.is_eval)
        output = stage.forward(args, is_first=k == 0)
        if not stage.is_last:
            return stage.give(output, batch.is_eval), args
        if is_kept:
            batch.outputs.append(tree_map(lambda y: y.detach(), output))
        if self.loss_fn is None or not batch.targets:
            return output, args
        loss = self.loss_fn(output, batch.targets[k])
        batch.losses.append(loss.detach())
        return loss / self.n_microbatches if self.scale_grads else loss, args

    def _batch(self, name: str, args: tuple[Any, ...], target: Any) -> _Batch:
        stage, what = self.stage, f"{type(self).__name__}.{name}"
        if stage.is_first and not args:
            raise ArgumentError(f"{what}: the process of the first stage gives the batch")
        if stage.is_last and target is None and name == "step":
            raise ArgumentError(f"{what}: the process of the last stage gives target=")
        xs = self._cut(what, "args", args) if stage.is_first else []
        return _Batch(name, xs, self._cut(what, "target", target) if stage.is_last and target is not None else [])

    def _cut(self, what: str, argument: str, tree: Any) -> list[Any]:
        """The part of each micro-batch."""
        n = self.n_microbatches
        for x in tree_leaves(tree):
            if not isinstance(x, Tensor) or not x.ndim or x.shape[0] % n:
                got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
                raise ArgumentError(
                    f"{what}: {argument} must be tensors whose first axis divides into {n} micro-batches, got {got}; "
                    "use another n_microbatches, or DataLoader(drop_last=True)"
                )
        return [tree_map(lambda x, k=k: x[k * (x.shape[0] // n) : (k + 1) * (x.shape[0] // n)], tree) for k in range(n)]


class ScheduleGPipe(Schedule):
    """A schedule in which all micro-batches go forward, and then all of them back.

    Each stage keeps the activations of all micro-batches. Parameters, errors and methods are those of `Schedule1F1B`.
    Source: Huang et al., "GPipe", NeurIPS 2019.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def fn():
    ...     stage = dist.PipelineStage(hm.nn.Linear(4, 4), dist.get_rank(), 2, hm.ones((1, 4)))
    ...     return str(dist.ScheduleGPipe(stage, n_microbatches=3))
    >>> print(dist.run_threads(2, fn)[0])
    ScheduleGPipe
    stage 0  F0 F1 F2 .  .  B0 B1 B2
    stage 1  .  F0 F1 F2 B0 B1 B2 .
    bubbles: 25%
    """

    def in_flight(self, stage_index: int) -> int:
        """The number of micro-batches: none goes back before all have gone forward."""
        return self.n_microbatches


class Schedule1F1B(Schedule):
    """A schedule in which each stage goes on to the backward of a micro-batch as soon as it can.

    Stage k of n keeps the activations of n - k micro-batches at most; in eager steps gradients have the bits of
    `ScheduleGPipe`.

    stage: the `PipelineStage` of this process.
    n_microbatches: the number of parts in which a batch goes through the stages.
    loss_fn: a function of an output and a target of a micro-batch; all processes give it, the last one calls it.
    scale_grads: whether gradients are those of the mean of the losses of the micro-batches, and not of their sum.

    `step` and `eval` run a batch, and may be part of a traced function. A layer sees micro-batches: the statistics of
    batch normalisation are theirs, and dropout draws for each. Raises CollectiveError where processes have schedules
    that differ, ArgumentError for other arguments. Source: Narayanan et al., "PipeDream-Flush", ICML 2021.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def fn():
    ...     pipe = dist.pipeline([hm.nn.Linear(4, 8), hm.nn.Linear(8, 2)], hm.ones((2, 4)), num_stages=2)
    ...     schedule = dist.Schedule1F1B(pipe.build_stage(dist.get_rank()), 3, hm.functional.mse_loss)
    ...     schedule.step(hm.ones((6, 4)), target=hm.ones((6, 2)), losses=(losses := []))
    ...     return len(losses), str(schedule)
    >>> found = dist.run_threads(2, fn)
    >>> [n for n, _ in found]
    [0, 3]
    >>> print(found[0][1])
    Schedule1F1B
    stage 0  F0 F1 .  B0 F2 B1 .  B2
    stage 1  .  F0 B0 F1 B1 F2 B2 .
    bubbles: 25%
    """

    def in_flight(self, stage_index: int) -> int:
        """The number of stages from this one to the last, whose micro-batches are on their way back to it."""
        return self.stage.num_stages - stage_index

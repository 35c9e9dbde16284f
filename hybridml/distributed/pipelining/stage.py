"""`PipelineStage`: one stage of a model, in the process that computes it, and what it exchanges with its neighbours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, CollectiveError, ShapeError

from ...arrays.creation import asarray, zeros_like
from ...arrays.shape_dtype import ShapeDtypeStruct
from ...core.tensor import Tensor
from ...nn.module import Module
from ...nn.utils.computed import outside_of_traces
from ..data_parallel import DataParallel
from ..functions import all_gather, call, send
from ..groups import Group, default, get_rank
from ..transport import MOST_TAG, is_whole

Types = tuple[ShapeDtypeStruct, ...]


class PipelineStage:
    """A stage of a pipeline: the part of a model that this process computes.

    submodule: the part; called with what the stage before returns, a tensor or a tuple of tensors, each of which is an
    argument. It may be a `DataParallel`, whose gradients are then averaged once a step, at the last micro-batch.
    stage_index, num_stages: its place among the stages: stage k is in process k of the group.
    input_args: examples of the arguments for one micro-batch: tensors, of which only shapes and dtypes matter, or
    `hm.ShapeDtypeStruct`s.
    group: the processes; all of the job by default.

    All processes of the group make their stages together. A schedule runs them: see `Schedule1F1B`. Raises
    CollectiveError for stages that are not in the order of the processes, ArgumentError for other arguments.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def fn():
    ...     layer = hm.nn.Linear(4, 4)
    ...     stage = dist.PipelineStage(layer, dist.get_rank(), 2, hm.ShapeDtypeStruct((3, 4), hm.float32))
    ...     return stage.is_first, stage.is_last
    >>> dist.run_threads(2, fn)
    [(True, False), (False, True)]
    """

    def __init__(
        self, submodule: Module, stage_index: int, num_stages: int, input_args: Any, group: Group | None = None
    ) -> None:
        outside_of_traces("PipelineStage")
        if not isinstance(submodule, Module):
            raise ArgumentError(f"PipelineStage: submodule must be a Module, got {type(submodule).__name__}")
        self.submod, self.stage_index, self.num_stages, self.group = submodule, stage_index, num_stages, default(group)
        if num_stages != self.group.size:
            raise ArgumentError(
                f"PipelineStage: num_stages must be {self.group.size}, the number of processes of {self.group!r}, each "
                f"of which has a stage, got {num_stages!r}"
            )
        if not is_whole(stage_index) or not 0 <= stage_index < num_stages:
            raise ArgumentError(f"PipelineStage: stage_index must be 0 to {num_stages - 1}, got {stage_index!r}")
        self.is_first, self.is_last = stage_index == 0, stage_index == num_stages - 1
        self.takes = types_of(input_args)
        self.next_takes = _of_next(self)

    def __repr__(self) -> str:
        return f"PipelineStage({self}, takes {shown(self.takes)})"

    def __str__(self) -> str:
        return f"stage {self.stage_index} of {self.num_stages} (rank {get_rank()})"

    def take(self, is_eval: bool) -> tuple[Tensor, ...]:
        """The arguments of the next micro-batch, which the stage before has given, as leaves that want a gradient."""
        peer = self.stage_index - 1
        found = []
        for k, (shape, dtype) in enumerate((t.shape, t.dtype) for t in self.takes):
            x = call(self.group, "receive_from", shape=shape, dtype=dtype, peer=peer, tag=_tag(k, is_eval))
            found.append(x.requires_grad_() if _has_gradient(x) and not is_eval else x)
        return tuple(found)

    def forward(self, args: Sequence[Tensor], is_first: bool) -> Any:
        """The module's result. `is_first`: whether for the first micro-batch of a step, at which `DataParallel` takes
        the buffers of rank 0."""
        if (given := types_of(args)) != self.takes:
            raise ShapeError(f"PipelineStage: {self} takes micro-batches of {shown(self.takes)}, got {shown(given)}")
        with self._without_averages(not is_first):
            return self.submod(*args)

    def give(self, outputs: Any, is_eval: bool) -> Tensor:
        """Sends what the module has returned to the next stage; a zero, whose backward waits for the gradients."""
        ys = tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)
        if (given := types_of(ys)) != self.next_takes:
            raise ShapeError(
                f"PipelineStage: {self} gives {shown(given)}, and stage {self.stage_index + 1} takes "
                f"{shown(self.next_takes)}, by its input_args"
            )
        zero = asarray(0.0)
        for k, y in enumerate(ys):
            # One without a history gets a leaf for it: the gradient comes, whether or not it is used.
            y = y if y.requires_grad or not _has_gradient(y) else y.detach().requires_grad_()
            zero = zero + send(y, self.stage_index + 1, _tag(k, is_eval), self.group)
        return zero

    def backward(self, result: Tensor, args: Sequence[Tensor], is_last: bool) -> None:
        """Adds the gradients of one micro-batch up, and sends those of its arguments to the stage before. `is_last`:
        whether it is the last one of a step."""
        with self._without_averages(not is_last):
            result.backward()
        if self.is_first:
            return
        for k, x in enumerate(args):
            if _has_gradient(x):
                g = zeros_like(x) if x.grad is None else x.grad
                call(self.group, "send_to", g.detach(), peer=self.stage_index - 1, tag=_tag(k, False))

    def _without_averages(self, yes: bool) -> AbstractContextManager[None]:
        return self.submod.no_sync() if yes and isinstance(self.submod, DataParallel) else nullcontext()


def shown(types: Types) -> str:
    """Dtypes and shapes as text."""
    return ", ".join(f"{t.dtype.name}[{','.join(map(str, t.shape))}]" for t in types)


def types_of(args: Any) -> Types:
    """The types of one argument, or of a sequence of them."""
    found = []
    for x in args if isinstance(args, tuple | list) else (args,):
        if not isinstance(x, Tensor | ShapeDtypeStruct):
            raise ArgumentError(f"PipelineStage: stages exchange tensors, got {type(x).__name__}")
        found.append(ShapeDtypeStruct(tuple(map(int, x.shape)), x.dtype))
    return tuple(found)


def _has_gradient(x: Tensor) -> bool:
    return x.dtype.kind in dtypes.INEXACT


def _tag(position: int, is_eval: bool) -> int:
    """The tag of an argument and of its gradient, far from those that users begin with; that of `eval` is another, so
    that a process which calls `step` does not take it."""
    return MOST_TAG - 1 - 2 * position - is_eval


def _of_next(stage: PipelineStage) -> Types:
    """The types that the next stage takes. Raises CollectiveError where stages are not in the order of processes."""
    mine = [int(stage.stage_index), [[t.shape, t.dtype.name] for t in stage.takes]]
    told = _told(mine, stage.group)
    order = [index for index, _ in told]
    if order != list(range(stage.num_stages)):
        raise CollectiveError(
            f"PipelineStage: processes 0 to {len(order) - 1} have stages {', '.join(map(str, order))}; stage_index "
            "must be the rank in the group"
        )
    return () if stage.is_last else tuple(ShapeDtypeStruct(*one) for one in told[stage.stage_index + 1][1])


def _told(value: Any, group: Group) -> list[Any]:
    """The values of all processes, which JSON can hold."""
    text = json.dumps(value)
    length = int(all_gather(asarray([len(text)]), group).max())
    rows = all_gather(asarray(np.frombuffer(text.ljust(length).encode(), np.uint8)[None]), group)
    return [json.loads(bytes(row)) for row in rows.numpy()]

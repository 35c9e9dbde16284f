"""`pipeline`: a chain of modules, cut into stages of about equal cost.

The cost of a module is what the compiler expects its program to take (`hm.trace(module).lower(x).compile()`), three
times, as a backward has about two products for each of the forward; and a stage has to send and to receive.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from hybridml_compiler.errors import ArgumentError

from ...nn.containers import Sequential
from ...nn.module import Module
from ...tracing.decorator import trace
from ..groups import Group, default
from .stage import PipelineStage, Types, shown, types_of

PASSES = 3  # a forward, and a backward of about two
BYTE_SECONDS = 0.33e-9  # a byte between two processes of a machine: MPI moves 3 GB/s
WAYS = 2  # activations there, gradients back


class Link(NamedTuple):
    """A module of the chain."""

    name: str
    module: Module
    takes: Types
    gives: Types
    seconds: float  # of a micro-batch, forward and backward


class Pipe:
    """The stages of a model; `pipeline` makes it.

    num_stages: the number of stages.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> layers = [hm.nn.Linear(8, 8) for _ in range(4)]
    >>> pipe = dist.pipeline(hm.nn.Sequential(*layers), hm.ones((2, 8)), 2)
    >>> [len(pipe.get_stage_module(k)) for k in range(pipe.num_stages)]
    [2, 2]
    """

    def __init__(self, links: Sequence[Link], starts: Sequence[int]) -> None:
        self.num_stages, self.starts = len(starts), tuple(starts)
        self._stages = [links[i:j] for i, j in itertools.pairwise([*starts, len(links)])]

    def get_stage_module(self, stage_index: int) -> Module:
        """The modules of a stage, with the names that they have in the chain."""
        found = Sequential()
        for link in self._stages[stage_index]:
            found.add_module(link.name, link.module)
        return found

    def build_stage(self, stage_index: int, group: Group | None = None) -> PipelineStage:
        """The stage of this process; all processes of the group must call it.

        Raises CollectiveError where processes have cut other models, or a model otherwise, and what `PipelineStage`
        raises.
        """
        group = default(group)
        if group.size > 1:
            group.meet("build_stage", None, f"stages from {self.starts}", lambda transport: None)
        takes = self._stages[stage_index][0].takes
        return PipelineStage(self.get_stage_module(stage_index), stage_index, self.num_stages, takes, group)

    def __str__(self) -> str:
        """The modules of each stage, its share of the cost, and what it gives to the next."""
        whole = sum(link.seconds for stage in self._stages for link in stage) or 1.0
        return "\n".join(
            f"stage {k}: {stage[0].name} to {stage[-1].name}, {sum(link.seconds for link in stage) / whole:.0%} of the "
            f"time, gives {shown(stage[-1].gives)}"
            for k, stage in enumerate(self._stages)
        )


def pipeline(module: Sequential | Iterable[Module], mb_args: Any, num_stages: int) -> Pipe:
    """The module in stages of which the slowest is as fast as it can be, by estimates of the compiler.

    module: an `nn.Sequential`, or modules of which each takes what the one before returns. mb_args: examples of the
    arguments of the first for one micro-batch, as `PipelineStage` takes them. Nothing is computed.

    Raises ArgumentError for fewer modules than stages, and for modules of two stages that share a parameter: each
    process would train its own. A model of another form, and one that Python asks for values, is cut by hand:
    `PipelineStage` takes any module.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> layers = [hm.nn.Linear(64, 64), hm.nn.ReLU(), hm.nn.Linear(64, 64), hm.nn.Linear(64, 1)]
    >>> dist.pipeline(layers, hm.ShapeDtypeStruct((256, 64), hm.float32), 2).starts
    (0, 2)
    """
    chain = module if isinstance(module, Sequential) else Sequential(*module)
    named = list(chain.named_children())
    if not 1 <= num_stages <= len(named):
        raise ArgumentError(
            f"pipeline: {len(named)} modules make 1 to {len(named)} stages, got num_stages={num_stages}"
        )
    links, takes = [], types_of(mb_args)
    for name, child in named:
        links.append(_link(name, child, takes))
        takes = links[-1].gives
    starts = balanced(links, num_stages)
    _check_shared(named, starts)
    return Pipe(links, starts)


def _link(name: str, module: Module, takes: Types) -> Link:
    lowered = trace(lambda *args: module(*args)).lower(*takes)
    seconds = lowered.compile().cost_analysis()["optimal_seconds"]
    return Link(name, module, takes, types_of(lowered.out_info), PASSES * seconds)


def balanced(links: Sequence[Link], num_stages: int) -> list[int]:
    """The links with which stages begin, so that the slowest stage takes the least time."""

    @cache
    def best(stages: int, end: int) -> tuple[float, list[int]]:
        """The time of the slowest of so many stages that end before a link, and the links with which they begin."""
        if stages == 1:
            return _seconds(links, 0, end), [0]
        found = ((max(best(stages - 1, k)[0], _seconds(links, k, end)), k) for k in range(stages - 1, end))
        slowest, start = min(found)
        return slowest, [*best(stages - 1, start)[1], start]

    return best(num_stages, len(links))[1]


def _seconds(links: Sequence[Link], start: int, end: int) -> float:
    """The time of a stage for one micro-batch."""
    moved = (nbytes(links[start].takes) if start else 0) + (nbytes(links[end - 1].gives) if end < len(links) else 0)
    return sum(link.seconds for link in links[start:end]) + WAYS * BYTE_SECONDS * moved


def nbytes(types: Types) -> int:
    """The bytes of tensors of these types."""
    return sum(math.prod(t.shape) * t.dtype.itemsize for t in types)


def _check_shared(named: Sequence[tuple[str, Module]], starts: Sequence[int]) -> None:
    seen: dict[int, tuple[int, str]] = {}
    for k, (name, child) in enumerate(named):
        stage = sum(start <= k for start in starts) - 1
        for inner, parameter in child.named_parameters(name):
            other, first = seen.setdefault(id(parameter), (stage, inner))
            if other != stage:
                raise ArgumentError(
                    f"pipeline: {first} of stage {other} and {inner} of stage {stage} are one parameter, of which each "
                    "process would train its own; put both into one module"
                )

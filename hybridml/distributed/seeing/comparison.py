"""`compare`: the losses of one training with several numbers of processes, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hybridml_compiler.errors import ArgumentError

from ...arrays.creation import asarray
from ...core.tensor import Tensor
from ...display.reports import Report
from ...display.tables import Column, Table
from ..functions import all_reduce
from ..threads import run_threads

_SHOWN = 20  # steps that are printed


@dataclass(frozen=True, repr=False)
class RankComparison(Report):
    """Report on a training with several numbers of processes: `losses`, of each number by step, and `first`, the first
    step whose losses differ beyond rounding; None where there is none."""

    ranks: tuple[int, ...]
    losses: tuple[tuple[float, ...], ...]
    rtol: float

    @property
    def differences(self) -> list[float]:
        """The relative differences of the losses, by step."""
        return [_difference(row) for row in zip(*self.losses, strict=True)]

    @property
    def first(self) -> int | None:
        """The first step at which losses differ by more than `rtol`, from 0."""
        return next((k for k, found in enumerate(self.differences) if not found <= self.rtol), None)

    @property
    def title(self) -> str:
        """A sentence on the first difference."""
        numbers = " and ".join(map(str, self.ranks))
        if self.first is None:
            return f"{numbers} ranks: the same losses in {len(self.differences)} steps, to {max(self.differences):.1e}"
        found = self.differences[self.first]
        return f"{numbers} ranks: losses differ from step {self.first} on, where by {found:.1e} of their size"

    @property
    def tables(self) -> list[Table]:
        """The losses of each number of processes, by step."""
        steps = Column("step", [str(k) for k in range(len(self.differences))], "number")
        of_ranks = [
            Column(f"{size} rank{'s' * (size > 1)}", [f"{loss:.7g}" for loss in losses], "number")
            for size, losses in zip(self.ranks, self.losses, strict=True)
        ]
        return [Table("losses", [steps, *of_ranks, Column("difference", [f"{d:.1e}" for d in self.differences])])]

    def to_text(self) -> str:
        """The sentence, and the losses."""
        return "\n".join([self.title, *self.tables[0].lines(_SHOWN)])


def _difference(losses: Sequence[float]) -> float:
    """The distance of the farthest two, as a part of the largest; NaN where one is."""
    distance = np.ptp(losses)
    return float(distance / np.max(np.abs(losses))) if distance else 0.0


def compare(
    make: Callable[[], Callable[[], Tensor]], ranks: Sequence[int] = (1, 2), *, steps: int = 5, rtol: float = 1e-4
) -> RankComparison:
    """Compares the losses of a training with several numbers of processes, which are threads of this one.

    make: makes a model and returns its step, a function without arguments that returns the loss, as a process of the
    job would; it is called in each of them. Losses are means over the processes. Threads share the default generator
    of random numbers: take copies of a model that is made before, and data that is there. rtol: relative differences
    up to which losses are the same. Raises ArgumentError for less than a step or a rank, and what the steps raise.

    >>> import copy
    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> net, data = hm.nn.Linear(3, 1), hm.randn((8, 3))
    >>> def make():
    ...     model = dist.DataParallel(copy.deepcopy(net))
    ...     optimizer = hm.optim.SGD(model.parameters(), lr=0.1)
    ...     mine = data[dist.get_rank() :: dist.get_world_size()]
    ...     def step():
    ...         optimizer.zero_grad()
    ...         loss = (model(mine) ** 2).mean()
    ...         loss.backward()
    ...         optimizer.step()
    ...         return loss
    ...     return step
    >>> dist.compare(make, ranks=(1, 2, 4)).first is None
    True
    """
    if not ranks or min(ranks) < 1 or steps < 1:
        raise ArgumentError(f"compare: needs numbers of ranks, and one step, got {ranks!r} and {steps!r}")

    def rank() -> list[float]:
        step = make()
        return [float(all_reduce(asarray(step()).detach(), "mean")) for _ in range(steps)]

    losses = [tuple(run_threads(size, rank)[0]) for size in ranks]
    return RankComparison(tuple(ranks), tuple(losses), rtol)

"""What the examples share: one training loop for both styles, and the rule that says when two loss curves agree."""

from __future__ import annotations

import importlib.util
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import hybridml as hm

STYLES = ("eager", "traced")

# The numerics contract between the styles. Elementwise results are bit-equal; sums and matrix products may be added up
# in another order, so the first loss agrees to a few float32 roundings (2^-23 = 1.2e-7 each). From then on every step
# starts from slightly different parameters, and training amplifies that: step t may differ by TOLERANCE * (1 + t)^2.
# Measured on these examples: two eager runs whose parameters differed in the last bit at the start used up to a tenth
# of that in 300 steps (MLP 0.07, convnet 0.10, character model 0.002), growing faster than linearly after a ReLU flips.
TOLERANCE = 1e-6

Step = Callable[..., hm.Tensor]


@dataclass
class Run:
    """One training run: its losses, and how long each call of the step took."""

    name: str
    style: str
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def first(self) -> float:
        """Seconds of the first step: for the traced style this is where it compiles."""
        return self.seconds[0]

    @property
    def steady(self) -> float:
        """Median seconds of the steps after the first."""
        return statistics.median(self.seconds[1:])

    @property
    def total(self) -> float:
        return sum(self.seconds)


@dataclass(frozen=True)
class Agreement:
    """How far two loss curves lie apart, and whether that is within the contract."""

    first: float  # relative difference of the first loss
    largest: float  # largest relative difference of any step
    largest_ulp: int  # the same in units of the last place of float32
    worst_share: float  # largest part of the allowed difference that a step used up
    worst_step: int

    @property
    def within(self) -> bool:
        return self.worst_share <= 1  # False for NaN too


def allowed(step: int) -> float:
    """Largest relative difference of two losses at `step` (0 is the first)."""
    return TOLERANCE * (1 + step) ** 2


def compare(one: Run, other: Run) -> Agreement:
    """Lay two curves over each other. Curves of different length or with a NaN do not agree."""
    if len(one.losses) != len(other.losses) or not one.losses:
        return Agreement(math.nan, math.nan, -1, math.nan, -1)
    pairs = list(zip(one.losses, other.losses, strict=True))
    relative = [abs(a - b) / max(abs(a), abs(b), 1e-30) for a, b in pairs]
    shares = [difference / allowed(step) for step, difference in enumerate(relative)]
    if not all(map(math.isfinite, shares)):
        return Agreement(
            relative[0], math.nan, -1, math.nan, shares.index(next(s for s in shares if not math.isfinite(s)))
        )
    worst = max(range(len(shares)), key=shares.__getitem__)
    return Agreement(relative[0], max(relative), max(ulps(a, b) for a, b in pairs), shares[worst], worst)


def ulps(a: float, b: float) -> int:
    """Distance of two numbers in representable float32 numbers."""

    def order(value: float) -> int:
        bits = int(hm.asarray(value, dtype=hm.float32).numpy().view("int32"))
        return bits if bits >= 0 else -(bits & 0x7FFFFFFF)

    return abs(order(a) - order(b))


def train(name: str, style: str, step: Step, batches: Iterable[tuple[hm.Tensor, ...]], total: int) -> Run:
    """Call `step` (eager, or traced as a whole) on every batch, with a progress bar on a terminal."""
    run = Run(name, style)
    call = hm.trace(step) if style == "traced" else step
    if importlib.util.find_spec("tqdm") is not None:
        from tqdm import tqdm

        batches = tqdm(batches, total=total, desc=f"{name:<17}{style:<7}", unit="step", file=sys.stderr, disable=None)
    for batch in batches:
        start = time.perf_counter()
        loss = call(*batch).item()
        run.seconds.append(time.perf_counter() - start)
        run.losses.append(loss)
    return run


def print_summary(runs: Iterable[Run]) -> None:
    """One line a run."""
    print(f"{'example':<17}{'style':<8}{'first loss':>11}{'last loss':>11}{'first s':>9}{'step ms':>9}{'total s':>9}")
    for run in runs:
        print(
            f"{run.name:<17}{run.style:<8}{run.losses[0]:>11.4f}{run.losses[-1]:>11.4f}"
            f"{run.first:>9.3f}{1e3 * run.steady:>9.2f}{run.total:>9.2f}"
            + "".join(f"  {key} {value}" for key, value in run.notes.items() if "\n" not in value)
        )

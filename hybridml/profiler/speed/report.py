"""Report of `explain_speed`: where the time of a call goes in both styles, what factors are worth, and advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...display.reports import Report, duration, render
from ...display.tables import TIMES, Bar, Column, Figure, Table, numbers
from .launches import PRODUCTS
from .machine import Machine
from .parts import OVERHEAD, UNATTRIBUTED, Part

NOISE = 0.02  # of the time of a call: what is less is nothing, whatever the quartiles say


@dataclass(frozen=True)
class Spent:
    """A call in one style, in milliseconds: the median, that of fast calls, and the parts that add up to the latter."""

    name: str
    median_ms: float
    ms: float
    parts: tuple[Part, ...]

    def share(self, *names: str) -> float:
        """The part of the time that has these names."""
        return sum(part.ms for part in self.parts if part.name in names) / self.ms

    @property
    def unattributed(self) -> float:
        """The part of the time that is in no other part; below zero where the others are more than the whole."""
        return self.share(UNATTRIBUTED)

    @property
    def kernels(self) -> tuple[Part, ...]:
        """The parts that compute."""
        return tuple(part for part in self.parts if part.bytes or part.flops)

    @property
    def overhead(self) -> float:
        """The part of the time that is Python and calls."""
        return self.share(*OVERHEAD)

    @property
    def products(self) -> float:
        """The part of the time that is matrix products and convolutions."""
        return self.share(*PRODUCTS)

    @property
    def product_gflops(self) -> float:
        """The rate of matrix products and convolutions."""
        found = [part for part in self.parts if part.name in PRODUCTS]
        return sum(part.flops for part in found) / (sum(part.ms for part in found) or 1.0) / 1e6

    @property
    def memory(self) -> float:
        """The part of the time that kernels may be waiting for memory, at most."""
        return sum(part.memory_ms for part in self.parts) / self.ms


@dataclass(frozen=True)
class Factor:
    """Worth of a factor: a call with `other` in place of what the program does takes `ratio` times as long.

    `lower` and `upper` are the quartiles of that, measured in turns. Times are milliseconds for the samples of a call.
    `missing`: why it was not measured.
    """

    name: str
    title: str
    other: str
    base_ms: float = 0.0
    other_ms: float = 0.0
    ratio: float = 1.0
    lower: float = 1.0
    upper: float = 1.0
    missing: str = ""
    identical: bool = False  # the program is the same, and was not measured twice

    @property
    def verdict(self) -> str:
        """ "missing"; "slower" or "faster": what the other is; "unclear" where turns disagree about that; "same"."""
        if self.missing:
            return "missing"
        if abs(self.ratio - 1) <= NOISE:
            return "same"
        if self.lower > 1 or self.upper < 1:
            return "slower" if self.lower > 1 else "faster"
        return "unclear"


@dataclass(frozen=True)
class Stage:
    """A step of the waterfall: milliseconds of a call with all that is above it, too."""

    name: str
    ms: float


class Step(NamedTuple):
    """A step of the waterfall as it is drawn: parts of the longest; `kind` is "eager", "traced", "good" or "bad"."""

    name: str
    ms: float
    left: float
    width: float
    at: float  # where the next one begins
    kind: str
    change: str


@dataclass(frozen=True)
class Peer:
    """Another library's call, timed in the same turns: milliseconds."""

    name: str
    ms: float
    lower_ms: float
    upper_ms: float


@dataclass(frozen=True, repr=False)
class Speed(Report):
    """Report of `hybridml.explain_speed`. Shown as tables, in notebooks as HTML; `to_json()` gives text to keep."""

    name: str
    eager: Spent
    traced: Spent
    factors: tuple[Factor, ...]
    waterfall: tuple[Stage, ...]
    peers: tuple[Peer, ...]
    compile_ms: float  # of the first traced call, with an empty cache, beyond a steady one
    repeats: int
    machine: Machine
    sentences: tuple[str, ...] = field(default=())  # one for each factor
    advice: tuple[str, ...] = field(default=())

    TEMPLATE = "speed.html.jinja"

    def __getitem__(self, name: str) -> Factor:
        """The factor of that name."""
        return next(factor for factor in self.factors if factor.name == name)

    @property
    def speedup(self) -> float:
        """Eager time over traced time."""
        return self.eager.median_ms / self.traced.median_ms

    @property
    def break_even(self) -> float | None:
        """Calls after which compiling has paid for itself; None: never."""
        gain = self.eager.median_ms - self.traced.median_ms
        return None if gain <= 0 else max(self.compile_ms / gain, 1.0)

    @property
    def title(self) -> str:
        """The function, and a call in both styles."""
        return (
            f"{self.name}: {duration(self.eager.median_ms)} eager, {duration(self.traced.median_ms)} traced "
            f"({self.speedup:.3g} times as fast)"
        )

    @property
    def heading(self) -> str:
        """The function, and the question."""
        return f"{self.name}: why it is as fast as it is"

    @property
    def figures(self) -> list[Figure]:
        """The speed, and what compiling costs."""
        pays = "never" if self.break_even is None else f"{self.break_even:,.0f} calls"
        return [
            Figure(f"{self.speedup:.3g} ×", "traced, as fast as eager", "good" if self.speedup >= 1 else "bad"),
            Figure(duration(self.eager.median_ms), "an eager call, median"),
            Figure(duration(self.traced.median_ms), "a traced call, median"),
            Figure(pays, f"until compiling ({duration(self.compile_ms)}) has paid"),
        ]

    @property
    def remarks(self) -> tuple[str, ...]:
        """The advice, a sentence for each rule that holds."""
        return self.advice

    @property
    def tables(self) -> list[Table]:
        """Parts, factors with a sentence for each, peers, and how the parts are derived."""
        found = [self._parts(), self._factors(), Table("Factor by factor", [Column("", self.sentences)])]
        if self.peers:
            found.append(self._peers())
        return [*found, Table("How the parts are measured", [Column("", self.how)], folded=True)]

    def _parts(self) -> Table:
        styles = (self.eager, self.traced)
        names = _merged(*([part.name for part in style.parts] for style in styles))
        rows = [{part.name: part for part in style.parts} for style in styles]
        columns = [Column("part", [*names, "a fast call"])]
        largest = max(style.ms for style in styles)
        for style, parts in zip(styles, rows, strict=True):
            each = [parts.get(name) for name in names]
            times = [*(_ms(part) for part in each), style.ms]
            shares = ["" if part is None else f"{100 * part.ms / style.ms:.1f}" for part in each]
            columns.append(numbers(style.name, times, TIMES, largest)._replace(style=style.name))
            columns.append(Column("%", [*shares, "100"], "number"))
        traced = [rows[1].get(name, Part("", 0.0)) for name in names]
        columns += [
            Column("launches", [*(str(part.count or "") for part in traced), ""], "number"),
            numbers("memory at most", [*(part.memory_ms or None for part in traced), None], TIMES),
            Column("Gflop/s", [*map(_rate, traced), ""], "number"),
        ]
        bars = [Bar(max(part.ms, 0.0) / self.traced.ms, "traced") for part in traced]
        return Table("Where the time goes", columns, [*bars, Bar(0.0)], bars_at=3)

    def _factors(self) -> Table:
        measured = [not (one.missing or one.identical) for one in self.factors]
        every = list(zip(self.factors, measured, strict=True))
        ratios = ["not measured" if one.missing else f"{one.ratio:.2f}" for one in self.factors]
        spreads = [f"{one.lower:.2f} to {one.upper:.2f}" if known else "" for one, known in every]
        return Table(
            "What each factor is worth",
            [
                Column("factor", [one.title for one in self.factors]),
                Column("in its place", [one.other for one in self.factors]),
                numbers("a call then", [one.other_ms or None for one in self.factors], TIMES),
                Column("times as long", ratios, "number"),
                Column("quartiles", spreads, "number"),
            ],
        )

    def _peers(self) -> Table:
        largest = max(peer.upper_ms for peer in self.peers)
        times = [
            numbers(head, [getattr(peer, name) for peer in self.peers], TIMES, largest)
            for head, name in (("median", "ms"), ("25 %", "lower_ms"), ("75 %", "upper_ms"))
        ]
        ratios = [f"{peer.ms / self.traced.median_ms:.2f}" for peer in self.peers]
        names = Column("library", [peer.name for peer in self.peers])
        return Table("Beside other libraries", [names, *times, Column("times as long", ratios, "number")])

    @property
    def bars(self) -> list[Step]:
        """The waterfall from the eager call to the traced one: whole bars at the ends, changes in between."""
        longest = max(stage.ms for stage in self.waterfall)
        found, before = [], 0.0
        for k, (name, ms) in enumerate((stage.name, stage.ms) for stage in self.waterfall):
            end = "eager" if not k else "traced" if k == len(self.waterfall) - 1 else ""
            left, right = (0.0, ms) if end else sorted((before, ms))
            change = "" if end else f"{'−' if ms <= before else '+'}{duration(abs(before - ms) or 1e-6)}"
            kind = end or ("good" if ms <= before else "bad")
            found.append(Step(name, ms, left / longest, (right - left) / longest, ms / longest, kind, change))
            before = ms
        return found

    def svg(self) -> str:
        """The waterfall as a chart."""
        return render("waterfall.svg.jinja", bars=self.bars)

    def to_text(self) -> str:
        """Tables, the waterfall as a list, a sentence for each factor, and advice."""
        names, times, changes = zip(*((bar.name, bar.ms, bar.change) for bar in self.bars), strict=True)
        fall = [Column("style", names), numbers("a call", times, TIMES), Column("change", changes, "number")]
        parts, *others = self.tables
        tables = [parts, Table("From eager to traced", fall), *others]
        shown = ["\n".join([table.caption, *(f"  {line}" for line in table.lines())]) for table in tables]
        return "\n\n".join([self.title, "\n".join(f"-> {line}" for line in self.advice), *shown])

    def to_dict(self) -> dict[str, Any]:
        """Plain Python data, by the names of the fields."""
        derived = {"speedup": self.speedup, "break_even": self.break_even}
        verdicts = {"verdicts": {one.name: one.verdict for one in self.factors}}
        return {**super().to_dict(), **derived, **verdicts}

    @property
    def how(self) -> list[str]:
        """The ways in which the parts are derived, one sentence each."""
        here = self.machine
        return [
            "Kernels are timed by the compiled programs themselves; what NumPy computes by doing the operations of "
            "a call again, less the time of one on a single number.",
            f"Memory at most: bytes read and written at {here.gbs:.1f} GB/s, the rate at which {here.threads} "
            f"thread{'s' * (here.threads != 1)} read memory here, had no cache any of them.",
            f"Dispatch and calls are counted, each {duration(here.operation_ms)} and {duration(here.call_ms)}; new "
            f"memory is pages, each {duration(here.fault_ms or 1e-6)}. What is left of an eager call is Python.",
            f"A large product runs at {here.gflops:.0f} Gflop/s here.",
            "Unattributed is what a fast call without a clock differs by from the nearest one that was timed in parts.",
        ]


def _merged(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Both in one order; the last of both stays the last."""
    *most, last = dict.fromkeys([*first[:-1], *second[:-1], first[-1]])
    return [*most, last]


def _ms(part: Part | None) -> float | None:
    """Milliseconds for a table in which a rounded zero has no sign."""
    return None if part is None else part.ms if abs(part.ms) > 1e-9 else 0.0


def _rate(part: Part) -> str:
    return f"{part.flops / part.ms / 1e6:.1f}" if part.flops and part.ms > 0 else ""

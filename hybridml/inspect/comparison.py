"""Comparison: what `hybridml.compare` returns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..display.reports import Report, duration, size
from ..display.tables import SIZES, TIMES, Bar, Column, Figure, Table, numbers

_SPREAD = "  half of the calls"
_ROUNDING = 1 << 16  # ulp; where there are more, they say nothing


@dataclass(frozen=True)
class Style:
    """One style: times in milliseconds, sizes in bytes."""

    name: str
    first_ms: float  # the first call; the traced one traces and compiles
    steady_ms: float  # median of the calls after it
    lower_ms: float  # quartiles: half of the calls lie between them
    upper_ms: float
    kernels: int  # eager: operations run. traced: kernels launched
    bytes: int  # read and written by those
    peak_bytes: int  # memory allocated at the worst moment of a call
    stages_ms: dict[str, float] = field(default_factory=dict)  # of the first call


@dataclass(frozen=True)
class KernelLine:
    """One kernel of the traced program and the user's lines that it runs."""

    kind: str
    lines: tuple[str, ...]
    reasons: tuple[str, ...]
    bytes: int


@dataclass(frozen=True)
class Difference:
    """The largest difference between the styles, over `count` arrays."""

    count: int
    absolute: float
    relative: float  # the absolute one as a part of `largest`
    ulp: int  # the absolute one in units of the last place of `largest`, rounded up
    where: str = ""  # the array of these; empty where all are equal
    largest: float = 0.0  # element of that array; of one that is rounding around zero, of all arrays of its name


@dataclass(frozen=True, repr=False)
class Comparison(Report):
    """Report of `hybridml.compare`. Shown as a table, in notebooks as HTML; `to_json()` gives text to keep."""

    SCHEMA = 2
    TEMPLATE = "comparison.html.jinja"

    name: str
    eager: Style
    traced: Style
    results: Difference
    state: Difference  # tensors that the function writes, gradients included
    kernels: tuple[KernelLine, ...]
    compiles: int  # signatures compiled; more than one where the second call differs from the first
    not_restored: tuple[str, ...]  # written tensors that compare could not put back
    repeats: int
    cached: str = ""  # the part of the program that came from the cache
    cold_ms: float | None = None  # the first traced call with an empty cache; None: as it was
    prints: bool = False
    why: Report | None = None  # what `explain_speed` finds, where it was asked for

    @property
    def speedup(self) -> float:
        """Eager time over traced time, of a steady call."""
        return self.eager.steady_ms / self.traced.steady_ms

    @property
    def compile_ms(self) -> float:
        """Time that the first traced call costs beyond a steady one, with an empty cache."""
        first = self.traced.first_ms if self.cold_ms is None else self.cold_ms
        return max(first - self.traced.steady_ms, 0.0)

    @property
    def distinct(self) -> bool:
        """Whether the styles' quartiles do not overlap: if they do, the two times cannot be told from each other."""
        eager, traced = self.eager, self.traced
        return traced.upper_ms < eager.lower_ms or eager.upper_ms < traced.lower_ms

    @property
    def break_even(self) -> int | None:
        """Calls after which compiling has paid for itself; None: never, since a traced call is not faster."""
        gain = self.eager.steady_ms - self.traced.steady_ms
        return None if gain <= 0 else max(1, math.ceil(self.compile_ms / gain))

    def to_dict(self) -> dict[str, Any]:
        """Plain Python data; see docs/tutorial.md for the names."""
        derived = ("speedup", "compile_ms", "distinct", "break_even")
        why = None if self.why is None else self.why.to_dict()
        return {**super().to_dict(), **{name: getattr(self, name) for name in derived}, "why": why}

    def to_text(self) -> str:
        """A table of the two styles, and a line for each remark."""
        why = [] if self.why is None else ["", self.why.to_text()]
        return "\n".join([*side_by_side("", self.rows).lines(), *self.remarks, *why])

    @property
    def heading(self) -> str:
        """The function, and that it is compared."""
        return f"{self.name}: eager beside traced"

    @property
    def figures(self) -> list[Figure]:
        """Speed, what compiling costs, and the difference."""
        worst = max(self.results, self.state, key=lambda found: found.ulp)
        verdict = "" if not self.distinct else "good" if self.speedup >= 1 else "bad"
        pays = "never" if self.break_even is None else f"{self.break_even:,} calls"
        differs = "" if worst.ulp and math.isfinite(worst.relative) else "bad" if worst.ulp else "good"
        return [
            Figure(f"{self.speedup:.3g} ×", "traced, as fast as eager", verdict),
            Figure(duration(self.traced.steady_ms), "a traced call, median"),
            Figure(pays, f"until compiling ({duration(self.compile_ms)}) has paid"),
            Figure(f"{worst.absolute:.1e}" if worst.ulp else "none", "largest difference", differs),
        ]

    @property
    def tables(self) -> list[Table]:
        """The styles side by side, the spread of their times, and the kernels of the traced program."""
        styles, kernels = (self.eager, self.traced), self.kernels
        longest = max(*(style.steady_ms for style in styles), 1e-9)
        largest = max(style.upper_ms for style in styles)
        spread = [
            numbers(head, [getattr(style, name) for style in styles], TIMES, largest)
            for head, name in (("median", "steady_ms"), ("25 %", "lower_ms"), ("75 %", "upper_ms"))
        ]
        found = [
            Table(
                "Time of a steady call", [Column("style", [style.name for style in styles]), *spread],
                [Bar(style.steady_ms / longest, style.name) for style in styles],
            ),
            side_by_side("Eager beside traced", [row for row in self.rows if row[0] != _SPREAD]),
        ]  # fmt: skip
        if kernels:
            columns = [
                Column("", [str(k) for k in range(len(kernels))], "number"),
                Column("kernel", [kernel.kind for kernel in kernels]),
                numbers("moved", [kernel.bytes for kernel in kernels], SIZES),
                Column("lines", ["\n".join(kernel.lines) for kernel in kernels], "code"),
                Column("why it is a kernel", ["\n".join(kernel.reasons) for kernel in kernels]),
            ]
            found.append(Table(f"Kernels of the traced program ({len(kernels)})", columns, folded=True))
        return found

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """Rows of the table: name, eager, traced; the first is the head."""
        return list(self._rows())

    @property
    def remarks(self) -> list[str]:
        """Conclusions from the numbers, one sentence each."""
        return list(self._remarks())

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        eager, traced = self.eager, self.traced
        yield self.name, eager.name, traced.name
        yield "first call", duration(eager.first_ms), duration(traced.first_ms)
        stages = numbers("", list(traced.stages_ms.values()), TIMES)
        for stage, spent in zip(traced.stages_ms, stages.cells, strict=True):
            yield f"  {stage}", "", f"{spent}{stages.head.replace(',', '')}"
        if self.cached and self.cold_ms is not None:
            yield "first call, empty cache", "", duration(self.cold_ms)
        yield "steady call (median)", duration(eager.steady_ms), duration(traced.steady_ms)
        yield _SPREAD, _range(eager), _range(traced)
        yield "operations, kernels", str(eager.kernels), str(traced.kernels)
        yield "bytes moved", size(eager.bytes), size(traced.bytes)
        yield "peak memory of a call", size(eager.peak_bytes), size(traced.peak_bytes)

    def _remarks(self) -> Iterator[str]:
        if not self.distinct:
            yield "speed: the two cannot be told apart (their quartiles overlap)"
        elif self.speedup >= 1:
            yield f"speed: traced is {self.speedup:.3g} times as fast"
        else:
            yield f"speed: traced is {1 / self.speedup:.3g} times slower"
        if self.break_even is None:
            yield f"compiling took {duration(self.compile_ms)} and never pays: a traced call is not faster"
        else:
            calls = f"{self.break_even:,} call{'s' * (self.break_even > 1)}"
            yield f"compiling took {duration(self.compile_ms)} and pays after {calls}"
        yield f"results: {said(self.results)}"
        yield f"state written: {said(self.state)}"
        if self.cached:
            yield f"cache: {self.cached} came from the cache of an earlier run"
        if self.compiles > 1:
            yield f"{self.compiles} programs were compiled: a later call met another signature or other Python values"
        if self.prints:
            yield "it prints: single calls were measured, and only the first was heard"
        if self.not_restored:
            yield f"written and not put back, as compare could not reach it beforehand: {', '.join(self.not_restored)}"


@dataclass(frozen=True, repr=False)
class DeviceComparison(Report):
    """Report of `hybridml.compare(devices=...)`: both styles on each device, and results beside those of the first."""

    name: str
    devices: tuple[str, ...]
    comparisons: tuple[Comparison, ...]  # by device
    results: tuple[Difference, ...]  # of each device's results and written state from the first device's

    def __getitem__(self, device: str) -> Comparison:
        """The comparison of both styles on a device."""
        return self.comparisons[self.devices.index(device)]

    def to_text(self) -> str:
        """A table with two columns for each device, and the differences between devices."""
        return "\n".join([*side_by_side("", self.rows).lines(), *self.remarks])

    @property
    def heading(self) -> str:
        """The function, and the devices."""
        return f"{self.name} on {' and '.join(self.devices)}"

    @property
    def tables(self) -> list[Table]:
        """Both styles on each device."""
        return [side_by_side("Eager beside traced, on each device", self.rows)]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Rows of the table: name, then eager and traced on each device; the first is the head."""
        heads = [f"{device} {style}" for device in self.devices for style in ("eager", "traced")]
        merged: dict[str, list[str]] = {}
        shown = ("first call", "steady call (median)", "operations, kernels", "bytes moved", "peak memory of a call")
        for comparison in self.comparisons:
            for what, eager, traced in comparison.rows:
                if what in shown:
                    merged.setdefault(what, []).extend((eager, traced))
        return [(self.name, *heads), *((what, *cells) for what, cells in merged.items())]

    @property
    def remarks(self) -> list[str]:
        """Differences between the styles and between the devices, one sentence each."""
        found = []
        for device, comparison, from_first in zip(self.devices, self.comparisons, self.results, strict=True):
            found.append(f"{device}: results of the styles: {said(comparison.results)}")
            if device != self.devices[0]:
                found.append(f"{device} beside {self.devices[0]}: {said(from_first)}")
        return found


def _range(style: Style) -> str:
    return f"{duration(style.lower_ms)} to {duration(style.upper_ms)}"


def side_by_side(caption: str, rows: Sequence[tuple[str, ...]]) -> Table:
    """A table of rows whose first is the head; a column whose head ends with a style has its colour."""
    (name, *heads), *others = rows
    first, *columns = zip(*others, strict=True)
    styled = [Column(head, cells, "number", head.split()[-1]) for head, cells in zip(heads, columns, strict=True)]
    return Table(caption, [Column(name, first), *styled])


def said(found: Difference) -> str:
    """A difference in words: absolute, relative, and in ulp where there are few enough to be rounding."""
    if not found.count:
        return "none"
    arrays = f"{found.count} array{'s' * (found.count > 1)}"
    if not found.where:
        return f"{arrays}, bit-equal"
    if not math.isfinite(found.relative):
        return f"{arrays}, differ in shape or type, or one is not finite where the other is (in {found.where})"
    largest = f" ({found.largest:.2g})" if found.largest else ""
    apart = f"{found.absolute:.2g}, which is {found.relative:.1e} of the largest element{largest}{in_ulp(found.ulp)}"
    return f"{arrays}, differ by at most {apart} (in {found.where})"


def in_ulp(ulp: int) -> str:
    """`, 3 ulp of it`; nothing where there are so many that they say nothing."""
    return f", {ulp:,} ulp of it" if ulp <= _ROUNDING else ""

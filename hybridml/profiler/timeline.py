"""Memory over time: the arrays alive, and the source lines that have made them.

Eager arrays live from the operation that makes them to their end, as the interpreter says it. What a compiled program
computes lives in its arena and its results: from the launch that writes a buffer first to the one that reads it last
(the plan knows), at the times at which those ran. What was there before is not counted, nor what NumPy uses inside of
an operation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hybridml_compiler.once import lazy
from hybridml_compiler.sizes.dims import hint
from hybridml_compiler.targets.cpu.executable import CpuExecutable
from hybridml_compiler.targets.cpu.runtime.spans import Span

from ..display.reports import Report, duration, render, size
from ..display.tables import SIZES, Column, Figure, Table, numbers
from .events import Event
from .kernels import shares
from .record import Recording, describe

# Of lines: neither eager's orange nor traced's blue, and seen on light and dark paper (3 : 1 at least).
COLOURS = ("#8a5cc9", "#0b8f86", "#c2418f", "#7f8a1c", "#a8604a", "#5f7f9c", "#4b9150", "#b0627e")
OTHERS = "#868e96"
_SHOWN = 12  # lines that are printed


@dataclass(frozen=True)
class Block:
    """Memory that is alive from `start` to `end` (nanoseconds; the end of the profile for what is left)."""

    start: int
    end: int
    nbytes: int
    what: str
    where: str  # the user's line
    kind: str  # "eager" or "traced"


class Band(NamedTuple):
    """A source line in the drawing (the last may be all others), with the bytes of it alive at the peak."""

    name: str
    colour: str
    nbytes: int


@dataclass(frozen=True, repr=False)
class Timeline(Report):
    """`peak` bytes were alive at `peak_at`; `at_peak` says which lines made them.

    >>> import hybridml as hm
    >>> found = hm.memory_timeline(lambda x: (x + 1) * 2, hm.zeros((1000,)))
    >>> found.peak
    8000
    """

    start: int
    end: int
    blocks: tuple[Block, ...]
    arenas: int = 0  # bytes that the programs keep for what they compute, whatever of it is alive

    TEMPLATE = "timeline.html.jinja"

    @lazy
    def changes(self) -> list[tuple[int, int, Block]]:
        """(time, bytes more or less, block) in order; what ends makes room for what begins."""
        ends = [(b.end, -b.nbytes, b) for b in self.blocks if b.end < self.end]
        return sorted([*ends, *((b.start, b.nbytes, b) for b in self.blocks)], key=lambda c: c[:2])

    @lazy
    def _peak(self) -> tuple[int, int]:
        alive, best = 0, (0, self.start)
        for time, change, _ in self.changes:
            alive += change
            if alive > best[0]:
                best = alive, time
        return best

    @property
    def peak(self) -> int:
        """The most bytes that were alive at once."""
        return self._peak[0]

    @property
    def peak_at(self) -> int:
        return self._peak[1]

    def alive(self, time: int) -> dict[str, int]:
        """Line -> bytes that it has made and that are alive at this time; most first."""
        found: Counter[str] = Counter()
        for b in self.blocks:
            if b.start <= time and (time < b.end or b.end >= self.end):
                found[b.where] += b.nbytes
        return dict(found.most_common())

    @lazy
    def at_peak(self) -> dict[str, int]:
        return self.alive(self.peak_at)

    @lazy
    def most(self) -> dict[str, int]:
        """Line -> the most bytes that it has had alive at once; most first."""
        alive: Counter[str] = Counter()
        best: Counter[str] = Counter()
        for _, change, b in self.changes:
            alive[b.where] += change
            best[b.where] = max(best[b.where], alive[b.where])
        return dict(best.most_common())

    @property
    def title(self) -> str:
        """The peak, and when it was."""
        found = f"memory: {size(self.peak)} alive at the peak, {duration(self._after_ms)} after the start"
        return found + (f" (compiled programs keep {size(self.arenas)} for theirs)" if self.arenas else "")

    @property
    def _after_ms(self) -> float:
        return (self.peak_at - self.start) / 1e6

    @property
    def heading(self) -> str:
        """The title of the page."""
        return "Memory over time, by source line"

    @property
    def figures(self) -> list[Figure]:
        """The peak, when it was, and what programs keep."""
        found = [Figure(size(self.peak), "alive at the peak"), Figure(duration(self._after_ms), "after the start")]
        return [*found, Figure(size(self.arenas), "kept by compiled programs")] if self.arenas else found

    @property
    def bands(self) -> list[Band]:
        """The lines of the drawing from the bottom up, and all others as one."""
        shown = list(self.most)[: len(COLOURS)]
        found = [
            Band(line or "(no line)", colour, self.at_peak.get(line, 0))
            for line, colour in zip(shown, COLOURS, strict=False)
        ]
        if len(self.most) > len(shown):
            found.append(Band("other lines", OTHERS, self.peak - sum(band.nbytes for band in found)))
        return found

    @property
    def tables(self) -> list[Table]:
        """Bytes alive at the peak, by line."""
        alive = list(self.at_peak.items())
        lines = Column("line", [line or "(no line)" for line, _ in alive], "code")
        return [Table("alive at the peak", [lines, numbers("memory", [nbytes for _, nbytes in alive], SIZES)])]

    def to_text(self) -> str:
        """The peak, and the lines that made what was alive then."""
        lines = self.tables[0].lines(_SHOWN, name_last=True)
        return "\n".join([self.title, *(lines if self.at_peak else [])])

    def svg(self, width: int = 720, height: int = 200) -> str:
        """Bytes alive over time, stacked by source line."""
        bands = self.bands
        left, plot = 70, width - 80
        span, top = max(self.end - self.start, 1), max(self.peak, 1)

        def x(time: int) -> float:
            return left + plot * (time - self.start) / span

        def y(nbytes: float) -> float:
            return 8 + (height - 8) * (1 - nbytes / top)

        return render(
            "timeline.svg.jinja", width=width, height=height, left=left, right=left + plot, span=span / 1e6,
            peak=self.peak, peak_at=x(self.peak_at), ticks=[(y(top * k / 4), top * k / 4) for k in range(5)],
            bands=list(zip(bands, self._areas(list(self.most)[: len(COLOURS)], x, y), strict=True)),
        )  # fmt: skip

    def _areas(self, lines: Sequence[str], x: Callable[[int], float], y: Callable[[float], float]) -> list[str]:
        """The path of each band from the bottom up; of what happens within one pixel the highest moment."""
        place = {line: k for k, line in enumerate(lines)}
        count = len(lines) + (len(self.most) > len(lines))
        alive = [0] * count
        samples: list[tuple[float, list[int]]] = [(x(self.start), alive.copy())]
        for time, change, b in self.changes:
            alive[place.get(b.where, len(lines))] += change
            at = x(time)
            same = int(at) == int(samples[-1][0]) and len(samples) > 1
            if not same:
                samples.append((at, alive.copy()))
            elif sum(alive) >= sum(samples[-1][1]):
                samples[-1] = (samples[-1][0], alive.copy())
        samples.append((x(self.end), alive))
        found = []
        for k in range(count):
            upper, lower = [], []
            for (at, values), (after, _) in zip(samples, [*samples[1:], samples[-1]], strict=True):
                low = sum(values[:k])
                for edge in (at, after):
                    upper.append(f"{edge:.1f} {y(low + values[k]):.1f}")
                    lower.append(f"{edge:.1f} {y(low):.1f}")
            found.append(f"M{' L'.join(upper)} L{' L'.join(reversed(lower))} Z")
        return found


def timeline_of(recording: Recording, events: Iterable[Event]) -> Timeline:
    """The memory of a recording."""
    stop = recording.stop
    launched = {(event.thread, event.start): event for event in events if event.kind == "launch"}
    blocks = [
        Block(array.time, recording.freed.get(number, stop), array.nbytes, array.what, describe(array.place), "eager")
        for number, array in enumerate(recording.arrays)
    ]
    arenas = 0
    for executable, spans, _ in recording.launches:
        if spans:
            arenas += hint(executable.arena_bytes)
            buffers = buffers_of(executable)
            for run in _runs(spans):
                first = next(iter(run.values()))
                event = launched[first.thread, first.start]
                caller = "" if executable in recording.own else next(iter(event.lines))
                while event.inside is not None:
                    event = event.inside
                blocks += _alive(run, buffers, caller, event.end)
    return Timeline(recording.start, stop, tuple(blocks), arenas)


def buffers_of(executable: CpuExecutable) -> list[tuple[int, int, int, str, str]]:
    """(first launch, last launch, bytes, what, where) of all that a program computes into: arena and results."""
    stages: Any = executable.stages
    plan, graph = stages.plan, stages.graph

    def line(where: str, launch: int) -> str:
        """The line of a buffer; for a loop's results, which no line made alone, the one with the most work in it."""
        parts = shares(plan.launches[launch])
        return where or max(parts, key=parts.__getitem__)

    found = [(b.first, b.last, hint(b.nbytes), b.what, line(b.where, b.first)) for b in plan.buffers]
    first: dict[int, int] = {}
    for k, launch in enumerate(plan.launches):
        for place in launch.operands:
            if place.base == "output":
                first.setdefault(place.number, k)
    for number, aval in enumerate(plan.outputs):
        if number in first:
            node = graph.outputs[plan.fresh[number]]
            where = line(node.where, first[number])
            found.append((first[number], len(plan.launches) - 1, hint(aval.nbytes), "result", where))
    return found


def _runs(spans: Sequence[Span]) -> list[dict[int, Span]]:
    """The launches of each call of a program, by number: a call ends where numbers start again."""
    runs: list[dict[int, Span]] = []
    threads: dict[int, dict[int, Span]] = {}
    for span in sorted((s for s in spans if not s.part), key=lambda s: s.start):
        run = threads.get(span.thread)
        if run is None or span.launch in run or span.launch < max(run):
            run = threads[span.thread] = {}
            runs.append(run)
        run[span.launch] = span
    return runs


def _alive(
    run: dict[int, Span], buffers: Sequence[tuple[int, int, int, str, str]], caller: str, over: int
) -> list[Block]:
    """Blocks of the buffers in a run: results stay until the call is `over`, when they become the caller's arrays."""
    final = max(run)
    return [
        Block(run[first].start, max(over, end) if what == "result" else end, nbytes, what, caller or where, "traced")
        for first, last, nbytes, what, where in buffers
        if first in run and min(last, final) in run and nbytes
        for end in [run[min(last, final)].end]
    ]

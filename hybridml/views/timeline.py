"""Memory over time: what is alive, and which source line has made it.

Eager arrays live from the operation that makes them to their end, as the interpreter says it. What a compiled program
computes lives in its arena and its results: from the launch that writes a buffer first to the one that reads it last
(the plan knows), at the times at which those ran. What was there before is not counted, nor what NumPy uses inside of
an operation.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hybridml_compiler.once import lazy
from hybridml_compiler.runtime.executable import Executable
from hybridml_compiler.runtime.spans import Span
from hybridml_compiler.sizes.dims import hint

from ..reports import duration, size
from .events import Event
from .kernels import shares
from .record import Recording, describe

COLOURS = ("#2b6cb0", "#d9822b", "#2f855a", "#b83280", "#6b46c1", "#00838f", "#a0522d", "#c53030")
OTHERS = "#a0aec0"


@dataclass(frozen=True)
class Block:
    """Memory that is alive from `start` to `end` (nanoseconds; the end of the profile for what is left)."""

    start: int
    end: int
    nbytes: int
    what: str
    where: str  # the user's line
    kind: str  # "eager" or "traced"


@dataclass(frozen=True)
class Timeline:
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

    def __str__(self) -> str:
        after = duration((self.peak_at - self.start) / 1e6)
        lines = [f"memory: {size(self.peak)} alive at the peak, {after} after the start"]
        if self.arenas:
            lines[0] += f" (compiled programs keep {size(self.arenas)} for theirs)"
        lines += [f"{size(nbytes):>10}  {line or '(no line)'}" for line, nbytes in list(self.at_peak.items())[:12]]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<div>{self.svg()}</div>"

    def svg(self, width: int = 720, height: int = 200) -> str:
        """Bytes alive over time, stacked by source line."""
        lines = list(self.most)[: len(COLOURS)]
        colours = dict(zip(lines, COLOURS, strict=False))
        legend = 16 * (len(lines) + 1 + (len(self.most) > len(lines)))
        span, top = max(self.end - self.start, 1), max(self.peak, 1)
        left, bottom, plot = 70, 24, width - 80

        def x(time: int) -> float:
            return left + plot * (time - self.start) / span

        def y(nbytes: float) -> float:
            return 8 + (height - 8) * (1 - nbytes / top)

        parts = [
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height + bottom + legend}' "
            f"viewBox='0 0 {width} {height + bottom + legend}' font-family='sans-serif' font-size='11'>",
        ]
        for k in range(5):
            at = y(top * k / 4)
            parts.append(f"<line x1='{left}' x2='{left + plot}' y1='{at:.1f}' y2='{at:.1f}' stroke='#e2e8f0'/>")
            label = size(round(top * k / 4))
            parts.append(f"<text x='{left - 6}' y='{at + 4:.1f}' text-anchor='end' fill='#718096'>{label}</text>")
        parts += [
            f"<path d='{path}' fill='{colours.get(line, OTHERS)}' fill-opacity='.85'>"
            f"<title>{html.escape(line or 'other lines')}</title></path>"
            for line, path in self._areas(lines, x, y, plot)
        ]
        at = x(self.peak_at)
        parts.append(
            f"<line x1='{at:.1f}' x2='{at:.1f}' y1='8' y2='{height}' stroke='#1a202c' stroke-dasharray='3 3'/>"
        )
        parts.append(f"<text x='{left}' y='{height + 15}' fill='#718096'>0</text>")
        whole = duration(span / 1e6)
        parts.append(f"<text x='{left + plot}' y='{height + 15}' text-anchor='end' fill='#718096'>{whole}</text>")
        parts.append(f"<text x='{min(max(at, left + 60), left + plot - 110):.1f}' y='{height + 15}' "
                     f"text-anchor='middle' fill='#1a202c'>peak {size(self.peak)}</text>")  # fmt: skip
        rows = [(line, colours[line], self.at_peak.get(line, 0)) for line in lines]
        rest = self.peak - sum(nbytes for *_, nbytes in rows)
        if len(self.most) > len(lines):
            rows.append(("other lines", OTHERS, rest))
        for k, (line, colour, nbytes) in enumerate(rows):
            at = height + bottom + 16 * k + 12
            parts.append(f"<rect x='{left}' y='{at - 9}' width='10' height='10' fill='{colour}' fill-opacity='.85'/>")
            parts.append(f"<text x='{left + 16}' y='{at}'>{size(nbytes)}</text>")
            shown = line if len(line) < 96 else line[:95] + "…"
            parts.append(f"<text x='{left + 84}' y='{at}' font-family='monospace'>{html.escape(shown)}</text>")
        return "".join([*parts, "</svg>"])

    def _areas(
        self, lines: Sequence[str], x: Callable[[int], float], y: Callable[[float], float], columns: int
    ) -> list[tuple[str, str]]:
        """(line, path) of each band from the bottom up; of what happens within one pixel the highest moment."""
        order = [*lines, ""] if len(self.most) > len(lines) else list(lines)
        place = {line: k for k, line in enumerate(lines)}
        alive = [0] * (len(order) + 1)
        samples: list[tuple[float, list[int]]] = [(x(self.start), alive.copy())]
        for time, change, b in self.changes:
            alive[place.get(b.where, len(lines))] += change
            at = x(time)
            same = int(at) == int(samples[-1][0]) and len(samples) > 1
            if not same:
                samples.append((at, alive.copy()))
            elif sum(alive) >= sum(samples[-1][1]):
                samples[-1] = (samples[-1][0], alive.copy())
            last = alive.copy()
        samples.append((x(self.end), last if self.changes else alive.copy()))
        found = []
        for k, line in enumerate(order):
            upper, lower = [], []
            for (at, values), (after, _) in zip(samples, [*samples[1:], samples[-1]], strict=True):
                low = sum(values[:k])
                for edge in (at, after):
                    upper.append(f"{edge:.1f} {y(low + values[k]):.1f}")
                    lower.append(f"{edge:.1f} {y(low):.1f}")
            found.append((line, f"M{' L'.join(upper)} L{' L'.join(reversed(lower))} Z"))
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
            buffers = _buffers(executable)
            for run in _runs(spans):
                first = next(iter(run.values()))
                event = launched[first.thread, first.start]
                caller = "" if executable in recording.own else next(iter(event.lines))
                while event.inside is not None:
                    event = event.inside
                blocks += _alive(run, buffers, caller, event.end)
    return Timeline(recording.start, stop, tuple(blocks), arenas)


def _buffers(executable: Executable) -> list[tuple[int, int, int, str, str]]:
    """(first launch, last launch, bytes, what, where) of all that a program computes into: arena and results."""
    stages: Any = executable.stages
    plan, graph = stages.plan, stages.graph

    def line(where: str, launch: int) -> str:
        """Of a loop's results, which no line has made alone: the line that works the most in it."""
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
    """Results stay until the call is `over`, which is when they become arrays of the caller."""
    final = max(run)
    return [
        Block(run[first].start, max(over, end) if what == "result" else end, nbytes, what, caller or where, "traced")
        for first, last, nbytes, what, where in buffers
        if first in run and min(last, final) in run and nbytes
        for end in [run[min(last, final)].end]
    ]

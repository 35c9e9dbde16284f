"""Explanation: what `hybridml.explain` returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..display.reports import Report, count, duration, size


@dataclass(frozen=True)
class PathLine:
    """A line of the tree of paths: a question, or what an answer leads to, `depth` deep."""

    depth: int
    text: str
    where: str  # the user's line that asks
    taken: int  # calls


@dataclass(frozen=True)
class GuardLine:
    """A Python value that every call compares. `where`: a line that reads it."""

    name: str
    value: str
    where: str


@dataclass(frozen=True)
class CapturedLine:
    """A tensor or array of the function's surroundings. `use`: "read", "written", "gradient set"."""

    name: str
    type: str
    use: str


@dataclass(frozen=True)
class EffectLine:
    """An effect of the trace on Python. `when`: the calls that repeat it."""

    name: str
    where: str
    when: str


@dataclass(frozen=True)
class SizeLine:
    """A condition on sizes that a program with symbolic sizes relies on, and the line that asked for it."""

    condition: str
    where: str


@dataclass(frozen=True)
class KernelCost:
    """One launch of the compiled program. `ns` is the plan's estimate on one core."""

    kind: str
    lines: tuple[str, ...]
    reasons: tuple[str, ...]
    ns: float
    bytes: int
    flops: float


@dataclass(frozen=True)
class LineCost:
    """Estimated cost of a program's kernels for one line of the user."""

    where: str
    ns: float
    bytes: float
    flops: float
    kernels: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Explanation(Report):
    """Report of `hybridml.explain`. Shown as text, in notebooks as HTML; `to_dict()` gives plain data."""

    name: str
    eager: str  # why such calls run eagerly; empty where they run compiled
    calls: int  # of the function until now, in all
    programs: int
    paths: tuple[PathLine, ...] = ()
    guards: tuple[GuardLine, ...] = ()
    identities: int = 0  # further guards: functions, classes and objects that must be the same ones
    lifted: tuple[str, ...] = ()  # numbers that are inputs: other values are no other program
    captured: tuple[CapturedLine, ...] = ()
    effects: tuple[EffectLine, ...] = ()
    retraces: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    sizes: tuple[SizeLine, ...] = ()
    kernels: tuple[KernelCost, ...] = ()
    lines: tuple[LineCost, ...] = ()
    ir: str = ""  # of the whole path, with the names that `run(fetch=...)` takes
    reused: tuple[str, ...] = ()  # what was known when each part of the path was compiled
    placement: tuple[str, ...] = ()  # devices by cost: estimates of the choice, of the others, of each program

    TEMPLATE = "explanation.html.jinja"

    def to_text(self) -> str:
        """The head line, then each section with its title."""
        blocks = ["\n".join([title, *(f"  {row}" for row in rows)]) for title, rows in self.sections]
        return "\n".join([self.title, *blocks])

    @property
    def title(self) -> str:
        """The numbers of programs and calls, or the reason why such calls run eagerly."""
        if self.eager:
            return f"{self.name}: such calls run eagerly: {self.eager}"
        programs = f"{self.programs} compiled program{'s' * (self.programs != 1)}"
        return f"{self.name}: {programs}, {self.calls} call{'s' * (self.calls != 1)} until now"

    @property
    def sections(self) -> list[tuple[str, list[str]]]:
        """Titles of the sections that have something to say, each with its lines."""
        return list(self._sections())

    def _sections(self) -> Iterator[tuple[str, list[str]]]:
        if len(self.paths) > 1:
            yield "paths (what Python asks, what the answers lead to)", [_path(p) for p in self.paths]
        if self.guards or self.identities:
            rows = [_at(f"{g.name} = {g.value}", g.where) for g in self.guards]
            if self.identities:
                rows.append(f"{self.identities} functions, classes, objects and sizes of containers")
            yield "guards (another value is another program)", rows
        if self.lifted:
            yield "numbers that are inputs (another value is the same program)", list(self.lifted)
        if self.captured:
            yield "captured state", [f"{c.name}: {c.type}, {c.use}" for c in self.captured]
        if self.effects:
            yield "what the trace did to Python", [_at(f"{e.name}: {e.when}", e.where) for e in self.effects]
        if self.symbols:
            rows = [*self.symbols, *(_at(f"holds where {s.condition}", s.where) for s in self.sizes)]
            yield "sizes that come with the call", rows
        if self.retraces:
            yield "traced again", list(self.retraces)
        if self.reused:
            yield "how it was compiled", list(self.reused)
        if self.placement:
            yield "placement by cost (estimated)", list(self.placement)
        if self.kernels:
            yield f"kernels ({len(self.kernels)})", list(self._kernel_rows())
        if self.lines:
            total = sum(line.ns for line in self.lines) or 1.0
            rows = [
                f"{line.ns / total:5.1%}  {_cost(line.ns, line.bytes, line.flops)}  {line.where}" for line in self.lines
            ]
            yield "cost of the user's lines (estimated)", rows

    def _kernel_rows(self) -> Iterator[str]:
        for k, kernel in enumerate(self.kernels):
            yield f"{k}: {kernel.kind}, {_cost(kernel.ns, kernel.bytes, kernel.flops)}"
            yield from (f"     {line}" for line in kernel.lines)
            yield from (f"     why: {reason}" for reason in kernel.reasons)


def _path(p: PathLine) -> str:
    times = f", {p.taken} call{'s' * (p.taken != 1)}" if p.taken else ""
    return "  " * p.depth + _at(p.text + times, p.where)


def _at(text: str, where: str) -> str:
    return f"{text}  ({where})" if where else text


def _cost(ns: float, nbytes: float, flops: float) -> str:
    return f"{duration(ns / 1e6)}, {size(round(nbytes))}, {count(flops)}flop"

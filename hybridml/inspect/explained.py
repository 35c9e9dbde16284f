"""Explanation: what `hybridml.explain` returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..display.reports import Report, duration
from ..display.tables import COUNTS, SIZES, TIMES, Bar, Column, Figure, Table, numbers

_SHOWN = 40  # rows of a table that is printed
_REGISTERED = "._kinds["  # where a layer knows what is registered: a guard for each name, which users never changed


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
        """The head line, then the first rows of each table with its title."""
        blocks = [[table.caption, *(f"  {line}" for line in table.lines(_SHOWN))] for table in self.tables]
        return "\n".join([self.title, *(line for block in blocks for line in ("", *block))])

    @property
    def title(self) -> str:
        """The numbers of programs and calls, or the reason why such calls run eagerly."""
        if self.eager:
            return f"{self.name}: such calls run eagerly: {self.eager}"
        programs = f"{self.programs} compiled program{'s' * (self.programs != 1)}"
        return f"{self.name}: {programs}, {self.calls} call{'s' * (self.calls != 1)} until now"

    @property
    def heading(self) -> str:
        """The function, and that it is explained."""
        return f"{self.name}: what a call runs"

    @property
    def figures(self) -> list[Figure]:
        """Programs, calls, kernels, and what they are estimated to take."""
        if self.eager:
            return [Figure("eager", "such calls run so", "bad")]
        estimate = duration(sum(kernel.ns for kernel in self.kernels) / 1e6)
        return [
            Figure(f"{self.programs:,}", f"compiled program{'s' * (self.programs != 1)}"),
            Figure(f"{self.calls:,}", f"call{'s' * (self.calls != 1)} until now"),
            Figure(f"{len(self.kernels):,}", f"kernel{'s' * (len(self.kernels) != 1)}"),
            Figure(estimate, "a call, estimated on one core"),
        ]

    @property
    def remarks(self) -> list[str]:
        """Why such calls run eagerly, where they do."""
        return [self.title] if self.eager else []

    @property
    def tables(self) -> list[Table]:
        """The tables that have something to say."""
        return list(self._tables())

    def _tables(self) -> Iterator[Table]:
        if len(self.paths) > 1:
            texts = Column("path", ["  " * p.depth + p.text for p in self.paths])
            calls = Column("calls", [f"{p.taken:,}" if p.taken else "" for p in self.paths], "number")
            title = "paths (what Python asks, what the answers lead to)"
            yield Table(title, [texts, calls, _where([p.where for p in self.paths])])
        if self.guards or self.identities:
            guards = [guard for guard in self.guards if _REGISTERED not in guard.name]
            if hidden := len(self.guards) - len(guards):
                guards.append(GuardLine(f"{hidden:,} names in layers", "what is registered under them", ""))
            if self.identities:
                others = "functions, classes, objects and sizes of containers"
                guards.append(GuardLine(f"{self.identities:,} others", others, ""))
            names, values = (Column(part, [getattr(g, part) for g in guards], "code") for part in ("name", "value"))
            yield Table("guards (another value is another program)", [names, values, _where([g.where for g in guards])])
        if self.lifted:
            yield _list("numbers that are inputs (another value is the same program)", self.lifted)
        if self.captured:
            parts = [(part, [getattr(c, part) for c in self.captured]) for part in ("name", "type", "use")]
            columns = [Column(part, cells, "text" if part == "use" else "code") for part, cells in parts]
            yield Table(f"captured state ({len(self.captured):,})", columns)
        if self.effects:
            names, when = Column("effect", [e.name for e in self.effects], "code"), [e.when for e in self.effects]
            where = _where([e.where for e in self.effects])
            yield Table("what the trace did to Python", [names, Column("when", when), where])
        if self.symbols:
            holds = Column("size", [*self.symbols, *(f"holds where {s.condition}" for s in self.sizes)])
            where = _where([*("" for _ in self.symbols), *(s.where for s in self.sizes)])
            yield Table("sizes that come with the call", [holds, where])
        for title, rows in (
            ("traced again", self.retraces), ("how it was compiled", self.reused),
            ("placement by cost (estimated)", self.placement),
        ):  # fmt: skip
            if rows:
                yield _list(title, rows)
        if self.kernels:
            about = ["\n".join((*k.lines, *(f"why: {reason}" for reason in k.reasons))) for k in self.kernels]
            number = Column("", [str(k) for k in range(len(self.kernels))], "number")
            kinds, lines = (
                [kernel.kind for kernel in self.kernels],
                Column("lines, and why it is a kernel", about, "code"),
            )
            columns = [number, Column("kernel", kinds), *_costs(self.kernels), lines]
            yield Table(f"kernels ({len(self.kernels):,})", columns)
        if self.lines:
            total = sum(line.ns for line in self.lines) or 1.0
            shares = [line.ns / total for line in self.lines]
            percent = Column("share", [f"{share:.1%}" for share in shares], "number")
            columns = [Column("line", [line.where for line in self.lines], "code"), percent, *_costs(self.lines)]
            longest = max(shares) or 1.0
            bars = [Bar(share / longest, "traced") for share in shares]
            yield Table("cost of the user's lines (estimated)", columns, bars)


def _where(places: Sequence[str]) -> Column:
    return Column("at", places, "code")


def _list(title: str, rows: Sequence[str]) -> Table:
    return Table(title, [Column("", rows)])


def _costs(rows: Sequence[KernelCost] | Sequence[LineCost]) -> tuple[Column, Column, Column]:
    """Columns of time, bytes and operations."""
    return (
        numbers("time", [row.ns / 1e6 for row in rows], TIMES), numbers("moved", [row.bytes for row in rows], SIZES),
        numbers("flop", [row.flops for row in rows], COUNTS),
    )  # fmt: skip

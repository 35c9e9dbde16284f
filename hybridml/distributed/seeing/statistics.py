"""`statistics`: calls, bytes and time of the collectives of a process, by collective and label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ...display.reports import Report, duration, size
from ...display.tables import SIZES, TIMES, Column, Table, numbers
from ..groups import WORLD, Group, all_groups, default
from .log import Sums

_SHOWN = 30  # rows that are printed
Key = tuple[str, str, str]  # group, collective, label


@dataclass(frozen=True)
class Row:
    """The calls of a collective of a group with one label, in this process. Times are milliseconds."""

    group: str
    name: str
    label: str
    calls: int
    bytes: int
    waiting_ms: float
    moving_ms: float
    blocked_ms: float


@dataclass(frozen=True, repr=False)
class Statistics(Report):
    """Table of the collectives of a process, what took most time first: `rows`, and their sums."""

    rows: tuple[Row, ...]

    @property
    def calls(self) -> int:
        """The number of calls."""
        return sum(row.calls for row in self.rows)

    @property
    def bytes(self) -> int:
        """The bytes that this process has given to collectives."""
        return sum(row.bytes for row in self.rows)

    @property
    def waiting_ms(self) -> float:
        """Milliseconds in which collectives waited for other processes."""
        return sum(row.waiting_ms for row in self.rows)

    @property
    def moving_ms(self) -> float:
        """Milliseconds in which collectives ran, once all processes were there."""
        return sum(row.moving_ms for row in self.rows)

    @property
    def blocked_ms(self) -> float:
        """Milliseconds in which the program stood still for them."""
        return sum(row.blocked_ms for row in self.rows)

    @property
    def title(self) -> str:
        """The sums in a sentence."""
        return (
            f"collectives: {self.calls:,} calls with {size(self.bytes)}: {duration(self.waiting_ms)} waiting for other "
            f"processes, {duration(self.moving_ms)} moving; the program stood still for {duration(self.blocked_ms)}"
        )

    @property
    def tables(self) -> list[Table]:
        """The rows; with the group where one is not that of all processes."""
        rows = self.rows
        largest = max((max(r.waiting_ms, r.moving_ms, r.blocked_ms) for r in rows), default=0.0)
        rates = [r.bytes / r.moving_ms / 1e6 if r.bytes and r.moving_ms else None for r in rows]
        groups = [Column("group", [r.group for r in rows], "code")] if {r.group for r in rows} - {WORLD} else []
        columns = [
            Column("collective", [r.name for r in rows], "code"), *groups,
            Column("calls", [f"{r.calls:,}" for r in rows], "number"), numbers("given", [r.bytes for r in rows], SIZES),
            numbers("waiting", [r.waiting_ms for r in rows], TIMES, largest),
            numbers("moving", [r.moving_ms for r in rows], TIMES, largest),
            numbers("blocked", [r.blocked_ms for r in rows], TIMES, largest),
            Column("GB/s", ["" if rate is None else f"{rate:.2f}" for rate in rates], "number"),
            Column("label", [r.label for r in rows]),
        ]  # fmt: skip
        return [Table("by collective and label", columns)]

    def to_text(self) -> str:
        """The sums, and the table."""
        return "\n".join([self.title, *(self.tables[0].lines(_SHOWN) if self.rows else [])])


def statistics(group: Group | None = None) -> Statistics:
    """Counts the calls, bytes and time of the collectives of this process so far, by collective and label.

    group: whose; without it, those of all groups of this process. Time *waiting* is that until all processes have come,
    *moving* what follows; a message to or from one process is all moving. The program was *blocked* for less than both
    where it went on meanwhile, as it does during a backward of `DataParallel`. It is no collective: one process may
    call it alone. Raises ArgumentError for what is no group.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def step():
    ...     dist.all_reduce(hm.ones((1000,)))
    ...     return dist.statistics()
    >>> found = dist.run_threads(2, step)[0]
    >>> found.rows[0].name, found.calls, found.bytes
    ('all_reduce', 1, 4000)
    """
    return table_of(_sums(group))


def reset_statistics(group: Group | None = None) -> None:
    """Sets the counts of `statistics` to zero, of a group or of all.

    >>> from hybridml import distributed as dist
    >>> def step():
    ...     dist.barrier()
    ...     dist.reset_statistics()
    ...     return dist.statistics().calls
    >>> dist.run_threads(2, step)
    [0, 0]
    """
    for sums in _sums(group).values():
        sums.calls = sums.nbytes = sums.waiting = sums.moving = sums.blocked = 0


def _sums(group: Group | None) -> dict[Key, Sums]:
    """The sums of a group, or of all; those of other jobs' threads are in other logs."""
    asked = all_groups() if group is None else [default(group)]
    names = {one.name for one in asked}
    return {key: sums for one in asked for key, sums in list(one.log.sums.items()) if key[0] in names}


def copied(sums: Mapping[Key, Sums]) -> dict[Key, Sums]:
    """The sums as they are now."""
    return {key: replace(found) for key, found in sums.items()}


def since(before: Mapping[Key, Sums], after: Mapping[Key, Sums]) -> dict[Key, Sums]:
    """The sums of what came after `before`."""
    return {key: found.without(before.get(key, Sums())) for key, found in after.items()}


def table_of(sums: Mapping[Key, Sums]) -> Statistics:
    """The sums that are not zero as a table."""
    return Statistics(tuple(_rows(sums)))


def _rows(sums: Mapping[Key, Sums]) -> Iterable[Row]:
    found = [(key, s) for key, s in sums.items() if s.calls]
    for key, s in sorted(found, key=lambda pair: -(pair[1].waiting + pair[1].moving)):
        yield Row(*key, s.calls, s.nbytes, s.waiting / 1e6, s.moving / 1e6, s.blocked / 1e6)

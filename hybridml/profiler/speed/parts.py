"""The parts of a call, which add up to it: kernels on the clock, counters times unit costs, and what is between.

The whole is a block of calls as fast as the fastest tenth of many. Its parts are from one block, among as many measured
in turns with these, that took most nearly as long, in which the programs read the clock round every launch and nothing
else is watched; eager code and native calls take their usual ways. What the two differ by is the part `unattributed`.
Within a launch that threads share, `waiting` is the time in which a thread has nothing to do, on average. New memory is
counted in pages, each as long as one takes here; kernels are the shorter for it. What NumPy computes for an eager
operation has no clock: the operations of a call are each done again by themselves, and take what they take beyond one
on a single number.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ...core.context import no_grad
from ..events import Event
from .launches import KINDS, Ran, kind_of
from .machine import Machine

PYTHON = "Python: your code, modules, the tape"
DISPATCH = "dispatch of operations"
CALLS = "calls of compiled functions"
BEFORE, BETWEEN, AFTER = "guards and arguments", "between kernels", "results and effects"
ELSEWHERE = "calls without a launch on the CPU"
WAITING, ALLOCATION, UNATTRIBUTED = "waiting of threads", "new memory", "unattributed"
_CLEAR, _TIMES = 2.0, 3
OVERHEAD = (PYTHON, DISPATCH, CALLS, BEFORE, BETWEEN, AFTER)


@dataclass(frozen=True)
class Part:
    """A part of a call: milliseconds, how many launches or operations, what they read and write and compute."""

    name: str
    ms: float
    count: int = 0
    bytes: float = 0.0
    memory_ms: float = 0.0  # of it, the time to read these bytes if no cache had them: waiting for memory at most
    flops: float = 0.0


@dataclass(frozen=True)
class Block:
    """Calls on the clock: when each began, when the last one ended (nanoseconds), launches, pages of new memory."""

    starts: Sequence[int]
    stop: int
    launches: Sequence[Ran]
    faults: int

    @property
    def ms(self) -> float:
        """Milliseconds of a call."""
        return (self.stop - self.starts[0]) / 1e6 / len(self.starts)


class Operation(NamedTuple):
    """An operation that eager code runs; `again` does it once more, without the rest of the call."""

    kind: str
    ms: float
    nbytes: int
    flops: int
    again: Callable[[], object] | None = None

    def timed(self) -> Operation:
        """The operation with the least time that it has taken so far, now included."""
        if self.again is None:
            return self
        taken = [self.ms] if self.ms else []
        try:
            for _ in range(_TIMES):
                start = time.perf_counter()
                self.again()
                taken.append((time.perf_counter() - start) * 1e3)
        except Exception:  # what it needs has changed since, or it checks its operands
            return self._replace(again=None)
        return self._replace(ms=min(taken))


@dataclass(frozen=True)
class Operations:
    """The eager code of a call, as a profile has seen it: its operations, and calls of compiled functions.

    Times in a profile are not those of a call that nobody watches, where small operations are native: of 1 us they are
    48. So operations have no time before they have been done again (`timed`), and those that call compiled functions
    have none but these functions'.
    """

    operations: Sequence[Operation] = ()
    calls: int = 0

    @classmethod
    def of(cls, events: Sequence[Event], kinds: Mapping[str, str]) -> Operations:
        """From the events of a profile."""
        called = [event for event in events if event.kind in ("call", "compile", "program")]
        compiled = {id(event.inside) for event in called}
        operations = [
            Operation(
                kind_of((kinds[event.name],)), 0.0, event.bytes, event.flops,
                None if id(event) in compiled else event.again,
            )
            for event in events if event.kind == "operation"
        ]  # fmt: skip
        outer = [event for event in called if event.inside is None or event.inside.kind not in ("call", "compile")]
        return cls(operations, len(outer))

    def timed(self) -> Operations:
        """The same, with each operation done again."""
        with no_grad(), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return replace(self, operations=[one.timed() for one in self.operations])


def parts_of(block: Block, seen: Operations, machine: Machine, whole_ms: float, traced: bool) -> tuple[Part, ...]:
    """The parts of a call, the last of which is unattributed: together they are `whole_ms`."""
    calls = len(block.starts)
    kernels = _kernels(block.launches, calls, machine)
    waiting = sum(one.end - one.start - one.busy for one in block.launches) / 1e6 / calls
    rest = block.ms - waiting - sum(part.ms for part in kernels.values())
    if traced and not seen.operations:
        between = _round_launches(block)
    else:
        between = _eager(seen, kernels, machine, rest)
    fresh = min(block.faults / calls * machine.fault_ms, 0.9 * sum(part.ms for part in kernels.values()))
    shrunk = 1 - fresh / (sum(part.ms for part in kernels.values()) or 1.0)
    found = [*between, *(replace(kernels[name], ms=kernels[name].ms * shrunk) for name in _order(kernels))]
    found += [Part(WAITING, waiting), Part(ALLOCATION, fresh, round(block.faults / calls))]
    found = [part for part in found if part.ms > 0]
    return (*found, Part(UNATTRIBUTED, whole_ms - sum(part.ms for part in found)))


def _order(kernels: dict[str, Part]) -> list[str]:
    return [name for name in dict.fromkeys(KINDS.values()) if name in kernels]


def _kernels(launches: Iterable[Ran], calls: int, machine: Machine) -> dict[str, Part]:
    """Launches of each kind, a call."""
    found: dict[str, Part] = {}
    for one in launches:
        ms = one.busy / 1e6 / calls
        _add(found, one.kind, ms, one.nbytes / calls, one.flops / calls, machine)
    return {name: replace(part, count=round(part.count / calls)) for name, part in found.items()}


def _add(found: dict[str, Part], kind: str, ms: float, nbytes: float, flops: float, machine: Machine) -> None:
    old = found.get(kind, Part(kind, 0.0))
    memory = min(machine.memory_ms(nbytes), ms)
    found[kind] = Part(kind, old.ms + ms, old.count + 1, old.bytes + nbytes, old.memory_ms + memory, old.flops + flops)


def _eager(seen: Operations, kernels: dict[str, Part], machine: Machine, rest: float) -> list[Part]:
    """Python, dispatch and calls, which have no clock: unit costs; what is left is Python. NumPy's time joins kernels.

    The time of an operation that is not clear of that on one number is none, and all together is no longer than `rest`.
    """
    counted = (len(seen.operations) * machine.operation_ms, seen.calls * machine.call_ms)
    dispatch, calls = (ms * min(1.0, max(rest, 0.0) / (sum(counted) or 1.0)) for ms in counted)
    clear = [one for one in seen.operations if one.ms > _CLEAR * machine.again_ms]
    computed = sum(one.ms - machine.again_ms for one in clear)
    part = min(1.0, max(rest - dispatch - calls, 0.0) / (computed or 1.0))
    for one in clear:
        _add(kernels, one.kind, part * (one.ms - machine.again_ms), one.nbytes, one.flops, machine)
    found = [Part(DISPATCH, dispatch, len(seen.operations)), Part(CALLS, calls, seen.calls)]
    return [Part(PYTHON, max(rest - dispatch - calls - part * computed, 0.0)), *found]


def _round_launches(block: Block) -> list[Part]:
    """The times before the first launch of each call, between launches, and behind the last one."""
    if not block.launches:
        return [Part(ELSEWHERE, block.ms, 1)]
    before = between = after = 0
    ends = [*block.starts[1:], block.stop]
    at = 0
    for start, end in zip(block.starts, ends, strict=True):
        last = start
        while at < len(block.launches) and block.launches[at].start < end:
            one = block.launches[at]
            gap = max(one.start - last, 0)
            before, between = (before + gap, between) if last == start else (before, between + gap)
            last, at = max(last, one.end), at + 1
        after += max(end - last, 0)
    scale = 1e6 * len(block.starts)
    return [Part(BEFORE, before / scale), Part(BETWEEN, between / scale), Part(AFTER, after / scale)]

"""Measuring: parts of a call on the clock, and styles, factors and peers in turns, each from the same state."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from hybridml_compiler import config
from hybridml_compiler.ops.table import OPS

from ...inspect.side_by_side import Run
from ...inspect.snapshot import Snapshot
from ...tracing.function import TracedFunction
from ..events import events_of
from ..record import Recording, launches_timed, programs
from .factors import Missing, Variant
from .launches import named, ran
from .machine import faults, machine
from .parts import Block, Operations, parts_of
from .report import Spent

_BLOCKS, _LOOK_MS = 5, 20.0  # of a style in a turn: at most so many, in about so many milliseconds
_MORE, _ALIKE = 3, 0.05  # and at most so many more, until one on the clock and the whole are as near as this
_FASTER = 10  # a tenth of the blocks is faster than the one that counts
_LONG_MS = 50.0  # calls of which each is measured, and none repeated for the guards that a restored state asks for
_KINDS = {name: op.kind for name, op in OPS.items()}


class Line:
    """A line on the terminal that says what is measured now. Files and pipes get none."""

    def __init__(self) -> None:
        self._stream, self._start = sys.stderr, time.perf_counter()
        self._seen = bool(self._stream and self._stream.isatty() and config.read().progress)

    def says(self, text: str) -> None:
        if self._seen:
            seconds = time.perf_counter() - self._start
            self._stream.write(f"\r\x1b[Kexplain_speed: {text} ({seconds:.0f} s)")
            self._stream.flush()

    def end(self) -> None:
        if self._seen:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


class Measured(Run):
    """A variant while it is measured. A peer has state of its own, which nobody puts back."""

    def __init__(self, variant: Variant, snapshot: Snapshot) -> None:
        super().__init__(variant.name, variant.call, snapshot)
        self.variant, self.once_ms = variant, 0.0

    def prepare(self) -> None:
        """Compiles. Raises Missing for what cannot be run so."""
        self.snapshot.restore()
        try:
            with self.variant.around():
                for _ in range(3):  # compiled, the long way, the native entry
                    start = time.perf_counter()
                    self.call()
                    self.once_ms = (time.perf_counter() - start) * 1e3
        except Exception as error:
            text = str(error).partition("\n")[0]
            raise Missing(f"{type(error).__name__}: {text}" if text else type(error).__name__) from error

    def sample(self, block_ms: float) -> None:
        """Measures a block of calls as `Run` does, with what the variant has in force; of a long one a single call."""
        with self.variant.around():
            if self.once_ms < _LONG_MS:
                super().sample(block_ms)
                return
            self.snapshot.restore()
            self.samples.append(self._calls(0.0).ms)

    def _calls(self, block_ms: float) -> Block:
        """Times calls, one after the other, until they fill a block."""
        now, call = time.perf_counter_ns, self.call
        starts: list[int] = []
        before = faults()
        first = last = now()
        while not starts or last - first < block_ms * 1e6:
            starts.append(last)
            call()
            last = now()
        return Block(starts, last, (), faults() - before)

    @property
    def ms(self) -> float:
        """Milliseconds of a call, the median."""
        return statistics.median(self.samples)


@contextmanager
def _uncollected() -> Iterator[None]:
    """A block in which Python does not look for garbage."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def turns(runs: Sequence[Measured], repeats: int, block_ms: float, line: Line) -> None:
    """Measures all by turns, each of which another one begins: what else the machine does changes with time, and all
    must meet the same."""
    with _uncollected():
        for k in range(repeats):
            first = k % len(runs)
            for run in (*runs[first:], *runs[:first]):
                line.says(f"round {k + 1} of {repeats}: {run.name}")
                run.sample(block_ms)
            for run in runs:
                if isinstance(run, Style):
                    run.look(block_ms)


def fast(blocks: Sequence[Block]) -> Block:
    """The block that a tenth of some is faster than. What else the machine does adds to most; the very fastest had luck
    that the others had not, such as both cores at once."""
    return sorted(blocks, key=lambda one: one.ms)[len(blocks) // _FASTER]


def ratios(run: Run, base: Run) -> tuple[float, float, float]:
    """Quartiles of a run's time as a part of the base's, turn by turn."""
    found = [one / other for one, other in zip(run.samples, base.samples, strict=True)]
    lower, median, upper = statistics.quantiles(found, n=4, method="inclusive")
    return lower, median, upper


class Style(Measured):
    """A style while it is measured: after each turn, calls on the clock and, of eager code, its operations again.

    `traced` is the traced function, where this is the style that runs it.
    """

    def __init__(self, variant: Variant, snapshot: Snapshot, traced: TracedFunction[..., Any] | None) -> None:
        super().__init__(variant, snapshot)
        self.traced = traced
        self.plain: list[Block] = []
        self.clocked: list[Block] = []  # as many, in turns with the plain ones
        self.seen = Operations()

    def prepare(self) -> None:
        """Compiles, and finds the programs that a call runs. The second profile counts: in the first one, functions of
        the library compile what they do without while nobody watches."""
        super().prepare()
        self._profile()
        names = self._profile()
        own = () if self.traced is None else (found for found in programs(self.traced) if hasattr(found, "step"))
        self.executables = list(dict.fromkeys([*own, *named(names)]))

    def look(self, block_ms: float) -> None:
        """Measures blocks of calls, plain and on the clock in turns, of which each kind is first in half of them: of
        short calls several."""
        count = max(1, min(_BLOCKS, int(_LOOK_MS / max(self.samples[-1], 1.0))))
        self.snapshot.restore()
        if self.once_ms < _LONG_MS:
            self.call()  # guards are checked once more after the restore has assigned attributes
        for _ in range(count):
            self._pair(block_ms)
        for _ in range(_MORE):
            whole, clocked = self._alike()
            if abs(clocked.ms - whole) < _ALIKE * whole:
                break
            self._pair(block_ms)
        self.seen = self.seen.timed()

    def spent(self) -> Spent:
        """The parts of a call: of a fast block without a clock, from the one on the clock that is most alike."""
        whole, clocked = self._alike()
        return Spent(self.name, self.ms, whole, parts_of(clocked, self.seen, machine(), whole, self.traced is not None))

    def _pair(self, block_ms: float) -> None:
        """Measures a block of each kind."""
        first = len(self.plain) % 2
        for on in (first, 1 - first):
            if not on:
                self.plain.append(self._calls(block_ms))
                continue
            with launches_timed(self.executables) as launched:
                block = self._calls(block_ms)
            self.clocked.append(replace(block, launches=ran(launched, machine().threads)))

    def _alike(self) -> tuple[float, Block]:
        """Milliseconds of a fast block without a clock, and the block on the clock that took most nearly as long, and
        so had the same luck with what else the machine does."""
        whole = fast(self.plain).ms
        return whole, min(self.clocked, key=lambda one: abs(one.ms - whole))

    def _profile(self) -> set[str]:
        """Notes what a profile sees of one call, the second in a row; returns the names of the programs that ran."""
        self.snapshot.restore()
        found = Recording(repeatable=True)
        found.begin()
        try:
            self.call()
            first = len(found.calls)
            self.call()
        finally:
            found.end()
        found.calls, found.launches = found.calls[first:], []
        own = "" if self.traced is None else self.traced._name
        events = [event for event in events_of(found) if event.kind != "call" or event.name != own]
        self.seen = Operations.of(events, _KINDS)
        return {event.name for event in events if event.kind in ("call", "compile", "program")}

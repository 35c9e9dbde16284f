"""`hybridml.explain_speed`: where the time of a step goes in both styles, and what each factor is worth."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hybridml_compiler import config
from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.runtime import cache

from ...inspect.side_by_side import BLOCK_MS, Output, both_styles
from ...inspect.snapshot import Snapshot
from ...tracing.casting import settled
from ...tracing.function import TracedFunction
from .factors import OTHERS, SWITCHES, Missing, Step, Variant, applicable, program_of, switched
from .machine import machine
from .measure import Line, Measured, Style, ratios, turns
from .report import Factor, Peer, Speed, Stage
from .rules import advice, compiling, sentence

_TURNS_MS, _FEWEST, _MOST = 8000.0, 3, 9  # measurements of each, as long as all together take so long


def explain_speed(
    fn: Callable[..., Any], *args: Any, peers: Mapping[str, Callable[[], Any]] | None = None,
    repeats: int | None = None, seconds: float = 12.0, **kwargs: Any,
) -> Speed:  # fmt: skip
    """Explains the time of `fn(*args, **kwargs)`: where it goes in both styles, and what each factor is worth.

    `fn` is a function, a module or an already traced function, as for `compare`, and a step of training may be
    explained: every measurement starts from the same state, which is put back at the end. The report has the parts of
    a call (Python and dispatch, kernels by kind, waiting of threads, new memory, guards), which add up to it; a
    waterfall from the eager call to the traced one; for each factor (whole-step capture, fusion and the other switches
    of `hm.config`, threads, batch, dtype, recomputation, compiling) what a call takes without it; and advice.

    `peers`: other libraries' calls of the same step, as functions without arguments, which are timed in the same turns;
    their state is not put back. `repeats` measurements of each are taken in turns: 3 to 9 without it, fewer of long
    calls. `seconds` are for compiling the function without parts of the compiler: what has not been begun by then is
    not measured, and said to be missing. A second time it is all in the cache.

    Raises ArgumentError for fewer than two repeats and for peers that cannot be called, and whatever the function
    raises. See docs/explain_speed.md.

    >>> import hybridml as hm
    >>> found = hm.explain_speed(lambda x: hm.exp(x) * 2 + x, hm.ones((64,)), repeats=2)
    >>> abs(sum(part.ms for part in found.traced.parts) - found.traced.ms) < 1e-9
    True
    """
    peers = dict(peers or {})
    if repeats is not None and repeats < 2:
        raise ArgumentError(
            f"explain_speed: repeats must be at least 2, got {repeats}: a spread needs two measurements"
        )
    for name, peer in peers.items():
        if not callable(peer):
            raise ArgumentError(
                f"explain_speed: peers are functions without arguments by name, got {type(peer).__name__} for {name!r}"
            )
    name, plain, traced = both_styles(fn, "explain_speed")
    snapshot = Snapshot(**{name: plain}, arguments=args, keywords=kwargs)
    output, line = Output(), Line()
    try:
        with contextlib.redirect_stdout(output):
            step = Step(plain, settled(traced), args, kwargs)
            eager, compiled = _style("eager", step, None, snapshot), _style("traced", step, traced, snapshot)
            _first_calls((eager, compiled), output, line)
            found = _Variants(eager, compiled, step, snapshot, line, seconds)
            found.prepare()
            found.peers = [Measured(Variant(peer, peer, call), snapshot) for peer, call in peers.items()]
            for run in found.peers:
                run.call()
            short = not output.writes  # a function that prints is measured in single calls
            turns(found.every, repeats or found.repeats, BLOCK_MS if short else 0.0, line)
    finally:
        line.end()
        snapshot.restore()
    return _report(name, found)


class _Variants:
    """Both styles and what is measured beside them. `switched`: runs by the switches that are off, of which those with
    the same program are one run."""

    def __init__(self, eager: Style, traced: Style, step: Step, snapshot: Snapshot, line: Line, seconds: float) -> None:
        self.eager, self.traced = eager, traced
        self.switched: dict[tuple[str, ...], Measured] = {(): traced}
        self.others: list[Measured] = []
        self.peers: list[Measured] = []
        self.missing: list[Factor] = []
        self.known = applicable(step, config.SWITCHES)
        self.steps = tuple(name for name in self.known if not SWITCHES[name].alone)
        self.chain: tuple[str, ...] = ()  # the switches that make another program, in the order of the waterfall
        self._step, self._snapshot, self._line = step, snapshot, line
        self._end, self._seconds = time.perf_counter() + seconds, seconds
        self._programs: dict[object, Measured] = {program_of(step.traced, ()): traced}

    def prepare(self) -> None:
        """Compiles: first what all are compared with, then each without one switch, last the steps in between."""
        self._switch(self.steps)
        for name in self.known:
            self._switch((name,))
        for name, factor in OTHERS.items():
            try:
                for variant in factor(self._step):
                    self.others.append(self._prepared(variant))
            except Missing as why:
                self.missing.append(Factor(name, name, "", missing=str(why)))
        self.chain = tuple(name for name in self.steps if self.switched.get((name,)) is not self.traced)
        for k in range(1, len(self.chain) - 1):
            self._switch(self.chain[k:])

    @property
    def every(self) -> list[Measured]:
        """All that is measured, each once."""
        return list(dict.fromkeys([self.eager, *self.switched.values(), *self.others, *self.peers]))

    @property
    def repeats(self) -> int:
        """The number of measurements that fit into the time for them."""
        each = sum(2 * run.once_ms + BLOCK_MS for run in self.every)
        return max(_FEWEST, min(_MOST, int(_TURNS_MS / each)))

    @property
    def bare(self) -> Measured:
        """The traced function without any switch but those that eager code has, too: what capture alone is worth."""
        return self.switched.get(self.steps, self.traced)

    def _switch(self, off: tuple[str, ...]) -> None:
        if off in self.switched:
            return
        fn, variant = switched(self._step, off)
        try:
            run = self._prepared(variant)
        except Missing as why:
            if len(off) == 1:
                self.missing.append(Factor(off[0], SWITCHES[off[0]].title, variant.title, missing=str(why)))
            return
        self.switched[off] = self._programs.setdefault(program_of(fn, off), run)

    def _prepared(self, variant: Variant) -> Measured:
        if variant.compiles and time.perf_counter() > self._end:
            raise Missing(f"compiling had taken {self._seconds:g} s by then; explain_speed(..., seconds=) gives more")
        self._line.says(f"compiling: {variant.title}")
        run = Measured(variant, self._snapshot)
        run.prepare()
        return run


def _style(name: str, step: Step, traced: TracedFunction[..., Any] | None, snapshot: Snapshot) -> Style:
    return Style(Variant(name, name, step.call(traced or step.plain)), snapshot, traced)


def _first_calls(styles: Sequence[Style], output: Output, line: Line) -> None:
    """The first call of the traced function finds nothing in the cache."""
    with cache.emptied(keep=True):
        for run in styles:
            line.says(f"first call: {run.name}")
            run.first_call(output)
    for run in styles:
        run.prepare()


# ---- what is said


def _report(name: str, runs: _Variants) -> Speed:
    found = Speed(
        name=name,
        eager=runs.eager.spent(),
        traced=runs.traced.spent(),
        factors=tuple(_factors(runs)),
        waterfall=tuple(_waterfall(runs)),
        peers=tuple(_peer(run) for run in runs.peers),
        compile_ms=max(runs.traced.first_ms - runs.traced.ms, 0.0),
        repeats=len(runs.eager.samples),
        machine=machine(),
    )
    found = replace(found, sentences=(*map(sentence, found.factors), compiling(found)))
    return replace(found, advice=advice(found))


def _factors(runs: _Variants) -> Iterator[Factor]:
    yield _factor("capture", "whole-step capture", runs.eager, runs.bare)
    for name in runs.known:
        run = runs.switched.get((name,))
        title, other = SWITCHES[name].title, f"without {name.replace('_', ' ')}"
        if run is runs.traced:
            yield Factor(name, title, "the same program", runs.traced.ms, runs.traced.ms, identical=True)
        elif run is not None:
            yield replace(_factor(name, title, run, runs.traced), other=other)
    for run in runs.others:
        yield _factor(run.name, run.name, run, runs.traced)
    yield from runs.missing


def _factor(name: str, title: str, run: Measured, base: Measured) -> Factor:
    samples = run.variant.samples
    lower, ratio, upper = (found / samples for found in ratios(run, base))
    return Factor(name, title, run.variant.title, base.ms, run.ms / samples, ratio, lower, upper)


def _waterfall(runs: _Variants) -> Iterator[Stage]:
    """From the eager call to the traced one, the switches on one after the other; those that were not measured alone
    are one step with the next."""
    yield Stage("eager", runs.eager.ms)
    if runs.bare is not runs.traced:
        yield Stage("capture", runs.bare.ms)
        names: list[str] = []
        for k, name in enumerate(runs.chain, 1):
            names.append(name.replace("_", " "))
            if run := runs.switched.get(runs.chain[k:]):
                yield Stage(", ".join(names), run.ms)
                names = []
    yield Stage("traced", runs.traced.ms)


def _peer(run: Measured) -> Peer:
    lower, median, upper = statistics.quantiles(run.samples, n=4, method="inclusive")
    return Peer(run.name, median, lower, upper)

"""Kinds of launches, and of operations that NumPy computes: the rows of the table of kernels."""

from __future__ import annotations

import gc
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from hybridml_compiler.sizes.dims import hint
from hybridml_compiler.targets.cpu.executable import CpuExecutable
from hybridml_compiler.targets.cpu.runtime.spans import Span

from ..kernels import launch_flops

# The kind of an operation names the kernel; of several in one the first in this order: it decides how long it takes.
KINDS = {
    "convolution": "convolutions",
    "contraction": "matrix products",
    "control": "loops and branches",
    "opaque": "NumPy and LAPACK",
    "scatter": "gather and scatter",
    "gather": "gather and scatter",
    "random": "random numbers",
    "scan": "reductions and scans",
    "reduction": "reductions and scans",
    "elementwise": "elementwise",
    "movement": "copies",
    "creation": "copies",
    "transfer": "copies",
}
PRODUCTS = (KINDS["convolution"], KINDS["contraction"])


class Ran(NamedTuple):
    """A launch that ran: times in nanoseconds, `busy` of its threads on average (the whole of it on one thread)."""

    kind: str
    thread: int
    start: int
    end: int
    busy: float
    nbytes: float
    flops: float


def kind_of(kinds: Collection[str]) -> str:
    """The row of a kernel that runs operations of such kinds."""
    return next((name for kind, name in KINDS.items() if kind in kinds), KINDS["movement"])


def named(names: Collection[str]) -> list[CpuExecutable]:
    """The programs alive that have such a name, or are gradients of operations. Nobody else could be asked for what
    eager code runs natively."""
    every = [found for found in gc.get_objects() if type(found) is CpuExecutable]
    return [found for found in every if found.name in names or found.name.startswith("pull_")]


def ran(launched: Sequence[tuple[CpuExecutable, Sequence[Span]]], threads: int) -> list[Ran]:
    """The launches of some programs in the order of their starts."""
    found = []
    for executable, spans in launched:
        if not spans:
            continue
        launches = executable.launches
        kinds = [_kind(launch) for launch in launches]
        flops = launch_flops(launches)
        parts: dict[int, list[Span]] = {}
        for span in spans:
            if span.part:
                parts.setdefault(span.launch, []).append(span)
        for span in spans:
            if not span.part:
                k = span.launch
                inside = [p.end - p.start for p in parts.get(k, ()) if span.start <= p.start and p.end <= span.end]
                busy = min(sum(inside) / threads, span.end - span.start) if inside else span.end - span.start
                nbytes = hint(launches[k].nbytes)
                found.append(Ran(kinds[k], span.thread, span.start, span.end, busy, nbytes, flops[k]))
    return sorted(found, key=lambda one: one.start)


def _kind(launch: Any) -> str:
    return kind_of({node.op.kind for node in launch.nodes if node.op is not None})

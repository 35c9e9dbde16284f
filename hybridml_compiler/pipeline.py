"""compile(graph) -> Executable: the only place where the stages are ordered.

verify       the graph obeys its dialect
passes       graph -> graph (see passes/)
plan         fusion, lowering to loop nests, memory plan (see schedule/)
check        every loop nest obeys its dialect: 0.05 ms a kernel (HYBRIDML_VERIFY=0 skips this and the first)
source       loop nests -> their text, one module a distinct kernel
codegen      text -> LLVM IR -> object code in parallel, or object code from the cache
link         object code -> one native entry
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from . import config, dtypes
from .errors import CompileError
from .graph.interpret import interpret
from .graph.ir import Graph
from .graph.text import print_graph
from .graph.verify import verify
from .loops.ir import Expr
from .loops.verify import verify_kernel
from .passes import run_passes
from .schedule.contract import Product
from .schedule.library import Call, Target
from .schedule.plan import Plan, make_plan
from .schedule.text import describe_launch, describe_plan

if TYPE_CHECKING:
    from .runtime.executable import Executable


@dataclass
class Stats:
    """What compiling cost, in milliseconds a stage, and what came out."""

    milliseconds: dict[str, float] = field(default_factory=dict)
    nodes: int = 0
    kernels: int = 0  # launches of one call
    distinct_kernels: int = 0
    nbytes: int = 0  # read and written by one call
    arena_bytes: int = 0

    @contextmanager
    def stage(self, name: str) -> Any:
        start = time.perf_counter()
        yield
        self.milliseconds[name] = (time.perf_counter() - start) * 1e3

    @property
    def total_ms(self) -> float:
        return sum(self.milliseconds.values())


def compile(graph: Graph, donate: Mapping[int, int] | None = None, name: str = "") -> Executable:
    """An executable for the graph on this machine's CPU.

    `donate` maps an output position to the input position whose memory that output is written to.
    """
    from .backends.llvm.modules import modules_of
    from .backends.llvm.step import STEP
    from .runtime import jit
    from .runtime.executable import Executable

    stats, settings, name = Stats(), config.read(), name or graph.name
    say = _Reporter(settings.debug, name)
    with stats.stage("verify"):
        if settings.verify:
            verify(graph)
    say(5, lambda: f"captured\n{print_graph(graph)}")
    with stats.stage("passes"):
        graph, _ = run_passes(
            graph, verify=settings.verify, watch=lambda made, after: say(5, lambda: f"{made}\n{print_graph(after)}")
        )
    with stats.stage("plan"):
        plan = make_plan(graph, donate or {}, host())
    with stats.stage("check"):
        for launch in plan.launches if settings.verify else ():
            if launch.kernel is not None:
                verify_kernel(launch.kernel, "the plan")
    say(3, lambda: describe_plan(plan))
    with stats.stage("source"):
        modules = modules_of(plan)
    with stats.stage("codegen"):
        objects = jit.compile_sources([(m.source, m.emit) for m in modules], passes=False)
    with stats.stage("link"):
        library = _link(plan, objects)
    stats.nodes = len(graph.nodes())
    stats.kernels = len(plan.launches)
    stats.distinct_kernels = len(modules) - 1
    stats.nbytes = sum(launch.nbytes for launch in plan.launches)
    stats.arena_bytes = plan.arena_bytes
    say(4, lambda: "LLVM IR\n" + "\n".join(m.emit() for m in modules))
    say(2, lambda: "\n".join([_times(stats), *(describe_launch(k, x) for k, x in enumerate(plan.launches))]))
    say(1, lambda: _summary(stats))
    return Executable(
        name,
        library.address(STEP),
        plan.inputs,
        plan.outputs,
        plan.fresh,
        dict(donate or {}),
        plan.arena_bytes,
        lambda arrays: failure(graph, arrays),
        stats,
        print_graph(graph),
        {m.symbol: m.emit for m in modules},
        plan.launches,
        (library,),
    )


class _Reporter:
    """HYBRIDML_DEBUG: `say(level, text)` writes to stderr what the level asks for."""

    def __init__(self, level: int, name: str) -> None:
        self.level, self.name = level, name

    def __call__(self, level: int, text: Callable[[], str]) -> None:
        if level <= self.level:
            sys.stderr.write(f"hybridml: {self.name}: {text().rstrip()}\n")


def _summary(stats: Stats) -> str:
    return (
        f"{stats.nodes} nodes, {stats.kernels} launches, {stats.distinct_kernels} kernels, {stats.nbytes} bytes of "
        f"traffic, {stats.arena_bytes} bytes of arena, compiled in {stats.total_ms:.1f} ms"
    )


def _times(stats: Stats) -> str:
    return ", ".join(f"{stage} {ms:.2f} ms" for stage, ms in stats.milliseconds.items())


def failure(graph: Graph, arrays: Sequence[np.ndarray]) -> Exception:
    """The error that a failed index check stands for: the interpreter raises it again, with the user's line."""
    try:
        interpret(graph, arrays)
    except Exception as error:
        return error
    return CompileError(f"{graph.name}: an index check failed that the interpreter passes\n{print_graph(graph)}")


def _link(plan: Plan, objects: Sequence[bytes]) -> Any:
    from .backends.llvm.step import STEP, calls_blas, constant_symbol, runs_parallel
    from .runtime import blas, jit, threads

    imports = {constant_symbol(k): data.ctypes.data for k, data in enumerate(plan.constants)}
    if any(map(calls_blas, plan.launches)):
        imports |= blas.gemm_symbols() or {}
        imports |= blas.hold_symbols()
    if any(runs_parallel(launch) for launch in plan.launches):
        imports |= threads.symbols()
    return jit.load(objects, imports, [STEP], keep=plan.constants)


def host() -> Target:
    """What this machine can do."""
    from .backends.llvm.works import kind_of
    from .runtime import blas, jit

    bits = jit.host().vector_bits

    def has_library(call: Call) -> bool:
        return isinstance(call, Product) and blas.gemm_symbols() is not None

    def takes_epilogue(call: Call) -> bool:
        return kind_of(call).takes_epilogue(call)

    def lanes(expressions: Sequence[Expr]) -> int:
        """One hardware vector of the widest element."""
        widest = max((e.dtype.itemsize for e in expressions if _counts(e)), default=4)
        return max(bits // (8 * max(widest, 4)), 2)

    return Target(lanes, has_library, takes_epilogue)


def _counts(expr: Expr) -> bool:
    """Data that fills lanes: arrays, and float64 arithmetic on them. Indices and scalars do not narrow a loop."""
    if expr.op == "load":
        return bool(expr.attr.size > 1)
    return expr.dtype is dtypes.float64 and bool(expr.depends)

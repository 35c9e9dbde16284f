"""compile(graph) -> Executable: the only place where the stages are ordered.

find         the whole program, made by any process before: the other stages are then left out
verify       the graph obeys its dialect
passes       graph -> graph (see passes/)
plan         fusion, lowering to loop nests, memory plan (see schedule/)
check        every loop nest obeys its dialect (HYBRIDML_VERIFY=0 skips this and the first)
source       loop nests -> their text, one module per distinct kernel
codegen      text -> LLVM IR -> object code in parallel, or object code from the cache
link         object code -> one native entry

Check, source and codegen of a kernel begin as soon as the plan knows it, while others are planned ([Note: Stages]).
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
from .graph.ir import Graph, Node
from .graph.sizes import at_sizes
from .graph.text import parse_graph, print_graph
from .graph.verify import verify
from .hooks import hooks
from .once import lazy
from .runtime import host_callback
from .sizes.dims import hint, structural
from .sizes.guards import Guards, collecting

if TYPE_CHECKING:
    from .loops.ir import Expr, KernelSpec
    from .schedule.kernels.library import Call, Prepared, Target
    from .schedule.launch import Launch, Plan
    from .targets.cpu.executable import Executable
    from .targets.cpu.llvm.modules import Module, PlanModules
    from .targets.cpu.runtime.linking.loader import Library
    from .targets.cpu.runtime.program_cache import StoredProgram
    from .targets.cpu.runtime.spans import Recorder


@dataclass
class Stats:
    """Cost of compiling, in milliseconds per stage, and facts about the result (which a program found on disk
    knows)."""

    milliseconds: dict[str, float] = field(default_factory=dict)
    nodes: int = 0
    kernels: int = 0  # launches of one call
    distinct_kernels: int = 0
    nbytes: int = 0  # read and written by one call
    arena_bytes: int = 0
    _inside: float = 0.0

    @contextmanager
    def stage(self, name: str) -> Any:
        """A part of a stage, less the stages inside of it."""
        start, outer, self._inside = time.perf_counter(), self._inside, 0.0
        yield
        spent = (time.perf_counter() - start) * 1e3
        self.milliseconds[name] = self.milliseconds.get(name, 0.0) + spent - self._inside
        self._inside = outer + spent

    def update(self, facts: Mapping[str, int]) -> None:
        for name, value in facts.items():
            setattr(self, name, value)

    @property
    def total_ms(self) -> float:
        return sum(self.milliseconds.values())


def compile(
    graph: Graph, donate: Mapping[int, int] | None = None, name: str = "", guards: Guards | None = None
) -> Executable:
    """An executable for the graph on this machine's CPU.

    `donate` maps an output position to the input position whose memory that output is written to. Of a graph with
    symbolic sizes, `guards` are the conditions that its capture relied on.
    """
    from .targets.cpu.executable import Executable
    from .targets.cpu.runtime.program_cache import STEP

    if any(node.aval.symbolic for node in graph.inputs):
        return _compile_symbolic(graph, dict(donate or {}), name or graph.name, guards or Guards())
    stats = Stats()
    stages = Stages(graph, dict(donate or {}), name or graph.name, stats)
    with stats.stage("find"):
        key = _key(graph, stages.donate)
        found = _find(key) if stages.say.level < 2 else None
    if found is None:
        program, library = stages.make(key)
    else:
        program, library = found
        stages.stats = Stats()  # whoever looks at the stages later does not change the cost of this call
    stats.update(program.facts)
    stages.say(1, lambda: _summary(stats))
    return Executable(
        stages.name,
        library.address(STEP),
        [node.aval for node in graph.inputs],
        [graph.outputs[k].aval for k in program.fresh],
        program.fresh,
        stages.donate,
        program.arena_bytes,
        lambda arrays: failure(graph, arrays),
        stats,
        stages,
        (library,),
    )


def _compile_symbolic(graph: Graph, donate: dict[int, int], name: str, captured: Guards) -> Executable:
    """`compile` for sizes that come with the call. A stage's decision by a size is a guard of the executable (see
    sizes/dims.py); sizes that break it are compiled for themselves."""
    from .targets.cpu.executable import Executable, Shapes
    from .targets.cpu.runtime.linking import loader
    from .targets.cpu.runtime.program_cache import STEP, imports

    stats = Stats()
    stages = Stages(graph, donate, name, stats)
    guards = captured.copy()
    with collecting(guards), structural():
        objects = stages.objects()
        plan = stages.plan
    with stats.stage("link"):
        library = loader.load(objects, imports(plan.constants), [STEP], keep=plan.constants)
    stats.update(stages.facts)
    stages.say(1, lambda: _summary(stats))
    inputs, outputs = [node.aval for node in graph.inputs], [graph.outputs[k].aval for k in plan.fresh]

    def exact(sizes: Mapping[str, int]) -> Executable:
        return compile(at_sizes(graph, sizes), donate, name)

    shapes = Shapes(inputs, outputs, plan.arena_bytes, guards.since(captured), exact)
    return Executable(
        name, library.address(STEP), inputs, outputs, plan.fresh, donate, plan.arena_bytes,
        lambda arrays: failure(graph, arrays), stats, stages, (library,), shapes,
    )  # fmt: skip


def _read(text: str) -> Any:
    """A graph that NumPy computes in the middle of a program, see runtime/host_callback.py."""
    graph = parse_graph(text)
    taken, made = ([(node.aval.shape, node.dtype) for node in nodes] for nodes in (graph.inputs, graph.outputs))
    return taken, made, _compute(graph)


def _compute(graph: Graph) -> host_callback.Compute:
    """Computes a graph of one operation as `interpret`, without its checks, which the program has gone through
    ([Note: Opaque operations])."""
    first = graph.outputs[0]
    op, position = first.op, {node: k for k, node in enumerate(graph.inputs)}
    assert op is not None
    where = [position.get(node, node.value) for node in first.inputs]
    params, results = dict(first.params), [node.params.get("result") for node in graph.outputs]
    if op.results:
        params["result"] = None

    def compute(arrays: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> None:
        operands = [arrays[at] if type(at) is int else at for at in where]
        with np.errstate(all="ignore"):
            if isinstance(op.eager, np.ufunc):
                op.eager(*operands, out=targets[0])
                return
            found = op.run(operands, params)
        for target, k in zip(targets, results, strict=True):
            target[...] = found[k] if op.results else found

    return compute


hooks.read_graph = _read


class Stages:
    """The stages from a graph to code. Each is done when it is first asked for: an executable that was found on disk
    needs none of them, until somebody wants to see its IR or its launches."""

    def __init__(self, graph: Graph, donate: Mapping[int, int], name: str, stats: Stats) -> None:
        settings = config.read()
        self.captured, self.donate, self.name, self.stats = graph, donate, name, stats
        self.verify, self.say = settings.verify, _Reporter(settings.debug, name)
        self.compile: Callable[[KernelSpec, list[Module]], object] = lambda spec, modules: None  # as they are known

    @lazy
    def graph(self) -> Graph:
        from .passes import run_passes
        from .schedule.checks import settled

        with self.stats.stage("verify"):
            if self.verify:
                verify(self.captured)
        self.say(5, lambda: f"captured\n{print_graph(self.captured)}")

        def watch(made: str, after: Graph) -> None:
            self.say(5, lambda: f"{made}\n{print_graph(after)}")

        with self.stats.stage("passes"):
            return settled(run_passes(self.captured, verify=self.verify, watch=watch)[0])

    @lazy
    def plan(self) -> Plan:
        from .schedule.plan import make_plan
        from .schedule.text import describe_plan

        graph = self.graph
        with self.stats.stage("plan"):
            plan = make_plan(graph, self.donate, host(), self._begin)
        self.say(3, lambda: describe_plan(plan))
        return plan

    def _begin(self, spec: KernelSpec) -> None:
        """Begins with a spec that is known, while others are still being planned."""
        from .loops.verify import verify_kernel

        if spec in self.specs:
            return
        with self.stats.stage("check"):
            for kernel in spec.nests if self.verify else ():
                verify_kernel(kernel, "the plan")
        with self.stats.stage("source"):
            modules = self.specs.modules(spec)
        with self.stats.stage("codegen"):
            self.compile(spec, modules)

    @lazy
    def specs(self) -> PlanModules:
        from .targets.cpu.llvm.modules import PlanModules

        return PlanModules()

    @lazy
    def modules(self) -> list[Module]:
        from .targets.cpu.llvm.modules import modules_of

        plan = self.plan
        with self.stats.stage("source"):
            return modules_of(plan, self.specs)

    @property
    def launches(self) -> Sequence[Launch]:
        return self.plan.launches

    @property
    def ir(self) -> str:
        """Text of the graph after the passes."""
        return print_graph(self.graph)

    @property
    def llvm(self) -> str:
        """LLVM IR of every kernel and of the step that launches them."""
        return "\n".join(f"; ---- {module.symbol}\n{module.emit()}" for module in self.modules)

    @property
    def facts(self) -> dict[str, int]:
        """The facts of `Stats` about the program."""
        return {
            "nodes": len(self.graph.nodes()),
            "kernels": len(self.plan.launches),
            "distinct_kernels": len(self.modules) - 1,
            "nbytes": sum(launch.nbytes for launch in self.plan.launches),
            "arena_bytes": hint(self.plan.arena_bytes),
        }

    def timed(self) -> tuple[Library, Recorder]:
        """The same program with a step that reads the clock round every launch, and where it writes that to."""
        from .targets.cpu.llvm.modules import modules_of
        from .targets.cpu.runtime import jit
        from .targets.cpu.runtime.linking import loader
        from .targets.cpu.runtime.program_cache import STEP, imports
        from .targets.cpu.runtime.spans import Recorder

        recorder = Recorder()
        with collecting(None), structural():
            codes = [module.code for module in modules_of(self.plan, self.specs, timed=True)]
            objects = jit.compile_sources(codes)
        symbols = imports(self.plan.constants) | recorder.imports
        return loader.load(objects, symbols, [STEP], keep=(*self.plan.constants, recorder)), recorder

    def objects(self) -> list[bytes]:
        """Object code of the modules."""
        from .targets.cpu.llvm.registry import callee_of
        from .targets.cpu.runtime import allocation, jit, threads

        with jit.Compilation() as compilation:
            pool = [threads.source]
            memory = allocation.source([hint(node.aval.nbytes) for node in self.captured.outputs])
            if memory is not None:  # whoever makes the results wants it, and finds its code in the cache
                compilation.add(memory)

            def compile(spec: KernelSpec, modules: Sequence[Module]) -> None:
                if pool and callee_of(spec).parallel:  # linking wants the pool, and finds its code in the cache
                    compilation.add(pool.pop()())
                for module in modules:
                    compilation.add(module.code)

            self.compile = compile
            modules = self.modules
            with self.stats.stage("codegen"):
                return compilation.objects([module.code for module in modules])

    def make(self, key: str) -> tuple[StoredProgram, Library]:
        """The program, kept under the key, and its code."""
        from .schedule.text import describe_launch
        from .targets.cpu.runtime.linking import loader
        from .targets.cpu.runtime.program_cache import STEP, StoredProgram, imports

        stats, objects = self.stats, self.objects()
        plan, facts = self.plan, self.facts
        with stats.stage("link"):
            program = StoredProgram(loader.link(objects, [STEP]), plan.constants, plan.fresh, plan.arena_bytes, facts)
            if program.image is None:
                library = loader.load(objects, imports(plan.constants), [STEP], keep=plan.constants)
            else:
                library = program.load()
                program.save(key)
        self.say(4, lambda: "LLVM IR\n" + self.llvm)
        self.say(2, lambda: "\n".join([_times(stats), *(describe_launch(k, x) for k, x in enumerate(plan.launches))]))
        return program, library


def _key(graph: Graph, donate: Mapping[int, int]) -> str:
    """The name of the graph's program: a digest of all that decides the output of the stages."""
    from .graph.digest import digest
    from .runtime import cache
    from .runtime.fingerprint import fingerprint
    from .targets.cpu.runtime import jit, threads

    code = f"{fingerprint('*')} {np.__version__}"  # NumPy folds constants
    parts = (digest(graph), repr(sorted(donate.items())), jit.host().key, str(threads.cores()), code)
    return cache.key("program", *parts, *["checked"] * config.read().sanitize)


def _find(key: str) -> tuple[StoredProgram, Library] | None:
    """The program kept under the key, loaded; None where there is none, or it needs symbols that this process does not
    have."""
    from .targets.cpu.runtime import program_cache

    try:
        program = program_cache.find(key)
        return None if program is None else (program, program.load())
    except (CompileError, TypeError, ValueError):
        return None


class _Reporter:
    """HYBRIDML_DEBUG: `say(level, text)` writes to stderr, if the level asks for it."""

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
    """The error of a failed index check: the interpreter raises it again, with the user's line."""
    try:
        interpret(graph, arrays)
    except Exception as error:
        return error
    return CompileError(f"{graph.name}: an index check failed that the interpreter passes\n{print_graph(graph)}")


def host() -> Target:
    """Abilities of this machine's CPU."""
    from .schedule.kernels.gemm import Product
    from .schedule.kernels.library import LIBRARY, Target
    from .targets.cpu.llvm.convolution.kernel import (
        has_convolution,
        passing_convolution,
        prepared_operands,
        reads_pairs,
    )
    from .targets.cpu.llvm.gemm.product import computes_left, own_blocking, passing_product, same_sums
    from .targets.cpu.llvm.registry import kind_of
    from .targets.cpu.runtime import blas, jit, threads

    bits = jit.host().vector_bits

    def has_library(call: Call) -> bool:
        if isinstance(call, Product):
            return own_blocking(call) is not None or (call.dtype.kind == "f" and blas.gemm_symbols() is not None)
        return has_convolution(call)

    def takes_epilogue(call: Call) -> bool:
        return kind_of(call).takes_epilogue(call)

    def lanes(expressions: Sequence[Expr]) -> int:
        """One hardware vector of the widest element."""
        widest = max((e.dtype.itemsize for e in expressions if _counts(e)), default=4)
        return max(bits // (8 * max(widest, 4)), 2)

    def prepared(call: Call) -> tuple[Prepared | None, Prepared | None]:
        return (None, None) if isinstance(call, Product) else prepared_operands(call)

    def reads_narrow(node: Node) -> bool:
        assert node.op is not None
        if not jit.host().registers or not LIBRARY[node.op.kind].reads_narrow(node):
            return False
        return node.op.kind != "convolution" or node.dtype is dtypes.int32 or reads_pairs()

    def passing(call: Call) -> Call | None:
        return passing_product(call) if isinstance(call, Product) else passing_convolution(call)

    cores = threads.cores()
    return Target(lanes, has_library, takes_epilogue, cores, prepared, reads_narrow, computes_left, passing, same_sums)


def _counts(expr: Expr) -> bool:
    """Data that fills lanes: arrays, and float64 arithmetic on them. Indices and scalars do not narrow a loop."""
    if expr.op == "load":
        return bool(expr.attr.size > 1)
    return expr.dtype is dtypes.float64 and bool(expr.depends)

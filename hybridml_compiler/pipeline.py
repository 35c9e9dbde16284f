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
from contextlib import contextmanager, nullcontext
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from . import config, time_limit
from .aval import CPU
from .donation import donated
from .errors import CompileError
from .graph.interpret import interpret
from .graph.ir import Graph, Node
from .graph.sizes import at_sizes
from .graph.text import parse_graph, print_graph
from .graph.updates import is_awaited
from .graph.verify import verify
from .hooks import hooks
from .once import lazy
from .record import record, replace
from .runtime import host_callback
from .runtime.progress import progress
from .sizes.dims import hint
from .sizes.guards import Guards, collecting, structural

if TYPE_CHECKING:
    from .loops.ir import KernelSpec
    from .placement.by_cost import Choice
    from .schedule.kept import Reuse
    from .schedule.kernels.library import Capabilities
    from .schedule.launch import Launch, Plan
    from .targets.base import Code, Executable, Program, Target
    from .targets.shapes import Shapes

Among = Literal["auto"] | Sequence[str] | None  # devices to choose from; None: operations are where their operands are


@record(frozen=False)
class Stats:
    """Cost of compiling, in milliseconds per stage, and facts about the result (which a program found on disk
    knows)."""

    milliseconds: dict[str, float] = field(default_factory=dict)
    nodes: int = 0
    kernels: int = 0  # launches of one call
    distinct_kernels: int = 0
    nbytes: int = 0  # read and written by one call
    arena_bytes: int = 0
    reuse: Reuse | None = None  # what the plan found known; None for a program found whole
    cached_kernels: int = 0  # distinct ones whose code was in the cache, where the target has one
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

    @property
    def reused(self) -> str:
        """The parts of the program that did not have to be made, as text for people."""
        if self.reuse is None:
            return "the whole program was in the cache"
        return (
            f"{self.reuse.lowered} of {self.reuse.groups} groups of operations were lowered, {self.cached_kernels} of "
            f"{self.distinct_kernels} kernels were in the cache"
        )


def compile(
    graph: Graph,
    donate: Mapping[int, int] | None = None,
    name: str = "",
    guards: Guards | None = None,
    target: Target | None = None,
    among: Among = None,
    memory: int | None = None,
    settings: config.Settings = (),
) -> Executable:
    """An executable for the graph on a target: that of the device that its values are on unless one is given. If there
    are several, each computes what is on it, and takes and gives its arrays (see placement/partition.py).

    `donate` maps an output position to the input position whose memory that output is written to. Of a graph with
    symbolic sizes, `guards` are the conditions that its capture relied on. `among`: devices that compute what they take
    the least time for (see placement/by_cost.py), wherever operands are; "auto": those of the machine. `memory`: bytes
    that a call may need on a device, arguments and results included; values are computed again for it, and
    OutOfMemoryError says which lines hold the rest where that is not enough (see schedule/rematerialization.py).
    `settings`: those on which programs depend that are not as usual, whatever blocks are around.
    """
    from .graph.devices import device_of, devices_of
    from .placement.by_operands import placement, spans_devices
    from .targets.registry import find_target

    if target is None:
        if any(node.aval.symbolic for node in graph.inputs) and (among or len(devices_of(graph)) > 1):
            raise CompileError(f"{graph.name}: programs of several devices have fixed sizes")
        choice = _choice(graph, among) if among else None
        where = placement(graph) if choice is None else choice.where
        if spans_devices(graph, where):
            return _compile_partition(graph, where, choice, memory, settings)
        executable = _compile_for(find_target(device_of(graph)), graph, donate, name, guards, memory, settings)
        executable.choice = choice
        return executable
    return _compile_for(target, graph, donate, name, guards, memory, settings)


def _compile_for(
    target: Target,
    graph: Graph,
    donate: Mapping[int, int] | None,
    name: str,
    guards: Guards | None,
    memory: int | None,
    settings: config.Settings,
) -> Executable:
    """`compile` for a target."""
    symbolic = any(node.aval.symbolic for node in graph.inputs)
    with config.scoped(config.compiling(settings)):
        stages = Stages(graph, dict(donate or {}), name or graph.name, Stats(), target, memory, not symbolic, settings)
        if symbolic:
            if memory is not None:
                raise CompileError(f"{stages.name}: programs with a limit of memory have fixed sizes")
            if not target.capabilities.takes_sizes:
                raise CompileError(f"{stages.name}: programs of {target.name!r} have fixed sizes")
            return _compile_symbolic(stages, guards or Guards())
        return _compile_stages(stages)


def _compile_stages(stages: Stages) -> Executable:
    """An executable of fixed sizes, found or made."""
    stats = stages.stats
    with stats.stage("find"):
        key = _key(stages)
        program = stages.target.find(key) if stages.say.level < 2 else None
    if program is None:
        program = stages.make(key)
    else:
        stages.stats = Stats()  # whoever looks at the stages later does not change the cost of this call
    return stages.executable(program, stats)


def _choice(graph: Graph, among: Literal["auto"] | Sequence[str]) -> Choice | None:
    """The placement of a graph by cost; None where it has arrays without values, which no device can be sent."""
    from .graph.devices import devices_of
    from .placement.by_cost import cheapest
    from .targets.registry import find_device, machine_devices, performance_of

    there = sorted(devices_of(graph))
    if not all(find_device(device).has_values for device in there):
        return None
    devices = list(dict.fromkeys([*machine_devices(), *there] if among == "auto" else among))
    speeds = {device: performance_of(device) for device in dict.fromkeys([*devices, CPU, *there])}
    return cheapest(graph, devices, speeds)


def _compile_partition(
    graph: Graph, where: Mapping[Node, str], choice: Choice | None, memory: int | None, settings: config.Settings
) -> Executable:
    """`compile` for a graph that several devices compute."""
    from .placement.partition import place, split
    from .targets.partitioned import PartitionedExecutable
    from .targets.registry import find_target

    made: dict[Node, Node] = {}
    placed = place(graph, where, made)
    if config.field("verify"):
        verify(placed, "placement")
    programs = {
        part: compile(part.program, target=find_target(part.device), memory=memory, settings=settings)
        if part.computes
        else None
        for part in split(placed)
    }
    return PartitionedExecutable(placed, programs, choice, made)


def _compile_symbolic(stages: Stages, captured: Guards) -> Executable:
    """`compile` for sizes that come with the call. A stage's decision by a size is a guard of the executable (see
    sizes/dims.py); sizes that break it are compiled for themselves."""
    from .targets.shapes import Shapes

    guards, graph = captured.copy(), stages.captured
    with collecting(guards), structural():
        program = stages.make(None)

    def exact(sizes: Mapping[str, int]) -> Executable:
        made = at_sizes(graph, sizes)
        return compile(made, stages.donate, stages.name, target=stages.target, settings=stages.given)

    inputs, outputs = [node.aval for node in graph.inputs], [graph.outputs[k].aval for k in program.fresh]
    shapes = Shapes(inputs, outputs, program.arena_bytes, guards.since(captured), exact)
    return stages.executable(program, stages.stats, shapes)


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
    awaited = is_awaited(first)

    def compute(arrays: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> None:
        operands = [arrays[at] if type(at) is int else at for at in where]
        in_place = awaited and arrays[0].ctypes.data == targets[0].ctypes.data
        with np.errstate(all="ignore"), donated(arrays[0]) if in_place else nullcontext():
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

    def __init__(
        self,
        graph: Graph,
        donate: Mapping[int, int],
        name: str,
        stats: Stats,
        target: Target,
        memory: int | None = None,
        assumes: bool = True,
        settings: config.Settings = (),
    ) -> None:
        self.given = settings
        self.settings = now = config.read()
        self.captured, self.donate, self.name, self.stats = graph, donate, name, stats
        self.target = target.limited(now.own_products, now.own_convolutions)
        self.memory = memory
        # May the program ask for usual numbers?
        self.assumes = assumes and target.capabilities.updates_in_place and now.in_place
        self.has_assumed = False
        self.verify, self.say = now.verify, _Reporter(now.debug, name)

    @lazy
    def capabilities(self) -> Capabilities:
        """The target's abilities that the settings let it use; where memory has a limit, nothing is kept for kernels to
        be launched together."""
        found, given = self.target.capabilities, self.settings
        if not given.fusion:
            found = found.unfused
        if not (given.memory_plan and given.recompute and given.in_place):
            allowed = {"shares_memory": given.memory_plan, "recomputes": given.recompute, "in_place": given.in_place}
            found = replace(found, **allowed)
        return found if self.memory is None else replace(found, merged_bytes=0)

    @lazy
    def graph(self) -> Graph:
        from .graph.devices import without_devices
        from .passes import ASSUMING, PASSES, run_passes
        from .schedule.checks import settled

        with self.stats.stage("verify"):
            if self.verify:
                verify(self.captured)
        self.say(5, lambda: f"captured\n{print_graph(self.captured)}")

        assuming = [name for name, *_ in ASSUMING]

        def watch(made: str, after: Graph) -> None:
            self.has_assumed = self.has_assumed or made in assuming
            self.say(5, lambda: f"{made}\n{print_graph(after)}")

        with self.stats.stage("passes"), structural():
            first = without_devices(self.captured)
            turned = self.settings.layout and self.target.capabilities.channels_last(first)
            passes = [found for found in PASSES if turned or found[0] != "channels_last"]
            passes += ASSUMING if self.assumes else ()
            graph = settled(run_passes(first, verify=self.verify, passes=passes, watch=watch)[0])
        if self.memory is None:
            return graph
        from .schedule.plan import make_plan
        from .schedule.rematerialization import fitted

        with self.stats.stage("rematerialization"):
            found = fitted(graph, lambda g: make_plan(g, self.donate, self.capabilities), self.memory)
        if found is not graph:
            watch("rematerialization", found)
            if self.verify:
                verify(found, "rematerialization")
        return found

    @lazy
    def plan(self) -> Plan:
        from .schedule.kept import Reuse
        from .schedule.plan import make_plan

        graph, reuse = self.graph, Reuse()
        with self.stats.stage("plan"), structural():
            plan = make_plan(graph, self.donate, self.capabilities, self._begin, reuse=reuse)
        self.stats.reuse = reuse
        self.say(3, lambda: _described(plan))
        return plan

    def _begin(self, spec: KernelSpec, is_body: bool = False) -> None:
        """Begins with a spec that is known, while others are still being planned."""
        from .loops.verify import verify_kernel

        time_limit.check()
        if id(spec) in self._begun:
            return
        self._begun[id(spec)] = spec
        with self.stats.stage("check"):
            verified = self.capabilities.kept.verified
            for kernel in spec.nests if self.verify else ():
                if verified.get(id(kernel)) is not kernel:
                    verify_kernel(kernel, "the plan")
                    verified[id(kernel)] = kernel
        self.code.begin(spec, is_body)

    @lazy
    def _begun(self) -> dict[int, KernelSpec]:
        """Specs by identity: launches of equal groups have one."""
        return {}

    @lazy
    def code(self) -> Code:
        return self.target.code([node.aval for node in self.captured.outputs], self.stats.stage)

    @property
    def launches(self) -> Sequence[Launch]:
        return self.plan.launches

    @property
    def ir(self) -> str:
        """Text of the graph after the passes."""
        return print_graph(self.graph)

    @property
    def llvm(self) -> str:
        """The target's code of every kernel and of the step that launches them."""
        with structural():
            return self.code.text(self.plan)

    @property
    def facts(self) -> dict[str, int]:
        """The facts of `Stats` about the program."""
        return {
            "nodes": len(self.graph.nodes()),
            "kernels": len(self.plan.launches),
            "distinct_kernels": self.code.kernels(self.plan),
            "nbytes": sum(launch.nbytes for launch in self.plan.launches),
            "arena_bytes": hint(self.plan.arena_bytes),
        }

    def make(self, key: str | None) -> Program:
        """The program; kept under the key, if there is one."""
        with self.code.compiling(), progress(self.name, self._begun), structural():
            plan = self.plan
            program = self.code.finish(plan, self.facts, key)
        stats = self.stats
        self.say(4, lambda: "LLVM IR\n" + self.llvm)
        self.say(2, lambda: f"{_times(stats)}\n{_launches(plan)}")
        return program

    def executable(self, program: Program, stats: Stats, shapes: Shapes | None = None) -> Executable:
        """The program as a callable, which cost this much."""
        from .targets.base import Interface

        graph = self.captured
        stats.update(program.facts)
        self.say(1, lambda: _summary(stats))
        inputs, outputs = ([node.aval for node in nodes] for nodes in (graph.inputs, graph.outputs))
        return self.target.executable(program, Interface(self.name, inputs, outputs, self.donate, stats, self, shapes))

    @lazy
    def cautious(self) -> Executable | None:
        """The program that assumes nothing of its numbers, where this one may: it takes calls in which that fails."""
        _ = self.graph  # by passes that note what they assume
        if not self.has_assumed:
            return None
        with config.scoped(config.compiling(self.given)):
            return _compile_stages(
                Stages(self.captured, self.donate, self.name, Stats(), self.target, self.memory, False, self.given)
            )

    def failure(self, arrays: Sequence[Any]) -> Exception:
        """The error of a call with these arrays, in which a check failed: the interpreter raises it again, with the
        user's line."""
        from .targets.device import on_host

        try:
            interpret(self.captured, [on_host(array) for array in arrays])
        except Exception as error:
            return error
        return CompileError(
            f"{self.name}: an index check failed that the interpreter passes\n{print_graph(self.captured)}"
        )


def _key(stages: Stages) -> str:
    """The name of the graph's program: a digest of all that decides the output of the stages."""
    from .graph.digest import digest
    from .runtime import cache
    from .runtime.fingerprint import fingerprint

    code = f"{fingerprint('*')} {np.__version__}"  # NumPy folds constants
    target, settings = stages.target, stages.settings
    donated, limits = repr(sorted(stages.donate.items())), f"memory {stages.memory} {stages.assumes}"
    parts = (digest(stages.captured), donated, target.name, target.key, code, limits)
    off = [name for name in config.SWITCHES if not getattr(settings, name)]
    return cache.key("program", *parts, *["checked"] * settings.sanitize, *off)


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
        f"traffic, {stats.arena_bytes} bytes of arena, compiled in {stats.total_ms:.1f} ms: {stats.reused}"
    )


def _times(stats: Stats) -> str:
    return ", ".join(f"{stage} {ms:.2f} ms" for stage, ms in stats.milliseconds.items())


def _launches(plan: Plan) -> str:
    from .schedule.text import describe_launch

    return "\n".join(describe_launch(k, launch) for k, launch in enumerate(plan.launches))


def _described(plan: Plan) -> str:
    from .schedule.text import describe_plan

    return describe_plan(plan)

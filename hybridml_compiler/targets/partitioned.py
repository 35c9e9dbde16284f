"""Programs of several devices as one: each runs on its device, and values that one sends are copied for the next.

Those of a GPU are asynchronous: it computes on, and receives beside that, while the host starts the next program or
runs its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..aval import CPU
from ..graph.devices import moved, without_devices
from ..graph.ir import Graph, Node, apply, constant
from ..graph.text import print_graph
from ..loops.ir import KernelSpec
from ..once import lazy
from ..ops.table import OPS
from ..placement.by_cost import Choice, Share
from ..placement.partition import Part
from ..record import replace
from ..schedule.launch import Copy, Launch
from .base import Executable
from .device import Device, download, on_host, upload
from .registry import find_device

_NOTHING: Mapping[Node, Node] = {}


class PartitionedStages:
    """The stages of all programs together: what people look at."""

    def __init__(self, placed: Graph, programs: Mapping[Part, Executable | None]) -> None:
        self.placed, self.programs = placed, programs

    @lazy
    def _joined(self) -> tuple[Graph, list[Launch]]:
        """The graph of all programs after their passes, with `send` and `recv` between them, and its launches."""
        made: dict[Node, Node] = {node: node for node in self.placed.inputs}
        launches: list[Launch] = []
        for part, exe in self.programs.items():
            graph = without_devices(part.program) if exe is None else exe.stages.graph
            own: dict[Node, Node] = {}
            for node, read in zip(graph.inputs, part.reads, strict=True):
                own[node] = made[read]
                if own[node].aval.device != part.device:
                    sent = apply(OPS["send"], [made[read]], {"device": part.device}, read.where)
                    own[node] = apply(OPS["recv"], [sent], {"device": part.device}, read.where)
                    why = f"from {sent.aval.device} to {part.device}"
                    nbytes = sent.aval.nbytes
                    launches.append(Launch(Copy(nbytes), (), (why,), (read.where,), nbytes, (sent, own[node])))
            for node in graph.nodes():
                if node.value is not None:
                    own[node] = constant(node.value, weak=node.aval.weak, device=part.device)
                elif node.op is not None:
                    own[node] = moved(node, [own[operand] for operand in node.inputs], part.device)
            made.update(zip(part.gives, (own[graph.outputs[k]] for k in part.slots), strict=True))
            for launch in () if exe is None else exe.launches:
                launches.append(replace(launch, nodes=tuple([own.get(node, node) for node in launch.nodes])))
        outputs = tuple([made[node] for node in self.placed.outputs])
        return Graph(self.placed.inputs, outputs, self.placed.name), launches

    @property
    def graph(self) -> Graph:
        return self._joined[0]

    @property
    def launches(self) -> list[Launch]:
        return self._joined[1]

    @property
    def ir(self) -> str:
        return print_graph(self.graph)

    @property
    def llvm(self) -> str:
        """The code of each program, below its name and device."""
        made = [(part, exe) for part, exe in self.programs.items() if exe is not None]
        return "\n".join(f"; {part.graph.name} on {part.device}\n{exe.llvm}" for part, exe in made)


class PartitionedStats:
    """The sums of what the programs cost to make, and of what their launches move."""

    def __init__(self, every: Sequence[Any]) -> None:
        self._every = every
        sums = ("nodes", "kernels", "distinct_kernels", "nbytes", "arena_bytes", "cached_kernels", "total_ms")
        self.__dict__ |= {name: sum(getattr(stats, name) for stats in every) for name in sums}

    @property
    def milliseconds(self) -> dict[str, float]:
        return dict(sum((Counter(stats.milliseconds) for stats in self._every), Counter()))

    @property
    def reused(self) -> str:
        return "; ".join(dict.fromkeys(stats.reused for stats in self._every))


class PartitionedExecutable(Executable):
    """`exe(arrays)`: each array where its node is, and each result."""

    def __init__(
        self,
        graph: Graph,
        programs: Mapping[Part, Executable | None],
        choice: Choice | None = None,
        made: Mapping[Node, Node] = _NOTHING,
    ) -> None:
        """`programs`: in the order in which they run; None of one that only receives and sends. `made`: what the nodes
        have become for which devices were chosen."""
        self.name, self.graph, self.donate = graph.name, graph, {}
        self.inputs, self.outputs = ([node.aval for node in nodes] for nodes in (graph.inputs, graph.outputs))
        self.programs = {part: exe and exe.replayed() for part, exe in programs.items()}
        self.executables = [exe for exe in self.programs.values() if exe is not None]
        self.stages: Any = PartitionedStages(graph, self.programs)
        self.stats: Any = PartitionedStats([exe.stats for exe in self.executables])
        self.fresh, self.arena_bytes = range(len(self.outputs)), 0
        self.choice, self._made = choice, made

    @property
    def where(self) -> Mapping[Node, str]:
        return {node: there.aval.device for node, there in self._made.items() if there.op is not None}

    @lazy
    def shares(self) -> dict[Part, Share]:
        """The cost of each program, where devices were chosen by it."""
        found: dict[Part, Share] = {}
        if self.choice is None:
            return found
        for part in self.programs:
            own = set(part.members)
            share = self.choice.share([node for node, there in self._made.items() if there in own])
            if share is not None:
                found[part] = share
        return found

    @lazy
    def _last(self) -> dict[Node, Part]:
        """The program that reads a value last, where it is no output."""
        found = {node: part for part in self.programs for node in part.reads}
        return {node: part for node, part in found.items() if node not in self.graph.outputs}

    def computed_by(self, spec: KernelSpec) -> str:
        mine = (exe for exe in self.executables if spec in [launch.spec for launch in exe.launches])
        return next(filter(None, (exe.computed_by(spec) for exe in mine)), "")

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        values: dict[Node, Any] = dict(zip(self.graph.inputs, arrays, strict=True))
        for part, exe in self.programs.items():
            given = [_on(part.device, values[node]) for node in part.reads]
            found = _received(part, given) if exe is None else exe(given)
            values.update(zip(part.gives, (found[k] for k in part.slots), strict=True))
            for node in part.reads:  # memory is for others from here on
                if self._last.get(node) is part:
                    del values[node]
        results: list[Any] = []
        for node in self.graph.outputs:
            found = values[node]
            of_others = any(found is other for other in (*arrays, *results))
            results.append(found.copy() if of_others and type(found) is np.ndarray else found)
        return results


def _received(part: Part, given: Sequence[Any]) -> list[Any]:
    """The results of a program that only receives and sends."""
    made = dict(zip(part.program.inputs, given, strict=True))
    for node in part.program.nodes():
        if node.value is not None:
            made[node] = _on(part.device, node.value)
        elif node.op is not None:
            made[node] = made[node.inputs[0]]
    return [made[node] for node in part.program.outputs]


def _on(device: str, array: Any) -> Any:
    """The array on a device: itself, or a copy."""
    if device == CPU:
        return on_host(array)
    target: Device = find_device(device)
    if type(array) is not np.ndarray:
        if array.device is target:
            return array
        array = download(array)
    with target.transfers():
        return upload(target, array)

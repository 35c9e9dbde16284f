"""Programs of a device other than the CPU, called with the arrays of a call as they are.

Values of the CPU that meet those of the device in one program, such as the learning rate of an optimizer, are moved in
for the call. What a program computes of the CPU's values alone, such as an optimizer's count of steps, is computed
there: a result that came from the device would be waited for. Other results on the CPU are moved out again.

A tensor that a program updates keeps its memory, if nobody else has that: values of a device never change for those
who have them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np

from hybridml_compiler.aval import CPU
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.loops.ir import KernelSpec
from hybridml_compiler.targets.base import Executable
from hybridml_compiler.targets.device import Device, DeviceArray, copied, download, upload

Compile = Callable[[ir.Graph, Mapping[int, int]], Executable]


class PlacedExecutable(Executable):
    """`exe(arrays)`: each array where its node is, and each result."""

    def __init__(self, graph: ir.Graph, donate: Mapping[int, int], device: Device, compile: Compile) -> None:
        """`donate`: outputs that are written over inputs, where `exe.run_on` is told that these are the caller's."""
        self.name, self.device, self.graph = graph.name, device, graph
        self.inputs, self.outputs = ([node.aval for node in nodes] for nodes in (graph.inputs, graph.outputs))
        self.fresh, self.donate = range(len(graph.outputs)), {}
        apart = _apart(graph)
        self._there = [k for k, node in enumerate(graph.outputs) if node not in apart]
        there = tuple(graph.outputs[k] for k in self._there)
        needed = set(ir.Graph(graph.inputs, there, graph.name, graph.checks).nodes())
        self._given = [k for k, node in enumerate(graph.inputs) if node in needed]
        place = {k: j for j, k in enumerate(self._given)}
        self.owned = {
            j: place[donate[k]]
            for j, k in enumerate(self._there)
            if donate.get(k) in place and graph.outputs[k].aval.device != CPU and device.has_values
        }
        inputs = tuple(graph.inputs[k] for k in self._given)
        self.executable = compile(ir.Graph(inputs, there, graph.name, graph.checks), self.owned).replayed()
        self._fails = getattr(self.executable, "may_fail", False)  # half way: the caller's values stay, then
        self.stats, self.stages = self.executable.stats, self.executable.stages
        self.arena_bytes, self.choice = self.executable.arena_bytes, self.executable.choice
        self._here = [j for j, k in enumerate(self._there) if graph.outputs[k].aval.device == CPU]
        self._apart = [k for k, node in enumerate(graph.outputs) if node in apart]
        roots = tuple(graph.outputs[k] for k in self._apart)
        read = set(ir.topological(roots))
        self._read = [k for k, node in enumerate(graph.inputs) if node in read]
        self._on_host = ir.Graph(tuple(graph.inputs[k] for k in self._read), roots, graph.name) if roots else None
        self._uploaded: dict[int, tuple[bytes, DeviceArray]] = {}

    def computed_by(self, spec: KernelSpec) -> str:
        return self.executable.computed_by(spec)

    def is_here(self, k: int) -> bool:
        """Whether an output is on the CPU."""
        return self.outputs[k].device == CPU

    @property
    def overwritten(self) -> list[int]:
        """The inputs that are written over where they are the caller's."""
        return [self._given[j] for j in self.owned.values()]

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        return self.run_on(arrays, ())

    def run_on(self, arrays: Sequence[Any], own: Container[int]) -> list[Any]:
        """A call in which these inputs are the caller's alone, who gets other values for them."""
        given = [arrays[k] for k in self._given]
        for j, array in enumerate(given):
            if type(array) is not DeviceArray:
                given[j] = self._moved(j, array)
        for j in self.owned.values():
            if self._fails or self._given[j] not in own:
                given[j] = copied(given[j])
        found = self.executable(given)
        for j in self._here:
            found[j] = download(found[j])
        if self._on_host is None:
            return found
        results: list[Any] = [None] * len(self.outputs)
        for k, array in zip(self._there, found, strict=True):
            results[k] = array
        given = [arrays[k] for k in self._read]
        for k, array in zip(self._apart, interpret(self._on_host, given), strict=True):
            results[k] = array
        return results

    def _moved(self, j: int, array: np.ndarray) -> DeviceArray:
        """An array of the CPU on the device; that of the call before, where it is equal."""
        data = array.tobytes() if array.nbytes <= _COMPARED else None
        known = self._uploaded.get(j)
        if data is not None and known is not None and known[0] == data:
            return known[1]
        moved = upload(self.device, array)
        if data is not None:
            self._uploaded[j] = data, moved
        return moved


_FEW = 4096  # elements that the CPU computes while the device is at work
_COMPARED = 64  # bytes of an array that may be that of the call before


def _apart(graph: ir.Graph) -> set[ir.Node]:
    """The outputs on the CPU that are computed of its values alone."""
    on_cpu: dict[ir.Node, bool] = {}
    for node in graph.nodes():
        on_cpu[node] = node.aval.device == CPU and all(on_cpu.get(n, n.aval.device == CPU) for n in node.inputs)
    return {n for n in graph.outputs if on_cpu.get(n) and n.op is not None and n.aval.size <= _FEW}

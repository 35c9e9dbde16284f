"""Programs of a device other than the CPU, called with the arrays of a call as they are.

Values of the CPU that meet those of the device in one program, such as the step count of an optimizer, are computed
with them: they are moved in for the call, and the results among them are moved out again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler.aval import CPU
from hybridml_compiler.graph import ir
from hybridml_compiler.loops.ir import KernelSpec
from hybridml_compiler.targets.base import Executable
from hybridml_compiler.targets.device import Device, download, upload


class PlacedExecutable(Executable):
    """`exe(arrays)`: each array where its node is, and each result."""

    def __init__(self, executable: Executable, device: Device, graph: ir.Graph) -> None:
        self.executable, self.device, self.stats = executable.replayed(), device, executable.stats
        self.name, self.inputs, self.outputs = executable.name, executable.inputs, executable.outputs
        self.fresh, self.donate, self.arena_bytes = executable.fresh, executable.donate, executable.arena_bytes
        self.stages, self.choice = executable.stages, executable.choice
        self._here = [node.aval.device == CPU for node in graph.outputs]

    def computed_by(self, spec: KernelSpec) -> str:
        return self.executable.computed_by(spec)

    def is_here(self, k: int) -> bool:
        """Whether an output is on the CPU."""
        return self._here[k]

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        there = [upload(self.device, a) if isinstance(a, np.ndarray) else a for a in arrays]
        found = self.executable(there)
        return [download(a) if here else a for a, here in zip(found, self._here, strict=True)]

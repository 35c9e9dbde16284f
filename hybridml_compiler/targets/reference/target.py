"""The reference target (see targets/base.py): plans with every kind of fusion, and an interpreter that runs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ...aval import Aval
from ...errors import CompileError
from ...record import record
from ...schedule.kernels.gemm import Product
from ...schedule.kernels.library import Call, Capabilities
from ...schedule.launch import Copy, Plan
from ...schedule.text import describe_plan
from ..base import Interface, Stage, Target
from ..device import Device, DeviceArray, download, empty
from .memory import Block
from .plan import run_plan

if TYPE_CHECKING:
    from ...loops.ir import KernelSpec
    from ..shapes import Shapes


def _has_library(call: Call) -> bool:
    return isinstance(call, Product)


@record
class Program:
    """A plan is all that its interpreter needs."""

    plan: Plan
    facts: Mapping[str, int]

    @property
    def fresh(self) -> Sequence[int]:
        return self.plan.fresh

    @property
    def arena_bytes(self) -> int:
        return self.plan.arena_bytes


class Code:
    """Nothing is compiled: the text is the plan's."""

    @contextmanager
    def compiling(self) -> Iterator[None]:
        yield

    def begin(self, spec: KernelSpec) -> None:
        """Ignores the spec: a plan is all that its interpreter needs."""

    def text(self, plan: Plan) -> str:
        return describe_plan(plan)

    def kernels(self, plan: Plan) -> int:
        return len({id(launch.spec) for launch in plan.launches if not isinstance(launch.spec, Copy)})

    def finish(self, plan: Plan, facts: Mapping[str, int], key: str | None) -> Program:
        return Program(plan, facts)


@record(frozen=False, eq=False)
class Executable:
    """`exe(arrays)` takes and returns arrays of the reference device."""

    plan: Plan
    interface: Interface
    stats: Any
    stages: Any

    @property
    def ir(self) -> str:
        return str(self.stages.ir)

    @property
    def launches(self) -> Sequence[Any]:
        return self.plan.launches

    def __call__(self, arrays: Sequence[DeviceArray]) -> list[DeviceArray]:
        name, inputs = self.interface.name, self.interface.inputs
        fits = [(array.shape, array.dtype) for array in arrays] == [(aval.shape, aval.dtype) for aval in inputs]
        if not fits or any(array.device is not DEVICE for array in arrays):
            raise CompileError(f"{name}: takes {[*map(str, inputs)]} on {DEVICE.name}, got {list(arrays)}")
        results = [empty(DEVICE, aval.shape, aval.dtype) for aval in self.plan.outputs]
        given, made = ([array.memory.opened() for array in group] for group in (arrays, results))
        if not run_plan(self.plan, given, made):
            raise self.interface.explain_failure([download(array) for array in arrays])
        fresh = dict(zip(self.plan.fresh, results, strict=True))
        count = len(self.interface.outputs)
        return [fresh[k] if k in fresh else arrays[self.interface.donate[k]] for k in range(count)]


class Reference:
    """The target that says what a plan means. Its programs are not kept on disk: making one is planning it."""

    name = key = "reference"
    capabilities = Capabilities(has_library=_has_library, takes_epilogue=lambda _: True, cores=2, runs_control=True)

    def find(self, key: str) -> None:
        """None: nothing is kept."""

    def code(self, outputs: Sequence[Aval], stage: Stage) -> Code:
        return Code()

    def executable(
        self, program: Program, interface: Interface, stats: Any, stages: Any, shapes: Shapes | None = None
    ) -> Executable:
        return Executable(program.plan, interface, stats, stages)


class ReferenceDevice:
    """Nothing here runs beside the caller: what it is asked for is done when the call returns."""

    name = "reference"

    @property
    def target(self) -> Target:
        return TARGET

    def allocate(self, nbytes: int) -> Block:
        return Block(nbytes)

    def write(self, memory: Block, data: np.ndarray) -> None:
        memory.opened()[: data.nbytes] = np.frombuffer(data.tobytes(), np.uint8)

    def read(self, memory: Block, nbytes: int) -> bytes:
        return memory.opened()[:nbytes].tobytes()

    def synchronize(self) -> None:
        """Returns at once: nothing is left to do."""


TARGET: Target = Reference()
DEVICE: Device = ReferenceDevice()

"""A target that makes code of loop nests, one by one; all else of a program is done for it, on the host.

class Mine(KernelTarget):
    def compile(self, kernel): ...      a loop nest -> code, of any class
    def run(self, code, buffers, lo, hi): ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ..aval import Aval
from ..errors import CompileError
from ..loops.ir import Kernel, KernelSpec
from ..loops.text import print_kernel
from ..once import lazy
from ..record import record
from ..schedule.kernels.library import Capabilities
from ..schedule.launch import Copy, Plan
from ..schedule.text import describe_plan
from .base import Executable, Interface, Program, Stage, Target
from .device import DeviceArray, empty
from .host_device import HostDevice
from .host_machine import HostMachine
from .run_plan import run_plan

_MOST = 1024  # kernels whose code is kept from one program to the next


class KernelTarget(Target):
    """A target given by `compile` and `run`. Its `device` is memory of the host that only it looks into.

    Loops, choices, calls of NumPy and fusions are taken apart for it. Where its `capabilities` have a library for
    `Product`, that is NumPy's. Unless a target does more, programs are not kept on disk: making one is planning it.
    """

    @lazy
    def device(self) -> HostDevice:
        return HostDevice(self)

    @lazy
    def capabilities(self) -> Capabilities:
        return Capabilities(runs_control=True)

    def compile(self, kernel: Kernel) -> Any:
        """The code of a loop nest, made once for all that are equal, as soon as its launch is planned."""
        raise NotImplementedError

    def run(self, code: Any, buffers: Sequence[np.ndarray], lo: int, hi: int) -> bool:
        """Runs iterations lo to hi of `kernel.range` (all of the body where that is None) on the operands, flat arrays
        in host memory; False where an index was out of range. Several threads may call it at once."""
        raise NotImplementedError

    def call_of(self, spec: KernelSpec) -> Any:
        """The code of a library call with the loop nests round it, for a machine of the target's own (run_plan.py);
        None where the walk over the plan runs them one by one."""
        return None

    def text(self, kernel: Kernel) -> str:
        """The code of a loop nest, for people."""
        return print_kernel(kernel)

    @lazy
    def _codes(self) -> dict[str, Any]:
        """Code by the target's key, which settings are in, and the text of its loop nest."""
        return {}

    def code_of(self, kernel: Kernel) -> Any:
        """The code of a loop nest, that of an equal one if there has been any."""
        key = f"{self.key}\n{print_kernel(kernel)}"
        if key not in self._codes:
            if len(self._codes) >= _MOST:
                self._codes.clear()
            self._codes[key] = self.compile(kernel)
        return self._codes[key]

    def code(self, outputs: Sequence[Aval], stage: Stage) -> KernelCode:
        return KernelCode(self)

    def executable(self, program: KernelProgram, interface: Interface) -> KernelExecutable:
        return KernelExecutable(program, interface)


@record
class KernelProgram(Program):
    plan: Plan
    code: KernelCode


class KernelCode:
    """The code of a program's loop nests, by the identity of these."""

    def __init__(self, target: KernelTarget) -> None:
        self.target = target
        self._made: dict[int, tuple[KernelSpec, Any]] = {}

    def compiling(self) -> AbstractContextManager[None]:
        return nullcontext()

    def begin(self, spec: KernelSpec, is_body: bool = False) -> None:
        self.codes(spec)

    def codes(self, spec: KernelSpec) -> list[Any]:
        """The code of each loop nest of a launch, or that of a library call with those round it."""
        whole = None if isinstance(spec, Kernel) else self.of(spec)
        if whole is not None:
            return [whole]
        found = []
        for part in spec.specs:
            call = None if isinstance(part, Kernel) else self.of(part)
            found += [self.of(kernel) for kernel in part.nests] if call is None else [call]
        return found

    def of(self, spec: KernelSpec) -> Any:
        """The code of a loop nest, or of a call that the target has code for; else None."""
        if id(spec) not in self._made:
            make = self.target.code_of if isinstance(spec, Kernel) else self.target.call_of
            self._made[id(spec)] = spec, make(spec)  # type: ignore[arg-type]
        return self._made[id(spec)][1]

    @property
    def made(self) -> Iterable[tuple[KernelSpec, Any]]:
        """Specs with the code that was made of them."""
        return self._made.values()

    def keep(self, spec: KernelSpec, code: Any) -> None:
        """Adds code that was made before."""
        self._made[id(spec)] = spec, code

    def run(self, kernel: Kernel, buffers: Sequence[np.ndarray], lo: int, hi: int) -> bool:
        return self.target.run(self.of(kernel), buffers, lo, hi)

    def text(self, plan: Plan) -> str:
        texts = dict.fromkeys(self.target.text(kernel) for launch in plan.launches for kernel in launch.kernels)
        return "\n".join([describe_plan(plan), *texts])

    def kernels(self, plan: Plan) -> int:
        return len({id(launch.spec) for launch in plan.launches if not isinstance(launch.spec, Copy)})

    def finish(self, plan: Plan, facts: Mapping[str, int], key: str | None) -> KernelProgram:
        return KernelProgram(plan.fresh, plan.arena_bytes, facts, plan, self)


class KernelExecutable(Executable):
    """Takes and returns arrays of the target's device."""

    def __init__(self, program: KernelProgram, interface: Interface) -> None:
        super().__init__(program, interface)
        self.plan, self.code = program.plan, program.code

    def run(self, arrays: Sequence[DeviceArray]) -> list[DeviceArray] | None:
        device: Any = self.code.target.device
        fits = [(array.shape, array.dtype) for array in arrays] == [(aval.shape, aval.dtype) for aval in self.inputs]
        if not fits or any(array.device is not device for array in arrays):
            raise CompileError(f"{self.name}: takes {[*map(str, self.inputs)]} on {device.name}, got {list(arrays)}")
        results = self.results()
        return results if self.launch(arrays, results) else None

    def results(self) -> list[DeviceArray]:
        """New arrays for the fresh outputs."""
        return [empty(self.code.target.device, aval.shape, aval.dtype) for aval in self.plan.outputs]

    def launch(self, arrays: Sequence[DeviceArray], results: Sequence[DeviceArray]) -> bool:
        """Runs the plan on arrays that fit; False where an index check or a call of NumPy failed."""
        given, made = ([array.memory.opened() for array in group] for group in (arrays, results))
        return run_plan(self.plan, given, made, HostMachine(self.code.run))

"""Generated CUDA kernels: what tests compile, run and break."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.loops.ir import Kernel, KernelSpec
from hybridml_compiler.record import replace
from hybridml_compiler.schedule.fusion.epilogue import Fused
from hybridml_compiler.targets import registry
from hybridml_compiler.targets.cuda import nvrtc, stored, target
from hybridml_compiler.targets.cuda.code import CudaKernel, CudaRegion
from hybridml_compiler.targets.cuda.contraction.library import multiplies
from hybridml_compiler.targets.cuda.emit.kernel import ENTRY, Source
from hybridml_compiler.targets.cuda.sim.simulator import Simulator
from hybridml_compiler.targets.cuda.simulated_driver import SimulatedDriver
from hybridml_compiler.targets.cuda.target import TARGET, CudaTarget
from tests.support import examples
from tests.support.closeness import same_bits

SIM = "cuda:sim"
needs_nvrtc = pytest.mark.skipif(
    not nvrtc.is_installed(), reason="NVRTC is not installed: pip install nvidia-cuda-nvrtc"
)


def planned_anew(patch: pytest.MonkeyPatch) -> None:
    """Neither finds programs on disk nor keeps them there: for tests of how they are made, or that change that."""
    patch.setattr(stored, "find", lambda name: None)
    patch.setattr(stored.StoredProgram, "save", lambda self, name: None)


def _kernels(code: Any) -> list[Any]:
    """The kernels of some code, one by one."""
    return code.kernels if isinstance(code, CudaRegion) else [code]


@contextmanager
def compiled() -> Iterator[list[Any]]:
    """The code of all loop nests and calls that are compiled inside, or found compiled before."""
    made: list[Any] = []

    def code_of(self: CudaTarget, kernel: Kernel) -> Any:
        found = nests(self, kernel)
        made.extend(_kernels(found))
        return found

    def call_of(self: CudaTarget, spec: KernelSpec) -> Any:
        found = calls(self, spec)
        made.extend(_kernels(found) if found else [])
        return found

    nests, calls = CudaTarget.code_of, CudaTarget.call_of
    CudaTarget.code_of, CudaTarget.call_of = code_of, call_of  # type: ignore[assignment, method-assign]
    try:
        with pytest.MonkeyPatch.context() as patch:
            planned_anew(patch)
            yield made
    finally:
        CudaTarget.code_of, CudaTarget.call_of = nests, calls  # type: ignore[method-assign]


class Counting(SimulatedDriver):
    """A driver that counts its launches."""

    launches = 0

    def launch(self, *arguments: Any) -> None:
        self.launches += 1
        super().launch(*arguments)


def gpu(name: str = "cuda:other", *, merges: bool = True, most_blocks: int = 1024) -> Counting:
    """A new simulated GPU."""
    driver = Counting(name)
    driver.most_blocks = most_blocks
    target: Any = CudaTarget(name, lambda: driver)
    if not merges:
        target.capabilities = replace(target.capabilities, merges=None)
    registry.register(name, lambda: target.device)
    return driver


def sources(function: Callable[..., Any], *arrays: np.ndarray) -> list[Source]:
    """The sources of the kernels of a traced function."""
    with compiled() as made:
        hm.trace(function)(*(hm.tensor(array).to(SIM) for array in arrays))
    return [code.source for code in made if isinstance(code, CudaKernel)]


def check_registers(text: str, threads: int, turn: int, blocks: int = 1) -> None:
    """Machine code of a kernel has no spill, and so many of its blocks fit the registers of a multiprocessor: for every
    architecture with `--slow`, else for one in turns."""
    every = nvrtc.ARCHITECTURES
    for architecture in every if examples.all_of_them else every[turn % len(every) :][:1]:
        built = nvrtc.compile(text, "cubin", architecture)
        assert built.spills == 0, f"spills on sm_{architecture}:\n{text}\n{built.log}"
        assert 0 < built.registers * threads * blocks <= 1 << 16, built.log


def launch(text: str, source: Source, buffers: list[np.ndarray], iterations: int, blocks: int | None = None) -> None:
    """Runs a source, which may be another text than the kernel's own, on buffers of the host."""
    simulator = Simulator(nvrtc.compile(text, "ptx").code.decode())
    grid = source.grid(iterations, 1024) if blocks is None else blocks
    simulator.launch(ENTRY, grid, source.block, [*buffers, 0, iterations])


__all__ = ["SIM", "TARGET", "check_registers", "compiled", "launch", "needs_nvrtc", "same_bits", "sources"]


def left_to_library(monkeypatch: pytest.MonkeyPatch, *, always: bool) -> None:
    """Leaves every product that the library computes to it, or none."""
    monkeypatch.setattr(target, "is_left_to_library", multiplied if always else lambda spec: False)


def multiplied(spec: KernelSpec) -> bool:
    return multiplies(spec.call if isinstance(spec, Fused) else spec)

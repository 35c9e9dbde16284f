"""Fourier transforms of eager code: the kernels of traced programs, so that both styles have the same bits.

A kernel is for a number of points and takes any number of rows; it is compiled when the first array has them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from .... import config, dtypes
from ....aval import Aval
from ....compile_policy import MOST_TRANSFORMS, known_or_made
from ....once import once
from ....ops.fourier import AxisTransform
from ....record import replace
from ....schedule.kernels.transform import Transform
from ....schedule.kernels.transform_steps import Steps, steps_of
from ..llvm import modules, registry
from ..runtime import jit, sanitize, scratch, threads
from ..runtime.allocation import empty
from ..runtime.linking import loader
from ..spec import CpuSpec, host_spec

Run = Callable[[int, int, int, int], None]  # addresses of source and result, the range, and where it may be split


def transformed(x: np.ndarray, transforms: Sequence[AxisTransform]) -> np.ndarray | None:
    """The transforms of an array one after another; None where there are no kernels for them."""
    steps = _steps(x.shape, x.dtype, tuple(transforms)) if x.dtype.isnative else None
    passes = None if steps is None else _passes(steps)
    if steps is None or passes is None:
        return None
    shape = list(x.shape)
    for t in transforms:
        if t.kind != "c2c":
            shape[t.axis] = t.points // 2 + 1 if t.kind == "r2c" else t.points
    real = transforms[-1].kind == "c2r"
    out = empty(tuple(shape), (dtypes.real_of if real else dtypes.complex_of)(x.dtype))
    arrays = [np.ascontiguousarray(x), out, *(empty(m.shape, m.dtype) for m in steps.memory)]
    for run, (source, target), total, granule in passes:
        run(arrays[source].ctypes.data, arrays[target].ctypes.data, total, granule)
    return out


@lru_cache(1024)
def _steps(shape: tuple[int, ...], dtype: np.dtype, transforms: tuple[AxisTransform, ...]) -> Steps | None:
    cpu = host_spec()
    return steps_of(Aval(shape, dtype), transforms, cpu.lanes, cpu.cores)


_known: dict[Transform, Run] = {}


def _passes(steps: Steps) -> list[tuple[Run, tuple[int, int], int, int]] | None:
    """For each pass its function, its operands, its range, and a number that divides what it is split at; None where
    there are as many kernels as may be."""
    found = []
    for spec, operands in steps.passes:
        run = _run_of(replace(spec, count=1))
        if run is None:
            return None
        found.append((run, operands, *_range(spec)))
    return found


def _run_of(spec: Transform) -> Run | None:
    return known_or_made(_known, spec, MOST_TRANSFORMS, lambda: compiled(spec, host_spec()))


@lru_cache(1024)
def _range(spec: Transform) -> tuple[int, int]:
    callee = registry.callee_of(spec, host_spec())
    total = int(callee.total)
    return total, callee.granule if callee.parallel else total


@once
def compiled(spec: Transform, cpu: CpuSpec) -> Run:
    """The function of a pass, compiled for a CPU."""
    checks = config.field("sanitize")
    imports = scratch.symbols() | (sanitize.symbols() if checks else {})
    *_, module = needed = modules.PlanModules(cpu).modules(spec)
    library = loader.load(jit.compile_sources([m.code for m in needed]), imports, [module.symbol])
    address = library.address(module.symbol)
    step = 2 if checks else 1  # behind each pointer are its bounds: nobody knows them here
    table = ctypes.c_void_p * (2 * step)

    def run(source: int, result: int, total: int, granule: int, keep: Any = library) -> None:
        pointers = table()
        pointers[0], pointers[step] = source, result
        threads.run(address, ctypes.addressof(pointers), total, granule)

    return run

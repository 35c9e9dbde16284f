"""Executable: a compiled graph as one native function over data pointers, and what is known about it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..aval import Aval
from ..errors import CompileError
from . import allocation, entry
from .entry import Arena


class Stages(Protocol):
    """What there is to see of how an executable was made; worked out when somebody looks."""

    @property
    def ir(self) -> str: ...
    @property
    def llvm(self) -> str: ...
    @property
    def launches(self) -> Sequence[Any]: ...


@dataclass(eq=False)
class Executable:
    """`exe(arrays)` runs the graph: one C-contiguous array an input, in order; returns one array an output.

    A donated output is the array of the input it overwrites; the others are fresh. `step` is the address of
    `i64 step(ptr table)`, for callers that build the table of pointers themselves: inputs, fresh outputs, arena.
    """

    name: str
    step: int
    inputs: Sequence[Aval]
    outputs: Sequence[Aval]  # the fresh ones
    fresh: Sequence[int]  # their positions among all outputs
    donate: Mapping[int, int]
    arena_bytes: int
    explain_failure: Callable[[Sequence[np.ndarray]], Exception]  # the error that these inputs raise
    stats: Any
    stages: Stages
    keep: tuple[object, ...]  # owners of the code

    def __post_init__(self) -> None:
        self._arena: Arena | None = entry.arena(self.arena_bytes)
        self._busy = threading.Lock()

    @property
    def ir(self) -> str:
        """Text of the graph that was compiled, after the passes."""
        return self.stages.ir

    @property
    def llvm(self) -> str:
        """LLVM IR of every kernel and of the step that launches them."""
        return self.stages.llvm

    @property
    def launches(self) -> Sequence[Any]:
        """What one call launches, in order."""
        return self.stages.launches

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        self._check(arrays)
        results = [allocation.empty(aval.shape, aval.dtype) for aval in self.outputs]
        alone = self._busy.acquire(blocking=False)
        try:  # a second thread gets an arena of its own
            arena = (self._arena if alone else None) or entry.arena(self.arena_bytes)
            status = self._run(arrays, results, arena)
        finally:
            if alone:
                self._busy.release()
        if status:
            raise self.explain_failure(arrays)
        new = dict(zip(self.fresh, results, strict=True))
        count = len(new) + len(self.donate)
        return [new[k] if k in new else arrays[self.donate[k]] for k in range(count)]

    def give_arena(self) -> Arena:
        """Its arena, which now belongs to the caller. A later call of this object makes one for its own time."""
        with self._busy:
            given, self._arena = self._arena, None
        return given or entry.arena(self.arena_bytes)

    def _check(self, arrays: Sequence[np.ndarray]) -> None:
        if len(arrays) != len(self.inputs):
            raise CompileError(f"{self.name}: takes {len(self.inputs)} arrays, got {len(arrays)}")
        for k, (array, aval) in enumerate(zip(arrays, self.inputs, strict=True)):
            if array.shape != aval.shape or array.dtype != aval.dtype or not array.flags.c_contiguous:
                got = f"{array.dtype}{list(array.shape)}" + ("" if array.flags.c_contiguous else " with strides")
                raise CompileError(f"{self.name}: input {k} must be a C-contiguous {aval}, got {got}")

    def _run(self, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray], arena: Arena) -> int:
        return entry.call_step(self.step, [*(a.ctypes.data for a in (*arrays, *results)), arena.address])

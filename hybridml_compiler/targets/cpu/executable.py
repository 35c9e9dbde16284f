"""Executable: a compiled graph as one native function over data pointers, and the facts known about it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...aval import Aval
from ...errors import CompileError
from ...locks import lock
from ...record import record
from ...sizes.dims import Size
from ..shapes import Shapes
from .python_entry import spec as entry_spec
from .python_entry.spec import Arena
from .runtime import allocation
from .runtime.status import reraise


@record(frozen=False, eq=False)
class Executable:
    """`exe(arrays)` runs the graph: one C-contiguous array per input, in order; returns one array per output.

    A donated output is the array of the input it overwrites; the others are fresh. `step` is the address of
    `i64 step(ptr table)`, for callers that build the table of pointers themselves: inputs, fresh outputs, arena.
    """

    name: str
    step: int
    inputs: Sequence[Aval]
    outputs: Sequence[Aval]  # the fresh ones
    fresh: Sequence[int]  # their positions among all outputs
    donate: Mapping[int, int]
    arena_bytes: Size
    explain_failure: Callable[[Sequence[np.ndarray]], Exception]  # the error that these inputs raise
    stats: Any
    stages: Any  # by which it was made; worked out when somebody looks
    keep: tuple[object, ...]  # owners of the code
    shapes: Shapes | None = None  # how its symbols get values; None where it has none

    def __post_init__(self) -> None:
        self._arena: Arena | None = None if self.shapes else entry_spec.arena(operator.index(self.arena_bytes))
        self._busy = lock()

    @property
    def ir(self) -> str:
        """Text of the graph that was compiled, after the passes."""
        return str(self.stages.ir)

    @property
    def llvm(self) -> str:
        """LLVM IR of every kernel and of the step that launches them."""
        return str(self.stages.llvm)

    @property
    def launches(self) -> Sequence[Any]:
        """The launches of one call, in order."""
        launches: Sequence[Any] = self.stages.launches
        return launches

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        if self.shapes is not None:
            return self._sized(arrays, self.shapes)
        self._check(arrays)
        results = [allocation.empty(aval.shape, aval.dtype) for aval in self.outputs]
        alone = self._busy.acquire(blocking=False)
        try:  # a second thread gets an arena of its own
            arena = (self._arena if alone else None) or entry_spec.arena(self.arena_bytes)
            status = self._run(arrays, results, arena)
        finally:
            if alone:
                self._busy.release()
        return self._finished(status, arrays, results)

    def _sized(self, arrays: Sequence[np.ndarray], shapes: Shapes) -> list[np.ndarray]:
        """A call of a program with symbols; sizes that its guards do not take run a program of their own."""
        values = shapes.values(arrays)
        if not shapes.hold(*values):
            found: list[np.ndarray] = shapes.exact(values)(arrays)
            return found
        *of_results, arena_bytes = shapes.sizes(*values)
        results = [np.empty(n, aval.dtype) for n, aval in zip(of_results, self.outputs, strict=True)]
        self._check(arrays, shapes.inputs(*values))
        table = shapes.table_of(values)
        alone = self._busy.acquire(blocking=False)
        try:
            arena = self._arena if alone else None
            if arena is None or arena.owner.nbytes < arena_bytes + entry_spec.ARENA_ALIGNMENT:
                arena = entry_spec.arena(arena_bytes)
                self._arena = arena if alone else self._arena
            status = self._run((*arrays,), results, arena, table.ctypes.data)
        finally:
            if alone:
                self._busy.release()
        return self._finished(status, arrays, results)

    def _finished(self, status: int, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> list[np.ndarray]:
        if status:
            reraise(status)
            raise self.explain_failure(arrays)
        new = dict(zip(self.fresh, results, strict=True))
        count = len(new) + len(self.donate)
        return [new[k] if k in new else arrays[self.donate[k]] for k in range(count)]

    def give_arena(self) -> Arena:
        """Its arena, which now belongs to the caller. A later call of this object makes one for its own time."""
        with self._busy:
            given, self._arena = self._arena, None
        return given or entry_spec.arena(self.arena_bytes)

    def _check(self, arrays: Sequence[np.ndarray], shapes: Sequence[tuple[int, ...]] | None = None) -> None:
        if len(arrays) != len(self.inputs):
            raise CompileError(f"{self.name}: takes {len(self.inputs)} arrays, got {len(arrays)}")
        for k, (array, aval) in enumerate(zip(arrays, self.inputs, strict=True)):
            shape = aval.shape if shapes is None else shapes[k]
            if array.shape != shape or array.dtype != aval.dtype or not array.flags.c_contiguous:
                got = f"{array.dtype}{list(array.shape)}" + ("" if array.flags.c_contiguous else " with strides")
                raise CompileError(f"{self.name}: input {k} must be a C-contiguous {aval}, got {got}")

    def _run(self, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray], arena: Arena, *more: int) -> int:
        return entry_spec.call_step(self.step, [*(a.ctypes.data for a in (*arrays, *results)), arena.address, *more])

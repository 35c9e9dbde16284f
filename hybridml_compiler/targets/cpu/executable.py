"""A compiled graph as one native function over data pointers, and the facts known about it."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np

from ...errors import CompileError
from ...locks import lock
from ..base import Executable, Interface
from ..shapes import Shapes
from .program import STEP, Loaded
from .python_entry import spec as entry_spec
from .python_entry.spec import Arena
from .runtime import allocation
from .runtime.status import reraise


class CpuExecutable(Executable):
    """`exe(arrays)` runs the graph on C-contiguous arrays.

    `step` is the address of `i64 step(ptr table)`, for callers that build the table of pointers themselves: inputs,
    fresh outputs, arena.
    """

    def __init__(self, program: Loaded, interface: Interface) -> None:
        super().__init__(program, interface)
        self.step, self._library = program.library.address(STEP), program.library
        self._arena: Arena | None = None if self.shapes else entry_spec.arena(operator.index(self.arena_bytes))
        self._busy = lock()

    def run(self, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray] | None:
        if self.shapes is not None:
            return self._sized(arrays, self.shapes)
        self._check(arrays)
        results = [allocation.empty(aval.shape, aval.dtype) for aval in self.outputs]
        return self._step(arrays, results, self.arena_bytes)

    def _sized(self, arrays: Sequence[np.ndarray], shapes: Shapes) -> Sequence[np.ndarray] | None:
        """A call of a program with symbols; sizes that its guards do not take run a program of their own."""
        values = shapes.values(arrays)
        if not shapes.hold(*values):
            found: Sequence[np.ndarray] | None = shapes.exact(values).run(arrays)
            return found
        *of_results, arena_bytes = shapes.sizes(*values)
        results = [np.empty(n, aval.dtype) for n, aval in zip(of_results, self.outputs, strict=True)]
        self._check(arrays, shapes.inputs(*values))
        table = shapes.table_of(values)
        return self._step(arrays, results, arena_bytes, table.ctypes.data)

    def _step(
        self, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray], arena_bytes: int, *table: int
    ) -> Sequence[np.ndarray] | None:
        alone = self._busy.acquire(blocking=False)
        try:  # a second thread gets an arena of its own
            arena = self._arena if alone else None
            if arena is None or arena.owner.nbytes < arena_bytes + entry_spec.ARENA_ALIGNMENT:
                arena = entry_spec.arena(arena_bytes)
                if alone and table:  # one of a fixed size has been given away
                    self._arena = arena
            places = [*[a.ctypes.data for a in (*arrays, *results)], arena.address, *table]
            status = entry_spec.call_step(self.step, places)
        finally:
            if alone:
                self._busy.release()
        if not status:
            return results
        reraise(status)
        return None

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

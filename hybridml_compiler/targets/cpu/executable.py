"""A compiled graph as one native function over data pointers, and the facts known about it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import CompileError
from ..base import Executable, Interface
from ..shapes import Shapes
from .arenas import Arenas, arenas_for
from .program import STEP, Loaded
from .python_entry.spec import Arena
from .python_entry.step_call import call_with_arrays
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
        self._arenas = Arenas()

    def run(self, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray] | None:
        if self.shapes is not None:
            return self._sized(arrays, self.shapes)
        self._check(arrays)
        return self.run_at(arrays)

    def run_at(self, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray] | None:
        """`run` of a program without symbols, on inputs that begin where these arrays do and are not checked."""
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
        arenas = arenas_for(arena_bytes, self._arenas)
        arena = arenas.take(arena_bytes)
        status = call_with_arrays(self.step, (arena.address, *table), (*arrays, *results))
        arenas.give_back(arena)
        if not status:
            return results
        reraise(status)
        return None

    def shared_arena(self, nbytes: int) -> Arena:
        """An arena of at least so many bytes for a native entry."""
        return arenas_for(nbytes, self._arenas).shared(nbytes)

    def _check(self, arrays: Sequence[np.ndarray], shapes: Sequence[tuple[int, ...]] | None = None) -> None:
        if len(arrays) != len(self.inputs):
            raise CompileError(f"{self.name}: takes {len(self.inputs)} arrays, got {len(arrays)}")
        for k, (array, aval) in enumerate(zip(arrays, self.inputs, strict=True)):
            shape = aval.shape if shapes is None else shapes[k]
            if array.shape != shape or array.dtype != aval.dtype or not array.flags.c_contiguous:
                got = f"{array.dtype}{list(array.shape)}" + ("" if array.flags.c_contiguous else " with strides")
                raise CompileError(f"{self.name}: input {k} must be a C-contiguous {aval}, got {got}")

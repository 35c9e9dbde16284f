"""Executable: a compiled graph as one native function over data pointers, and the facts known about it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...aval import Aval
from ...errors import CompileError
from ...locks import lock
from ...sizes.dims import LEAST, Size, is_dim
from ...sizes.guards import Guard
from ...sizes.values import check_of, function_of, number_of
from .python_entry import spec as entry_spec
from .python_entry.spec import Arena
from .runtime import allocation
from .runtime.status import reraise


class Stages(Protocol):
    """The stages by which an executable was made; worked out when somebody looks."""

    @property
    def ir(self) -> str: ...
    @property
    def llvm(self) -> str: ...
    @property
    def launches(self) -> Sequence[Any]: ...


class Shapes:
    """Shapes of the arrays of a call: the values of the symbols, and all sizes that follow from those."""

    def __init__(
        self,
        inputs: Sequence[Aval],
        outputs: Sequence[Aval],
        arena_bytes: Size,
        guards: Sequence[Guard],
        exact: Callable[[Mapping[str, int]], Executable],
        most: int = 64,
    ) -> None:
        """`exact` compiles for given sizes; so many of these programs are kept."""
        where: dict[str, tuple[int, int]] = {}
        for k, aval in enumerate(inputs):
            for axis, size in enumerate(aval.shape):
                name = str(size)
                if is_dim(size) and name.isidentifier():
                    where.setdefault(name, (k, axis))
        self.names = sorted(where, key=number_of)
        self.table = max(map(number_of, self.names), default=-1) + 1
        self.where = [where[name] for name in self.names]
        self.guards = guards
        self.hold = check_of(self.names, [*guards, *(f"{name} >= {LEAST}" for name in self.names)])
        self.inputs = function_of(self.names, [aval.shape for aval in inputs])
        self.sizes = function_of(self.names, [*(aval.shape for aval in outputs), arena_bytes])
        self._exact, self._most = exact, most
        self._programs: dict[tuple[int, ...], Executable] = {}

    def values(self, arrays: Sequence[np.ndarray]) -> tuple[int, ...]:
        return tuple([arrays[k].shape[axis] for k, axis in self.where])

    def table_of(self, values: tuple[int, ...]) -> np.ndarray:
        """The values as compiled code reads them."""
        table = np.zeros(self.table, np.int64)
        for name, value in zip(self.names, values, strict=True):
            table[number_of(name)] = value
        return table

    def exact(self, values: tuple[int, ...]) -> Executable:
        """The program for these sizes alone."""
        found = self._programs.get(values)
        if found is None:
            if len(self._programs) >= self._most:
                self._programs.pop(next(iter(self._programs)))
            found = self._programs[values] = self._exact(dict(zip(self.names, values, strict=True)))
        return found


@dataclass(eq=False)
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
    stages: Stages
    keep: tuple[object, ...]  # owners of the code
    shapes: Shapes | None = None  # how its symbols get values; None where it has none

    def __post_init__(self) -> None:
        self._arena: Arena | None = None if self.shapes else entry_spec.arena(operator.index(self.arena_bytes))
        self._busy = lock()

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
        """The launches of one call, in order."""
        return self.stages.launches

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
            return shapes.exact(values)(arrays)
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

"""Plan: launches in order and where each of their operands lives. All that code generation needs.

Operands live in inputs, outputs, constants or the arena. A donated output has no memory of its own: it is written over
its input. The arena starts with the status word of the index checks, if there are any.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

import numpy as np

from ..aval import Aval
from ..graph.ir import Node
from ..loops.ir import Kernel, KernelSpec
from ..once import lazy
from ..record import record
from ..sizes.dims import Size, hint, symbols_of
from ..sizes.values import number_of
from .memory import held

STATUS_BYTES = 64  # a cache line of its own for the status word: 0, or 1 when an index was out of range

Base = Literal["input", "output", "constant", "arena", "sizes"]


@record
class BufferRef:
    """Byte `offset` of input, output or constant number `number`, or of the arena; or the table of sizes."""

    base: Base
    number: int = 0
    offset: int = 0

    def __repr__(self) -> str:  # seven times as fast as that of records; sources of steps have thousands
        return f"BufferRef(base={self.base!r}, number={self.number!r}, offset={self.offset!r})"


SIZES = BufferRef("sizes")


@record
class Copy(KernelSpec):
    """memcpy: an output that is an input or constant, or state that could not be overwritten in place."""

    nbytes: Size

    @property
    def specs(self) -> tuple[KernelSpec, ...]:
        return ()

    @property
    def symbols(self) -> list[str]:
        return sorted(map(str, symbols_of(self.nbytes)))


@record
class Launch:
    spec: KernelSpec
    operands: tuple[BufferRef, ...]
    reasons: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    nbytes: int = 0
    nodes: tuple[Node, ...] = ()  # that it computes, in the order of the graph
    overwrites: bool = False  # an input

    @property
    def specs(self) -> tuple[KernelSpec, ...]:
        """Specs of a chain or region, or its only one."""
        return self.spec.specs

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The loop nests that it runs, alone or after a library call."""
        return self.spec.nests

    @property
    def checked(self) -> bool:
        return self.spec.checked


def goes_on(launch: Any, before: Any) -> bool:
    """Whether a launch finishes what the one before has begun: it computes nothing else."""
    return before is not None and bool(launch.nodes) and set(launch.nodes) <= set(before.nodes)


@record
class Buffer:
    """Memory in the arena, from the launch that writes it first to the one that reads it last."""

    nbytes: Size
    offset: Size
    first: int
    last: int
    what: str  # the operation whose result it holds, "copy of an input", "slots" of a chain, "memory" of a launch
    where: str  # the user's line
    node: Node | None = None  # whose value it holds; none of slots and memory


@record(frozen=False)
class Plan:
    launches: list[Launch]
    constants: list[np.ndarray]
    inputs: list[Aval]
    outputs: list[Aval]  # those with memory of their own, in order
    fresh: list[int]  # their positions among the graph's outputs
    arena_bytes: int
    buffers: list[Buffer] = field(default_factory=list)  # in the arena
    slots: int = 1  # that each launch is cut into, with an arena for each (see batch_split.py)

    @lazy
    def symbols(self) -> list[str]:
        """The symbols of its sizes and positions: those of its inputs, and of the steps of loops around it."""
        found = {str(s) for aval in self.inputs for s in symbols_of(*aval.shape)}
        for launch in self.launches:
            found.update(launch.spec.symbols, map(str, symbols_of(*(place.offset for place in launch.operands))))
        return sorted(found, key=number_of)

    @property
    def checked(self) -> bool:
        return any(launch.checked for launch in self.launches)

    @property
    def nbytes(self) -> Size:
        """Bytes that a call needs: its inputs, its results, constants and the arena."""
        given = [aval.nbytes for aval in (*self.inputs, *self.outputs)]
        return sum([*given, *(data.nbytes for data in self.constants)]) + self.arena_bytes

    @property
    def held(self) -> dict[str, int]:
        """The bytes of the arena that are in use at the launch where they are most, by source line, most first."""
        return held([(b.first, b.last, hint(b.nbytes), b.where) for b in self.buffers])

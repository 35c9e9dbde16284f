"""Kernels of users on a GPU: the column `cuda` of a row, launched where the row's operation stands in a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ...aval import Aval
from ...errors import ArgumentError
from ...graph.ir import Graph
from ...ops.op import Op
from .driver import Argument, Driver, Extent, Pointer, Stream


class Machine(Protocol):
    """The part of a machine (machine.py) that a launch needs."""

    driver: Driver
    stream: Stream

    def memory(self, array: np.ndarray) -> Pointer:
        """The memory of a constant."""

    def new(self, nbytes: int) -> Pointer:
        """New memory, for as long as the call takes."""

    def loaded(self, source: str, entry: str) -> Any:
        """The function of a user's source."""


def has_kernel(graph: Graph) -> bool:
    """Whether the operation of a graph has a user's code for a GPU."""
    op = graph.outputs[0].op
    return op is not None and op.cuda is not None


def launch(machine: Machine, graph: Graph, memories: Sequence[Pointer]) -> None:
    """Launches the kernel of the graph's one operation on the memory of its inputs and outputs."""
    first = graph.outputs[0]
    op = first.op
    assert op is not None
    place = dict(zip((*graph.inputs, *graph.outputs), memories, strict=False))
    given = [place[n] if n.value is None else machine.memory(n.value) for n in first.inputs]
    params = {name: value for name, value in first.params.items() if not op.results or name != "result"}
    inputs = [_type(node.aval) for node in first.inputs]
    made = op.infer_from([node.aval for node in first.inputs], {**params, **({"result": None} if op.results else {})})
    results = [_type(aval) for aval in (made if op.results else (made,))]
    wanted = {int(node.params.get("result") or 0): place[node] for node in graph.outputs}
    given += [wanted[k] if k in wanted else machine.new(int(t.nbytes)) for k, t in enumerate(results)]  # unread ones
    types = [*inputs, *results]
    if not any(t.size for t in results):
        return
    grid, block, arguments = _told(op, op.cuda.launch(*types, **params))
    source, entry = op.cuda.source(types, arguments)
    where = {id(t): pointer for t, pointer in zip(types, given, strict=True)}
    passed = [_argument(op, a, where) for a in op.cuda.passed(arguments)]
    machine.driver.launch(machine.loaded(source, entry), grid, block, passed, machine.stream)


def _type(aval: Aval) -> Aval:
    """A type as an object of its own, which stands for one array."""
    return Aval(aval.shape, aval.dtype)


def _told(op: Op, found: Any) -> tuple[Extent, Extent, Sequence[Any]]:
    if not isinstance(found, tuple) or len(found) != 3:
        raise ArgumentError(f"{op.name}: launch= returns (grid, block, arguments), as a CuPy kernel is called")
    grid, block, arguments = found
    return _extent(op, grid), _extent(op, block), arguments


def _extent(op: Op, size: Any) -> Extent:
    sizes = (size,) if isinstance(size, int) else tuple(size)
    if not 1 <= len(sizes) <= 3 or not all(isinstance(n, int | np.integer) and n > 0 for n in sizes):
        raise ArgumentError(f"{op.name}: grid and block of a launch are one to three positive integers, got {size!r}")
    return tuple(map(int, sizes))


def _argument(op: Op, value: Any, where: dict[int, Pointer]) -> Argument:
    if id(value) in where:
        return where[id(value)]
    if isinstance(value, float):
        return np.float64(value)
    if isinstance(value, int | np.generic):
        return value
    raise ArgumentError(
        f"{op.name}: the arguments of a launch are types that launch= was given and numbers, got {type(value).__name__}"
    )

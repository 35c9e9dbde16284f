"""Calls of NumPy as launches: a graph of one operation, which the interpreter runs at its place in the step.

Where the row has a routine (ops/routines.py), a target may call its own instead, and NumPy where that refuses a matrix.

The launch holds the graph as text, so that its code can be kept on disk and run by any process. Operands are the arrays
that the graph takes, then those of its results; numbers that the program knows are in the text.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..aval import Aval
from ..graph.ir import Graph, Node, apply, input_node
from ..graph.text import print_graph
from ..loops.ir import KernelSpec
from ..once import lazy
from ..ops.custom import native_sizes
from ..ops.routines import sizes
from ..record import record
from ..sizes.dims import is_dim


@record
class Routine:
    """A target's own routine for a row, or the native code of a user's: the sizes that it is told, and the operand that
    each of its arrays is, -1 for a result that nobody reads."""

    name: str  # of the row, or the symbol of native code
    dtype: str  # NumPy's character; empty for native code
    sizes: tuple[int, ...]
    places: tuple[int, ...]


@record
class HostCall(KernelSpec):
    text: str  # of the graph
    operands: int
    results: int
    routine: Routine | None = None

    @lazy
    def name(self) -> str:
        """The name of the operation."""
        return f"\n{self.text}".rpartition("\ngraph ")[2].partition("(")[0]  # its bodies come first

    @property
    def checked(self) -> bool:
        return True

    def written(self, operands: int) -> list[bool]:
        return [False] * self.operands + [True] * self.results

    def part_counts(self, takes_epilogue: Callable[[Any], bool]) -> set[int]:
        return set()

    def __str__(self) -> str:
        return f"NumPy's {self.name}" if self.routine is None else f"{self.name} by a routine"


def opaque_of(results: Sequence[Node]) -> tuple[HostCall, tuple[Node, ...]]:
    """The launch that computes these results of one operation, and the nodes that it takes and makes.

    Sizes that come with the call are fixed here, which is a guard of the program.
    """
    first = results[0]
    assert first.op is not None
    taken = tuple(dict.fromkeys(n for n in first.inputs if not _is_number(n)))
    inputs = {node: input_node(fixed_from(0, node.aval)) for node in taken}
    operands = [inputs.get(node, node) for node in first.inputs]
    made = [apply(first.op, operands, fixed_params(node.params)) for node in results]
    graph = Graph(tuple(inputs.values()), tuple(made), first.op.name)
    routine = _routine(first, operands, taken, results)
    return HostCall(print_graph(graph), len(taken), len(results), routine), (*taken, *results)


def _routine(first: Node, operands: Sequence[Node], taken: Sequence[Node], results: Sequence[Node]) -> Routine | None:
    op = first.op
    if op is None or any(map(_is_number, first.inputs)):
        return None
    params = {p: value for p, value in first.params.items() if p in op.params and p != "result"}
    avals = [node.aval for node in operands]
    dtype, found = "", None  # of native code there is one for each signature
    if op.routine is not None:
        name, dtype, found = op.name, str(avals[0].dtype.char), sizes(op.routine, avals, params)
    elif op.native is not None and len(results) == max(len(op.results), 1):  # it writes all of them
        ordered = sorted(results, key=lambda node: int(node.params.get("result", 0)))
        avals += [fixed_from(0, node.aval) for node in ordered]
        name, found = op.native(avals, params) or "", native_sizes(avals, params)
    else:
        return None
    if not name or found is None:
        return None
    wanted = {node.params.get("result", 0): len(taken) + k for k, node in enumerate(results)}
    given = [taken.index(node) for node in first.inputs]
    places = (*given, *(wanted.get(k, -1) for k in range(len(op.results) or 1)))
    return Routine(name, dtype, found, places)


def _is_number(node: Node) -> bool:
    return node.is_constant and not node.shape


def fixed_from(axis: int, aval: Aval) -> Aval:
    """The type with a number for every size from an axis on."""
    return Aval((*aval.shape[:axis], *_number(aval.shape[axis:])), aval.dtype, aval.weak)


def fixed_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with a number for every size."""
    return {k: _number(v) for k, v in params.items()}


def _number(value: Any) -> Any:
    """A parameter or shape with a number for every size."""
    if is_dim(value):
        return operator.index(value)
    return tuple(map(_number, value)) if type(value) is tuple else value

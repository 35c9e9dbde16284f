"""Operations without a kernel by NumPy, for the walk over a plan: a launch holds a graph of one operation as text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ..errors import HybridmlError
from ..graph.interpret import interpret
from ..graph.ir import Graph
from ..graph.text import parse_graph


@lru_cache(1024)
def graph_of(text: str) -> Graph:
    """The graph of a launch (schedule/host_call.py)."""
    return parse_graph(text)


def run_call(graph: Graph, memories: Sequence[np.ndarray]) -> bool:
    """Runs an operation on the bytes of its operands and results; False where it refuses what it is given."""
    avals = [node.aval for node in (*graph.inputs, *graph.outputs)]
    arrays = [typed(m, a.dtype, a.size).reshape(a.shape) for m, a in zip(memories, avals, strict=False)]
    count = len(graph.inputs)
    try:
        results = interpret(graph, arrays[:count])
    except HybridmlError:  # whoever runs the program explains it, as a failed check
        return False
    for out, found in zip(arrays[count:], results, strict=True):
        out[...] = found
    return True


def typed(memory: np.ndarray, dtype: np.dtype, size: int) -> np.ndarray:
    """The first elements of some bytes as a flat array; a buffer has one element, if the array has none."""
    whole = memory[: size * dtype.itemsize]
    return whole.view(dtype) if whole.size else np.zeros(size, dtype)

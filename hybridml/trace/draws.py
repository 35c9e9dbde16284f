"""Random numbers that a compiled program draws: their blocks are reserved before it runs, as eager code does.

A program reads the state of a generator where it starts, and stores the next one where it ends. Were that all, two
threads would draw the same numbers. So the program gets a copy of the state, and the generator is advanced at once by
the blocks that the program is going to use, which its graph says. Where it does not (rejection loops, `manual_seed`, a
branch on a number that was drawn), `drawing` is held during the whole call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from hybridml_compiler.graph import ir

from ..shared import drawing
from ..tensor import Tensor


class Draw(NamedTuple):
    """What a program draws from one generator: the position of its state among the inputs, the state, and what is
    added to it, (0, blocks).
    """

    at: int
    state: Tensor
    blocks: np.ndarray

    def take(self) -> np.ndarray:
        """The state that the program starts from; whoever draws next starts after its blocks."""
        array = self.state._array
        with drawing:
            start: np.ndarray = array.copy()
            np.add(array, self.blocks, out=array)
        return start

    def give_back(self, start: np.ndarray) -> None:
        """After a program that did not run to its end: its blocks, unless others have drawn meanwhile."""
        array = self.state._array
        with drawing:
            if np.array_equal(array, start + self.blocks):
                np.copyto(array, start)


def give_back(taken: Iterable[tuple[Draw, np.ndarray]]) -> None:
    """Give back what several draws have taken."""
    for draw, start in taken:
        draw.give_back(start)


def added(node: ir.Node, start: ir.Node) -> np.ndarray | None:
    """What a graph adds to the state `start` on the way to `node`; None where it does more than to add constants."""
    total = np.zeros(2, np.uint64)
    while node is not start:
        if node.op is None or node.op.name != "add":
            return None
        rest, step = node.inputs if node.inputs[1].is_constant else node.inputs[::-1]
        if step.value is None or step.value.shape != total.shape or step.value.dtype != total.dtype:
            return None
        total = total + step.value
        node = rest
    return total

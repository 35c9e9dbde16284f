"""Random numbers that a compiled program draws: their blocks are reserved before it runs, as eager code does.

A program reads the state of a generator where it starts, and stores the next one where it ends. Were that all, two
threads would draw the same numbers. So the program gets a copy of the state, and the generator is advanced at once by
the blocks that the program is going to use, which its graph says. Where it does not (rejection loops, `manual_seed`, a
branch on a number that was drawn), `drawing` is held during the whole call.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hybridml_compiler.graph import ir

from ...core.autodiff.replay import source
from ...core.tensor import Tensor


class Draw(NamedTuple):
    """The draws of a program from one generator: the position of its state among the inputs, the state, and the number
    of blocks.
    """

    at: int
    state: Tensor
    blocks: int

    def take(self, start: np.ndarray) -> int:
        """Writes the state that the program starts from into `start`; whoever draws next starts after its blocks.
        Returns the counter as it is then.
        """
        return source().take(self.state, self.blocks, start)

    def give_back(self, after: int) -> None:
        """Undoes `take`, which returned `after`: the program did not run to its end. Not if others have drawn since."""
        source().give_back(self.state, self.blocks, after)


def blocks_between(start: ir.Node, node: ir.Node) -> int | None:
    """Blocks by which a graph advances a state `start` on its way to `node`; None where it does more than that."""
    total = np.zeros(2, np.uint64)
    while node is not start:
        if node.op is None or node.op.name != "add":
            return None
        rest, step = node.inputs if node.inputs[1].is_constant else node.inputs[::-1]
        if step.value is None or step.value.shape != total.shape or step.value.dtype != total.dtype:
            return None
        total = total + step.value
        node = rest
    return None if total[0] else int(total[1])

"""Concatenations piece by piece: each piece is stored where it belongs, and no element asks which piece it is in.

    y = concat(a, b, c), axis 1     y[i, j]      = a[i, j]          loops over the shape of a piece, a store per piece
                                    y[i, j + n]  = b[i, j]
                                    y[i, j + 2n] = c[i, j]

Read element by element, y is a chain of choices as long as the number of pieces ([Note: Lowering]). What the pieces
compute from the same operands is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate, groupby

from ...graph.ir import Node
from ...loops.ir import Kernel, Store, serial
from .. import cost
from ..fusion.group import Group
from ..kernels.library import Schedule
from .lower import GroupLowering


def in_pieces(group: Group, overwrites: Mapping[Node, Node]) -> bool:
    """Whether the group is nothing but concatenations of pieces of the same shapes, in memory of their own."""
    first, *others = group.roots
    shapes = [piece.shape for piece in first.inputs]
    return (
        group.call is None
        and all(root.op is not None and root.op.name == "concat" for root in group.roots)
        and all([piece.shape for piece in root.inputs] == shapes for root in others)
        and not any(root in overwrites or piece in group.roots for root in group.roots for piece in root.inputs)
        and (len(set(shapes)) == 1 or first.aval.hinted.size * len(shapes) >= cost.PIECES_SIZE)
    )


def lower_pieces(
    group: Group,
    in_memory: Callable[[Node], bool],
    schedule: Schedule,
) -> Iterator[tuple[Kernel, tuple[Node, ...]]]:
    """Kernels of a few pieces each, with the nodes whose memory each is given."""
    shapes = [piece.shape for piece in group.roots[0].inputs]
    most = max(cost.PIECES_STORES // len(group.roots), 1)
    for shape, run in groupby(range(len(shapes)), key=shapes.__getitem__):
        numbers = list(run)
        for k in range(0, len(numbers) if 0 not in shape else 0, most):
            yield _kernel(group, shape, numbers[k : k + most], in_memory, schedule)


def _kernel(
    group: Group,
    shape: tuple[int, ...],
    numbers: list[int],
    in_memory: Callable[[Node], bool],
    schedule: Schedule,
) -> tuple[Kernel, tuple[Node, ...]]:
    lowering = GroupLowering(group, in_memory, {})
    index, vars_ = lowering.loop_vars(shape)
    stores = []
    for root in group.roots:
        axis = root.params["axis"]
        starts = [0, *accumulate(piece.shape[axis] for piece in root.inputs)]
        for k in numbers:
            at = (*index[:axis], lowering.s.add(index[axis], starts[k]), *index[axis + 1 :])
            value = lowering.at(root.inputs[k], index)
            stores.append(Store(lowering.buffer(root, "out"), lowering.flat(at, root.shape), value))
    kernel = lowering.finish(serial(vars_, stores), schedule)
    return kernel, tuple(lowering.operands)

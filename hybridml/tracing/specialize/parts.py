"""Parts of arrays: elements that follow each other in memory, as `a[3]` or `a[3:5]` of rows.

A segment is given them as arrays of their own, so that the rounds of a loop, which differ in the row that they read,
are one program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from hybridml_compiler.aval import CPU
from hybridml_compiler.graph import ir
from hybridml_compiler.once import lazy
from hybridml_compiler.record import record


@record
class Part:
    """Elements of `base` from the one at `first` on."""

    base: ir.Node
    first: int
    shape: tuple[int, ...]
    size: int

    def of(self, array: np.ndarray) -> np.ndarray:
        """The part of the array that stands for the base."""
        if self._index is not None:
            found: np.ndarray = array[self._index]
            return found
        return array.reshape(-1)[self.first : self.first + self.size].reshape(self.shape)

    @lazy
    def _index(self) -> tuple[Any, ...] | None:
        """The index of the part, where it is a row, or an element, as it is: three times as fast."""
        axes = len(self.base.shape) - len(self.shape)
        if axes < 0 or self.base.shape[axes:] != self.shape:
            return None
        return (*map(int, np.unravel_index(self.first, self.base.shape)[:axes]), ...)


def parts_of(nodes: Iterable[ir.Node], is_base: Callable[[ir.Node], bool]) -> dict[ir.Node, Part]:
    """The parts among these nodes, operands first, that are views of bases or of views of them."""
    found: dict[ir.Node, Part] = {}
    for node in nodes:
        part = _part(node, found, is_base)
        if part is not None:
            found[node] = part
    return {node: part for node, part in found.items() if part.base.aval.size > node.aval.size}


def _part(node: ir.Node, found: dict[ir.Node, Part], is_base: Callable[[ir.Node], bool]) -> Part | None:
    if node.op is None or node.kind != "movement" or node.aval.symbolic or node.aval.device != CPU:
        return None
    same = node.op.element_map == "flat"  # elements in the same order
    if not same and not (node.op.is_view and "starts" in node.params):
        return None
    (below,) = node.inputs
    before = found.get(below)
    if before is None:
        if not is_base(below) or below.aval.symbolic:
            return None
        before = Part(below, 0, below.shape, below.aval.size)
    first = 0 if same else _first(before.shape, node)
    return None if first is None else Part(before.base, before.first + first, node.shape, node.aval.size)


def _first(shape: tuple[int, ...], node: ir.Node) -> int | None:
    """The place of the first element of a slice; None where its elements do not follow each other."""
    starts, steps = node.params["starts"], node.params["steps"] or (1,) * len(shape)
    if node.aval.size == 0 or any(type(start) is not int for start in starts):
        return None
    place, one = 0, True
    for start, step, size, length in zip(starts, steps, shape, node.shape, strict=True):
        if not one and length != size:
            return None
        if length > 1 and step != 1:
            return None
        place, one = place * size + start, one and length == 1
    return place

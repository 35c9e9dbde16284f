"""Transposed right operands of many small products: turned once, in memory, and not by every product as it packs them.

    64 times: gates = h @ W.mT      ->      turned = W.mT; 64 times: gates = h @ turned

A recurrent layer multiplies a few rows by one weight at every step, a batch of strided matrices by it for every matrix.
"""

from __future__ import annotations

from collections.abc import Iterable

from ... import dtypes
from ...graph.facts import moved
from ...graph.ir import Node
from ...sizes.dims import hint
from .. import cost
from ..kernels.gemm import product_of


def worth_turning(node: Node, readers: Iterable[Node]) -> bool:
    """Whether products pack this view of memory so often that a copy along their columns is cheaper."""
    if moved(node) is None or node.aval.ndim != 2:
        return False
    return sum(packings(node, reader) for reader in readers) >= cost.TURN_PACKINGS


def packings(node: Node, reader: Node) -> int:
    """Number of times that a product turns this operand."""
    if reader.kind != "contraction" or reader.inputs[1] is not node:
        return 0
    found = product_of(reader, lambda n: moved(n) is None)
    if found is None:
        return 0
    product = found[0]
    plain = product.dtype is dtypes.float32 and product.stored is None
    packs = plain and product.b.transposed and not any(product.b.batch)
    return hint(product.matrices) if packs and hint(product.m) > cost.UNPACKED_ROWS else 0

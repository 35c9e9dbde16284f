"""Matrix products in the form that leaves no copy: the transpose of `a @ b` is `b.T @ a.T`.

A weight gradient arrives as the transpose of a product. The product can write the transpose itself, since operands are
read transposed for nothing; a transposed result would have to be gathered element by element. Sums run over the same
products in the order that the library chooses, as for any contraction.
"""

from __future__ import annotations

from dataclasses import replace

from ..graph.ir import Graph, Node, users
from ..graph.rewrite import Rule, by_op, make, rewrite
from .patterns import is_op, sample


def _swapped(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def _transposed_product(node: Node) -> Node | None:
    (product,) = node.inputs
    if not is_op(product, "matmul") or node.params["axes"] != _swapped(len(node.shape)):
        return None
    a, b = product.inputs
    if len(a.shape) != len(node.shape) or len(b.shape) != len(node.shape):
        return None
    axes = _swapped(len(node.shape))
    return make("matmul", make("permute_dims", b, axes=axes), make("permute_dims", a, axes=axes))


CONTRACTION_RULES = (
    Rule("permute_dims(a @ b) -> permute_dims(b) @ permute_dims(a)", ("permute_dims",), _transposed_product, lambda: [
        make("permute_dims", make("matmul", sample("i8", 3, 4), sample("i8", 4, 2)), axes=(1, 0)),
        make("permute_dims", make("matmul", sample("i8", 2, 3, 4), sample("i8", 2, 4, 2)), axes=(0, 2, 1)),
    ]),
)  # fmt: skip


def transpose_products(graph: Graph) -> Graph:
    """Let products write their transpose, where nothing else reads the product itself."""
    readers = users(graph.nodes())
    outputs = set(graph.outputs)

    def alone(node: Node) -> Node | None:
        product = node.inputs[0]
        return None if product in outputs or len(readers.get(product, ())) > 1 else _transposed_product(node)

    (rule,) = CONTRACTION_RULES
    return rewrite(graph, by_op([replace(rule, match=alone)]))

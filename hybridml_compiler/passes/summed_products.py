"""Products that the steps of a loop only add up, as gradients of weights are, as one product over the rows of all
steps: a step would read and write the whole sum ([Note: Fusion]).

    total + left.T @ right      a step of a loop        ->      start + lefts.T @ rights        after it
    total + column * row        the same, of one row

`lefts` and `rights` are stacks: those that the loop takes slices of, parts of an array of which step t reads `x[t]`, or
else given out by the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.ir import Node, topological
from ..graph.rewrite import make
from ..record import record
from ..sizes.dims import steps_of
from .loop_parts import Loop, Optimize, Results, base_of, stack_of


@record
class _Product:
    """`left.T @ right` of each step, turned round after it if `turned`: `rows` of `sizes`, in the memory of `bases`."""

    bases: tuple[Node, Node]
    rows: int
    sizes: tuple[int, int]
    turned: bool

    def of(self, stacks: Sequence[Node]) -> Node:
        """The sum over all steps."""
        left, right = (
            make("reshape", s, shape=(s.shape[0] * self.rows, n)) for s, n in zip(stacks, self.sizes, strict=True)
        )
        whole = make("matmul", _turned(left), right)
        return _turned(whole) if self.turned else whole


def one_product(node: Node, operands: Sequence[Node], read: list[int], optimized: Optimize) -> Results:
    """The results of a loop, with such sums as products after it; none where it has no such sum."""
    loop = Loop.of(node, operands)
    if loop.counts or loop.go is not None:
        return {}
    found = {k: products for k in range(len(loop.carries)) if (products := _added(loop, k))}
    if not found:
        return {}
    first, kept = len(loop.carries), [k for k in range(len(loop.carries)) if k not in found]
    starts = {k: loop.carries[k][0] for k in found}
    bases = dict.fromkeys(base for products in found.values() for p in products for base in p.bases)
    stacks = {base: stack.array for base in bases if (stack := stack_of(loop, base)) is not None and stack.in_order}
    at = {k: position for position, k in enumerate([*kept, *range(first, first + len(loop.ys))])}
    given_out = {base: len(at) + k for k, base in enumerate(base for base in bases if base not in stacks)}
    loop.ys = [*loop.ys, *given_out]
    loop.carries = [loop.carries[k] for k in kept]
    nodes = loop.nodes(sorted({*(at[k] for k in read if k in at), *given_out.values()}), optimized)
    stacks |= {base: nodes[k] for base, k in given_out.items()}
    sums = dict(starts)
    for k, products in found.items():
        for product in products:
            sums[k] = make("add", sums[k], product.of([stacks[base] for base in product.bases]))
    return {k: nodes[at[k]] if k in at else sums[k] for k in read}


def _turned(node: Node) -> Node:
    return node.inputs[0] if _is_turned(node) else make("permute_dims", node, axes=(1, 0))


def _is_turned(node: Node) -> bool:
    return node.op is not None and node.op.name == "permute_dims" and node.params["axes"] == (1, 0)


def _added(loop: Loop, k: int) -> list[_Product]:
    """The products that a step adds to carry k, if that is all that happens to it."""
    _, own, after = loop.carries[k]
    values = _terms(after)
    if values.count(own) != 1 or after is own or after.dtype.kind != "f":
        return []
    values.remove(own)
    others = [*(end for *_, end in (*loop.carries[:k], *loop.carries[k + 1 :])), *loop.others, *values]
    reached = set(topological(others))
    products = [_product(value) for value in values]
    if own in reached or after in reached or any(p is None for p in products):
        return []
    return [p for p in products if p is not None]


def _terms(value: Node) -> list[Node]:
    """The values that additions make a value of."""
    if value.op is None or value.op.name != "add" or any(n.shape != value.shape for n in value.inputs):
        return [value]
    return [term for n in value.inputs for term in _terms(n)]


def _product(value: Node) -> _Product | None:
    product = value.inputs[0] if _is_turned(value) else value
    name = None if product.op is None else product.op.name
    if name not in ("matmul", "multiply") or len(product.shape) != 2 or steps_of(*product.shape):
        return None
    (m, n), (left, right), rows = product.shape, product.inputs, 1
    if name == "matmul":
        if len(left.shape) != 2 or len(right.shape) != 2:
            return None
        left, rows = _turned(left), left.shape[1]
    else:
        left, right = (right, left) if left.shape in ((n,), (1, n)) else (left, right)
        if left.shape != (m, 1) or right.shape not in ((n,), (1, n)):
            return None
    if steps_of(rows) or rows * (m + n) > 2 * m * n:  # stacks would take more memory traffic than the sum
        return None
    return _Product((base_of(left), base_of(right)), rows, (m, n), product is not value)

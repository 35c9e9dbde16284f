"""Prologues: the left operand of a matrix product is computed while it is packed, and has no memory of its own.

A product packs some rows of A, for a block of k, before it multiplies them by all of its panels of B. Elementwise work
above memory (normalisation by statistics in memory, dropout, a gather of rows) is computed then:

    kernel(b0: f32[m*k] out, b1: f32[m*k], b2: f32[m]) { for i0 < m { for i1 < k vector { b0[i0*k + i1] = ... } } }

It is an ordinary kernel over the whole of A. A backend emits it with both ranges given at run time, as epilogues are,
and with its rows as far apart as packed ones; where A is read transposed, the loops are over its columns and its rows.
The bits are those of a kernel of its own.

A product that is cut into blocks of columns computes A once for each of them, and waits for the operands of A;
otherwise A would be written once. Reading it then costs next to nothing: rows are fetched while others are multiplied.
So bytes decide ([Note: Prologues]). An operand that exists only for A would have to be written in its place, as the
result of a product whose epilogue computes A, or random bits: then nothing is gained.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from ...graph.body import steps_in
from ...graph.facts import element_cost
from ...graph.ir import Node
from ...loops.builder import LoopBuilder
from ...loops.ir import For, Kernel, Store, extent
from ...record import record, replace
from .. import cost
from ..kernels.gemm import Product
from ..kernels.library import Capabilities, Schedule
from ..lowering.lower import GroupLowering
from .epilogue import over_matrix, splits
from .group import Group, expression_of

MIN_COLUMNS = 16  # of the loop in lanes
SMALL = 16  # an operand so many times smaller than A is loaded once for many elements of it


@record(frozen=False)
class Choice:
    computed: dict[Node, str]  # left operand that its products compute, and why
    kept: dict[Node, str]  # that they could, and why not


# ---- lowering


def lower_prologue(
    group: Group,
    in_memory: Callable[[Node], bool],
    overwrites: Mapping[Node, Node],
    schedule: Schedule,
) -> tuple[Kernel, tuple[Node, ...]]:
    """The kernel that computes A, and the nodes whose memory it is given; the first is A itself."""
    assert group.call is not None
    product, left, _ = group.call
    assert isinstance(product, Product)
    lowering = GroupLowering(Group([left], group.reads, group.inlined), in_memory, overwrites)
    lowering.buffer(left, "out")
    kernel = over_matrix(lowering, [left], *_extents(product), schedule)
    return kernel, tuple(lowering.operands)


def with_pitch(kernel: Kernel, pitch: int) -> Kernel:
    """The kernel with its rows so many elements apart."""
    (rows,) = kernel.body
    assert isinstance(rows, For)
    (columns,) = rows.body
    assert isinstance(columns, For)
    (store,) = columns.body
    assert isinstance(store, Store)
    s = LoopBuilder()
    target = replace(store.buffer, size=extent(rows.var) * pitch)
    store = replace(store, buffer=target, index=s.add(s.mul(rows.var, pitch), columns.var))
    buffers = tuple(target if buffer.name == target.name else buffer for buffer in kernel.buffers)
    return replace(kernel, buffers=buffers, body=(replace(rows, body=(replace(columns, body=(store,)),)),))


def _extents(product: Product) -> tuple[int, int]:
    """Extents of the loops, in the order of A's memory: its columns and rows where it is transposed."""
    return (product.k, product.m) if product.a.transposed else (product.m, product.k)


def _is_whole(product: Product, node: Node) -> bool:
    """Whether A is one matrix, and all of the node. The matrices of a batch stay in cache in another way
    (batch_fusion.py)."""
    outer, inner = _extents(product)
    whole = product.matrices == 1 and inner >= MIN_COLUMNS and splits(node.shape, outer, inner)
    return whole and product.a.offset == 0 and product.a.leading == inner


# ---- decision


def choose_prologues(
    order: Sequence[Node],
    outputs: Collection[Node],
    materialised: Mapping[Node, str],
    groups: Sequence[Group],
    owner: Mapping[Node, Group],
    overwritten: Collection[Node],
    target: Capabilities,
) -> Choice:
    """The prologues of products. `overwritten`: inputs; a product should not delay the kernels that write them."""
    readers: dict[Node, list[Group]] = {}
    for group in groups:
        for node in group.reads:
            if owner.get(node) is not group:
                readers.setdefault(node, []).append(group)
    far = sum(node.aval.hinted.nbytes for node in materialised) > cost.CACHE_BYTES
    kept, choice, written_over = dict(materialised), Choice({}, {}), set(overwritten)
    for node in order:
        kind = node.kind if node.op is not None else ""
        if node not in kept or node in outputs or kind not in ("elementwise", "gather") or node not in readers:
            continue
        products = [_computing(group, node, materialised) for group in readers[node]]
        if None in products:
            if any(products):
                choice.kept[node] = "which is read elsewhere as well"
            continue
        times = [target.computes_left(product) for product in products if product is not None]
        if not all(times):
            continue
        del kept[node]
        expression = expression_of(node, kept)
        leaves, inlined = expression.reads, expression.inlined
        large = {leaf for leaf in leaves if leaf.aval.hinted.size * SMALL > node.aval.hinted.size}
        if large & written_over or any(map(steps_in, (node, *inlined))):  # products of given sizes know no steps
            kept[node] = materialised[node]
            continue
        new = [n for n in leaves if n in owner and not _needed(n, node, outputs, readers, owner)]
        alone = len(owner[node].roots) == 1
        loaded = sum(min(leaf.aval.hinted.nbytes, node.aval.hinted.nbytes) for leaf in large)
        weight = sum(_once(n, node) for n in (*inlined, node))
        size = node.aval.hinted.size
        again = sum(times) * (weight * size + cost.memory_cost(loaded, far))
        again += cost.memory_cost(1.5 * sum(n.aval.hinted.nbytes for n in new), far)
        keep = weight * size + cost.memory_cost(1.5 * node.aval.hinted.nbytes + alone * loaded, far)
        prices = f"{again / size:.2f} ns an element to compute while packing, {keep / size:.2f} to keep"
        if again < keep:
            choice.computed[node] = prices
        else:
            kept[node] = materialised[node]
            choice.kept[node] = prices
    return choice


def explain_kept(choice: Choice, owner: Mapping[Node, Group]) -> None:
    """Adds to the reasons of each kernel which left operands it writes although products could compute them."""
    for node, reason in choice.kept.items():
        owner[node].reasons.append(f"{node.op.name if node.op else ''}: operand of a matrix product, {reason}")


def _computing(group: Group, node: Node, materialised: Mapping[Node, str]) -> Product | None:
    """The product of a group with this left operand computed; None if something else in the group reads it."""
    if group.call is None:
        return None
    product, left, right = group.call
    if not isinstance(product, Product) or left is not node or right is node:
        return None
    if product.symbolic or product.stored is not None or not _is_whole(product, node):
        return None
    if any(node in expression_of(root, materialised).reads for root in group.roots[1:]):
        return None
    return replace(product, computed=True)


def _needed(
    leaf: Node, node: Node, outputs: Collection[Node], readers: Mapping[Node, list[Group]], owner: Mapping[Node, Group]
) -> bool:
    """Whether it is in memory whether or not the node is."""
    gone = owner[node] if len(owner[node].roots) == 1 else None
    return leaf in outputs or any(group is not gone for group in readers.get(leaf, ()))


def _once(n: Node, node: Node) -> float:
    """Nanoseconds that computing it costs for each element of the node; gathered rows are loaded as any."""
    rows = n.kind == "gather" and n.shape[-1:] == n.inputs[0].shape[-1:]
    return 0.0 if rows else element_cost(n) * min(1.0, n.aval.hinted.size / max(node.aval.hinted.size, 1))

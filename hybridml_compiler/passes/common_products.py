"""Products of a row, or of some, of each step by one matrix as one product before the loop: it reads the matrix once
for many rows, where each step would read all of it.

    for i: y[i] = x[i] @ w                     ->      p = x @ w;  for i: y[i] = p[i]
    for i: c[i, i:] = x[:, i] @ x[:, i:]       ->      p = x.T @ x;  for i: c[i, i:] = p[i, i:]

It is done where no step changes the operands, and where most of the product is read.
"""

from __future__ import annotations

from ..aval import Aval
from ..graph.ir import Node, input_node, topological
from ..graph.rewrite import make
from ..record import record
from ..sizes.dims import Size, hint
from .loop_parts import Loop, Stack, base_of, outside, stack_of
from .patterns import is_op

LEAST_STEPS = 8
# Elements of a matrix that each step reads: of fewer, the steps have it in the first cache (4096 float64: 32 KB).
LEAST_ELEMENTS = 4096
# The least part of the product that steps read: of x.T @ x, 600 x 500 by 500 steps, they read half, and the loop takes
# 4.9 ms instead of 11.3 (`python -m benchmarks.scientific covariance`).
LEAST_PART = 0.4


@record
class _Rows:
    """The operand of a product that each step has its own part of: `rows` rows and `inner` columns of the stack."""

    stack: Stack
    rows: int
    inner: int


@record
class _Matrix:
    """The other operand: columns `start` to `stop` of a matrix that no step changes."""

    whole: Node
    start: Size
    stop: Size


def products_before(loop: Loop) -> dict[Node, Node]:
    """Products of the body, and the values in their places: slices of what is now computed before."""
    if type(loop.length) is not int or loop.length < LEAST_STEPS or loop.go is not None or loop.counts:
        return {}
    roots = [*(after for *_, after in loop.carries), *loop.others]
    found: dict[Node, Node] = {}
    for node in topological(roots):
        if node.op is not None and node.op.name == "matmul" and node.dtype.kind == "f" and len(node.shape) <= 2:
            value = _before(loop, node)
            if value is not None:
                found[node] = value
    return found


def _before(loop: Loop, node: Node) -> Node | None:
    steps, (left, right) = loop.length, node.inputs
    assert type(steps) is int
    for a, b, turned in ((left, right, False), (right, left, True)):
        rows, matrix = _rows(loop, a, turned), _matrix(loop, b, turned)
        if rows is None or matrix is None:
            continue
        inner, columns = matrix.whole.shape
        read = hint(matrix.stop - matrix.start)
        if rows.inner != inner or inner * columns < LEAST_ELEMENTS or read < LEAST_PART * columns:
            continue
        array, at = rows.stack.array, rows.stack.at
        if steps * rows.rows * columns * node.dtype.itemsize > array.aval.nbytes + matrix.whole.aval.nbytes:
            continue
        whole = make("matmul", make("reshape", array, shape=(steps * rows.rows, inner)), matrix.whole)
        product = make("reshape", whole, shape=(steps, rows.rows, columns))
        own = input_node(product.aval if at is not None else Aval(product.shape[1:], product.dtype))
        (loop.xs if at is None else loop.consts).append((product, own))
        lead = () if at is None else ((at, at + 1),)
        starts, stops = zip(*lead, (0, rows.rows), (matrix.start, matrix.stop), strict=True)
        part = make("slice", own, starts=starts, stops=stops, steps=(1,) * len(starts))
        part = make("reshape", part, shape=(rows.rows, matrix.stop - matrix.start))
        return make("reshape", make("permute_dims", part, axes=(1, 0)) if turned else part, shape=node.shape)
    return None


def _rows(loop: Loop, operand: Node, turned: bool) -> _Rows | None:
    rows = operand.shape[-1 if turned else 0] if len(operand.shape) == 2 else 1
    inner = operand.shape[0 if turned else -1]
    if type(rows) is not int or type(inner) is not int or (turned and rows > 1):
        return None
    stack = stack_of(loop, base_of(operand))
    return None if stack is None else _Rows(stack, rows, inner)


def _matrix(loop: Loop, operand: Node, turned: bool) -> _Matrix | None:
    while is_op(operand, "permute_dims"):
        operand, turned = operand.inputs[0], not turned
    if len(operand.shape) != 2:
        return None
    base, bounds = operand, ((0, 0), operand.shape)
    if is_op(operand, "slice"):
        base, bounds = operand.inputs[0], (operand.params["starts"], operand.params["stops"])
        if any(n != 1 for n in operand.params["steps"]):
            return None
    array = outside(loop, base)
    inner, columns = (1, 0) if turned else (0, 1)
    low, high = (bound[inner] for bound in bounds)
    if array is None or type(low) is not int or type(high) is not int or type(array.shape[columns]) is not int:
        return None
    ends = [(low, 0), (high, array.shape[columns])]
    starts, stops = [(a, b) if inner == 0 else (b, a) for a, b in ends]
    whole = make("slice", array, starts=starts, stops=stops, steps=(1, 1))
    whole = make("permute_dims", whole, axes=(1, 0)) if turned else whole
    return _Matrix(whole, bounds[0][columns], bounds[1][columns])

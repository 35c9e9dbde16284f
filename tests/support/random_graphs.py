"""Random graphs for property tests, the data to run them on, and what equal means.

Operations are chosen so that NumPy's own result does not depend on memory layout: no floating-point sums (their order
follows the strides) and no extremes of floats (0.0 and -0.0 are equal, so either may be returned).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import strategies as st

from hybridml_compiler import aval as avals
from hybridml_compiler import dtypes
from hybridml_compiler.graph.ir import Graph, Node, constant, input_node
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.ops.shapes import broadcast

EDGES = {
    "f": (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-30, -1e30, np.inf, -np.inf, np.nan),
    "i": (0, 1, -1, 2, -7, 100),
    "u": (0, 1, 2, 7, 255),
    "b": (False, True),
}
NUMBERS = {"f": (0.0, -0.0, 1.0, -1.0, 2.0, 0.25, 3.0), "i": (0, 1, -1, 2), "u": (0, 1, 2), "b": (False, True)}


def data(aval: avals.Aval, rng: np.random.Generator) -> np.ndarray:
    """Edge values in random order, and at least as many random ones where there is room."""
    edges = np.array(EDGES[aval.dtype.kind]).astype(aval.dtype)
    if aval.dtype.kind in "iu":
        info = np.iinfo(aval.dtype)
        edges = np.append(edges, [info.min, info.max]).astype(aval.dtype)
    picked = rng.choice(edges, aval.size)
    if aval.dtype.kind == "f":
        picked = np.where(rng.random(aval.size) < 0.5, picked, rng.normal(size=aval.size).astype(aval.dtype))
    return picked.reshape(aval.shape).astype(aval.dtype)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal dtype, shape and bits; a nan equals any nan (IEEE leaves its sign and payload open)."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind == "f":
        a, b = (np.where(np.isnan(v), v.dtype.type(np.nan), v) for v in (a, b))
    return a.tobytes() == b.tobytes()


UNARY = {
    "f": ("negative", "abs", "square", "floor", "round", "positive", "sqrt"),
    "i": ("negative", "abs", "bitwise_invert", "floor", "positive", "square"),
    "u": ("abs", "bitwise_invert", "square"),
    "b": ("logical_not", "bitwise_invert"),
}
BINARY = {
    "f": ("add", "subtract", "multiply", "divide", "equal", "less"),
    "i": ("add", "subtract", "multiply", "floor_divide", "maximum", "bitwise_and", "bitwise_or", "not_equal"),
    "u": ("add", "multiply", "bitwise_xor", "minimum", "bitwise_left_shift"),
    "b": ("logical_and", "logical_or", "add", "multiply"),
}
Pick = Callable[[Sequence[object]], int]
Step = Callable[[Node, Sequence[Node], Pick], Node]  # (a value, all values, how to choose) -> a new value


@st.composite
def graphs(draw: st.DrawFn, size: int = 12) -> Graph:
    """A graph of a few inputs and up to `size` further operations, with several outputs; it shrinks on a failure."""

    def pick(items: Sequence[object]) -> int:
        return draw(st.integers(0, len(items) - 1))

    return build(pick, 1 + pick(range(size)))


def build(pick: Pick, size: int, more: Sequence[Step] = (), sides: tuple[int, int] = (3, 4)) -> Graph:
    """A graph of one to four inputs, `size` further operations (of STEPS and `more`), and one to three outputs."""
    m, n = sides
    shapes = [(m, n), (n,), (m, 1), (), (1, n), (2, m, n), (1,), (0, n)]
    kinds = ["f4", "f4", "i4", "bool", "u1", "f8"]
    inputs = []
    for k in range(1 + pick(range(4))):
        aval = avals.Aval(shapes[pick(shapes)], dtypes.canonical(kinds[pick(kinds)]))
        inputs.append(input_node(aval, f"x{k}"))
    values: list[Node] = list(inputs)
    steps = (*STEPS, *more)
    for _ in range(size):
        x = values[-1 - min(pick(values), 3)] if pick(range(2)) else values[pick(values)]
        values.append(steps[pick(steps)](x, values, pick))
    outputs = [values[-1]] + [values[pick(values)] for _ in range(pick(range(3)))]
    return Graph(tuple(inputs), tuple(outputs))


def _unary(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    names = UNARY[x.dtype.kind]
    return make(names[pick(names)], x)


def _partner(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    """A value of the same dtype that broadcasts with x, or a number."""
    fits = [y for y in values if y.dtype is x.dtype and _broadcast(x, y)] or [x]
    if pick(range(3)):
        return fits[pick(fits)]
    numbers = NUMBERS[x.dtype.kind]
    number = numbers[pick(numbers)]
    forms = [
        lambda: constant(np.asarray(number, x.dtype)),
        lambda: make("full", shape=x.shape, value=number, dtype=x.dtype),
        lambda: make("broadcast_to", constant(np.asarray(number, x.dtype)), shape=x.shape),
        lambda: constant(np.full(x.shape, number, x.dtype)),
    ]
    return forms[pick(forms)]()


def _broadcast(x: Node, y: Node) -> bool:
    try:
        return len(broadcast("test", x.aval, y.aval)) <= 3
    except ValueError:
        return False


def _binary(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    names = BINARY[x.dtype.kind]
    pair = [x, _partner(x, values, pick)]
    return make(names[pick(names)], *(pair if pick(range(2)) else reversed(pair)))


def _where(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    conditions = [c for c in values if c.dtype.kind == "b" and _broadcast(c, x)]
    condition = conditions[pick(conditions)] if conditions else make("not_equal", x, x)
    other = _partner(x, values, pick)
    return make("where", condition, x, other if _broadcast(condition, other) else x)


def _astype(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    names = ("f4", "f8", "bool") if x.dtype.kind == "f" else ("f4", "f8", "i1", "i4", "i8", "u4", "bool")
    return make("astype", x, dtype=np.dtype(names[pick(names)]))


def _reshape(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    flat = (x.aval.size,)
    shapes = [flat, (1, *x.shape), (*x.shape, 1), tuple(n for n in x.shape if n != 1), x.shape, x.shape[::-1]]
    return make("reshape", x, shape=shapes[pick(shapes)])


def _permute(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    left, axes = list(range(len(x.shape))), []
    while left:
        axes.append(left.pop(pick(left)))
    return make("permute_dims", x, axes=tuple(axes))


def _broadcast_to(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    shapes = [(1, *x.shape), tuple(3 if n == 1 else n for n in x.shape), (2, *x.shape), x.shape]
    return make("broadcast_to", x, shape=shapes[pick(shapes)])


def _flip(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    return make("flip", x, axis=tuple(k for k in range(len(x.shape)) if pick(range(2))))


def _slice(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    bounds = []
    for n in x.shape:
        lower = pick(range(n + 1))
        upper = lower + pick(range(n - lower + 1))
        step = 1 + pick(range(2))
        bounds.append((lower, upper, step) if pick(range(2)) else (upper - 1, lower - 1, -step))
    starts, stops, steps = (tuple(b[k] for b in bounds) for k in range(3))
    return make("slice", x, starts=starts, stops=stops, steps=steps)


def _pad(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    return make("pad", x, widths=tuple((pick(range(2)), pick(range(2))) for _ in x.shape))


def _concat(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    if not x.shape:
        return make("negative", x) if x.dtype.kind in "if" else x
    same = [y for y in values if y.dtype is x.dtype and y.shape == x.shape]
    return make("concat", x, *(same[pick(same)] for _ in range(pick(range(3)))), axis=pick(x.shape))


def _reduce(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    if x.dtype.kind == "f":
        x = make("abs", x)  # NumPy's sum over no axis starts at 0.0, which takes the sign of -0.0
        return make("mean", x, axis=tuple(k for k, n in enumerate(x.shape) if n == 1), keepdims=bool(pick(range(2))))
    names = ("sum", "any", "all") if x.dtype.kind == "b" else ("sum", "prod", "any")
    axes = tuple(k for k in range(len(x.shape)) if pick(range(2)))
    return make(names[pick(names)], x, axis=axes, keepdims=bool(pick(range(2))))


STEPS = (
    *(_unary, _unary, _binary, _binary, _binary, _where, _astype),
    *(_reshape, _permute, _broadcast_to, _flip, _slice, _pad, _concat, _reduce),
)

"""Random graphs with random donations, and their compiled programs beside the graph's interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

from hybridml_compiler import pipeline
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, Node, constant
from hybridml_compiler.graph.rewrite import make

from .random_graphs import Pick, build, data, same_bits


def _scan(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    if not x.shape or x.dtype.kind == "b":
        return x
    return make("cumulative_sum", x, axis=pick(x.shape), reverse=bool(pick(range(2))))


def _indices(values: Sequence[Node], size: int, pick: Pick) -> Node:
    """Numbers below `size`, mostly: computed from data where there are integers, else constants."""
    whole = [v for v in values if v.dtype.kind == "i" and v.aval.size]
    if whole and pick(range(3)):
        return make("remainder", whole[pick(whole)], constant(np.asarray(max(size, 1), whole[0].dtype)))
    shape = [(), (2,), (1, 3)][pick(range(3))]
    return constant(np.full(shape, pick(range(size)) - (size if pick(range(2)) else 0), "i8"))


def _take(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    if not x.shape or not x.aval.size:
        return x
    axis = pick(x.shape)
    indices = _indices([v for v in values if v.dtype is np.dtype("i4")], x.shape[axis], pick)
    return make("take", x, indices, axis=axis) if len(x.shape) + len(indices.shape) <= 4 else x


def _scatter(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    """Integers alone: sums of floats at one place depend on their order, and NumPy's is its own."""
    if not x.shape or not x.aval.size or x.dtype.kind not in "iu":
        return x
    axis = pick(x.shape)
    indices = _indices([v for v in values if v.dtype is np.dtype("i4")], x.shape[axis], pick)
    if len(x.shape) + len(indices.shape) > 4:
        return x
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    fits = [v for v in values if v.dtype is x.dtype and v.shape == shape]
    updates = fits[pick(fits)] if fits else make("full", shape=shape, value=3, dtype=x.dtype)
    return make("scatter_add", x, indices, updates, axis=axis)


def _extreme(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    if not x.shape or not x.aval.size or x.dtype.kind == "b":
        return x
    names = ("argmax", "argmin") if x.dtype.kind == "f" else ("argmax", "argmin", "max", "min")
    return make(names[pick(names)], x, axis=pick(x.shape), keepdims=bool(pick(range(2))))


def _product(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    """Whole numbers, so that the order of the sum does not matter; floats stay small enough to be exact."""
    if len(x.shape) < 2 or x.dtype.kind not in "iu":
        return x
    swapped = (*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2)
    return make("matmul", x, make("permute_dims", x, axes=swapped))


def _update(x: Node, values: Sequence[Node], pick: Pick) -> Node:
    if not x.shape or not x.shape[0]:
        return x
    n = x.shape[0]
    start = pick(range(n))
    part = make("slice", x, starts=(start,), stops=(n,), steps=(1,)) if len(x.shape) == 1 else None
    if part is None:
        zeros = (0,) * (len(x.shape) - 1)
        ones = (1,) * len(x.shape)
        part = make("slice", x, starts=(start, *zeros), stops=x.shape, steps=ones)
        return make("slice_update", x, make("flip", part, axis=0), starts=(start, *zeros), stops=x.shape, steps=ones)
    return make("slice_update", x, make("flip", part, axis=0), starts=(start,), stops=(n,), steps=(1,))


MORE = (_scan, _take, _scatter, _extreme, _product, _update)


def donations(seed: int, sides: tuple[int, int] = (3, 4)) -> tuple[Graph, dict[int, int]]:
    """A large random graph and which of its outputs overwrite which inputs; inputs may be outputs too."""
    random = Random(seed)

    def pick(items: Sequence[object]) -> int:
        return random.randrange(len(items))

    graph = build(pick, 5 + pick(range(25)), MORE, sides)
    every = [node for node in graph.nodes() if node.op is not None] or list(graph.inputs)
    outputs = [*graph.outputs, *(every[pick(every)] for _ in range(pick(range(4))))]
    for node in graph.inputs:
        if pick(range(4)) == 0:
            outputs.insert(pick(outputs), node)
        if pick(range(2)) == 0:  # an update of the input itself, as training does
            other = next((n for n in outputs if n.aval == node.aval and n is not node), node)
            outputs.append(make("where", make("equal", other, other), node, other))
    donate: dict[int, int] = {}
    for k, source in enumerate(graph.inputs):
        fits = [j for j, out in enumerate(outputs) if j not in donate and out.aval == source.aval]
        if fits and pick(range(4)):
            donate[fits[pick(fits)]] = k
    return Graph(graph.inputs, tuple(outputs)), donate


def arrays_for(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [data(node.aval, rng) for node in graph.inputs]


def check(got: Sequence[np.ndarray], expected: Sequence[np.ndarray], label: str) -> None:
    for k, (g, e) in enumerate(zip(got, expected, strict=True)):
        assert same_bits(g, e), f"{label}: output {k} is\n{g}\nexpected\n{e}"


def run_compiled(graph: Graph, donate: dict[int, int]) -> None:
    expected = [np.array(a) for a in interpret(graph, arrays_for(graph))]
    executable = pipeline.compile(graph, donate)
    for label in ("first call", "second call"):  # the arena is not clean any more
        arrays = arrays_for(graph)
        got = executable(arrays)
        check(got, expected, label)
        for out, source in donate.items():
            assert got[out] is arrays[source]
        for k, (array, before) in enumerate(zip(arrays, arrays_for(graph), strict=True)):
            assert k in donate.values() or same_bits(array, before), f"input {k} was written to"

"""Random graphs with random donations: the plan and the compiled program against the graph's interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from random_graphs import Pick, build, data, same_bits
from run_plan import plan_of, run_plan

from hybridml_compiler import pipeline
from hybridml_compiler.backends.llvm.kernel import emit_kernel
from hybridml_compiler.errors import OutOfBoundsError
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, Node, constant
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.loops.ir import Kernel
from hybridml_compiler.loops.text import parse_kernel, print_kernel
from hybridml_compiler.loops.verify import verify_kernel
from hybridml_compiler.schedule import cost
from hybridml_compiler.schedule.memory import ALIGNMENT, Interval, plan_arena

# ---------------------------------------------------------------- memory


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(-1, 12), st.integers(0, 6)), max_size=30))
def test_buffers_alive_at_one_time_never_overlap(drawn: list[tuple[int, int, int]]) -> None:
    intervals = [Interval(nbytes, start, start + length) for nbytes, start, length in drawn]
    offsets, total = plan_arena(intervals)
    for k, (a, at) in enumerate(zip(intervals, offsets, strict=True)):
        assert at % ALIGNMENT == 0 and at + a.nbytes <= total
        for b, other in zip(intervals[:k], offsets[:k], strict=True):
            if a.start <= b.end and b.start <= a.end and a.nbytes and b.nbytes:
                assert at + a.nbytes <= other or other + b.nbytes <= at
    busiest = max((sum(i.nbytes for i in intervals if i.start <= t <= i.end) for t in range(-1, 20)), default=0)
    assert total >= busiest
    assert total <= sum(-(-i.nbytes // ALIGNMENT) * ALIGNMENT for i in intervals)


def test_memory_is_used_again() -> None:
    chain = [Interval(1 << 20, k, k + 1) for k in range(100)]
    assert plan_arena(chain)[1] == 2 << 20


# ---------------------------------------------------------------- random graphs


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


@settings(max_examples=300)
@given(st.integers(0, 1 << 30))
@example(97504)  # a slice past its end of padding: nothing that the mask leaves is read
def test_plans_of_random_graphs(seed: int) -> None:
    graph, donate = donations(seed)
    expected = [np.array(a) for a in interpret(graph, arrays_for(graph))]
    plan = plan_of(graph, donate)
    for launch in plan.launches:
        if isinstance(launch.work, Kernel):
            verify_kernel(launch.work)
    got = run_plan(plan, arrays_for(graph), len(expected), donate)
    assert got is not None
    check(got, expected, "plan")


@settings(max_examples=40)
@given(st.integers(0, 1 << 30))
def test_the_text_of_a_kernel_decides_its_code(seed: int) -> None:
    """Object code is cached under this text: what is read back from it must emit the same."""
    for launch in plan_of(*donations(seed, (19, 37))).launches:
        if isinstance(launch.work, Kernel):
            assert llvm(parse_kernel(print_kernel(launch.work))) == llvm(launch.work)


def llvm(kernel: Kernel) -> str:
    from hybridml_compiler.backends.llvm import ir

    module = ir.Module("kernel")
    emit_kernel(module, "kernel", kernel)
    return str(module)


@settings(max_examples=40)
@given(st.integers(0, 1 << 30))
def test_compiled_random_graphs(seed: int) -> None:
    run_compiled(*donations(seed))


@settings(max_examples=20)
@given(st.integers(0, 1 << 30))
def test_compiled_random_graphs_in_lanes_and_threads(seed: int) -> None:
    """Sizes that no vector divides, and every kernel split over threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "PARALLEL_THRESHOLD_NS", 0.0)
        run_compiled(*donations(seed, (19, 37)))


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


def test_out_of_range_is_the_users_error() -> None:
    from typical_graphs import embedding

    graph = embedding()
    executable = pipeline.compile(graph)
    with pytest.raises(OutOfBoundsError, match="index 100 is out of range for axis 0 of size 100"):
        executable([np.zeros((100, 16), "f4"), np.full((4, 8), 100)])

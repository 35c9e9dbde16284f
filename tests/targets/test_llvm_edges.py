"""Corners of compiled code: checked indices under masks, views as operands of products, threads, integers, sizes."""

from __future__ import annotations

from random import Random
from threading import Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridml_compiler import dtypes, pipeline
from hybridml_compiler.errors import OutOfBoundsError
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, Node, apply, constant, graph_of
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.schedule.kernels.gemm import Product
from hybridml_compiler.targets.cpu.eager import products
from hybridml_compiler.targets.cpu.runtime import threads
from tests.support.examples import examples
from tests.support.random_graphs import same_bits


def run(outputs: list[Node], inputs: list[Node], arrays: list[np.ndarray]) -> list[np.ndarray]:
    """What the compiled graph makes of the arrays; equal to the interpreter to the bit."""
    graph = Graph(tuple(inputs), tuple(outputs))
    expected = interpret(graph, arrays)
    got = pipeline.compile(graph)(arrays)
    for g, e in zip(got, expected, strict=True):
        assert same_bits(g, e), f"{outputs}: got\n{g}\nexpected\n{e}"
    return got


# ---------------------------------------------------------------- indices


def test_a_masked_index_is_checked_only_where_it_is_used() -> None:
    """Outside of the mask the index is computed from nothing: 0 + 7 is no index into an axis of 5."""
    x, at = np.arange(5.0), np.array([-7, -3, -5])
    nodes = graph_of([x, at])
    taken = make("take", nodes[0], make("add", nodes[1], constant(np.array(7))), axis=0)
    padded = make("pad", taken, widths=((2, 2),))
    run([padded, make("concat", taken, padded, taken, axis=0)], nodes, [x, at])
    for graph in (Graph(tuple(nodes), (padded,)), Graph(tuple(nodes), (make("flip", padded, axis=0),))):
        with pytest.raises(OutOfBoundsError):
            pipeline.compile(graph)([x, np.array([-7, -1, -5])])


def test_many_elements_share_the_check() -> None:
    """In lanes and threads: one bad index among thousands is found, wherever it is."""
    x, at = np.arange(40.0, dtype="f4").reshape(40, 1), np.zeros(5000, "i8")
    nodes = graph_of([x, at])
    executable = pipeline.compile(Graph(tuple(nodes), (make("take", nodes[0], nodes[1], axis=0),)))
    for place in (0, 7, 2500, 4999):
        at[:] = 39
        at[place] = 40
        with pytest.raises(OutOfBoundsError, match="index 40 is out of range"):
            executable([x, at])
        at[place] = -40
        assert executable([x, at])[0][place, 0] == 0
    assert executable([x, np.full(5000, -1)])[0].min() == 39


@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_an_element_that_a_loop_updates_several_times_is_read_each_time(dtype: str) -> None:
    """Neither the place nor the update varies in the inner loop: nothing but the element itself does."""
    base, at = np.ones(4, dtype), np.array([[2], [0], [2]])
    nodes = graph_of([base, at])
    places = make("broadcast_to", nodes[1], shape=(3, 5))
    updates = make("full", dtype=base.dtype, shape=(3, 5), value=3)
    (got,) = run([make("scatter_add", nodes[0], places, updates, axis=0)], nodes, [base, at])
    np.testing.assert_array_equal(got, np.array([16, 1, 31, 1], dtype))


def test_scatter_in_threads_adds_in_order() -> None:
    """Repeated indices; the axis that the threads share is free of them."""
    rng = np.random.default_rng(0)
    base, at = np.zeros((50, 64), "f4"), rng.integers(0, 50, 3000)
    updates = rng.normal(size=(3000, 64)).astype("f4")
    nodes = graph_of([base, at, updates])
    run([make("scatter_add", *nodes, axis=0)], nodes, [base, at, updates])
    narrow = graph_of([base[:, 0], at, updates[:, 0]])
    run([make("scatter_add", *narrow, axis=0)], narrow, [base[:, 0].copy(), at, updates[:, 0].copy()])


# ---------------------------------------------------------------- products


def _view(node: Node, random: Random) -> Node:
    """A random chain of movements."""
    for _ in range(random.randrange(4)):
        shape, n = node.shape, len(node.shape)
        match random.randrange(6):
            case 0:
                node = make("permute_dims", node, axes=tuple(random.sample(range(n), n)))
            case 1:
                starts = tuple(random.randrange(k) for k in shape)
                stops = tuple(random.randrange(a + 1, k + 1) for a, k in zip(starts, shape, strict=True))
                node = make("slice", node, starts=starts, stops=stops, steps=(random.choice((1, 1, 2)),) * n)
            case 2:
                node = make("reshape", node, shape=(*shape[: n - 2], shape[-1], shape[-2]) if n > 1 else (1, *shape))
            case 3:
                node = make("broadcast_to", node, shape=(random.choice((1, 2)), *shape) if n < 4 else shape)
            case 4:
                node = make("flip", node, axis=random.randrange(n)) if n else node
            case 5 if n > 1:
                node = make("reshape", node, shape=(shape[0] * shape[1], *shape[2:]))
    return node


@examples(150)
@given(st.integers(0, 1 << 30))
def test_products_read_views_in_place(seed: int) -> None:
    """Strided, transposed, broadcast, flipped and vector operands; whole numbers, so that every order is exact."""
    random = Random(seed)
    rng = np.random.default_rng(seed)
    sizes = (1, 1, 2, 3, 4, 6)
    arrays = [
        rng.integers(-4, 5, tuple(random.choice(sizes) for _ in range(random.randrange(1, 5)))).astype("f4")
        for _ in range(2)
    ]
    nodes = graph_of(arrays)
    left, right = (_view(node, random) for node in nodes)
    k = min(left.shape[-1], right.shape[-2] if len(right.shape) > 1 else right.shape[0])
    left = make("slice", left, starts=(0,) * len(left.shape), stops=(*left.shape[:-1], k), steps=(1,) * len(left.shape))
    stops = (*right.shape[:-2], k, right.shape[-1]) if len(right.shape) > 1 else (k,)
    right = make("slice", right, starts=(0,) * len(right.shape), stops=stops, steps=(1,) * len(right.shape))
    batch = [a.shape[:-2] for a in (left, right) if len(a.shape) > 2]
    try:
        np.broadcast_shapes(*batch)
    except ValueError:
        return
    run([make("matmul", left, right)], nodes, arrays)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 7, 1), (7, 1, 1), (1, 1, 7), (1, 5, 3), (5, 1, 3), (0, 3, 2)])
def test_thin_products(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(0)
    for shapes in (((m, k), (k, n)), ((3, m, k), (k, n)), ((3, m, k), (1, k, n)), ((2, 1, m, k), (3, k, n))):
        arrays = [rng.integers(-4, 5, s).astype("f8") for s in shapes]
        nodes = graph_of(arrays)
        run([make("matmul", *nodes)], nodes, arrays)
    flipped = [rng.integers(-4, 5, s).astype("f4") for s in ((k, m), (n, k))]
    nodes = graph_of(flipped)
    run([make("matmul", *(make("permute_dims", v, axes=(1, 0)) for v in nodes))], nodes, flipped)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 40])
def test_a_sum_of_negative_zeros_is_zero(n: int) -> None:
    x, y = graph_of(arrays := [np.full((3, n), -0.0, "f4"), np.ones(n, "f4")])
    product = make("multiply", x, y)
    run([make("sum", product, axis=1), make("sum", product), make("matmul", x, y)], [x, y], arrays)


def test_a_product_over_nothing_is_zero() -> None:
    nodes = graph_of(arrays := [np.ones((3, 0), "f4"), np.ones((0, 2), "f4")])
    assert (run([make("matmul", *nodes)], nodes, arrays)[0] == 0).all()


def test_products_in_slabs() -> None:
    """More rows or columns than one thread takes, sizes that no tile divides."""
    rng = np.random.default_rng(0)
    for shapes in (((333, 65), (65, 70)), ((70, 65), (65, 333)), ((5, 61, 33), (5, 33, 47))):
        arrays = [rng.integers(-4, 5, s).astype("f4") for s in shapes]
        nodes = graph_of(arrays)
        graph = Graph(tuple(nodes), (make("matmul", *nodes),))
        executable = pipeline.compile(graph)
        assert any(isinstance(launch.spec, Product) for launch in executable.launches)
        np.testing.assert_array_equal(executable(arrays)[0], arrays[0] @ arrays[1])


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d.kind in "iu"])
def test_integer_edges(dtype: np.dtype) -> None:
    info = np.iinfo(dtype)
    edges = np.array([info.min, info.min + 1, 0, 1, 2, 7, info.max - 1, info.max], dtype)
    x, y = (a.ravel().copy() for a in np.meshgrid(edges, np.append(edges, dtype.type(-1 if dtype.kind == "i" else 3))))
    nodes = graph_of([x, y])
    names = ("add", "subtract", "multiply", "floor_divide", "remainder", "maximum", "less", "bitwise_xor")
    names += ("bitwise_left_shift", "bitwise_right_shift")
    unary = [make(name, nodes[0]) for name in ("negative", "abs", "square", "sign", "bitwise_invert")]
    run([make(name, *nodes) for name in names] + unary, nodes, [x, y])
    again = make("add", make("multiply", make("floor_divide", *nodes), nodes[1]), make("remainder", *nodes))
    run([again], nodes, [x, y])


@pytest.mark.parametrize("source", dtypes.ALL)
def test_casts(source: np.dtype) -> None:
    """Every value that the target can hold; numbers beyond it wrap between integers, as in NumPy."""
    values = [0, 1, 2, 100] if source.kind != "b" else [0, 1]
    values += [-1, -100] if source.kind in "if" else []
    x = np.array(values, source)
    if source.kind in "iu":
        x = np.append(x, np.array([np.iinfo(source).max, np.iinfo(source).min], source))
    (node,) = nodes = graph_of([x])
    lost = {"f": "u", "c": "iuf"}.get(source.kind, "")
    targets = [d for d in dtypes.ALL if d.kind not in lost]
    run([make("astype", node, dtype=d) for d in targets], nodes, [x])


def test_a_cast_counter_wraps() -> None:
    """The range of `arange` does not survive a cast to a narrow type."""
    wide = make("arange", start=0, stop=600, dtype=np.dtype("i8"))
    narrow = make("astype", wide, dtype=np.dtype("i1"))
    less = make("less", narrow, constant(np.int8(0)))
    doubled = make("add", make("astype", wide, dtype=np.dtype("u1")), make("astype", wide, dtype=np.dtype("u1")))
    small = make("less", doubled, constant(np.uint8(100)))
    run([less, small, make("floor_divide", doubled, constant(np.uint8(7)))], [], [])


@pytest.mark.parametrize("dtype", dtypes.ALL)
@pytest.mark.parametrize("n", [1, 3, 16, 33])
def test_extremes_of_equal_values_are_the_first(dtype: np.dtype, n: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.integers(0, 2, (5, n)).astype(dtype)
    if dtype.kind == "f":
        x[1], x[2, n // 2], x[3, -1] = -np.inf, np.nan, np.inf
        x[4] = np.nan
    (node,) = nodes = graph_of([x])
    run([make(name, node, axis=axis) for name in ("argmax", "argmin") for axis in (0, 1, None)], nodes, [x])


@pytest.mark.parametrize("name", ["sum", "prod", "any", "all"])
def test_reductions_of_nothing(name: str) -> None:
    for dtype in (np.dtype("f4"), np.dtype("i4"), np.dtype("u1"), np.dtype("bool")):
        x = np.zeros((3, 0, 2), dtype)
        (node,) = nodes = graph_of([x])
        outputs = [apply(OPS[name], [node], {"axis": axis}) for axis in (0, 1, (0, 1, 2), (1, 2))]
        run(outputs, nodes, [x])


@pytest.mark.parametrize("n", [1, 2, 7, 15, 16, 17, 31, 63, 64, 65, 1000])
def test_every_length_of_a_loop(n: int) -> None:
    """Lanes, remainders and threads: no element is missed, none beyond the end is touched."""
    x, y = np.arange(1, n + 1, dtype="f4"), np.arange(n, dtype="i4")
    nodes = graph_of([x, y])
    root = make("sqrt", nodes[0])
    combined = [make("cumulative_sum", nodes[1], axis=0), make("sum", nodes[1], axis=0)]
    run([root, *combined, make("flip", root, axis=0)], nodes, [x, y])
    row = make("multiply", make("reshape", root, shape=(n, 1)), make("reshape", root, shape=(1, n)))
    run([row, make("max", row, axis=0), make("min", row, axis=1)], nodes, [x, y])


def test_two_threads_call_one_program() -> None:
    """Each has intermediates of its own; the pool serves one and the other runs alone."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, (200, 200)).astype("f4") for _ in range(2)]
    nodes = graph_of(arrays)
    product = make("matmul", *nodes)
    wide = make("sum", make("abs", product), axis=1, keepdims=True)
    graph = Graph(tuple(nodes), (make("subtract", product, wide),))
    executable = pipeline.compile(graph)
    (expected,) = interpret(graph, arrays)
    wrong: list[int] = []

    def spec() -> None:
        wrong.extend(k for k in range(100) if not np.array_equal(executable(arrays)[0], expected))

    workers = [Thread(target=spec) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.parametrize("shapes", [((333, 300), (300, 33)), ((17, 784), (784, 128)), ((3, 64, 300), (3, 300, 100))])
def test_products_have_the_same_bits_with_any_number_of_threads(shapes: tuple[tuple[int, ...], ...]) -> None:
    """And the same bits eagerly. Values whose sums depend on the order."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype("f4") for shape in shapes]
    nodes = graph_of(arrays)
    executable = pipeline.compile(Graph(tuple(nodes), (make("matmul", *nodes),)))
    before = threads.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3, 5):
            threads.set_num_threads(count)
            results += [executable(arrays)[0], products.matmul(*arrays)]
    finally:
        threads.set_num_threads(before)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])

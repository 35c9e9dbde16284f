"""Graphs with symbolic sizes: one program for every size, which computes what the interpreter does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, CompileError, OutOfBoundsError
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, Node, constant, input_node
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.graph.sizes import at_sizes
from hybridml_compiler.graph.text import parse_graph, print_graph
from hybridml_compiler.loops.dependence import independent
from hybridml_compiler.loops.interpret import interpret_kernel
from hybridml_compiler.loops.ir import For
from hybridml_compiler.loops.text import parse_kernel, print_kernel
from hybridml_compiler.loops.verify import verify_kernel
from hybridml_compiler.pipeline import compile
from hybridml_compiler.schedule.kernels.library import Capabilities
from hybridml_compiler.schedule.plan import make_plan
from hybridml_compiler.schedule.text import describe_plan
from hybridml_compiler.sizes.dims import symbol
from hybridml_compiler.sizes.guards import Guards, collecting, structural
from hybridml_compiler.sizes.values import check_of, substitute
from hybridml_compiler.targets.cpu.kernels.loop_schedule import schedule
from tests.support.closeness import assert_close

F4, I8 = np.dtype("f4"), np.dtype("i8")
N, M = symbol("n", 64), symbol("m", 10)
SIZES = ((64, 10), (2, 2), (3, 5), (17, 3), (5, 17), (128, 64), (1000, 300), (7, 2), (16, 16))
Case = tuple[list[Node], list[Node]]
CASES: dict[str, Callable[[], Case]] = {}


def case(f: Callable[[], Case]) -> Callable[[], Case]:
    CASES[f.__name__] = f
    return f


def x_of(*shape: int, dtype: np.dtype = F4) -> Node:
    return input_node(Aval(shape, dtype), "x")


def number(value: float, dtype: np.dtype = F4) -> Node:
    return constant(np.asarray(value, dtype))


def softmax(x: Node) -> Node:
    e = make("exp", make("subtract", x, make("max", x, axis=(1,), keepdims=True)))
    return make("divide", e, make("sum", e, axis=(1,), keepdims=True))


@case
def bias() -> Case:
    x, b = x_of(N, 32), x_of(32)
    return [x, b], [make("maximum", make("add", x, b), number(0))]


@case
def sums() -> Case:
    x = x_of(N, 32)
    return [x], [make("sum", x, axis=(0,)), make("sum", x, axis=(1,)), make("sum", x)]


@case
def reductions_over_the_symbol() -> Case:
    x = x_of(32, N)
    return [x], [
        make("sum", x, axis=(1,)), make("mean", x, axis=(1,)), make("max", x, axis=(0,)), make("mean", x),
        make("var", x, axis=(1,)), make("var", x, axis=(0, 1), correction=1),
    ]  # fmt: skip


@case
def softmax_of_symbols() -> Case:
    x = x_of(N, M)
    return [x], [softmax(x)]


@case
def softmax_of_known_rows() -> Case:
    x = x_of(N, 33)
    return [x], [softmax(x)]


@case
def views() -> Case:
    x = x_of(N, M, 4)
    y = make("reshape", x, shape=(-1, 4))
    z = make("permute_dims", x, axes=(1, 0, 2))
    return [x], [make("add", y, y), make("reshape", z, shape=(M, N * 4)), make("reshape", x, shape=(-1,))]


@case
def product() -> Case:
    x, w = x_of(N, 16), x_of(16, 8)
    return [x, w], [make("matmul", x, w)]


@case
def product_over_the_symbol() -> Case:
    x, w = x_of(N, 16), x_of(N, 8)
    return [x, w], [make("matmul", make("permute_dims", x, axes=(1, 0)), w)]


@case
def products_of_a_batch() -> Case:
    x, w = x_of(3, N, 16), x_of(3, M, 16)
    return [x, w], [make("matmul", x, make("permute_dims", w, axes=(0, 2, 1)))]


@case
def products_of_a_symbolic_batch() -> Case:
    x, w = x_of(N, 5, M), x_of(N, M, 6)
    return [x, w], [make("matmul", x, w)]


@case
def product_of_integers() -> Case:
    x, w = x_of(N, 16, dtype=I8), x_of(16, 8, dtype=I8)
    return [x, w], [make("matmul", x, w)]


@case
def slices() -> Case:
    x = x_of(N, 8)
    return [x], [
        make("slice", x, starts=(0, 0), stops=(N // 2, 8)), make("slice", x, starts=(N // 2, 0), stops=(N, 4)),
        make("slice", x, starts=(N - 1, 0), stops=(-1, 8), steps=(-1, 1)),
        make("slice", x, starts=(1, 0), stops=(N, 8), steps=(2, 1)), make("flip", x, axis=0),
    ]  # fmt: skip


@case
def update() -> Case:
    x, v = x_of(N, 8), x_of(8)
    return [x, v], [
        make("slice_update", x, v, starts=(1, 0), stops=(N - 1, 8)),
        make("pad", x, widths=((1, 2), (0, 0)), value=1.5),
    ]  # fmt: skip


@case
def pieces() -> Case:
    x, y = x_of(N, 4), x_of(M, 4)
    return [x, y], [make("concat", x, y, axis=0), make("concat", x, x, axis=1)]


@case
def numbers_that_are_sizes() -> Case:
    x = x_of(N)
    return [x], [
        make("add", x, make("arange", start=0, stop=N, dtype="f4")),
        make("divide", make("sum", x), make("full", shape=(), value=N, dtype="f4")),
        make("full", shape=(N, 3), value=2.0),
    ]  # fmt: skip


@case
def gather() -> Case:
    table, index = x_of(N, 8), x_of(M, dtype=I8)
    return [table, index], [make("take", table, make("remainder", index, number(2, I8)), axis=0)]


@case
def running_sums() -> Case:
    x = x_of(N, 8)
    return [x], [make("cumulative_sum", x, axis=0), make("cumulative_sum", x, axis=1, reverse=True)]


@case
def positions() -> Case:
    x = x_of(N, M)
    return [x], [make("argmax", x, axis=1), make("argmin", x, axis=0), make("argmax", x)]


@case
def random_bits() -> Case:
    state = input_node(Aval((2,), np.dtype("u8")), "state")
    return [state, x_of(N, M)], [make("random_bits", state, shape=(N, M))]


@case
def parts_of_a_size() -> Case:
    x = x_of(N, 7)
    part = make("slice", x, starts=(1, 0), stops=(N // 2, 7))
    return [x], [make("sum", part, axis=(0,)), make("argmax", part, axis=0), make("matmul", part, part_turned(part))]


def part_turned(x: Node) -> Node:
    return make("permute_dims", x, axes=(1, 0))


@case
def dropout() -> Case:
    state, x = input_node(Aval((2,), np.dtype("u8")), "state"), x_of(N, M)
    bits = make("random_bits", state, shape=(N, M))
    return [state, x], [make("where", make("greater", bits, number(1 << 31, np.dtype("u4"))), x, number(0))]


@case
def normalisation() -> Case:
    x = x_of(N, M, 16)
    centred = make("subtract", x, make("mean", x, axis=(2,), keepdims=True))
    scale = make("sqrt", make("add", make("var", x, axis=(2,), keepdims=True), number(1e-5)))
    return [x], [make("divide", centred, scale)]


@case
def copies() -> Case:
    x = x_of(N, M)
    return [x], [x, make("reshape", x, shape=(N * M,)), make("permute_dims", x, axes=(1, 0))]


def built(name: str) -> tuple[Graph, Guards]:
    guards = Guards()
    with collecting(guards):
        inputs, outputs = CASES[name]()
    return Graph(tuple(inputs), tuple(outputs), name), guards


def arrays_for(graph: Graph, n: int, m: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n + m)
    shapes = [substitute(node.shape, {"n": n, "m": m}) for node in graph.inputs]
    return [
        rng.integers(0, 100, shape).astype(node.dtype) if node.dtype.kind in "iu" else rng.random(shape, np.float32)
        for node, shape in zip(graph.inputs, shapes, strict=True)
    ]


@pytest.mark.parametrize("name", CASES)
def test_one_program_computes_every_size(name: str) -> None:
    graph, guards = built(name)
    executable = compile(graph, guards=guards)
    assert executable.shapes is not None and not executable.shapes.guards, "the compiler itself needs no guard"
    taken = check_of(["n", "m"], guards.list)
    assert taken(64, 10)
    for n, m in SIZES:
        if not taken(n, m):
            continue
        arrays = arrays_for(graph, n, m)
        for got, expected in zip(executable(arrays), interpret(graph, arrays), strict=True):
            assert got.shape == expected.shape and got.dtype == expected.dtype
            assert_close(got, expected, f"{name} at {n}, {m}", rtol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_text_reads_back(name: str) -> None:
    graph, guards = built(name)
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)
    for launch in compile(graph, guards=guards).launches:
        for kernel in launch.kernels:
            assert print_kernel(parse_kernel(print_kernel(kernel))) == print_kernel(kernel)


def test_elementwise_bits_are_those_of_the_interpreter() -> None:
    x = x_of(N, M)
    y = make("multiply", make("exp", make("sin", x)), make("add", x, number(3)))
    graph = Graph((x,), (y,), "chain")
    executable = compile(graph)
    for n, m in SIZES:
        arrays = arrays_for(graph, n, m)
        assert executable(arrays)[0].tobytes() == interpret(graph, arrays)[0].tobytes()


def test_sums_have_the_same_bits_run_after_run() -> None:
    x = x_of(N)
    executable = compile(Graph((x,), (make("sum", x), make("mean", make("exp", x))), "sums"))
    for n in (3, 1000, 100_003):
        arrays = [np.random.default_rng(n).random(n, np.float32)]
        first = [a.tobytes() for a in executable(arrays)]
        assert [a.tobytes() for a in executable(arrays)] == first
        np.testing.assert_allclose(executable(arrays)[0], arrays[0].sum(dtype=np.float64), rtol=1e-6)


def test_a_checked_index_is_an_error_with_its_size() -> None:
    table, index = x_of(N, 3), x_of(M, dtype=I8)
    executable = compile(Graph((table, index), (make("take", table, index, axis=0),), "rows"))
    rows = np.arange(15, dtype=np.float32).reshape(5, 3)
    np.testing.assert_array_equal(executable([rows, np.array([4, -1, 0])])[0], rows[[4, -1, 0]])
    with pytest.raises(OutOfBoundsError, match="5"):
        executable([rows, np.array([1, 5])])


def test_donated_memory_and_wrong_shapes() -> None:
    x, y = x_of(N, 3), x_of(N, 3)
    executable = compile(Graph((x, y), (make("add", x, y),), "add"), {0: 0})
    a, b = np.ones((4, 3), np.float32), np.full((4, 3), 2, np.float32)
    (out,) = executable([a, b])
    assert out is a and (a == 3).all()
    with pytest.raises(CompileError, match=r"input 1 must be a C-contiguous f32\[n,3\], got float32\[5, 3\]"):
        executable([a, np.ones((5, 3), np.float32)])


def test_sizes_beyond_a_guard_run_a_program_of_their_own() -> None:
    x = x_of(N)
    executable = compile(Graph((x,), (make("exp", x),), "f"))
    shapes = executable.shapes
    assert shapes is not None
    shapes.hold = lambda n: n != 5
    arrays = [np.linspace(0, 1, 5, dtype=np.float32)]
    assert executable(arrays)[0].tobytes() == interpret(executable.stages.captured, arrays)[0].tobytes()
    assert list(shapes._programs) == [(5,)]


def test_a_graph_for_given_sizes() -> None:
    graph, _ = built("slices")
    exact = at_sizes(graph, {"n": 9})
    assert [node.shape for node in exact.outputs] == [(4, 8), (5, 4), (9, 8), (4, 8), (9, 8)]


def test_plan_of_a_symbolic_softmax(golden: Callable[[str, str], None]) -> None:
    graph, guards = built("softmax_of_symbols")
    target = Capabilities(lambda _: False, lambda _: False, 2, lambda s, kernel: schedule(s, kernel, lanes=16))
    with collecting(guards), structural():
        plan = make_plan(graph, {}, target)
    golden("symbolic_softmax", print_graph(graph) + "\n\n" + describe_plan(plan))


@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize(("k", "n"), [(64, 64), (100, 70), (700, 48), (33, 130)])
def test_rows_of_a_product_come_with_the_call(k: int, n: int, turned: bool) -> None:
    x, w, b = x_of(N, k), x_of(n, k) if turned else x_of(k, n), x_of(n)
    right = make("permute_dims", w, axes=(1, 0)) if turned else w
    product = make("matmul", x, right)
    outputs = make("maximum", make("add", product, b), number(0)), make("sum", x, axis=(1,))
    graph = Graph((x, w, b), outputs, "layer")
    executable = compile(graph)
    assert executable.shapes is not None and not executable.shapes.guards
    for rows in (*range(2, 40), 100, 257):
        arrays = arrays_for(graph, rows, 0)
        arrays[0] -= 0.5
        for got, expected in zip(executable(arrays), interpret(graph, arrays), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_rows_of_a_product_have_the_bits_of_one_for_their_number() -> None:
    """Where both are our own: every element is a chain of multiply-adds in order of k."""
    x, w = x_of(N, 200), x_of(200, 96)
    graph = Graph((x, w), (make("matmul", x, w),), "product")
    executable = compile(graph)
    for rows in (512, 555, 800):
        arrays = arrays_for(graph, rows, 0)
        assert executable(arrays)[0].tobytes() == compile(at_sizes(graph, {"n": rows}))(arrays)[0].tobytes()


def test_a_kernel_is_interpreted_for_given_sizes() -> None:
    kernel = parse_kernel(
        "kernel(x: f32[{4*n}], y: f32[{n}] out) lanes 16 granule 16 { for i < {n} vector {\n"
        "s = reduce add over r < 4 of x[i * 4 + r]\n y[i] = s + cast({2*n+1}, f32) } }"
    )
    verify_kernel(kernel)
    assert kernel.symbols == ["n"] and kernel.total == symbol("n", 64)
    assert "for i0 < {n} vector {" in print_kernel(kernel)
    x, y = np.arange(12, dtype=np.float32), np.empty(3, np.float32)
    assert interpret_kernel(kernel, [x, y], sizes={"n": 3}) == 0
    np.testing.assert_array_equal(y, x.reshape(3, 4).sum(1) + 7)
    with pytest.raises(ArgumentError, match="is not a size"):
        parse_kernel("kernel(x: f32[{n+}]) { }")


@pytest.mark.parametrize(("after", "told"), [("", True), ("y[i] = t[0]", False)])
def test_a_loop_of_a_symbolic_size_may_fill_nothing(after: str, told: bool) -> None:
    """Scratch memory of its own that an iteration fills before it reads it: not by a loop that may not run."""
    row = "for r < 5 { t[r] = x[(i * {n} + j) * 5 + r] } for q < 5 { y[(i * {n} + j) * 5 + q] = t[q] * t[0] }"
    nest = f"for i < 4 {{ for j < {{n}} {{ {row} }} {after} }}"
    kernel = parse_kernel(f"kernel(x: f32[{{20*n}}], y: f32[{{20*n}}] out, t: f32[5] scratch) {{ {nest} }}")
    (loop,) = kernel.body
    assert isinstance(loop, For) and independent(loop, private=True) is told

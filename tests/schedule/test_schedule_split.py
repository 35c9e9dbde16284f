"""Long reductions in blocks, and several in one loop: every shape of block against the interpreter."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridml_compiler import pipeline
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.loops.ir import Kernel
from hybridml_compiler.loops.text import parse_kernel, print_kernel
from hybridml_compiler.loops.verify import verify_kernel
from hybridml_compiler.schedule import cost
from hybridml_compiler.targets.cpu.kernels import loop_columns
from hybridml_compiler.targets.cpu.runtime import threads
from tests.support.closeness import assert_close
from tests.support.examples import examples
from tests.support.run_plan import plan_of, run_plan
from tests.support.typical_graphs import Value, array, graph, op

# Shapes whose blocks have a rest and have none, rows of part of a vector, of several and of several chunks, one column,
# axes of size 1.
SHAPES = [
    ((37,), (0,)),
    ((24, 5), (0,)),
    ((37, 17), (0,)),
    ((6, 7, 3), (0, 1)),
    ((5, 3, 4, 2), (0, 2)),
    ((4, 1, 6, 70), (0, 1, 2)),
    ((3, 8, 1), (1,)),
    ((2, 31), (1,)),
    ((2, 9, 4), (0, 1, 2)),
    ((1, 40, 33), (0, 1)),
    ((12, 16, 3), (0, 1)),
    ((36, 70), (0,)),
    ((25, 96), (0,)),
    ((3, 16, 130), (1,)),
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "SPLIT_SPACE", 8)
    monkeypatch.setattr(cost, "SPLIT_ELEMENTS", 8)
    monkeypatch.setattr(cost, "SPLIT_ROWS", 4)
    monkeypatch.setattr(cost, "SPLIT_LENGTH", 1)
    monkeypatch.setattr(loop_columns, "_SHORTEST", 2)
    monkeypatch.setattr(loop_columns, "_ROW", 32)
    monkeypatch.setattr(cost, "PARALLEL_THRESHOLD_NS", 0.0)


def program(seed: int) -> Graph:
    """Reductions over one space of an input, or of something elementwise, and arithmetic on their results."""
    random = Random(seed)
    space, axes = random.choice(SHAPES)
    dtype = random.choice(("f4", "f8", "i4", "bool"))
    keepdims = bool(random.randrange(2))
    x, y = array(*space, dtype=dtype), array(*(n for k, n in enumerate(space) if k > max(axes)), dtype=dtype)
    fulls = [x] if dtype == "bool" else [x, x * x, x + y]
    names = {"b": ["any", "all", "sum", "prod"], "i": ["sum", "max", "min", "prod", "any"]}
    floats = ["sum", "max", "min", "mean", "var", "prod"]
    results = []
    for _ in range(1 + random.randrange(4)):
        positions = ["argmax", "argmin"] if len(axes) == 1 and dtype != "bool" else []
        name = random.choice(names.get(np.dtype(dtype).kind, floats) + positions)
        axis = axes[0] if name in positions else axes
        results.append(op(name, random.choice(fulls), axis=axis, keepdims=keepdims))
    more = [r + r for r in results if random.randrange(2) and r.node.dtype.kind != "b"]
    return graph(f"split {seed}", [x, y], [*results, *more])


def data(program: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [np.asarray(1 + rng.integers(0, 8, n.shape) / 8).astype(n.dtype) for n in program.inputs]


def check(program: Graph, got: list[np.ndarray] | None) -> None:
    assert got is not None
    for k, (g, e) in enumerate(zip(got, interpret(program, data(program)), strict=True)):
        assert_close(g, e, f"{program.name}: output {k}", rtol=3e-6)


@examples(150)
@given(st.integers(0, 1 << 30))
def test_plans_of_long_reductions(seed: int) -> None:
    built = program(seed)
    plan = plan_of(built, splits_positions=True)
    for launch in plan.launches:
        if isinstance(launch.spec, Kernel):
            verify_kernel(launch.spec)
            again = parse_kernel(print_kernel(launch.spec))
            assert print_kernel(again) == print_kernel(launch.spec)
    check(built, run_plan(plan, data(built), len(built.outputs), {}))


@examples(40)
@given(st.integers(0, 1 << 30))
def test_compiled_long_reductions(seed: int) -> None:
    built = program(seed)
    check(built, pipeline.compile(built)(data(built)))


def kernels(*outputs: Value, inputs: list[Value], **more: bool) -> list[Kernel]:
    specs = [launch.spec for launch in plan_of(graph("kernels", inputs, list(outputs)), **more).launches]
    return [spec for spec in specs if isinstance(spec, Kernel)]


def test_a_long_column_is_cut_into_blocks_of_rows() -> None:
    x = array(32, 16)
    partial, last = kernels(x.sum(0) * 2.0, inputs=[x])
    assert [(b.size, b.role) for b in partial.operands] == [(512, "in"), (8 * 16, "out")]
    assert [(b.size, b.role) for b in last.operands] == [(8 * 16, "in"), (16, "out")]
    assert partial.total == 8


def test_rows_longer_than_registers_are_added_to_scratch_memory() -> None:
    x = array(32, 320)
    partial, last = kernels(x.sum(0), (x * x).sum(0), inputs=[x])
    assert [b.size for b in partial.scratch] == [32, 32], "chunks of 32 columns, a row of accumulators for each sum"
    assert [b.role for b in last.buffers].count("scratch") == 2


def test_short_rows_are_taken_together() -> None:
    x = array(64, 16, 3)
    partial, _ = kernels(x.sum((0, 1)), inputs=[x])
    assert partial.operands[1].size == 64 * 2 * 16 * 3 // 8, "every other row of a block apart"


def test_the_squares_of_a_variance_wait_for_the_mean() -> None:
    x = array(32, 16)
    assert len(kernels(op("var", x, axis=(0,)), inputs=[x])) == 3


def test_positions_of_blocks_are_partial_results() -> None:
    """The last kernel looks at the elements at those positions, and blocks have no phases: the first of equals wins."""
    x = array(32, 3)
    assert len(kernels(op("argmax", x, axis=0), inputs=[x])) == 1, "one loop on the CPU"
    partial, last = kernels(op("argmax", x, axis=0), inputs=[x], splits_positions=True)
    assert [(b.size, b.role) for b in last.operands] == [(8 * 3, "in"), (96, "in"), (3, "out")]
    assert partial.operands[1].dtype == np.int64 and "b1[b0[r0 * 3 + i0] * 3 + i0]" in print_kernel(last)


def test_reductions_over_one_space_are_one_loop() -> None:
    x = array(24, 16)
    text = print_kernel(kernels(x.sum(0), (x * x).sum(0), op("max", x, axis=0), inputs=[x])[0])
    assert text.count("over r0 < 4") == text.count("b0[(i0 * 4 + r0) * 16 + i1]") == 3, text  # the same loop, one load


def test_the_sum_of_a_variable_is_the_same_beside_another() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(40, 33)).astype("f4")
    x = array(40, 33)
    (alone,) = pipeline.compile(graph("alone", [x], [x.sum(0)]))([values])
    beside = pipeline.compile(graph("beside", [x], [op("max", x, axis=0), x.sum(0), (x * x).sum(0)]))([values])
    assert alone.tobytes() == beside[1].tobytes()


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(700, 33)).astype("f4")
    x = array(700, 33)
    sums = pipeline.compile(graph("threads", [x], [x.sum(0), op("var", x, axis=(0,)), op("mean", x, axis=(0, 1))]))
    before = threads.get_num_threads()
    try:
        found = []
        for n in (1, 2):
            threads.set_num_threads(n)
            found.append([r.tobytes() for r in sums([values])])
    finally:
        threads.set_num_threads(before)
    assert found[0] == found[1]


def test_a_block_of_one_element_is_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "SPLIT_ROWS", 2)
    x = array(3, 34)
    assert len(kernels(op("max", x, axis=0), inputs=[x])) == 1

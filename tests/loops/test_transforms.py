"""Transformations of loops keep every bit, or are refused: on random nests, run strictly in order before and after."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridml_compiler.errors import CompileError
from hybridml_compiler.graph.ir import Graph, apply, graph_of
from hybridml_compiler.loops.builder import LoopBuilder
from hybridml_compiler.loops.interpret import _Run, interpret_kernel
from hybridml_compiler.loops.ir import Expr, For, Kernel, Reduce, Scan, extent, perfect_nest, statements
from hybridml_compiler.loops.merge import join_reductions, merge_loops
from hybridml_compiler.loops.text import parse_kernel, print_kernel
from hybridml_compiler.loops.transforms import bind, collapse, parallelized, reorder, split, unroll, vectorize
from hybridml_compiler.loops.verify import verify_kernel
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.schedule.kernels.library import Capabilities
from hybridml_compiler.schedule.plan import make_plan
from hybridml_compiler.sizes.dims import is_dim
from hybridml_compiler.targets.cpu.kernels import loop_schedule
from tests.support.cases import case
from tests.support.examples import examples
from tests.support.run_plan import run_plan

SIZE = 256
HEAD = f"kernel(x: f32[{SIZE}], n: i64[{SIZE}], o: f32[{SIZE}] inout, p: f32[{SIZE}] inout, t: f32[4] scratch)"


class InOrder(_Run):
    """Iteration by iteration, so that no analysis decides about what the test is about. Lanes and threads run side by
    side, parallel loops and blocks backwards."""

    def loop(self, stmt: For) -> None:
        if stmt.kind in ("vector", "thread"):
            super().loop(stmt)
            return
        outer = self.enter()
        for iteration in range(self.extent(stmt.var))[:: 1 if stmt.kind == "serial" else -1]:
            self.values[stmt.var] = np.asarray(iteration)
            self.body(stmt.body)
            self.leave(outer)


def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    floats = [rng.integers(1, 9, SIZE).astype("f4") for _ in range(3)]
    return [floats[0], rng.integers(0, 3, SIZE), floats[1], floats[2]]


def run(kernel: Kernel) -> list[np.ndarray]:
    found = arrays()
    InOrder(kernel, found, 0, int(kernel.total), {}).body(kernel.body)
    return found


def same_bits(one: Kernel, other: Kernel) -> None:
    for a, b in zip(run(one), run(other), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=f"{print_kernel(one)}\n{print_kernel(other)}")


def on_a_grid(s: LoopBuilder, kernel: Kernel) -> Kernel:
    """The schedule that a GPU would start with: the outermost loop in blocks of up to 256 threads."""
    kernel = merge_loops(s, kernel)
    loops, _ = perfect_nest(kernel.body)
    if loops and not is_dim(extent(loops[0].var)):
        rows = loops[0].var
        with suppress(CompileError):  # iterations that need each other's results: no grid
            kernel, _, threads = split(s, bind(kernel, rows, "block"), rows, math.gcd(extent(rows), 256))
            return bind(kernel, threads, "thread")
    return kernel


# ---------------------------------------------------------------- random nests


@st.composite
def nests(draw: st.DrawFn) -> str:
    """Text of a kernel: up to three loops, with stores, reductions and scans that may get in each other's way."""
    count = 0

    def fresh() -> str:
        nonlocal count
        count += 1
        return f"v{count}"

    def index(names: list[str], data: bool) -> str:
        terms = [f"{name} * {draw(st.sampled_from((0, 1, 1, 2, 4, 5, 16)))}" for name in names]
        if data and draw(st.integers(0, 3)) == 0:
            terms.append(f"n[{index(names, False)}] * {draw(st.sampled_from((1, 4, 20)))}")
        return " + ".join([*terms, str(draw(st.sampled_from((0, 0, 0, 1, 4, 7))))])

    def load(names: list[str]) -> str:
        return f"{draw(st.sampled_from(('x', 'x', 'o', 'p')))}[{index(names, False)}]"

    def target(names: list[str]) -> str:
        return f"{draw(st.sampled_from('op'))}[{index(names, True)}]"

    def item(names: list[str], depth: int) -> str:
        kinds = ["store", "store", "update", "reduce", "scan", "scratch"]
        kind = draw(st.sampled_from([*kinds, *(["for"] * (3 * depth))]))
        r, size = fresh(), draw(st.integers(1, 4))
        match kind:
            case "store":
                return f"{target(names)} = {load(names)} + {load(names)}"
            case "update":
                place = target(names)
                return f"{place} = {place} * {load(names)}"
            case "reduce":
                place = target(names)
                return f"s{r} = reduce add over {r} < {size} of {load([*names, r])} {place} = s{r}"
            case "scan":
                return f"scan add over {r} < {size} {{ o[{r} + {index(names, False)}] = {load([*names, r])} }}"
            case "scratch":
                step = draw(st.sampled_from((1, 1, 0)))
                fill = f"for {r} < {draw(st.integers(3, 4))} {{ t[{r} * {step}] = {load([*names, r])} }}"
                return f"{fill} {target(names)} = t[{draw(st.integers(0, 3))}]"
        inner = [item([*names, r], depth - 1) for _ in range(draw(st.sampled_from((1, 1, 2))))]
        return f"for {r} < {size} {{ {' '.join(inner)} }}"

    return f"{HEAD} {{ {item([], 3)} }}"


def loops_of(kernel: Kernel) -> list[Expr]:
    return [stmt.var for stmt in statements(kernel.body) if isinstance(stmt, For)]


def drawn(draw: Callable[..., Any], s: LoopBuilder, kernel: Kernel) -> Kernel:
    """The kernel after a transformation, or the same one after a refusal."""
    loops = loops_of(kernel) or [s.var("none", 2)]
    var = draw(st.sampled_from(loops))
    with suppress(CompileError):
        match draw(st.sampled_from(("split", "reorder", "vectorize", "bind", "unroll", "collapse", "merge"))):
            case "split":
                return split(s, kernel, var, draw(st.integers(1, 4)))[0]
            case "reorder":
                chain = perfect_nest((next(x for x in statements(kernel.body) if isinstance(x, For)),))[0]
                return reorder(kernel, draw(st.permutations([loop.var for loop in chain[: draw(st.integers(2, 3))]])))
            case "vectorize":
                return vectorize(kernel, var, 4)
            case "bind":
                return bind(kernel, var, draw(st.sampled_from(("serial", "parallel", "block", "thread"))))
            case "unroll":
                return unroll(s, kernel, var)
            case "collapse":
                return collapse(s, kernel, draw(st.integers(2, 3)))
            case "merge":
                return join_reductions(s, merge_loops(s, kernel))
    return kernel


@examples(60)
@given(nests(), st.data())
def test_transformations_keep_the_bits(text: str, data: st.DataObject) -> None:
    first = kernel = parse_kernel(text)
    s = LoopBuilder()
    for _ in range(3):
        kernel = drawn(data.draw, s, kernel) if loops_of(kernel) else kernel
    verify_kernel(kernel)
    same_bits(first, kernel)


@examples(40)
@given(nests())
def test_schedules_keep_the_bits(text: str) -> None:
    kernel = parse_kernel(text)
    for schedule in (parallelized, on_a_grid, lambda s, kernel: loop_schedule.schedule(s, kernel, 4)):
        found = schedule(LoopBuilder(), kernel)
        verify_kernel(found)
        same_bits(kernel, found)


@examples(40)
@given(nests())
def test_the_interpreter_runs_nests_in_order(text: str) -> None:
    """It runs a loop as one axis of NumPy where iterations are independent."""
    kernel, found = parse_kernel(text), arrays()
    interpret_kernel(kernel, found)
    for a, b in zip(found, run(kernel), strict=True):
        np.testing.assert_array_equal(a, b)


def test_every_row_on_a_grid() -> None:
    on_grids = 0
    for op in OPS.values():
        sample = next(iter(op.samples(np.random.default_rng(0))))
        args = sample.args[0] if op.variadic else sample.args
        given = [np.ascontiguousarray(a).reshape(np.shape(a)) for a in args]
        nodes = graph_of(given)
        parts = [{"result": k} for k in range(len(op.results))] or [{}]
        graph = Graph(tuple(nodes), tuple(apply(op, nodes, {**sample.params, **part}) for part in parts), op.name)
        results = []
        for schedule in (on_a_grid, lambda _, kernel: kernel):
            plan = make_plan(graph, {}, Capabilities(lambda _: False, lambda _: False, 1, schedule))
            results.append(run_plan(plan, given, len(parts), {}))
            for kernel in (nest for launch in plan.launches for nest in launch.kernels):
                verify_kernel(kernel)
                on_grids += any(isinstance(stmt, For) and stmt.kind == "thread" for stmt in statements(kernel.body))
        with case(op.name):
            for here, there in zip(*results, strict=True):
                np.testing.assert_array_equal(here, there)
    assert on_grids > 100


# ---------------------------------------------------------------- by name


MAP = "kernel(x: f32[6144], y: f32[6144] out) { for i < 64 { for j < 96 { y[i * 96 + j] = x[i * 96 + j] + 1.0:f32 } } }"
ROWS = "kernel(x: f32[6144], y: f32[64] out) { for i < 64 { s = reduce add over r < 96 of x[i * 96 + r] y[i] = s } }"


def test_a_map_on_a_grid() -> None:
    kernel, s = parse_kernel(MAP), LoopBuilder()
    i, j = loops_of(kernel)
    kernel, _, threads = split(s, bind(kernel, i, "block"), j, 32)
    kernel = bind(kernel, threads, "thread")
    verify_kernel(kernel)
    assert [(stmt.kind, extent(stmt.var)) for stmt in statements(kernel.body) if isinstance(stmt, For)] == [
        ("block", 64), ("serial", 3), ("thread", 32),
    ]  # fmt: skip
    assert "for i2 < 32 thread {" in print_kernel(kernel) and print_kernel(parse_kernel(print_kernel(kernel))) == (
        print_kernel(kernel)
    )
    x, y = np.arange(6144, dtype="f4"), np.zeros(6144, "f4")
    assert kernel.total == 64 and interpret_kernel(kernel, [x, y]) == 0
    np.testing.assert_array_equal(y, x + 1)


def test_a_reduction_of_rows_on_a_grid() -> None:
    x = np.arange(6144, dtype="f4") % 7
    kernel, s = parse_kernel(ROWS), LoopBuilder()
    (i,) = loops_of(kernel)
    r = next(stmt.vars[-1] for stmt in statements(kernel.body) if isinstance(stmt, Reduce))
    together = bind(bind(kernel, i, "block"), r, "thread")  # a row by the threads of a block
    parted, _, threads = split(s, bind(kernel, i, "block"), i, 16)
    alone = bind(parted, threads, "thread")  # a row by each thread
    for found, line in ((together, "reduce add over r0 < 96 thread of"), (alone, "for i1 < 16 thread {")):
        verify_kernel(found)
        assert line in print_kernel(found) and parse_kernel(print_kernel(found)).range is not None
        y = np.zeros(64, "f4")
        assert interpret_kernel(found, [x, y]) == 0
        np.testing.assert_array_equal(y, x.reshape(64, 96).sum(1))


COLUMN = "for i < 4 { o[i + 1] = o[i] }"  # every iteration needs the one before
TOLD = "for i < 4 { for j < 4 { o[n[i] * 4 + j] = x[i * 4 + j] } }"  # two rows may go to one place
SCAN = "for i < 4 { scan add over r < 4 { o[i * 4 + r] = x[r] } }"
SKEWED = "for i < 4 { for j < 4 { o[i * 4 + j + 3] = o[i * 4 + j + 6] } }"


@pytest.mark.parametrize(
    ("body", "change", "message"),
    [
        (SCAN, lambda s, k, v: split(s, k, v[0], 3), "split: 3 does not divide the 4 iterations"),
        (SCAN, lambda s, k, v: reorder(k, [v[0], scan_variable(k)]), "scans keep their order"),
        (SCAN, lambda s, k, v: vectorize(k, scan_variable(k), 4), "there is no loop over .*; a scan runs in order"),
        (TOLD, lambda s, k, v: bind(k, v[0], "parallel"), "may need each other's results; they stay serial"),
        (TOLD, lambda s, k, v: bind(k, v[1], "parallel"), "a parallel loop over .* inside of the serial loop"),
        (SKEWED, lambda s, k, v: reorder(k, v[::-1]), "reorder: the order of iterations over .* matters"),
        (COLUMN, lambda s, k, v: vectorize(k, v[0], 4), "may need each other's results; they stay serial"),
        (COLUMN, lambda s, k, v: unroll(s, k, v[0]), "may need each other's results"),
        (TOLD, lambda s, k, v: collapse(s, bind(k, v[1], "vector"), 2), "there are no 2 loops of one kind"),
    ],
)
def test_what_would_change_a_result_is_refused(body: str, change: Callable[..., object], message: str) -> None:
    kernel = parse_kernel(f"{HEAD} {{ {body} }}")
    with pytest.raises(CompileError, match=message):
        change(LoopBuilder(), kernel, loops_of(kernel))


def scan_variable(kernel: Kernel) -> Expr:
    return next(stmt.var for stmt in statements(kernel.body) if isinstance(stmt, Scan))


def test_rows_that_data_tell_may_run_outside() -> None:
    """Columns of an update go to places of their own, wherever its rows go."""
    kernel = parse_kernel(f"{HEAD} {{ {TOLD} }}")
    i, j = loops_of(kernel)
    found = vectorize(reorder(kernel, [j, i]), j, 4)
    assert loops_of(found) == [j, i]
    same_bits(kernel, found)


def test_iterations_are_written_out() -> None:
    kernel = parse_kernel("kernel(x: f32[2], y: f32[2] out) { for i < 2 { y[i] = x[i] } }")
    assert "for" not in print_kernel(unroll(LoopBuilder(), kernel, loops_of(kernel)[0]))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (  # rows of all heads are one loop: each fills its scratch row before it reads it
            "for i < 8 { for j < 8 { for k < 4 { t[k] = x[i * 32 + j * 4 + k] } "
            "s = reduce add over r < 4 of t[r] for l < 4 { o[i * 32 + j * 4 + l] = t[l] * s } } }",
            [("parallel", 64), ("vector", 4), ("vector", 4)],
        ),
        ("for i < 4 { scan add over r < 8 { o[r * 4 + i] = x[r * 4 + i] } }", [("vector", 4)]),
        ("for i < 4 { o[i * 16 + 3] = o[i * 16 + 3] + 1.0:f32 }", [("vector", 4)]),
        (  # what is beside a loop is no part of it
            "for i < 8 { o[i] = x[i] * x[i] } s = reduce add over r < 8 of o[r] p[0] = s",
            [("vector", 8)],
        ),
        (TOLD, [("serial", 4), ("vector", 4)]),
        (COLUMN, [("serial", 4)]),
    ],
)
def test_a_cpu_shares_what_it_may(body: str, expected: list[tuple[str, int]]) -> None:
    kernel = parse_kernel(f"{HEAD} {{ {body} }}")
    found = loop_schedule.schedule(LoopBuilder(), kernel, 4)
    assert [(loop.kind, extent(loop.var)) for loop in statements(found.body) if isinstance(loop, For)] == expected
    same_bits(kernel, found)


def test_columns_of_any_length_run_in_lanes() -> None:
    kernel = parse_kernel(
        "kernel(x: f32[{8*n}], o: f32[{8*n}] out) {"
        "for i < 8 { scan add over r < {n} { o[r * 8 + i] = x[r * 8 + i] } } }"
    )
    assert "for i0 < 8 vector {" in print_kernel(loop_schedule.schedule(LoopBuilder(), kernel, 4))

"""Kernels that read other places of an array are one kernel, given other addresses."""

from __future__ import annotations

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, Node, graph_of
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.loops.builder import LoopBuilder
from hybridml_compiler.loops.ir import Buffer, For, Kernel, Store
from hybridml_compiler.loops.text import print_kernel
from hybridml_compiler.schedule.lowering.offset_hoisting import rebase
from hybridml_compiler.targets.cpu.llvm.modules import PlanModules, modules_of
from hybridml_compiler.targets.cpu.spec import host_spec
from tests.support.run_plan import plan_of, run_plan


def test_running_sums_of_slices_are_one_kernel() -> None:
    array = np.linspace(-1, 1, 320 * 8, dtype="f4").reshape(320, 8)
    (x,) = graph_of([array])

    def running(k: int) -> Node:
        rows = make("slice", x, starts=(64 * k, 0), stops=(64 * k + 64, 8), steps=(1, 1))
        return make("cumulative_sum", rows, axis=0)

    graph = Graph((x,), tuple(map(running, range(5))))
    plan = plan_of(graph)
    assert len(plan.launches) == 5 and len(modules_of(plan, PlanModules(host_spec()))) == 1 + 1  # the kernel, the step
    results = run_plan(plan, [array], 5, {})
    assert results is not None
    expected = interpret(graph, [array])
    assert all(a.tobytes() == b.tobytes() for a, b in zip(results, expected, strict=True))


def kernel(first: int, second: int, *, size: int = 100) -> Kernel:
    s = LoopBuilder()
    x, out = Buffer("x", dtypes.float32, size), Buffer("out", dtypes.float32, 10, "out")
    i = s.var("i", 10)
    value = s.mul(s.load(x, s.add(s.mul(i, 2), first)), s.load(x, second))
    return Kernel((x, out), (For(i, (Store(out, i, value),), "parallel"),))


def test_what_all_indices_have_in_common_is_in_the_address() -> None:
    changed, shifts = rebase(kernel(17, 20))
    assert shifts == {"x": 17}
    assert print_kernel(changed) == print_kernel(kernel(0, 3, size=19))
    again, none = rebase(changed)
    assert again is changed and not none


def test_nothing_is_read_before_the_address() -> None:
    s = LoopBuilder()
    x, out = Buffer("x", dtypes.float32, 24), Buffer("out", dtypes.float32, 24, "out")
    i = s.var("i", 24)
    backwards = Kernel((x, out), (For(i, (Store(out, i, s.load(x, s.sub(23, i))),), "parallel"),))
    assert rebase(backwards) == (backwards, {})


def test_an_operand_that_is_updated_is_given_from_its_first_element_on() -> None:
    s = LoopBuilder()
    x, i = Buffer("x", dtypes.float32, 100, "inout"), s.var("i", 10)
    value = s.add(s.load(x, s.add(i, 60)), 1.0)
    made, shifts = rebase(Kernel((x,), (For(i, (Store(x, s.add(i, 50), value),)),)))
    assert shifts == {"x": 50} and made.operands[0].size == 20
    assert "x[i0] = x[i0 + 10]" in print_kernel(made)

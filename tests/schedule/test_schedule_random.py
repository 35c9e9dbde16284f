"""Random graphs with random donations: the plan and the compiled program against the graph's interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hybridml_compiler import pipeline
from hybridml_compiler.errors import OutOfBoundsError
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.loops.ir import Kernel
from hybridml_compiler.loops.text import parse_kernel, print_kernel
from hybridml_compiler.loops.verify import verify_kernel
from hybridml_compiler.schedule import cost
from hybridml_compiler.schedule.memory import ALIGNMENT, Interval, plan_arena
from hybridml_compiler.targets.cpu.llvm.kernel import emit_kernel
from hybridml_compiler.targets.cpu.spec import host_spec
from tests.support.examples import examples
from tests.support.random_plans import arrays_for, check, donations, run_compiled
from tests.support.run_plan import plan_of, run_plan

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


@examples(300)
@given(st.integers(0, 1 << 30))
@example(97504)  # a slice past its end of padding: nothing that the mask leaves is read
def test_plans_of_random_graphs(seed: int) -> None:
    graph, donate = donations(seed)
    expected = [np.array(a) for a in interpret(graph, arrays_for(graph))]
    plan = plan_of(graph, donate)
    for launch in plan.launches:
        if isinstance(launch.spec, Kernel):
            verify_kernel(launch.spec)
    got = run_plan(plan, arrays_for(graph), len(expected), donate)
    assert got is not None
    check(got, expected, "plan")


@examples(40)
@given(st.integers(0, 1 << 30))
def test_the_text_of_a_kernel_decides_its_code(seed: int) -> None:
    """Object code is cached under this text: what is read back from it must emit the same."""
    for launch in plan_of(*donations(seed, (19, 37))).launches:
        if isinstance(launch.spec, Kernel):
            assert llvm(parse_kernel(print_kernel(launch.spec))) == llvm(launch.spec)


def llvm(kernel: Kernel) -> str:
    from hybridml_compiler.targets.cpu.llvm import ir

    module = ir.Module("kernel", host_spec())
    emit_kernel(module, "kernel", kernel)
    return str(module)


@examples(40)
@given(st.integers(0, 1 << 30))
def test_compiled_random_graphs(seed: int) -> None:
    run_compiled(*donations(seed))


@examples(20)
@given(st.integers(0, 1 << 30))
def test_compiled_random_graphs_in_lanes_and_threads(seed: int) -> None:
    """Sizes that no vector divides, and every kernel split over threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "PARALLEL_THRESHOLD_NS", 0.0)
        run_compiled(*donations(seed, (19, 37)))


def test_out_of_range_is_the_users_error() -> None:
    from tests.support.typical_graphs import embedding

    graph = embedding()
    executable = pipeline.compile(graph)
    with pytest.raises(OutOfBoundsError, match="index 100 is out of range for axis 0 of size 100"):
        executable([np.zeros((100, 16), "f4"), np.full((4, 8), 100)])

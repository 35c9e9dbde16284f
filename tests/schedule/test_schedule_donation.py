"""Donated outputs: state is overwritten in place where that is safe, and the result is the same where it is not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hybridml_compiler import pipeline
from hybridml_compiler.errors import CompileError, OutOfBoundsError
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.schedule.plan import Copy
from tests.support.run_plan import plan_of, run_plan
from tests.support.typical_graphs import Value, array, graph, op


def check(program: Graph, donate: dict[int, int], *, copies: int, inputs: Sequence[np.ndarray] = ()) -> None:
    """Whole numbers, so that the order of a sum does not matter; `copies` is what the plan may cost."""

    def fresh() -> list[np.ndarray]:
        rng = np.random.default_rng(0)
        return [a.copy() for a in inputs] or [rng.integers(1, 9, n.shape).astype(n.dtype) for n in program.inputs]

    expected = [np.array(a) for a in interpret(program, fresh())]
    plan = plan_of(program, donate)
    assert sum(isinstance(launch.spec, Copy) for launch in plan.launches) == copies
    interpreted = run_plan(plan, fresh(), len(expected), donate)
    executable = pipeline.compile(program, donate)
    arrays = fresh()
    compiled = executable(arrays)
    assert interpreted is not None
    for k, (e, i, c) in enumerate(zip(expected, interpreted, compiled, strict=True)):
        np.testing.assert_array_equal(i, e, err_msg=f"plan, output {k}")
        np.testing.assert_array_equal(c, e, err_msg=f"compiled, output {k}")
    for out, source in donate.items():
        assert compiled[out] is arrays[source]


def test_an_update_in_place_needs_no_copy() -> None:
    w, g = array(40), array(40)
    check(graph("update", [w, g], [w - g * 0.5]), {0: 0}, copies=0)


def test_a_product_is_written_over_an_input() -> None:
    a, b, old = array(4, 6), array(6, 5), array(4, 5)
    check(graph("product", [a, b, old], [a @ b]), {0: 2}, copies=0)
    check(graph("accumulated", [a, b, old], [old + a @ b]), {0: 2}, copies=0)


def test_other_readers_of_the_old_value_run_first() -> None:
    w, g = array(4, 10), array(4, 10)
    check(graph("norm", [w, g], [w - g * 0.5, w.sum(1)]), {0: 0}, copies=0)


def test_a_reader_of_both_values_takes_a_copy() -> None:
    """w.sum must run before the update and after it."""
    w, g = array(4, 10), array(4, 10)
    new = w - g * 0.5
    check(graph("both", [w, g], [new, (w - new.sum(1, keepdims=True)).sum(0)]), {0: 0}, copies=1)


def test_a_value_that_moves_is_not_written_in_place() -> None:
    w = array(6)
    check(graph("flip", [w], [op("flip", w, axis=0) * 2.0]), {0: 0}, copies=1)
    m = array(5, 5)
    check(graph("transpose", [m], [m.T + m]), {0: 0}, copies=1)
    check(graph("product", [m], [m @ m]), {0: 0}, copies=1)
    check(graph("running", [w], [op("cumulative_sum", w, axis=0)]), {0: 0}, copies=1)


def test_two_inputs_change_places() -> None:
    a, b = array(7), array(7)
    check(graph("swap", [a, b], [b, a]), {0: 0, 1: 1}, copies=4)  # two snapshots, two copies back
    check(graph("computed", [a, b], [b * 2.0, a * 3.0]), {0: 0, 1: 1}, copies=1)
    check(graph("one kernel", [a, b], [b * 2.0 + a, a * 3.0 + b]), {0: 0, 1: 1}, copies=0)  # values, then stores
    c, d = array(3, 4), array(4, 3)
    swapped = graph("turned", [c, d], [d.T * 2.0, c.T * 3.0])
    check(swapped, {0: 0, 1: 1}, copies=1)


def test_three_inputs_rotate() -> None:
    a, b, c = array(5), array(5), array(5)
    check(graph("rotate", [a, b, c], [b, c, a]), {0: 0, 1: 1, 2: 2}, copies=6)
    check(graph("kept", [a, b], [a, b]), {0: 0, 1: 1}, copies=0)


def test_an_input_is_returned_and_overwritten() -> None:
    w, g = array(8), array(8)
    check(graph("old and new", [w, g], [w, w - g]), {1: 0}, copies=1)
    check(graph("new and old", [w, g], [w - g, w]), {0: 0}, copies=1)


def test_one_value_is_several_outputs() -> None:
    w, g = array(8), array(8)
    new = w - g
    check(graph("twice", [w, g], [new, new]), {0: 0}, copies=1)
    check(graph("twice, the other", [w, g], [new, new]), {1: 0}, copies=1)
    check(graph("both donated", [w, g], [new, new]), {0: 0, 1: 1}, copies=1)
    check(graph("no donation", [w, g], [new, new, w, w]), {}, copies=3)


def test_an_output_is_a_constant() -> None:
    w = array(3)
    zeros = Value(pipeline_constant(np.zeros(3, "f4")))
    check(graph("reset", [w], [zeros]), {0: 0}, copies=1)
    check(graph("reset and old", [w], [zeros, w]), {0: 0}, copies=2)


def pipeline_constant(data: np.ndarray) -> object:
    from hybridml_compiler.graph.ir import constant

    return constant(data)


def test_empty_arrays_are_donated() -> None:
    w = array(0, 4)
    check(graph("empty", [w], [w * 2.0]), {0: 0}, copies=0)
    check(graph("empty swap", [w, array(0, 4)], [w, w]), {0: 1}, copies=0)


def test_scatter_into_donated_memory() -> None:
    """The updates are computed from the table that they change."""
    table, at = array(6, 3), array(4, dtype="i8")
    new = op("scatter_add", table, at, op("take", table, at, axis=0) * 10.0, axis=0)
    data = [np.arange(18, dtype="f4").reshape(6, 3), np.array([1, 5, 1, -1])]
    check(graph("scatter", [table, at], [new]), {0: 0}, copies=0, inputs=data)


def test_impossible_donations_are_refused() -> None:
    w, v, d = array(4), array(2, 2), array(4, dtype="f8")
    program = graph("wrong", [w, v, d], [w * 2.0, w * 3.0])
    with pytest.raises(CompileError, match=r"output 0 is f32\[4\] and cannot overwrite input 1, which is f32\[2,2\]"):
        plan_of(program, {0: 1})
    with pytest.raises(CompileError, match=r"cannot overwrite input 2, which is f64\[4\]"):
        plan_of(program, {0: 2})
    with pytest.raises(CompileError, match="one input is donated to two outputs"):
        plan_of(program, {0: 0, 1: 0})


@pytest.mark.parametrize("late", [False, True])
def test_a_failed_check_leaves_state_whole(late: bool) -> None:
    """An index out of range is found before anything is overwritten, also where it is read from the new state."""
    w, at = array(6, 4), array(6, dtype="i8")
    new = w * 2.0
    picked = op("take", new if late else w, at, axis=0)
    program = graph("checked", [w, at], [new, picked.sum(0)] if late else [w - picked, picked.sum(0)])
    executable = pipeline.compile(program, {0: 0})
    state, before = np.ones((6, 4), "f4"), np.ones((6, 4), "f4")
    with pytest.raises(OutOfBoundsError, match="take: index 6 is out of range for axis 0 of size 6"):
        executable([state, np.array([0, 1, 2, 3, 4, 6])])
    np.testing.assert_array_equal(state, before)
    got = executable([state, np.array([0, 1, 2, 3, 4, -1])])
    assert got[0] is state and (state != before).all()


def test_an_update_waits_for_one_lookup_of_some_indices() -> None:
    """The gradient of an embedding looks up what its forward pass has looked up: both fail, or none."""
    table, w, at, b = array(6, 40), array(40), array(50, dtype="i8"), array(40, 40)
    found = op("take", table, at, axis=0)
    wide = op("exp", found @ b)
    gradient = op("scatter_add", table, op("reshape", at, shape=(50,)), wide, axis=0)
    program = graph("embedding", [table, w, at, b], [w - found.sum(0), gradient])
    launches = plan_of(program, {0: 1}).launches
    update = next(k for k, launch in enumerate(launches) if launch.overwrites)
    lookups = [k for k, launch in enumerate(launches) if launch.checked]
    assert lookups[0] < update < lookups[1]
    executable = pipeline.compile(program, {0: 1})
    state, indices = np.ones(40, "f4"), np.arange(50) % 6
    indices[7] = 6
    with pytest.raises(OutOfBoundsError, match="take: index 6 is out of range for axis 0 of size 6"):
        executable([np.ones((6, 40), "f4"), state, indices, np.ones((40, 40), "f4")])
    np.testing.assert_array_equal(state, np.ones(40))


@pytest.mark.parametrize("width", [40, 0])
def test_an_update_waits_for_a_lookup_of_all_indices(width: int) -> None:
    """A kernel that looks up some of the indices, or none of them as rows are empty, checks no others."""
    table, w, at, b, other = array(6, 40, width), array(40), array(50, 1, dtype="i8"), array(40, 40), array(6, 40)
    found = op("take", table, at, axis=0)
    some = op("slice", found, starts=(0, 0, 0, 0), stops=(3, 1, 40, width), steps=(1, 1, 1, 1))
    later = op("take", other, op("reshape", at, shape=(50,)), axis=0)
    new = w - op("exp", some.sum(3).sum(1) @ b).sum(0)
    program = graph("some", [table, w, at, b, other], [new, op("exp", later @ b)])
    executable = pipeline.compile(program, {0: 1})
    state, indices = np.ones(40, "f4"), np.arange(50).reshape(50, 1) % 6
    indices[20] = 6
    with pytest.raises(OutOfBoundsError, match="take: index 6 is out of range for axis 0 of size 6"):
        executable([np.ones((6, 40, width), "f4"), state, indices, np.ones((40, 40), "f4"), np.ones((6, 40), "f4")])
    np.testing.assert_array_equal(state, np.ones(40))

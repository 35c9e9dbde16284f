"""Gradients through Python's loops: a loop the other way round, whose steps touch what the steps forward have."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import hybridml as hm
from hybridml.tracing.specialize.errors import TraceWarning
from hybridml_compiler.errors import GradientError
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.text import parse_graph
from tests.support.examples import examples
from tests.support.loop_gradients import (
    FORMS,
    assert_close,
    both,
    branches,
    dynamic_program,
    forms,
    forward_substitution,
    recurrence,
    recurrent_network,
    second,
    stencil,
)
from tests.support.random_loops import M, N, Programs

R = np.random.default_rng(0)


@forms
def test_the_gradient_of_a_loop_is_a_loop(fn: Any, a: Any, b: Any) -> None:
    x, y = hm.asarray(a), hm.asarray(np.asarray(b))
    gradient = hm.trace(both(fn))
    found, expected = gradient(x, y), both(fn)(x, y)
    assert_close(found, expected)
    assert " loop(" in gradient.ir and len(gradient.ir.splitlines()) < 250
    assert_close(both(hm.trace(fn))(x, y), expected)  # derived when it is asked for
    u, v = R.standard_normal(a.shape), R.standard_normal(np.shape(b))
    ends = [float(fn(hm.asarray(a + e * u), hm.asarray(np.asarray(b + e * v)))) for e in (1e-6, -1e-6)]
    slope = (np.asarray(found[0]) * u).sum() + (np.asarray(found[1]) * v).sum()
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("fn", "a", "b"),
    [form for form in FORMS if form[0] in (stencil, forward_substitution, branches, recurrent_network)],
)
def test_second_derivatives(fn: Any, a: Any, b: Any) -> None:
    x, y = hm.asarray(a), hm.asarray(np.asarray(b))
    traced = hm.trace(second(fn))
    assert_close(traced(x, y), second(fn)(x, y))
    assert " loop(" in traced.ir


# -- what a step costs


def _bodies(fn: Any, *args: Any) -> list[ir.Graph]:
    """The bodies of all loops of a gradient."""
    traced = hm.trace(both(fn))
    traced(*map(hm.asarray, args))
    found, pending = [], [parse_graph(traced.ir)]
    while pending:
        graph = pending.pop()
        inner = [node.params["body"].graph for node in graph.nodes() if node.op is not None and node.op.name == "loop"]
        found += inner
        pending += inner
    return found


@pytest.mark.parametrize(
    ("fn", "whole", "args"),
    [
        (recurrence, (500, 3), (R.random((500, 3)), R.random(3))),
        (forward_substitution, (50, 50), (np.eye(50) + np.tril(R.random((50, 50))), R.random(50))),
        (dynamic_program, (41, 41), (R.random((40, 40)), R.random())),
    ],
)
def test_a_step_touches_slices_and_no_whole_array(fn: Any, whole: Any, args: Any) -> None:
    for body in _bodies(fn, *args):
        large = {node.op.name for node in body.nodes() if node.op is not None and node.shape == whole}
        assert large <= {"slice_update", "loop"}


def test_what_is_saved_is_no_more_than_the_arrays() -> None:
    """The gradient of a table that is filled in element by element saves those elements, and no table in each step."""
    traced = hm.trace(both(dynamic_program))
    traced(hm.asarray(R.random((40, 40))), hm.asarray(0.5))
    sizes = [np.prod([*map(int, found.split(","))]) for found in re.findall(r"f64\[([\d,]+)\]", traced.ir)]
    assert max(sizes) == 41 * 41


def test_a_solution_is_restored_from_the_last_step_on() -> None:
    """One element is put back in each step, where reading saved ones would take rows of 60."""
    traced = hm.trace(both(forward_substitution))
    traced(hm.asarray(np.eye(60) + np.tril(R.random((60, 60)))), hm.asarray(R.random(60)))
    stacks = [node for node in parse_graph(traced.ir).nodes() if node.op is not None and node.op.name == "loop"]
    assert {node.shape for node in stacks} <= {(60,), (60, 1), (60, 60)}
    assert sum(node.shape == (60, 60) for node in stacks) == 1  # the gradient of the matrix


# -- what eager code refuses, and what a step decides


def test_errors_are_those_of_eager_code() -> None:
    def overwritten(a: Any, w: Any) -> Any:
        b = a * 2
        for i in range(1, 20):
            b[i] = b[i - 1] * w  # keeps a row of an array that is written to
        return b.sum()

    def in_the_next_step(a: Any, w: Any) -> Any:
        b, t = a * 2, w
        for i in range(20):
            b[i] = t
            t = b[i] * w
        return b.sum()

    def after_the_loop(a: Any, w: Any) -> Any:
        b, s = a * 2, w * 0
        for i in range(20):
            s = s + b[i] * w
        b[3] = 5.0
        return (s * s).sum() + b.sum()

    def after_a_while(a: Any, w: Any) -> Any:
        b, s = a * 2, w * 0
        while s < 4:
            s = s + (b[1:] * w).sum() + 1
        b[3] = 5.0
        return s + b.sum()

    for fn in (overwritten, in_the_next_step, after_the_loop, after_a_while):
        for style in (both(fn), hm.trace(both(fn)), both(hm.trace(fn))):
            with pytest.raises(GradientError, match="was overwritten in place"):
                style(hm.asarray(R.random(20)), hm.asarray(0.5, dtype="float64"))


def test_a_leaf_is_not_updated_in_place() -> None:
    def f(a: Any) -> Any:
        for i in range(20):
            a[i] = 0.5
        return a.sum()

    for style in (f, hm.trace(f)):
        with pytest.raises(GradientError, match="leaf"):
            style(hm.tensor(R.random(20), requires_grad=True))


def test_updates_without_history_and_values_without_gradients() -> None:
    def f(a: Any, w: Any) -> Any:
        count, seen = hm.zeros((), dtype="float64"), hm.zeros((20,), dtype="float64")
        x = a * 1.0
        for i in range(20):
            count = count + 1.0
            with hm.no_grad():
                seen[i] = x[i] * count
                x[i] = x[i] * 0.5
        assert not count.requires_grad and not seen.requires_grad
        return (x * w).sum() + seen.sum() + count

    x, w = hm.asarray(R.random(20)), hm.asarray(0.5)
    assert_close(hm.trace(both(f))(x, w), both(f)(x, w))


def test_numpy_arrays_of_the_program_have_no_history_in_loops_either() -> None:
    def loss(x: hm.Tensor) -> hm.Tensor:
        out = np.zeros(40)
        for i in range(40):
            out[i] = (x[i] * 2.0).detach() if detached else x[i] * 2.0
        return (hm.asarray(out) * x).sum()

    x = hm.asarray(np.arange(40.0))
    detached = False
    for program in (hm.grad(loss), hm.trace(hm.grad(loss)), hm.grad(hm.trace(loss))):
        with pytest.raises(hm.GradientError, match="NumPy's arrays keep no gradients"):
            program(x)
    detached = True
    expected = np.asarray(hm.grad(loss)(x))
    np.testing.assert_array_equal(expected, 2.0 * np.arange(40.0))
    np.testing.assert_array_equal(np.asarray(hm.trace(hm.grad(loss))(x)), expected)
    np.testing.assert_array_equal(np.asarray(hm.grad(hm.trace(loss))(x)), expected)


def test_arrays_take_constants_in_loops_that_are_differentiated() -> None:
    def constants(p: hm.Tensor, c: hm.Tensor) -> hm.Tensor:
        y, s = np.zeros((30, 30)), p * 0.0
        for i in range(30):
            for j in range(30):
                y[i, j] = c[i] * 2.0 + j
            s = s + p * i
        return hm.asarray(y).sum() * s.sum()

    def recorded(p: hm.Tensor, c: hm.Tensor) -> hm.Tensor:
        y, s = np.zeros((30, 30)), p * 0.0
        for i in range(30):
            s = s + c[i]
            for j in range(30):
                y[i, j] = s[0] + j  # which is recorded from outside of both loops
        return hm.asarray(y).sum() + s.sum()

    p, c = hm.ones(3, dtype=hm.float64), hm.asarray(np.arange(30.0))
    traced = hm.trace(hm.grad(constants))
    np.testing.assert_allclose(traced(p, c), hm.grad(constants)(p, c), rtol=1e-13)
    assert " loop(" in traced.ir
    for program in (hm.grad(recorded), hm.trace(hm.grad(recorded)), hm.grad(hm.trace(recorded))):
        with pytest.raises(hm.GradientError, match="NumPy's arrays keep no gradients"):
            program(p, c)


def _differentiable(source: str) -> str:
    """A program that reads copies: eager code refuses gradients that need what is overwritten."""
    lines = []
    for line in source.splitlines():
        found = re.match(r"(\s*(?:[avw](?:\[[^\]]*\])?|s) (?:=|\+=|\*=) )(.*)$", line)
        lines.append(line if found is None else found[1] + re.sub(r"\b([av]\[[^\]]*\]|w\b)", r"\1.clone()", found[2]))
    return "\n".join(lines)


@examples(3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([k for k in range(60) if k not in (5, 12, 16, 19)]))
def test_random_programs(seed: int) -> None:
    source, space = _differentiable(Programs(seed).source()), dict[str, Any]()
    exec(compile(source, f"<program {seed}>", "exec"), space)

    def loss(a: Any, v: Any, w: Any) -> Any:
        found = space["program"](a.clone(), v.clone(), w.clone())
        return sum(hm.sin(x * 1.0).sum() if isinstance(x, hm.Tensor) else x for x in found)

    r = np.random.default_rng(seed)
    given = [hm.asarray(r.random(shape) * 0.7) for shape in ((N, M), (N,), (M,))]
    if max(np.abs(np.asarray(x)).max() for x in space["program"](*(x.clone() for x in given))) > 100:
        return  # the sine of a large number has no digits that two orders of sums agree in
    gradient = hm.grad(loss, argnums=(0, 1, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        found = hm.trace(gradient)(*given)
    for x, y in zip(found, gradient(*given), strict=True):
        largest = max(1.0, float(np.abs(np.asarray(y)).max()))
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-9, atol=1e-9 * largest, err_msg=source)

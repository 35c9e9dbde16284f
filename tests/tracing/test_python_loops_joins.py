"""Steps of captured loops whose ways join where an `if` ends, and flags that data decides."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.rolling.code_loops import flow_of, is_question
from hybridml.tracing.rolling.ways.join_points import join_points
from hybridml.tracing.rolling.ways.joins import Joins
from tests.support.loops import assert_same
from tests.support.random_branches import N, branching_program


def numbers(seed: int, n: int = 30) -> hm.Tensor:
    return hm.asarray(np.random.default_rng(seed).standard_normal(n))


def check(fn: Callable[[Any], Any]) -> Any:
    """The traced function, after calls that gave what eager ones give."""
    traced = hm.trace(fn)
    for seed in range(4):
        assert_same(fn(numbers(seed)), traced(numbers(seed)))
    return traced


# -- flags


def episodes(x: Any) -> Any:
    inside, start, last, n = False, 0, 0, 0
    for i in range(len(x)):
        if not inside and x[i] > 0.5:
            inside, start = True, i
        elif inside and x[i] < 0:
            inside = False
            last = start
            n += 1
    return n, last, inside


def bubbles(x: Any) -> Any:
    a = x.clone()
    for _ in range(len(a)):
        swapped = False
        for j in range(len(a) - 1):
            if a[j] > a[j + 1]:
                left = a[j].clone()
                a[j] = a[j + 1].clone()
                a[j + 1] = left
                swapped = True
        if not swapped:
            break
    return a


def labels(x: Any) -> Any:
    a = np.zeros(len(x)) + x
    changed, n = True, 0
    while changed and n < 100:
        changed = False
        for i in range(1, len(a)):
            if a[i] > a[i - 1] and a[i] - a[i - 1] < 0.5:
                a[i] = a[i - 1]
                changed = True
        n += 1
    return a, n, changed


def done_by_data(x: Any) -> Any:
    s, n, done = 0.0, 0, False
    while not done and n < 30:
        s = s * 0.5 + float(x[n])
        if s > 1.5:
            done = True
        n += 1
    return s, n, done


def done_in_two_ways(x: Any) -> Any:
    s, n, done = 0.0, 0, False
    while not done:
        v = float(x[n])
        if v > 0:
            s += v
        if s > 3:
            done = True
        n += 1
        if n >= len(x):
            done = True
    return s, n, done


def searches(x: Any) -> Any:
    out, count = np.zeros(len(x)), 0
    for i in range(len(x)):
        found = False
        for j in range(i):
            if x[j] > x[i]:
                found = True
                break
        if found:
            out[i] = 1.0
            count += 1
    return out, count


def hysteresis(x: Any) -> Any:
    state, before, edges, out = False, False, 0, np.zeros(len(x))
    for i in range(len(x)):
        if state:
            if x[i] < -0.2:
                state = False
        elif x[i] > 0.2:
            state = True
        out[i] = state
        edges += state != before
        before = state
    return out, edges, before


def machine(x: Any) -> Any:
    state, n, armed, hot = 0, 0, False, False
    for i in range(len(x)):
        if state == 0:
            if x[i] > 0.5:
                state, armed = 1, True
        elif state == 1:
            if x[i] < 0:
                state = 2
            elif armed and x[i] > 1:
                hot = True
        else:
            if hot:
                n += 2
            state, armed, hot = 0, False, False
        n += 1 if armed else 0
    return state, n, armed, hot


def of_the_last_step(x: Any) -> Any:
    for i in range(len(x)):
        is_up = False
        if x[i] > 0:
            is_up = True
    return is_up


FLAGS = [episodes, bubbles, labels, done_by_data, done_in_two_ways, searches, hysteresis, machine, of_the_last_step]


@pytest.mark.parametrize("program", FLAGS, ids=lambda f: f.__name__)
def test_flags_are_bools_of_the_program(program: Callable[[Any], Any]) -> None:
    traced = check(program)
    assert " loop(" in traced.ir and traced.cache_info().compiles == 1


def test_a_flag_is_pythons_bool_where_python_needs_one() -> None:
    def program(x: Any) -> Any:
        seen = also = False
        for v in x:
            if v > 1.0:
                seen = True
            if v > 100.0:
                also = True
        return seen is True, also is False, type(seen) is bool, {seen: 1}, 2 + also

    assert " loop(" in check(program).ir


def test_a_flag_of_a_function_that_is_called() -> None:
    def found(x: Any) -> bool:
        seen = False
        for v in x:
            if v > 1.0:
                seen = True
        return seen

    def program(x: Any) -> Any:
        return found(x) is True, found(-x) is True

    assert " loop(" in check(program).ir


def test_what_the_first_step_sets_is_no_flag() -> None:
    def program(x: Any) -> float:
        s, first = 0.0, True
        for v in x:
            if first:
                s, first = float(v), False
            else:
                s = 0.9 * s + float(v)
            if s > 1:
                s = 1.0
            s *= 0.5
        return s

    ir = check(program).ir
    assert " loop(" in ir and ir.count("where(") == 1


# -- joins


def with_ifs(n: int, elifs: bool = False) -> Callable[[Any], Any]:
    """A program with `n` `if`s one after the other."""
    lines = ["def program(x):", "    s, k = 0.0, 0", "    out = np.zeros(len(x))", "    for i in range(1, len(x)):"]
    for j in range(n):
        lines += [f"        if x[i] > {0.1 * j - 0.5}:", f"            s += {j}.5"]
        if elifs:
            lines += ["        elif s > 2:", "            k += 1", "        else:", f"            out[i] += {j}.25"]
    lines += ["        s = s * 0.5", "        out[i] *= s + 1.0", "    return s, k, out"]
    space: dict[str, Any] = {"np": np}
    exec("\n".join(lines), space)
    program: Callable[[Any], Any] = space["program"]
    return program


@pytest.mark.parametrize(("n", "elifs"), [(3, False), (10, False), (20, False), (5, True), (10, True)])
def test_ifs_are_a_run_each_where_they_have_an_else(n: int, elifs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, begin = list[None](), Joins.begin_run

    def counted(self: Joins) -> None:
        runs.append(None)
        begin(self)

    monkeypatch.setattr(Joins, "begin_run", counted)
    program = with_ifs(n, elifs)
    traced = check(program)
    body = traced.ir.split("graph program")[0]
    assert body.count("multiply(") == 2  # what follows is there once
    assert len(runs) <= (2 * 2 * n + 6 if elifs else 4)


def clipped(v: float, low: float, high: float) -> float:
    if v < low:
        return low
    if v > high:
        return high
    return v


def in_calls(x: Any) -> Any:
    s = t = 0.0
    for i in range(len(x)):
        v = clipped(float(x[i]), -0.5, 0.5)
        w = clipped(2 * v, -0.3, 0.8)
        s += v * w
        t = max(t, s) + (abs(v) if w > 0 else v)
    return s, t


def arrays_of_a_step(x: Any) -> Any:
    out, n = hm.zeros(len(x), dtype="float64"), 0
    for i in range(1, len(x)):
        p = x[i : i + 1] * 2.0
        q = p
        if x[i] > 0:
            p += 1
        if x[i] < 0.5:
            q *= 2
        if x[i] < 0.2:
            p = q + 1
        out[i] = p.sum() + q.sum()
        if p.sum() > 0:
            n += 1
        n += 1
    return out, n


def continues(x: Any) -> Any:
    s, n = 0.0, 0
    for i in range(len(x)):
        v = float(x[i])
        if v > 1.0:
            continue
        if v < -1.0:
            n += 1
            continue
        if v > 0.5:
            s += v
        if n > 3 and s > 2:
            s -= 1
            if v > 0.2:
                continue
            n += 2
        s = s * 0.9
    return s, n


def leaves(x: Any) -> Any:
    s, n = 0.0, 0
    for i in range(len(x)):
        v = float(x[i])
        if v > 0.5:
            s += v
            if s > 3:
                break
        if v < 0:
            n += 1
        if n > 8:
            break
        if v < 1:
            s *= 0.9
        n += 0
    return s, n


def appends(x: Any) -> Any:
    out, s = [], 0.0
    for i in range(len(x)):
        v = float(x[i])
        if v > 0:
            s += v
        out.append(s)
        if s > 1:
            s = 0.5
        out.append(v * s)
    return out


def own_indices(x: Any) -> Any:
    places, s = hm.tensor(np.arange(30) % 7), 0.0
    for i in range(len(x)):
        if x[i] > 0:
            s += float(x[places[i]])
        if x[i] < 0.5:
            s -= float(x[places[i] + 2])
        if s > 1:
            s = s * 0.5
        s += 0.1
    return s


@pytest.mark.parametrize(
    "program", [in_calls, arrays_of_a_step, continues, leaves, appends, own_indices], ids=lambda f: f.__name__
)
def test_steps_that_branch(program: Callable[[Any], Any]) -> None:
    traced = check(program)
    assert " loop(" in traced.ir and traced.cache_info().compiles == 1


def views(x: Any) -> Any:
    y = x.clone()
    best = y[0]
    for i in range(len(x)):
        if x[i] > best:
            best = y[i]
        if x[i] > 1:
            best = y[0]
        y[3] = 0.25
    best += 1
    return best, y


def lists_of_a_step(x: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        found = []
        if x[i] > 0:
            found.append(1.5)
        if x[i] > 1:
            found.append(2.5)
        s = s * 0.5 + sum(found)
    return s


def arrays_that_are_numpys(x: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        p = np.zeros(2)
        if x[i] > 0:
            p[0] = 1.5
        if x[i] > 1:
            p[1] = p[0] + 1
        s = s * 0.5 + float(p[0] + p[1])
    return s


def defined_in_one_way(x: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        up = x[i] > 0
        if up:
            y = float(x[i]) * 2
        s = s + 1.0
        if up:
            s = s + y
    return s


@pytest.mark.parametrize(
    "program", [views, lists_of_a_step, arrays_that_are_numpys, defined_in_one_way], ids=lambda f: f.__name__
)
def test_ways_that_do_not_join(program: Callable[[Any], Any]) -> None:
    check(program)


def test_gradients_go_the_way_that_the_step_went() -> None:
    def program(x: Any) -> Any:
        inside, s = False, x[0] * 0
        for i in range(len(x)):
            if x[i] > 0.5:
                inside = True
            if x[i] < -0.5:
                inside = False
            if inside and x[i] > 0:
                s = s + hm.sqrt(x[i])
            s = s * 0.9
        return s

    eager, traced = hm.grad(program), hm.trace(hm.grad(program))
    for seed in range(3):
        found = traced(numbers(seed)).numpy()
        np.testing.assert_allclose(found, eager(numbers(seed)).numpy(), rtol=1e-12)
        assert np.isfinite(found).all()
    assert " loop(" in traced.ir


def test_where_ways_join() -> None:
    def program(x: Any, n: int) -> int:
        for i in range(n):
            s = 2 if x[i] else 3
            if x[i] and s:
                n += s
            for j in range(2):
                if x[j]:
                    continue
                n -= 1
            n += 1
        return n

    code = program.__code__
    flow = flow_of(code)
    head = max(flow.loops, key=lambda head: len(flow.loops[head]))
    points = join_points(code, flow.found[head].offset, frozenset({flow.found[head].offset}))
    lines = {}
    for k in points.inside:
        i = flow.found[k]
        if is_question(i):
            join = points.after(i.offset)
            assert join is not None and i.positions is not None
            at = flow.found[flow.at[join]]
            assert at.positions is not None
            lines.setdefault(i.positions.lineno - code.co_firstlineno, []).append(
                at.positions.lineno - code.co_firstlineno
            )
    assert lines == {2: [3], 3: [5, 5], 6: [5]}


def test_what_comes_before_a_loop_stays_before_it() -> None:
    def fn(x: Any) -> Any:
        a = np.zeros(len(x))
        a[1:-1] = x[1:-1]
        rising = np.arctan2(a, 1.0) > 0.2
        y = np.zeros(len(x))
        for i in range(1, len(x)):
            if rising[i]:
                y[i] = 0.5 * y[i - 1] + 1
        return y

    body, program = check(fn).ir.split("graph fn")
    assert "arctan2" in program and "arctan2" not in body


SEEDS = range(12 if os.environ.get("CI") else 4)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_that_branch(seed: int) -> None:
    source, program = branching_program(seed)
    traced = hm.trace(program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(3):
            try:
                expected = program(numbers(k, N))
            except Exception as error:
                with pytest.raises(type(error)):
                    traced(numbers(k, N))
                continue
            try:
                assert_same(expected, traced(numbers(k, N)))
            except AssertionError as error:
                raise AssertionError(source) from error

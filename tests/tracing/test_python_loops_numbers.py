"""Loops that Python numbers end, and conditions on the numbers of steps: one step for all, and what Python does."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.rolling.number_loops import DataLoop, number_loops
from hybridml_compiler.sizes import dims
from hybridml_compiler.sizes.steps import Undecided, turns
from tests.support.loops import assert_same, both, data, is_loop

N = 24
LIMIT = 18

# -- `while` over ints and floats


def counted(x: hm.Tensor) -> Any:
    i = 0
    while i < 20:
        x = x * 0.5 + i
        i += 1
    return x, i


def downwards(x: hm.Tensor) -> Any:
    i = x.shape[0]
    while i:
        i -= 1
        x[i] = x[i] * 0.5 + x[i - 1]
    return x, i


def simulated(x: hm.Tensor) -> Any:
    t, k, dt = 0.0, 0, 0.03
    while t < 1.0 and k < 100:
        x = x + dt * hm.sin(x + t)
        t += dt
        k += 1
    return x, t, k


def shrinking(x: hm.Tensor) -> Any:
    h = 1.0
    while h > 1e-3:
        x = x * (1 - h)
        h = h * 0.7
    return x, h


def left_in_the_middle(x: hm.Tensor) -> Any:
    i = 0
    while True:
        x = x * 0.5 + i
        i += 1
        if i == 19:
            break
        x = x + 1
    return x, i


def from_both_ends(x: hm.Tensor) -> Any:
    i, j = 0, 47
    while i < j:
        a, b = x[i] * 1, x[j] * 1
        x[i], x[j] = b, a
        i += 1
        j -= 1
    return x, i, j


def nested(x: hm.Tensor) -> Any:
    k = 0
    while k < LIMIT:
        j = 0
        while not j >= 17:
            x[j] = x[j] * 0.9 + x[j + 1] * 0.01 * k
            j += 1
        k += 1
    return x, j, k


def of_a_helper(x: hm.Tensor) -> Any:
    def relaxed(x: hm.Tensor, n: int) -> hm.Tensor:
        k = 0
        while k < min(n, len(x)):
            x[k] = x[k] * 0.5
            k = k + 1
        return x

    return relaxed(x, 20) + relaxed(x, 30) + relaxed(x, 3)


def beginning_as_an_int(x: hm.Tensor) -> Any:
    s, i = 0, 0
    while i <= 40:
        s = s + x * i
        i += 2
    return s, i


def branching(x: hm.Tensor) -> Any:
    i = 0
    while i < 20:
        if x[0] > 0.5:
            x = x * 0.9
        i += 1
        if x[1] > 0.5:
            continue
        x = x + 0.01 * i
    return x, i


ROLLED: list[Callable[..., Any]] = [
    counted, downwards, simulated, shrinking, left_in_the_middle, from_both_ends, nested, of_a_helper,
    beginning_as_an_int, branching,
]  # fmt: skip


@pytest.mark.parametrize("fn", ROLLED, ids=lambda fn: fn.__name__)
def test_a_loop_that_numbers_end_is_a_loop(fn: Callable[..., Any]) -> None:
    traced = both(fn, data(48))
    assert is_loop(traced)


def two_ways_out(x: hm.Tensor) -> Any:
    i = 0
    while i < 20:
        x = x * 0.5 + i
        i += 1
        if i > 17:
            break
        x = x + 1
    return x, i


def uneven(x: hm.Tensor) -> Any:
    i = 0
    while i < 30:
        x = x * 0.9 + i
        if x[0] > 3:
            i += 2
        else:
            i += 1
    return x, i


def bisected(x: hm.Tensor) -> Any:
    low, high = 0, 1 << 20
    while low < high:
        middle = (low + high) // 2
        x = x + middle * 1e-6
        if middle > 777:
            high = middle
        else:
            low = middle + 1
    return x, low


def halved(x: hm.Tensor) -> Any:
    n = 32
    while n > 0:
        x[:n] += x[n : 2 * n].max()
        n //= 2
    return x, n


def doubled(x: hm.Tensor) -> Any:
    a = 1
    while a < 2**70:
        a *= 2
        x = x * 0.99
    return x, a


def growing(x: hm.Tensor) -> Any:
    out: list[hm.Tensor] = []
    while len(out) < 20:
        out.append(x * len(out))
    return out[3], len(out)


class Counter:
    def __init__(self) -> None:
        self.steps, self.most = 0, 20


def of_an_object(x: hm.Tensor) -> Any:
    counter, i = Counter(), 0
    while i < counter.most:
        x = x * 0.9 + i
        i += 1
        if i < 5:
            counter.most += 1
    while counter.steps < 20:
        x = x * 0.9
        counter.steps += 1
    return x, i, counter.steps


def out_of_range(x: hm.Tensor) -> Any:
    i = 0
    try:
        while i < 100:
            x[i] = x[i] * 0.9 + i
            i += 1
    except IndexError:
        x = x + 100
    return x, i


def without_a_step(x: hm.Tensor) -> Any:
    i = 30
    while i < 10:
        x = x + 1
        i += 1
    return x, i


def named_in_the_condition(x: hm.Tensor) -> Any:
    i = 0
    while (i := i + 1) < 20:
        x = x * 0.9 + i
    return x, i


@pytest.mark.parametrize(
    "fn",
    [two_ways_out, uneven, bisected, halved, doubled, growing, of_an_object, out_of_range, without_a_step,
     named_in_the_condition],
    ids=lambda fn: fn.__name__,
)  # fmt: skip
def test_what_no_step_stands_for_is_what_python_does(fn: Callable[..., Any]) -> None:
    both(fn, data(48))


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 40])
def test_any_number_of_steps(n: int) -> None:
    def fn(x: hm.Tensor) -> Any:
        i, t = 0, 0.0
        while i < n:
            x = x * 0.5 + t
            i += 1
            t += 0.1
        return x, i, t

    assert is_loop(both(fn, data(5))) is (n >= 16)


def test_a_loop_of_numbers_differentiates() -> None:
    def fn(x: hm.Tensor) -> hm.Tensor:
        t = 0.0
        while t < 1.0:
            x = x + 0.05 * hm.sin(x) * t
            t += 0.05
        return x.sum()

    x = data(5)()
    traced = hm.trace(hm.grad(fn))
    np.testing.assert_allclose(traced(x).numpy(), hm.grad(fn)(x).numpy(), rtol=1e-12)
    assert 2 <= traced.ir.count(" loop(") <= 3


@pytest.mark.parametrize(
    ("start", "condition", "step"),
    [
        ({"i": 0}, "i < 20", "i += 3"),
        ({"i": 7, "n": 50}, "n > i", "i = i + i // 2"),
        ({"t": 0.0, "dt": 0.1}, "t <= 2.0 - dt", "t += dt"),
        ({"i": 100, "j": 1}, "i > j and j < len(size)", "i -= 3; j *= 2"),
        ({"i": 5}, "not (i % 7 == 3)", "i = i + 11 if i % 2 else i + 11"),
        ({"i": 5}, "not i % 7 == 3", "i += 11"),
        ({"h": 1.0}, "abs(h) > 1e-8", "h = -h / 3"),
        ({"i": 0, "k": 3}, "i < max(k, 40)", "i += size[k]"),
    ],
)
def test_steps_are_counted_by_pythons_arithmetic(start: dict[str, Any], condition: str, step: str) -> None:
    size = (5, 6, 7, 8)
    source = f"def fn({', '.join(start)}, size, x):\n    while {condition}:\n        x.append(1)\n        {step}\n"
    space: dict[str, Any] = {}
    exec(source + f"    return {', '.join(start)},", space)
    steps: list[int] = []
    after = dict(zip(start, space["fn"](**start, size=size, x=steps), strict=True))
    found = number_loops(space["fn"].__code__)
    if " if " in step:  # a branch
        assert [type(loop) for loop in found] == [DataLoop]
        return
    counted = found[0].steps(types.SimpleNamespace(f_locals={**start, "size": size}, f_globals={}))  # type: ignore[arg-type]
    assert counted == (len(steps), tuple(after[name] for name in found[0].numbers)) and len(steps) > 1


def test_a_debugger_keeps_its_place() -> None:
    seen: list[str] = []

    def debugger(frame: Any, event: str, arg: Any) -> Any:
        seen.append(event)

    sys.settrace(debugger)
    try:
        found = hm.trace(counted)(data(5)())
    finally:
        sys.settrace(None)
    assert_same(counted(data(5)()), found)
    assert seen


def test_nothing_watches_code_when_a_trace_is_over() -> None:
    def fails(x: hm.Tensor) -> hm.Tensor:
        i = 0
        while i < 20:
            x = x * 0.5
            i += 1
        raise ValueError

    with pytest.raises(ValueError):
        hm.trace(fails)(data(5)())
    assert sys.gettrace() is None
    if sys.version_info >= (3, 12):
        assert sys.monitoring.get_tool(4) is None


# -- conditions on the number of a step


def every_third(x: hm.Tensor) -> Any:
    for i in range(N):
        if i % 3 == 0:
            x[i] = x[i] * 2 + i
        else:
            x[i] = x[i - 1] + 1
    return x


def red_and_black(x: hm.Tensor) -> Any:
    for s in range(18):
        for i in range(1, N - 1):
            if (i + s) % 2 == 0:
                x[i] = 0.5 * (x[i - 1] + x[i + 1])
    return x


def by_weights(x: hm.Tensor) -> Any:
    s = x * 0
    for i in range(1, 20):
        s = s + x**2 * (4.0 if i % 2 else 2.0)
    return s


def in_the_middle(x: hm.Tensor) -> Any:
    for i in range(20):
        if i == 7:
            x = x + 100
        if 3 <= i < 11:
            x = x * 0.5
        elif i > 12 or i == 0:
            x = x + i
    return x


def with_data(x: hm.Tensor) -> Any:
    i = 0
    while i < 20:
        if i % 2 == 0:
            if x[0] > 0.7:
                x = x * 0.9
            else:
                x = x + i * 0.1
        i += 1
    return x, i


@pytest.mark.parametrize(
    "fn", [every_third, red_and_black, by_weights, in_the_middle, with_data], ids=lambda f: f.__name__
)
def test_a_condition_on_the_number_is_a_question_of_the_loop(fn: Callable[..., Any]) -> None:
    assert is_loop(both(fn, data(N)))


def test_a_number_that_comes_with_the_call_is_one_in_a_loop() -> None:
    def fn(x: hm.Tensor, n: int, k: int) -> hm.Tensor:
        for i in range(n):
            if i == k:
                x = x + 100
            x = x * 0.5
        return x

    traced = hm.trace(fn)
    for k in (3, 7, 11, 12, 19, 0):
        np.testing.assert_array_equal(traced(data(5)(), 20, k).numpy(), fn(data(5)(), 20, k).numpy())


@pytest.mark.parametrize(
    ("condition", "loops"), [("i < 10", 2), ("i == 8", 2), ("2 * i == 7", 1), ("3 * i > 25", 2), ("8 != i > 2", 2)]
)
def test_a_condition_that_turns_parts_the_loop(condition: str, loops: int) -> None:
    space: dict[str, Any] = {}
    lines = [
        "def fn(x):",
        "    for i in range(20):",
        f"        if {condition}:",
        "            x = x + i",
        "        x = x * 0.5",
    ]
    exec("\n".join([*lines, "    return x"]), space)
    assert both(space["fn"], data(5)).ir.count(" loop(") == loops


@pytest.mark.parametrize("rise", [-3, -1, 1, 2])
@pytest.mark.parametrize("start", [-9, -4, 0, 5, 8])
@pytest.mark.parametrize("relation", ["<", "=="])
def test_turns_are_the_steps_with_which_an_answer_changes(relation: str, start: int, rise: int) -> None:
    length = 10
    number = dims.symbol("i0", 2, length + 1) - dims.LEAST
    error = Undecided("", start + number * rise, asked=(relation, start + number * rise, 1))
    values = [start + k * rise for k in range(length)]
    answers = [v < 1 if relation == "<" else v == 1 for v in values]
    changes = [k for k in range(1, length) if answers[k] != answers[k - 1]]
    assert list(turns(error, "i0", length)) == changes


def first_and_last(x: hm.Tensor) -> Any:
    for i in range(20):
        y = x * 2 if i == 0 else y * 0.5 + x  # noqa: F821
        if i == 19:
            y = y + 100
    return y


def left_at_a_step(x: hm.Tensor) -> Any:
    for i in range(20):
        if i == 7:
            break
        x = x * 0.5 + i
    return x, i


def every_fifth_in_a_list(x: hm.Tensor) -> Any:
    out = []
    for i in range(20):
        x = x * 0.5 + i
        if i % 5 == 0:
            out.append(x)
    return hm.stack(out), len(out)


def flags(x: hm.Tensor) -> Any:
    up = True
    for i in range(20):
        x = x + 1 if up else x * 0.5
        up = i % 2 == 0
    return x, up


@pytest.mark.parametrize("fn", [first_and_last, left_at_a_step, every_fifth_in_a_list, flags], ids=lambda f: f.__name__)
def test_other_conditions_on_the_number_do_what_python_does(fn: Callable[..., Any]) -> None:
    both(fn, data(N))


# -- divisors that are negative or 0 in some steps

_DIVIDED = ["7 // (i - 30)", "7 % (i - 30)", "7 // -i", "1.0 / (i - 10)", "7 // (10 - i)", "7 // (2 * i - 11)"]
_DIVIDED += ["(i - 10) ** -1", "i / (d - i)", "1.0 / (i - 9.5 - 0.5)", "x[i].item() / (i - d)"]


@pytest.mark.parametrize("loop", ["range(20)", "hm.prange(20)", "range(-20, 0)"])
@pytest.mark.parametrize("value", _DIVIDED)
def test_divisors_are_pythons_in_each_step(loop: str, value: str) -> None:
    space: dict[str, Any] = {"hm": hm}
    exec(f"def f(x, d):\n    for i in {loop}:\n        x[i] = {value}\n    return x", space)
    traced = hm.trace(space["f"])

    def outcome(fn: Callable[..., Any], d: int) -> Any:
        try:
            return fn(hm.ones(20, dtype="float64"), d)
        except ZeroDivisionError:
            return "divided by zero"

    for d in (30, 41, 7):
        assert_same(outcome(space["f"], d), outcome(traced, d))


def decaying(x: hm.Tensor) -> Any:
    for i in range(20):
        x = x * (1.0 / (1.0 + 0.5 * i)) + 7 // (i - 30)
    return x


def test_divisors_that_are_never_zero_leave_one_step_for_all() -> None:
    assert is_loop(both(decaying, data(N)))


@pytest.mark.parametrize("loop", ["for i in range(20)", "while i < 20"])
@pytest.mark.parametrize("condition", ["i == 8", "i >= 12", "i == 19", "i > 0"])
def test_ints_go_on_from_part_to_part(loop: str, condition: str) -> None:
    lines = [
        "def fn(x):",
        "    k = i = n = 0",
        f"    {loop}:",
        f"        if {condition}:",
        "            x = x + 100",
        "            n += k",
    ]
    lines += [
        "        x = x * 0.5 + k",
        "        k += 2",
        *(["        i += 1"] if "while" in loop else []),
        "    return x, n",
    ]
    space: dict[str, Any] = {}
    exec("\n".join(lines), space)
    assert " loop(" in both(space["fn"], data(5)).ir

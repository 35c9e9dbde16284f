"""Lists that grow where data decides: one program for all lengths, with the items of eager code."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.rolling.code_loops import flow_of
from hybridml.tracing.rolling.lists.uses import Uses, grows_by_data, lists_in, stacks_of
from tests.support.loops import assert_same, both, data, is_loop

N = 60


def series(seed: int, n: int = N) -> hm.Tensor:
    return hm.asarray(np.random.default_rng(seed).random(n))


def assert_one_program(fn: Callable[..., Any], *more: Any, make: Callable[[int], hm.Tensor] = series) -> Any:
    """The traced function, after calls with other data that gave what eager ones give, containers too."""
    traced = hm.trace(fn)
    for seed in range(5):
        expected, found = fn(make(seed), *more), traced(make(seed), *more)
        assert str(type(expected)) == str(type(found)) and repr(_shape(expected)) == repr(_shape(found))
        assert_same(expected, found)
    assert is_loop(traced)
    return traced


def _shape(value: Any) -> Any:
    return [type(value), *map(_shape, value)] if isinstance(value, list | tuple) else type(value)


def events(x: Any) -> Any:
    found, inside, start = [], False, 0
    for i in range(len(x)):
        if not inside and x[i] > 0.7:
            inside, start = True, i
        elif inside and x[i] < 0.3:
            inside = False
            found.append((start, i))
    return found


def peaks(x: Any) -> Any:
    found = []
    for i in range(1, len(x) - 1):
        if x[i - 1] < x[i] and x[i] >= x[i + 1]:
            if found and i - found[-1] < 4:
                if x[i] > x[found[-1]]:
                    found[-1] = i
            else:
                found.append(i)
    return found


def runs(x: Any) -> Any:
    values, lengths = [], []
    current, n = x[0], 1
    for v in x[1:]:
        if v > 0.5:
            n += 1
        else:
            values.append(current)
            lengths.append(n)
            current, n = v, 1
    values.append(current)
    lengths.append(n)
    return np.array(values), np.array(lengths)


def of_all_kinds(x: Any) -> Any:
    a, b, c, flag, t = [], [(0, 0.5, False, "b")], [], False, 0.0
    for i in range(len(x)):
        t += 0.25
        flag = x[i] > 0.5
        if flag:
            a.append(t)
            b.append((i, t * 2.0, False, "b"))
        if len(b) > 3 or not a:
            c.append((i, (i + 1, None)))
    return len(a), a, b[::-1], c, np.array(a[::-1], dtype=float)


def with_ways_out(x: Any) -> Any:
    found = []
    for i in range(len(x)):
        if x[i] > 0.9:
            found.append(-i)
            break
        if x[i] < 0.2:
            continue
        if found and x[i] > 0.5:
            found.pop()
        found.append(int(x[i] * 10))
        found.append(i)
    return found, i


def in_nests(x: Any) -> Any:
    found = []
    for i in range(len(x)):
        for j in range(20):
            if x[i] > 0.3 + x[j]:
                found.append((i, j))
        n = 0
        while n < x[i] * 10:
            n += 1
            if n > 6:
                found.append((n, i))
    return found


def gone_over(x: Any) -> Any:
    found, s, most = [], x[0] * 0.0, 0
    for i in range(len(x)):
        if x[i] > 0.4:
            found.append(i)
    for k in found:
        s = s + x[k]
        most = max(most, k)
    return s, most


def converges(x: Any) -> Any:
    steps, err, n = [], 1.0, 0
    while err > 1e-2:
        x = x * 0.8
        err = x.max()
        n += 1
        if n % 2 == 0:
            steps.append(n)
    return steps


def stacked(x: Any) -> Any:
    rows, times = [], []
    for i in range(1, len(x) // 2):
        if x[i] > 0.3:
            rows.append(x[i : i + 3] * 2)
            times.append(0.5 * i)
    return hm.stack(rows), np.stack(rows[::-1]), np.array(times)


PROGRAMS = [events, peaks, runs, of_all_kinds, with_ways_out, in_nests, gone_over, converges, stacked]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_one_program_serves_all_lengths(program: Callable[..., Any]) -> None:
    assert_one_program(program)


def test_lists_without_items() -> None:
    for program in (events, of_all_kinds, gone_over):
        traced = assert_one_program(program)
        for none in (hm.zeros(N, dtype="float64"), hm.zeros(N, dtype="float64") + 0.5):
            assert_same(program(none), traced(none))
        assert traced.cache_info().compiles == 1


def test_numpys_scalars() -> None:
    def program(x: Any) -> Any:
        y, found = np.zeros(N), []
        for i in range(1, N):
            y[i] = 0.5 * y[i - 1] + x[i]
            if y[i] > 1.0:
                found.append((i, y[i]))
        return found

    assert_one_program(program)


def fill(image: Any, i: int, j: int) -> Any:
    seen, stack, count = np.zeros(image.shape, dtype=int), [(i, j)], 0
    while stack:
        i, j = stack.pop()
        if 0 <= i < image.shape[0] and 0 <= j < image.shape[1] and image[i, j] and not seen[i, j]:
            seen[i, j] = 1
            count += 1
            stack.append((i + 1, j))
            stack.append((i - 1, j))
            stack.append((i, j + 1))
            stack.append((i, j - 1))
    return seen, count


def test_lists_as_stacks() -> None:
    def image(seed: int) -> hm.Tensor:
        return hm.asarray((np.random.default_rng(seed).random((12, 13)) < 0.7).astype(int))

    traced = assert_one_program(fill, 5, 5, make=image)
    assert not any("where" in line and "[12,13]" in line for line in traced.ir.splitlines())  # of elements alone


def test_a_list_that_is_longer_than_was_thought() -> None:
    @hm.trace
    def counted(x: Any, n: Any) -> Any:
        found, k = [], x[0] * 0.0
        while k < n:
            k = k + 1.0
            found.append(3)
        found.append(4)
        return found

    x = hm.ones(N, dtype="float64")
    for n in (7, 1500, 1024, 1032, 9000, 3):
        assert counted(x, hm.tensor(float(n), dtype="float64")) == [3] * n + [4]
    assert counted.cache_info().compiles <= 3


def test_a_number_that_goes_on_as_it_came_is_no_weak_result() -> None:
    def program(x: Any) -> Any:
        found, s, i, never = [], 0.0, 0, False
        while x[i] < 0.97 and i < N - 1:
            i += 1
            found.append(s)
            if never:
                s += 0.5
        return i, found

    assert_one_program(program)


def test_errors_are_those_of_eager_code() -> None:
    def program(x: Any) -> Any:
        found = []
        for i in range(N):
            if x[i] > 0.5:
                found.append(i)
            elif x[i] < 0.1:
                found.pop()
        return found, found[-1]

    traced, rising = hm.trace(program), hm.asarray(np.linspace(0.2, 1.0, N))
    assert traced(rising) == program(rising)
    for wrong, words in ((rising[::-1] - 0.2, None), (rising * 0.0, "pop from empty"), (rising * 0.0 + 0.3, "out of")):
        if words is None:
            assert traced(wrong * 0.5 + 0.4) == program(wrong * 0.5 + 0.4)
        else:
            with pytest.raises(IndexError, match=words):
                traced(wrong)

    traced = hm.trace(stacked)
    for wrong in (series(0), series(0) * 0.0):
        try:
            expected = stacked(wrong)
        except hm.ShapeError as error:
            with pytest.raises(hm.ShapeError) as found:
                traced(wrong)
            assert str(found.value) == str(error)
        else:
            assert_same(expected, traced(wrong))


# -- what stays Python's


def tensors(x: Any) -> Any:
    found = []
    for i in range(N):
        if x[i] > 0.5:
            found.append(x[i] * 2)
    return found


def views(x: Any) -> Any:
    found = []
    for i in range(N):
        if x[i] > 0.5:
            found.append(x[i])
    x[:] = 0.0
    return np.array(found)


def updated_later(x: Any) -> Any:
    found, v = [], x[0] * 1
    for i in range(N):
        if x[i] > 0.5:
            v = x[i : i + 1] * 1
            found.append(v)
    v += 1
    return np.array(found)


def two_names(x: Any) -> Any:
    a = b = []
    for i in range(N):
        if x[i] > 0.5:
            a.append(i)
    return a, b


def given_away(x: Any) -> Any:
    found = []
    for i in range(N):
        if x[i] > 0.5:
            found.append(i)
    return sorted(found, reverse=True), sum(found)


def of_several_kinds(x: Any) -> Any:
    found = []
    for i in range(N):
        if x[i] > 0.5:
            found.append(i)
        if x[i] > 0.8:
            found.append(0.5)
    return found


def of_a_function(x: Any) -> Any:
    def places() -> Any:
        found = []
        for i in range(N):
            if x[i] > 0.5:
                found.append(i)
        return found

    one, other = places(), places()
    one.append(1)
    return one, other, len(one) + 1


@pytest.mark.filterwarnings("ignore::hybridml.tracing.specialize.errors.TraceWarning")
@pytest.mark.parametrize(
    "program",
    [tensors, views, updated_later, two_names, given_away, of_several_kinds, of_a_function],
    ids=lambda f: f.__name__,
)
def test_other_lists_are_pythons(program: Callable[..., Any]) -> None:
    both(program, data(N), calls=2)


def test_gradients() -> None:
    def loss(x: Any) -> Any:
        found, s = [], x.sum() * 0
        for i in range(20):
            if x[i] > 0.5:
                found.append(i)
                s = s + x[i] * x[i]
        return s * len(found)

    x = hm.asarray(np.random.default_rng(0).random(20))
    assert_same([hm.grad(loss)(x)], [hm.trace(hm.grad(loss))(x)])


# -- what code does with lists


def test_uses_are_read_in_the_instructions() -> None:
    def used(x: Any) -> Any:
        a, b, c, d = [], [1], [], []
        e = f = []
        g, h, k = [], [], [c]
        for i in x:
            a.append(i)
            if i:
                b.append(b[-1])
        while d:
            d.pop()
        print(g)
        h.pop(0)
        e.append(f)
        return len(a), b[::-1], np.array(d), {"k": k}

    found = lists_in(used.__code__)
    assert found.keys() == {"a", "b", "d"}
    assert found["a"] == Uses(1, False, False, False, frozenset({"len"}))
    assert found["b"] == Uses(1, True, True, False, frozenset())
    assert found["d"] == Uses(0, True, False, True, frozenset({"np.array"}))
    heads = [flow_of(used.__code__).offset(k) for k in flow_of(used.__code__).loops]
    assert [name for name in "abd" if any(grows_by_data(used.__code__, head, name) for head in heads)] == ["b"]
    assert {name for head in heads for name in stacks_of(used.__code__, head)} == {"d"}


# -- programs that are drawn


class Draw:
    """A program that appends to lists, with the text of its code."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        kinds = ["int", "float", "pair", "mixed", "flag", "data"]
        self.lists = {name: self.rng.choice(kinds) for name in ("a", "b")}

    def item(self, kind: str) -> str:
        i = self.rng.choice(["i", "n", "i + n", "7"])
        return {
            "int": i, "float": self.rng.choice(["s", "s * 2.0"]), "pair": f"({i}, n)", "mixed": f"({i}, (s, 'a'))",
            "flag": "flag", "data": "int(x[i] * 10)",
        }[kind]  # fmt: skip

    def condition(self) -> str:
        limit, name = self.rng.random(), self.rng.choice("ab")
        of_lists = f"not {name}", f"len({name}) > 3"
        return self.rng.choice([f"x[i] > {limit:.2f}", "flag", f"n > {limit * 9:.0f}", *of_lists])

    def step(self, depth: int) -> list[Any]:
        name, chance = self.rng.choice("ab"), self.rng.random()
        if chance < 0.35:
            return [f"{name}.append({self.item(self.lists[name])})"]
        if chance < 0.45:
            return [f"if {name}:", [f"{name}.pop()"]]
        if chance < 0.55:
            return [f"if {name}:", [f"{name}[-1] = {self.item(self.lists[name])}"]]
        if chance < 0.7 or depth > 2:
            return [self.rng.choice(["n += 1", "s += 0.5", "flag = not flag", "flag = True"])]
        found: list[Any] = [f"if {self.condition()}:", self.steps(depth + 1)]
        return found + (["else:", self.steps(depth + 1)] if self.rng.random() < 0.5 else [])

    def steps(self, depth: int) -> list[Any]:
        return [line for _ in range(self.rng.randint(1, 3)) for line in self.step(depth)]

    @property
    def text(self) -> str:
        body = self.steps(1)
        loops: list[list[Any]] = [
            ["for i in range(1, len(x)):", body], ["for j in range(18):", ["for i in range(1, 18):", body]],
            ["while i < 50 and x[i] < 0.97:", ["i += 1", *body]],
        ]  # fmt: skip
        gives = [self.rng.choice([name, f"{name}[::-1]", f"len({name})"]) for name in "ab"]
        start = ["a, b = [], []", "n, s, flag, i = 0, 0.0, False, 0"]
        return lines(["def f(x):", [*start, *self.rng.choice(loops), *self.steps(2), f"return n, {', '.join(gives)}"]])


def lines(parts: Sequence[Any], depth: int = 0) -> str:
    return "".join(lines(p, depth + 1) if isinstance(p, list) else "    " * depth + p + "\n" for p in parts)


@pytest.mark.filterwarnings("ignore::hybridml.tracing.specialize.errors.TraceWarning")
@pytest.mark.parametrize("seed", range(24))
def test_drawn_programs(seed: int) -> None:
    space: dict[str, Any] = {}
    exec(Draw(seed).text, space)
    fn, traced = space["f"], hm.trace(space["f"])
    for call in range(3):
        expected, found = fn(series(call)), traced(series(call))
        assert _shape(expected) == _shape(found)
        assert_same(expected, found)


def test_an_item_that_its_step_updates_later() -> None:
    def rows(x: Any) -> Any:
        found = []
        for i in range(len(x)):
            row = x[i] * 1.0
            if row[0] > 0.5:
                found.append(row)
            row[1] = 7.0
        return hm.stack(found)

    traced = hm.trace(rows)
    for seed in range(3):
        x = hm.asarray(np.random.default_rng(seed).random((30, 3)))
        assert_same(rows(x), traced(x))

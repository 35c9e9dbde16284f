"""Searches: loops that are left with what they have found, and loops that end by numbers which data decides."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.core.proxies.integer import IntProxy
from hybridml.tracing.rolling.carries import Carry, is_like
from hybridml.tracing.specialize.errors import TraceWarning
from tests.support.loops import assert_same

N = 50


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return fn(*args)
    except (IndexError, ZeroDivisionError) as error:
        return type(error).__name__


def same(fn: Callable[..., Any], calls: list[tuple[Any, ...]], most: int = 1) -> Any:
    """The traced function, after calls that gave what eager ones give, of so many programs at most."""
    traced = hm.trace(fn)
    for args in calls:
        given, copies = ([x.copy() if isinstance(x, hm.Tensor) else x for x in args] for _ in range(2))
        with warnings.catch_warnings():
            warnings.simplefilter("error", TraceWarning)
            found = outcome(traced, *copies)
        assert_same([outcome(fn, *given), given], [found, copies])
    assert traced.cache_info().compiles <= most and " loop(" in traced.ir
    assert len(traced.ir.splitlines()) < 120 * most
    return traced


def rising() -> hm.Tensor:
    return hm.asarray(np.sort(np.random.default_rng(2).random(N)))


def wanted() -> list[tuple[Any, ...]]:
    """Elements near both ends and in the middle, and what is not there."""
    a = rising()
    return [(a, float(a[k])) for k in (0, 1, 20, N - 1)] + [(a, x) for x in (0.31, -1.0, 2.0)]


# -- what was found is kept


def kept(a: hm.Tensor, t: float) -> Any:
    where = -1
    for i in range(len(a)):
        if a[i] > t:
            where = i
            break
    return where


def two_kept(a: hm.Tensor, t: float) -> Any:
    where, n, s = -1, 0, 0.5
    for i, v in enumerate(a):
        if v > t:
            where, s = 2 * i + 1, -s
            n += 1
            break
        s = s + i
    return where, n, s, where * 2


def kept_by_two(a: hm.Tensor, t: float) -> Any:
    at = 0
    for i in range(len(a)):
        if a[i] == t:
            at = i
            break
        if a[i] > t:
            at = -i - 1
            break
    return at


def kept_in_a_loop(a: hm.Tensor, t: float) -> Any:
    found = hm.zeros((20,), dtype="int64")
    for k in range(20):
        at = -1
        for i in range(len(a)):
            if a[i] > t + 0.05 * k:
                at = i
                break
        found[k] = at
    return found


def kept_in_a_while(a: hm.Tensor, t: float) -> Any:
    i, where = 0, -1
    while i < len(a):
        if a[i] == t:
            where = i
            break
        i += 1
    return where, i


KEPT = [kept, two_kept, kept_by_two, kept_in_a_loop, kept_in_a_while]


@pytest.mark.parametrize("fn", KEPT, ids=lambda f: f.__name__)
def test_what_is_kept_is_one_program(fn: Callable[..., Any]) -> None:
    same(fn, wanted())


# -- other code follows


def returned(a: hm.Tensor, t: float) -> Any:
    for i in range(len(a)):
        if a[i] > t:
            return i
    return -1


def with_an_else(a: hm.Tensor, t: float) -> Any:
    for i in range(len(a)):
        if a[i] > t:
            break
    else:
        i = -7
        a = a * 2
    return i, a


def a_flag(a: hm.Tensor, t: float) -> Any:
    found = False
    for v in a:
        if v == t:
            found = True
            break
    return found


def nothing(a: hm.Tensor, t: float) -> Any:
    for i, v in enumerate(a):
        if v > t:
            return i, v * 2, a[i] + 1
    return None


def updated_before(a: hm.Tensor, t: float) -> Any:
    total = 0.0
    for i in range(len(a)):
        if total > t:
            return a, "full", i
        total += a[i]
        a[i] = total
    return a, "all", total


def by_a_branch(a: hm.Tensor, t: float) -> Any:
    s = 0.0
    for i in range(len(a)):
        if i % 2 == 0:
            s = s + 2.0 * a[i]
            if s > 5.0:
                return "even", i, s
        else:
            s = s + 3.0 * a[i]
            if a[i] > t:
                return "odd", i, s
    return "end", s


def in_two_loops(a: hm.Tensor, t: float) -> Any:
    table = a.reshape(-1, 2)
    for i in range(table.shape[0]):
        for j in range(table.shape[1]):
            if table[i, j] > t:
                return i, j
    return -1, -1


def in_three_loops(a: hm.Tensor, t: float) -> Any:
    for i in range(16):
        for j in range(i):
            for k in range(j):
                if a[i] + a[j] * a[k] > 2.0 * t:
                    return i, j, k
    return None


def of_a_function(a: hm.Tensor, t: float) -> Any:
    total = hm.zeros((), dtype="int64")
    for k in range(20):
        total += 3 * returned(a, t - 0.02 * k)
    return total, returned(a, t)


def from_a_while(a: hm.Tensor, t: float) -> Any:
    i = 0
    while i < len(a):
        if a[i] == t:
            return i
        i += 1
    return "none"


def until_it_converges(a: hm.Tensor, t: float) -> Any:
    x = 1.0 + 0.0 * a.sum()
    for k in range(60):
        y = 0.5 * (x + abs(t) / x)
        if abs(y - x) < 1e-12:
            return y, k
        x = y
    raise IndexError("it does not")


def lists_before_it(a: hm.Tensor, t: float) -> Any:
    for i in range(20):
        if a[i] > t:
            return a[i] * i
        a[i] = -a[i]
    return a


WAYS = [
    returned, with_an_else, a_flag, nothing, updated_before, in_two_loops, in_three_loops, of_a_function, from_a_while,
    until_it_converges, lists_before_it,
]  # fmt: skip


@pytest.mark.parametrize("fn", WAYS, ids=lambda f: f.__name__)
def test_there_is_a_program_for_each_code_that_follows(fn: Callable[..., Any]) -> None:
    same(fn, wanted(), 2)


def test_there_are_three_ways() -> None:
    same(by_a_branch, wanted(), 3)


def test_gradients_of_a_search() -> None:
    def fn(a: hm.Tensor, t: float) -> Any:
        s = hm.zeros((), dtype="float64")
        for i in range(len(a)):
            s = s + a[i] ** 2
            if s > t:
                return s * 2
        return s

    for t in (0.1, 1.0, 100.0):
        np.testing.assert_allclose(
            np.asarray(hm.trace(hm.grad(fn))(rising(), t)), np.asarray(hm.grad(fn)(rising(), t)), rtol=1e-12
        )


def test_an_index_beyond_the_array_after_a_way_out() -> None:
    def fn(a: hm.Tensor, n: int) -> Any:
        i = 0
        while a[i] < 2.0:
            if i == n:
                return i
            i += 1
        return a

    assert hm.trace(fn)(rising(), 5) == 5
    with pytest.raises(IndexError):
        hm.trace(fn)(rising(), 500)


# -- numbers that data decides


def halved(a: hm.Tensor, t: float) -> Any:
    lo, hi = 0, len(a)
    while lo < hi:
        mid = (lo + hi) // 2
        if a[mid] < t:
            lo = mid + 1
        else:
            hi = mid
    return lo


def halved_otherwise(a: hm.Tensor, t: float) -> Any:
    lo, hi = 0, len(a) - 1
    while lo <= hi:
        mid = lo + (hi - lo) // 2
        if a[mid] == t:
            return mid
        if a[mid] < t:
            lo = mid + 1
        else:
            hi = mid - 1
    return -1


def halved_from_above(a: hm.Tensor, t: float) -> Any:
    lo, hi, n = -1, len(a), 0
    while hi - lo > 1 and n < 100:
        mid = (lo + hi + 1) // 2
        n += 1
        if mid < len(a) and a[mid] > t:
            hi = mid
        else:
            lo = mid
    return lo, hi, n, mid


def halved_in_a_loop(a: hm.Tensor, t: float) -> Any:
    places = hm.zeros((20,), dtype="int64")
    for k in range(20):
        lo, hi = 0, len(a)
        while lo < hi:
            mid = (lo + hi) // 2
            if a[mid] < t + 0.02 * k:
                lo = mid + 1
            else:
                hi = mid
        places[k] = lo
    return places


def two_pointers(a: hm.Tensor, t: float) -> Any:
    i, j = 0, len(a) - 1
    while i < j:
        if a[i] + a[j] > t:
            j -= 1
        else:
            i += 1
    return i, j


def bisected(a: hm.Tensor, t: float) -> Any:
    lo, hi = 0.0, 4.0
    while hi - lo > 1e-10:
        mid = 0.5 * (lo + hi)
        if (mid * mid - t) * (lo * lo - t) < 0:
            hi = mid
        else:
            lo = mid
    return mid, lo, hi


def bisected_of_tensors(a: hm.Tensor, t: float) -> Any:
    lo, hi = 0.0, 4.0
    steps = 0
    while hi - lo > 1e-10:
        mid = 0.5 * (lo + hi)
        steps += 1
        if ((mid - a) ** 3).sum() < t:
            lo = mid
        else:
            hi = mid
    return 0.5 * (lo + hi), steps


def merged(a: hm.Tensor, t: float) -> Any:
    b = a * t
    out = hm.zeros((2 * len(a),), dtype="float64")
    i = j = k = 0
    while i < len(a) and j < len(b):
        if a[i] <= b[j]:
            out[k] = a[i]
            i += 1
        else:
            out[k] = b[j]
            j += 1
        k += 1
    return out, i, j, k


DECIDED = [
    halved, halved_from_above, halved_in_a_loop, two_pointers, bisected, bisected_of_tensors, merged,
]  # fmt: skip


@pytest.mark.parametrize("fn", DECIDED, ids=lambda f: f.__name__)
def test_numbers_that_data_decides_end_a_loop(fn: Callable[..., Any]) -> None:
    same(fn, wanted())


def test_a_loop_that_such_numbers_end_is_left() -> None:
    same(halved_otherwise, wanted(), 2)


def grown_by_half(a: hm.Tensor, t: float) -> Any:
    n, k = 10, 0
    while n < 10**12:
        n = n * 3 // 2 if a[k % 5] > 0 else n + 1
        k += 1
    return n, k


def doubled(a: hm.Tensor, t: float) -> Any:
    n, k = 1, 0
    while k < 70:
        if a[k % 5] > 0:
            n, k = n * 2, k + 1
        else:
            k += 2
    return n, k


def by_python(a: hm.Tensor, t: float) -> Any:
    """Data has a part in something else."""
    n = 40
    while n:
        if a[n - 1] > t:
            a[n - 1] = 0.0
        n = n // 2
    return a, n


@pytest.mark.parametrize("fn", [grown_by_half, doubled, by_python], ids=lambda f: f.__name__)
def test_ints_are_exact(fn: Callable[..., Any]) -> None:
    for args in wanted()[:2]:
        given, copies = ([x.copy() if isinstance(x, hm.Tensor) else x for x in args] for _ in range(2))
        assert_same([fn(*given), given], [hm.trace(fn)(*copies), copies])


def test_how_an_int_grows() -> None:
    n, m = (IntProxy(None, 0.5, None, asks=True, shares={name: 1.0}) for name in "nm")  # type: ignore[arg-type]
    bounded = [(n + m) // 2, n + (m - n) // 2, (n + m + 1) // 2 - 1, -n, n - n + 3, 2 * n // 2, n % 7]
    growing = [n + m, 3 * n // 2, abs(2 * n), 2049 * n // 2048]
    carry = Carry("count", 0)
    assert [is_like(x, carry) for x in bounded] == [True] * len(bounded)
    assert [is_like(x, carry) for x in growing] == [False] * len(growing)


# -- random programs


def program_of(seed: int) -> tuple[str, Callable[..., Any]]:
    r = np.random.default_rng(seed)

    def pick(*choices: str) -> str:
        return str(r.choice(choices))

    question = pick("a[i] > t", "a[i] == t", "s > 3.0 * t", "a[i] > t and i > 3", "i > 10 and a[i] > t")
    tail = pick("where = i; break", "return i", "break", "where = n; s = -1.0; break", "return s, a", "n += i; break")
    loop = pick("for i in range(len(a)):", "for i, v in enumerate(a):", "while i < len(a) - 1:", "for i in range(30):")
    lines = ["def fn(a, t):", "    where, n, s, i = -1, 0, 0.0, 0", f"    {loop}"]
    if loop.startswith("while"):
        lines.append("        i += 1")
    body = [pick("n += 1", "n += 2", "a[i] = a[i] * 0.5", "s = s + a[i]", "s = s + 1.5", "a[i] += s") for _ in range(2)]
    at = int(r.integers(0, 3))
    asked = [f"        if {question}:", f"            {tail}"]
    rest = [f"        {line}" for line in body]
    rest[at:at] = asked
    if r.random() < 0.3:
        rest += ["        if s > 20.0:", f"            {pick('return -5', 'where = -9; break')}"]
    lines += rest
    if r.random() < 0.3 and "break" in tail:
        lines += ["    else:", f"        {pick('where = -2', 's = 7.0', 'return n')}"]
    source = "\n".join([*lines, "    return where, n, s, i, a"])
    space: dict[str, Any] = {}
    exec(compile(source, f"<search {seed}>", "exec"), space)
    return source, space["fn"]


def nested_program_of(seed: int) -> tuple[str, Callable[..., Any]]:
    r = np.random.default_rng(seed)

    def pick(*choices: str) -> str:
        return str(r.choice(choices))

    inner = pick("for j in range(3):", "for j in range(i):", "for j in range(4):", "while j < 30:")
    asked = pick("a[j] > t", "a[i] + a[j] > 1.8 * t", "s > 30.0 * t", "i > 3 and a[j] > t")
    lines = ["def fn(a, t):", "    where, n, s, j = -1, 0, 0.0, 0", f"    for i in range({pick('20', 'len(a)')}):"]
    lines += [f"        {pick('s = s + a[i]', 'where = -1', 'n += 1', 'j = 0', 'a[i] += 0.25')}" for _ in range(2)]
    if inner.startswith("while"):
        lines += ["        j = 0"]
    lines += [f"        {inner}"]
    rest = [f"            {pick('n += 1', 's = s + a[j]', 's += 0.5', 'a[j] = a[j] * 0.75')}" for _ in range(2)]
    if inner.startswith("while"):
        rest.append("            j += 1")
    at = int(r.integers(0, 3))
    tail = pick("return i, j", "where = j; break", "break", "return s", "where = i; n += 1; break", "return n, a")
    rest[at:at] = [f"            if {asked}:", f"                {tail}"]
    lines += rest
    if r.random() < 0.5:
        lines += [
            f"        if {pick('where > 1', 's > 40.0 * t', 'n > 25')}:",
            f"            {pick('break', 'return i')}",
        ]
    source = "\n".join([*lines, "    return where, n, s, i, a"])
    space: dict[str, Any] = {}
    exec(compile(source, f"<nested search {seed}>", "exec"), space)
    return source, space["fn"]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("make", [program_of, nested_program_of], ids=["one", "nested"])
def test_random_searches(make: Callable[..., Any], seed: int) -> None:
    check(*make(seed))


def check(source: str, fn: Callable[..., Any]) -> None:
    traced = hm.trace(fn)
    for args in wanted():
        given, copies = ([x.copy() if isinstance(x, hm.Tensor) else x for x in args] for _ in range(2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TraceWarning)
            found = traced(*copies)
        try:
            assert_same([fn(*given), given], [found, copies])
        except AssertionError as error:
            raise AssertionError(f"{source}\n{error}") from None

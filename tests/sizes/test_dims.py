"""Arithmetic of symbolic sizes, what is decided from their form, and the guards of what is not."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridml_compiler.errors import ArgumentError, TraceError
from hybridml_compiler.sizes.dims import Dim, _make, bounds, hint, is_dim, provable, same, symbol, symbols_of
from hybridml_compiler.sizes.guards import Guards, collecting, structural
from hybridml_compiler.sizes.values import check_of, evaluate, function_of, name_of, number_of, parse

N, M = symbol("n", 64), symbol("m", 10)
NAMES = ["n", "m"]


@pytest.fixture
def guards() -> Iterator[Guards]:
    found = Guards()
    with collecting(found):
        yield found


def texts(guards: Guards) -> list[str]:
    return [str(g) for g in guards.list]


def test_arithmetic_gives_one_form_and_numbers_where_nothing_is_left() -> None:
    assert str(N + 1 + N) == "2*n+1"
    assert N - N == 0 and type(N - N) is int
    assert str((N + 1) * (M - 1)) == "m*n+m-n-1"
    assert same((N * 64) // N, 64) and same((N * M * 4) // M, N * 4) and same(N * 64 % 16, 0)
    assert same((N + 1) * 64 // (N + 1), 64)
    assert str(divmod(7 * N + 3, 2)[0]) == "((n+1)//2)+3*n+1"
    assert str(np.int64(3) * N) == "3*n" and same(math.prod((N, M, 2)), 2 * N * M) and same(sum([N, M]), N + M)
    assert hash(N * 2) == hash(N + N) and {N * 2: 1}[N + N] == 1


@pytest.mark.parametrize("by", [-3, -2, -1, 0, 1, 2])
def test_short_ways_have_the_form_of_the_long_one(by: int) -> None:
    sizes: list[Dim] = [N, 2 * N - 1, N * M + 3 * M - 1, -N - 2, (N + 1) // 3 - M, symbol("i0", 5, N - 1) + 1]
    for size, sign in itertools.product(sizes, (1, -1)):
        found, wanted = size + by if sign == 1 else by - size, {m: sign * c for m, c in size.terms}
        long = _make(wanted | {(): wanted.get((), 0) + by})
        with structural():  # the hash of the form
            assert (found.terms, found.hint, hash(found)) == (long.terms, long.hint, hash(long))


@pytest.mark.parametrize("make", [copy.deepcopy, lambda size: pickle.loads(pickle.dumps(size))])
def test_equal_symbols_are_one_object(make: Callable[[Dim], Dim]) -> None:
    size = symbol("i0", 5, N * 3 - 1) * M
    assert symbols_of(make(size)) == symbols_of(size) == {*size.terms[0][0]} and same(make(size), size)
    assert symbols_of(symbol("n", 64)) == symbols_of(N) != symbols_of(symbol("n", 65))


def test_it_passes_for_an_int() -> None:
    assert isinstance(N, int) and isinstance(2 * N + 1, int | float) and isinstance(N, Dim) and type(N) is Dim
    with pytest.raises(TypeError, match="cannot be assigned"):
        N.__class__ = int  # type: ignore[assignment]


def test_form_decides_without_a_guard(guards: Guards) -> None:
    assert N == N and N != 1 and N != 0 and N > 1 and N * M >= M and N - 1 < N and 2 * N > N and bool(N)
    assert not N < 2 and max(N, 1) is N and bounds(N * M - M) == 2
    assert not guards.list


def test_other_answers_are_those_of_the_size_at_hand_and_become_guards(guards: Guards) -> None:
    assert N >= 10 and not N < 10 and N > 5  # the last two follow from the first
    assert N != M and N % 16 == 0 and -N + 70 > 0
    assert texts(guards) == ["n >= 10", "n != m", "(n%16) == 0", "-n+70 >= 1"]
    assert check_of(NAMES, guards.list)(48, 10) and not check_of(NAMES, guards.list)(40, 10)
    assert all("test_dims.py" in g.where for g in guards.list)


def test_a_number_is_asked_for(guards: Guards) -> None:
    assert list(range(N))[-1] == 63 and int(N) == 64 and f"{N:3d}" == " 64" and math.sqrt(N) == 8.0
    assert texts(guards) == ["n == 64"] and guards.list[0].fixes
    assert N == 64  # now it is known


def test_structural_questions_have_no_guard(guards: Guards) -> None:
    with structural():
        assert N != M and not N == 64
    assert not guards.list and hint(N * M) == 640


def test_a_size_after_its_trace_is_an_error() -> None:
    with pytest.raises(TraceError, match="size n of a traced tensor is compared after its trace"):
        bool(N < 5)
    with pytest.raises(TraceError, match="used after its trace"):
        int(N)


_sizes = st.recursive(
    st.sampled_from([N, M, 1, 2, 3, 7]),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("+-*"), inner, inner),
        st.tuples(st.sampled_from(["//", "%"]), inner, st.integers(1, 9)),
    ),
    max_leaves=6,
)


def _compute(tree: object, n: object, m: object) -> object:
    if not isinstance(tree, tuple):
        return n if tree is N else m if tree is M else tree
    op, a, b = tree
    x, y = _compute(a, n, m), _compute(b, n, m)
    return {"+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y, "//": lambda: x // y, "%": lambda: x % y}[op]()


@given(_sizes, st.integers(2, 50), st.integers(2, 50))
def test_what_it_evaluates_to_is_what_python_computes(tree: object, n: int, m: int) -> None:
    with collecting(Guards()):
        size = _compute(tree, N, M)
    expected = _compute(tree, n, m)
    assert evaluate(size, {"n": n, "m": m}) == expected
    assert function_of(NAMES, [size])(n, m) == (expected,)
    assert same(parse(str(size), {"n": N, "m": M}), size)
    low = bounds(size)
    assert low is None or low <= expected
    assert hint(size) == _compute(tree, 64, 10)
    assert isinstance(size, Dim) is is_dim(size)


def test_parse_says_what_it_cannot_read() -> None:
    with pytest.raises(ArgumentError, match="'n\\*\\*2' is not a size; its symbols are n"):
        parse("n**2", {"n": N})
    with pytest.raises(ArgumentError, match="is not a size"):
        parse("n+", {"n": N})


def test_symbols_have_a_place_in_the_table() -> None:
    assert [name_of(k) for k in (0, 1, 2, 9, 12)] == ["n", "m", "k", "n9", "n12"]
    assert all(number_of(name_of(k)) == k for k in range(30))


def test_bounds_of_strided_and_squared_steps() -> None:
    n = symbol("n", 40)
    i = symbol("i0", 5, (n + 2) // 3 + 1)  # of `for k in range(0, n, 3)`
    assert provable("<", 3 * i - 6, n) is True
    assert bounds((i - 1) * (i - 1)) == 1
    assert bounds(n - (n + 2) // 3 * 3) == -2

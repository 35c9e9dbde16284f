"""NumPy arrays among the arguments: what NumPy does with them is the program's, in memory that is the caller's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridml as hm
from hybridml.tracing.specialize.errors import TraceWarning

# -- generated programs of arrays `a` and `b`, both of which they change

ONE = """-{a}; abs({a}); {a}.copy(); {a}.T; {a}[::-1]; {a} * 2; {a} / 3; {a} ** 2; {a}.astype("f4"); {a}.ravel()
np.cumsum({a}); np.sort({a}, axis=-1); np.roll({a}, 1); np.asarray({a}); np.array({a}); np.ascontiguousarray({a})
{a}.real; np.zeros_like({a}); np.clip({a}, -1, 1); {a}[...]; {a}[None]; {a} > 0; {a}[{a} > 0]; np.where({a} > 0, {a}, 0)
np.nan_to_num({a}); {a}.T.copy(); np.fft.fft({a}).real; {a}.sum(); {a}.mean(axis=0); {a}.argmax(); {a}.max()
float({a}.sum()); {a}.reshape(-1)[0]; hm.sin({a}); hm.asarray({a}) * 2; [x * 2 for x in {a}]; len({a}); {a}.shape"""
TWO = """{a} + {b}; {a} * {b}; np.maximum({a}, {b}); {a} @ {b}.T; {a} > {b}; np.where({a} > {b}, {a}, {b}); {a} is {b}
np.concatenate([np.ravel({a}), np.ravel({b})]); np.outer({a}, {b}); np.array_equal({a}, {b}); np.stack([{a}, {b}])"""
CHANGES = """{a}[0] = 1; {a}[...] = {b}; {a} += 1; {a} *= 2; {a}[{a} > 1] = 0; {a}.fill(2); {a}[::2] = 5
np.copyto({a}, {b}); {a}.sort(); {a}[1:] = {a}[:-1]; np.add.at({a}, [0, 0], 1); {a}.T[0] = 3; {a}.ravel()[1] = 6
np.add({a}, 1, out={a})
for i in range(len({a})): {a}[i] = {a}[i] + i; for r in {a}: r *= 0.5; while {a}.max() > 100: {a}[...] = {a} / 2"""


def _lines(text: str) -> list[str]:
    return [line for part in text.splitlines() for line in part.split("; ")]


@st.composite
def programs(draw: Callable[[Any], Any]) -> str:
    names, lines = ["a", "b"], list[str]()
    for k in range(draw(st.integers(1, 5))):
        line = draw(st.sampled_from([*_lines(ONE), *_lines(TWO), *_lines(CHANGES)]))
        text = line.format(a=draw(st.sampled_from(names)), b=draw(st.sampled_from(names)))
        is_value = line in _lines(ONE) + _lines(TWO)
        lines.append(f"v{k} = {text}" if is_value else text)
        names += [f"v{k}"] if is_value else []
    returned = ", ".join(draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)))
    return "def program(a, b):\n    " + "\n    ".join(lines) + f"\n    return {returned}, None"


def _pair(shape: tuple[int, ...], dtype: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of the values that each call has, which lie in memory in the ways that users' arrays do."""
    values = np.random.default_rng(0).integers(-9, 9, (4, *shape)).astype(dtype)
    a, b = values[0].copy(), values[1].copy()
    if kind == "transposed":
        a = np.ascontiguousarray(a.T).T
    elif kind == "gaps":
        a = np.concatenate([a, a])[::2][: len(a)]
    elif kind == "one":
        b = a
    elif kind == "overlapping":
        b = a[:]
    elif kind == "read-only":
        a.flags.writeable = False
    return a, b


def _told(value: Any, given: tuple[np.ndarray, ...]) -> Any:
    if isinstance(value, tuple | list):
        return type(value), [_told(item, given) for item in value]
    if isinstance(value, np.ndarray):
        lies = [step for n, step in zip(value.shape, value.strides, strict=True) if n > 1 and value.size]
        same = [(value is g, np.shares_memory(value, g)) for g in given]
        return value.dtype, value.shape, lies, same, value.flags.writeable, _rounded(value)
    return type(value), _rounded(value) if isinstance(value, float | np.inexact | hm.Tensor) else str(value)


def _rounded(value: Any) -> str:
    """The numbers but for the order in which sums are added up."""
    return str((np.round(np.asarray(value), 4) + 0).tolist())


def _outcome(function: Any, given: tuple[np.ndarray, ...]) -> Any:
    try:
        found = _told(function(*given), given)
    except Exception as error:  # NumPy's own
        found = type(error)
    return found, [_told(g, given) for g in given]


@settings(max_examples=60, deadline=None)
@given(
    programs(),
    st.sampled_from([((3, 3), "f8"), ((4,), "f8"), ((3, 3), "i8"), ((4,), "f4"), ((2, 3, 3), "f8")]),
    st.sampled_from(["plain", "plain", "transposed", "gaps", "one", "overlapping", "read-only"]),
)
def test_calls_are_those_of_eager_code(source: str, of: tuple[tuple[int, ...], str], kind: str) -> None:
    space: dict[str, Any] = {"np": np, "hm": hm}
    exec(compile(source, "<program>", "exec"), space)
    traced = hm.trace(space["program"])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for again in (kind, kind, kind, "plain", "plain"):  # the third is native code
            expected = _outcome(space["program"], _pair(*of, again))
            assert _outcome(traced, _pair(*of, again)) == expected, source


# -- what is said of it


def test_a_function_of_numpy_alone_is_one_program() -> None:
    def smooth(a: np.ndarray, times: int) -> np.ndarray:
        for _ in range(times):
            a = np.concatenate([a[:1], (a[:-2] + a[1:-1] + a[2:]) / 3, a[-1:]])
        return a

    traced = hm.trace(smooth)
    for k in range(4):
        a = np.arange(12.0) * k
        found = traced(a, 5)
        assert type(found) is np.ndarray and found.tolist() == smooth(a, 5).tolist()
    assert traced.cache_info().compiles == 1 and traced.cache_info().hits == 3


def test_what_is_written_is_the_callers() -> None:
    @hm.trace
    def step(p: np.ndarray, v: np.ndarray) -> np.ndarray:
        v *= 0.9
        p += v
        return p

    p, v = np.zeros(3), np.ones(3)
    for _ in range(5):
        assert step(p, v) is p
    assert np.allclose(v, 0.9**5) and np.allclose(p, sum(0.9**k for k in range(1, 6)))
    assert step.cache_info().compiles == 1


def test_batches_of_any_length_for_functions_of_the_library_are_few_programs() -> None:
    traced = hm.trace(lambda x: hm.tanh(x).sum())
    for n in range(1, 12):
        assert np.isclose(traced(np.ones(n)).item(), n * np.tanh(1.0))
    assert traced.cache_info().compiles <= 3


GLOBAL = np.arange(4.0)


def add_global(a: Any) -> Any:
    a += 1
    return a + GLOBAL


def of_errors(a: Any) -> Any:
    with np.errstate(divide="raise"):
        try:
            return 1 / a
        except FloatingPointError:
            return np.zeros_like(a)


def asarray_of(a: Any) -> Any:
    b = np.asarray(a, float)
    b += 1
    return b


def flattened(a: Any) -> Any:
    b = a.ravel()
    b += 1
    return a.sum()


def assigned(a: Any, b: Any) -> Any:
    b[...] = a + 1
    return a.sum()


def reshaped(a: Any) -> Any:
    a.shape = (-1,)
    return a


BUFFER = bytearray(np.arange(4.0).tobytes())
NASTY: list[tuple[Any, list[Callable[[], tuple[Any, ...]]]]] = [
    (lambda a: a * 2, [lambda n=n: (np.ones(n),) for n in (3, 4, 5, 3)]),  # type: ignore[misc]
    (lambda a: np.outer(a, a).sum() + np.diff(a), [lambda n=n: (np.arange(n) / 2,) for n in (3, 4, 5)]),  # type: ignore[misc]
    (add_global, [lambda: (GLOBAL,), lambda: (np.ones(4),), lambda: (np.ones(4),), lambda: (GLOBAL[:],)]),
    (of_errors, [lambda: (np.array([0.0, 1.0]),)]),
    (asarray_of, [lambda: (np.arange(3.0),), lambda: (np.arange(3),)]),
    (flattened, [lambda: (np.arange(6.0).reshape(2, 3),), lambda: (np.arange(12.0).reshape(2, 6)[:, :3],)]),
    (assigned, [lambda: (np.ones(4), np.zeros(4)), lambda: (np.frombuffer(BUFFER), np.frombuffer(BUFFER))]),
    (reshaped, [lambda: (np.ones((2, 3)),)]),
    (lambda a, b: np.shares_memory(a, b), [lambda: (GLOBAL, GLOBAL[:]), lambda: (np.ones(3), np.ones(3))]),
    (lambda a: (a.flags.writeable, a * 2), [lambda: (np.ones(3),), lambda: (np.broadcast_to(1.0, (3,)),)]),
    (lambda a: a.copy("F") + a.T.copy("K").T, [lambda: (np.arange(6.0).reshape(2, 3),)]),
    (lambda a: list(zip(a, a, strict=True)), [lambda: (np.arange(6.0)[::2],)]),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("k", range(len(NASTY)))
def test_calls_of_arrays_that_programs_could_get_wrong(k: int) -> None:
    function, calls = NASTY[k]
    traced = hm.trace(function)
    for call in [*calls[:1] * 3, *calls, *calls]:
        GLOBAL[:], BUFFER[:] = np.arange(4.0), np.arange(4.0).tobytes()
        expected = _outcome(function, call())
        GLOBAL[:], BUFFER[:] = np.arange(4.0), np.arange(4.0).tobytes()
        assert _outcome(traced, call()) == expected


@pytest.mark.filterwarnings("ignore")
def test_errors_that_numpy_is_told_to_raise_are_raised() -> None:
    traced = hm.trace(lambda a: 1 / a)
    for _ in range(3):
        assert traced(np.zeros(2)).tolist() == [np.inf] * 2
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        traced(np.zeros(2))
    assert traced(np.zeros(2)).tolist() == [np.inf] * 2


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda a: np.histogram(a)[1], "np.histogram"),
        (lambda a: a.tobytes(), "tobytes"),
        (lambda a: a[1:].base, "base"),
    ],
)
def test_what_only_numpy_can_do_runs_eagerly(function: Any, what: str) -> None:
    traced, a = hm.trace(function), np.arange(3.0)
    with pytest.warns(TraceWarning, match=rf"the NumPy array a by NumPy alone \({what}"):
        found = traced(a)
    expected = function(a)
    assert found is expected or np.array_equal(np.frombuffer(found), np.frombuffer(expected))
    with pytest.raises(hm.TraceError, match="by NumPy alone"):
        hm.trace(function, strict=True)(a)


def test_views_that_are_returned_are_the_callers() -> None:
    traced, a = hm.trace(lambda a: a[1:]), np.arange(3.0)
    with pytest.warns(TraceWarning, match="returns a view of the NumPy array a, where a copy would be compiled"):
        assert traced(a).base is a


@pytest.mark.filterwarnings("ignore")
def test_an_array_that_is_kept_is_the_callers() -> None:
    kept: list[np.ndarray] = []

    @hm.trace
    def keep(a: np.ndarray) -> np.ndarray:
        kept.append(a)
        return a * 2

    for k in range(3):
        a = np.full(2, float(k))
        assert keep(a).tolist() == [2.0 * k] * 2 and kept[-1] is a


def test_a_loop_that_makes_an_array_of_numbers_in_each_step_is_captured() -> None:
    """Whether a number has a shape asked for its value, so that integrators of small systems were unrolled."""

    def slope(s: Any, rate: float) -> Any:
        x, y = s
        return np.array([y, -rate * x])

    def euler(s: Any, rate: float, steps: int) -> Any:
        for _ in range(steps):
            s = s + 0.01 * slope(s, rate)
        return s

    traced = hm.trace(euler)
    assert np.allclose(traced(np.ones(2), 2.0, 200), euler(np.ones(2), 2.0, 200))
    assert "body0" in traced.ir

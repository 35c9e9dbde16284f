"""NumPy arrays that a traced function makes and writes tensors into: the eager program, compiled once."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridml as hm

# -- generated programs: arrays `a`, `b` (3, 4) and `v` (4,), tensors `x` (3, 4) and `y` (4,), a number `k`

MADE = """np.zeros((3, 4)); np.ones((3, 4), np.float32); np.full((3, 4), 2); np.arange(12.0).reshape(3, 4)
np.full_like(a, 2); a.copy(); np.zeros((3, 4), order='F'); np.array([[1, 2, 3, 4]] * 3); np.eye(3, 4)
np.zeros((4, 3)).T; np.ones_like(b); np.linspace(0.0, 1.0, 12).reshape(3, 4); b.astype(np.float32)
np.array([y, v, a[0]]); np.full((3, 4), x[0, 0])"""
LINES = """np.zeros(4); a[1]; b[-1]; a.T[:, 0]; np.arange(4); a.reshape(-1)[2:6]; b[::-1][0]; v[::-1]; np.array(y)
a.diagonal().copy().repeat(2)[:4]; b[1:, ::2].ravel(); np.array([a[0, 0], x[1, 1], 2, k])"""
KEYS = """[...]; [1]; [0, 2]; [1:]; [:, 1]; [::2, 1:3]; [-1, ::-1]; [[0, 2]]; [np.array([2, 0]), 1]; [b > 1]
[1, [0, 3]]; [x > 0]; [hm.argmax(y) % 3]"""
NUMBERS = """x.sum(); x[0, 1]; a[0, 1] * 2; 3; 0.5; b[2, 2]; x[0, 0] * 2 + a[1, 1]; b.max(); np.sqrt(abs(v[1])); k
v.min() + y[0]; np.float32(2.5); True"""
ROWS = """y; v; y * v; v + 1; x[1]; a[0] - b[1]; v / 2; np.abs(v); x[2] + a[1]; v // 2; v * v[0]; np.maximum(v, 0); -v
np.exp(-v); np.where(v > 1, v, y); y + k; v * k; v**2; np.power(abs(v), 1.5); a[:, 1:].max(0).min() + v"""
TABLES = """x; a; b; a + b; x * a; a * 2 - b / 3; b ** 2; a > b; (a >= 1) & (b < 2); np.where(a > b, a, b)
a.T.T + v; np.concatenate([a[1:], b[:1]]); b.clip(0, 2); x - v"""
READS = """a[1]; v.copy(); a.T; x + b; a * v; b[1:, ::2]; a.dtype; a.shape; v[0]; a[0, 0] + 1; type(a); type(v[0])
len(a); isinstance(b, np.ndarray); a.flatten(); np.stack([a, b]).shape; a.astype(np.int32); np.argmax(a); a.ndim
(v > 0).all(); hm.asarray(v) * 2; a; [r.max() for r in b]; x[0, 0] * v[1]; b.base is None"""


def _parts(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from([part for line in text.splitlines() for part in line.split("; ")])


@st.composite
def programs(draw: Callable[[Any], Any]) -> str:
    lines = [f"a = {draw(_parts(MADE.splitlines()[0]))}", "b = np.ones((3, 4))", "v = np.zeros(4)"]
    lines += [f"b = {draw(_parts(MADE))}", f"v = {draw(_parts(LINES))}"]
    for _ in range(draw(st.integers(2, 6))):
        how, name = draw(_parts("=; =; +=; *=; -=")), draw(_parts("a; b"))
        key = draw(_parts(KEYS))
        if ">" in key:
            how = "="  # reading what a mask chooses asks how much that is
        lines.append(
            draw(
                st.sampled_from(
                    [
                        f"{name}{key} {how} {draw(_parts(NUMBERS))}",
                        f"{name}{draw(_parts('[1]; [0]; [-1, :]; [1:]; [...]; [::2]'))} {how} {draw(_parts(ROWS))}",
                        f"{name}[...] {how} {draw(_parts(TABLES))}",
                        f"v{draw(_parts('[...]; [1:]; [::2]; [[0, 3]]'))} {how} {draw(_parts(NUMBERS))}",
                        f"v[...] {how} {draw(_parts(ROWS))}",
                        f"v = {draw(_parts(LINES))}",
                        f"{name} = {draw(_parts(MADE))}",
                    ]
                )
            )
        )
    reads = ", ".join(draw(st.lists(_parts(READS), min_size=1, max_size=3)))
    return "def program(x, y, k):\n    " + "\n    ".join([*lines, f"return {reads}, a[0, 0], v"])


def _function(source: str) -> Any:
    space: dict[str, Any] = {"np": np, "hm": hm}
    exec(compile(source, "<program>", "exec"), space)
    return space["program"]


def _told(value: Any) -> Any:
    """A description of a result, to its last bit."""
    if isinstance(value, tuple | list):
        return tuple(map(_told, value))
    if isinstance(value, np.ndarray | np.generic | hm.Tensor):
        array = np.asarray(value)
        bits = np.where(array == array, array, 0).tobytes(), np.isnan(array).tobytes()
        return type(value), array.dtype, array.shape, array.strides if type(value) is np.ndarray else (), bits
    return type(value), value


def _run(fn: Any, *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("error", UserWarning)
        return _told(fn(*args))


@settings(max_examples=50)
@given(programs(), st.sampled_from(["f8", "f4"]))
def test_programs_are_those_of_eager_code(source: str, dtype: str) -> None:
    program = _function(source)
    traced = hm.trace(program)
    for seed in (0, 1, 0):
        rng = np.random.default_rng(seed)  # eighths: their sums are exact in any order
        x, y = (hm.asarray((rng.integers(4, 24, shape) / 8).astype(dtype)) for shape in ((3, 4), (4,)))
        try:
            expected = _run(program, x, y, 2.5)
        except (TypeError, ValueError) as error:  # NumPy casts no float into integers in place
            with pytest.raises(type(error)):
                _run(traced, x, y, 2.5)
            return
        assert _run(traced, x, y, 2.5) == expected
    assert traced.cache_info().compiles == 1, traced.retraces


# -- named cases: (programs compiled in six calls, of other values each; 0: eager, with a warning), function

CASES: list[Any] = []
kept: list[Any] = []


def case(compiles: int) -> Callable[[Any], Any]:
    return lambda fn: CASES.append(pytest.param(fn, compiles, id=fn.__name__))


@case(1)
def defect_h1(x: Any) -> Any:
    b = np.zeros(3)
    b[1:] = x[1:] * 2
    b[:-1] = x[:-1] + b[1:]
    return x + b


@case(1)
def numbers_of_numpy_alone(x: Any) -> Any:
    b = np.ones(3)
    y = x + b  # before it changes
    b[0] = 5.0
    return y, b, np.linalg.det(np.eye(3) * b)


@case(1)
def views_that_are_returned_share_memory(x: Any) -> Any:
    b = np.empty((2, 3))
    row = b[1]
    b[...] = x
    row += 1
    return b, row, b[:, ::2].T


@case(1)
def tensors_over_an_array(x: Any) -> Any:
    b, c = np.zeros(3), np.zeros(3)
    t, u = hm.asarray(b), hm.asarray(c)
    b[0] = x[1]
    c[1] = 4.0
    t += 1
    return t * 1, u * 1, b, c


@case(1)
def scalars(x: Any) -> Any:
    b = np.zeros(3, np.float32)
    b[:] = x
    i = np.zeros(3, int)
    i[:] = x
    kept[:] = []
    of_types = type(b[0]) is np.float32, isinstance(b[0], np.floating)
    return of_types, b[0] * x, i[1] * x, float(b[1]), math.sqrt(b[2]), f"{b[0]:.2f}"


@case(1)
def powers_and_casts(x: Any) -> Any:
    b, n = np.zeros(3), np.arange(3)
    b[:] = x
    b **= 2
    n[:] = b
    return b**0.5, b**3, n / 2, n // 2, n + True, np.exp(b), b @ b, n.mean(), b.astype("f4"), b.shape, b.base is None


@case(1)
def control_flow(x: Any) -> Any:
    b = np.zeros(3)
    b[:] = x

    def more() -> Any:
        b[0] = x[2] * 2
        return x

    return hm.cond(x.sum() > 0, more, lambda: x), b


@case(1)
def a_question(x: Any) -> Any:
    b = np.zeros(3)
    b[:] = x
    if b[0] > 0:
        b[1] = 7
    return b


@case(6)
def what_asks_for_values(x: Any) -> Any:
    b = np.eye(3)
    b[0] = x
    found = np.linalg.det(b), b.tolist(), np.sort(b)
    b[1] = x * 2
    b.real[2] = 3.0
    return *found, b


@case(6)
def memory_that_others_have(x: Any) -> Any:
    b = np.zeros(3)
    a, flat = np.nditer(b).itviews[0], b.flat
    b[1] = x[1]
    return a + x, flat[1]


@case(0)
def a_key(x: Any) -> Any:
    b = np.zeros(3)
    b[:] = x
    return {b[0]: x}


@case(0)
def an_array_that_stays(x: Any) -> Any:
    b = np.zeros(3)
    b[:] = x
    kept[:] = [b]
    return x + 1


@case(0)
def memory_as_a_buffer(x: Any) -> Any:
    b = np.zeros(3)
    b[:] = x
    return bytes(memoryview(b))


@pytest.mark.parametrize(("program", "compiles"), CASES)
def test_arrays_of_a_program(program: Any, compiles: int) -> None:
    traced = hm.trace(program)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for k in range(6):
            x = hm.asarray(np.array([1.0, 2.0, 3.0]) + k / 2)
            expected, left = _told(program(x)), _told(kept)
            assert (_told(traced(x)), _told(kept)) == (expected, left)
    assert traced.cache_info().compiles == compiles, traced.retraces
    assert len(said) == (0 if compiles else 1)


def test_results_are_new_and_share_memory_as_eager_ones() -> None:
    traced = hm.trace(lambda x: _shared(x))
    x = hm.asarray(np.arange(3.0))
    (b, row), (c, _) = traced(x), traced(x)
    assert np.shares_memory(b, row) and not np.shares_memory(b, c)
    row[:] = 9
    assert b[1].tolist() == [9.0] * 3 and c[1].tolist() == [0.0, 1.0, 2.0]


def _shared(x: Any) -> Any:
    b = np.zeros((2, 3))
    b[1] = x
    return b, b[1]


@pytest.mark.parametrize("body", ["b[1:] = w[1:]", "b[1:] += w[1:]", "b[0] = w", "b[5] = w[0]", "b.shape = 7"])
def test_errors_are_those_of_eager_code(body: str) -> None:
    program = _function(f"def program(w):\n    b = np.zeros(3)\n    b[:] = w\n    {body}\n    return b")
    w = hm.ones(3, requires_grad=True)

    def error(fn: Any) -> Any:
        try:
            return _told(fn(w))
        except Exception as found:
            return type(found), str(found).splitlines()[0]

    assert error(hm.trace(program)) == error(program)


@pytest.mark.parametrize(
    "expression",
    "v[j:]; v[:j] * 2; b[:j, 1]; v[..., j:]; v[[j, 1]]; b[[j, 0], [1, j]]; np.stack([v] * 6).reshape(j, -1); "
    "b + [j, 1, 2]; np.split(v, [j]); np.broadcast_to(b[:1], (j, 3)).copy(); np.zeros_like(v, shape=j); "
    "np.rot90(b, j); np.moveaxis(b, 0, j - 1); np.diagonal(b, j); np.roll(v, j); np.repeat(v, j); put(v, slice(j)); "
    "put(v, [j, 1]); put(b, (slice(j), 1))".split("; "),
)
def test_places_and_sizes_that_tensors_decide_are_asked_for(expression: str) -> None:
    """`j`, an int of NumPy's that a tensor decides, as a size, an axis, an index or an end of a slice."""
    made = "v = np.zeros(3)\n    v[:] = x\n    j = np.argmin(v)\n    b = np.arange(9).reshape(3, 3)"
    put = "def put(a, key):\n        a[key] = 7\n        return a"
    program = _function(f"def program(x):\n    {put}\n    {made}\n    return {expression}")
    traced = hm.trace(program)
    for values in ([3.0, 2.0, 1.0], [3.0, 1.0, 2.0]):
        assert _run(traced, hm.asarray(np.array(values))) == _run(program, hm.asarray(np.array(values)))


def test_arrays_of_others_that_change_are_not_read_late() -> None:
    made = np.zeros(3).copy  # no creation that the code names

    def f(x: Any) -> Any:
        b = made()
        y = x + b
        b[0] = 5.0
        return y

    with pytest.warns(UserWarning, match="changes an array that it makes, which it computes with"):
        assert hm.trace(f)(hm.ones(3)).tolist() == [1.0, 1.0, 1.0]


def test_questions_that_replace_others_are_bounded() -> None:
    made = np.ones(3).copy

    @hm.trace
    def f(x: Any) -> Any:
        return x * len(f"{(x * made()).sum().item():.20f}".strip("0"))  # of another array in every trace

    with pytest.warns(UserWarning, match="another one in 8 calls"):
        for k in range(12):
            f(hm.ones(3) * k / 7)
    assert f.cache_info().compiles == 8


FIRST_FUNCTIONS = """
import numpy as np, hybridml as hm
def product(x):
    return np.dot(x, x)
def empty(x):
    y = np.empty_like(x)
    y[0], y[1] = x[1] * 3.0, 1.0
    return y
def full(x):
    return np.zeros_like(x) + np.full_like(x, 2.0) * np.ones_like(x)
for fn in (product, empty, full):
    print(hm.trace(fn)(hm.ones((2, 2))).tolist())
"""


def test_functions_that_make_arrays_are_found_after_others() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIRST_FUNCTIONS], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stdout.split("\n")[1:3] == ["[[3.0, 3.0], [1.0, 1.0]]", "[[2.0, 2.0], [2.0, 2.0]]"], done.stderr

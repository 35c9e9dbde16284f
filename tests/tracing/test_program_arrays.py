"""Properties of NumPy arrays that a traced function makes and writes tensors into: the program is the eager one, compiled once."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hybridml as hm

# Parts of programs: arrays `a`, `b` (3, 4), an array `v` (4,), tensors `x` (3, 4) and `y` (4,).
_MAKE = [
    "np.zeros((3, 4))", "np.ones((3, 4), np.float32)", "np.full((3, 4), 2)", "np.arange(12.0).reshape(3, 4)",
    "np.full_like(a, 2)", "a.copy()", "np.zeros((3, 4), order='F')", "np.array([[1, 2, 3, 4]] * 3)", "np.eye(3, 4)",
    "np.zeros((4, 3)).T", "np.linspace(0.0, 1.0, 12).reshape(3, 4)", "np.ones_like(b)", "b.astype(np.float32)",
]  # fmt: skip
_LINES = [
    "np.zeros(4)",
    "a[1]",
    "b[-1]",
    "a.T[:, 0]",
    "np.arange(4)",
    "a.reshape(-1)[2:6]",
    "b[::-1][0]",
    "v[::-1]",
    "a.diagonal().copy().repeat(2)[:4]",
]
_KEYS = [
    "[...]",
    "[1]",
    "[0, 2]",
    "[1:]",
    "[:, 1]",
    "[::2, 1:3]",
    "[-1, ::-1]",
    "[[0, 2]]",
    "[np.array([2, 0]), 1]",
    "[b > 1]",
    "[1, [0, 3]]",
    "[x > 0]",
]
_VALUES = [
    "x.sum()", "x[0, 1]", "a[0, 1] * 2", "3", "0.5", "b[2, 2]", "x[0, 0] * 2 + a[1, 1]", "b.max()", "np.sqrt(abs(v[1]))",
    "k", "v.min() + y[0]", "np.float32(2.5)", "True",
]  # fmt: skip
_ROWS = [
    "y",
    "v",
    "y * v",
    "v + 1",
    "x[1]",
    "a[0] - b[1]",
    "v / 2",
    "np.abs(v)",
    "x[2] + a[1]",
    "v // 2",
    "v * v[0]",
    "np.maximum(v, 0)",
    "-v",
    "np.exp(-v)",
    "v.cumsum()",
    "np.where(v > 1, v, y)",
    "y + k",
    "v * k",
]
_ALL = [
    "x",
    "a",
    "b",
    "a + b",
    "x * a",
    "a * 2 - b / 3",
    "b ** 2",
    "a > b",
    "(a >= 1) & (b < 2)",
    "np.where(a > b, a, b)",
    "a.T.T + v",
    "np.concatenate([a[1:], b[:1]])",
    "b.clip(0, 2)",
    "x - v",
]
_READS = [
    "a[1]",
    "v.copy()",
    "a.T",
    "x + b",
    "a * v",
    "b[1:, ::2]",
    "a.dtype",
    "a.shape",
    "v[0]",
    "a[0, 0] + 1",
    "type(a)",
    "type(v[0])",
    "isinstance(b, np.ndarray)",
    "len(a)",
    "a.flatten()",
    "np.stack([a, b]).shape",
    "a.astype(np.int32)",
    "np.argmax(a)",
    "a.ndim",
    "(v > 0).all()",
    "hm.asarray(v) * 2",
    "a",
]


@st.composite
def programs(draw: Any) -> str:
    pick = lambda options: draw(st.sampled_from(options))  # noqa: E731
    lines = [f"a = {pick(_MAKE[:4])}", f"b = {pick(_MAKE)}", f"v = {pick(_LINES)}"]
    for _ in range(draw(st.integers(2, 6))):
        how = pick(["=", "=", "+=", "*=", "-="])
        kind = draw(st.integers(0, 5))
        name = pick(["a", "b"])
        if kind == 0:
            key = pick(_KEYS)
            lines.append(f"{name}{key} {'=' if '>' in key else how} {pick(_VALUES)}")  # how many a mask chooses is data
        elif kind == 1:
            lines.append(f"{name}{pick(['[1]', '[0]', '[-1, :]', '[1:]', '[...]', '[::2]'])} {how} {pick(_ROWS)}")
        elif kind == 2:
            lines.append(f"{name}[...] {how} {pick(_ALL)}")
        elif kind == 3:
            lines.append(f"v{pick(['[...]', '[1:]', '[::2]', '[[0, 3]]'])} {how} {pick(_VALUES)}")
        elif kind == 4:
            lines.append(f"v[...] {how} {pick(_ROWS)}")
        else:
            lines.append(f"{pick(['v = ' + pick(_LINES), name + ' = ' + pick(_MAKE)])}")
    reads = ", ".join(pick(_READS) for _ in range(draw(st.integers(1, 3))))
    return "def program(x, y, k):\n    " + "\n    ".join([*lines, f"return {reads}, a[0, 0], v"])


def _function(source: str) -> Any:
    space: dict[str, Any] = {"np": np, "hm": hm}
    exec(compile(source, "<program>", "exec"), space)
    return space["program"]


def _told(value: Any) -> Any:
    """What a result is, to its last bit."""
    if isinstance(value, tuple | list):
        return tuple(map(_told, value))
    if isinstance(value, np.ndarray | np.generic | hm.Tensor):
        array = np.asarray(value)
        return (
            type(value),
            array.dtype,
            array.shape,
            np.where(array == array, array, 0).tobytes(),
            np.isnan(array).tobytes(),
        )
    return type(value), value


def _run(fn: Any, *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("error", UserWarning)
        return _told(fn(*args))


@given(programs(), st.sampled_from(["f8", "f4"]))
def test_programs_with_arrays(source: str, dtype: str) -> None:
    program = _function(source)
    traced = hm.trace(program)
    for seed in range(3):
        rng = np.random.default_rng(seed % 2)
        x, y = (hm.asarray((rng.integers(4, 24, shape) / 8).astype(dtype)) for shape in ((3, 4), (4,)))
        try:
            expected = _run(program, x, y, 2.5)
        except Exception as error:
            with pytest.raises(type(error)):
                _run(traced, x, y, 2.5)
            return
        assert _run(traced, x, y, 2.5) == expected, source
    assert traced.cache_info().compiles == 1, source

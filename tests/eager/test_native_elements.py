"""Elements of several dtypes, kernels of ours as loops, conversions and copies: natively what Python gives."""

from __future__ import annotations

import itertools
import operator
import pickle
import sys
from typing import Any

import numpy as np
import pytest
from numpy._core.multiarray import get_handler_name

import hybridml as hm
from hybridml.core import dispatch, native_methods
from hybridml.core.library import missed
from hybridml.core.tensor import Tensor
from hybridml_compiler.compile_policy import KEPT, OPERATION
from hybridml_compiler.targets.cpu.runtime import allocation
from tests.support.native_methods import DTYPES, SHAPES, alone, outcome, tensor, values

pytestmark = pytest.mark.usefixtures("native")


@pytest.mark.parametrize("default", ["float32", "float64"])
def test_elements_of_several_dtypes(default: str) -> None:
    """An element and a number have the dtype in common that the Python methods find, as have two elements."""
    before = hm.get_default_dtype()
    hm.set_default_dtype(default)
    try:
        for name in ("__add__", "__truediv__", "__lt__", "__imul__", "__and__"):
            native, python = getattr(Tensor, name), native_methods.fallbacks[name]
            for one, other in itertools.product(DTYPES, DTYPES):
                given = [tensor(dtype, "number") for dtype in (one, one, other)]
                assert outcome(native, given[0], given[2]) == outcome(python, given[1], given[2]), (name, one, other)
                for number in (True, 3, 0.3, 1j, np.complex128(2 - 1j), np.float64(0.3), np.int64(-7)):
                    given = [tensor(dtype, "number") for dtype in (one, one)]
                    mine, theirs = outcome(native, given[0], number), outcome(python, given[1], number)
                    assert mine == theirs, (name, one, number)
    finally:
        hm.set_default_dtype(before)


@pytest.mark.parametrize("name", ["exp", "log", "sin", "tanh", "arctan2", "multiply", "absolute", "power"])
def test_kernels_of_ours_are_inner_loops(name: str) -> None:
    """Rows of which NumPy has other bits run their kernels, once these are compiled, on operands with any steps."""
    ufunc, python = getattr(np, name), native_methods.fallbacks["__array_ufunc__"]
    real, rng = name not in ("multiply", "absolute"), np.random.default_rng(1)
    given = {dtype: rng.random((3, 5)).astype(dtype) + 0.5 for dtype in ("f8", "f4")}
    given |= {dtype: (rng.random((3, 5)) - 1j * rng.random((3, 5))).astype(dtype) for dtype in ("c16", "c8")}
    for dtype, shape in itertools.product(("f8", "f4") if real else given, SHAPES):
        x = hm.asarray(SHAPES[shape](given[dtype]))
        for others in [()] if ufunc.nin == 1 else [(x,), (3,), (-0.5,), (hm.asarray(given[dtype]),)]:
            for _ in range(2):
                mine = outcome(Tensor.__array_ufunc__, x, ufunc, "__call__", x, *others)
                assert mine == outcome(python, x, ufunc, "__call__", x, *others), (dtype, shape, others)
    t = hm.asarray(given["f8" if real else "c16"])
    rows = (t[1], t[2])[: ufunc.nin]
    with alone():
        ufunc(*rows), ufunc(*[row[1] for row in rows])
    w = hm.tensor(given["f8"][0], requires_grad=True)
    assert ufunc(*[w] * ufunc.nin).requires_grad


def test_arrays_of_tensors() -> None:
    python = native_methods.fallbacks["__array__"]
    for dtype, shape in itertools.product(DTYPES, SHAPES):
        x = tensor(dtype, shape)
        for given, named in (
            ((), {}), ((None,), {}), ((np.complex64,), {}), ((), {"copy": None}), ((), {"copy": True}),
            ((), {"dtype": None}), ((), {"copy": False}), ((None,), {"copy": False}), ((None, True), {}),
            ((1, 2, 3), {}), ((), {"of": 1}),
        ):  # fmt: skip
            try:
                expected = python(x, *given, **named)
            except TypeError:
                with pytest.raises(TypeError):
                    x.__array__(*given, **named)
                continue
            found = x.__array__(*given, **named)
            assert found is not x._array and np.shares_memory(found, x._array) == np.shares_memory(expected, x._array)
            assert (found.dtype, found.shape, found.strides) == (expected.dtype, expected.shape, expected.strides)
            assert found.tobytes() == expected.tobytes() and found.flags == expected.flags, (dtype, shape, given)
            assert (found.base is None) is (expected.base is None)
    with alone():
        assert np.array([x[0] for x in hm.asarray(np.ones((3, 2)))]).tolist() == [1.0] * 3
    with pytest.raises(hm.GradientError):
        np.asarray(hm.ones(3).requires_grad_())


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_choose_elements(dtype: str) -> None:
    python = native_methods.fallbacks["__getitem__"]
    places: list[Any] = [[0, 1], [2, -1, 0], [[0, 1], [1, 0]], [3], [-4], []]
    masks: list[Any] = [[True, False, True], [[True, False, True, True, False]] * 3, [True, False], [True] * 5]
    indices = [hm.tensor(key, dtype="int64") for key in places] + [hm.tensor(key) for key in masks]
    for shape, index in itertools.product(SHAPES, indices):
        x = tensor(dtype, shape)
        assert outcome(Tensor.__getitem__, x, index) == outcome(python, x, index), (shape, index)
    w = hm.ones(3, requires_grad=True)
    assert w[hm.tensor([0, 1])].requires_grad


@pytest.mark.parametrize("name", ["sum", "max", "min"])
def test_reductions_of_all_elements_have_the_bits_of_numpy(name: str) -> None:
    native, rng = getattr(hm, name).__globals__["_row"], np.random.default_rng(0)
    rest, taken = (None,) if name == "sum" else (), 0
    for dtype, n in itertools.product(DTYPES, (1, 2, 7, 9, 129, 1000, 9000)):
        base = (rng.standard_normal((2, n)) * 50).astype(dtype)
        views = [
            base[0],
            base[0, ::2],
            base[1, ::-1],
            base,
            base.T,
            base[:, 1:],
            np.full(n, -0.0).astype(dtype),
            base[0, :0],
        ]
        if dtype[0] == "f":
            views += [np.where(base > 40, np.nan, base)[0]]
        for array in views:
            x = hm.asarray(array)
            if name != "sum" and (not array.size or dtype[0] == "c"):
                with pytest.raises((hm.ShapeError, hm.DTypeError)):
                    getattr(x, name)()
                continue
            found, expected = getattr(x, name)(), getattr(np, name)(array)
            assert found.dtype == expected.dtype and found.numpy().tobytes() == expected.tobytes(), dtype
            taken += native(x, None, False, *rest) is not missed()
    assert taken > 50
    for given in ((hm.ones(3), 0, False), (hm.ones(3), None, True), (hm.ones(3), None), (3.0, None, False), ()):
        assert native(*given, *rest) is missed()
    w = hm.ones((3,), requires_grad=True)
    assert native(w, None, False, *rest) is missed() and getattr(w, name)().requires_grad
    with hm.no_grad():
        assert not getattr(w, name)().requires_grad


def test_functions_that_are_numpys_of_floats() -> None:
    for dtype, name in itertools.product(DTYPES, ("floor", "ceil", "trunc", "sign")):
        array, ufunc = values(dtype) * np.array(-1, dtype="i8").astype(dtype), getattr(np, name)
        if dtype in ("?", "c16", "c8"):
            continue
        found = ufunc(hm.asarray(array))
        assert found.dtype == dtype and found.numpy().tobytes() == ufunc(array).tobytes(), (dtype, name)
    assert np.floor(hm.ones(2, requires_grad=True)).requires_grad


def test_indices_of_arrays() -> None:
    """NumPy asks for an int first, whose error it drops; words and classes of the error are those of the Python one."""
    python, array = native_methods.fallbacks["__index__"], np.arange(6.0)
    for key in ([1, 2], [[1], [2]], [0.5], [True, False], [3], 3, True, 2.5, np.zeros(0, int)):
        x = hm.tensor(key)
        assert outcome(Tensor.__index__, x) == outcome(python, x), key
    with alone():
        assert array[hm.tensor([1, 2])].tolist() == [1.0, 2.0]
        assert array[hm.tensor([True, False] * 3)].tolist() == [0.0, 2.0, 4.0]
        array[2:4] = hm.tensor([7.0, 8.0], dtype="float64")
    assert array.tolist() == [0.0, 1.0, 7.0, 8.0, 4.0, 5.0]
    with pytest.raises(hm.DTypeError, match="must be an integer, got float32"):
        [1, 2][hm.tensor(0.5)]
    with pytest.raises(hm.ShapeError, match=r"shape \(2,\) is ambiguous") as caught:
        [1, 2][hm.tensor([0, 1])]
    assert type(pickle.loads(pickle.dumps(caught.value))) is hm.ShapeError
    w = hm.ones(2, dtype="float64", requires_grad=True)
    with pytest.raises((hm.GradientError, ValueError)):
        array[2:4] = w


def test_clones() -> None:
    for dtype, shape, name in itertools.product(DTYPES, SHAPES, ("clone", "copy")):
        x, python = tensor(dtype, shape), native_methods.fallbacks[name]
        found = getattr(x, name)()
        assert outcome(getattr(Tensor, name), x) == outcome(python, x) and not np.shares_memory(found._array, x._array)
        assert found._array.flags.c_contiguous == python(x)._array.flags.c_contiguous
    w = hm.ones(3, requires_grad=True)
    assert w.clone().requires_grad


def test_copies_of_slices() -> None:
    for dtype in DTYPES:
        base = np.resize(values(dtype), (30, 40))
        for to, of in (
            ((), ()), ((slice(1, None),), (slice(None, -1),)), ((slice(None), slice(None, None, -1)), ()),
            ((slice(None), 3), (slice(None), 5)), ((4,), (5,)), ((slice(None, None, 2), slice(1, 9)), (0, slice(8))),
        ):  # fmt: skip
            x, y, expected = hm.asarray(base.copy()), hm.asarray(base[::-1].copy()), base.copy()
            x[to] = y[of]
            expected[to] = base[::-1].copy()[of]
            assert x._array.tobytes() == expected.tobytes(), (dtype, to, of)


def test_powers_of_elements() -> None:
    rng = np.random.default_rng(2)
    x, native, python = hm.asarray(rng.random(300) * 9), Tensor.__pow__, native_methods.fallbacks["__pow__"]
    for exponent in (0.5, 3, -1, 2.0, 2, 1, 0, -0.25, 1.5, 10, np.float64(0.2), x[7], x):
        assert outcome(native, x, exponent) == outcome(python, x, exponent), exponent
        for t in (x[0], x[1]):
            assert outcome(native, t, exponent) == outcome(python, t, exponent), exponent
    for base in (2, 2.0, 10.0, 0.3, 1j):
        for t in (x, x[0]):
            assert outcome(Tensor.__rpow__, t, base) == outcome(native_methods.fallbacks["__rpow__"], t, base), base


@pytest.mark.parametrize("size", [KEPT // 8 - 1, KEPT // 8, OPERATION - 1])
def test_larger_results_are_in_memory_that_is_kept(size: int) -> None:
    a, b = np.random.default_rng(0).random((2, size))
    x, y = hm.asarray(a), hm.asarray(b)
    allocation.handler()
    functions = (lambda x, y: x + y, lambda x, y: 0.5 * x, lambda x, y: x > y, lambda x, y: y.clone() - x)
    expected = [a + b, 0.5 * a, a > b, b - a, b - 0.5 * a]
    with alone():
        found = [function(x, y) for function in functions]
        y -= found[1]
    for t, array in zip((*found, y), expected, strict=True):
        assert t.dtype == array.dtype and np.array_equal(t.numpy(), array)
    if sys.platform == "linux":
        kept = [get_handler_name(t._array) == "hybridml" for t in found]
        assert kept == [8 * size >= KEPT, 8 * size >= KEPT, False, 8 * size >= KEPT]


@pytest.mark.parametrize("other", [*DTYPES, "int", "float", "complex"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_operands_of_several_dtypes(dtype: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, numbers = tensor(dtype, "turned"), {"int": 3, "float": 0.5, "complex": 2 - 1j}
    y = numbers[other] if other in numbers else tensor(other, "turned")[:, 1:2]
    calls = [
        (function, *given)
        for function in (operator.add, operator.mul, operator.lt, hm.maximum, hm.atan2, hm.logical_and, operator.pow)
        for given in ((x, y), (y, x))
    ]
    with np.errstate(all="ignore"):
        found = [outcome(*call) for call in calls]
        monkeypatch.setattr(dispatch, "wanted_dtypes", lambda op, args: None)
        assert found == [outcome(*call) for call in calls]

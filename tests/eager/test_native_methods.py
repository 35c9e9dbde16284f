"""Native methods of tensors do what the Python ones do: bits, memory, errors, history; and they do it without them."""

from __future__ import annotations

import gc
import itertools
import operator
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.core import dispatch, native_methods
from hybridml.core.interpreter import interpreter_stack
from hybridml.core.library import missed
from hybridml.core.tensor import Tensor
from hybridml_compiler.ops.table import OPS
from tests.support.native_methods import DTYPES, SHAPES, alone, outcome, tensor, values

pytestmark = pytest.mark.usefixtures("native")

NUMBERS = (0, 1, 2, -3, 2.5, True, 10**30, 1e300, float("nan"), np.float64(0.1), np.float32(0.1), 1j, np.bool_(True),
           np.int64(3), np.int64(-(2**62) - 1), np.int32(-2))  # fmt: skip
_ALL = ("__add__", "__rsub__", "__lt__", "__iadd__", "__matmul__")  # with operands of all shapes, the others with some
_SOME = (("row", "column"), ("row", "backward"), ("slices", "number"), ("turned", "turned"), ("matrix", "row"))


def _pairs(name: str) -> Iterator[tuple[Any, Any]]:
    for dtype in DTYPES:
        for one, other in itertools.product(SHAPES, SHAPES) if dtype == "f8" and name in _ALL else _SOME:
            yield tensor(dtype, one), tensor(dtype, other)
        for number in NUMBERS:
            yield tensor(dtype, "slices"), number
            yield tensor(dtype, "number"), number
        yield tensor(dtype, "row"), SHAPES["matrix"](values(dtype))  # an array
        yield tensor(dtype, "row"), tensor("f8", "matrix")
        for other in DTYPES:
            yield tensor(dtype, "number"), tensor(other, "number")
            yield tensor(dtype, "row"), tensor(other, "number")


BINARY = [f"__{side}{name}__" for name in ("add", "sub", "truediv", "floordiv", "and") for side in ("", "r")]
COMPARISONS = [f"__{name}__" for name in ("eq", "lt", "ge")]


@pytest.mark.parametrize("name", [*BINARY, *COMPARISONS, "__matmul__", "__pow__"])
def test_operators_have_the_bits_of_the_python_ones(name: str) -> None:
    native, python = getattr(Tensor, name), native_methods.fallbacks[name]
    for x, y in _pairs(name):
        assert outcome(native, x, y) == outcome(python, x, y), (x, y)


def test_functions_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [op for op in OPS.values() if op.fn.__globals__.get("_row", missed) is not missed]
    assert {op.name for op in rows} >= {"add", "subtract", "sqrt", "maximum", "less", "negative"}
    wanting = hm.tensor([1.0] * 5, requires_grad=True)
    for op in rows:
        native = op.fn.__globals__["_row"]
        for dtype, shape in (*itertools.product(["f8"], SHAPES), *itertools.product(("f4", "i8", "?"), ["row"])):
            x = tensor(dtype, shape)
            for other in (x, wanting, 2.5, x._array, [1.0]) if len(op.inputs) == 2 else (None,):
                given = [x] if other is None else [x, other]
                mine = outcome(op.fn, *given)
                monkeypatch.setitem(op.fn.__globals__, "_row", missed)
                assert mine == outcome(op.fn, *given), (op.name, given)
                monkeypatch.setitem(op.fn.__globals__, "_row", native)
    (hm.add(wanting, 1.0) * hm.sqrt(wanting)).sum().backward()
    assert wanting.grad is not None and wanting.grad.tolist() == [2.0] * 5


def test_functions_of_numpy_that_take_their_arguments_as_they_are() -> None:
    native, python = Tensor.__array_function__, native_methods.fallbacks["__array_function__"]
    tensors = [tensor("f8", shape) for shape in SHAPES] + [tensor("f4", "row"), tensor("i8", "row")]
    for x, y in itertools.product(tensors, tensors):
        for given in ((x, y), (x, y._array), (x._array, y)):
            assert outcome(native, x, np.dot, (Tensor,), given, {}) == outcome(python, x, np.dot, (Tensor,), given, {})
    x = tensor("f8", "matrix")
    for function, args, kwargs in (
        (np.flip, (x,), {}), (np.flip, (x, 0), {}), (np.sum, (x,), {"axis": 0}), (np.sum, (), {"a": x}),
        (np.sum, (x, 7), {}), (np.dot, (x,), {}), (np.busday_count, (x, x), {}),
    ):  # fmt: skip
        for _ in range(2):  # the first call fills the table
            expected = outcome(python, x, function, (Tensor,), args, kwargs)
            assert outcome(native, x, function, (Tensor,), args, kwargs) == expected
    with pytest.raises(TypeError):
        native(x, np.flip, (Tensor,))
    with alone():
        assert np.dot(x[0], x[1]).shape == ()
        np.flip(x)


@pytest.mark.parametrize("name", ["__neg__", "__abs__", "__invert__"])
def test_operators_of_one_tensor(name: str) -> None:
    native, python = getattr(Tensor, name), native_methods.fallbacks[name]
    for dtype, shape in itertools.product(DTYPES, SHAPES):
        x = tensor(dtype, shape)
        assert outcome(native, x) == outcome(python, x), x


@pytest.mark.parametrize("name", [f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "mod", "or")])
def test_updates_in_place(name: str) -> None:
    native, python = getattr(Tensor, name), native_methods.fallbacks[name]
    for x, y in _pairs(name):
        base = x._array.copy()
        if isinstance(y, np.ndarray):
            continue
        mine, theirs = hm.asarray(base.copy()), hm.asarray(base.copy())
        assert outcome(native, mine, y) == outcome(python, theirs, y), (x, y)
        assert mine._array.tobytes() == theirs._array.tobytes()


def test_updates_of_memory_that_overlaps() -> None:
    x = np.arange(12.0)
    for to, of in ((slice(1, None), slice(None, -1)), (slice(None), slice(None, None, -1)), (slice(None), slice(None))):
        t, expected = hm.asarray(x.copy()), x.copy()
        t[to] += t[of]
        expected[to] += x[of]
        assert t.tolist() == expected.tolist()
        t, expected = hm.asarray(x.copy()), x.copy()
        t[to] = t[of]
        expected[to] = x[of]
        assert t.tolist() == expected.tolist()


def _outs(x: np.ndarray) -> Iterator[np.ndarray]:
    """Arrays for results of the shape of an array: of several dtypes, steps and numbers of axes."""
    for dtype in ("f8", "f4", "i8", "?"):
        for array in (x.T, np.stack([x, x]), np.repeat(x[..., None], 2, -1)[..., 1]):
            yield array.astype(dtype)
    frozen = np.ones(x.shape)
    frozen.flags.writeable = False
    yield frozen


@pytest.mark.parametrize("ufunc", [np.add, np.less, np.sqrt])
def test_functions_of_numpy_write_to_arrays(ufunc: np.ufunc) -> None:
    python = native_methods.fallbacks["__array_ufunc__"]
    wanting = hm.tensor([1.0] * 5, requires_grad=True)
    for dtype, shape in (*itertools.product(["f8"], SHAPES), *itertools.product(("f4", "i8", "?"), ["row"])):
        x = tensor(dtype, shape)
        others: list[Any] = [x._array.copy(), 2, 0.5, tensor("f8", "row"), np.float64(2.0), wanting]
        for other, out in itertools.product(others if ufunc.nin == 2 else [None], _outs(x._array)):
            given = [x] if other is None else [other, x]
            mine, theirs = out.copy("K"), out.copy("K")
            mine.flags.writeable = theirs.flags.writeable = out.flags.writeable
            found = outcome(Tensor.__array_ufunc__, x, ufunc, "__call__", *given, out=(mine,))
            expected = outcome(python, x, ufunc, "__call__", *given, out=(theirs,))
            assert (found is mine) is (expected is theirs), (given, out.dtype, found, expected)
            assert found is mine or found == expected
            assert mine.tobytes() == theirs.tobytes(), (given, out.dtype)


def test_functions_of_numpy_write_to_arrays_that_overlap() -> None:
    for to, of in ((slice(1, None), slice(None, -1)), (slice(None), slice(None, None, -1)), (slice(None), slice(None))):
        array, expected = np.arange(12.0), np.arange(12.0)
        array[to] += hm.asarray(array)[of]
        expected[to] += expected[of]
        assert array.tolist() == expected.tolist()


def test_updates_of_arrays_run_without_the_python_methods() -> None:
    a, x = np.ones(5), hm.asarray(np.arange(5.0))
    with alone():
        a += x
        a *= 2.0 * x
        np.sqrt(x, out=a)
        np.maximum(x, 0.5, out=a)
    assert a.tolist() == np.maximum(np.arange(5.0), 0.5).tolist()


def test_memory_that_overlaps_itself() -> None:
    shapes = (((3, 4), (16, 8)), ((4, 3), (8, 16)), ((3, 2), (-16, 8)), ((2, 2, 2), (8, 8, 16)), ((4, 2), (16, 8)))
    for (shape, strides), update in itertools.product(shapes, ("__iadd__", "__imul__", "__setitem__", "out")):
        value, found = hm.asarray(np.arange(np.prod(shape), dtype=float).reshape(shape)), []
        for native in (True, False):
            base = np.arange(12.0)
            array = np.lib.stride_tricks.as_strided(base[4:] if strides[0] < 0 else base, shape, strides)
            x = hm.asarray(array)
            if update == "out":
                call = Tensor.__array_ufunc__ if native else native_methods.fallbacks["__array_ufunc__"]
                call(x, np.add, "__call__", value, x, out=(array,))
            else:
                method = getattr(Tensor, update) if native else native_methods.fallbacks[update]
                method(x, *([...] if update == "__setitem__" else []), value)
            found.append(base.tolist())
        assert found[0] == found[1], (shape, strides, update)


KEYS: tuple[Any, ...] = (
    0, -1, 2, 3, -4, True, slice(None), slice(1, None), slice(None, None, -1), slice(5, 1, -2), slice(2, 1), (1, 2),
    (1, -1), (0, slice(1, 3)), (slice(None), 1), (slice(0, 3, 2), slice(None, None, -2)), ..., (..., 1), (1, ...), None,
    (None, 1), (slice(None), None), (1, None, ...), (..., None), (1, 2, 3), (..., ...), (1, 5), np.int64(1), "no", 1.5,
    slice(1.5), slice(None, None, 0), (), [0, 1], (slice(None), [0, 1]), (None,) * 20,
)  # fmt: skip
_INTS = [hm.tensor(k) for k in (0, 2, -1, -3, 4, 99)]
CHOSEN: tuple[Any, ...] = (  # by tensors: these copy
    *_INTS, *((0, k) for k in _INTS), *((k, slice(1, None)) for k in _INTS), *((slice(None), k) for k in _INTS),
    (_INTS[1], _INTS[2]), (None, _INTS[1]), (..., _INTS[1]), (_INTS[0], None, _INTS[2]), (_INTS[1], 1, 2),
    hm.tensor(True), hm.tensor(1, dtype=hm.int32), hm.tensor(1, dtype=hm.uint8),
    hm.tensor([1]), hm.tensor([[0]]), hm.tensor(1.0),
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["f8", "f4", "?", "i1", "c16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_tensors_choose_elements(shape: str, dtype: str) -> None:
    x = tensor(dtype, shape)
    for key in CHOSEN:
        assert outcome(Tensor.__getitem__, x, key) == outcome(native_methods.fallbacks["__getitem__"], x, key), key
        mine, theirs = (hm.asarray(x._array.copy()) for _ in range(2))
        one = hm.asarray(np.ones((), x.dtype))
        ways = Tensor.__setitem__, native_methods.fallbacks["__setitem__"]
        outcomes = [outcome(way, to, key, one) for way, to in zip(ways, (mine, theirs), strict=True)]
        assert outcomes[0] == outcomes[1] and mine._array.tobytes() == theirs._array.tobytes(), key
    y = x[_INTS[0]] if x.ndim else x[...]
    before = y.tolist()
    if x.ndim:
        x[0] = 1
        assert y.tolist() == before


@pytest.mark.parametrize("method", ["__int__", "__index__", "__bool__", "__float__", "__len__"])
def test_numbers_of_tensors(method: str) -> None:
    values = [(0, "i8"), (-3, "i8"), (2**63 - 1, "i8"), (7, "u8"), (2**64 - 1, "u8"), ([3], "i8"), ([1, 2], "i8")]
    values += [(k, dtype) for dtype in ("?", "i4", "i2", "i1", "u4", "u2", "u1") for k in (0, 1, [1])]
    values += [(-3, dtype) for dtype in ("i4", "i2", "i1")] + [(2**31, "u4"), (2**15, "u2"), (200, "u1")]
    values += [(x, dtype) for dtype in ("f8", "f4") for x in (2.5, -0.0, 0.1, float("nan"), float("inf"))]
    values += [(x, dtype) for dtype in ("c16", "c8") for x in (0, 1j, 2.5)] + [([], "f8"), ([[1.0]] * 3, "f8")]
    for value, dtype in values:
        t = hm.tensor(value, dtype=dtype)
        native, python = (outcome(f, t) for f in (getattr(Tensor, method), native_methods.fallbacks[method]))
        assert type(native) is type(python), (value, dtype)
        assert native == python or (native != native and python != python), (value, dtype)


def test_deleting_an_element_is_an_error() -> None:
    with pytest.raises(AttributeError, match="__delitem__"):
        del hm.ones(3)[0]


def test_classes_that_override_operators() -> None:
    """Operators of a class that derives from the tensors' come first on either side, as Python has it."""

    class Own(Tensor):
        __slots__ = ()

        def __radd__(self, other: Any) -> Any:
            return "right"

        def __mul__(self, other: Any) -> Any:
            return "left"

        def __gt__(self, other: Any) -> Any:
            return "more"

        def __len__(self) -> int:
            return 77

    x, own = hm.ones(3), Own()
    own._array, own._node, own._version = np.ones(3), None, 0
    assert x + own == "right" and own * x == "left" and (x < own) == "more" and len(own) == 77
    assert pow(x, 2).tolist() == [1.0] * 3
    with pytest.raises(TypeError):
        pow(x, 2, 3)  # type: ignore[misc]
    for function in (lambda: x + object(), lambda: object() * x, lambda: x < object(), lambda: "no" @ x):
        with pytest.raises(TypeError):
            function()


@pytest.mark.parametrize("shape", SHAPES)
def test_keys_name_the_same_memory(shape: str) -> None:
    x = tensor("f8", shape)
    for key in KEYS:
        mine = outcome(Tensor.__getitem__, x, key)
        assert mine == outcome(native_methods.fallbacks["__getitem__"], x, key), key
        if isinstance(mine[0], np.dtype):
            t, expected = x[key], native_methods.fallbacks["__getitem__"](x, key)
            shares = t._array.__array_interface__["data"] == expected._array.__array_interface__["data"]
            assert shares or "[" in str(key)  # index arrays copy
            assert not t._array.size or t._array.strides == expected._array.strides
            assert not t._array.size or t._array.flags == expected._array.flags


@pytest.mark.parametrize("shape", SHAPES)
def test_assignments_to_keys(shape: str) -> None:
    native, python = Tensor.__setitem__, native_methods.fallbacks["__setitem__"]
    values: list[Any] = [*NUMBERS, tensor("f8", "number"), tensor("f8", "column"), tensor("f4", "row")]
    values += [tensor("f8", "one column"), np.arange(5.0), [1.0, 2.0, 3.0]]
    others = itertools.product(("i4", "?"), KEYS[:12], NUMBERS)
    for dtype, key, value in (*itertools.product(["f8"], KEYS, values), *others):
        mine, theirs = (hm.asarray(tensor(dtype, shape)._array.copy()) for _ in range(2))
        assert outcome(native, mine, key, value) == outcome(python, theirs, key, value), (key, value)
        assert mine._array.tobytes() == theirs._array.tobytes(), (key, value)
        assert bool(mine._version) == bool(theirs._version)


def assert_same(*found: Tensor) -> None:
    """Asserts that these have the bits of what hybridml's functions give of `arange(5)`."""
    x = hm.asarray(np.arange(5.0))
    expected = x @ x, hm.exp(x), hm.exp(x[2]), hm.arctan2(x, x), hm.arctan2(x, 2)
    assert [t._array.tobytes() for t in found] == [t._array.tobytes() for t in expected]


def test_common_statements_run_without_the_python_methods() -> None:
    a, x = hm.asarray(np.arange(20.0).reshape(4, 5) + 1), hm.asarray(np.arange(5.0))
    count, array = hm.arange(3), np.arange(5.0)
    np.exp(x), np.arctan2(x, 1.0)  # from now on they are known
    with alone():
        assert_same(array @ x, np.exp(x), np.exp(x[2]), np.arctan2(array, x), np.arctan2(x, 2))
        a[0, 0] = np.sqrt(a[0, 0])
        a[1, 2] -= a[1, :3] @ a[:3, 1]
        a[1, 2] /= a[2, 2]
        a[2] = 0.5 * (a[1] + a[3]) - x
        a[:, 1] *= a[:, 2] * 2.0
        x[1:-1] = 0.25 * (x[:-2] + 2 * x[1:-1] + x[2:])
        assert max(a[0, 0], a[1, 1]) > 0.0 and float(x[0]) == 0.25 * 0.0
        x[count[1]] += a[count[0], count[2]]
        a[count[1]] = a[count[2]]
        assert range(count[1]) == range(int(count[1]))
        assert [float(v) for v in x] == x.tolist()
        np.maximum(x, np.float64(1.0) * x)
        for k in np.arange(1, 4):  # NumPy's integers
            x[k] = a[k, k - 1] * k - (k + x[k])
            count[k - 1] += k
            assert (count[k - 1] > k) == (k < count[k - 1])
            count[0] = k


def test_a_dead_number_is_gone() -> None:
    """Nothing keeps the tensor of one number, its array or its history."""
    x = hm.asarray(np.arange(1.0, 9.0))
    for use in (lambda t: t, lambda t: t.numpy(), lambda t: t.requires_grad_() * 2.0, lambda t: t[None]):
        t = x[1] * 2.0
        references, _ = [weakref.ref(t), weakref.ref(t._array)], use(t)
        del t, _
        assert [r() for r in references] == [None, None]
    w = hm.ones(4).requires_grad_()
    t, before = x[0] * 3.0, weakref.ref(w)
    t += (w * w).sum()
    assert t.requires_grad
    del t, w
    gc.collect()
    assert before() is None


def test_no_number_of_another_dtype() -> None:
    x = hm.asarray(np.ones(3, np.float32))
    assert (x * 0.1).dtype is hm.float32 and (x * np.float64(0.1)).tolist() == (x * 0.1).tolist()
    assert (1 / x).dtype is hm.float32 and (x > 0.5).dtype is hm.bool


def test_history_is_that_of_the_python_methods() -> None:
    """A view that was made before anything wanted a gradient sees a write that does."""
    a, w = hm.zeros(4), hm.tensor([2.0, 3.0], requires_grad=True)
    inner, element = a[1:3], a[2]
    outer = a[:3]
    a[1:3] = w * w
    assert element.requires_grad and outer.requires_grad and inner.requires_grad
    (element * 10 + outer.sum() + inner[0]).backward()
    assert w.grad is not None and w.grad.tolist() == [8.0, 66.0]


def test_a_stale_value_names_the_line_of_a_native_write(tmp_path: Any) -> None:
    w = hm.tensor([1.0, 2.0], requires_grad=True)
    x = hm.asarray(np.ones(2, np.float32))
    for _ in range(2):  # the first write of a function asks Python
        x[0] = 3.0
    y = w * x
    x[1] = 5.0  # this line
    with pytest.raises(hm.GradientError, match=r"x\[1\] = 5.0"):
        y.sum().backward()


def test_watchers_see_every_operation() -> None:
    x = hm.asarray(np.arange(4.0))
    with hm.profile() as profile:
        (x + x)[0] * 2.0
    assert "add" in str(profile) and "multiply" in str(profile)
    with hm.debug_nans(), pytest.raises(FloatingPointError, match="divide made nan"):
        x / (x * 0.0)
    assert np.isnan((x / (x * 0.0)).tolist()).any()


@pytest.mark.parametrize("update", [operator.iadd, operator.imul])
def test_read_only_memory(update: Any) -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    x = hm.asarray(array)
    with pytest.raises(hm.ShapeError, match="read-only"):
        update(x, 1.0)
    with pytest.raises(hm.ShapeError, match="read-only"):
        x[0] = 1.0


@pytest.mark.parametrize("cache", ["some", "off"])
def test_they_come_after_some_time_and_soon_where_they_are_kept(cache: str, tmp_path: Path) -> None:
    program = (
        "import hybridml as hm\n"
        "x, calls = hm.ones(4), 0\n"
        "while type(hm.Tensor.__getitem__).__name__ == 'function': x[0]; calls += 1\n"
        "print(calls, type(hm.Tensor.__add__).__name__)"
    )
    cached = {**os.environ, "HYBRIDML_CACHE_DIR": cache if cache == "off" else str(tmp_path)}
    given = {"capture_output": True, "text": True, "check": True, "env": cached, "timeout": 100}
    later = dispatch._BEFORE_COMPILING if cache == "off" else dispatch._BEFORE_LOADING
    for seconds in (dispatch._BEFORE_COMPILING, later):
        calls, kind = subprocess.run([sys.executable, "-c", program], **given).stdout.split()
        assert int(calls) >= seconds / dispatch._LONGEST and kind == "wrapper_descriptor"


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float16", "float32", "float64"])
def test_narrow_numbers_of_numpys_have_the_dtype_that_traces_give(dtype: str) -> None:
    x, number = hm.ones((3,), dtype=dtype), np.float16(1.5)
    for function in (lambda t: t + number, lambda t: number * t, lambda t: hm.maximum(t, number)):
        found, traced = function(x), hm.trace(function)(x)
        assert found.dtype == traced.dtype == np.result_type(dtype if dtype[0] == "f" else "float16", "float16")
        assert found.tolist() == traced.tolist()


@pytest.mark.parametrize("statement", ["s * t", "hm.add(s, t)", "s < t", "-s"])
def test_calls_of_tensors_alone_are_counted(statement: str) -> None:
    program = (
        "import hybridml as hm\n"
        "from hybridml_compiler.ops.table import OPS\n"
        "s, t = hm.tensor(1.5), hm.tensor(2.5)\n"
        f"while type(hm.Tensor.__mul__).__name__ == 'function': {statement}\n"
        "print(type(hm.Tensor.__mul__).__name__, OPS['floor'].fn.__globals__['_row'].__name__)"
    )
    given = [sys.executable, "-c", program]
    said = subprocess.run(given, capture_output=True, text=True, check=True, timeout=100).stdout
    assert said.split()[0] == "wrapper_descriptor" and said.split()[1] != "not_yet"


def test_native_methods_are_made_outside_of_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(dispatch, "perf_counter", itertools.count().__next__)
    monkeypatch.setattr(dispatch, "_last", 0.0)
    monkeypatch.setattr(dispatch, "_left", 3 * dispatch._LONGEST)
    monkeypatch.setattr(dispatch, "installers", [lambda compiles: made.append(interpreter_stack()) or True])

    def program(x: hm.Tensor) -> hm.Tensor:
        for _ in range(5):
            dispatch.count()
        return x + 1.0

    hm.trace(program)(hm.ones((3,)))
    assert not made and dispatch._left > 0  # calls in a trace do not count
    for _ in range(5):
        dispatch.count()
    assert made == [None] and not dispatch._left

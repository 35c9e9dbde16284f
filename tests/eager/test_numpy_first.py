"""Numbers of NumPy's before tensors, and its functions of tensors."""

from __future__ import annotations

import operator
import pickle
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.core import native_methods
from hybridml.core.tensor import Tensor
from tests.support.native_methods import DTYPES, outcome, tensor

pytestmark = pytest.mark.usefixtures("native")

OPERATORS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "mod": np.remainder,
             "floordiv": np.floor_divide, "pow": np.power, "lt": np.less, "le": np.less_equal, "eq": np.equal,
             "ne": np.not_equal, "gt": np.greater, "ge": np.greater_equal}  # fmt: skip
NUMBERS = (np.float64(0.5), np.float64(np.nan), np.float64(-np.inf), np.float64(1e300), np.int64(3), np.int64(-(2**62)))


def _asked(ufunc: np.ufunc, *given: Any, **named: Any) -> Any:
    of = next(x for x in given if isinstance(x, Tensor))
    if ufunc.types[-2].endswith("->?") and ufunc.nin == 2 and isinstance(given[0], np.generic):
        given = np.asarray(given[0]), given[1]  # of which NumPy makes an array for `c < x`
    return native_methods.fallbacks["__array_ufunc__"](of, ufunc, "__call__", *given, **named)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_numbers_before_tensors(name: str) -> None:
    apply, ufunc = getattr(operator, name), OPERATORS[name]
    for dtype in DTYPES:
        for shape in ("number", "row", "turned", "none"):
            for number in NUMBERS:
                x = tensor(dtype, shape)
                assert outcome(apply, number, x) == outcome(_asked, ufunc, number, x), (number, x)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_functions_of_numpy() -> None:
    for ufunc in (np.sqrt, np.exp, np.sin, np.negative, np.maximum, np.add, np.less, np.logical_and, np.matmul):
        for dtype in DTYPES:
            for shape in ("number", "row", "turned", "none"):
                x = tensor(dtype, shape)
                others = ((), (x,), (0.5,), (np.float64(0.5),), (np.arange(3.0),))
                for more in others:
                    if 1 + len(more) == ufunc.nin:
                        assert outcome(ufunc, x, *more) == outcome(_asked, ufunc, x, *more), (ufunc, x, more)


def test_arrays_and_numbers_of_numpy_stay_its_own() -> None:
    class Number(np.float64):
        def __add__(self, other: Any) -> Any:
            return "left", super().__add__(other)

        def __radd__(self, other: Any) -> Any:
            return "right", super().__radd__(other)

    assert Number(1.0) + 2.0 == ("left", 3.0) and np.float64(2.0) + Number(1.0) == ("right", 3.0)
    assert operator.add(np.float64(2.0), [1.0, 2.0]).tolist() == [3.0, 4.0]
    assert type(np.float64(2.0) + np.int64(1)) is np.float64 and type(np.int64(2) + 1) is np.int64
    assert np.float64(2.0) != "a" and pow(np.int64(2), np.int64(3)) == 8
    with pytest.raises(TypeError):
        operator.lt(np.float64(2.0), "a")
    assert np.add(1.0, 2.0, dtype=np.float32).dtype == np.float32 and np.exp([0.0]).tolist() == [1.0]
    with pytest.raises(TypeError):
        np.exp()


def test_products_of_numbers_and_of_three_axes() -> None:
    x, cubes = hm.tensor(np.float64(2.0)), np.random.default_rng(0).random((4, 2, 3, 3))
    for y in (x, np.arange(3.0), 3.0, np.float64(3.0)):
        for call in (lambda y=y: np.matmul(x, y), lambda y=y: np.matmul(y, x)):
            with pytest.raises(hm.errors.ShapeError):
                call()
    a, b = cubes[0], cubes[1]
    assert np.matmul(hm.tensor(a), hm.tensor(b)).numpy().tobytes() == np.matmul(a, b).tobytes()


def test_history_and_traces() -> None:
    x = hm.tensor([1.0, 2.0], requires_grad=True, dtype=hm.float64)
    (np.float64(3.0) * x * np.int64(2) + np.exp(x)).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 6.0 + np.exp([1.0, 2.0]))

    def f(y: Any) -> Any:
        return np.float64(3.0) * y - np.sqrt(y), np.float64(1.0) < y

    y = hm.tensor([1.0, 4.0], dtype=hm.float64)
    for traced, eager in zip(hm.trace(f)(y), f(y), strict=True):
        assert traced.tolist() == eager.tolist() and traced.dtype == eager.dtype


@pytest.mark.usefixtures("source_lines")
def test_masks_of_arrays() -> None:
    a, m = np.arange(4.0), hm.tensor([True, False, True, False])
    a[m] += 1.0
    assert a.tolist() == [1.0, 1.0, 3.0, 3.0] and a[m].tolist() == [1.0, 3.0]
    with pytest.raises(hm.errors.DTypeError, match=r"(?s)must be an integer, got bool.*test_numpy_first.py") as found:
        operator.index(m)
    copied = pickle.loads(pickle.dumps(found.value))
    assert type(copied) is hm.errors.DTypeError
    assert (str(copied), repr(copied)) == (str(found.value), repr(found.value))


def test_infinities_beside_narrow_floats() -> None:
    n, f = hm.tensor(2), hm.tensor(2.5, dtype=hm.float32)
    assert bool(n < np.inf) and not bool(f > np.inf) and not bool(f == np.nan) and bool(f != float("nan"))
    assert bool(f < 2.75) and bool(f >= 2.5) and (f + np.inf).dtype == hm.float32

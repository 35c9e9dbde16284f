"""Lists and tuples beside a tensor are arrays, whose numbers take its dtype as one number does; in both styles."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm

STYLES = pytest.mark.parametrize("style", [lambda fn: fn, hm.trace], ids=["eager", "traced"])
OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.mod, operator.pow, operator.eq, operator.ne,
    operator.lt, operator.ge, operator.matmul,
]  # fmt: skip
VALUES: list[Any] = [(1, 2, 3), [1.0, 2.0, 3.0], [[1, 0, 2], [0.5, 3, 1], [2, 2, 2]], [True, False, True]]


@STYLES
@pytest.mark.parametrize("values", VALUES, ids=str)
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.__name__)
def test_as_numpy(op: Callable[[Any, Any], Any], values: Any, style: Callable[..., Any]) -> None:
    x = np.arange(1.0, 10.0).reshape(3, 3)
    for program in (lambda t: op(t, values), lambda t: op(values, t)):
        with np.errstate(all="ignore"):
            found, wanted = style(program)(hm.asarray(x)).numpy(), program(x)
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-14)


@STYLES
@pytest.mark.parametrize(
    ("dtype", "values", "wanted"),
    [
        ("float32", [0.1], "float32"),
        ("float32", (1, 2), "float32"),
        ("float64", [0.1], "float64"),
        ("float16", [0.1], "float16"),
        ("bfloat16", [0.1], "bfloat16"),
        ("uint8", [300], "int64"),
        ("int32", [0.5], "float32"),
        ("float32", [1j], "complex64"),
        ("float32", [np.float64(0.1)], "float64"),
    ],
)
def test_dtypes(dtype: str, values: Any, wanted: str, style: Callable[..., Any]) -> None:
    found = style(lambda t: t + values)(hm.ones((2,), dtype=dtype))
    assert found.dtype.name == wanted
    assert found.tolist() == (hm.ones((2,), dtype=wanted) + hm.asarray(values, dtype=wanted)).tolist()


@STYLES
def test_in_place(style: Callable[..., Any]) -> None:
    def program(x: hm.Tensor) -> hm.Tensor:
        x += [1, 2]
        x *= (2.0, 0.5)
        return x

    assert style(program)(hm.ones((2,))).tolist() == [4.0, 1.5]


@STYLES
def test_lists_of_tensors_have_gradients(style: Callable[..., Any]) -> None:
    a, b = hm.tensor(2.0, requires_grad=True), hm.tensor(3.0, requires_grad=True)
    style(lambda x: (x * [a, b]).sum())(hm.tensor([5.0, 7.0])).backward()
    assert a.grad is not None and b.grad is not None
    assert (a.grad.tolist(), b.grad.tolist()) == (5.0, 7.0)


def test_what_is_no_array() -> None:
    x = hm.ones((2,))
    assert (x == ["a", "b"]) is False and (x != ["a", "b"]) is True
    with pytest.raises(TypeError, match="unsupported operand"):
        x - ["a", "b"]
    with pytest.raises(hm.ShapeError, match="regular array"):
        x - [[1, 2], [3]]
    with pytest.raises(hm.ShapeError, match="do not broadcast"):
        x - [1, 2, 3]

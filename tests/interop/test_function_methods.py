"""`hm.add.outer`, `hm.maximum.reduce` and their like are NumPy's, for every function that has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.interop.numpy.function_methods import NAMES, is_binary
from hybridml_compiler.errors import ArgumentError

BINARY = sorted(name for name in dir(hm) if is_binary(getattr(hm, name)) and getattr(hm, name).__name__ == name)
COMPARISONS = {"equal", "greater", "greater_equal", "less", "less_equal", "not_equal"}  # NumPy's fold objects
INTEGERS = {"bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "gcd", "lcm"}


def samples(name: str) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.array([[3.0, 1.5, 2.0], [1.0, 4.0, 0.5]]), np.array([2.0, 0.0, 1.5, 3.0])
    if name in INTEGERS:
        return x.astype(np.int64), y.astype(np.int64)
    return x, y.astype(np.int64) if name == "ldexp" else y + (name in ("divide", "floor_divide", "fmod", "remainder"))


def every(of: Any, name: str, x: Any, y: Any) -> list[Any]:
    f = getattr(of, name)
    found = [f.outer(x, y)]
    if name not in COMPARISONS | {"ldexp"}:  # which takes a float and an integer
        # Not `reduce` of NumPy 2.4, which with AVX-512 leaves numbers out: of 3, 1.5 and 2 `power` makes 3**2.
        last = f.accumulate(x, 1)[:, -1:] if of is np else f.reduce(x, 1, keepdims=True)
        found += [last, f.accumulate(x), f.reduceat(x, [0, 2, 1], axis=1)]
    return found


def test_many_functions_have_methods() -> None:
    assert {"add", "maximum", "hypot", "fmax", "logical_xor", "pow", "less"} <= {*BINARY}
    assert hm.add.outer.__self__ is hm.add.reduce.__self__
    assert hm.mul is hm.multiply and not hasattr(hm.sum, "outer")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", BINARY)
def test_methods_are_numpys(name: str) -> None:
    x, y = samples(name)
    found = every(hm, name, hm.asarray(x), hm.asarray(y))
    for ours, its in zip(found, every(np, name, x, y), strict=True):
        assert ours.shape == its.shape and (ours.dtype.kind == "b") == (its.dtype.kind == "b")
        np.testing.assert_allclose(ours.numpy(), its, rtol=1e-12)


def test_methods_are_traced() -> None:
    names = ["add", "subtract", "maximum", "hypot", "logical_and", "fmin"]

    def program(x: Any, y: Any) -> list[Any]:
        return [part for name in names for part in every(hm, name, x, y)]

    x, y = (hm.asarray(a) for a in samples("add"))
    for traced, eager in zip(hm.trace(program)(x, y), program(x, y), strict=True):
        assert traced.dtype is eager.dtype and np.array_equal(traced.numpy(), eager.numpy())


def test_at_updates_in_place_and_again_for_an_index_that_comes_again() -> None:
    x, of_numpy = hm.zeros(3), np.zeros(3)
    hm.subtract.at(x, hm.tensor([0, 2, 0]), 1.5)
    np.subtract.at(of_numpy, [0, 2, 0], 1.5)
    hm.negative.at(x, [2])
    np.negative.at(of_numpy, [2])
    assert x.tolist() == of_numpy.tolist() == [-3.0, 0.0, 1.5]


def test_outer_has_a_gradient_and_writes_to_out() -> None:
    x = hm.tensor([2.0, 3.0], requires_grad=True)
    hm.multiply.outer(x, hm.tensor([1.0, 10.0])).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [11.0, 11.0]
    out = hm.zeros((2, 2))
    assert hm.add.outer(x.detach(), x.detach(), out=out) is out
    assert out.tolist() == [[4.0, 5.0], [5.0, 6.0]]


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda x: hm.exp.outer(x, x), "hm.exp.outer: there is none; functions of two numbers"),
        (lambda x: hm.matmul.reduce(x), "hm.matmul.reduce: there is none"),
        (lambda x: hm.add.at(x, [0]), "hm.add.at: takes x, indices and y, as add takes 2"),
        (lambda x: hm.exp.at(x, [0], x), "hm.exp.at: takes x and indices, as exp takes 1"),
        (lambda x: hm.hypot.at(x, [0], 1.0), "hm.hypot.at: not supported on tensors; add, subtract"),
    ],
)
def test_what_is_not_there_says_so(call: Any, said: str) -> None:
    for how in (call, hm.trace(call)):
        with pytest.raises(ArgumentError, match=said.replace(".", r"\.")):
            how(hm.ones(2))


@pytest.mark.parametrize("name", NAMES)
def test_methods_have_documentation(name: str) -> None:
    assert ">>>" in (getattr(hm.add, name).__doc__ or "")

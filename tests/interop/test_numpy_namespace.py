"""`import hybridml as np`: lists as operands, NumPy's parameters, and the names that the namespace has for its sake."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.interop.numpy import namespace

X = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
STYLES = pytest.mark.parametrize("style", [lambda fn: fn, hm.trace], ids=["eager", "traced"])

LISTS: list[Callable[[Any], Any]] = [
    lambda np: np.sum([1, 2]),
    lambda np: np.mean([[1.0, 2.0], [3.0, 4.0]], axis=0),
    lambda np: np.max([[3, 1], [2, 5]], axis=1),
    lambda np: np.argmax([1, 5, 2]),
    lambda np: np.sqrt([4.0, 9.0]),
    lambda np: np.add([1, 2], [3, 4]),
    lambda np: np.maximum((1, 5), 2),
    lambda np: np.where([True, False], [1.0, 2.0], 0.0),
    lambda np: np.concatenate([[1, 2], [3]]),
    lambda np: np.matmul([[1.0, 2.0]], [[3.0], [4.0]]),
    lambda np: np.linalg.inv([[2.0, 0.0], [0.0, 4.0]]),
    lambda np: np.linalg.solve([[2.0, 0.0], [0.0, 4.0]], [2.0, 4.0]),
    lambda np: np.take([4, 5, 6], [0, 2], axis=0),
    lambda np: np.reshape([1, 2, 3, 4], (2, 2)),
    lambda np: np.all([[1, 1], [0, 1]], axis=1),
    lambda np: np.clip([1, 5], 0, 2),
    lambda np: np.tile([1, 2], 2),
    lambda np: np.roll([1, 2, 3], 1),
    lambda np: np.meshgrid([1, 2], [3, 4])[1],
    lambda np: np.ones_like([1, 2]),
    lambda np: np.full_like([[1, 2]], 7),
    lambda np: np.swapaxes([[1, 2]], 0, 1),
    lambda np: np.moveaxis([[1, 2]], 0, 1),
    lambda np: np.array([1, 2], ndmin=2, copy=True),
    lambda np: np.mgrid[0:3, 1:3],
    lambda np: np.mgrid[0:1:5j],
    lambda np: np.mgrid[0:2, 0:1:3j],
    lambda np: np.ogrid[0:3, 0:2][0],
    lambda np: np.r_[1:4, 7, [8, 9]],
    lambda np: np.c_[np.array([1, 2]), np.array([3, 4])],
    lambda np: np.indices((2, 3)),
    lambda np: np.indices((2, 3), sparse=True)[1],
    lambda np: np.linspace(0.0, 1.0, 5, retstep=True)[0],
]


@STYLES
@pytest.mark.parametrize("program", LISTS)
def test_as_numpy(program: Callable[[Any], Any], style: Callable[..., Any]) -> None:
    wanted, found = program(np), style(lambda: program(hm))()
    assert isinstance(found, hm.Tensor) and found.shape == np.shape(wanted)
    assert found.dtype.kind == wanted.dtype.kind
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@STYLES
def test_lists_beside_tensors(style: Callable[..., Any]) -> None:
    x = hm.asarray(X)
    for program in (
        lambda np, x: np.add(x, [0.1, 0.2, 0.3]),
        lambda np, x: np.where([True, False, True], x, 0.0),
        lambda np, x: np.take(x, [0, 2], axis=1),
        lambda np, x: np.concatenate([x, [[0.1, 0.2, 0.3]]]),
    ):
        wanted, found = program(np, X), style(lambda x, program=program: program(hm, x))(x)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
    with pytest.raises(hm.DTypeError, match="cannot make a tensor of"):
        style(lambda x: hm.add(x, ["a"]))(x)
    with pytest.raises(hm.ShapeError, match="do not form a regular array"):
        style(lambda x: hm.sum([[1, 2], [3]]))(x)


@STYLES
def test_lists_of_tensors_keep_gradients(style: Callable[..., Any]) -> None:
    def program(p: Any) -> Any:
        matrix = hm.asarray([[2.0 * p[0], 0.0], [1.0, p[1] ** 2]])
        again = hm.array([p[0], p[1], 5.0])
        return (matrix @ matrix).sum() + hm.sum([again, hm.array(again)]) + hm.max([p[0], p[1]])

    p = hm.tensor([1.5, 2.0], dtype=hm.float64)
    found, step = style(hm.grad(program))(p), 1e-6
    for k in (0, 1):
        moved = hm.eye(2, dtype=hm.float64)[k] * step
        slope = (program(p + moved) - program(p - moved)).item() / (2 * step)
        assert found[k].item() == pytest.approx(slope, rel=1e-7)


def test_an_array_is_a_copy_with_its_history() -> None:
    x = hm.tensor([1.0, 2.0], requires_grad=True)
    y = hm.array(x)
    y[0] = 7.0
    assert x.tolist() == [1.0, 2.0] and y.requires_grad and not y.is_leaf
    assert hm.array(x, copy=None) is x and hm.array(x, requires_grad=True).is_leaf
    a = np.zeros(2, "f4")
    hm.array(a)[0] = 1
    assert a[0] == 0
    with pytest.raises(hm.ArgumentError, match="copy=False"):
        hm.array([1.0], copy=False)


@pytest.mark.parametrize(
    ("draw", "shape"),
    [
        (lambda rng: rng.uniform(-1, 1), ()),
        (lambda rng: rng.uniform(0, 5), ()),
        (lambda rng: rng.normal(0, 1), ()),
        (lambda rng: rng.normal(-10, 2), ()),
        (lambda rng: rng.uniform(-1, 1, 3), (3,)),
        (lambda rng: rng.uniform(-1, 1, size=(2, 3)), (2, 3)),
        (lambda rng: rng.normal(5, 0.0), (5,)),
        (lambda rng: rng.uniform(3), (3,)),
    ],
)
def test_sizes_of_draws(draw: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    assert draw(hm.random.default_rng(0)).shape == shape
    assert draw(hm.random).shape == shape
    found = hm.random.default_rng(0).uniform(-4, -2)
    assert -4 <= found.item() < -2


def test_steps_of_linspace() -> None:
    for num, endpoint in ((5, True), (5, False), (1, False)):
        found, step = hm.linspace(0, 2, num, endpoint, retstep=True)
        wanted, apart = np.linspace(0, 2, num, endpoint, retstep=True)
        assert step == apart and found.shape == wanted.shape
    assert math.isnan(hm.linspace(0, 2, 1, retstep=True)[1]) and math.isnan(np.linspace(0, 2, 1, retstep=True)[1])


@STYLES
def test_orders_of_flattened_tensors(style: Callable[..., Any]) -> None:
    for program in (lambda x: x.flatten(order="F"), lambda x: x.flatten("F"), lambda x: x.ravel(order="F"),
                    lambda x: x.ravel("C"), lambda x: x[:0].ravel("F")):  # fmt: skip
        np.testing.assert_array_equal(style(program)(hm.asarray(X)), program(X))
    for program in (lambda x: x.flatten("Q"), lambda x: x.ravel("Q"), lambda x: x.reshape(6, order="Q")):
        with pytest.raises(hm.ArgumentError, match='order must be "C" or "F", got \'Q\''):
            style(program)(hm.ones((2, 3)))


@STYLES
@pytest.mark.parametrize("key", [(slice(0, 0), 99), (slice(0, 0), [99]), (slice(0, 0), -4)], ids=str)
def test_indices_into_nothing_are_checked(key: Any, style: Callable[..., Any]) -> None:
    at = hm.tensor(key[1])
    for program in (lambda x: x[key], lambda x: x[key[0], at]):
        with pytest.raises(IndexError):
            style(program)(hm.asarray(X))
    assert style(lambda x: x[0:0, hm.tensor([2])])(hm.asarray(X)).shape == (0, 1)


def test_arrays_take_tensors() -> None:
    y = np.zeros(3)
    np.copyto(y, hm.tensor([1.0, 2.0, 3.0]), where=[True, False, True])
    assert y.tolist() == [1.0, 0.0, 3.0]
    with pytest.raises(hm.DTypeError, match="cast it with astype"):
        np.copyto(np.zeros(3, int), hm.ones(3))


def test_indices_and_elements() -> None:
    assert [(k, v.item()) for k, v in hm.ndenumerate(hm.asarray(X))] == list(np.ndenumerate(X))
    assert list(hm.ndindex(2, 2)) == list(np.ndindex(2, 2))
    assert [hm.isscalar(v) for v in (3, "a", np.float32(1), hm.tensor(1.0), [1], np.zeros(1))] == [True] * 3 + [
        False
    ] * 3
    assert hm.zeros(2, dtype=hm.bool_).dtype == np.bool_ and hm.zeros(2, dtype=hm.int_).dtype == np.int64
    with pytest.raises(hm.ArgumentError, match="needs an end"):
        hm.mgrid[0:]
    with pytest.raises(hm.ArgumentError, match=r"hm\.concat"):
        hm.r_["0,2", [1, 2]]


def test_names_are_those_of_numpy() -> None:
    for name, value in vars(namespace).items():
        if getattr(value, "__module__", "") == namespace.__name__ and not name.startswith("_") and callable(value):
            assert hasattr(np, name) == (name not in ("Grid", "Joined"))
            assert name not in hm.__all__ or getattr(hm, name) is value

"""Gradients at zeros, ties and of nothing, where a formula would give nan or miss the slope: PyTorch 2.13's values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm

F = hm.functional
INF = math.inf
ZEROS, PART, ONES = [0.0, 0.0, 0.0], [0.0, 2.0, 0.0], [1.0, 1.0, 1.0]


def _pairs(x: hm.Tensor) -> hm.Tensor:
    return hm.stack([x, x.detach()])


def _norm(order: float) -> Callable[[hm.Tensor], hm.Tensor]:
    return lambda x: hm.linalg.vector_norm(x, ord=order)


# Name -> (function, point, gradient).
CORNERS: dict[str, tuple[Callable[[Any], Any], list[Any], list[Any]]] = {
    **{f"norm {p} of zeros": (_norm(p), ZEROS, ZEROS) for p in (0.5, 1, 1.5, 2, 3, -1, -2, INF, -INF)},
    "norm 0.5": (_norm(0.5), PART, [0.0, 1.0, 0.0]),
    "norm 1.5": (_norm(1.5), PART, [0.0, 1.0, 0.0]),
    "norm -1": (_norm(-1), PART, ZEROS),
    "norm -2": (_norm(-2), PART, ZEROS),
    "norm 0.5 complex": (_norm(0.5), [0j, 1j], [0j, 1j]),
    "frobenius": (lambda x: hm.linalg.matrix_norm(_pairs(x)), ZEROS, ZEROS),
    "std": (hm.std, ONES, ZEROS),
    "std along an axis": (lambda x: hm.std(_pairs(x), axis=0).sum(), [1.0, 2.0, 3.0], ZEROS),
    "nanstd": (hm.nanstd, [1.0, math.nan, 1.0], ZEROS),
    "np.std": (np.std, ONES, ZEROS),
    "np.nanstd": (np.nanstd, ONES, ZEROS),
    "normalize": (lambda x: F.normalize(x, dim=0).sum(), ZEROS, [1e12, 1e12, 1e12]),
    **{
        f"distance {p}": (lambda x, p=p: F.pairwise_distance(x, x.detach(), p=p, eps=0.0), ZEROS, ZEROS)
        for p in (0.5, 1.0, 2.0, 3.0, INF)
    },
    "cdist": (lambda x: F.cdist(_pairs(x), _pairs(x).detach(), p=0.5).sum(), ZEROS, ZEROS),
    "pdist": (lambda x: F.pdist(_pairs(x), p=0.5).sum(), ZEROS, ZEROS),
    "atan2": (lambda x: hm.atan2(x, x.detach()).sum(), ZEROS, ZEROS),
    "angle": (lambda x: hm.angle(x).sum(), ZEROS, ZEROS),
    "angle complex": (lambda x: hm.angle(x).sum(), [0j, 1j], [0j, -1 + 0j]),
    "fmod": (lambda x: hm.fmod(x, 1.0).sum(), [0.0, -0.0, 2.0, -2.0, 2.5, -7.0], [1.0] * 6),
    "fmod, divisor": (lambda y: hm.fmod(hm.tensor([7.0, -7.0, 0.0]), y).sum(), [2.0, 2.0, -1.0], [-3.0, 3.0, 0.0]),
    "np.fmod": (lambda x: np.fmod(x, 1.0).sum(), [0.0, 3.0], [1.0, 1.0]),
    "modf": (lambda x: hm.modf(x)[0].sum(), [0.0, -0.0, 2.0, -2.0, 2.5], [1.0] * 5),
}


@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
@pytest.mark.parametrize("name", CORNERS)
def test_corners(name: str, style: Any) -> None:
    f, point, want = CORNERS[name]
    x = hm.tensor(point, dtype=hm.complex128 if isinstance(point[0], complex) else hm.float64)
    assert style(hm.grad(f))(x).tolist() == pytest.approx(want)


def test_values_are_as_before() -> None:
    x = np.array([7.0, -7.0, 2.5, -2.5, 0.0, -0.0, 4.0, -4.0, np.inf, -np.inf, np.nan])
    whole = np.arange(-7, 7)
    for y in (3.0, -3.0, np.inf, 0.5):
        got = hm.fmod(hm.asarray(x), y).numpy()
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(got, np.fmod(x, y))
        np.testing.assert_array_equal(np.signbit(got)[:8], np.signbit(np.fmod(x[:8], y)))
    np.testing.assert_array_equal(hm.fmod(hm.asarray(whole), 3).numpy(), np.fmod(whole, 3))
    for got, want in zip(hm.modf(hm.asarray(x)), np.modf(x), strict=True):
        np.testing.assert_array_equal(got.numpy(), want)
        np.testing.assert_array_equal(np.signbit(got.numpy())[:10], np.signbit(want)[:10])
    assert hm.linalg.vector_norm(hm.asarray([INF, INF]), ord=-1).item() == INF
    assert hm.linalg.vector_norm(hm.asarray([0.0, 2.0]), ord=-1).item() == 0


@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
@pytest.mark.parametrize(
    ("left", "right"),
    [((5, 5, 0), (0, 5)), ((4, 2, 0), (0,)), ((0, 2, 3), (3, 4)), ((2, 0, 3), (3, 4)), ((0,), (0, 3))],
)
def test_products_over_no_elements(left: tuple[int, ...], right: tuple[int, ...], style: Any) -> None:
    x, y = hm.zeros(left), hm.zeros(right)
    for found, like in zip(style(hm.grad(lambda x, y: (x @ y).sum(), (0, 1)))(x, y), (x, y), strict=True):
        assert found.shape == like.shape and not found.numpy().any()


@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
@pytest.mark.parametrize("shape", [(3, 0), (0, 4), (2, 0, 4), (0, 0)])
def test_linear_maps_of_no_elements(shape: tuple[int, ...], style: Any) -> None:
    x, weight = hm.zeros(shape), hm.ones((2, shape[-1]))
    for found, like in zip(
        style(hm.grad(lambda x, w: F.linear(x, w).sum(), (0, 1)))(x, weight), (x, weight), strict=True
    ):
        assert found.shape == like.shape and not (like is weight and found.numpy().any())

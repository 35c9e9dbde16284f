"""Fourier transforms against NumPy's, in both styles; gradients of the library's forms; errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import fft
from hybridml_compiler.errors import ArgumentError, DTypeError, HybridmlError, ShapeError

Params = dict[str, Any]
ONE: list[Params] = [{}, {"n": 5}, {"n": 9, "axis": 0}, {"axis": 1, "norm": "ortho"}, {"n": 1, "norm": "forward"}]
SEVERAL: list[Params] = [{}, {"axes": (0, 2)}, {"s": (3, 7)}, {"s": (-1, 4), "axes": (2, 1), "norm": "ortho"}]
TWO: list[Params] = [{}, {"s": (5, 6)}, {"axes": (0, 1), "norm": "forward"}]
CASES = [
    *((name, p) for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft") for p in ONE),
    *((name, p) for name in ("fftn", "ifftn", "rfftn", "irfftn") for p in SEVERAL),
    *((name, p) for name in ("fft2", "ifft2", "rfft2", "irfft2") for p in TWO),
]
OF_REAL = ("rfft", "rfftn", "rfft2", "ihfft")


def numbers(name: str, dtype: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 3, 6))
    return (x if name in OF_REAL else x + 1j * rng.standard_normal(x.shape)).astype(dtype)


def wide(name: str) -> str:
    return "f8" if name in OF_REAL else "c16"


@pytest.mark.filterwarnings("ignore:`axes` should not be `None`:DeprecationWarning")
@pytest.mark.parametrize(("name", "params"), CASES, ids=str)
def test_values_are_those_of_numpy(name: str, params: Params) -> None:
    for dtype in (wide(name), "f4" if name in OF_REAL else "c8"):
        x = numbers(name, dtype)
        expected = getattr(np.fft, name)(x, **params)
        found = getattr(fft, name)(hm.asarray(x), **params)
        assert found.dtype == expected.dtype and found.shape == expected.shape
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12 if dtype in ("f8", "c16") else 1e-4, atol=1e-5)
        traced = hm.trace(lambda x: getattr(fft, name)(x, **params))(hm.asarray(x))
        assert traced.dtype is found.dtype and traced.numpy().tobytes() == found.numpy().tobytes()


def test_of_other_numbers() -> None:
    x = np.arange(6)
    assert fft.fft(hm.asarray(x)).dtype is hm.complex64 and fft.rfft(x).dtype is hm.complex64
    assert fft.fft(hm.asarray(x, dtype="float64")).dtype is hm.complex128
    assert fft.irfft(hm.asarray(x, dtype="float64")).dtype is hm.float64
    assert fft.rfft(hm.asarray(x, dtype="bfloat16")).dtype is hm.complex64
    assert fft.fftn(hm.tensor(2.0)).item() == 2 and fft.fftn(hm.tensor([3, 4]), axes=()).tolist() == [3, 4]
    assert fft.fft(hm.zeros((0, 4))).shape == (0, 4)
    np.testing.assert_allclose(fft.fft(hm.asarray(x), norm=None).numpy(), np.fft.fft(x), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_frequencies_and_shifts(n: int) -> None:
    for name in ("fftfreq", "rfftfreq"):
        expected = getattr(np.fft, name)(n, 0.3)
        assert getattr(fft, name)(n, 0.3, dtype="float64").tolist() == expected.tolist()
        default = getattr(fft, name)(n, d=0.3, device="cpu")
        assert default.dtype is hm.float32 and default.tolist() == expected.astype("f4").tolist()
    x = np.arange(n * 3).reshape(n, 3)
    for axes in (None, 0, (1,), (0, 1), (-1, 0)):
        for name in ("fftshift", "ifftshift"):
            assert getattr(fft, name)(hm.asarray(x), axes).tolist() == getattr(np.fft, name)(x, axes).tolist()
    np.testing.assert_allclose(
        fft.rfft(hm.asarray(x / 8), 4, 0).numpy(), np.fft.rfft(x / 8, 4, 0), rtol=1e-12, atol=1e-12
    )


GRADIENTS = [
    ("fft", {"n": 5}), ("ifft", {"n": 9, "norm": "ortho"}), ("rfft", {"n": 5}), ("rfft", {"n": 8, "axis": 0}),
    ("irfft", {"n": 7}), ("irfft", {"n": 14, "norm": "forward"}), ("hfft", {"n": 5}), ("ihfft", {"n": 4, "axis": 1}),
    ("fftn", {"axes": (0, 2)}), ("rfftn", {"s": (5, 4), "axes": (2, 0)}), ("irfftn", {"s": (5, 9), "axes": (0, 2)}),
    ("rfft2", {"norm": "ortho"}), ("irfft2", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "params"), GRADIENTS, ids=str)
def test_gradients_of_both_orders(name: str, params: Params) -> None:
    """Along a direction v, of a real function whose second derivative is not constant."""
    rng = np.random.default_rng(1)
    x, v = hm.asarray(numbers(name, wide(name))), hm.asarray(numbers(name, wide(name))[::-1] * 0.5)
    like = getattr(fft, name)(x, **params)
    weights = hm.asarray(rng.standard_normal(like.shape))

    def loss(x: hm.Tensor) -> hm.Tensor:
        y = getattr(fft, name)(x, **params)
        return (hm.abs(y * (y + 0.5)) ** 2 * weights).sum() * 1e-2

    def along(g: hm.Tensor) -> hm.Tensor:
        return hm.real(hm.conj(g) * v).sum()

    first = hm.grad(loss)
    slope: Callable[[hm.Tensor], hm.Tensor] = lambda x: along(first(x))  # noqa: E731
    h = 1e-5
    assert along(first(x)).item() == pytest.approx((loss(x + v * h) - loss(x - v * h)).item() / (2 * h), rel=1e-6)
    second = along(hm.grad(slope)(x)).item()
    assert second == pytest.approx((slope(x + v * h) - slope(x - v * h)).item() / (2 * h), rel=1e-6)
    np.testing.assert_allclose(hm.trace(first)(x).numpy(), first(x).numpy(), rtol=1e-10, atol=1e-12)


ERRORS: dict[str, tuple[type[HybridmlError], str, Callable[[hm.Tensor], Any]]] = {
    "axis": (ShapeError, "fft: axis 3 does not exist", lambda x: fft.fft(x, axis=3)),
    "twice": (ShapeError, "names an axis twice", lambda x: fft.fftn(x, axes=(0, -2))),
    "points": (ShapeError, "rfft: 0 points", lambda x: fft.rfft(x, n=0)),
    "none": (ShapeError, "has no points along axis 1", lambda x: fft.fft(x[:, :0])),
    "one": (ShapeError, "irfft: 0 points", lambda x: fft.irfft(x[:, :1])),
    "axes": (ShapeError, "irfftn: no axes", lambda x: fft.irfftn(x, axes=())),
    "norm": (ArgumentError, "norm must be", lambda x: fft.fft(x, norm="none")),
    "norm of hfft": (ArgumentError, "hfft: norm must be", lambda x: fft.hfft(x, norm="none")),
    "sizes": (ArgumentError, "fftn: 1 sizes for 2 axes", lambda x: fft.fftn(x, s=(3,), axes=(0, 1))),
    "frequencies": (DTypeError, "rfftfreq: frequencies are floats", lambda x: fft.rfftfreq(4, dtype="int64")),
    "complex": (DTypeError, "fft_r2c: takes real numbers", lambda x: fft.rfft(x * 1j)),
    "whole": (ArgumentError, "the number of points must be an integer", lambda x: fft.fft(x, n=2.5)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_the_same_in_both_styles(name: str) -> None:
    kind, message, call = ERRORS[name]
    x = hm.ones((2, 3))
    with pytest.raises(kind, match=message) as eager:
        call(x)
    with pytest.raises(kind, match=message) as traced:
        hm.trace(call)(x)
    assert str(eager.value).splitlines()[0] == str(traced.value).splitlines()[0]


def test_sizes_that_change() -> None:
    f = hm.trace(lambda x: hm.abs(fft.irfft(fft.rfft(x) * 2, n=x.shape[-1]) + fft.fft(x).real))
    for n in (4, 5, 6, 7, 8):
        x = hm.asarray(np.random.default_rng(n).standard_normal((3, n)))
        np.testing.assert_allclose(
            f(x).numpy(), np.abs(2 * x.numpy() + np.fft.fft(x.numpy()).real), rtol=1e-12, atol=1e-12
        )

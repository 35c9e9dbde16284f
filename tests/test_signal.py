"""Spectra over time against frames cut by NumPy, and back; the numbers of PyTorch's windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.errors import ArgumentError, HybridmlError, ShapeError

MODES = {"reflect": "reflect", "constant": "constant", "replicate": "edge", "circular": "wrap"}
CASES: list[dict[str, Any]] = [
    {"n_fft": 16, "hop_length": 4},
    {"n_fft": 16, "hop_length": 5, "win_length": 11, "normalized": True},
    {"n_fft": 9, "hop_length": 3, "center": False},
    {"n_fft": 8, "pad_mode": "constant"},
    {"n_fft": 8, "hop_length": 2, "pad_mode": "replicate", "onesided": False},
    {"n_fft": 8, "hop_length": 2, "pad_mode": "circular"},
]


def reference(x: np.ndarray, window: np.ndarray, n_fft: int, hop_length: int | None = None, **given: Any) -> np.ndarray:
    hop, n = hop_length or n_fft // 4, n_fft
    if given.get("center", True):
        around = [(0, 0)] * (x.ndim - 1) + [(n // 2, n // 2)]
        x = np.pad(x, around, mode=MODES[given.get("pad_mode", "reflect")])  # type: ignore[call-overload]
    left = (n - len(window)) // 2
    window = np.pad(window, (left, n - len(window) - left))
    frames = [x[..., k : k + n] * window for k in range(0, x.shape[-1] - n + 1, hop)]
    half = given.get("onesided", not np.iscomplexobj(x))
    norm: Any = "ortho" if given.get("normalized") else "backward"
    return np.stack([(np.fft.rfft if half else np.fft.fft)(frame, norm=norm) for frame in frames], -1)


@pytest.mark.parametrize("numbers", ["real", "complex"])
@pytest.mark.parametrize("params", CASES, ids=str)
def test_there_and_back(params: dict[str, Any], numbers: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 61))
    x = x + 1j * rng.standard_normal(x.shape) if numbers == "complex" else x
    size = params.get("win_length", params["n_fft"])
    window = hm.hamming_window(size, dtype="float64")
    spectra = hm.stft(hm.asarray(x), window=window, **params)
    np.testing.assert_allclose(spectra.numpy(), reference(x, window.numpy(), **params), rtol=1e-12, atol=1e-12)
    traced = hm.trace(lambda x: hm.stft(x, window=window, **params))(hm.asarray(x))
    np.testing.assert_allclose(traced.numpy(), spectra.numpy(), rtol=1e-12, atol=1e-12)

    back = {k: v for k, v in params.items() if k != "pad_mode"}
    for length in (None, 40, 61):
        y = hm.istft(spectra, window=window, length=length, return_complex=numbers == "complex", **back)
        same = min(y.shape[-1], 61 - params["n_fft"])
        assert length is None or y.shape == (2, length)
        np.testing.assert_allclose(y.numpy()[:, :same], x[:, :same], rtol=1e-10, atol=1e-12)


def test_without_a_window() -> None:
    x = hm.asarray(np.random.default_rng(0).standard_normal(30), dtype="float32")
    spectra = hm.stft(x, 8)
    assert spectra.dtype is hm.complex64
    np.testing.assert_allclose(spectra.numpy(), reference(x.numpy(), np.ones(8), 8), rtol=1e-4, atol=1e-5)
    longer = hm.istft(spectra, 8, length=40).numpy()  # the signal, half a frame as it was continued, zeros
    np.testing.assert_allclose(longer[:30], x.numpy(), atol=1e-5)
    assert longer[30:34].all() and not longer[34:].any()


def test_windows() -> None:
    for n in (0, 1, 2, 5):
        for name, of_numpy in {"hann": np.hanning, "hamming": np.hamming, "blackman": np.blackman}.items():
            window = getattr(hm, f"{name}_window")
            np.testing.assert_allclose(window(n, False, dtype="float64").numpy(), of_numpy(n), atol=1e-14)
            cut = of_numpy(n + 1)[:n] if n > 1 else np.ones(n)
            np.testing.assert_allclose(window(n).numpy(), cut, atol=1e-6)


def test_gradients() -> None:
    rng = np.random.default_rng(2)
    x, v = (hm.asarray(rng.standard_normal(23)) for _ in range(2))
    window = hm.hann_window(8, dtype="float64")
    weights = hm.asarray(rng.standard_normal((5, 12)))

    def loss(x: hm.Tensor) -> hm.Tensor:
        spectra = hm.stft(x, 8, 2, window=window)
        return (hm.istft(spectra * weights, 8, 2, window=window) ** 3).sum() + hm.abs(spectra).sum()

    h = 1e-6
    expected = (loss(x + v * h) - loss(x - v * h)).item() / (2 * h)
    assert (hm.grad(loss)(x) * v).sum().item() == pytest.approx(expected, rel=1e-6)


ERRORS: dict[str, tuple[type[HybridmlError], str, Callable[[hm.Tensor], Any]]] = {
    "old form": (ArgumentError, "results are complex", lambda x: hm.stft(x, 4, return_complex=False)),
    "number": (ShapeError, "needs a signal", lambda x: hm.stft(x[0], 4)),
    "sizes": (ArgumentError, "win_length up to n_fft", lambda x: hm.stft(x, 4, win_length=5)),
    "hop": (ArgumentError, "hop_length=0", lambda x: hm.stft(x, 3)),
    "window": (ShapeError, r"the window must have win_length numbers, \(4,\)", lambda x: hm.stft(x, 4, window=x)),
    "short": (ShapeError, "no frame of n_fft=16", lambda x: hm.stft(x, 16, center=False)),
    "reflect": (ShapeError, "needs more than n_fft // 2 = 16", lambda x: hm.stft(x, 32)),
    "mode": (ArgumentError, "pad_mode must be", lambda x: hm.stft(x, 4, pad_mode="mirror")),
    "half": (ArgumentError, "no half spectrum", lambda x: hm.stft(x * 1j, 4, onesided=True)),
    "spectra": (ShapeError, "needs spectra", lambda x: hm.istft(x, 4)),
    "frequencies": (ShapeError, "n_fft=8 has 5 frequencies", lambda x: hm.istft(hm.ones((4, 3)), 8)),
    "points": (ShapeError, "hann: -1 points", lambda x: hm.hann_window(-1)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_the_same_in_both_styles(name: str) -> None:
    kind, message, call = ERRORS[name]
    x = hm.ones(10)
    with pytest.raises(kind, match=message) as eager:
        call(x)
    with pytest.raises(kind, match=message) as traced:
        hm.trace(call)(x)
    assert str(eager.value).splitlines()[0] == str(traced.value).splitlines()[0]

"""Kernels of Fourier transforms: accuracy for every radix, dtype and vector width; bits that depend on no batch, number
of threads or style; what is left to NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler import dtypes
from hybridml_compiler.graph.text import parse_graph
from hybridml_compiler.schedule.kernels import transform
from hybridml_compiler.schedule.kernels.roots import roots
from hybridml_compiler.schedule.kernels.transform import Transform
from hybridml_compiler.targets.cpu.eager import fourier
from hybridml_compiler.targets.cpu.runtime import threads
from tests.support.cpus import narrowed_host
from tests.support.run_plan import plan_of, run_plan

SIZES = (1, 2, 5, 13, 16, 17, 60, 66, 101, 128, 250, 1001, 1024)
# Each size in one dtype; in the other with --slow, since each case compiles six kernels.
KINDS = [
    pytest.param(n, dtype, marks=pytest.mark.slow) if (k + j) % 2 else (n, dtype)
    for k, n in enumerate(SIZES)
    for j, dtype in enumerate("fd")
]
ROUNDING = {"f": 1.2e-7, "d": 2.2e-16}


def numbers(*shape: int, dtype: str = "d", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def spectra(*shape: int, dtype: str = "d") -> np.ndarray:
    return (numbers(*shape) + 1j * numbers(*shape, seed=1)).astype(dtype.upper())


def error(found: np.ndarray, expected: np.ndarray) -> float:
    difference = found.astype(expected.dtype) - expected
    return float(np.sqrt(np.sum(np.abs(difference) ** 2) / np.sum(np.abs(expected) ** 2)))


@pytest.mark.parametrize(("n", "dtype"), KINDS)
def test_errors_are_of_the_order_of_rounding(n: int, dtype: str) -> None:
    """Root mean squares beside transforms in a wider dtype: a rounding times the root of the number of passes."""
    bound = ROUNDING[dtype] * max(np.log2(n), 1) ** 0.5
    wide = np.clongdouble if dtype == "d" else np.complex128
    z, x = spectra(3, n, dtype=dtype), numbers(3, 2 * n, dtype=dtype)
    half = np.fft.rfft(x.astype(wide(0).real.dtype)).astype(dtype.upper())
    z3 = spectra(2, n, 3, dtype=dtype)
    for found, expected in (
        (hm.fft.fft(hm.asarray(z)), np.fft.fft(z.astype(wide))),
        (hm.fft.ifft(hm.asarray(z), norm="ortho"), np.fft.ifft(z.astype(wide), norm="ortho")),
        (hm.fft.fft(hm.asarray(x)), np.fft.fft(x.astype(wide))),
        (hm.fft.rfft(hm.asarray(x)), np.fft.rfft(x.astype(wide(0).real.dtype))),
        (hm.fft.irfft(hm.asarray(half)), np.fft.irfft(half.astype(wide))),
        (hm.fft.ifft(hm.asarray(z3), axis=1), np.fft.ifft(z3.astype(wide), axis=1)),
    ):
        assert found.dtype.itemsize * 2 == expected.dtype.itemsize or dtype == "d"
        assert error(found.numpy(), expected) <= bound


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("n", [2, 6, 40, 48])
@pytest.mark.parametrize("inner", [1, 3, 16, 21])
def test_real_transforms_of_columns(n: int, inner: int, dtype: str) -> None:
    x = numbers(2, n, inner, dtype=dtype)
    half = np.fft.rfft(x, axis=1)
    tolerance = {"rtol": 0, "atol": 20 * ROUNDING[dtype] * n}
    np.testing.assert_allclose(hm.fft.rfft(hm.asarray(x), axis=1).numpy(), half, **tolerance)
    half = half.astype(dtype.upper())
    np.testing.assert_allclose(hm.fft.irfft(hm.asarray(half), axis=1).numpy(), x, **tolerance)
    noisy = half + 1j * np.array([1] + [0] * (n // 2 - 1) + [1])[:, None].astype(half.dtype)
    found = hm.fft.irfft(hm.asarray(noisy.astype(half.dtype)), axis=1)
    np.testing.assert_allclose(found.numpy(), x, **tolerance)  # of these parts nothing depends


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("dtype", ["f", "d"])
def test_every_width_of_vectors(bits: int, dtype: str) -> None:
    cpu = narrowed_host(bits)
    for n in (12, 120):
        z = spectra(5, n, dtype=dtype)
        found = np.zeros_like(z)
        fourier.compiled(Transform("rows", dtypes.real_of(z.dtype), n), cpu)(z.ctypes.data, found.ctypes.data, 5, 5)
        assert error(found, np.fft.fft(z.astype("D"))) <= 4 * ROUNDING[dtype]


def test_rows_have_the_same_bits_in_any_batch() -> None:
    for n in (48, 96, 1000):
        x = numbers(37, n, dtype="f")
        whole = hm.fft.rfft(hm.asarray(x)).numpy()
        for start, count in ((0, 1), (3, 2), (5, 32)):
            part = hm.fft.rfft(hm.asarray(x[start : start + count])).numpy()
            assert part.tobytes() == whole[start : start + count].tobytes()
        single = hm.fft.rfft(hm.asarray(x[7])).numpy()
        assert single.tobytes() == whole[7].tobytes()


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_passes_of_their_own_have_the_bits_of_a_row_in_one_go(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long rows, or few, are several launches whose work threads share."""
    x, z = numbers(3, 2000, dtype=dtype), spectra(3, 1000, dtype=dtype)
    run = [
        lambda: hm.fft.fft(hm.asarray(z)),
        lambda: hm.fft.ifft(hm.asarray(x)),
        lambda: hm.fft.rfft(hm.asarray(x)),
        lambda: hm.fft.irfft(hm.fft.rfft(hm.asarray(x))),
    ]
    whole = [f().numpy() for f in run]
    fourier._steps.cache_clear()
    monkeypatch.setattr(transform, "WHOLE_BYTES", 0)
    try:
        stages = {spec.stage for spec, _ in fourier._steps((3, 1000), z.dtype, _row(1000)).passes}
        assert stages == {"columns", "squares"}
        for f, expected in zip(run, whole, strict=True):
            assert f().numpy().tobytes() == expected.tobytes()
    finally:
        fourier._steps.cache_clear()


def _row(n: int) -> Any:
    from hybridml_compiler.ops.fourier import AxisTransform

    return (AxisTransform("c2c", 1, n),)


def test_a_long_row_is_several_launches() -> None:
    x = numbers(1 << 17, dtype="f")
    half = hm.fft.rfft(hm.asarray(x))
    assert error(half.numpy(), np.fft.rfft(x.astype("d"))) <= 5 * ROUNDING["f"]
    assert error(hm.fft.irfft(half).numpy(), x.astype("d")) <= 8 * ROUNDING["f"]
    traced = hm.trace(lambda x: hm.fft.irfft(hm.fft.rfft(x)))
    assert traced(hm.asarray(x)).numpy().tobytes() == hm.fft.irfft(half).numpy().tobytes()
    assert traced.stats.kernels == 6


def test_threads_share_rows_and_change_no_bits() -> None:
    x = hm.asarray(numbers(512, 512, dtype="f"))
    before = threads.get_num_threads()
    f = hm.trace(lambda x: hm.fft.irfft2(hm.fft.rfft2(x) * 2))
    try:
        found = []
        for count in (1, 3):
            threads.set_num_threads(count)
            found.append(f(x).numpy().tobytes())
        assert found[0] == found[1]
    finally:
        threads.set_num_threads(before)
    np.testing.assert_allclose(f(x).numpy(), x.numpy() * 2, atol=1e-5)


@pytest.mark.parametrize("n", [1, 3, 9, 15, 17, 34, 101])
@pytest.mark.parametrize("dtype", ["f", "d"])
def test_any_number_of_reals(n: int, dtype: str) -> None:
    """Odd numbers, and those with large prime factors."""
    bound = 2 * ROUNDING[dtype] * max(np.log2(n), 1) ** 0.5
    x = numbers(5, n, dtype=dtype)
    half = np.fft.rfft(x.astype(np.longdouble))
    assert error(hm.fft.rfft(hm.asarray(x)).numpy(), half) <= bound
    half = half.astype(dtype.upper())
    noisy = half + (np.arange(half.shape[1]) == 0) * half.dtype.type(1j)  # on which nothing depends
    expected = np.fft.irfft(half.astype(np.clongdouble), n)
    assert error(hm.fft.irfft(hm.asarray(noisy), n=n).numpy(), expected) <= bound


@pytest.mark.parametrize("n", [9, 34, 37])
def test_every_size_has_the_bits_of_both_styles(n: int) -> None:
    """NumPy computes columns of 34 = 2 17 and 37 points, and of 9 real ones."""
    x = hm.asarray(numbers(n, n))
    for f in (hm.fft.fft, hm.fft.rfft, lambda x: hm.fft.fft(x, axis=0), lambda x: hm.fft.rfft(x, axis=0), hm.fft.fft2):
        traced = hm.trace(lambda x, f=f: f(x))
        assert traced(x).numpy().tobytes() == f(x).numpy().tobytes()
        np.testing.assert_allclose(hm.fft.ifft2(hm.fft.fft2(x)).numpy().real, x.numpy(), atol=1e-14)


def test_a_program_takes_any_number_of_rows() -> None:
    f = hm.trace(lambda x: hm.fft.irfft(hm.fft.rfft(x)))
    for rows in (3, 5, 20, 33):
        x = numbers(rows, 48)
        np.testing.assert_allclose(f(hm.asarray(x)).numpy(), x, atol=1e-14)
    assert f.cache_info().compiles == 2


def test_kernels_call_no_numpy() -> None:
    f = hm.trace(lambda x: hm.fft.fft(hm.fft.irfft(hm.fft.rfft(x), n=x.shape[-1])))
    for n in (48, 37):
        x = hm.asarray(numbers(4, n))
        f(x)
        assert "NumPy" not in str(f.explain(x))


def test_roots_are_rounded_once() -> None:
    for points in (1, 3, 8, 48, 1000, 1 << 20):
        power = np.arange(min(points, 5000)) * 7 % points
        angle = power.astype(np.longdouble) * (-2 * np.longdouble("3.14159265358979323846264338327950288") / points)
        expected = np.cos(angle) + 1j * np.sin(angle)
        assert np.max(np.abs(roots(power, points) - expected)) < 2.3e-16


def test_matrices_fill_vectors() -> None:
    for lanes in (4, 8, 16):
        for n in (128, 1000, 4096, 3**7, 13 * 11 * 7):
            rows, columns = transform.split(n, lanes)
            assert rows * columns == n and min(rows, columns) > 1
    assert transform.radices(1) == (1,) and transform.radices(2**7 * 15) == (8, 4, 4, 5, 3)


def test_signals_of_ever_other_lengths_compile_so_many_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fourier, "_known", {})
    monkeypatch.setattr(fourier, "MOST_TRANSFORMS", 2)
    for n in (6, 8, 10, 12):
        x = numbers(n)
        np.testing.assert_allclose(hm.fft.fft(hm.asarray(x)).numpy(), np.fft.fft(x), atol=1e-14)
    assert [spec.points for spec in fourier._known] == [6, 8]


PLANS: dict[str, tuple[Any, np.ndarray]] = {
    "rows": (lambda x: hm.fft.ifft(hm.fft.fft(x), norm="ortho"), numbers(5, 24)),
    "real rows": (lambda x: hm.fft.irfft(hm.fft.rfft(x) * 2), numbers(5, 24)),
    "columns": (lambda x: hm.fft.irfft2(hm.fft.rfft2(x), axes=(1, 0)), numbers(8, 6)),
    "a long row": (lambda x: hm.fft.irfft(hm.fft.rfft(x)), numbers(1, 1 << 14)),
    "an odd number": (lambda x: hm.fft.irfft(hm.fft.rfft(x), n=15), numbers(3, 15)),
    "a large prime factor": (lambda x: hm.fft.ifft(hm.fft.fft(x)), numbers(3, 34)),
}


@pytest.mark.parametrize("name", PLANS)
def test_passes_of_a_plan_are_what_numpy_computes(name: str) -> None:
    f, x = PLANS[name]
    traced = hm.trace(f)
    expected = traced(hm.asarray(x)).numpy()
    graph = parse_graph(traced.ir)
    (found,) = run_plan(plan_of(graph), [x], 1, {}) or [None]
    assert found is not None
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)

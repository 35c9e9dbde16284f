"""Complex numbers in kernels: by their parts, with the same bits in every style, memory order and length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import hybridml as hm
from hybridml_compiler import dtypes
from hybridml_compiler.errors import CompileError
from hybridml_compiler.loops import evaluate
from hybridml_compiler.loops.builder import LoopBuilder
from hybridml_compiler.loops.ir import Buffer, For, Kernel, Store
from hybridml_compiler.loops.text import parse_kernel, print_kernel
from hybridml_compiler.targets.cpu.eager import elementary

DTYPES = ("complex64", "complex128")
PARTS = st.sampled_from([0.0, -0.0, 1.0, -1.5, 1e-40, 3e38, 1e200, np.inf, -np.inf, np.nan]) | st.floats(-9, 9)


def numbers(*shape: int, dtype: str = "complex64", seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def edges(*shape: int, dtype: str = "complex64", seed: int = 0) -> np.ndarray:
    """Numbers half of whose parts are zeros of either sign, inf, nan, subnormal or nearly too large."""
    rng, z = np.random.default_rng(seed), numbers(*shape, dtype=dtype, seed=seed)
    info = np.finfo(dtype)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, info.smallest_subnormal, -info.tiny, info.max, -info.max / 2]
    for part in (z.real, z.imag):
        part[...] = np.where(rng.random(shape) < 0.5, rng.choice(special, shape), part)
    return z


def assert_same(a: np.ndarray, b: np.ndarray) -> None:
    """Equal bits, with every nan the same."""
    assert a.dtype == b.dtype and a.shape == b.shape
    for x, y in ((a.real, b.real), (a.imag, b.imag)):
        np.testing.assert_array_equal(x, y)
        if x.dtype.kind == "b":
            continue
        np.testing.assert_array_equal(np.signbit(x[~np.isnan(x)]), np.signbit(y[~np.isnan(y)]))


@given(st.sampled_from(DTYPES), arrays(np.float64, (4, 21), elements=PARTS))
@settings(max_examples=60)
def test_arithmetic_of_parts(dtype: str, parts: np.ndarray) -> None:
    """A product by the plain formula, a quotient as NumPy's; compiled, by NumPy's builder, and in vectors or not."""
    x, y = np.empty(21, dtype), np.empty(21, dtype)
    with np.errstate(all="ignore"):
        x.real, x.imag, y.real, y.imag = parts
        a, b, c, d = x.real, x.imag, y.real, y.imag
        product = np.empty(21, dtype)
        product.real, product.imag = a * c - b * d, a * d + b * c
        quotient, sign = x / y, np.sign(x)
        size = abs(x)
        seen = np.isfinite(size) | ~np.isfinite(x)  # where NumPy does not overflow, and rounds to normal numbers
        seen &= (size > 1e3 * np.finfo(dtype).tiny) | (x == 0)
    for compute in (elementary.transcendental, evaluate.transcendental):
        assert_same(compute("mul", x, y), product)
        assert_same(compute("div", x, y), quotient)
        np.testing.assert_allclose(compute("sign", x)[seen], sign[seen], rtol=1e-6)
        assert_same(compute("mul", x[:3], y[:3]), product[:3])
        for name in ("abs", "exp", "sign"):
            assert_same(compute(name, x), elementary.transcendental(name, x))


PROGRAMS: dict[str, Callable[[hm.Tensor, hm.Tensor], hm.Tensor]] = {
    "arithmetic": lambda z, w: z * w + z.conj() / (w - 2.0) - 1j * z,
    "parts": lambda z, w: hm.complex(z.imag, w.real) + abs(z) * z.real,
    "casts": lambda z, w: z.astype(hm.complex128) * w.astype(hm.complex128) + (z * 0.0).astype(hm.bool),
    "comparisons": lambda z, w: hm.where((z == w) | (z != z.conj()), z, w * z),
    "slices in steps": lambda z, w: z[:, ::2] * w[:, 1::2] if z.shape[1] % 2 == 0 else z[::-1, ::3] * 2.0,
    "a gather": lambda z, w: z[hm.arange(z.shape[0]) // 2] + w,
    "a transpose": lambda z, w: z.T * 2.0 + w.T,
    "a pad": lambda z, w: hm.pad(z, ((1, 2), (3, 0))) * 2.0,
    "a concatenation": lambda z, w: hm.concat([z * w, w[:1]], axis=0),
    "a column, a row and a number": lambda z, w: z * w[:, :1] + w[:1] * hm.full((), 2.0 - 1j, dtype=z.dtype),
    "cumulative sums": lambda z, w: hm.cumulative_sum(z * w, axis=1) + hm.cumulative_sum(w, axis=0, reverse=True),
    "scatters": lambda z, w: z.at[hm.arange(w.shape[0]) // 2].add(w) * w.at[hm.arange(z.shape[0]) // 3].set(z),
    "squares and inverses": lambda z, w: (z**2 + w) ** 2 + hm.reciprocal(z) + w**-1,
    "classes": lambda z, w: hm.isfinite(z) & ~hm.isinf(w) | hm.isnan(z * w) | hm.all(w, axis=0) ^ hm.any(z, axis=0),
    "a gradient": lambda z, w: hm.grad(lambda z: (z / w + z.conj() * z).real.sum() + abs(z * w).sum())(z),
    "waves": lambda z, w: hm.exp(1j * z.real) * w,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_have_the_bits_of_eager_code(name: str, dtype: str) -> None:
    for shape in ((3, 5), (1, 1), (0, 4), (64, 48), (33, 67), (130, 129)):
        for make in (numbers, edges):
            z, w = (hm.tensor(make(*shape, dtype=dtype, seed=k)) for k in (1, 2))
            traced = hm.trace(PROGRAMS[name])
            assert_same(traced(z, w).numpy(), PROGRAMS[name](z, w).numpy())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_sums(axis: int | None, dtype: str) -> None:
    for shape in ((3, 5), (700, 300), (5, 9000)):
        a, tolerance = numbers(*shape, dtype=dtype), 1e-5 if dtype == "complex64" else 1e-13
        z, far = hm.tensor(a), tolerance * np.sqrt(a.size) * 10
        for run in (hm.sum, hm.trace(hm.sum)):
            np.testing.assert_allclose(run(z, axis=axis).numpy(), a.sum(axis), rtol=tolerance, atol=far)
        for run in (hm.mean, hm.trace(lambda z, axis: hm.mean(z * 2.0, axis=axis) / 2.0)):
            np.testing.assert_allclose(run(z, axis=axis).numpy(), a.mean(axis), rtol=tolerance, atol=tolerance)


def test_large_calls_have_the_bits_of_small_ones() -> None:
    a, b = numbers(300, 400, seed=1), numbers(300, 400, seed=2)
    z, w = hm.tensor(a), hm.tensor(b)
    for name in ("arithmetic", "slices in steps", "a transpose", "waves", "squares and inverses"):
        run = PROGRAMS[name]
        assert_same(run(z, w).numpy()[:2, :7], run(hm.tensor(a[:7, :60]), hm.tensor(b[:7, :60])).numpy()[:2, :7])
    whole = (z * w).numpy()
    z *= w
    assert_same(z.numpy(), whole)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 5), (2, 9000), (9000, 2), (130, 129)])
def test_rows_whose_bits_are_numpys(shape: tuple[int, ...], dtype: str) -> None:
    """The order of a running sum, and 1 / z by Smith's formula, on small arrays and on large ones."""
    a = edges(*shape, dtype=dtype, seed=5)
    with np.errstate(all="ignore"):
        expected = {axis: np.cumsum(a, axis=axis) for axis in (0, 1)}
        inverse = np.reciprocal(a)
    z = hm.tensor(a)
    for run in (hm.cumulative_sum, hm.trace(hm.cumulative_sum)):
        for axis in (0, 1):
            assert_same(run(z, axis=axis).numpy(), expected[axis])
    for run in (hm.reciprocal, hm.trace(hm.reciprocal)):
        assert_same(run(z).numpy(), inverse)


def test_text_of_parts_reads_back() -> None:
    s = LoopBuilder()
    x, y = (Buffer(name, dtypes.complex64, 8) for name in "xy")
    size, out = Buffer("size", dtypes.float32, 8, "out"), Buffer("out", dtypes.complex64, 8, "out")
    i = s.var("i", 8)
    product = s.mul(s.load(x, i), s.load(y, i))
    body = For(i, (Store(out, i, product), Store(size, i, s.abs(product))), "vector")
    text = print_kernel(Kernel((x, y, size, out), (body,), 4))
    assert "pair(" in text and "real(" in text and print_kernel(parse_kernel(text)) == text
    assert s.real(product) is product.args[0] and s.load(x, i) in s.real(s.load(x, i)).args
    with pytest.raises(CompileError, match="lt of c64: no instruction takes complex numbers so"):
        s.lt(s.load(x, i), s.load(y, i))

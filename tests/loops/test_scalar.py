"""The scalar instruction set: the table, its NumPy definition, and the notation of the polynomials."""

from __future__ import annotations

import inspect
from fractions import Fraction

import numpy as np
import pytest

from hybridml_compiler.dtypes import ALL, bool_, float32, float64, int8, int32, int64, uint8, uint32
from hybridml_compiler.errors import DTypeError
from hybridml_compiler.loops.notation import Value, fast_two_sum, polynomial, rarely, two_product, two_sum, where
from hybridml_compiler.loops.scalar import ISA, Builder, NumpyBuilder, result_dtype

S = NumpyBuilder()
FLOATS = [float32, float64]
_INTEGER_ARITHMETIC = {"add", "sub", "mul", "neg", "abs", "floordiv", "mod"}


def arr(values: object, dtype: np.dtype) -> np.ndarray:
    return np.array(values, dtype)


def test_table_protocol_and_numpy_builder_name_the_same_instructions() -> None:
    protocol = {n for n in vars(Builder) if not n.startswith("_") and n != "dtype"}
    assert protocol == {*ISA, "while_"} and callable(S.while_)
    for name, row in ISA.items():
        assert row.name == name and row.meaning and set(row.kinds) <= set("biufcV")
        signature = inspect.signature(getattr(Builder, name))
        parameters = [p for p in signature.parameters if p not in ("self", "dtype", "value", "values")]
        assert len(parameters) == row.arity and callable(getattr(S, name)), name


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_result_dtype_is_what_the_numpy_builder_gives(dtype: np.dtype) -> None:
    for name, row in ISA.items():
        if row.result not in ("same", "bool"):
            continue
        operands = [arr([1, 0, 1], dtype)] * row.arity
        if dtype.kind not in row.kinds:
            with pytest.raises(DTypeError, match=name):
                result_dtype(name, (dtype,) * row.arity)
        else:
            assert S.dtype(getattr(S, name)(*operands)) is result_dtype(name, (dtype,) * row.arity), name


def test_result_dtype_of_the_others() -> None:
    assert result_dtype("const", (), float32) is float32
    assert result_dtype("cast", (int8,), float64) is float64
    assert result_dtype("bitcast", (float32,), int32) is int32
    assert result_dtype("table", (int32,), float32) is float32
    assert result_dtype("select", (bool_, int8, int8)) is int8
    with pytest.raises(DTypeError, match="equal widths"):
        result_dtype("bitcast", (float32,), int64)
    with pytest.raises(DTypeError, match="condition must be bool, got int8"):
        result_dtype("rarely", (int8, float32, float32))
    with pytest.raises(DTypeError, match="takes 2 operands, got 1"):
        result_dtype("add", (float32,))
    with pytest.raises(DTypeError, match="got float32, float64; cast"):
        result_dtype("add", (float32, float64))
    with pytest.raises(DTypeError, match="needs the result dtype"):
        result_dtype("cast", (int8,))


def rounded(exact: Fraction, dtype: np.dtype) -> float:
    """The float of `dtype` nearest to a fraction, ties to even."""
    guess = np.array(float(exact), dtype)
    near = [np.nextafter(guess, np.array(s, dtype)) for s in (-np.inf, np.inf)]
    candidates = [guess, *near]
    mantissa = f"i{dtype.itemsize}"
    return float(min(candidates, key=lambda c: (abs(Fraction(float(c)) - exact), int(c.view(mantissa)) & 1)))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fma_rounds_once(dtype: np.dtype) -> None:
    rng = np.random.default_rng(0)
    n = 3000
    a = (rng.normal(size=n) * 2.0 ** rng.integers(-40, 40, n)).astype(dtype)
    b = (rng.normal(size=n) * 2.0 ** rng.integers(-40, 40, n)).astype(dtype)
    c = (rng.normal(size=n) * 2.0 ** rng.integers(-60, 60, n)).astype(dtype)
    eps = np.finfo(dtype).eps
    c[::3] = (-a * b * (1 + rng.integers(-2, 3, n).astype(dtype) * eps))[::3]  # cancellation
    a[::5] = rng.integers(-9, 9, len(a[::5]))
    b[1::5] = 1 + eps  # products next to a midpoint
    a[1::5] = 1 + rng.integers(0, 4, len(a[1::5])) * eps
    c[1::5] = rng.choice([eps / 2, eps * eps / 4, -eps / 2, 0.0], len(c[1::5]))
    operands = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    want = [rounded(Fraction(x) * Fraction(y) + Fraction(z), dtype) for x, y, z in operands]
    np.testing.assert_array_equal(S.fma(a, b, c), np.array(want, dtype))


@pytest.mark.parametrize(("odd", "unit"), [(2**23 + 1, 2.0**-23), (2**22 + 1, 2.0**-149)], ids=["normal", "subnormal"])
@pytest.mark.parametrize("sign", [1, -1])
def test_less_than_half_a_unit_is_rounded_away(odd: int, unit: float, sign: int) -> None:
    """The float64 that is nearest to such a sum is half-way between two float32, and the even one is the wrong one."""
    half, eps = np.sqrt(unit / 2), 2.0**-23
    c = arr([odd * unit], float32)
    product = arr([half * (1 + eps)], float32), arr([sign * half * (1 - eps)], float32)
    assert S.fma(*product, c) == c


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fma_at_the_ends_of_the_exponent_range(dtype: np.dtype) -> None:
    big, tiny, inf = float(np.finfo(dtype).max), float(np.finfo(dtype).smallest_subnormal), np.inf
    half = float(np.nextafter(np.array(big / 2, dtype), np.array(np.inf, dtype)))
    cases = [
        (big, 2.0, -inf, -inf),
        (big, 2.0, -big, big),
        (big, big, 0.0, inf),
        (-big, big, 0.0, -inf),
        (half, 2.0, -big, float(Fraction(half) * 2 - Fraction(big))),
        (tiny, 0.5, 0.0, 0.0),
        (tiny, 0.75, 0.0, tiny),
        (-tiny, 0.5, 0.0, -0.0),
        (tiny, tiny, tiny, tiny),
        (tiny, 0.5, 1.0, 1.0),
        (inf, 0.0, 1.0, np.nan),
        (inf, 1.0, -inf, np.nan),
        (np.nan, 1.0, 1.0, np.nan),
        (-0.0, 1.0, -0.0, -0.0),
        (-0.0, 1.0, 0.0, 0.0),
        (1.0, 1.0, -1.0, 0.0),
    ]
    a, b, c, want = (arr(column, dtype) for column in zip(*cases, strict=True))
    got = S.fma(a, b, c)
    np.testing.assert_array_equal(got, want)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


def test_integer_division_has_floor_semantics_and_never_traps() -> None:
    low = np.iinfo(np.int32).min
    a, b = arr([7, -7, 7, -7, 5, low, low], int32), arr([2, 2, -2, -2, 0, -1, 0], int32)
    np.testing.assert_array_equal(S.floordiv(a, b), [3, -4, -4, 3, 0, low, 0])
    np.testing.assert_array_equal(S.mod(a, b), [1, 1, -1, -1, 0, 0, 0])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_division_is_numpys(dtype: np.dtype) -> None:
    values = arr([-7.5, -2.0, -0.0, 0.0, 0.3, 2.0, 7.5, np.inf, np.nan], dtype)
    a, b = (m.ravel() for m in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(S.floordiv(a, b), np.floor_divide(a, b))
        np.testing.assert_array_equal(S.mod(a, b), np.mod(a, b))


def test_shifts() -> None:
    x = arr([-8, -8, -8, 5, 5, 5], int32)
    by = arr([1, 32, -1, 1, 32, -1], int32)
    np.testing.assert_array_equal(S.shl(x, by), [-16, 0, 0, 10, 0, 0])
    np.testing.assert_array_equal(S.shr(x, by), [-4, -1, -1, 2, 0, 0])
    np.testing.assert_array_equal(S.shr(arr([0x80000000, 8], uint32), arr([31, 40], uint32)), [1, 0])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_minimum_and_maximum_propagate_nan_and_take_the_second_zero(dtype: np.dtype) -> None:
    a, b = arr([1, np.nan, 1, 0.0, -0.0], dtype), arr([2, 1, np.nan, -0.0, 0.0], dtype)
    np.testing.assert_array_equal(S.minimum(a, b), [1, np.nan, np.nan, 0, 0])
    np.testing.assert_array_equal(S.maximum(a, b), [2, np.nan, np.nan, 0, 0])
    assert np.signbit(S.minimum(a, b)).tolist()[3:] == np.signbit(S.maximum(a, b)).tolist()[3:] == [True, False]


def test_rounding_casts_and_bits() -> None:
    x = arr([-2.5, -0.5, 0.5, 1.5, 2.5], float32)
    np.testing.assert_array_equal(S.rint(x), [-2, -0.0, 0, 2, 2])
    np.testing.assert_array_equal(S.cast(x, int8), [-2, 0, 0, 1, 2])
    np.testing.assert_array_equal(S.cast(x, bool_), [True] * 5)
    np.testing.assert_array_equal(S.cast(arr([-1, 300], int32), uint8), [255, 44])
    assert S.bitcast(arr([1.0], float32), int32).tolist() == [0x3F800000]
    S.cast(arr([np.nan, np.inf, 1e300], float64), int32)  # any value, no warning, no trap
    assert S.neg(arr([0.0], float32)).tolist() == [-0.0] and np.signbit(S.neg(arr([0.0], float32)))[0]


def test_table_lookup_checks_its_index() -> None:
    index = arr([2, 0], int64)
    np.testing.assert_array_equal(S.table((1.5, 2.5, 3.5), index, float32), arr([3.5, 1.5], float32))
    for bad in (-1, 3):
        with pytest.raises(IndexError, match="table of 3 values"):
            S.table((1.5, 2.5, 3.5), arr([bad], int64), float32)


def test_rarely_is_a_select_that_may_skip_its_slow_side() -> None:
    fast, calls = arr([1.0, 2.0], float32), []

    def slow() -> np.ndarray:
        calls.append(1)
        return arr([10.0, 20.0], float32)

    np.testing.assert_array_equal(S.rarely(arr([False, False], bool_), slow, fast), [1, 2])
    assert not calls
    np.testing.assert_array_equal(S.rarely(arr([False, True], bool_), slow, fast), [1, 20])
    assert calls == [1]


def test_notation_is_one_instruction_an_operator() -> None:
    x = Value(S, arr([1.0, -2.0], float32))
    np.testing.assert_array_equal((3.0 - x * 2.0 / 4.0 + 0.5).raw, [3.0, 4.5])
    np.testing.assert_array_equal((1.0 + (-abs(x))).raw, [0.0, -1.0])
    np.testing.assert_array_equal(where(x < 0.0, 1.0, x).raw, [1.0, 1.0])
    np.testing.assert_array_equal(rarely(x < 0.0, lambda: x * x, x).raw, [1.0, 4.0])
    np.testing.assert_array_equal(polynomial(x, (1.0, 2.0, 3.0)).raw, [6.0, 9.0])
    np.testing.assert_array_equal((((x.bits() >> 23) & 255) ^ 1 | 256).raw, [126 + 256, 129 + 256])
    np.testing.assert_array_equal((~(x >= 1.0)).raw, [False, True])
    assert x.dtype is float32 and (1.0 / x).raw.tolist() == [1.0, -0.5]
    with pytest.raises(DTypeError, match="float32 or float64, got int32"):
        _ = x.bits().format


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_error_free_sums_and_products(dtype: np.dtype) -> None:
    rng = np.random.default_rng(3)
    a, b = (Value(S, (rng.normal(size=200) * 2.0 ** rng.integers(-20, 20, 200)).astype(dtype)) for _ in "ab")
    larger, smaller = where(abs(a) > abs(b), a, b), where(abs(a) > abs(b), b, a)
    for (high, low), exact in (
        (two_sum(a, b), lambda x, y: x + y),
        (fast_two_sum(larger, smaller), lambda x, y: x + y),
        (two_product(a, b), lambda x, y: x * y),
    ):
        for h, e, x, y in zip(*(v.raw.tolist() for v in (high, low, a, b)), strict=True):
            assert Fraction(h) + Fraction(e) == exact(Fraction(x), Fraction(y))

"""The array API standard 2024.12: names, signatures, dtypes, promotion, special cases, eagerly and through `@trace`.

The standard's own suite runs beside these tests, see docs/array_api.md; these need no network.
"""

from __future__ import annotations

import inspect
import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.testing import traced_namespace
from tests.support.array_api_standard import ATTRIBUTES, CONSTANTS, DTYPES, FUNCTIONS, INFO, METHODS

INF, NAN = math.inf, math.nan
POSITIONAL, KEYWORD = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.KEYWORD_ONLY
EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD
STYLES: dict[str, Any] = {"eager": hm, "traced": traced_namespace()}


@pytest.fixture(params=STYLES)
def xp(request: pytest.FixtureRequest) -> Any:
    return STYLES[request.param]


@contextmanager
def about(name: str) -> Iterator[None]:
    """Says in an error which member it is about."""
    try:
        yield
    except Exception as error:
        error.add_note(name)
        raise


def member(xp: Any, path: str) -> Any:
    for name in path.split("."):
        xp = getattr(xp, name)
    return xp


def check_signature(function: Callable[..., Any], standard: str) -> None:
    """Every call that the standard allows means the same here; further parameters have defaults."""
    want = inspect.signature(eval(f"lambda {standard[1:-1]}: None")).parameters.values()
    have = inspect.signature(function).parameters
    in_order = list(have.values())
    for k, parameter in enumerate(want):
        if parameter.kind is POSITIONAL:
            found = in_order[k]
        else:
            assert parameter.name in have, f"{parameter.name} is missing"
            found = have[parameter.name]
        allowed = (parameter.kind, EITHER)  # what takes both takes what the standard asks for
        assert found.kind in allowed, f"{parameter.name} is {found.kind.description}, not {parameter.kind.description}"
        if parameter.default is not parameter.empty:
            assert found.default == parameter.default, f"{parameter.name}={found.default!r}, not {parameter.default!r}"
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for parameter in in_order[len(want) :]:
        assert parameter.default is not parameter.empty or parameter.kind in variable, f"{parameter.name} is required"


def test_signatures(xp: Any) -> None:
    for name, standard in FUNCTIONS.items():
        with about(name):
            check_signature(member(xp, name), standard)


def test_methods(xp: Any) -> None:
    for name, text in METHODS.items():
        standard = inspect.signature(eval(f"lambda {text[1:-1]}: None"))
        arguments = [p.name for p in standard.parameters.values() if p.kind is POSITIONAL]
        keywords = {p.name: None for p in standard.parameters.values() if p.kind is KEYWORD}
        with about(name):
            inspect.signature(getattr(type(xp.asarray(1.0)), name)).bind(*arguments, **keywords)


def test_attributes_constants_and_info(xp: Any) -> None:
    x = xp.ones((2, 3))
    assert all(hasattr(x, name) for name in ATTRIBUTES)
    assert (x.shape, x.ndim, x.size, x.mT.shape, x.T.shape) == ((2, 3), 2, 6, (3, 2), (3, 2))
    assert [getattr(xp, name) for name in CONSTANTS if name != "nan"] == [math.e, INF, None, math.pi]
    assert math.isnan(xp.nan) and x.__array_namespace__(api_version="2024.12") is xp
    info = xp.__array_namespace_info__()
    for name, standard in INFO.items():
        check_signature(getattr(info, name), standard)
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert info.devices() == [info.default_device()] == [x.device] and x.to_device(x.device).shape == x.shape
    assert info.default_dtypes(device="cpu")["real floating"] is xp.float32
    assert info.dtypes(kind="unsigned integer") == {f"uint{n}": getattr(xp, f"uint{n}") for n in (8, 16, 32, 64)}
    assert info.dtypes(kind=("bool", "real floating")).keys() == {"bool", "float32", "float64"}
    with pytest.raises(hm.ArgumentError, match="kind must be"):
        info.dtypes(kind="float")
    with pytest.raises(hm.ArgumentError, match=r"2024\.12 is"):
        x.__array_namespace__(api_version="2019.12")


def test_limits_are_python_numbers(xp: Any) -> None:
    for dtype in (xp.float32, xp.float64):
        limits, numpy = xp.finfo(dtype), np.finfo(dtype)
        found = (limits.eps, limits.max, limits.min, limits.smallest_normal)
        assert all(type(v) is float for v in found) and type(limits.bits) is int and limits.dtype is dtype
        assert found == (numpy.eps, numpy.max, numpy.min, numpy.smallest_normal) and limits.tiny == numpy.tiny
    whole = xp.iinfo(xp.asarray([1], dtype=xp.int16))
    assert (whole.bits, whole.max, whole.min, whole.dtype) == (16, 32767, -32768, xp.int16)
    for wrong in (lambda: xp.finfo(xp.int8), lambda: xp.iinfo(xp.float32)):
        with pytest.raises(hm.DTypeError):
            wrong()


# -- dtypes


def kind_and_bits(name: str) -> tuple[str, int]:
    kind = name.rstrip("0123456789")
    return kind, int(name[len(kind) :] or 8)


def promoted(a: str, b: str) -> str | None:
    """The standard's tables; None where it leaves the result open."""
    (kind, bits), (other, more) = sorted((kind_and_bits(a), kind_and_bits(b)))
    if kind == other:
        return f"{kind}{max(bits, more)}" if kind != "bool" else "bool"
    if (kind, other) == ("int", "uint"):
        return None if more == 64 else f"int{max(bits, 2 * more)}"
    if (kind, other) == ("complex", "float"):
        return f"complex{max(bits, 2 * more)}"
    return None


PAIRS = [(a, b) for a, b in itertools.product(DTYPES, repeat=2) if promoted(a, b)]


def test_promotion(xp: Any) -> None:
    for a, b in PAIRS:
        x, y, want = getattr(xp, a), getattr(xp, b), getattr(xp, str(promoted(a, b)))
        assert xp.result_type(x, y) is want, (a, b)
        if xp is hm:
            assert (xp.ones((2,), dtype=x) + xp.ones((2,), dtype=y)).dtype is want, (a, b)


def test_kinds_of_dtypes(xp: Any) -> None:
    of = {"bool": "bool", "int": "signed integer", "uint": "unsigned integer", "float": "real floating",
          "complex": "complex floating"}  # fmt: skip
    for name in DTYPES:
        kind, dtype = of[kind_and_bits(name)[0]], getattr(xp, name)
        kinds = {k for k in (*of.values(), "integral", "numeric") if xp.isdtype(dtype, k)}
        integral = {"integral"} if "integer" in kind else set()
        assert kinds == {kind} | integral | ({"numeric"} if kind != "bool" else set())
        assert xp.isdtype(dtype, dtype) and xp.isdtype(dtype, (kind, "bool")) and not xp.isdtype(dtype, ())
    with pytest.raises(hm.ArgumentError, match="kind must be a dtype or one of"):
        xp.isdtype(xp.int8, "whole")


def test_result_type_of_numbers_and_of_nothing(xp: Any) -> None:
    assert xp.result_type(xp.int8, 3) is xp.int8
    assert xp.result_type(xp.asarray([1], dtype=xp.int16), 3, 2.0) is xp.float32
    assert xp.can_cast(xp.asarray([1], dtype=xp.int8), xp.int16) and not xp.can_cast(xp.float64, xp.float32)
    with pytest.raises(hm.ArgumentError, match="result_type: needs at least one"):
        xp.result_type()


@pytest.mark.parametrize("dtype", [hm.float16, hm.bfloat16, hm.float32, hm.float64], ids=str)
def test_the_neighbour_of_one(dtype: Any) -> None:
    found = hm.nextafter(hm.ones((1,), dtype=dtype), 2.0)
    assert found.dtype is dtype and found.item() == 1 + hm.finfo(dtype).eps


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_the_neighbour_towards_an_array_of_numpy(dtype: str) -> None:
    x, y = np.array([1.0, 2.0], np.float32), np.array([2.0, 1.0], dtype)
    expected = np.nextafter(x, y)
    for run in (hm.nextafter, np.nextafter, hm.trace(hm.nextafter)):
        for found in (run(hm.asarray(x), y), run(hm.asarray(x), hm.asarray(y))):
            assert isinstance(found, hm.Tensor)
            assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "maximum", "minimum", "pow", "remainder"])
def test_numbers_take_the_dtype(xp: Any, name: str) -> None:
    function = getattr(xp, name)
    for dtype in (xp.int8, xp.uint16, xp.float32, xp.float64):
        x = xp.asarray([3, 4], dtype=dtype)
        assert function(x, 2).dtype is dtype and function(2, x).dtype is dtype


# -- special cases: (function, arguments, result); the sign of a zero counts

CASES: list[tuple[str, tuple[float, ...], float]] = [
    ("acosh", (0.5,), NAN), ("asinh", (-0.0,), -0.0), ("atanh", (1.0,), INF), ("atanh", (-1.0,), -INF),
    ("ceil", (-0.5,), -0.0), ("exp", (-INF,), 0.0), ("expm1", (-0.0,), -0.0), ("expm1", (-INF,), -1.0),
    ("floor", (-0.0,), -0.0), ("log", (-0.0,), -INF), ("log", (-1.0,), NAN), ("log1p", (-1.0,), -INF),
    ("log1p", (-0.0,), -0.0), ("reciprocal", (-0.0,), -INF), ("reciprocal", (-INF,), -0.0), ("round", (-0.4,), -0.0),
    ("round", (2.5,), 2.0), ("sign", (NAN,), NAN), ("sign", (-0.0,), 0.0), ("sin", (INF,), NAN),
    ("sqrt", (-0.0,), -0.0), ("sqrt", (-1.0,), NAN), ("tanh", (-INF,), -1.0), ("trunc", (-0.9,), -0.0),
    ("abs", (-0.0,), 0.0),
    ("add", (INF, -INF), NAN), ("add", (-0.0, -0.0), -0.0), ("add", (-0.0, 0.0), 0.0), ("subtract", (INF, INF), NAN),
    ("atan2", (-0.0, -1.0), -math.pi), ("atan2", (0.0, -0.0), math.pi), ("atan2", (INF, -INF), 3 * math.pi / 4),
    ("copysign", (1.0, -0.0), -1.0), ("copysign", (NAN, -1.0), NAN), ("divide", (0.0, 0.0), NAN),
    ("divide", (1.0, -0.0), -INF), ("divide", (-1.0, INF), -0.0), ("hypot", (-INF, NAN), INF),
    ("hypot", (NAN, 1.0), NAN),
    ("logaddexp", (INF, -INF), INF), ("logaddexp", (-INF, -INF), -INF), ("logaddexp", (NAN, INF), NAN),
    ("maximum", (NAN, 1.0), NAN), ("minimum", (1.0, NAN), NAN), ("multiply", (INF, 0.0), NAN),
    ("nextafter", (0.0, -0.0), -0.0), ("nextafter", (-0.0, 0.0), 0.0), ("nextafter", (NAN, 0.0), NAN),
    ("nextafter", (INF, 0.0), float(np.finfo("f4").max)), ("pow", (NAN, 0.0), 1.0), ("pow", (1.0, NAN), 1.0),
    ("pow", (-0.0, -1.0), -INF), ("pow", (-0.0, -2.0), INF), ("pow", (-INF, 3.0), -INF), ("pow", (-INF, -1.0), -0.0),
    ("pow", (-2.0, 0.5), NAN), ("pow", (0.5, -INF), INF), ("pow", (-1.0, INF), 1.0),
    ("remainder", (INF, 1.0), NAN), ("remainder", (-0.0, 1.0), 0.0), ("remainder", (1.0, 0.0), NAN),
    ("remainder", (3.0, -INF), -INF), ("floor_divide", (0.0, 0.0), NAN), ("floor_divide", (1.0, -0.0), -INF),
]  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
def test_special_cases(style: str) -> None:
    xp = STYLES[style]
    for name in dict.fromkeys(name for name, *_ in CASES):
        cases = [(arguments, result) for found, arguments, result in CASES if found == name]
        columns = [xp.asarray(np.array(c, "f4")) for c in zip(*(a for a, _ in cases), strict=True)]
        found = np.asarray(getattr(xp, name)(*columns))
        want = np.array([result for _, result in cases], "f4")
        assert np.allclose(found, want, rtol=1e-6, atol=0, equal_nan=True), name
        assert np.array_equal(np.signbit(found), np.signbit(want) | np.isnan(want) & np.signbit(found)), name


def test_special_cases_of_reductions(xp: Any) -> None:
    empty = xp.asarray(np.zeros((0,), "f4"))
    assert (float(xp.sum(empty)), float(xp.prod(empty))) == (0.0, 1.0)
    assert bool(xp.all(empty)) and not bool(xp.any(empty)) and math.isnan(float(xp.mean(empty)))
    assert math.isnan(float(xp.max(xp.asarray([1.0, NAN])))) and bool(xp.all(xp.asarray([NAN])))


# -- copies, devices, memory


def test_copies_are_made_where_they_are_asked_for() -> None:
    array = np.arange(6, dtype="f4")
    x = hm.asarray(array)
    assert np.shares_memory(x.numpy(), array) and np.shares_memory(hm.asarray(x, copy=False).numpy(), array)
    assert not np.shares_memory(hm.asarray(array, copy=True).numpy(), array)
    assert not np.shares_memory(hm.asarray(x, copy=True).numpy(), array)
    assert not np.shares_memory(hm.astype(x, hm.float32).numpy(), array) and hm.astype(x, hm.float32, copy=False) is x
    assert np.shares_memory(hm.reshape(x, (2, 3), copy=False).numpy(), array)
    assert not np.shares_memory(hm.reshape(x, (2, 3), copy=True).numpy(), array)
    with pytest.raises(hm.ArgumentError, match=r"copy=False, but \(2, 3\) with strides"):
        hm.reshape(hm.asarray(np.asfortranarray(array.reshape(2, 3))), (6,), copy=False)
    for convert in (lambda: hm.asarray(array, dtype="f8", copy=False), lambda: hm.asarray([1.0], copy=False)):
        with pytest.raises(hm.ArgumentError, match="copy=False"):
            convert()
    for device in ("cpu", hm.device("cpu"), x.device):
        assert hm.zeros((2,), device=device).device == device
        assert hm.astype(x, hm.float64, device=device).dtype is hm.float64
    for wrong in (
        lambda: hm.ones((2,), device="gpu"),
        lambda: x.to_device("gpu"),
        lambda: hm.astype(x, "f8", device="g"),
    ):
        with pytest.raises(hm.ArgumentError, match="is not available"):
            wrong()


def test_dlpack_shares_memory_both_ways() -> None:
    for name in DTYPES:
        array = np.arange(4).astype(name)
        x = hm.from_dlpack(array)
        assert np.shares_memory(x.numpy(), array) and np.shares_memory(np.from_dlpack(x), array)
        assert x.dtype is getattr(hm, name) and not np.shares_memory(hm.from_dlpack(array, copy=True).numpy(), array)
    assert hm.ones((2,)).__dlpack_device__() == (1, 0)
    row = hm.broadcast_to(hm.ones(()), (3,))  # read-only memory: a copy for a reader that cannot be told
    assert np.from_dlpack(row).tolist() == [1.0, 1.0, 1.0] and row.__dlpack__(max_version=(1, 0)) is not None


def test_repeat_counts_and_flat_concat(xp: Any) -> None:
    x = xp.asarray(np.arange(6).reshape(3, 2))
    for counts in ([2, 0, 1], [0, 0, 0], [0, 3, 0], [5], [0]):
        want = np.repeat(np.arange(6).reshape(3, 2), counts, axis=0)
        assert np.array_equal(np.asarray(xp.repeat(x, xp.asarray(counts), axis=0)), want), counts
    assert np.asarray(xp.concat([x, x[0]], axis=None)).tolist() == [*range(6), 0, 1]
    with pytest.raises(hm.ShapeError, match="3 elements along axis 0 need as many counts"):
        xp.repeat(x, xp.asarray([1, 2]), axis=0)
    for wrong in (lambda: hm.repeat(hm.ones((2,)), -1), lambda: hm.repeat(hm.ones((2,)), hm.asarray([1, -1]))):
        with pytest.raises(hm.ArgumentError, match="counts cannot be negative"):
            wrong()


# -- complex numbers

PARTS = [1 + 2j, complex(INF, 1), complex(-0.0, 0.0), complex(NAN, 1), -3 - 0.5j, complex(0, -INF), 2.5 - 3.5j]
COMPLEX: dict[str, Callable[[Any], Any]] = {
    "z / 2": lambda z: z / 2, "z * 1": lambda z: z * 1, "z * -1": lambda z: z * -1, "z * 0": lambda z: z * 0,
    "z + -0.0": lambda z: z + -0.0, "|z|^2": lambda z: hm.square(abs(z)), "z - 0": lambda z: z - 0,
    "(-z) * (-z)": lambda z: (-z) * (-z), "(-z) / (-z)": lambda z: (-z) / (-z), "z + (-z)": lambda z: z + (-z),
    "z ** 2": lambda z: z**2, "z ** 0": lambda z: z**0, "z ** -1": lambda z: z**-1, "z ** 3": lambda z: z**3,
    "round": hm.round,
    "conj": lambda z: hm.conj(hm.conj(z)), "sum": lambda z: hm.sum(z[2:3]), "sort": lambda z: hm.sort(z),
    "where": lambda z: hm.where(hm.real(z) > 0, z, 0.0), "expm1": hm.expm1, "sqrt": hm.sqrt,
}  # fmt: skip


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_arithmetic_is_numpys_in_both_styles(name: str) -> None:
    """Bit for bit but for the signs of nan: no rule of real algebra is applied to it."""
    z = hm.asarray(np.array(PARTS))
    eager, traced = COMPLEX[name](z).numpy(), hm.trace(COMPLEX[name])(z).numpy()
    assert eager.dtype == traced.dtype
    for part in ("real", "imag"):
        a, b = (np.where(np.isnan(x), NAN, x) for x in (getattr(eager, part), getattr(traced, part)))
        assert np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a), np.signbit(b))


def test_cubes_of_complex_numbers_are_products() -> None:
    z = np.exp(1j * np.arange(20.0)) * np.arange(20.0)
    cubed = hm.trace(lambda z: z**3)
    np.testing.assert_allclose(cubed(hm.asarray(z)), z**3, rtol=1e-15)
    assert "pow" not in cubed.ir


def test_special_cases_of_complex_expm1(xp: Any) -> None:
    z = [complex(-0.0, 0), complex(INF, 0), complex(-INF, INF), complex(INF, INF), complex(-INF, NAN),
         complex(INF, NAN), complex(NAN, 0), 1e-9 + 1e-9j, 1 + 1j]  # fmt: skip
    want = [0j, complex(INF, 0), -1 + 0j, complex(INF, NAN), -1 + 0j, complex(INF, NAN), complex(NAN, 0),
            complex(1e-9, 1e-9 + 1e-18), np.exp(1 + 1j) - 1]  # fmt: skip
    found = np.asarray(xp.expm1(xp.asarray(np.array(z))))
    assert np.allclose(found.real, np.real(want), rtol=1e-13, atol=1e-24, equal_nan=True)
    assert np.allclose(found.imag, np.imag(want), rtol=1e-13, atol=1e-24, equal_nan=True)


def test_complex_numbers_are_made(xp: Any) -> None:
    assert xp.asarray([1j, 2]).dtype is xp.asarray(1j).dtype is xp.full((2,), 1j).dtype is xp.complex64
    assert xp.result_type(xp.float64, 1j) is xp.complex128 and (xp.ones((2,)) * 1j).dtype is xp.complex64
    found = xp.linspace(1 + 2j, 3, 3, dtype=xp.complex128)
    assert np.asarray(found).tolist() == [1 + 2j, 2 + 1j, 3 + 0j]
    assert np.asarray(xp.linspace(0, 1j, 2, endpoint=False)).tolist() == [0j, 0.5j]


ANY_SIZE: dict[str, Callable[[Any], Any]] = {
    "slice": lambda z: z[1:] * 2, "roll": lambda z: hm.roll(z, 1, axis=0), "sum": lambda z: hm.sum(z * z),
    "fftshift": lambda z: hm.fft.fftshift(z), "irfft": lambda z: hm.fft.irfft(z), "abs": lambda z: abs(z) + z.shape[0],
}  # fmt: skip


@pytest.mark.parametrize("name", ANY_SIZE)
def test_complex_programs_take_any_size(name: str) -> None:
    """The second size makes a program with a symbol; what NumPy computes in it is told the size of the call."""
    traced = hm.trace(ANY_SIZE[name])
    for n in (3, 4, 5, 7, 2):
        z = hm.asarray((np.arange(n) + 1j).astype("c8"))
        np.testing.assert_allclose(traced(z).numpy(), ANY_SIZE[name](z).numpy(), rtol=1e-5, atol=1e-5)


SLOW = pytest.mark.slow
SIDE = 0j  # of the cut of a square root


def test_signs_of_zeros_in_complex_numbers_are_never_stale() -> None:
    """0j == -0j, and a trace compares what it was given before."""
    global SIDE
    x, numbers = hm.ones((1,)), (complex(-1, 0.0), complex(-1, -0.0), complex(-1, 0.0))
    functions: tuple[Callable[..., Any], ...] = (
        lambda x, c: hm.sqrt(hm.full((1,), c)), lambda x, c: hm.sqrt(hm.where(x > 0, c, 0j)),
        lambda x, c: hm.sqrt(hm.asarray([c])), lambda x, c: hm.sqrt(hm.full((1,), SIDE - 1)),
    )  # fmt: skip
    for function in functions:
        traced = hm.trace(function)
        for c in numbers:
            SIDE = complex(0, c.imag)
            assert traced(x, c).tolist() == function(x, c).tolist() == hm.sqrt(hm.asarray([c])).tolist(), c
    same = hm.trace(lambda x, c: x * c)
    for _ in range(3):
        same(x, complex(NAN, 0))
    assert same.cache_info().entries == 1


def test_masks_fit_or_are_index_errors() -> None:
    for shape, mask in (((2,), (0,)), ((2, 3), (2, 0)), ((2, 3), (0, 3)), ((2,), ()), ((2, 3), (2,))):
        x, m = hm.ones(shape), hm.zeros(mask, dtype=hm.bool)
        want = np.ones(shape)[np.zeros(mask, bool)].shape
        assert x[m].shape == hm.trace(lambda x, m: x[m])(x, m).shape == want
    for shape, mask in (((0, 0), (0, 1)), ((2,), (3,)), ((2,), (2, 1))):
        for select in (lambda x, m: x[m], hm.trace(lambda x, m: x[m])):
            with pytest.raises(IndexError, match="index: "):
                select(hm.ones(shape), hm.zeros(mask, dtype=hm.bool))
    with pytest.raises(IndexError, match="axis 2 does not exist"):
        hm.expand_dims(hm.ones(()), 2)


def test_numbers_that_are_written_keep_all_their_bits() -> None:
    def write(z: Any, x: Any) -> Any:
        z[0] = 16777217j
        z[abs(z) > 1] = 16777219j
        x.copy_(0.1)
        return z[0] * 1, x[0] * 1

    for function in (write, hm.trace(write)):
        z, x = hm.zeros((1,), dtype=hm.complex128), hm.zeros((1,), dtype=hm.float64)
        assert [t.item() for t in function(z, x)] == [16777219j, 0.1] == [z.item(), x.item()]
    for lossy in (lambda: x.__setitem__(0, 1j), lambda: x.copy_(1j), lambda: hm.asarray([1j], dtype="f4")):
        with pytest.raises(hm.DTypeError, match=r"complex64 result does not fit|cannot hold"):
            lossy()


SCIPY = """
import numpy as np
import scipy.special
import scipy.stats

import hybridml as hm

data = np.random.default_rng(0).random((6, 3)) + 0.1
x = hm.tensor(data, requires_grad=True)
for function in (scipy.special.logsumexp, scipy.special.softmax, scipy.stats.zscore, scipy.stats.gmean):
    eager, traced = function(x), hm.trace(function)(x.detach())
    assert type(eager) is type(traced) is hm.Tensor and eager.requires_grad
    np.testing.assert_allclose(eager.detach().numpy(), function(data), rtol=1e-12)
    np.testing.assert_allclose(traced.numpy(), function(data), rtol=1e-12)
scipy.special.logsumexp(x).backward()
np.testing.assert_allclose(x.grad.numpy(), scipy.special.softmax(data), rtol=1e-12)
"""
SCIKIT_LEARN = """
import numpy as np
import sklearn
from sklearn.decomposition import PCA
from sklearn.preprocessing import MinMaxScaler

import hybridml as hm

data = np.random.default_rng(0).random((20, 3))
for model in (MinMaxScaler(), PCA(n_components=2, svd_solver="full")):
    want = model.fit_transform(data)
    with sklearn.config_context(array_api_dispatch=True):
        found = model.fit_transform(hm.asarray(data))
    assert type(found) is hm.Tensor
    np.testing.assert_allclose(abs(found.numpy()), abs(want), rtol=1e-9, atol=1e-12)
"""


@pytest.mark.parametrize("program", [pytest.param(SCIPY, id="scipy"), pytest.param(SCIKIT_LEARN, marks=SLOW)])
def test_libraries_written_against_the_standard_run_on_tensors(program: str) -> None:
    """In a process of its own: SciPy reads the switch when it is imported."""
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr

"""Large eager products run the kernels of traced programs, whatever the layout of their operands."""

from __future__ import annotations

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.targets.cpu.eager import products
from hybridml_compiler.targets.cpu.eager.products import matmul

RNG = np.random.default_rng(0)


def made(*shape: int, dtype: str = "f4") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


OPERANDS = {
    "plain": (made(128, 300), made(300, 96)),
    "second transposed": (made(128, 300), made(96, 300).T),
    "first transposed": (made(300, 128).T, made(300, 96)),
    "batch": (made(8, 4, 64, 32), made(8, 4, 32, 64)),
    "heads of one projection": (
        made(4, 64, 3, 4, 32).transpose(2, 0, 3, 1, 4)[0],
        made(4, 64, 3, 4, 32).transpose(2, 0, 3, 4, 1)[1],
    ),
    "every other element": (made(160, 160)[::2, ::2], made(80, 200)),
    "backwards": (made(90, 80)[::-1], made(80, 200)),
    "one row repeated": (np.broadcast_to(made(1, 90), (80, 90)), made(90, 80)),
    "a row": (made(1, 3000), made(3000, 100)),
    "a column": (made(3000, 100), made(100, 1)),
    "a batch times a matrix": (made(7, 64, 64), made(64, 64)),
    "a matrix times a batch": (made(64, 64), made(7, 64, 70)),
    "batches that broadcast": (made(3, 1, 64, 64), made(5, 64, 64)),
    "float64": (made(64, 65, dtype="f8"), made(65, 66, dtype="f8")),
    "integers": (np.arange(6400).reshape(80, 80), np.arange(6400).reshape(80, 80)),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_the_product_is_numpys(name: str) -> None:
    x, y = OPERANDS[name]
    got, expected = matmul(x, y), np.matmul(x.astype("f8"), y.astype("f8"))
    assert got.dtype == x.dtype and got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6 * x.shape[-1])


@pytest.mark.parametrize("name", [name for name in OPERANDS if name != "integers"])
def test_eager_and_traced_products_have_the_same_bits(name: str) -> None:
    x, y = (hm.asarray(np.ascontiguousarray(a)) for a in OPERANDS[name])
    np.testing.assert_array_equal((x @ y).numpy(), hm.trace(hm.matmul)(x, y).numpy())


def integers(dtype: str, *shape: int, low: int | None = None, high: int | None = None) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(low or info.min, info.max if high is None else high, shape, dtype=dtype, endpoint=True)


INTEGERS = {
    "int8": (integers("i1", 3, 70, 90), integers("i1", 90, 77)),
    "uint8": (integers("u1", 70, 90), integers("u1", 77, 90).T),
    "int32 of 8 bits": (integers("i4", 90, 70, low=-128, high=127).T, integers("i4", 90, 77, high=255, low=1)),
    "int32 of 9 bits": (integers("i4", 70, 90, low=-1, high=255), integers("i4", 90, 77, low=-9, high=9)),
    "int32": (integers("i4", 70, 90), integers("i4", 2, 77, 90).swapaxes(1, 2)),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_products_of_integers_wrap_as_numpys(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = INTEGERS[name]
    for most in (0, products.MOST):
        monkeypatch.setattr(products, "MOST", most)
        got = matmul(x, y)
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(got, np.matmul(x, y))
    traced = hm.trace(hm.matmul)(hm.asarray(np.ascontiguousarray(x)), hm.asarray(np.ascontiguousarray(y)))
    np.testing.assert_array_equal(traced.numpy(), got)


@pytest.mark.parametrize("kind", [[("tag", "u1"), ("x", "f4")], [("x", ">f4")]], ids=["odd strides", "byte order"])
def test_arrays_that_kernels_do_not_read_are_not_read_by_them(kind: list[tuple[str, str]]) -> None:
    records = np.zeros((80, 80), kind)
    records["x"] = made(80, 80)
    x = records["x"]
    np.testing.assert_allclose(matmul(x, x.T), np.matmul(x.astype("f8"), x.T.astype("f8")), rtol=1e-5, atol=1e-4)


def test_more_signatures_than_are_kept_go_on_with_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "MOST", 0)
    monkeypatch.setattr(products, "_known", {})
    x, y = OPERANDS["plain"]
    np.testing.assert_allclose(matmul(x, y), x @ y, rtol=1e-4, atol=1e-4)
    assert not products._known

"""Products of two tensors beside NumPy: shapes, axes, dtypes, errors, both styles, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm


def numbers(shape: tuple[int, ...], dtype: Any = "f8") -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(dtype)


CASES = [
    ("tensordot", (3, 4, 5), (4, 5, 2), {"axes": 2}),
    ("tensordot", (3, 4), (4, 5), {"axes": 1}),
    ("tensordot", (3, 4), (2, 5), {"axes": 0}),
    ("tensordot", (3, 4, 5), (5, 3), {"axes": ([0, 2], [1, 0])}),
    ("tensordot", (3, 4, 5), (5, 3), {"axes": (-1, 0)}),
    ("tensordot", (3, 4), (3, 4), {"axes": ((0, 1), (0, 1))}),
    ("tensordot", (3, 4), (2, 4), {"axes": ((), ())}),
    ("tensordot", (3, 0), (0, 2), {"axes": 1}),
    ("tensordot", (0, 4), (4, 2), {"axes": 1}),
    ("inner", (3, 4), (2, 4), {}),
    ("inner", (4,), (2, 3, 4), {}),
    ("inner", (), (3,), {}),
    ("dot", (3, 4), (4, 2), {}),
    ("dot", (2, 3, 4), (5, 4, 2), {}),
    ("dot", (2, 3, 4), (4,), {}),
    ("dot", (3,), (3,), {}),
    ("dot", (3, 2), (), {}),
    ("outer", (3,), (4,), {}),
    ("outer", (2, 2), (3, 1), {}),
    ("kron", (2, 3), (3, 2), {}),
    ("kron", (2,), (3, 2, 2), {}),
    ("kron", (2, 2), (3,), {}),
    ("kron", (), (3,), {}),
    ("cross", (3,), (3,), {}),
    ("cross", (4, 3), (3,), {}),
    ("cross", (3, 5), (3, 5), {"axis": 0}),
    ("cross", (2, 1, 3), (4, 3), {}),
    ("vdot", (2, 6), (3, 4), {}),
    ("vecdot", (3, 4), (3, 4), {}),
    ("vecdot", (3, 4), (4,), {}),
    ("vecdot", (2, 4, 3), (4, 1), {"axis": -2}),
    ("vecdot", (3, 0), (3, 0), {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "a", "b", "params"), CASES)
@pytest.mark.parametrize("dtype", ["f8", "i4"])
def test_is_numpys(name: str, a: Any, b: Any, params: Any, dtype: str) -> None:
    x, y = numbers(a, dtype), numbers(b, dtype)

    def program(x: Any, y: Any) -> Any:
        return getattr(hm, name)(x, y, **params)

    eager = program(hm.asarray(x), hm.asarray(y))
    traced = hm.trace(program, backend="interpret")(hm.asarray(x), hm.asarray(y))
    reference = np.linalg.cross if name == "cross" else getattr(np, name)
    expected = np.asarray(reference(x, y, **params))
    assert eager.dtype == expected.dtype and traced.dtype is eager.dtype
    np.testing.assert_array_equal(np.asarray(eager), expected)
    np.testing.assert_array_equal(np.asarray(traced), expected)


@pytest.mark.parametrize(("name", "a", "b", "params"), [c for c in CASES if c[0] != "outer"][::3])
def test_gradients(name: str, a: Any, b: Any, params: Any) -> None:
    rng = np.random.default_rng(0)
    x, y, u, v = (rng.standard_normal(shape) for shape in (a, b, a, b))

    def loss(x: Any, y: Any) -> Any:
        return (getattr(hm, name)(x, y, **params) ** 3).sum()

    def directional(x: Any, y: Any) -> Any:
        gx, gy = hm.grad(loss, argnums=(0, 1))(x, y)
        return (gx * u).sum() + (gy * v).sum()

    h = 1e-6

    def slope(f: Any) -> float:
        high, low = (f(hm.tensor(x + s * u), hm.tensor(y + s * v)).item() for s in (h, -h))
        return (high - low) / (2 * h)

    assert directional(hm.tensor(x), hm.tensor(y)).item() == pytest.approx(slope(loss), rel=1e-6, abs=1e-6)
    gx, gy = hm.grad(directional, argnums=(0, 1))(hm.tensor(x), hm.tensor(y))
    second = (np.asarray(gx.detach()) * u).sum() + (np.asarray(gy.detach()) * v).sum()
    assert second == pytest.approx(slope(directional), rel=1e-5, abs=1e-5)


def test_bools_are_logical() -> None:
    x, y = hm.tensor([True, False]), hm.tensor([True, True])
    assert hm.vecdot(x, y).tolist() is True and hm.vecdot(x, y).dtype is hm.bool
    assert hm.outer(x, y).tolist() == [[True, True], [False, False]]


def test_torchs_products() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, a, b = rng.standard_normal((2, 3, 5)), rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 4, 5))
    found = hm.baddbmm(hm.asarray(x), hm.asarray(a), hm.asarray(b), beta=0.5, alpha=2)
    expected = torch.baddbmm(torch.tensor(x), torch.tensor(a), torch.tensor(b), beta=0.5, alpha=2)
    np.testing.assert_allclose(np.asarray(found), expected.numpy(), rtol=1e-12)
    assert hm.addmm(hm.full((2,), hm.nan), hm.ones((2, 2)), hm.ones((2, 2)), beta=0).tolist() == [[2, 2], [2, 2]]
    first, second, w, c = (rng.standard_normal(s) for s in ((6, 3), (6, 4), (2, 3, 4), (2,)))
    ours = hm.bilinear(*map(hm.asarray, (first, second, w, c)))
    theirs = torch.nn.functional.bilinear(*map(torch.tensor, (first, second, w, c)))
    np.testing.assert_allclose(np.asarray(ours), theirs.numpy(), rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(hm.bmm(hm.asarray(a), hm.asarray(b))), a @ b)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x, y: hm.tensordot(x, y, axes=1), hm.ShapeError, "differ in size"),
        (lambda x, y: hm.tensordot(x, y, axes=3), hm.ShapeError, "do not have 3 axes"),
        (lambda x, y: hm.tensordot(x, y, axes=([0, 0], [0, 1])), hm.ShapeError, "each once"),
        (lambda x, y: hm.tensordot(x, y, axes=([0], [0, 1])), hm.ShapeError, "as many axes"),
        (lambda x, y: hm.tensordot(x, y, axes="ab c"), hm.ArgumentError, "a number, or a pair"),
        (lambda x, y: hm.vecdot(x, y), hm.ShapeError, "axis -1 of"),
        (lambda x, y: hm.vecdot(x, y, axis=4), hm.ShapeError, "axis 4 does not exist"),
        (lambda x, y: hm.vdot(x, y), hm.ShapeError, "6 and 8 elements"),
        (lambda x, y: hm.cross(x, y), hm.ShapeError, "must have size 3"),
        (lambda x, y: hm.inner(x, y), hm.ShapeError, "differ in size"),
    ],
)
def test_errors(call: Any, error: type[Exception], match: str) -> None:
    x, y = hm.ones((2, 3)), hm.ones((2, 4))
    with pytest.raises(error, match=match):
        call(x, y)
    with pytest.raises(error, match=match):
        hm.trace(call, backend="interpret")(x, y)

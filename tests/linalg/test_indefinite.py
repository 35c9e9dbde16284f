"""Factors L D L^T: PyTorch's pivots, solutions, gradients, batches, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import hybridml as hm
from hybridml import linalg

REAL = np.array([[1.0, 2, 4, 0], [2, 5, 1, 3], [4, 1, 0, 2], [0, 3, 2, -6]])
PARTS = np.array([[0.0, 1, -2, 3], [-1, 0, 2, 0], [2, -2, 0, 1], [-3, 0, -1, 0]])
TURNED = np.roll(REAL, 1, 0) + np.roll(REAL, 1, 0).T
# A matrix, whether it is taken for Hermitian, and the last row of LD as PyTorch 2.14 gives it.
CASES = {
    "real": (REAL, False, [0.5, -0.125, 0.5230769230769231, -6.861538461538462]),
    "symmetric": (
        REAL + 1j * TURNED, False,
        [2 / 3 + 4j / 15, -11 / 30 - 0.2j, 0.008977900552486207 + 0.17058011049723756j,
         -6.189917127071824 + 6.599907918968693j],
    ),
    "hermitian": (REAL + 1j * PARTS, True, [0.5, -0.4 - 0.55j, 0.56 - 0.12j, -7.8]),
}  # fmt: skip


def random(n: int, dtype: str, hermitian: bool, batch: tuple[int, ...] = ()) -> np.ndarray:
    """Symmetric matrices with zeros on the diagonal, so that blocks of two rows are needed."""
    rng = np.random.default_rng(n)
    a = rng.standard_normal((*batch, n, n)) + (1j * rng.standard_normal((*batch, n, n)) if dtype[0] == "c" else 0)
    a = a + (a.conj() if hermitian else a).mT
    a[..., range(0, n, 2), range(0, n, 2)] = 0
    return a.astype(dtype)


@pytest.mark.parametrize("name", CASES)
def test_factors_and_pivots_are_pytorchs(name: str) -> None:
    x, hermitian, last = CASES[name]
    for style in (linalg.ldl_factor, hm.trace(linalg.ldl_factor)):
        found = style(hm.asarray(x), hermitian=hermitian)
        assert found.pivots.tolist() == [-3, -3, 3, 4]
        assert found.pivots.dtype is hm.int32
        np.testing.assert_allclose(found.LD[3].numpy(), last, rtol=1e-13)
        np.testing.assert_array_equal(found.LD.numpy(), np.tril(found.LD.numpy()))


@pytest.mark.parametrize(("dtype", "hermitian"), [("f8", False), ("f8", True), ("c16", False), ("c16", True)])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (2, 3, 5, 5), (12, 12), (0, 0), (0, 3, 3)])
def test_solutions(shape: tuple[int, ...], dtype: str, hermitian: bool) -> None:
    *batch, n, _ = shape
    x = random(n, dtype, hermitian, tuple(batch)) + np.eye(n) * (n == 1)
    b = np.random.default_rng(0).standard_normal((n, 2)).astype(dtype)

    def program(x: hm.Tensor, b: hm.Tensor) -> hm.Tensor:
        return linalg.ldl_solve(*linalg.ldl_factor(x, hermitian=hermitian), b, hermitian=hermitian)

    for style in (program, hm.trace(program)):
        np.testing.assert_allclose(style(hm.asarray(x), hm.asarray(b)).numpy(), np.linalg.solve(x, b), rtol=1e-9)


@pytest.mark.parametrize(("dtype", "hermitian"), [("f8", False), ("c16", False), ("c16", True)])
@pytest.mark.parametrize("n", [2, 5])
def test_gradients(n: int, dtype: str, hermitian: bool) -> None:
    x, b = hm.asarray(random(n, dtype, hermitian)), hm.asarray(random(n + 1, dtype, False)[1:, :2])

    def by_factors(x: hm.Tensor, b: hm.Tensor) -> hm.Tensor:
        z = linalg.ldl_solve(*linalg.ldl_factor(x, hermitian=hermitian), b, hermitian=hermitian)
        return (hm.abs(z) ** 2).sum()

    def by_solve(x: hm.Tensor, b: hm.Tensor) -> hm.Tensor:
        return (hm.abs(linalg.solve((x + (hm.conj(x) if hermitian else x).mT) * 0.5, b)) ** 2).sum()

    wanted = hm.grad(by_solve, argnums=(0, 1))(x, b)
    for style in (hm.grad(by_factors, argnums=(0, 1)), hm.trace(hm.grad(by_factors, argnums=(0, 1)))):
        for found, want in zip(style(x, b), wanted, strict=True):
            np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-8, atol=1e-10)
    pairs = [hm.jvp(f, (x, b), (x * x, b)) for f in (by_factors, by_solve)]
    for found, want in zip(*pairs, strict=True):
        np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-8)
    scale = hm.tensor(1.5, dtype=hm.float64)
    found, want = (hm.hessian(lambda t, f=f: f(x * t, b))(scale) for f in (by_factors, by_solve))
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-8)


@pytest.mark.parametrize("hermitian", [False, True])
def test_gradients_of_the_factors_are_differences(hermitian: bool) -> None:
    x, weights = random(5, "c16", hermitian), hm.asarray(random(5, "c16", False) + 1)

    def loss(x: hm.Tensor) -> hm.Tensor:
        return hm.real(linalg.ldl_factor(x, hermitian=hermitian).LD * weights).sum()

    gradient = hm.grad(loss)(hm.asarray(x)).numpy()
    for i, j, step in [(0, 0, 1e-6), (1, 0, 1e-6), (0, 1, 1e-6j), (3, 2, 1e-6j), (4, 4, 1e-6j)]:
        moved = np.zeros_like(x)
        moved[i, j] = step
        difference = loss(hm.asarray(x + moved)).item() - loss(hm.asarray(x - moved)).item()
        assert np.isclose(difference, 2 * (gradient[i, j].conj() * step).real, rtol=1e-5, atol=1e-13)


def test_batches_and_info() -> None:
    x, b = random(4, "f8", False, (3,)), np.eye(4)
    solve = hm.vmap(lambda x: linalg.ldl_solve(*linalg.ldl_factor(x), hm.asarray(b)))
    np.testing.assert_allclose(solve(hm.asarray(x)).numpy(), np.linalg.inv(x), rtol=1e-9)
    assert linalg.ldl_factor(hm.asarray([[1.0, 2, 0], [2, 1, 10], [0, 10, 1]])).pivots.tolist() == [1, -3, -3]
    singular = hm.asarray([[[1.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 3.0]], [[2.0, 0.0], [0.0, 3.0]]])
    for style in (linalg.ldl_factor_ex, hm.trace(linalg.ldl_factor_ex)):
        assert style(singular).info.tolist() == [2, 1, 0]
    for call in (linalg.ldl_factor, lambda x: linalg.ldl_factor_ex(x, check_errors=True)):
        for style in (call, hm.trace(call)):
            with pytest.raises(hm.linalg.LinAlgError, match=r"matrix 0 of .* is singular: D is zero in column 1"):
                style(singular)


def test_refusals() -> None:
    eye, ones = hm.eye(2), hm.ones((2, 1))
    for pivots, b, error, words in [
        ([1, 2], hm.ones(2), hm.ShapeError, "needs a matrix"),
        ([1, 2], hm.ones((3, 1)), hm.ShapeError, "pivots"),
        ([1, 2, 3], ones, hm.ShapeError, "pivots"),
        ([1, 3], ones, hm.OutOfBoundsError, "pivot 1 is 3"),
        ([1, -2], ones, hm.OutOfBoundsError, "pivot 1 is -2"),
        ([-2, 2], ones, hm.OutOfBoundsError, "pivot 0 is -2"),
    ]:
        with pytest.raises(error, match=words):
            linalg.ldl_solve(eye, hm.tensor(pivots), b)
    with pytest.raises(hm.linalg.LinAlgError, match="singular"):
        linalg.ldl_solve(hm.zeros((2, 2)), hm.tensor([1, 2]), ones)

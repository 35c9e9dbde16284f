"""`hybridml.linalg` beyond its rows, which the table's tests have: values, gradients of compositions and of losses that
do not depend on the choice of vectors, errors, special matrices, both styles."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import linalg
from hybridml_compiler.errors import ArgumentError, ShapeError

Call = Callable[..., Any]
STEP = 1e-6


def normal(*shape: int, dtype: str = "f8", seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype[0] == "c" else x).astype(dtype)


def positive(*shape: int, dtype: str = "f8") -> np.ndarray:
    x = normal(*shape, dtype=dtype)
    return (x @ x.conj().mT + np.eye(shape[-1])).astype(dtype)


def leaves(out: Any) -> list[hm.Tensor]:
    return list(out) if isinstance(out, tuple) else [out]


# ---------------------------------------------------------------- values

# Name -> the call, NumPy's call. Each takes matrices of 3 x 3.
SQUARE: dict[str, tuple[Call, Call]] = {
    "det": (linalg.det, np.linalg.det),
    "inv": (linalg.inv, np.linalg.inv),
    "slogdet": (linalg.slogdet, np.linalg.slogdet),
    "matrix_power 5": (lambda x: linalg.matrix_power(x, 5), lambda x: np.linalg.matrix_power(x, 5)),
    "matrix_power -3": (lambda x: linalg.matrix_power(x, -3), lambda x: np.linalg.matrix_power(x, -3)),
    "matrix_power 0": (lambda x: linalg.matrix_power(x, 0), lambda x: np.linalg.matrix_power(x, 0)),
    "trace": (lambda x: linalg.trace(x, offset=1), lambda x: np.linalg.trace(x, offset=1)),
    "cholesky": (
        lambda x: linalg.cholesky(x @ x.conj().mT + 2 * hm.eye(3, dtype=x.dtype)),
        lambda x: np.linalg.cholesky(x @ x.conj().mT + 2 * np.eye(3, dtype=x.dtype)),
    ),
    "cholesky upper": (
        lambda x: linalg.cholesky(x @ x.conj().mT + 2 * hm.eye(3, dtype=x.dtype), upper=True),
        lambda x: np.linalg.cholesky(x @ x.conj().mT + 2 * np.eye(3, dtype=x.dtype), upper=True),
    ),
    "eigvalsh": (lambda x: linalg.eigvalsh(x @ x.conj().mT), lambda x: np.linalg.eigvalsh(x @ x.conj().mT)),
    "eigvalsh L": (lambda x: linalg.eigvalsh(x, UPLO="L"), lambda x: np.linalg.eigvalsh(x, "L")),
    "eigvalsh U": (lambda x: linalg.eigvalsh(x, UPLO="U"), lambda x: np.linalg.eigvalsh(x, "U")),
    "eigvals": (linalg.eigvals, lambda x: np.linalg.eigvals(x) + 0j),
    "solve": (lambda x: linalg.solve(x, x.mT), lambda x: np.linalg.solve(x, x.mT)),
    "solve_triangular": (
        lambda x: linalg.solve_triangular(x, x.mT, upper=True),
        lambda x: np.linalg.solve(np.triu(x), x.mT),
    ),
    "solve_triangular right": (
        lambda x: linalg.solve_triangular(x, x.mT, upper=False, left=False, unitriangular=True),
        lambda x: x.mT @ np.linalg.inv(np.tril(x, -1) + np.eye(3, dtype=x.dtype)),
    ),
    "cond -2": (lambda x: linalg.cond(x, -2), lambda x: np.linalg.cond(x, -2)),
    "cond inf": (
        lambda x: linalg.cond(x, np.inf),
        lambda x: np.real(np.linalg.cond(x, np.inf)),
    ),  # complex before NumPy 2.4
    "cond": (linalg.cond, np.linalg.cond),
}
# Of matrices 4 x 2 and 2 x 4 too.
ANY: dict[str, tuple[Call, Call]] = {
    "svdvals": (linalg.svdvals, np.linalg.svdvals),
    "pinv": (linalg.pinv, np.linalg.pinv),
    "pinv rtol": (lambda x: linalg.pinv(x, rtol=0.5), lambda x: np.linalg.pinv(x, rtol=0.5)),
    "matrix_rank": (linalg.matrix_rank, np.linalg.matrix_rank),
    "matrix_rank rtol": (lambda x: linalg.matrix_rank(x, rtol=0.5), lambda x: np.linalg.matrix_rank(x, rtol=0.5)),
    "diagonal": (linalg.diagonal, np.linalg.diagonal),
    "matrix_transpose": (linalg.matrix_transpose, np.linalg.matrix_transpose),
    **{
        f"matrix_norm {ord}": (
            lambda x, ord=ord: linalg.matrix_norm(x, ord=ord, keepdims=True),
            lambda x, ord=ord: np.linalg.matrix_norm(x, ord=ord, keepdims=True),
        )
        for ord in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)
    },
    **{
        f"vector_norm {ord}": (
            lambda x, ord=ord: linalg.vector_norm(x, ord=ord, axis=(0, -1)),
            lambda x, ord=ord: np.linalg.vector_norm(x, ord=ord, axis=(0, -1)),
        )
        for ord in (0, 1, 2, 3, -1, 0.5, np.inf, -np.inf)
    },
    "norm": (linalg.norm, np.linalg.norm),
    "norm axis": (
        lambda x: linalg.norm(x, 3, axis=-1, keepdims=True),
        lambda x: np.linalg.norm(x, 3, axis=-1, keepdims=True),
    ),
    "norm axes": (
        lambda x: linalg.norm(x, "nuc", axis=(-1, -2), keepdims=True),
        lambda x: np.linalg.norm(x, "nuc", axis=(-1, -2), keepdims=True),
    ),
    "qr": (lambda x: tuple(map(hm.abs, linalg.qr(x))), lambda x: tuple(map(abs, np.linalg.qr(x)))),
}
SHAPES: dict[str, tuple[int, ...]] = {"one": (3, 3), "batch": (2, 3, 3), "tall": (2, 4, 2), "wide": (2, 4)}


@pytest.mark.parametrize(
    ("name", "shape"),
    [(name, shape) for name in (*SQUARE, *ANY) for shape in SHAPES if name in ANY or shape in ("one", "batch")],
)
def test_values_are_those_of_numpy(name: str, shape: str) -> None:
    ours, theirs = (SQUARE | ANY)[name]
    for dtype in ("f8", "f4", "c16"):
        x = normal(*SHAPES[shape], dtype=dtype)
        given = x[::-1, ::-1] if dtype == "f8" else x  # memory in another order
        for a, b in zip(leaves(ours(hm.asarray(given))), leaves(theirs(given)), strict=True):
            b = np.asarray(b)
            assert a.shape == b.shape and (a.dtype == b.dtype or b.dtype.kind in "i")
            close = 1e-4 if dtype == "f4" else 1e-10
            np.testing.assert_allclose(np.asarray(a), b, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16"])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3), (3, 4)])
def test_factors_give_the_matrix(shape: tuple[int, ...], dtype: str) -> None:
    x = hm.asarray(normal(*shape, dtype=dtype))
    close = 1e-5 if dtype == "f4" else 1e-12
    for full, mode in ((False, "reduced"), (True, "complete")):
        u, s, vh = linalg.svd(x, full_matrices=full)
        k = s.shape[-1]
        q, r = linalg.qr(x, mode=mode)
        p, lower, upper = linalg.lu(x)
        for found in ((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], q @ r, p @ lower @ upper):
            np.testing.assert_allclose(np.asarray(found), np.asarray(x), atol=close)
        for basis in (u, vh.conj().mT if dtype == "c16" else vh.mT, q):
            adjoint = hm.conj(basis).mT if dtype == "c16" else basis.mT
            identity = np.broadcast_to(np.eye(basis.shape[-1]), (adjoint @ basis).shape)
            np.testing.assert_allclose(np.asarray(adjoint @ basis), identity, atol=close)
    if shape[-1] == shape[-2]:
        w, v = linalg.eig(x)
        np.testing.assert_allclose(np.asarray(x @ v), np.asarray(v * w), atol=10 * close)
        w, v = linalg.eigh(x + hm.conj(x).mT if dtype == "c16" else x + x.mT)
        np.testing.assert_allclose(np.asarray(linalg.norm(v, axis=-2)), np.ones(3), atol=close)


def test_least_squares() -> None:
    a, b = normal(6, 3), normal(6, 2, seed=1)
    expected = np.linalg.lstsq(a, b)
    found = linalg.lstsq(hm.asarray(a), hm.asarray(b))
    assert found._fields == ("solution", "residuals", "rank", "singular_values")
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-10)
    flat = np.ones((4, 2))  # rank 1: the shortest solution
    np.testing.assert_allclose(
        np.asarray(linalg.lstsq(hm.asarray(flat), hm.asarray(b[:4, 0])).solution), np.linalg.lstsq(flat, b[:4, 0])[0]
    )


@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 3.0, 40.0])
def test_the_exponential_of_a_symmetric_matrix_is_that_of_its_eigenvalues(scale: float) -> None:
    x = positive(4, 4)
    x *= -scale / np.linalg.norm(x, 1)
    w, v = np.linalg.eigh(x)
    expected = (v * np.exp(w)) @ v.T
    np.testing.assert_allclose(np.asarray(linalg.matrix_exp(hm.asarray(x))), expected, rtol=1e-12, atol=1e-14)
    single = np.asarray(linalg.matrix_exp(hm.asarray(x.astype("f4"))))
    np.testing.assert_allclose(single, expected, rtol=1e-4, atol=1e-5)


def test_the_exponential_of_what_is_not_finite_is_nan() -> None:
    x = hm.asarray([[[math.nan, 1.0], [0.0, 1.0]], [[1.0, math.inf], [0.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]])
    for style in (linalg.matrix_exp, hm.trace(linalg.matrix_exp)):
        np.testing.assert_array_equal(np.asarray(style(x)), [np.full((2, 2), np.nan)] * 2 + [np.eye(2)])


def test_factors_of_complex_matrices() -> None:
    x, b = normal(2, 3, 3) + 1j * normal(2, 3, 3)[::-1], normal(3, 2)
    found = linalg.lu_solve(*linalg.lu_factor(hm.asarray(x)), hm.asarray(b))
    np.testing.assert_allclose(np.asarray(found), np.linalg.solve(x, b + 0j))


def test_products_of_several() -> None:
    chain = [normal(*shape) for shape in ((4, 7), (7, 2), (2, 9), (9, 3))]
    for given in (chain, [chain[0][0], *chain[1:]], [chain[0][0], *chain[1:-1], chain[-1][:, 0]]):
        found = linalg.multi_dot([hm.asarray(x) for x in given])
        np.testing.assert_allclose(np.asarray(found), np.linalg.multi_dot(given), rtol=1e-12)
    a = normal(2, 3, 6)
    np.testing.assert_allclose(np.asarray(linalg.tensorinv(hm.asarray(a), ind=2)), np.linalg.tensorinv(a, ind=2))
    a, b = normal(2, 3, 6), normal(2, 3)
    np.testing.assert_allclose(
        np.asarray(linalg.tensorsolve(hm.asarray(a), hm.asarray(b))), np.linalg.tensorsolve(a, b)
    )
    a = np.moveaxis(a, 2, 0)
    found = linalg.tensorsolve(hm.asarray(a), hm.asarray(b), axes=(0,))
    np.testing.assert_allclose(np.asarray(found), np.linalg.tensorsolve(a, b, axes=(0,)))


def test_large_triangular_systems_are_solved_by_halves() -> None:
    a, b = np.tril(normal(150, 150)) + 20 * np.eye(150), normal(150)
    for upper, x in ((False, a), (True, a.T)):
        found = linalg.solve_triangular(hm.asarray(x), hm.asarray(b), upper=upper)
        np.testing.assert_allclose(np.asarray(found), np.linalg.solve(x, b), rtol=1e-11)


def test_matrices_without_elements() -> None:
    for fn in (linalg.inv, linalg.cholesky, linalg.matrix_exp, linalg.eigvalsh, linalg.det, linalg.pinv):
        for shape in ((0, 0), (0, 2, 2), (3, 0, 0)):
            x = hm.tensor(np.zeros(shape), requires_grad=True)
            out = fn(x)
            out.sum().backward()
            assert x.grad is not None and x.grad.shape == shape
    assert linalg.det(hm.zeros((0, 0))).item() == 1 and linalg.matrix_rank(hm.zeros((2, 0, 3))).tolist() == [0, 0]
    assert [t.shape for t in linalg.svd(hm.zeros((2, 0)))] == [(2, 2), (0,), (0, 0)]
    assert linalg.vector_norm(hm.zeros((0,))).item() == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_computed_in_float32(dtype: str) -> None:
    x = hm.asarray(positive(3, 3)).astype(getattr(hm, dtype) if dtype == "bfloat16" else dtype)
    wide = x.astype(hm.float32)
    for fn in (linalg.inv, linalg.svd, linalg.slogdet, linalg.qr, linalg.norm):
        for a, b in zip(leaves(fn(x)), leaves(fn(wide)), strict=True):
            assert a.dtype == x.dtype
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b.astype(x.dtype)))
    assert linalg.eigvals(x).dtype == hm.complex64


# ---------------------------------------------------------------- gradients


def weighted(outs: list[hm.Tensor], weights: list[np.ndarray]) -> hm.Tensor:
    total = hm.asarray(np.zeros(()))
    for t, w in zip(outs, weights, strict=True):
        parts = [(t, w)] if t.dtype.kind != "c" else [(hm.real(t), w.real), (hm.imag(t), w.imag)]
        for part, weight in parts:
            total = total + (part * hm.asarray(np.ascontiguousarray(weight))).sum()
    return total


def like(x: Any, seed: int) -> np.ndarray:
    return normal(*x.shape, dtype=np.dtype(x.dtype).str[1:], seed=seed)


def gradcheck(fn: Call, *points: np.ndarray) -> None:
    """The derivative along a random direction, of weighted results and of weighted gradients, against differences."""

    def run(shift: float) -> tuple[list[hm.Tensor], list[hm.Tensor]]:
        xs = [hm.tensor(p + shift * like(p, k)).requires_grad_() for k, p in enumerate(points)]
        return xs, [t for t in leaves(fn(*xs)) if t.requires_grad]

    def first(shift: float) -> tuple[list[hm.Tensor], hm.Tensor]:
        xs, outs = run(shift)
        return xs, weighted(outs, [like(t, 10 + k) for k, t in enumerate(outs)])

    def second(shift: float) -> tuple[list[hm.Tensor], hm.Tensor]:
        xs, loss = first(shift)
        found = hm.autograd.grad(loss, xs, create_graph=True)
        return xs, weighted(list(found), [like(t, 20 + k) for k, t in enumerate(found)])

    for loss in (first, second):
        xs, value = loss(0.0)
        if not value.requires_grad:  # the second derivative of what is linear
            continue
        found = hm.autograd.grad(value, xs)
        along = [(np.asarray(g).conj() * like(p, k)).sum() for k, (g, p) in enumerate(zip(found, points, strict=True))]
        analytic = float(sum(along).real)
        numeric = (loss(STEP)[1].item() - loss(-STEP)[1].item()) / (2 * STEP)
        assert analytic == pytest.approx(numeric, rel=1e-5, abs=1e-6)


def unphased(*outs: hm.Tensor) -> list[hm.Tensor]:
    """Of vectors as columns: what does not depend on their phases."""
    found = []
    for v in outs:
        found += [hm.abs(v) ** 2, v[..., :1] @ hm.conj(v[..., :1]).mT]
    return found


def of_svd(x: hm.Tensor, full: bool) -> tuple[hm.Tensor, ...]:
    u, s, vh = linalg.svd(x, full_matrices=full)
    k = s.shape[-1]
    left, right = u[..., k:], hm.conj(vh).mT[..., k:]
    spaces = (left @ hm.conj(left).mT, right @ hm.conj(right).mT)
    return (s, u[..., :1] @ vh[..., :1, :], *unphased(u[..., :k], hm.conj(vh[..., :k, :]).mT), *spaces)


def of_qr(x: hm.Tensor) -> tuple[hm.Tensor, ...]:
    q, r = linalg.qr(x, mode="complete")
    k = min(x.shape[-2:])
    rest = q[..., k:]
    return q[..., :k], r, rest @ hm.conj(rest).mT


GRADIENTS: dict[str, tuple[Call, list[tuple[int, ...]]]] = {
    "svd, thin": (lambda x: of_svd(x, False), [(4, 3)]),
    "svd, full, tall": (lambda x: of_svd(x, True), [(5, 2)]),
    "svd, full, wide": (lambda x: of_svd(x, True), [(2, 2, 5)]),
    "qr, complete, tall": (of_qr, [(5, 2)]),
    "qr, complete, wide": (of_qr, [(2, 4)]),
    "eig": (lambda x: (lambda w, v: (w, *unphased(v)))(*linalg.eig(x)), [(2, 3, 3)]),
    "eigh": (lambda x: (lambda w, v: (w, *unphased(v)))(*linalg.eigh(x)), [(3, 3)]),
    "eigh L": (lambda x: (lambda w, v: (w, *unphased(v)))(*linalg.eigh(x, UPLO="L")), [(3, 3)]),
    "cholesky upper": (lambda x: linalg.cholesky(x @ hm.conj(x).mT + hm.eye(3), upper=True), [(3, 3)]),
    "slogdet": (linalg.slogdet, [(2, 3, 3)]),
    "lstsq": (lambda a, b: linalg.lstsq(a, b)[:2], [(4, 2), (4,)]),
    "pinv": (linalg.pinv, [(2, 2, 4)]),
    "solve": (linalg.solve, [(2, 3, 3), (3,)]),
    "solve_triangular": (
        lambda a, b: linalg.solve_triangular(a, b, upper=True, left=False, unitriangular=True), [(3, 3), (2, 3)],
    ),
    "matrix_power": (lambda x: linalg.matrix_power(x, -3), [(3, 3)]),
    "matrix_exp": (linalg.matrix_exp, [(3, 3)]),
    "multi_dot": (lambda *xs: linalg.multi_dot(xs), [(3,), (3, 4), (4, 2)]),
    "trace": (lambda x: linalg.trace(x, offset=-1), [(2, 3, 3)]),
    "cond": (linalg.cond, [(3, 2)]),
    **{f"matrix_norm {p}": (lambda x, p=p: linalg.matrix_norm(x, ord=p), [(3, 2)]) for p in ("fro", "nuc", 1, 2, -2)},
    **{f"vector_norm {p}": (lambda x, p=p: linalg.vector_norm(x, ord=p, axis=1), [(3, 2)]) for p in (1, 2, 3, 0.5)},
}  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), list(itertools.product(GRADIENTS, ("f8", "c16"))))
def test_gradients_of_both_orders(name: str, dtype: str) -> None:
    fn, shapes = GRADIENTS[name]
    gradcheck(fn, *(normal(*shape, dtype=dtype, seed=5 + k) for k, shape in enumerate(shapes)))


def test_the_determinant_of_a_singular_matrix_has_its_gradient() -> None:
    x = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.0, 1.0, 5.0]])
    gradcheck(linalg.det, x)
    gradcheck(linalg.det, np.zeros((2, 2)))


def gradient(fn: Call, x: np.ndarray) -> np.ndarray:
    t = hm.tensor(x, requires_grad=True)
    fn(t).sum().backward()
    assert t.grad is not None
    return np.asarray(t.grad)


def test_equal_values_have_the_gradients_that_exist() -> None:
    x = np.diag([2.0, 2.0, 5.0])
    for values in (linalg.eigvalsh, linalg.svdvals):
        np.testing.assert_allclose(gradient(lambda x, values=values: values(x) ** 2, x), 2 * x, atol=1e-14)
    weights = hm.asarray(np.outer(np.arange(1.0, 4.0), np.arange(1.0, 4.0)))
    for fn in (  # of the vector of the value that is alone
        lambda x: (lambda v: v @ v.mT * weights)(linalg.eigh(x).eigenvectors[:, -1:]),
        lambda x: (lambda v: v @ v.mT * weights)(linalg.svd(x).U[:, :1]),
    ):
        nearly = gradient(fn, np.diag([2.0, 2.0 + 1e-9, 5.0]))
        assert abs(nearly).max() > 1
        np.testing.assert_allclose(gradient(fn, x), nearly, atol=1e-7)


def test_equal_values_have_no_gradient_that_goes_unnoticed() -> None:
    """The cube of a matrix by its eigenvalues: what their vectors turn by is not determined."""
    weights = hm.asarray(positive(3, 3))
    for fn in (
        lambda x: (lambda w, v: (v * w**3) @ v.mT)(*linalg.eigh(x)) * weights,
        lambda x: (lambda u, s, vh: (u * s**3) @ vh)(*linalg.svd(x)) * weights,
    ):
        assert not np.isfinite(gradient(fn, np.eye(3))).all()


@pytest.mark.parametrize("ord", [1, 2, 3, np.inf])
def test_the_gradient_of_the_norm_of_zeros_is_zero(ord: float) -> None:
    x = hm.zeros((2, 3)).requires_grad_()
    linalg.vector_norm(x, ord=ord).backward()
    assert x.grad is not None
    if ord != np.inf:  # which gives it to the elements that are the largest
        assert x.grad.tolist() == [[0.0] * 3] * 2


# ---------------------------------------------------------------- both styles


def likelihood(x: hm.Tensor, noise: hm.Tensor) -> hm.Tensor:
    """Of a Gaussian process: what linear algebra with gradients is most often for."""
    covariance = hm.exp(-((x[:, None] - x) ** 2)) + noise * hm.eye(x.shape[0], dtype=x.dtype)
    factor = linalg.cholesky(covariance)
    white = linalg.solve_triangular(factor, hm.sin(x), upper=False)
    return (white**2).sum() + 2 * hm.log(linalg.diagonal(factor)).sum()


def test_a_traced_step_is_the_eager_one() -> None:
    def step(x: hm.Tensor, noise: hm.Tensor) -> tuple[hm.Tensor, ...]:
        loss = likelihood(x, noise)
        return (loss, *hm.autograd.grad(loss, [x, noise]))

    points = np.linspace(0, 3, 6)
    traced = hm.trace(step)
    for size in (6, 4):
        given = [hm.tensor(points[:size]).requires_grad_(), hm.tensor(0.1, dtype=hm.float64).requires_grad_()]
        for a, b in zip(step(*given), traced(*given), strict=True):
            np.testing.assert_allclose(np.asarray(a.detach()), np.asarray(b.detach()), rtol=1e-12)
    gradcheck(lambda x: likelihood(x, hm.asarray(0.1)), points)


def test_named_results_stay_in_traced_programs() -> None:
    traced = hm.trace(lambda x: linalg.svd(x, full_matrices=False))
    found = traced(hm.asarray(normal(3, 2)))
    assert type(found) is linalg.SVDResult and found.U.shape == (3, 2)
    np.testing.assert_array_equal(np.asarray(found.S), np.linalg.svd(normal(3, 2))[1])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: linalg.inv(x), linalg.LinAlgError, r"inv: matrix 1 of f64\[2,2,2\] is singular: its rank is 1 of 2"),
        (lambda x: linalg.solve(x[None], x), linalg.LinAlgError, r"solve: matrix \(0, 1\) of f64\[1,2,2,2\] is sing"),
        (lambda x: linalg.cholesky(x - 5), linalg.LinAlgError, r"cholesky: matrix 0 .* smallest eigenvalue is -8\.52"),
        (lambda x: linalg.svd(x * hm.nan), linalg.LinAlgError, "svd: matrix 0 .* holds nan or infinity"),
        (lambda x: linalg.solve_triangular(x * 0, x, upper=True), linalg.LinAlgError, "element 0 of its diagonal is 0"),
        (lambda x: linalg.matrix_power(x, -1), linalg.LinAlgError, "inv: matrix 1"),
    ],
)  # fmt: skip
def test_errors_name_the_matrix_in_both_styles(call: Call, error: type[Exception], words: str) -> None:
    x = hm.asarray([[[1.0, 0.0], [0.0, 2.0]], [[1.0, 2.0], [2.0, 4.0]]], dtype=hm.float64)
    for style in (call, hm.trace(call)):
        with pytest.raises(error, match=words) as caught:
            style(x)
        assert isinstance(caught.value, np.linalg.LinAlgError)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: linalg.det(hm.ones((2, 3))), ShapeError, "det: needs square matrices"),
        (lambda: linalg.matrix_power(hm.ones((2, 3)), 2), ShapeError, "matrix_power: needs square matrices"),
        (lambda: linalg.matrix_power(hm.ones((2, 2)), 2.5), ArgumentError, "matrix_power: n must be an integer"),
        (lambda: linalg.trace(hm.ones(3)), ShapeError, "trace: needs a matrix or a batch"),
        (lambda: linalg.outer(hm.ones(3), hm.ones((2, 2))), ShapeError, "outer: needs two vectors"),
        (lambda: linalg.matrix_norm(hm.ones((2, 2)), ord=3), ArgumentError, "ord is 'fro', 'nuc', 1"),
        (lambda: linalg.vector_norm(hm.ones(2), ord="fro"), ArgumentError, "vector_norm: ord is a number"),
        (lambda: linalg.norm(hm.ones((2, 2, 2)), 1), ShapeError, "name one axis or two"),
        (lambda: linalg.norm(hm.ones((2, 2)), "fro", axis=0), ArgumentError, "is a norm of matrices"),
        (lambda: linalg.norm(hm.ones((2, 2)), axis=(0, 0)), ShapeError, "two different ones"),
        (lambda: linalg.norm(hm.ones((2, 2)), axis=1.5), ArgumentError, "norm: axis must be an integer, got 1.5"),
        (lambda: linalg.cond(hm.ones((0, 3))), linalg.LinAlgError, r"cond: f32\[0,3\] has no singular values"),
        (lambda: linalg.lu_unpack(hm.eye(3), hm.tensor(1)), ShapeError, r"lu_unpack: needs pivots .* got i64"),
        (lambda: linalg.eigh(hm.ones((2, 2)), UPLO="X"), ArgumentError, "UPLO is one of 'L', 'U', got 'X'"),
        (lambda: linalg.lstsq(hm.ones((3, 2)), hm.ones((2,))), ShapeError, r"lstsq: .* right side of shape \(3,\)"),
        (lambda: linalg.multi_dot([hm.ones((3, 2))]), ShapeError, "two matrices or more"),
        (lambda: linalg.multi_dot([hm.ones((3, 2, 2)), hm.ones((2, 2))]), ShapeError, "takes matrices, and vectors"),
        (lambda: linalg.tensorinv(hm.ones((2, 2)), ind=0), ShapeError, "at least 1, got 0"),
        (lambda: linalg.tensorsolve(hm.ones((2, 3)), hm.ones((2,))), ShapeError, "no square map"),
        (lambda: linalg.tensorsolve(hm.eye(2), hm.ones(2), axes=(7,)), ShapeError, "tensorsolve: axis 7 does not"),
        (lambda: linalg.pinv(hm.ones((2, 2)), rtol=hm.ones((3,))), ShapeError, "not one number for each matrix"),
    ],
)  # fmt: skip
def test_errors(call: Call, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_signatures_are_those_of_the_standard() -> None:
    """Array API 2024.12: what is positional, what is named, and the names of results."""
    named = {
        "cholesky": ("upper",), "cross": ("axis",), "det": (), "diagonal": ("offset",), "inv": (), "matmul": (),
        "matrix_norm": ("keepdims", "ord"), "matrix_rank": ("rtol",), "matrix_transpose": (), "outer": (),
        "pinv": ("rtol",), "qr": ("mode",), "slogdet": (), "solve": (), "svd": ("full_matrices",), "svdvals": (),
        "trace": ("offset", "dtype"), "vecdot": ("axis",),
        "vector_norm": ("axis", "keepdims", "ord"), "matrix_power": (),
    }  # fmt: skip
    for name, keywords in named.items():
        parameters = inspect.signature(getattr(linalg, name)).parameters.values()
        kinds = {p.name: p.kind for p in parameters}
        assert tuple(n for n, kind in kinds.items() if kind is inspect.Parameter.KEYWORD_ONLY) == keywords, name
        assert all(k is inspect.Parameter.POSITIONAL_ONLY for n, k in kinds.items() if n not in keywords), name
    axes = inspect.signature(linalg.tensordot).parameters["axes"]
    assert axes.kind is axes.POSITIONAL_OR_KEYWORD  # of NumPy the third argument, of the standard a keyword
    assert linalg.QRResult._fields == ("Q", "R") and linalg.SVDResult._fields == ("U", "S", "Vh")
    assert linalg.EighResult._fields == ("eigenvalues", "eigenvectors")
    assert linalg.SlogdetResult._fields == ("sign", "logabsdet")

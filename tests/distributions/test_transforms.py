"""Transforms: inverses, Jacobians by forward mode, shapes, and the distributions of what they give."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import hybridml as hm
from hybridml import distributions as D
from hybridml_compiler.errors import ArgumentError, HybridmlError, ShapeError

F8 = {"dtype": "float64"}
X = hm.tensor([0.3, 1.2, 0.7], **F8)

BIJECTIONS: dict[str, D.Transform] = {
    "affine": D.AffineTransform(hm.tensor(1.0, **F8), -2.0),
    "affine of vectors": D.AffineTransform(1.0, hm.tensor([2.0, -3.0, 0.5], **F8), event_dim=1),
    "cat": D.CatTransform([D.ExpTransform(), D.TanhTransform()], lengths=[1, 2]),
    "cdf": D.CumulativeDistributionTransform(D.Normal(hm.tensor(0.5, **F8), 2.0)),
    "chain": D.ComposeTransform([D.ExpTransform(), D.AffineTransform(1.0, 0.5), D.StickBreakingTransform()]),
    "chain of shapes": D.ComposeTransform([D.ReshapeTransform((3,), (3, 1)), D.ExpTransform()]),
    "correlations": D.CorrCholeskyTransform(),
    "exp": D.ExpTransform(),
    "identity": D.identity_transform,
    "independent": D.IndependentTransform(D.SoftplusTransform(), 1),
    "inverse": D.PowerTransform(hm.tensor(3.0, **F8)).inv,
    "power": D.PowerTransform(-1.5),
    "reshape": D.ReshapeTransform((3,), (3, 1)),
    "sigmoid": D.SigmoidTransform(),
    "softplus": D.SoftplusTransform(),
    "stack": D.StackTransform([D.ExpTransform(), D.TanhTransform(), D.AffineTransform(0.0, 3.0)], dim=-1),
    "stick": D.StickBreakingTransform(),
    "tanh": D.TanhTransform(),
}


def free(name: str, y: hm.Tensor) -> hm.Tensor:
    """The entries of a value that its Jacobian is of."""
    if name == "correlations":
        return hm.stack([y[1, 0], y[2, 0], y[2, 1]])
    return y[:-1] if name in ("stick", "chain") else y.reshape((3,))


@pytest.mark.parametrize("name", BIJECTIONS)
def test_inverses_and_jacobians(name: str) -> None:
    t = BIJECTIONS[name]
    y = t(X)
    assert t.bijective and t.inv.inv == t and t != D.AbsTransform()
    assert t.forward_shape(X.shape) == y.shape and t.inverse_shape(y.shape) == X.shape
    np.testing.assert_allclose(t.inv(y).numpy(), X.numpy(), rtol=1e-9)
    np.testing.assert_allclose(hm.trace(lambda x: t.inv(t(x)))(X).numpy(), X.numpy(), rtol=1e-9)
    jacobian = hm.jacfwd(lambda x: free(name, t(x)))(X)
    expected = np.linalg.slogdet(jacobian.numpy())[1]
    found = t.log_abs_det_jacobian(X, y)
    assert found.shape == X.shape[: X.ndim - t.domain_event_dim]
    assert found.sum().item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert t.inv.log_abs_det_jacobian(y, X).sum().item() == pytest.approx(-expected, rel=1e-9, abs=1e-9)
    traced = hm.trace(t.log_abs_det_jacobian)(X, y)
    np.testing.assert_allclose(traced.numpy(), found.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dim", [0, 1])
def test_parts_of_vectors(dim: int) -> None:
    of_vectors = [D.IndependentTransform(t, 1) for t in (D.ExpTransform(), D.TanhTransform())]
    t, x = D.CatTransform(of_vectors, dim, lengths=[1, 1]), hm.stack([X[:2], X[1:]])
    jacobian = hm.jacfwd(lambda x: t(x).reshape((4,)))(x).reshape((4, 4))
    found = t.log_abs_det_jacobian(x, t(x))
    assert found.shape == (2,) and found.sum().item() == pytest.approx(np.linalg.slogdet(jacobian.numpy())[1])


@pytest.mark.parametrize("first", [True, False])
def test_a_stack_in_a_chain_is_of_single_numbers(first: bool) -> None:
    parts, twice = [D.ExpTransform(), D.AffineTransform(0.0, 3.0)], D.AffineTransform(0.0, 2.0)
    base, y = D.Normal(hm.zeros(2, **F8), 1.0), hm.tensor([1.5, 2.0], **F8)
    ordered = [D.StackTransform(parts, dim=-1), twice][:: 1 if first else -1]
    p = D.TransformedDistribution(base, ordered)
    alone = [D.TransformedDistribution(D.Normal(0.0, 1.0), [t, twice] if first else [twice, t]) for t in parts]
    expected = [q.log_prob(value).item() for q, value in zip(alone, y, strict=True)]
    assert p.batch_shape == (2,) and p.event_shape == () and p.log_prob(y).tolist() == pytest.approx(expected)


def test_transforms_that_are_no_bijections() -> None:
    x = hm.tensor([[-1.0, 2.0], [0.5, -3.0]], **F8)
    np.testing.assert_array_equal(D.AbsTransform()(x).numpy(), np.abs(x.numpy()))
    shares = D.SoftmaxTransform()(x)
    np.testing.assert_allclose(D.SoftmaxTransform()(D.SoftmaxTransform().inv(shares)).numpy(), shares.numpy())
    lower = D.LowerCholeskyTransform()
    np.testing.assert_allclose(lower(x).numpy(), [[math.exp(-1), 0], [0.5, math.exp(-3)]])
    np.testing.assert_allclose(lower.inv(lower(x)).numpy(), np.tril(x.numpy()))
    matrix = D.PositiveDefiniteTransform()
    np.testing.assert_allclose(matrix(matrix.inv(matrix(x))).numpy(), matrix(x).numpy())
    for t in (D.AbsTransform(), lower, matrix, D.SoftmaxTransform()):
        assert not t.bijective
        with pytest.raises(NotImplementedError, match="has no Jacobian"):
            t.log_abs_det_jacobian(x, x)


def test_correlations_have_the_unit_diagonal() -> None:
    factor = D.CorrCholeskyTransform()(hm.tensor([[0.3, -1.2, 0.7]] * 2, **F8))
    full = (factor @ hm.matrix_transpose(factor)).numpy()
    assert full.shape == (2, 3, 3)
    np.testing.assert_allclose(np.diagonal(full, axis1=1, axis2=2), 1)
    assert (np.linalg.eigvalsh(full) > 0).all()


def test_transformed_distributions() -> None:
    loc, scale, x = 0.3, 0.8, np.array([-1.0, 0.1, 0.4, 0.9, 2.0])
    base = D.Normal(hm.tensor(loc, **F8), hm.tensor(scale, **F8))
    falling = D.TransformedDistribution(base, [D.ExpTransform(), D.AffineTransform(0.0, -2.0)])
    expected = stats.lognorm(scale, scale=math.exp(loc))
    np.testing.assert_allclose(falling.log_prob(hm.asarray(-2 * x)).numpy(), expected.logpdf(x) - math.log(2))
    np.testing.assert_allclose(falling.cdf(hm.asarray(-2 * x)).numpy(), 1 - expected.cdf(x), atol=1e-12)
    np.testing.assert_allclose(falling.icdf(falling.cdf(hm.asarray(-2 * x[1:]))).numpy(), -2 * x[1:])
    traced = hm.trace(falling.log_prob)(hm.asarray(-2 * x))
    np.testing.assert_allclose(traced.numpy(), falling.log_prob(hm.asarray(-2 * x)).numpy())
    grad = hm.grad(
        lambda m: D.TransformedDistribution(D.Normal(m, 1.0), D.ExpTransform()).log_prob(hm.asarray(x)[1:]).sum()
    )
    np.testing.assert_allclose(grad(hm.tensor(loc, **F8)).item(), (np.log(x[1:]) - loc).sum())
    slope = hm.grad(lambda v: D.LogNormal(0.0, 1.0).log_prob(v).sum())(hm.tensor([-1.0, 1.0]))
    assert slope.tolist() == [0.0, -1.0]  # no nan where nothing is possible


def test_shapes_of_transformed_distributions() -> None:
    p = D.TransformedDistribution(D.Normal(hm.zeros((5, 3)), 1.0), D.StickBreakingTransform())
    assert (p.batch_shape, p.event_shape, p.sample((2,)).shape) == ((5,), (4,), (2, 5, 4))
    assert p.log_prob(p.sample((2,))).shape == (2, 5) and p.expand((7, 5)).sample().shape == (7, 5, 4)
    wide = D.TransformedDistribution(D.Normal(0.0, 1.0), D.AffineTransform(hm.zeros(3), 1.0))
    assert wide.batch_shape == (3,) and wide.sample().shape == (3,) and len(set(wide.sample().tolist())) == 3
    square = D.TransformedDistribution(D.Normal(hm.zeros((2, 4)), 1.0), D.ReshapeTransform((4,), (2, 2)))
    assert (
        square.batch_shape == (2,) and square.event_shape == (2, 2) and square.log_prob(square.sample()).shape == (2,)
    )
    exp = D.TransformedDistribution(D.MultivariateNormal(hm.zeros(3), hm.eye(3)), D.ExpTransform())
    x = hm.tensor([0.5, 1.0, 2.0])
    assert exp.event_shape == (3,)
    assert exp.log_prob(x).item() == pytest.approx(D.LogNormal(hm.zeros(3), 1.0).log_prob(x).sum().item(), rel=1e-6)
    assert exp.log_prob([0.5, 1.0, -2.0]).item() == -math.inf
    matrix = D.TransformedDistribution(D.Normal(hm.zeros(6), 1.0), D.CorrCholeskyTransform())
    assert matrix.event_shape == (4, 4) and matrix.rsample((2,)).shape == (2, 4, 4)
    normal = D.LogisticNormal(hm.zeros((5, 2)), 1.0)
    assert normal.batch_shape == (5,) and normal.expand((2, 5)).sample().shape == (2, 5, 3)


def test_divergences_of_transformed_ones() -> None:
    one, other = D.Normal(0.5, 1.0), D.Normal(0.0, 2.0)
    expected = D.kl_divergence(one, other).item()
    assert D.kl_divergence(D.LogNormal(0.5, 1.0), D.LogNormal(0.0, 2.0)).item() == expected
    pair = [D.TransformedDistribution(p, [D.ExpTransform(), D.AffineTransform(0.0, 2.0)]) for p in (one, other)]
    assert D.kl_divergence(*pair).item() == expected
    with pytest.raises(ArgumentError, match="only for the same bijections"):
        D.kl_divergence(pair[0], D.LogNormal(0.0, 1.0))


ERRORS: dict[str, tuple[type[HybridmlError], str, Callable[[], Any]]] = {
    "axis": (ShapeError, "axis 0 needs length 2, got shape", lambda: D.StackTransform([D.ExpTransform()] * 2)(X)),
    "lengths": (ArgumentError, "1 lengths of 2", lambda: D.CatTransform([D.ExpTransform()] * 2, lengths=[3])),
    "size": (ArgumentError, "differ in number", lambda: D.ReshapeTransform((3,), (2,))),
    "end": (ShapeError, "ends in", lambda: D.ReshapeTransform((2,), (2, 1))(X)),
    "axes": (ArgumentError, "have 1 axes and values 2", lambda: D.CorrCholeskyTransform().event_dim),
    "triangle": (ShapeError, "2 numbers are not", lambda: D.CorrCholeskyTransform()(hm.zeros(2))),
    "base": (ShapeError, "needs 1 axes", lambda: D.TransformedDistribution(D.Normal(0, 1), D.StickBreakingTransform())),
    "list": (ArgumentError, "takes a transform", lambda: D.TransformedDistribution(D.Normal(0, 1), [3])),  # type: ignore[list-item]
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    kind, message, call = ERRORS[name]
    with pytest.raises(kind, match=message):
        call()

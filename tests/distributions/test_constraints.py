"""Constraints: what is in them, the supports of all distributions, transforms to them, and checks of tensors."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import distributions as D
from hybridml.distributions import constraints as C

INF = math.inf
NUMBERS = [-INF, -1.0, 0.0, 0.5, 1.0, 3.0, INF, math.nan]
# Which of these numbers are in a constraint.
OF_NUMBERS: dict[str, tuple[C.Constraint, str]] = {
    "real": (C.real, "11111110"),
    "positive": (C.positive, "00011110"),
    "nonnegative": (C.nonnegative, "00111110"),
    "greater_than": (C.greater_than(0.5), "00001110"),
    "greater_than_eq": (C.greater_than_eq(0.5), "00011110"),
    "less_than": (C.less_than(0.5), "11100000"),
    "interval": (C.interval(0.5, 3.0), "00011100"),
    "half_open_interval": (C.half_open_interval(0.5, 3.0), "00011000"),
    "left_open_interval": (C.LeftOpenInterval(0.5, 3.0), "00001100"),
    "unit_interval": (C.unit_interval, "00111000"),
    "boolean": (C.boolean, "00101000"),
    "integer_interval": (C.integer_interval(0, 2), "00101000"),
    "nonnegative_integer": (C.nonnegative_integer, "00101100"),
    "positive_integer": (C.positive_integer, "00001100"),
}


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_numbers_in_a_constraint(name: str) -> None:
    constraint, expected = OF_NUMBERS[name]
    values = hm.tensor(NUMBERS)
    assert "".join(str(int(found)) for found in constraint.check(values).tolist()) == expected
    assert hm.trace(constraint.check)(values).tolist() == constraint.check(values).tolist()
    assert "".join(str(int(constraint.check(number))) for number in NUMBERS) == expected
    assert constraint == copy.copy(constraint) and constraint == pickle.loads(pickle.dumps(constraint))
    assert C.independent(constraint, 1).check(values[3:5]).item() == ("11" in expected[3:5])


LOW, TURNED = [[2.0, 0.0], [1.0, 3.0]], [[1.0, 0.0], [0.6, 0.8]]
OF_ARRAYS: dict[str, tuple[C.Constraint, list[Any], list[Any]]] = {
    "simplex": (C.simplex, [[0.25, 0.75], [0.0, 1.0]], [[0.5, 0.6], [1.5, -0.5]]),
    "one_hot": (C.one_hot, [[0.0, 1.0]], [[1.0, 1.0], [0.5, 0.5]]),
    "multinomial": (C.multinomial(3), [[1.0, 2.0], [1.0, 0.0]], [[2.0, 2.0], [-1.0, 1.0], [0.5, 0.5]]),
    "real_vector": (C.real_vector, [[1.0, 2.0]], [[1.0, math.nan]]),
    "lower_triangular": (C.lower_triangular, [LOW, [[-1.0, 0.0], [1.0, 1.0]]], [[[1.0, 1.0], [0.0, 1.0]]]),
    "lower_cholesky": (C.lower_cholesky, [LOW], [[[-1.0, 0.0], [1.0, 1.0]], [[1.0, 1.0], [0.0, 1.0]]]),
    "corr_cholesky": (C.corr_cholesky, [TURNED], [LOW]),
    "square": (C.square, [LOW], []),
    "symmetric": (C.symmetric, [[[1.0, 2.0], [2.0, 1.0]]], [LOW]),
    "positive_semidefinite": (C.positive_semidefinite, [[[1.0, 1.0], [1.0, 1.0]]], [[[1.0, 2.0], [2.0, 1.0]], LOW]),
    "positive_definite": (C.positive_definite, [[[2.0, 1.0], [1.0, 2.0]]], [[[1.0, 2.0], [2.0, 1.0]], LOW]),
    "cat": (C.cat([C.positive, C.real], lengths=[1, 2]), [], []),
    "stack": (C.stack([C.positive, C.real]), [], []),
}


def test_whole_and_infinite_numbers_are_checked() -> None:
    for constraint in (C.simplex, C.corr_cholesky):
        assert constraint.check(hm.eye(2, dtype="int64")).all()
        assert not constraint.check(hm.ones((2, 2), dtype="int64")).any()
    assert not C.positive_definite.check(hm.diag(hm.tensor([INF, 1.0])))


@pytest.mark.parametrize("name", OF_ARRAYS)
def test_arrays_in_a_constraint(name: str) -> None:
    constraint, inside, outside = OF_ARRAYS[name]
    if inside:
        values = hm.tensor([*inside, *outside])
        expected = [True] * len(inside) + [False] * len(outside)
        assert constraint.check(values).tolist() == hm.trace(constraint.check)(values).tolist() == expected
        assert constraint.event_dim == values.ndim - 1


def test_constraints_of_parts() -> None:
    x = hm.tensor([-1.0, -1.0, 1.0])
    assert C.cat([C.positive, C.real], lengths=[1, 2]).check(x).tolist() == [False, True, True]
    assert C.stack([C.positive, C.real, C.unit_interval]).check(x).tolist() == [False, True, True]
    assert not C.square.check(hm.ones((2, 2, 3))).any() and not C.symmetric.check(hm.ones((2, 3))).any()
    assert C.stack([C.positive, C.boolean], dim=-1).event_dim == 0 and C.stack([C.boolean]).is_discrete
    assert C.is_dependent(C.dependent) and C.is_dependent(D.Uniform.support) and not C.is_dependent(C.real)
    assert repr(C.independent(C.positive, 1)) == "IndependentConstraint(GreaterThan(lower_bound=0.0), 1)"
    assert C.interval(hm.zeros(2), 1.0) == C.interval(hm.zeros(2), 1.0) != C.interval(hm.ones(2), 1.0)


A = hm.tensor([0.5, 2.0])
EACH: dict[str, Callable[..., D.Distribution]] = {
    "Bernoulli": lambda **o: D.Bernoulli(A / 4, **o),
    "Beta": lambda **o: D.Beta(A, 2.0, **o),
    "Binomial": lambda **o: D.Binomial(3, A / 4, **o),
    "Categorical": lambda **o: D.Categorical(A, **o),
    "Cauchy": lambda **o: D.Cauchy(A, 1.0, **o),
    "Chi2": lambda **o: D.Chi2(A, **o),
    "ContinuousBernoulli": lambda **o: D.ContinuousBernoulli(A / 4, **o),
    "Dirichlet": lambda **o: D.Dirichlet(A, **o),
    "Exponential": lambda **o: D.Exponential(A, **o),
    "FisherSnedecor": lambda **o: D.FisherSnedecor(A, 2.0, **o),
    "Gamma": lambda **o: D.Gamma(A, 2.0, **o),
    "GeneralizedPareto": lambda **o: D.GeneralizedPareto(0.0, A, -0.5, **o),
    "Geometric": lambda **o: D.Geometric(A / 4, **o),
    "Gumbel": lambda **o: D.Gumbel(A, 2.0, **o),
    "HalfCauchy": lambda **o: D.HalfCauchy(A, **o),
    "HalfNormal": lambda **o: D.HalfNormal(A, **o),
    "Independent": lambda **o: D.Independent(D.Exponential(A), 1, **o),
    "InverseGamma": lambda **o: D.InverseGamma(A, 2.0, **o),
    "Kumaraswamy": lambda **o: D.Kumaraswamy(A, 2.0, **o),
    "LKJCholesky": lambda **o: D.LKJCholesky(3, A, **o),
    "Laplace": lambda **o: D.Laplace(A, 2.0, **o),
    "LogNormal": lambda **o: D.LogNormal(A, 2.0, **o),
    "LogisticNormal": lambda **o: D.LogisticNormal(A, 1.0, **o),
    "LowRankMultivariateNormal": lambda **o: D.LowRankMultivariateNormal(A, hm.ones((2, 1)), A, **o),
    "MixtureSameFamily": lambda **o: D.MixtureSameFamily(D.Categorical(A), D.Exponential(A), **o),
    "Multinomial": lambda **o: D.Multinomial(3, A, **o),
    "MultivariateNormal": lambda **o: D.MultivariateNormal(A, hm.eye(2), **o),
    "NegativeBinomial": lambda **o: D.NegativeBinomial(2.5, A / 4, **o),
    "Normal": lambda **o: D.Normal(A, 2.0, **o),
    "OneHotCategorical": lambda **o: D.OneHotCategorical(A, **o),
    "OneHotCategoricalStraightThrough": lambda **o: D.OneHotCategoricalStraightThrough(A, **o),
    "Pareto": lambda **o: D.Pareto(A, 2.0, **o),
    "Poisson": lambda **o: D.Poisson(A, **o),
    "RelaxedBernoulli": lambda **o: D.RelaxedBernoulli(0.5, A / 4, **o),
    "RelaxedOneHotCategorical": lambda **o: D.RelaxedOneHotCategorical(0.5, A, **o),
    "StudentT": lambda **o: D.StudentT(A, **o),
    "TransformedDistribution": lambda **o: D.TransformedDistribution(D.Normal(A, 1.0), D.TanhTransform(), **o),
    "Uniform": lambda **o: D.Uniform(-A, A, **o),
    "VonMises": lambda **o: D.VonMises(A, 2.0, **o),
    "Weibull": lambda **o: D.Weibull(A, 2.0, **o),
    "Wishart": lambda **o: D.Wishart(A + 2, hm.eye(2), **o),
}


def test_all_distributions_are_here() -> None:
    named = {name: getattr(D, name) for name in D.__all__}
    classes = {name for name, kind in named.items() if inspect.isclass(kind) and issubclass(kind, D.Distribution)}
    assert {*EACH} == classes - {"Distribution"}


@pytest.mark.parametrize("name", EACH)
def test_draws_are_in_the_support(name: str) -> None:
    hm.manual_seed(0)
    p = EACH[name](validate_args=True)
    value = p.sample((5,))
    found = p.support.check(value)
    assert found.shape == (5, *p.batch_shape) and found.all()
    assert p.support.event_dim == len(p.event_shape)
    assert (p.log_prob(value) == EACH[name]().log_prob(value)).all()
    for key, constraint in p.arg_constraints.items():
        if not isinstance(inspect.getattr_static(type(p), key, None), property):
            assert constraint.check(getattr(p, key)).all(), key
    with pytest.raises(hm.ArgumentError, match="value must be"):
        p.log_prob(value * math.nan)
    if not p.support.is_discrete:
        to = D.transform_to(p.support)
        free = hm.randn(to.inverse_shape(value.shape)) if name != "LKJCholesky" else hm.randn((5, 2, 3))
        assert p.support.check(to(free)).all()


@pytest.mark.parametrize(
    "constraint",
    [
        C.real, C.positive, C.nonnegative, C.greater_than(-2.0), C.less_than(3.0), C.interval(-1.0, 4.0), C.simplex,
        C.unit_interval, C.half_open_interval(0.0, 2.0), C.real_vector, C.independent(C.positive, 1), C.corr_cholesky,
        C.cat([C.positive, C.real], lengths=[1, 2]), C.stack([C.positive, C.real, C.unit_interval]),
    ],
)  # fmt: skip
def test_bijections(constraint: C.Constraint) -> None:
    t = D.biject_to(constraint)
    assert t.bijective
    x = hm.tensor([0.3, -1.2, 0.7], dtype="float64")
    y = t(x)
    assert constraint.check(y).all()
    np.testing.assert_allclose(t.inv(y).numpy(), x.numpy(), rtol=1e-9)
    assert t.codomain.check(y).all() and t.domain.check(x).all()


def test_registries() -> None:
    class Even(C.Constraint):
        pass

    with pytest.raises(NotImplementedError, match=r"Even\(\)"):
        D.transform_to(Even())
    with pytest.raises(NotImplementedError):
        D.biject_to(C.positive_definite)
    table = D.constraint_registry.ConstraintRegistry()
    table.register(Even, lambda c: D.AffineTransform(0.0, 2.0))
    assert table(Even())(1.0).item() == 2.0
    with pytest.raises(TypeError, match="a constraint or a class"):
        table.register(3, lambda c: D.identity_transform)


TENSORS: dict[str, tuple[str, Callable[[], Any]]] = {
    "scale": ("Normal: scale must be above 0, got", lambda: D.Normal(0.0, hm.tensor([1.0, -1.0]), validate_args=True)),
    "shares": ("probs must be in Simplex", lambda: D.Multinomial(2, hm.tensor([-1.0, 2.0]), validate_args=True)),
    "vector": ("concentration must be above 0", lambda: D.Dirichlet(hm.tensor([1.0, -1.0]), validate_args=True)),
    "temperature": (
        "temperature must be above 0",
        lambda: D.RelaxedOneHotCategorical(hm.tensor(-1.0), A, validate_args=True),
    ),
    "matrix": (
        "MultivariateNormal: covariance_matrix must be in PositiveDefinite",
        lambda: D.MultivariateNormal(A, hm.tensor([[2.0, 1.0], [0.0, 2.0]]), validate_args=True),
    ),
    "bounds": ("low must be below 1", lambda: D.Uniform(2.0, 1.0, validate_args=True)),
    "inner": ("Gamma: rate must be above 0", lambda: D.Independent(D.Gamma(A, -A), 1, validate_args=True)),
    "value": ("value must be 0 or 1", lambda: D.Bernoulli(0.5, validate_args=True).log_prob(0.5)),
    "expanded": ("value must be 0 or more", lambda: D.Exponential(1.0, validate_args=True).expand((2,)).log_prob(-1.0)),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_are_checked_where_asked(name: str) -> None:
    message, call = TENSORS[name]
    with pytest.raises(hm.ArgumentError, match=message):
        call()
    with pytest.raises(hm.ArgumentError, match=message):
        hm.trace(call)()


def test_what_is_computed_is_not_checked() -> None:
    for far, kind in ((-200.0, D.Geometric), (20.0, lambda **o: D.NegativeBinomial(2.0, **o))):
        p = kind(logits=hm.tensor([far]), validate_args=True)
        assert not type(p).arg_constraints["probs"].check(p.probs).any()
        with pytest.raises(hm.ArgumentError, match="logits must be a number"):
            kind(logits=hm.tensor([INF, math.nan]), validate_args=True)


def test_checks_by_default() -> None:
    D.Normal(0.0, hm.tensor(-1.0))
    assert D.Exponential(1.0).log_prob(-1.0).item() == -INF
    D.Distribution.set_default_validate_args(True)
    try:
        with pytest.raises(hm.ArgumentError, match="scale must be"):
            D.Normal(0.0, hm.tensor(-1.0))
        D.Normal(0.0, hm.tensor(-1.0), validate_args=False)
    finally:
        D.Distribution.set_default_validate_args(False)
    assert str(inspect.signature(D.Exponential)).startswith("(rate: 'Any', *, validate_args:")


@pytest.mark.parametrize(
    ("names", "said"), [(("domain", "codomain"), C.real_vector), (("domain_event_dim", "codomain_event_dim"), 1)]
)
def test_a_flow_of_vectors_says_its_axes(names: tuple[str, str], said: Any) -> None:
    """A transform of vectors says so by constraints of its class, as in PyTorch, or by numbers of axes."""

    class Swap(D.Transform):
        bijective = True

        def _call(self, x: hm.Tensor) -> hm.Tensor:
            return hm.flip(x, axis=-1) * 2

        def _inverse(self, y: hm.Tensor) -> hm.Tensor:
            return hm.flip(y, axis=-1) / 2

        def log_abs_det_jacobian(self, x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
            return hm.full(x.shape[:-1], 2 * math.log(2.0))

    for name in names:
        setattr(Swap, name, said)
    p = D.TransformedDistribution(D.Normal(hm.zeros(2), 1.0), [Swap(), Swap()])
    assert p.event_shape == (2,) and p.support == C.real_vector
    expected = D.Normal(0.0, 4.0).log_prob(hm.tensor([1.0, 2.0])).sum()
    assert p.log_prob(hm.tensor([1.0, 2.0])).item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_distribution_as_users_of_pytorch_write_it() -> None:
    class Triangle(D.Distribution):
        arg_constraints = {"width": C.positive}  # noqa: RUF012
        has_rsample = True

        def __init__(self, width: hm.Tensor, validate_args: bool | None = None, **more: Any) -> None:
            self.width = width
            super().__init__(width.shape, validate_args=validate_args)

        @C.dependent_property(is_discrete=False, event_dim=0)
        def support(self) -> C.Constraint:
            return C.interval(-self.width, self.width)

        def rsample(self, sample_shape: Any = (), **_: Any) -> hm.Tensor:
            shape = self._extended_shape(sample_shape)
            return (hm.rand(shape) - hm.rand(shape)) * self.width

        def log_prob(self, value: Any) -> hm.Tensor:
            return hm.log(self.width - hm.abs(value)) - 2 * hm.log(self.width)

    p = Triangle(hm.tensor([1.0, 2.0]), validate_args=True)
    draws = p.rsample((7,))
    assert draws.shape == (7, 2) and p.support.check(draws).all() and p.log_prob(draws).shape == (7, 2)
    assert C.is_dependent(Triangle.support) and [*inspect.signature(Triangle).parameters][-2:] == [
        "validate_args",
        "more",
    ]
    with pytest.raises(hm.ArgumentError, match="width must be above 0"):
        Triangle(hm.tensor(-1.0), validate_args=True)
    with pytest.raises(hm.ArgumentError, match="value must be from"):
        p.log_prob(5.0)

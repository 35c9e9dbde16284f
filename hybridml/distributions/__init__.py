"""Probability distributions with PyTorch's names: samples, densities, moments, transforms and divergences.

Parameters are numbers or tensors, which broadcast to the `batch_shape`; `sample(n)` puts axes in front of it, and
`log_prob` takes what broadcasts with it. Everything is made of operations, so it traces and differentiates; `rsample`
gives numbers with gradients of the parameters. Parameters that are Python numbers are checked (ArgumentError),
tensors with ``validate_args=True``.

distribution.py  what all have in common
continuous.py    of real numbers
heavy_tails.py   of real numbers, with heavier tails than the normal distribution's
positive.py      of positive numbers
bounded.py       of shares and angles
discrete.py      of whole numbers and categories
counts.py        of counts of events
one_hot.py       of categories as vectors, and their smooth relatives
vectors.py       Dirichlet, multivariate normal
matrices.py      of matrices, and normal vectors with a covariance of low rank
transforms/      invertible functions with Jacobians
transformed.py   of transformed numbers; batches as events
mixtures.py      mixtures
constraints.py   sets of the values of parameters and draws
constraint_registry.py  transforms of free numbers to those
divergence.py    the table of divergences
divergences_within.py   formulas for two of one family
divergences_between.py  formulas for two of different families, by moments
"""

from ..core.spellings import advise as _advise
from . import constraint_registry as constraint_registry
from . import constraints as constraints
from . import divergences_between as divergences_between  # formulas register themselves
from . import divergences_within as divergences_within  # after those by moments
from . import transforms as transforms
from .bounded import ContinuousBernoulli, Kumaraswamy, LogisticNormal, VonMises
from .constraint_registry import biject_to, transform_to
from .continuous import Beta, Exponential, Gamma, Laplace, Normal, Uniform
from .counts import Binomial, Geometric, Multinomial, NegativeBinomial
from .discrete import Bernoulli, Categorical, Poisson
from .distribution import Distribution
from .divergence import kl_divergence, register_kl
from .heavy_tails import Cauchy, GeneralizedPareto, Gumbel, Pareto, StudentT
from .matrices import LKJCholesky, LowRankMultivariateNormal, Wishart
from .mixtures import MixtureSameFamily
from .one_hot import OneHotCategorical, OneHotCategoricalStraightThrough, RelaxedBernoulli, RelaxedOneHotCategorical
from .positive import Chi2, FisherSnedecor, HalfCauchy, HalfNormal, InverseGamma, LogNormal, Weibull
from .transformed import Independent, TransformedDistribution
from .transforms import (
    AbsTransform,
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StackTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)
from .vectors import Dirichlet, MultivariateNormal

__all__ = [
    "AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "CatTransform", "Categorical", "Cauchy", "Chi2",
    "ComposeTransform", "ContinuousBernoulli", "CorrCholeskyTransform", "CumulativeDistributionTransform", "Dirichlet",
    "Distribution", "ExpTransform", "Exponential", "FisherSnedecor", "Gamma", "GeneralizedPareto", "Geometric",
    "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "IndependentTransform", "InverseGamma", "Kumaraswamy",
    "LKJCholesky", "Laplace", "LogNormal", "LogisticNormal", "LowRankMultivariateNormal", "LowerCholeskyTransform",
    "MixtureSameFamily", "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical",
    "OneHotCategoricalStraightThrough", "Pareto", "Poisson", "PositiveDefiniteTransform", "PowerTransform",
    "RelaxedBernoulli", "RelaxedOneHotCategorical", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "StudentT", "TanhTransform", "Transform",
    "TransformedDistribution", "Uniform", "VonMises", "Weibull", "Wishart", "biject_to", "identity_transform",
    "kl_divergence", "register_kl", "transform_to",
]  # fmt: skip

_advise(globals())

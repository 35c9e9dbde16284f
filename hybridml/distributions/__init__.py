"""Probability distributions with PyTorch's names: samples, densities, moments and divergences.

Parameters are numbers or tensors, which broadcast to the `batch_shape`; `sample(n)` puts axes in front of it, and
`log_prob` takes what broadcasts with it. Everything is made of operations, so it traces and differentiates; `rsample`
gives numbers with gradients of the parameters. Parameters that are Python numbers are checked (ArgumentError).

distribution.py  what all have in common
continuous.py    of real numbers
discrete.py      of whole numbers and categories
vectors.py       Dirichlet, multivariate normal
divergence.py    the table of divergences
"""

from ..core.spellings import advise as _advise
from .continuous import Beta, Exponential, Gamma, Laplace, Normal, Uniform
from .discrete import Bernoulli, Categorical, Poisson
from .distribution import Distribution
from .divergence import kl_divergence, register_kl
from .vectors import Dirichlet, MultivariateNormal

__all__ = [
    "Bernoulli", "Beta", "Categorical", "Dirichlet", "Distribution", "Exponential", "Gamma", "Laplace",
    "MultivariateNormal", "Normal", "Poisson", "Uniform", "kl_divergence", "register_kl",
]  # fmt: skip

_advise(globals())

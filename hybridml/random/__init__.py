"""Random numbers that are equal in every style: distributions over the bits of a counter-based generator.

Every function takes `generator=` (the default one otherwise) and exists as a method of `Generator`. `shape` is the
shape of the result, `size` another name of it; without one it is that to which the parameters broadcast. `dtype` is
that of the parameters or the default float; whole numbers are int64. Draws are compositions of rows: the same bits
eager, traced, and on any number of threads.

generator.py       the generator, its bits, uniform numbers of them
sampling.py        what all distributions do: checks, shapes, large draws, rejection
continuous.py      smooth functions of uniform and normal numbers
gammas.py          gamma, beta, Dirichlet, chi-squared, Student's t
counts.py          Bernoulli, Poisson, binomial, geometric
choices.py         integers, categories, permutations
"""

from ..core.spellings import advise as _advise
from .choices import categorical, choice, integers, multinomial, permutation, randint, randperm, shuffle
from .continuous import (
    cauchy,
    exponential,
    gumbel,
    laplace,
    logistic,
    lognormal,
    multivariate_normal,
    normal,
    pareto,
    rand,
    rand_like,
    randn,
    randn_like,
    rayleigh,
    standard_normal,
    truncated_normal,
    uniform,
    weibull,
)
from .continuous import rand as random
from .counts import bernoulli, binomial, geometric, poisson
from .gammas import beta, chi2, dirichlet, gamma, student_t
from .generator import Generator, bits, default_generator, default_rng, manual_seed
from .generator import manual_seed as seed

__all__ = [
    "Generator", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy", "chi2", "choice",
    "default_generator", "default_rng", "dirichlet", "exponential", "gamma", "geometric", "gumbel", "integers",
    "laplace", "logistic", "lognormal", "manual_seed", "multinomial", "multivariate_normal", "normal", "pareto",
    "permutation", "poisson", "rand", "rand_like", "randint", "randn", "randn_like", "random", "randperm", "rayleigh",
    "seed", "shuffle", "standard_normal", "student_t", "truncated_normal", "uniform", "weibull",
]  # fmt: skip

Generator.random = Generator.rand  # type: ignore[attr-defined]  # NumPy's name
_advise(globals())

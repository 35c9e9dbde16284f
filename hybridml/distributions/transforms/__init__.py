"""Invertible functions of tensors, with the logarithm of the determinant of their Jacobians.

Of a distribution they make another (`TransformedDistribution`). Names are PyTorch's, without `cache_size`.

transform.py  the base class, inverses and chains
elementwise.py  functions of single numbers
simplex.py  shares and matrices of free numbers
parts.py  other transforms on parts of a tensor, more of its axes or another shape
"""

from .elementwise import (
    AbsTransform,
    AffineTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
)
from .parts import CatTransform, IndependentTransform, ReshapeTransform, StackTransform
from .simplex import (
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SoftmaxTransform,
    StickBreakingTransform,
)
from .transform import ComposeTransform, Transform, identity_transform

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
    "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform",
    "identity_transform",
]  # fmt: skip

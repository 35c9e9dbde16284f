"""Linear algebra with gradients: the array API standard's `linalg`, and what NumPy, SciPy and PyTorch have beside it.

LAPACK computes factorisations, eagerly and in traced programs; everything is differentiable any number of times, for
batches and complex matrices too. What LAPACK refuses, as a singular matrix that is to be inverted, raises
`LinAlgError`, which is also NumPy's.
"""

from hybridml_compiler.errors import LinAlgError

from .factorizations import (
    EighResult,
    EigResult,
    LUResult,
    QRResult,
    SVDResult,
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    lu,
    qr,
    svd,
    svdvals,
)
from .functions import SlogdetResult, det, matrix_exp, matrix_power, matrix_rank, slogdet, trace
from .norms import cond, matrix_norm, norm, vector_norm
from .products import cross, diagonal, matmul, matrix_transpose, multi_dot, outer, tensordot, vecdot
from .systems import LstsqResult, inv, lstsq, pinv, solve, solve_triangular, tensorinv, tensorsolve

__all__ = [
    "EigResult", "EighResult", "LUResult", "LinAlgError", "LstsqResult", "QRResult", "SVDResult", "SlogdetResult",
    "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "lu",
    "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm",
    "outer", "pinv", "qr", "slogdet", "solve", "solve_triangular", "svd", "svdvals", "tensordot", "tensorinv",
    "tensorsolve", "trace", "vecdot", "vector_norm",
]  # fmt: skip

"""Linear algebra with gradients: the array API standard's `linalg`, and what NumPy, SciPy and PyTorch have beside it.

LAPACK computes factorisations, eagerly and in traced programs; everything is differentiable any number of times, for
batches and complex matrices too. What LAPACK refuses, as a singular matrix that is to be inverted, raises
`LinAlgError`, which is also NumPy's.
"""

from hybridml_compiler.errors import LinAlgError

from ..core.spellings import accept, advise
from .factored import (
    LUFactors,
    TriangularResult,
    cholesky_inverse,
    cholesky_solve,
    lu_factor,
    lu_solve,
    lu_unpack,
    pinverse,
    triangular_solve,
)
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
from .indefinite import LDLFactors, LDLFactorsEx, ldl_factor, ldl_factor_ex, ldl_solve
from .norms import cond, dist, matrix_norm, norm, renorm, vector_norm
from .products import cross, diagonal, matmul, matrix_transpose, multi_dot, outer, tensordot, vecdot
from .systems import LstsqResult, inv, lstsq, pinv, solve, solve_triangular, tensorinv, tensorsolve

__all__ = [
    "EigResult", "EighResult", "LDLFactors", "LDLFactorsEx", "LUFactors", "LUResult", "LinAlgError", "LstsqResult",
    "QRResult", "SVDResult", "SlogdetResult", "TriangularResult", "cholesky", "cholesky_inverse", "cholesky_solve",
    "cond", "cross", "det", "diagonal", "dist", "eig", "eigh", "eigvals", "eigvalsh", "inv", "ldl_factor",
    "ldl_factor_ex", "ldl_solve", "lstsq", "lu", "lu_factor", "lu_solve", "lu_unpack", "matmul", "matrix_exp",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer", "pinv", "pinverse",
    "qr", "renorm", "slogdet", "solve", "solve_triangular", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve",
    "trace", "triangular_solve", "vecdot", "vector_norm",
]  # fmt: skip

accept(globals(), __all__)

advise(globals())

"""Parametrizations that are there: weights of given length, of largest singular value 1, and orthogonal ones."""

from __future__ import annotations

from typing import Literal, TypeVar, get_args

from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.ops.shapes import axis_index

from ... import arrays as xp
from ... import linalg, random
from ...core.context import no_grad, placed
from ...core.tensor import Tensor
from ...functional.distances import normalize as unit
from ...linalg.operands import described
from ..convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..module import Module
from .computed import tensor_of
from .parametrize import is_parametrized, register_parametrization

M = TypeVar("M", bound=Module)
OrthogonalMap = Literal["matrix_exp", "cayley", "householder"]


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Makes a module learn the length and the direction of a weight apart: ``g * v / |v|`` (Salimans and Kingma 2016).

    The lengths, ``parametrizations.weight.original0``, are of the slices of axis `dim`, or of all of the weight for
    None and -1, as in PyTorch; ``original1`` is v. State dicts of `nn.utils.weight_norm` can be loaded. The module is
    changed and given back; ArgumentError if it has no such parameter, or has a parametrization on it.

    >>> layer = weight_norm(hm.nn.Linear(3, 4))
    >>> {name: tensor.shape for name, tensor in layer.named_parameters() if name != "bias"}
    {'parametrizations.weight.original0': (4, 1), 'parametrizations.weight.original1': (4, 3)}
    """
    if is_parametrized(module, name):
        raise ArgumentError(f"weight_norm: takes two tensors, so it has to be the first parametrization on {name!r}")
    weight = _weight(module, name, "weight_norm")
    if dim is not None:
        axis_index("weight_norm", dim, described(weight))
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> M:
    """Divides a weight by its largest singular value, found by power iteration (Miyato et al. 2018).

    The weight is a matrix of the slices of axis `dim` (0; 1 for transposed convolutions) as rows; a vector is divided
    by its length. Each reading of the weight in training moves the singular vectors on by `n_power_iterations`. The
    module is changed and given back; ArgumentError if it has no such parameter or for no iterations, AxisError
    for an axis that is not there.

    >>> layer = spectral_norm(hm.nn.Linear(3, 4))
    >>> [name for name in layer.state_dict() if name != "bias"]
    ['parametrizations.weight.original', 'parametrizations.weight.0._u', 'parametrizations.weight.0._v']
    """
    weight = _weight(module, name, "spectral_norm")
    axis = output_axis(module) if dim is None else dim
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, axis, eps))


def orthogonal(
    module: M, name: str = "weight", orthogonal_map: OrthogonalMap | None = None, *, use_trivialization: bool = True
) -> M:
    """Keeps a weight (..., m, n) orthogonal: its columns orthonormal, or its rows where there are fewer of them.

    orthogonal_map: "matrix_exp" or "cayley" of a skew-symmetric matrix, or a product of "householder" reflections; None
    is "matrix_exp" for square and complex weights, "householder" for others. With `use_trivialization` the
    weight is multiplied by a fixed matrix, the buffer ``parametrizations.weight[0].base`` (Lezcano Casado 2019), and
    begins as it is, made orthogonal by QR; without, only "householder" does and can be assigned. The
    module is changed and given back. Raises ArgumentError for other maps, a name that it has not, less than two axes,
    and complex reflections.

    >>> layer = orthogonal(hm.nn.Linear(3, 5))
    >>> bool(hm.allclose(layer.weight.T @ layer.weight, hm.eye(3), atol=1e-5))
    True
    """
    weight = _weight(module, name, "orthogonal")
    if weight.ndim < 2:
        raise ArgumentError(f"orthogonal: takes a matrix or a batch of matrices, got a tensor of shape {weight.shape}")
    is_complex = weight.dtype.kind == "c"
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if is_complex or weight.shape[-2] == weight.shape[-1] else "householder"
    if orthogonal_map not in get_args(OrthogonalMap):
        known = ", ".join(map(repr, get_args(OrthogonalMap)))
        raise ArgumentError(f"orthogonal: orthogonal_map is one of {known}, got {orthogonal_map!r}")
    if is_complex and orthogonal_map == "householder":
        raise ArgumentError("orthogonal: the map 'householder' does not take complex weights")
    return register_parametrization(module, name, _Orthogonal(weight, orthogonal_map, use_trivialization), unsafe=True)


def _weight(module: Module, name: str, what: str) -> Tensor:
    """A parameter or buffer, as it is now; ArgumentError where there is none."""
    if is_parametrized(module, name):
        with no_grad():
            found: Tensor = getattr(module, name)
        return found
    return tensor_of(module, name, what, ("parameter", "buffer", "transient")).detach()


class _WeightNorm(Module):
    """``g * v / |v|``: (n, 1, ...) and (n, ...) -> (n, ...)."""

    older_suffixes = ("_g", "_v")

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return scaled(weight_g, weight_v, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return length(weight, self.dim), weight


class _SpectralNorm(Module):
    """A weight divided by its largest singular value: (...) -> (...)."""

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        checked_iterations(n_power_iterations)
        self.dim = axis_index("spectral_norm", dim, described(weight))
        self.eps = eps
        if weight.ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = rows_of(weight, self.dim)
            for name, vector in zip(("_u", "_v"), random_vectors(matrix, eps), strict=True):
                self.register_buffer(name, vector)
            self._moved(matrix, 15)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return unit(weight, dim=0, eps=self.eps)
        matrix = rows_of(weight, self.dim)
        u, v = self._moved(matrix, self.n_power_iterations) if self.training else (self._u, self._v)
        return weight / singular_value(u, matrix, v)

    def right_inverse(self, value: Tensor) -> Tensor:
        return value

    def _moved(self, matrix: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
        return power_iterations(matrix.detach().mH, self._u, self._v, iterations, self.eps)  # from v, as PyTorch


class _Orthogonal(Module):
    """An orthogonal matrix for any: (..., m, n) -> (..., m, n)."""

    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: OrthogonalMap, use_trivialization: bool = True) -> None:
        super().__init__()
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        self.use_trivialization = use_trivialization
        self.register_buffer("base", None)

    @placed
    def forward(self, X: Tensor) -> Tensor:
        is_wide = X.shape[-2] < X.shape[-1]
        if is_wide:
            X = X.mT
        if self.orthogonal_map == "householder":
            found = _reflected(X)
        else:
            found = self._rotation(X)[..., : X.shape[-1]]
        if self.base is not None:
            found = self.base @ found
        return found.mT if is_wide else found

    def _rotation(self, X: Tensor) -> Tensor:
        n, k = X.shape[-2:]
        X = xp.tril(X)
        if n != k:
            X = xp.concat([X, xp.zeros((*X.shape[:-1], n - k), dtype=X.dtype)], axis=-1)
        A = X - X.mH
        if self.orthogonal_map == "matrix_exp":
            return linalg.matrix_exp(A)
        one = xp.eye(n, dtype=A.dtype)
        return linalg.solve(one - A / 2, one + A / 2)

    @placed
    def right_inverse(self, Q: Tensor) -> Tensor:
        if Q.shape != self.shape:
            raise ShapeError(f"orthogonal: the weight is of shape {self.shape}, got {Q.shape}")
        if self.base is not None and Q.dtype != self.base.dtype:
            raise ArgumentError(f"orthogonal: the weight is of dtype {self.base.dtype.name}, got {Q.dtype.name}")
        with no_grad():
            is_wide = Q.shape[-2] < Q.shape[-1]
            tall = Q.mT if is_wide else Q
            if self.use_trivialization:
                self._begin_at(tall)
                return -_eye_like(Q)
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    f"orthogonal: {self.orthogonal_map} has no inverse to assign by where use_trivialization=False"
                )
            found = _reflectors(tall)
            return found.mT if is_wide else found

    def _begin_at(self, Q: Tensor) -> None:
        """Makes the base a square orthogonal matrix whose first columns are Q, made orthogonal."""
        n, k = Q.shape[-2:]
        if n != k:
            more = random.normal((*Q.shape[:-1], n - k), dtype=Q.dtype)
            base = _made_orthogonal(xp.concat([Q, more], axis=-1))
        else:
            eps = 10.0 * n * float(xp.finfo(Q.dtype).eps)
            is_orthogonal = xp.allclose(Q.mH @ Q, xp.eye(k, dtype=Q.dtype), atol=eps)
            base = xp.where(is_orthogonal, Q, _made_orthogonal(Q))
        if self.base is None:
            self.base = base
        else:
            self.base.copy_(base)


def _eye_like(x: Tensor) -> Tensor:
    return xp.broadcast_to(xp.eye(*x.shape[-2:], dtype=x.dtype), x.shape)


def _made_orthogonal(x: Tensor) -> Tensor:
    """Q of the x = QR in which the diagonal of R is real and not negative."""
    Q, R = linalg.qr(x)
    signs = xp.sign(linalg.diagonal(R))
    return Q * xp.where(signs == 0, 1, signs)[..., None, :]


def _reflected(X: Tensor) -> Tensor:
    """The first columns of the product of reflections along the columns below the diagonal, which has their signs.

    I - V T V^H with T^-1 = striu(V^H V) + diag(V^H V) / 2 (Schreiber and Van Loan, A storage-efficient WY
    representation, 1989): products of matrices, in place of one reflection after the other.
    """
    k = X.shape[-1]
    eye = _eye_like(X)
    V = xp.tril(X, k=-1) + eye
    gram = V.mT @ V
    inverse = xp.triu(gram) - _eye_like(gram) * gram / 2
    found = eye - V @ linalg.solve_triangular(inverse, V[..., :k, :].mT, upper=True)
    return found * xp.sign(linalg.diagonal(X.detach()))[..., None, :]


def _reflectors(Q: Tensor) -> Tensor:
    """Reflections, as `_reflected` takes them, whose product is the Q of QR with a positive diagonal of R."""
    rest, columns = Q, []
    for j in range(Q.shape[-1]):
        x = rest[..., 0]
        first, norm = x[..., :1], linalg.vector_norm(x, axis=-1, keepdims=True)
        end = xp.where(first < 0, norm, -norm)
        v = xp.concat([xp.ones_like(first), x[..., 1:] / xp.where(norm > 0, first - end, 1)], axis=-1)
        onto = (v[..., None, :] @ rest) * (2 / (v * v).sum(axis=-1))[..., None, None]
        rest = (rest - v[..., :, None] * onto)[..., 1:, 1:]
        above = xp.zeros((*Q.shape[:-2], j), dtype=Q.dtype)
        columns.append(xp.concat([above, xp.where(first < 0, 1, -1).astype(Q.dtype), v[..., 1:]], axis=-1))
    return xp.stack(columns, axis=-1)


# --- norms of weights, for these and for those of `normalized` --------------------------------------------------------


def checked_iterations(count: int) -> None:
    if count < 1:
        raise ArgumentError(f"spectral_norm: n_power_iterations must be 1 or more, got {count}")


def output_axis(module: Module) -> int:
    """The axis of a weight that counts the outputs of a layer."""
    return 1 if isinstance(module, ConvTranspose1d | ConvTranspose2d | ConvTranspose3d) else 0


def length(v: Tensor, dim: int) -> Tensor:
    """Lengths of the slices of an axis, with axes of 1 in their place; of all of it () for -1."""
    if dim == -1:
        return linalg.vector_norm(v)
    return linalg.vector_norm(v, axis=tuple(k for k in range(v.ndim) if k != dim % v.ndim), keepdims=True)


def scaled(g: Tensor, v: Tensor, dim: int) -> Tensor:
    """Slices in the direction of v, of lengths g."""
    return v * (g / length(v, dim))


def rows_of(weight: Tensor, axis: int) -> Tensor:
    """The matrix with the slices of an axis as rows."""
    return xp.moveaxis(weight, axis, 0).reshape((weight.shape[axis], -1))


@placed
def random_vectors(matrix: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Vectors of length 1 for the left and the right of a matrix."""
    rows, columns = (unit(random.normal((n,), dtype=matrix.dtype), dim=0, eps=eps) for n in matrix.shape)
    return rows, columns


def power_iterations(matrix: Tensor, right: Tensor, left: Tensor, count: int, eps: float) -> tuple[Tensor, Tensor]:
    """The right and the left singular vector after so many iterations from the left one.

    They are written into those given, and returned apart from them: the next forward pass may come before the gradient
    of this one.
    """
    with no_grad():
        new = left
        for _ in range(count):
            other = unit(xp.matmul(matrix.mH, new), dim=0, eps=eps)
            new = unit(xp.matmul(matrix, other), dim=0, eps=eps)
        right.copy_(other)
        left.copy_(new)
    return other, new


def singular_value(u: Tensor, matrix: Tensor, v: Tensor) -> Tensor:
    """The singular value ``u^H matrix v`` of singular vectors."""
    found: Tensor = xp.conj(u) @ (matrix @ v)
    return found


__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

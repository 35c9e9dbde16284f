"""Indices as data: of triangles, of flattened shapes; and `select` and `choose`, which pick among tensors by them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.ops.table import OPS

from ...core.context import placed
from ...core.tensor import Tensor
from ..creation import asarray, meshgrid
from ..indexing.selecting import from_zero, lifted
from .manipulation import broadcast_arrays, stack


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, Tensor]:
    """Rows and columns of the elements of an n x m matrix (square without `m`) on and below diagonal `k`, by rows.

    Source: NumPy, JAX.

    >>> import hybridml as hm
    >>> [t.tolist() for t in hm.tril_indices(2)]
    [[0, 1, 1], [0, 0, 1]]
    """
    _check_diagonal("tril_indices", n, k)
    return _triangle(np.tri(n, m, k, dtype=bool))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, Tensor]:
    """Rows and columns of the elements of an n x m matrix on and above diagonal `k`, by rows; see `tril_indices`.

    >>> import hybridml as hm
    >>> [t.tolist() for t in hm.triu_indices(2)]
    [[0, 0, 1], [0, 1, 1]]
    """
    _check_diagonal("triu_indices", n, k)
    return _triangle(~np.tri(n, m, k - 1, dtype=bool))


def _check_diagonal(name: str, n: int, k: int) -> None:
    """Refuses PyTorch's `triu_indices(4, 4)`, which would be NumPy's diagonal 4, and so nothing, without a word."""
    if k >= n > 1:
        raise ArgumentError(
            f"{name}: diagonal {k} is outside of {n} rows; numbers of rows and columns are given by name: "
            f"{name}(row={n}, col={k}), or as {name}({n}, 0, {k})"
        )


def _triangle(mask: np.ndarray) -> tuple[Tensor, Tensor]:
    rows, columns = np.nonzero(mask)
    return asarray(rows), asarray(columns)


def unravel_index(indices: Any, shape: Sequence[int]) -> tuple[Tensor, ...]:
    """Indices of positions in a flattened tensor of `shape`, one tensor of int64 per axis.

    Source: NumPy. A position may count from the end; OutOfBoundsError for one that does not exist.

    >>> import hybridml as hm
    >>> [t.tolist() for t in hm.unravel_index(hm.tensor([5, 0]), (2, 3))]
    [[1, 0], [2, 0]]
    """
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    place = OPS["index"].fn(lifted(indices), math.prod(sizes), 0)
    found: list[Tensor] = []
    for size in reversed(sizes[1:]):
        found.append(OPS["remainder"].fn(place, size))
        place = OPS["floor_divide"].fn(place, size)
    return (place, *reversed(found)) if sizes else ()


def ravel_multi_index(multi_index: Sequence[Any], dims: Sequence[int], mode: str = "raise") -> Tensor:
    """Positions in a flattened tensor of shape `dims` for indices, one tensor per axis, which broadcast.

    `mode` says what is done with an index that does not exist: "raise" OutOfBoundsError, "wrap" or "clip".
    Source: NumPy.

    >>> import hybridml as hm
    >>> hm.ravel_multi_index((hm.tensor([1, 0]), hm.tensor([2, 0])), (2, 3)).tolist()
    [5, 0]
    """
    if mode not in ("raise", "wrap", "clip"):
        raise ArgumentError(f"ravel_multi_index: mode is 'raise', 'wrap' or 'clip', got {mode!r}")
    if len(multi_index) != len(dims):
        raise ArgumentError(f"ravel_multi_index: {len(multi_index)} indices for {len(dims)} axes")
    found: Any = None
    for axis, (given, size) in enumerate(zip(multi_index, dims, strict=True)):
        index = lifted(given)
        if mode == "raise":
            index = OPS["index"].fn(from_zero(index, size), size, axis)
        else:
            index = index % size if mode == "wrap" else OPS["clip"].fn(index, 0, size - 1)
        found = index if found is None else found * size + index
    result: Tensor = OPS["astype"].fn(found, dtypes.int64)
    return result


def cartesian_prod(*arrays: Tensor) -> Tensor:
    """All combinations of one element of each vector, a row each, the last one changing fastest. Source: PyTorch.

    One vector is given back as it is. ShapeError for tensors that are no vectors.

    >>> import hybridml as hm
    >>> hm.cartesian_prod(hm.tensor([1, 2]), hm.tensor([3, 4])).tolist()
    [[1, 3], [1, 4], [2, 3], [2, 4]]
    """
    vectors = [lifted(x) for x in arrays]
    if not vectors or any(x.ndim != 1 for x in vectors):
        raise ShapeError(f"cartesian_prod: takes vectors, got shapes {[x.shape for x in vectors]}; use ravel")
    if len(vectors) == 1:
        return vectors[0]
    return stack([x.reshape((-1,)) for x in meshgrid(*vectors, indexing="ij")], axis=1)


@placed
def combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of `r` elements of a vector, a row each, in the order of `itertools.combinations`. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.combinations(hm.tensor([1, 2, 3])).tolist()
    [[1, 2], [1, 3], [2, 3]]
    """
    x = lifted(x)
    if x.ndim != 1 or r < 0:
        raise ShapeError(f"combinations: takes a vector and r of 0 or more, got shape {x.shape} and r={r}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    chosen = np.array([*choose(range(x.shape[0]), r)], dtype=np.int64).reshape((-1, r))
    return OPS["take"].fn(x, asarray(chosen), 0)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Tensor:
    """The choice of the first condition that holds, per element, else `default`; all of them broadcast.

    Source: NumPy. Choices that are not taken get a gradient of zero.

    >>> import hybridml as hm
    >>> x = hm.tensor([1, 2, 3])
    >>> hm.select([x < 2, x < 3], [x * 10, x * 100]).tolist()
    [10, 200, 0]
    """
    if len(condlist) != len(choicelist) or not condlist:
        raise ArgumentError(
            f"select: {len(condlist)} conditions for {len(choicelist)} choices; give as many, at least 1"
        )
    found = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        found = OPS["where"].fn(condition, choice, found)
    result: Tensor = found
    return result


def choose(a: Any, choices: Sequence[Any], mode: str = "raise") -> Tensor:
    """Elements of choices[a], for each element of integers `a`; all of them broadcast. `mode` as in
    `ravel_multi_index`; indices may count from the end. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.choose(hm.tensor([1, 0]), [hm.tensor([1, 2]), hm.tensor([3, 4])]).tolist()
    [3, 2]
    """
    if mode not in ("raise", "wrap", "clip"):
        raise ArgumentError(f"choose: mode is 'raise', 'wrap' or 'clip', got {mode!r}")
    index, *wide = broadcast_arrays(lifted(a), *(lifted(choice) for choice in choices))
    if mode != "raise":
        index = index % len(wide) if mode == "wrap" else OPS["clip"].fn(index, 0, len(wide) - 1)
    table = stack(wide)
    taken = OPS["take_along_axis"].fn(table, OPS["reshape"].fn(index, (1, *index.shape)), 0)
    return OPS["reshape"].fn(taken, index.shape)


__all__ = [
    "cartesian_prod", "choose", "combinations", "ravel_multi_index", "select", "tril_indices", "triu_indices",
    "unravel_index",
]  # fmt: skip

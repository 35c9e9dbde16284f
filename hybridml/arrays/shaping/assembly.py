"""Tensors put together, taken apart and turned: `vstack`, `block`, `insert`, `hsplit`, `rot90`, `diag`, ..."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, OutOfBoundsError, ShapeError
from hybridml_compiler.ops.table import OPS

from ...core import ops
from ...core.context import placed
from ...core.tensor import Tensor
from .manipulation import _axis, _tensor, expand_dims, swapaxes, tile

_reshape, _concat, _flip, _where = (OPS[name] for name in ("reshape", "concat", "flip", "where"))


def _arange(n: int) -> Tensor:
    return ops.arange(start=0, stop=n, step=1, dtype=dtypes.int64)


# -- more axes


def _each(at_least: Any, xs: tuple[Any, ...]) -> Any:
    found = tuple(at_least(_tensor(x)) for x in xs)
    return found[0] if len(found) == 1 else found


def atleast_1d(*arrays: Tensor) -> Any:
    """Each tensor with at least one axis; one tensor for one, a tuple for several. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.atleast_1d(hm.tensor(1.0)).shape
    (1,)
    """
    return _each(lambda x: x if x.ndim else _reshape(x, (1,)), arrays)


def atleast_2d(*arrays: Tensor) -> Any:
    """Each tensor with at least two axes, new ones in front. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.atleast_2d(hm.tensor([1.0, 2.0])).shape
    (1, 2)
    """
    return _each(lambda x: x if x.ndim > 1 else _reshape(x, (1,) * (2 - x.ndim) + x.shape), arrays)


def atleast_3d(*arrays: Tensor) -> Any:
    """Each tensor with at least three axes: (n,) becomes (1, n, 1), (m, n) becomes (m, n, 1). Source: NumPy.

    >>> import hybridml as hm
    >>> hm.atleast_3d(hm.tensor([1.0, 2.0])).shape
    (1, 2, 1)
    """
    return _each(lambda x: x if x.ndim > 2 else expand_dims(atleast_2d(x), 2), arrays)


def ravel(x: Tensor, /) -> Tensor:
    """The elements along one axis, in row-major order.

    >>> import hybridml as hm
    >>> hm.ravel(hm.tensor([[1, 2], [3, 4]])).tolist()
    [1, 2, 3, 4]
    """
    return _reshape(_tensor(x), (-1,)) if _tensor(x).numel() else _reshape(_tensor(x), (0,))


# -- together


def _sequence(name: str, arrays: Any) -> list[Tensor]:
    xs = [_tensor(x) for x in arrays]
    if not xs:
        raise ShapeError(f"{name}: needs at least one tensor")
    return xs


def hstack(arrays: Sequence[Tensor], /, *, dtype: Any = None) -> Tensor:
    """Tensors side by side: along axis 1, vectors along axis 0.

    >>> import hybridml as hm
    >>> hm.hstack([hm.tensor([1, 2]), hm.tensor([3])]).tolist()
    [1, 2, 3]
    """
    xs = [atleast_1d(x) for x in _sequence("hstack", arrays)]
    return _cast(_concat(xs, axis=0 if xs[0].ndim == 1 else 1), dtype)


def vstack(arrays: Sequence[Tensor], /, *, dtype: Any = None) -> Tensor:
    """Tensors one above the other: along axis 0, vectors as rows.

    >>> import hybridml as hm
    >>> hm.vstack([hm.tensor([1, 2]), hm.tensor([3, 4])]).tolist()
    [[1, 2], [3, 4]]
    """
    return _cast(_concat([atleast_2d(x) for x in _sequence("vstack", arrays)], axis=0), dtype)


def dstack(arrays: Sequence[Tensor], /) -> Tensor:
    """Tensors behind each other: along axis 2, see `atleast_3d`.

    >>> import hybridml as hm
    >>> hm.dstack([hm.tensor([1, 2]), hm.tensor([3, 4])]).tolist()
    [[[1, 3], [2, 4]]]
    """
    return _concat([atleast_3d(x) for x in _sequence("dstack", arrays)], axis=2)


def column_stack(arrays: Sequence[Tensor], /) -> Tensor:
    """Vectors as columns and matrices as they are, side by side.

    >>> import hybridml as hm
    >>> hm.column_stack([hm.tensor([1, 2]), hm.tensor([3, 4])]).tolist()
    [[1, 3], [2, 4]]
    """
    xs = _sequence("column_stack", arrays)
    return _concat([x if x.ndim > 1 else _reshape(x, (-1, 1)) for x in xs], axis=1)


def _cast(x: Tensor, dtype: Any) -> Tensor:
    return x if dtype is None else x.astype(dtype, copy=False)


def block(arrays: Any, /) -> Tensor:
    """A tensor from nested lists of blocks: the innermost lists along the last axis, the next ones along that before.

    Source: NumPy. Raises ShapeError where blocks do not fit together.

    >>> import hybridml as hm
    >>> a = hm.tensor([[1.0]])
    >>> hm.block([[a, 2 * a], [3 * a, 4 * a]]).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    depth = _depth(arrays)
    ndim = max(depth, max(x.ndim for x in _leaves(arrays)))
    return _assembled(arrays, ndim - depth, ndim)


def _depth(arrays: Any) -> int:
    depths = {_depth(x) for x in arrays} if isinstance(arrays, list) else {-1}
    if len(depths) != 1:
        raise ShapeError("block: the lists are nested to different depths, or one is empty")
    return depths.pop() + 1


def _leaves(arrays: Any) -> list[Tensor]:
    return [x for part in arrays for x in _leaves(part)] if isinstance(arrays, list) else [_tensor(arrays)]


def _assembled(arrays: Any, axis: int, ndim: int) -> Tensor:
    if isinstance(arrays, list):
        return _concat([_assembled(x, axis + 1, ndim) for x in arrays], axis=axis)
    x = _tensor(arrays)
    return _reshape(x, (1,) * (ndim - x.ndim) + x.shape)


@placed
def block_diag(*arrays: Tensor) -> Tensor:
    """Matrices along the diagonal of one, with zeros elsewhere; vectors and numbers count as one row. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.block_diag(hm.tensor([[1, 2]]), hm.tensor(3)).tolist()
    [[1, 2, 0], [0, 0, 3]]
    """
    blocks = [atleast_2d(x) for x in arrays] or [ops.full(shape=(1, 0), value=0.0)]
    if any(x.ndim > 2 for x in blocks):
        raise ShapeError(f"block_diag: takes matrices, got shapes {', '.join(str(x.shape) for x in blocks)}")
    width, left, rows = sum(x.shape[1] for x in blocks), 0, []
    for x in blocks:
        rows.append(ops.pad(x, ((0, 0), (left, width - left - x.shape[1]))))
        left += x.shape[1]
    return _concat(rows, axis=0)


def append(x: Tensor, values: Any, /, axis: int | None = None) -> Tensor:
    """x with values behind its elements along an axis; both flattened without one.

    >>> import hybridml as hm
    >>> hm.append(hm.tensor([1, 2]), [3]).tolist()
    [1, 2, 3]
    """
    x, values = _tensor(x), _tensor(values)
    return _concat([ravel(x), ravel(values)], axis=0) if axis is None else _concat([x, values], axis=axis)


def _places(name: str, obj: Any, n: int, most: int) -> np.ndarray:
    """Places along an axis of size n as values, since they decide the size of the result: not negative, in bounds."""
    if isinstance(obj, slice):
        return np.arange(*obj.indices(n))
    found = np.asarray(obj.tolist() if isinstance(obj, Tensor) else obj)
    if found.dtype.kind == "b":
        return np.flatnonzero(found)
    found = found.astype(np.int64) if found.size == 0 else found
    wrong = found[(found < -n) | (found > most)]
    if wrong.size:
        raise OutOfBoundsError(f"{name}: place {wrong.flat[0]} is out of bounds for an axis of size {n}")
    return np.where(found < 0, found + n, found)


@placed
def delete(x: Tensor, obj: Any, /, axis: int | None = None) -> Tensor:
    """x without the elements at the places `obj` (an integer, a slice, a sequence, a mask) of an axis.

    Source: NumPy. The values of `obj` decide a size: in a traced function they are asked for. OutOfBoundsError.

    >>> import hybridml as hm
    >>> hm.delete(hm.tensor([1, 2, 3, 4]), [0, 2]).tolist()
    [2, 4]
    """
    x = _tensor(x)
    if axis is None:
        x, axis = ravel(x), 0
    axis = _axis("delete", axis, x.ndim, x)
    keep = np.ones(x.shape[axis], bool)
    keep[_places("delete", obj, x.shape[axis], x.shape[axis] - 1)] = False
    return ops.take(x, _tensor(np.flatnonzero(keep)), axis)


@placed
def insert(x: Tensor, obj: Any, values: Any, /, axis: int | None = None) -> Tensor:
    """x with values before the places `obj` (an integer, a slice, a sequence, a mask) of an axis; they broadcast.

    Source: NumPy. The values of `obj` decide places in memory: a traced function asks for them. OutOfBoundsError.

    >>> import hybridml as hm
    >>> hm.insert(hm.tensor([1, 2, 3]), [1, 3], hm.tensor([8, 9])).tolist()
    [1, 8, 2, 3, 9]
    """
    x, values = _tensor(x), _tensor(values).astype(_tensor(x).dtype, copy=False)
    if axis is None:
        x, axis = ravel(x), 0
    axis = _axis("insert", axis, x.ndim, x)
    n = x.shape[axis]
    places = _places("insert", obj, n, n)
    if values.ndim < x.ndim:
        values = _reshape(values, (1,) * (x.ndim - values.ndim) + values.shape)
    if places.size == 1:
        values = ops.permute_dims(values, _to(axis, x.ndim)) if places.ndim == 0 else values
        places = np.full(values.shape[axis], places.reshape(-1)[0])
    shape = tuple(places.size if k == axis else m for k, m in enumerate(x.shape))
    both = _concat([x, ops.broadcast_to(values, shape)], axis=axis)
    order = np.argsort(np.concatenate([np.arange(n) + 0.5, places]), kind="stable")
    return ops.take(both, _tensor(order), axis)


def _to(axis: int, ndim: int) -> tuple[int, ...]:
    """The order of axes that moves the first to `axis`."""
    order = list(range(1, ndim))
    order.insert(axis, 0)
    return tuple(order)


# -- apart


def array_split(x: Tensor, indices_or_sections: Any, /, axis: int = 0) -> list[Tensor]:
    """Pieces of x along an axis: so many (the first ones may be larger by one), or cut at the places. Source: NumPy.

    >>> import hybridml as hm
    >>> [t.tolist() for t in hm.array_split(hm.tensor([1, 2, 3]), 2)]
    [[1, 2], [3]]
    """
    x = _tensor(x)
    axis = _axis("array_split", axis, x.ndim, x)
    n = x.shape[axis]
    if _is_number(indices_or_sections):
        sections = int(indices_or_sections)
        if sections <= 0:
            raise ArgumentError(f"array_split: needs a positive number of pieces, got {sections}")
        each, more = divmod(n, sections)
        cuts = [k * each + min(k, more) for k in range(1, sections)]
    else:
        cuts = [int(k) for k in np.asarray(indices_or_sections)]
    lead = (slice(None),) * axis
    ends = zip([0, *cuts], [*cuts, n], strict=True)
    return [x[(*lead, slice(start, max(stop, start) if start >= 0 and stop >= 0 else stop))] for start, stop in ends]


def _is_number(indices_or_sections: Any) -> bool:
    """True for a number of pieces, an int or anything without axes; not for a list of places."""
    return isinstance(indices_or_sections, int) or getattr(indices_or_sections, "shape", None) == ()


def _equal(name: str, x: Any, indices_or_sections: Any, axis: int) -> list[Tensor]:
    x = _tensor(x)
    if x.ndim <= axis:
        raise ShapeError(f"{name}: needs at least {axis + 1} axes, got shape {x.shape}")
    if _is_number(indices_or_sections) and x.shape[axis] % int(indices_or_sections):
        raise ShapeError(f"{name}: {x.shape[axis]} elements do not make {int(indices_or_sections)} equal pieces")
    return array_split(x, indices_or_sections, axis=axis)


def hsplit(x: Tensor, indices_or_sections: Any, /) -> list[Tensor]:
    """Equal pieces along axis 1 (0 of a vector), or pieces cut at the places. Source: NumPy.

    >>> import hybridml as hm
    >>> [t.tolist() for t in hm.hsplit(hm.tensor([1, 2, 3, 4]), [1])]
    [[1], [2, 3, 4]]
    """
    return _equal("hsplit", x, indices_or_sections, min(_tensor(x).ndim - 1, 1) if _tensor(x).ndim else 0)


def vsplit(x: Tensor, indices_or_sections: Any, /) -> list[Tensor]:
    """Equal pieces along axis 0 of at least 2, or pieces cut at the places. Source: NumPy.

    >>> import hybridml as hm
    >>> len(hm.vsplit(hm.zeros((4, 2)), 2))
    2
    """
    if _tensor(x).ndim < 2:
        raise ShapeError(f"vsplit: needs at least 2 axes, got shape {_tensor(x).shape}")
    return _equal("vsplit", x, indices_or_sections, 0)


def dsplit(x: Tensor, indices_or_sections: Any, /) -> list[Tensor]:
    """Equal pieces along axis 2, or pieces cut at the places. Source: NumPy.

    >>> import hybridml as hm
    >>> len(hm.dsplit(hm.zeros((1, 2, 4)), 2))
    2
    """
    return _equal("dsplit", x, indices_or_sections, 2)


# -- turned


def fliplr(x: Tensor, /) -> Tensor:
    """The columns of x, of at least 2 axes, in reversed order.

    >>> import hybridml as hm
    >>> hm.fliplr(hm.tensor([[1, 2], [3, 4]])).tolist()
    [[2, 1], [4, 3]]
    """
    return _flip(_at_least(2, "fliplr", x), 1)


def flipud(x: Tensor, /) -> Tensor:
    """The rows of x in reversed order.

    >>> import hybridml as hm
    >>> hm.flipud(hm.tensor([[1, 2], [3, 4]])).tolist()
    [[3, 4], [1, 2]]
    """
    return _flip(_at_least(1, "flipud", x), 0)


def _at_least(ndim: int, name: str, x: Any) -> Tensor:
    x = _tensor(x)
    if x.ndim < ndim:
        raise ShapeError(f"{name}: needs at least {ndim} axes, got shape {x.shape}")
    return x


def rot90(x: Tensor, /, k: int = 1, axes: Sequence[int] = (0, 1)) -> Tensor:
    """x turned k times by 90 degrees in the plane of two axes, from the first towards the second. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.rot90(hm.tensor([[1, 2], [3, 4]])).tolist()
    [[2, 4], [1, 3]]
    """
    x = _at_least(2, "rot90", x)
    a, b = (_axis("rot90", axis, x.ndim, x) for axis in axes)
    if a == b:
        raise ShapeError(f"rot90: axes {tuple(axes)} must be two different ones")
    match k % 4:
        case 0:
            return x
        case 1:
            return swapaxes(_flip(x, b), a, b)
        case 2:
            return _flip(x, (a, b))
    return _flip(swapaxes(x, a, b), b)


# -- matrices


def tri(n: int, m: int | None = None, /, k: int = 0, dtype: Any = None) -> Tensor:
    """An n by m matrix with ones on and below diagonal k.

    >>> import hybridml as hm
    >>> hm.tri(2, 3).tolist()
    [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    """
    below = expand_dims(_arange(n), 1) >= _arange(n if m is None else m) - k
    return below.astype(dtypes.default_float() if dtype is None else dtype)


@placed
def diagflat(x: Tensor, /, k: int = 0) -> Tensor:
    """A square matrix with the elements of x, flattened, on diagonal k.

    >>> import hybridml as hm
    >>> hm.diagflat(hm.tensor([1, 2]), 1).tolist()
    [[0, 1, 0], [0, 0, 2], [0, 0, 0]]
    """
    line = ravel(x)
    n = line.size + abs(k)
    rows = ops.pad(line, ((max(-k, 0), max(k, 0)),))  # the element that stands in each row
    on = expand_dims(_arange(n), 1) == _arange(n) - k
    return _where(on, expand_dims(rows, 1), ops.full(shape=(), value=0, dtype=line.dtype))


def diag(x: Tensor, /, k: int = 0) -> Tensor:
    """Diagonal k of a matrix, or a matrix with a vector on diagonal k. ShapeError for other numbers of axes.

    >>> import hybridml as hm
    >>> hm.diag(hm.tensor([[1, 2], [3, 4]])).tolist(), hm.diag(hm.tensor([1, 2])).tolist()
    ([1, 4], [[1, 0], [0, 2]])
    """
    x = _tensor(x)
    if x.ndim == 1:
        return diagflat(x, k)
    if x.ndim != 2:
        raise ShapeError(f"diag: needs a vector or a matrix, got shape {x.shape}")
    return ops.diagonal(x, k)


@placed
def vander(x: Tensor, /, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of a vector's elements as columns, from the highest down to 0 (or up). Source: NumPy.

    >>> import hybridml as hm
    >>> hm.vander(hm.tensor([1.0, 2.0]), 3).tolist()
    [[1.0, 1.0, 1.0], [4.0, 2.0, 1.0]]
    """
    x = _tensor(x)
    if x.ndim != 1:
        raise ShapeError(f"vander: needs a vector, got shape {x.shape}")
    n = x.size if N is None else N
    powers = [ops.full(shape=x.shape, value=1, dtype=x.dtype)]
    while len(powers) < n:
        powers.append(powers[-1] * x)
    powers = powers[:n] if increasing else powers[:n][::-1]
    return _concat([expand_dims(p, 1) for p in powers], axis=1)


@placed
def resize(x: Tensor, shape: int | Sequence[int], /) -> Tensor:
    """The elements of x in another shape, repeated from the start where it has more of them. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.resize(hm.tensor([1, 2, 3]), (2, 2)).tolist()
    [[1, 2], [3, 1]]
    """
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    size = int(np.prod(shape))
    line = ravel(x)
    if size and not line.size:
        return ops.full(shape=shape, value=0, dtype=line.dtype)
    return _reshape(tile(line, (-(-size // max(line.size, 1)),))[:size], shape)


__all__ = [
    "append", "array_split", "atleast_1d", "atleast_2d", "atleast_3d", "block", "block_diag", "column_stack", "delete",
    "diag", "diagflat", "dsplit", "dstack", "fliplr", "flipud", "hsplit", "hstack", "insert", "ravel", "resize",
    "rot90", "tri", "vander", "vsplit", "vstack",
]  # fmt: skip

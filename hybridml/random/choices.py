"""Whole numbers of a range, places in a table of probabilities, orders."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError
from hybridml_compiler.ops.shapes import axis_index

from ..arrays.creation import asarray, zeros
from ..arrays.shaping.manipulation import broadcast_shapes, moveaxis
from ..core import ops
from ..core.context import no_grad
from ..core.tensor import Tensor
from .generator import Generator, bits, open_unit, shape_of, unit, words
from .sampling import Parameter, anything, common_shape, drawn, sampler, until_accepted

_LAST = -1e308


def _u64(n: int) -> Tensor:
    return asarray(np.array(n, np.uint64))


@sampler()
def randint(
    low: Any,
    high: Any = None,
    shape: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Random integers low <= n < high (0 <= n < low with one bound), each with the same probability.

    The result has `shape`, by default the one that the bounds, integers or integer tensors, broadcast to, and is int64
    unless `dtype` says otherwise; `randint(high, shape)` is as in PyTorch. 64 bits are scaled and not divided (D.
    Lemire, "Fast random integer generation in an interval", 2019): of n <= 2**32 numbers no probability is off by more
    than n / 2**64 of itself. Larger ranges are exact, by rejection. Raises DTypeError for bounds that are not
    integers, ArgumentError for an empty range or one that `dtype` does not hold; where a range of tensors is empty the
    result is low.

    >>> bool((hm.random.randint(1, 7, (100,)) <= 6).all())
    True
    >>> hm.random.randint(hm.tensor([1, 10, 100])).shape
    (3,)
    """
    if isinstance(high, tuple) and shape is None:
        high, shape = None, high
    if high is None:
        low, high = 0, low
    kind = dtypes.int64 if dtype is None else dtypes.canonical(dtype)
    if any(isinstance(bound, Tensor | np.ndarray | list) for bound in (low, high)):
        return ops.astype(_between(asarray(low), asarray(high), shape, generator), kind)
    if isinstance(low, float) or isinstance(high, float):
        raise DTypeError(f"randint: bounds must be integers, got low={low}, high={high}; use uniform for floats")
    count = high - low
    if not 0 < count <= 2**63:
        raise ArgumentError(f"randint: needs low < high and at most 2**63 values, got low={low}, high={high}")
    if kind.kind in "iu" and not np.iinfo(kind).min <= low <= high - 1 <= np.iinfo(kind).max:
        raise ArgumentError(f"randint: {kind.name} does not hold all of low={low} to high={high} (exclusive)")
    number = ops.astype(_below(count, shape_of(() if shape is None else shape), generator), dtypes.int64)
    return ops.astype(number + low if low else number, kind)


def _between(low: Tensor, high: Tensor, shape: Any, generator: Generator | None) -> Tensor:
    """Random integers between bounds that are tensors, at most 2**32 apart."""
    for bound in (low, high):
        if bound.dtype.kind not in "iu":
            raise DTypeError(f"randint: bounds must be integers, got {bound.dtype.name}; convert them with astype")
    wanted = common_shape("randint", shape, [low, high])
    low = ops.astype(low, dtypes.int64)
    count = ops.astype(ops.maximum(ops.astype(high, dtypes.int64) - low, 0), dtypes.uint64)
    return ops.astype(_scaled(count, wanted, generator), dtypes.int64) + low


def _scaled(count: Tensor, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
    high, low = (ops.astype(half, dtypes.uint64) * count for half in bits((2, *shape), generator=generator))
    return ops.bitwise_right_shift(high + ops.bitwise_right_shift(low, 32), 32)


def _below(count: int, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
    """uint64 numbers below `count`, which is known when the program is traced."""
    if 2**32 % count == 0:
        return ops.bitwise_right_shift(ops.astype(bits(shape, generator=generator), dtypes.uint64) * _u64(count), 32)
    if count <= 2**32:
        return _scaled(_u64(count), shape, generator)
    mask = _u64((1 << (count - 1).bit_length()) - 1)

    def masked() -> tuple[Tensor, Tensor]:
        n = ops.bitwise_and(words(shape, generator), mask)
        return n, n < _u64(count)

    return masked()[0] if count & (count - 1) == 0 else until_accepted(masked, shape, dtypes.uint64)


@drawn
def integers(
    low: Any,
    high: Any = None,
    shape: Any = None,
    *,
    endpoint: bool = False,
    dtype: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Random integers as of `randint`, with NumPy's `endpoint`: whether `high` itself may be drawn.

    Shape, dtype and errors are those of `randint`.

    >>> hm.random.integers(3, 3, (2,), endpoint=True).tolist()
    [3, 3]
    """
    low, high = (0, low) if high is None else (low, high)
    last = asarray(high) if isinstance(high, list) else high
    return randint(low, last + 1 if endpoint else last, shape, dtype=dtype, generator=generator)


@drawn
def permutation(x: Any, *, axis: int = 0, generator: Generator | None = None) -> Tensor:
    """Random order of 0 .. x-1 for a number x, or of the slices along `axis` of a tensor x.

    A number gives int64 (x,), a tensor a copy of the same shape and dtype. Raises AxisError where the axis does not
    exist.

    >>> hm.random.permutation(4).sum()
    Tensor(6)
    """
    if isinstance(x, Tensor | np.ndarray | list) and asarray(x).ndim:
        t = asarray(x)
        k = axis_index("permutation", axis, t.shape)
        return ops.take(t, ops.argsort(words((t.shape[k],), generator)), axis=k)
    return ops.argsort(words(shape_of(x.item() if isinstance(x, Tensor) else x), generator))


@drawn
def randperm(n: int, *, device: Any = None, generator: Generator | None = None) -> Tensor:
    """Random order of 0 .. n-1 (int64, (n,)): PyTorch's name of `permutation` of a number.

    >>> sorted(hm.random.randperm(4).tolist())
    [0, 1, 2, 3]
    """
    return permutation(n, generator=generator)


@drawn
def shuffle(x: Any, *, axis: int = 0, generator: Generator | None = None) -> Tensor:
    """Copy of the tensor `x` (...) with its slices along `axis` in random order.

    Unlike NumPy's it leaves its argument as it is. Raises AxisError where the axis does not exist.

    >>> hm.random.shuffle(hm.ones((3, 2)), axis=1).shape
    (3, 2)
    """
    return permutation(asarray(x), axis=axis, generator=generator)


@sampler(logits=anything)
def categorical(logits: Parameter, shape: Any = None, *, axis: int = -1, generator: Generator | None = None) -> Tensor:
    """Positions along `axis` of `logits`, each with probability softmax(logits) (int64).

    By the largest of logits + Gumbel numbers. `shape` is that of the result, to which the shape of `logits` without
    `axis` broadcasts (its default). Raises ShapeError where it does not, or for logits without axes.

    >>> hm.random.categorical(hm.tensor([0.0, float("-inf")]), (3,)).tolist()
    [0, 0, 0]
    """
    with no_grad():
        t = asarray(logits)
        t = t.detach() if dtypes.is_float(t.dtype) else ops.astype(t, dtypes.default_float())
        if not t.ndim:
            raise ShapeError("categorical: logits need an axis of classes, got a number; use bernoulli")
        k = axis_index("categorical", axis, t.shape)
        rows = moveaxis(t, k, -1)
        wanted = rows.shape[:-1] if shape is None else shape_of(shape)
        try:
            fits = broadcast_shapes(rows.shape[:-1], wanted) == wanted
        except ShapeError:
            fits = False
        if not fits:
            raise ShapeError(
                f"categorical: logits of shape {t.shape} do not broadcast to results of shape {wanted}; their axes but "
                "that of the classes stand at the end of it"
            )
        compute = dtypes.float64 if t.dtype is dtypes.float64 else dtypes.float32
        noise = open_unit((*wanted, rows.shape[-1]), compute, generator)
        return ops.argmax(ops.astype(rows, compute) - ops.log(-ops.log(noise)), axis=-1)


@sampler(probs=anything)
def multinomial(
    probs: Parameter, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Positions in rows of probabilities: (k,) or (n, k) -> int64 (num_samples,) or (n, num_samples).

    `probs` are numbers in proportion to the probabilities. With replacement by the inverse of their running sum;
    without, the largest of log(probs) + Gumbel numbers in order, which is equal to drawing one after another (Vieira
    2014). Raises ArgumentError if more are asked for than there are, ShapeError for `probs` of other axes.

    >>> sorted(hm.random.multinomial(hm.tensor([1.0, 2.0, 0.0, 3.0]), 3).tolist())
    [0, 1, 3]
    """
    with no_grad():
        t = asarray(probs)
        t = t.detach() if dtypes.is_float(t.dtype) else ops.astype(t, dtypes.default_float())
        if t.ndim not in (1, 2):
            raise ShapeError(f"multinomial: probs must be a vector or a matrix of rows, got shape {t.shape}")
        if num_samples < 1 or (not replacement and num_samples > t.shape[-1]):
            raise ArgumentError(
                f"multinomial: {num_samples} samples of {t.shape[-1]} categories without replacement; give "
                "replacement=True or ask for 1 to that many"
            )
        wide = ops.astype(t, dtypes.float64)
        return _with(wide, num_samples, generator) if replacement else _without(wide, num_samples, generator)


def _with(p: Tensor, count: int, generator: Generator | None) -> Tensor:
    upto = ops.cumsum(p, axis=-1)
    u = unit((*p.shape[:-1], count), dtypes.float64, generator) * upto[..., -1:]
    return ops.searchsorted(upto, u, right=True)


def _without(p: Tensor, count: int, generator: Generator | None) -> Tensor:
    noise = ops.log(-ops.log(open_unit(p.shape, dtypes.float64, generator)))
    keys = ops.maximum(ops.log(p) - noise, _LAST)  # what is impossible comes last, in its order
    return ops.argsort(keys, axis=-1, descending=True)[..., :count]


@drawn
def choice(
    a: Any,
    shape: Any = (),
    replace: bool = True,
    p: Any = None,
    *,
    axis: int = 0,
    generator: Generator | None = None,
) -> Tensor:
    """Random slices of the tensor `a` along `axis`, or random numbers below the integer `a`.

    `shape` replaces the axis in the shape of the result. `p` (the size of the axis,) gives probabilities, which are
    equal without it; ``replace=False`` draws each at most once. Raises ArgumentError for an empty `a` or too many
    draws without replacement, ShapeError for a `p` of another shape.

    >>> sorted(hm.random.choice(5, (5,), replace=False).tolist())
    [0, 1, 2, 3, 4]
    """
    table = asarray(a) if not isinstance(a, int | np.integer) else None
    wanted = shape_of(shape)
    k = 0 if table is None else axis_index("choice", axis, table.shape)
    count = int(a) if table is None else table.shape[k]
    many = math.prod(wanted)
    if count < 1:
        raise ArgumentError(f"choice: a must have at least one element to draw, got {count}")
    if not replace and many > count:
        raise ArgumentError(f"choice: {many} of {count} without replacement; give replace=True or a smaller shape")
    if p is not None:
        weights = asarray(p)
        if weights.shape != (count,):
            raise ShapeError(f"choice: p must have one probability for each of {count}, got shape {weights.shape}")
        places = multinomial(weights, many, replace, generator=generator) if many else zeros((0,), dtype="int64")
    elif replace:
        places = randint(count, shape=(many,), generator=generator)
    else:
        places = permutation(count, generator=generator)[:many]
    if table is None:
        return places.reshape(wanted)
    return ops.take(table, places, axis=k).reshape((*table.shape[:k], *wanted, *table.shape[k + 1 :]))

"""Rules by which an operation of one element becomes one of a batch: one per kind of row, and some for single rows.

A batch is the first axis of an operand. Most rules only say what the parameters are with one axis more in front:
`shifted` knows it from their names. `batched` picks the rule; a row without one runs once per element.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from hybridml_compiler.aval import Aval
from hybridml_compiler.dtypes import int64
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS

from ..nested import called
from ..tensor import Tensor
from .custom import by_rule

Params = Mapping[str, Any]


class Operand(NamedTuple):
    """An operand below: a tensor, and whether its first axis is the batch."""

    tensor: Tensor
    is_batch: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one element."""
        return self.tensor.shape[1:] if self.is_batch else self.tensor.shape


Rule = Callable[[Op, int, Sequence[Operand], Params], Any]  # an Operand among results says whether it is a batch


def batched(op: Op, size: int, operands: Sequence[Operand], params: Params) -> Any:
    """The results of an operation for all elements, the batch as their first axis, which an operand at least has."""
    rule = _RULES.get(op) or (_elementwise if stretches(op) else _BY_KIND.get(op.kind, _without_rule))
    if op.vmap is not None:
        rule = _BY_METHOD[op.vmap] if isinstance(op.vmap, str) else _custom
    return rule(op, size, operands, params)


def spread(tensor: Tensor, size: int) -> Tensor:
    """A value that all elements share as a batch; no copy."""
    seen: Tensor = OPS["broadcast_to"].fn(tensor, (size, *tensor.shape))
    return seen


# -- parts of rules


def _reshape(x: Tensor, shape: Sequence[int]) -> Tensor:
    return x if x.shape == tuple(shape) else OPS["reshape"].fn(x, tuple(shape))


def moved(x: Tensor, source: int, target: int) -> Tensor:
    """The tensor with an axis at another place; a view."""
    order = [k for k in range(x.ndim) if k != source]
    order.insert(target, source)
    return x if source == target else OPS["permute_dims"].fn(x, tuple(order))


def _full(x: Operand, size: int) -> Tensor:
    return x.tensor if x.is_batch else spread(x.tensor, size)


def _aligned(x: Operand, ndim: int) -> Tensor:
    """The operand with axes of one element after the batch, so that elements of `ndim` axes broadcast against it."""
    if not x.is_batch:
        return x.tensor
    return _reshape(x.tensor, (x.tensor.shape[0], *(1,) * (ndim - len(x.shape)), *x.shape))


def _next(value: Any, size: int) -> Any:
    return value if value is None else value + 1 if isinstance(value, int) else tuple([k + 1 for k in value])


# What a parameter is with the batch in front. `shape` is that of the result here; where it is not, rows say so.
_WITH_A_BATCH: dict[str, Callable[[Any, int], Any]] = {
    "axis": _next, "axis1": _next, "axis2": _next,
    "axes": _next,
    "starts": lambda value, size: (0, *value),
    "stops": lambda value, size: (size, *value),
    "steps": lambda value, size: (1, *value),
    "widths": lambda value, size: ((0, 0), *value),
    "shape": lambda value, size: (size, *value),
}  # fmt: skip


def shifted(params: Params, size: int, *, but: Sequence[str] = ()) -> dict[str, Any]:
    """Canonical parameters of a row for operands with the batch in front, all but those named.

    >>> shifted({"axis": (0, 2), "keepdims": False}, 8)
    {'axis': (1, 3), 'keepdims': False}
    """
    changes = {p: _WITH_A_BATCH[p](value, size) for p, value in params.items() if p in _WITH_A_BATCH and p not in but}
    return {**params, **changes}


# -- rules of kinds


def stretches(op: Op) -> bool:
    """Whether operands broadcast against each other and results have their common shape."""
    return op.kind == "elementwise" or op in _STRETCHED


_STRETCHED = frozenset(map(OPS.__getitem__, (
    "zeta", "digamma_by_order", "gammainc", "gammaincc", "gammainc_by_order", "betainc", "betainc_by_order", "gcd",
    "lcm", "ldexp", "frexp", "python_power", "python_math",
    "numpy_unary", "numpy_binary", "python_complex",
)))  # fmt: skip


def _elementwise(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    ndim = max([len(x.shape) for x in xs])
    return op.fn(*[_aligned(x, ndim) for x in xs], **params)


def _shifted(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    """The row itself, one axis further to the right; all operands have the batch."""
    return called(op, [_full(x, size) for x in xs], shifted(params, size))


def _same(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    """The row itself: it is about last axes, or has no axes among its parameters."""
    return called(op, [_full(x, size) for x in xs], params)


def _one_by_one(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    found = [called(op, [x.tensor[k] if x.is_batch else x.tensor for x in xs], params) for k in range(size)]
    if not op.results:
        return stacked(found)
    return tuple([stacked(results) for results in zip(*found, strict=True)])


def _without_rule(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    warnings.warn(f"vmap: {op.name} has no rule for batches and runs once per element, {size} times", stacklevel=2)
    return _one_by_one(op, size, xs, params)


def _custom(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    return by_rule(op, size, [x.tensor for x in xs], [x.is_batch for x in xs], params)


def _expanded(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    """The row itself, with an axis of one element for what all elements share."""
    return called(op, [x.tensor if x.is_batch else _reshape(x.tensor, (1, *x.shape)) for x in xs], params)


def _after(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    x, token = xs
    return op.fn(_full(x, size), token.tensor[0] if token.is_batch else token.tensor)


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """Elements as a batch."""
    made: Tensor = OPS["concat"].fn([_reshape(t, (1, *t.shape)) for t in tensors], axis=0)
    return made


# -- rules of rows


def _permute_dims(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    return op.fn(xs[0].tensor, (0, *[k + 1 for k in params["axes"]]))


def _broadcast_to(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    return op.fn(_aligned(xs[0], len(params["shape"])), (size, *params["shape"]))


def _slice_update(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    x, v = xs
    return op.fn(_full(x, size), _aligned(v, len(x.shape)), **shifted(params, size))


def _fold_windows(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    return op.fn(xs[0].tensor, **shifted(params, size, but=("shape",)))


def _place_of_extremum(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    if params["axis"] is not None:
        return _shifted(op, size, xs, params)
    found = op.fn(_reshape(xs[0].tensor, (size, prod(xs[0].shape))), axis=1)
    return _reshape(found, (size, *(1,) * len(xs[0].shape))) if params["keepdims"] else found


def _matmul(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    x, y = xs
    if y.is_batch and len(y.shape) == 1:  # x y = (y x^T) with y as rows
        if not x.is_batch and len(x.shape) == 2:
            return op.fn(y.tensor, OPS["permute_dims"].fn(x.tensor, (1, 0)))
        column = Operand(_reshape(y.tensor, (*y.tensor.shape, 1)), True)
        found = _matmul(op, size, (x, column), params)
        return _reshape(found, found.shape[:-1])
    if x.is_batch and len(x.shape) == 1:
        if not y.is_batch and len(y.shape) <= 2:
            return op.fn(x.tensor, y.tensor)
        row = Operand(_reshape(x.tensor, (size, 1, *x.shape)), True)
        found = _matmul(op, size, (row, y), params)
        return _reshape(found, (*found.shape[:-2], found.shape[-1]))
    if not y.is_batch and len(y.shape) == 2:  # more rows: one product
        *rows, k = x.tensor.shape
        return _reshape(op.fn(_reshape(x.tensor, (prod(rows), k)), y.tensor), (*rows, y.shape[1]))
    ndim = max(len(x.shape), len(y.shape))
    return op.fn(_aligned(x, ndim), _aligned(y, ndim))


_GROUPS = 3  # the axis of groups of the images (n, h, w, groups, c); kernels are (kh, kw, groups, c, o)


def _convolution(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    x, w = xs
    last = {**params, "channels_first": False}
    if not w.is_batch:  # more images
        n = x.shape[0]
        found = op.fn(_reshape(x.tensor, (size * n, *x.shape[1:])), w.tensor, **params)
        return _reshape(found, (size, n, *found.shape[1:]))
    kh, kw, groups, c, o = w.shape
    if not x.is_batch and groups == 1:  # more channels of results
        found = op.fn(x.tensor, _reshape(moved(w.tensor, 0, 4), (kh, kw, 1, c, size * o)), **last)
        found = _reshape(found, (*found.shape[:-1], size, o))
        return _channels(moved(found, 4, 0), params)
    images = moved(_full(x, size), 0, _GROUPS)  # more groups
    kernels = _reshape(moved(w.tensor, 0, 2), (kh, kw, size * groups, c, o))
    found = op.fn(_reshape(images, (*x.shape[:3], size * groups, c)), kernels, **last)
    return _channels(moved(_reshape(found, (*found.shape[:3], size, groups, o)), _GROUPS, 0), params)


def _channels(x: Tensor, params: Params) -> Tensor:
    """A batch of results (n, h, w, groups, o) in the order that is asked for."""
    return OPS["permute_dims"].fn(x, (0, 1, 4, 5, 2, 3)) if params["channels_first"] else x


def _take(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    x, indices = xs
    axis = params["axis"]
    if not indices.is_batch:
        return op.fn(x.tensor, indices.tensor, axis=axis + 1)
    if not x.is_batch:
        return moved(op.fn(x.tensor, indices.tensor, axis=axis), axis, 0)
    found = op.fn(_rows(x.tensor, axis), _row_numbers(indices.tensor, size, x.shape[axis], axis), axis=0)
    places = len(indices.shape)  # behind the batch; then the axes before `axis`
    order = (0, *range(1 + places, 1 + places + axis), *range(1, 1 + places), *range(1 + places + axis, found.ndim))
    return OPS["permute_dims"].fn(found, order)


def _rows(x: Tensor, axis: int) -> Tensor:
    """A batch as rows along `axis` of its elements, those of an element one after the other: (size * n, *others)."""
    front = moved(x, axis + 1, 1)
    return _reshape(front, (front.shape[0] * front.shape[1], *front.shape[2:]))


def _row_numbers(indices: Tensor, size: int, n: int, axis: int) -> Tensor:
    """Indices into the rows of the elements, each checked against its own."""
    checked = OPS["index"].fn(indices, size=n, axis=axis)
    first = OPS["arange"].fn(0, size * n, max(n, 1), dtype=int64) if n else OPS["full"].fn((size,), 0, dtype=int64)
    return checked + _reshape(first, (size, *(1,) * (indices.ndim - 1)))


def _scatter(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    x, indices, updates = xs
    axis = params["axis"]
    if not indices.is_batch:
        return op.fn(_full(x, size), indices.tensor, _full(updates, size), axis=axis + 1)
    n, places = x.shape[axis], len(indices.shape)
    rest = range(1 + axis + places, 1 + len(updates.shape))
    order = (0, *range(1 + axis, 1 + axis + places), *range(1, 1 + axis), *rest)
    rows = _rows(_full(x, size), axis)
    given = OPS["permute_dims"].fn(_full(updates, size), order)
    found = op.fn(rows, _row_numbers(indices.tensor, size, n, axis), given, axis=0)
    return moved(_reshape(found, (size, n, *found.shape[1:])), 1, axis + 1)


def _lexsort(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    return op.fn(moved(xs[0].tensor, 0, 1), axis=params["axis"] + 1)


def _searchsorted(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    places, values = xs
    if not places.is_batch and len(places.shape) == 1:
        return op.fn(places.tensor, values.tensor, **params)
    if len(places.shape) == 1:
        flat = _reshape(_full(values, size), (size, prod(values.shape)))
        return _reshape(op.fn(places.tensor, flat, **params), (size, *values.shape))
    return _same(op, size, xs, params)


def _solve(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    x, y = xs
    if len(y.shape) == 1:
        column = Operand(_reshape(y.tensor, (*y.tensor.shape, 1)), y.is_batch)
        found = _solve(op, size, (x, column), params)
        return _reshape(found, found.shape[:-1])
    ndim = max(len(x.shape), len(y.shape))
    return op.fn(_aligned(x, ndim), _aligned(y, ndim), **params)


def _pinv(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    x, rtol = xs
    return op.fn(_full(x, size), _aligned(rtol, len(x.shape) - 2))


def _together(op: Op, size: int, xs: Sequence[Operand], params: Params) -> Any:
    """One call of processes for all elements, whose axis is the last one (rows are about the first), and one token."""
    *given, token = xs
    avals = [Aval(x.shape, x.tensor.dtype) for x in xs]
    op.infer_from(avals, op.with_defaults(params))  # refuses what it does of an element
    ends = [moved(x.tensor, 0, x.tensor.ndim - 1) if x.is_batch else x.tensor for x in given]
    found = called(op, [*ends, token.tensor], params)
    if not op.results:
        return Operand(found, False)
    result, after = found
    return Operand(moved(result, result.ndim - 1, 0), True), Operand(after, False)


_BY_METHOD: dict[str, Rule] = {"sequential": _one_by_one, "expand_dims": _expanded, "broadcast_all": _same}

_BY_KIND: dict[str, Rule] = {
    "movement": _shifted, "reduction": _shifted, "scan": _shifted, "scatter": _scatter, "transfer": _same,
    "effect": _together,
}  # fmt: skip

_RULES: dict[Op, Rule] = {OPS[name]: rule for name, rule in {
    "permute_dims": _permute_dims, "broadcast_to": _broadcast_to, "slice_update": _slice_update,
    "fold_windows": _fold_windows, "argmax": _place_of_extremum, "argmin": _place_of_extremum,
    "matmul": _matmul, "convolution": _convolution, "take": _take, "take_along_axis": _shifted,
    "scatter_along_axis_add": _shifted, "index": _same, "lexsort": _lexsort, "searchsorted": _searchsorted,
    "some": _same, "after": _after, "random_bits": _one_by_one, "true_positions": _one_by_one,
    "numpy_function": _one_by_one, "solve": _solve, "solve_triangular": _solve, "pinv": _pinv,
    **dict.fromkeys(("fft_c2c", "fft_r2c", "fft_c2r", "sort", "argsort", "argtopk"), _shifted),
    **dict.fromkeys(
        ("cholesky", "lu", "qr", "svd", "svdvals", "eigh", "eigvalsh", "eig", "eigvals", "inv", "cofactor", "det",
         "slogdet", "matrix_exp", "ldl", "ldl_places"), _same,
    ),
}.items()}  # fmt: skip

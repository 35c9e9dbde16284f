"""Rows that a target may compute by a native routine: the sizes that it is told beside addresses, and its eager call.

Results are those of NumPy to rounding. A routine that refuses a matrix says so and nothing more: NumPy then computes
the same again, and raises the error that the row has for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..aval import of
from ..hooks import hooks
from ..record import record

Sizes = tuple[int, ...]


@record
class Measure:
    """Sizes for a routine, of a row's operands and parameters; None where NumPy computes them. `dtypes` are NumPy's
    characters of those that the routine takes."""

    sizes: Callable[..., Sizes | None]
    dtypes: str

    def __call__(self, *operands: Any, **params: Any) -> Sizes | None:
        return self.sizes(*operands, **params)


def _taking(dtypes: str) -> Callable[[Callable[..., Sizes | None]], Measure]:
    return lambda sizes: Measure(sizes, dtypes)


_reals, _ordered = _taking("fd"), _taking("?bBhHiIlLqQfd")

MOST_EXTREMES = 64  # of a row, which are kept in order while it is read
LONG_LINES = {"i": 1 << 16, "u": 1 << 16, "f": 1 << 20}  # elements, by the kind of a dtype
SEARCHES = 512  # values that one thread seeks
_MOST = 4096  # signatures of a row that are kept


def _stacked(x: Any) -> Sizes:
    """Number of matrices, rows, columns."""
    return math.prod(x.shape[:-2]), *x.shape[-2:]


@_reals
def of_matrices(x: Any) -> Sizes:
    """Number of matrices, rows, columns."""
    return _stacked(x)


@_reals
def of_square(x: Any) -> Sizes:
    """Number of matrices, and their size."""
    return math.prod(x.shape[:-2]), x.shape[-1]


@_reals
def of_svd(x: Any, full_matrices: bool) -> Sizes:
    """Number of matrices, rows, columns, and the parameter."""
    return *_stacked(x), int(full_matrices)


@_reals
def of_qr(x: Any, mode: str) -> Sizes:
    """Number of matrices, rows, columns, and columns of Q."""
    batch, rows, columns = _stacked(x)
    return batch, rows, columns, rows if mode == "complete" else min(rows, columns)


@_reals
def of_values(x: Any) -> Sizes | None:
    """Sizes for singular values alone."""
    return of_svd(x, False)


@_reals
def of_system(x: Any, y: Any) -> Sizes | None:
    """Number of systems, unknowns, right sides, and elements from a matrix to the next, of both operands; None where a
    batch is neither that of the result nor a single matrix."""
    n, columns = x.shape[-1], y.shape[-1] if len(y.shape) > 1 else 1
    left, right = x.shape[:-2], y.shape[:-2]
    counts = math.prod(left), math.prod(right)
    if left != right and 1 not in counts:
        return None
    return max(counts), n, columns, 0 if counts[0] == 1 else n * n, 0 if counts[1] == 1 else n * columns


@_reals
def of_triangle(x: Any, y: Any, upper: bool, unit: bool) -> Sizes | None:
    """Sizes of the system, and the parameters."""
    found = of_system(x, y)
    return None if found is None else (*found, int(upper), int(unit))


@_reals
def of_extremes(x: Any, k: int, axis: int, largest: bool) -> Sizes | None:
    """Number of rows, their size, and the parameters; None where rows do not follow each other, or many are wanted."""
    fits = axis == len(x.shape) - 1 and 0 < k <= MOST_EXTREMES
    return (math.prod(x.shape[:-1]), x.shape[-1], k, int(largest)) if fits else None


@_ordered
def of_lines(x: Any, axis: int, descending: bool) -> Sizes | None:
    """Number of lines along the axis, their size, elements from one of a line to the next, and the parameter; None
    where places have more than 32 bits."""
    n, inner = x.shape[axis], math.prod(x.shape[axis:][1:])
    return (math.prod(x.shape) // n, n, inner, int(descending)) if n < 1 << 32 else None


@_ordered
def of_long_lines(x: Any, axis: int, descending: bool) -> Sizes | None:
    """The same for values alone; None for words in lines that NumPy orders in vectors, sooner than two cores do here
    ([Note: Sorting])."""
    least = 1 if x.dtype.itemsize <= 2 else LONG_LINES[x.dtype.kind]
    return of_lines(x, axis, descending) if x.shape[axis] >= least else None


@_ordered
def of_searches(x1: Any, x2: Any, right: bool) -> Sizes:
    """Number of groups of values, size of a sorted row, values of a row, groups of them, values of a group, elements
    from a sorted row to the next, and the parameter."""
    rows = math.prod(x1.shape[:-1])
    n, size = x1.shape[-1], math.prod(x2.shape) // rows
    groups = -(-size // SEARCHES)
    return rows * groups, n, size, groups, SEARCHES, n if len(x1.shape) > 1 else 0, int(right)


@_taking("?")
def of_positions(mask: Any, count: int) -> Sizes | None:
    """Number of masks, their size, and the parameter; None where nothing is true."""
    return (1, math.prod(mask.shape), count) if count else None


def sizes(measure: Measure, operands: Sequence[Any], params: dict[str, Any]) -> Sizes | None:
    """Sizes for the routine of a row; None where there is none for these operands."""
    dtype = operands[0].dtype
    if dtype.char not in measure.dtypes or any([x.dtype.char != dtype.char or 0 in x.shape for x in operands]):
        return None
    return measure(*operands, **params)


def has_routine(op: Any, operands: Sequence[Any]) -> bool:
    """Whether eager and compiled code run the same routine, or both NumPy, on operands like these."""
    return op.routine is not None and operands[0].dtype.char in op.routine.dtypes


def with_routine(
    name: str, measure: Measure, infer: Callable[..., Any], eager: Callable[..., Any]
) -> Callable[..., Any]:
    """The meaning of a row, by its routine where there is one."""
    known: dict[Any, Any] = {}

    def signature(operands: Sequence[Any], params: dict[str, Any]) -> Any:
        found = sizes(measure, operands, params)
        made = () if found is None else infer(*map(of, operands), **params)
        return found, [(aval.shape, aval.dtype) for aval in (made if isinstance(made, tuple) else (made,))]

    def run(*operands: Any, **params: Any) -> Any:
        key = (*[(x.shape, x.dtype.char) for x in operands], *params.items())
        entry = known.get(key)
        if entry is None:
            if len(known) >= _MOST:
                known.clear()
            entry = known[key] = signature(operands, params)
        found, results = entry
        if found is not None:
            arrays = hooks.routine(name, operands, found, results)
            if arrays is not None:
                return arrays if len(results) > 1 else arrays[0]
        return eager(*operands, **params)

    return run

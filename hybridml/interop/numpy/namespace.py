"""Names of NumPy's that the namespace has besides those of rows: programs written for NumPy run with
`import hybridml as np`. Most run the row of NumPy's function, of tensors and of lists."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError

from ... import arrays as xp
from ...core.tensor import Tensor
from . import functions


def _row(function: Callable[..., Any], about: str, example: str, shown: str) -> Callable[..., Any]:
    """NumPy's function as one of the namespace: the row that runs in its place, with its signature."""

    def run(*args: Any, **kwargs: Any) -> Any:
        return functions.run(function, args, kwargs)

    run.__name__ = run.__qualname__ = function.__name__
    run.__doc__ = f"{about} As NumPy.\n\n>>> import hybridml as hm\n>>> {example}\n{shown}\n"
    run.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return run


apply_along_axis = _row(
    np.apply_along_axis,
    "Results of a function of one line, for the lines of a tensor along an axis.",
    "hm.apply_along_axis(lambda line: line.max() - line.min(), 1, hm.tensor([[1, 4], [2, 3]])).tolist()",
    "[3, 1]",
)
array_equiv = _row(
    np.array_equiv,
    "Whether two tensors are equal where one is broadcast to the other.",
    "hm.array_equiv([1, 2], [[1, 2], [1, 2]]).item()",
    "True",
)
compress = _row(
    np.compress,
    "Elements, or slices along an axis, where a condition holds.",
    "hm.compress([True, False], hm.tensor([[1, 2], [3, 4]]), axis=0).tolist()",
    "[[1, 2]]",
)
copy = _row(
    np.copy,
    "A tensor of its own memory with the values of another one.",
    "hm.copy(hm.tensor([1, 2])).tolist()",
    "[1, 2]",
)
diag_indices_from = _row(
    np.diag_indices_from,
    "Indices of the main diagonal of a tensor with axes of one length.",
    "x = hm.eye(2); x[hm.diag_indices_from(x)].tolist()",
    "[1.0, 1.0]",
)
extract = _row(
    np.extract,
    "Elements of the flattened tensor where a condition holds.",
    "hm.extract([True, False, True], hm.tensor([1, 2, 3])).tolist()",
    "[1, 3]",
)
flatnonzero = _row(
    np.flatnonzero,
    "Places in the flattened tensor of the elements that are not zero.",
    "hm.flatnonzero(hm.tensor([0, 3, 0, 5])).tolist()",
    "[1, 3]",
)
fromfunction = _row(
    np.fromfunction,
    "A tensor of the values of a function at the indices, one tensor of them for each axis.",
    "hm.fromfunction(lambda i, j: i * 10 + j, (2, 2), dtype=int).tolist()",
    "[[0, 1], [10, 11]]",
)
fromiter = _row(
    np.fromiter,
    "A tensor of the numbers of an iterable.",
    "hm.fromiter((n * n for n in range(3)), dtype=hm.int64).tolist()",
    "[0, 1, 4]",
)
iscomplex = _row(
    np.iscomplex,
    "Whether elements have an imaginary part that is not 0.",
    "hm.iscomplex([1 + 1j, 2]).tolist()",
    "[True, False]",
)
iscomplexobj = _row(
    np.iscomplexobj, "Whether the dtype of a tensor is complex.", "hm.iscomplexobj(hm.tensor([1j]))", "True"
)
isrealobj = _row(
    np.isrealobj, "Whether the dtype of a tensor is not complex.", "hm.isrealobj(hm.tensor([1.0]))", "True"
)
ix_ = _row(
    np.ix_,
    "A key of an index per axis, for all their combinations.",
    "hm.tensor([[1, 2], [3, 4]])[hm.ix_([1, 0], [0])].tolist()",
    "[[3], [1]]",
)
ndim = _row(np.ndim, "Number of axes of a tensor, a list or a number.", "hm.ndim([[1, 2], [3, 4]])", "2")
piecewise = _row(
    np.piecewise,
    "Values of functions, or numbers, of the elements where their conditions hold.",
    "x = hm.tensor([-1.0, 2.0]); hm.piecewise(x, [x < 0, x >= 0], [lambda v: -v, 0.0]).tolist()",
    "[1.0, 0.0]",
)
rollaxis = _row(
    np.rollaxis,
    "A tensor with an axis moved before another one.",
    "hm.rollaxis(hm.ones((2, 3, 4)), 2).shape",
    "(4, 2, 3)",
)
shape = _row(np.shape, "Lengths of the axes of a tensor, a list or a number.", "hm.shape([[1, 2, 3]])", "(1, 3)")
size = _row(np.size, "Number of elements, or the length of an axis.", "hm.size([[1, 2], [3, 4]])", "4")
tril_indices_from = _row(
    np.tril_indices_from,
    "Indices of the lower triangle of a matrix.",
    "[places.tolist() for places in hm.tril_indices_from(hm.eye(2))]",
    "[[0, 1, 1], [0, 0, 1]]",
)
trim_zeros = _row(
    np.trim_zeros,
    "A tensor without the zeros at its ends.",
    "hm.trim_zeros(hm.tensor([0, 1, 0, 2, 0])).tolist()",
    "[1, 0, 2]",
)
triu_indices_from = _row(
    np.triu_indices_from,
    "Indices of the upper triangle of a matrix.",
    "[places.tolist() for places in hm.triu_indices_from(hm.eye(2))]",
    "[[0, 0, 1], [0, 1, 1]]",
)

# -- in place

copyto = _row(
    np.copyto,
    "Writes values into a tensor, where a mask holds.",
    "x = hm.zeros(2); hm.copyto(x, [1.0, 2.0], where=[True, False]); x.tolist()",
    "[1.0, 0.0]",
)
fill_diagonal = _row(
    np.fill_diagonal,
    "Writes a value, or several in turn, to the main diagonal.",
    "x = hm.zeros((2, 2)); hm.fill_diagonal(x, 3.0); x.tolist()",
    "[[3.0, 0.0], [0.0, 3.0]]",
)
place = _row(
    np.place,
    "Writes values in turn to the elements where a mask holds.",
    "x = hm.arange(4); hm.place(x, x > 1, [9]); x.tolist()",
    "[0, 1, 9, 9]",
)
putmask = _row(
    np.putmask,
    "Writes values, each to its place, where a mask holds.",
    "x = hm.arange(3); hm.putmask(x, x > 0, [7, 8, 9]); x.tolist()",
    "[0, 8, 9]",
)


# -- data, indices and numbers


def array(
    data: Any,
    dtype: Any = None,
    *,
    copy: bool | None = True,
    ndmin: int = 0,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of its own memory with the values of `data`, and with their history, which `hm.tensor` leaves.

    `ndmin`: the least number of axes. `copy=None` copies where it must, and `copy=False` raises ArgumentError there. As
    NumPy and JAX; `requires_grad` makes it a leaf.

    >>> import hybridml as hm
    >>> hm.array([1.0, 2.0], ndmin=2).tolist()
    [[1.0, 2.0]]
    """
    x = xp.asarray(data, dtype=dtype, device=device, copy=copy or (None if copy is None else False))
    x = xp.reshape(x, (1,) * (ndmin - x.ndim) + x.shape) if x.ndim < ndmin else x
    return x.detach().requires_grad_() if requires_grad else x


def isscalar(element: Any) -> bool:
    """Whether a value is a number or a text of Python's or NumPy's, and no tensor. As NumPy.

    >>> import hybridml as hm
    >>> hm.isscalar(3.0), hm.isscalar(hm.tensor(3.0))
    (True, False)
    """
    return not isinstance(element, Tensor) and np.isscalar(element)


def ndenumerate(arr: Any) -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """Yields the index of each element, and the element, a tensor without axes. As NumPy.

    >>> import hybridml as hm
    >>> [(index, x.item()) for index, x in hm.ndenumerate([[1, 2]])]
    [((0, 0), 1), ((0, 1), 2)]
    """
    x = xp.asarray(arr)
    for index in np.ndindex(*x.shape):
        yield index, x[index]


def diag_indices(n: int, ndim: int = 2) -> tuple[Tensor, ...]:
    """Indices of the main diagonal of `ndim` axes of length `n`. As NumPy.

    >>> import hybridml as hm
    >>> hm.eye(2)[hm.diag_indices(2)].tolist()
    [1.0, 1.0]
    """
    return (xp.arange(n),) * ndim


def indices(dimensions: Any, dtype: Any = int, sparse: bool = False) -> Any:
    """The indices along each axis of a shape: one tensor of all, or with `sparse` a tuple of those that broadcast to
    them. As NumPy.

    >>> import hybridml as hm
    >>> hm.indices((2, 2)).tolist()
    [[[0, 0], [1, 1]], [[0, 1], [0, 1]]]
    """
    return _grid([xp.arange(n, dtype=dtype) for n in dimensions], sparse)


def _grid(lines: list[Any], is_open: bool) -> Any:
    if is_open:
        return tuple([xp.reshape(x, [-1 if k == j else 1 for j in range(len(lines))]) for k, x in enumerate(lines)])
    return xp.stack(xp.meshgrid(*lines, indexing="ij"))


def _line(part: slice) -> Tensor:
    """The numbers of `start:stop:step`; those of an imaginary step are so many, with the stop."""
    start, stop, step = part.start or 0, part.stop, 1 if part.step is None else part.step
    if stop is None:
        raise ArgumentError(f"an index of numbers needs an end, got {part}")
    return xp.linspace(start, stop, int(abs(step))) if isinstance(step, complex) else xp.arange(start, stop, step)


class Grid:
    """Indices by slices, as `mgrid` and `ogrid` of NumPy: `hm.mgrid[0:3, 0:1:5j]`."""

    def __init__(self, is_open: bool) -> None:
        self._is_open = is_open

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return _line(key)
        lines = [_line(part) for part in key]
        dtype = xp.result_type(*lines)
        return _grid([xp.astype(line, dtype, copy=False) for line in lines], self._is_open)


class Joined:
    """Slices of numbers, numbers and tensors one after the other, as `r_` and `c_` of NumPy: `hm.r_[1:4, 7, x]`."""

    def __init__(self, as_columns: bool) -> None:
        self._as_columns = as_columns

    def __getitem__(self, key: Any) -> Tensor:
        parts = [_line(k) if isinstance(k, slice) else k for k in (key if isinstance(key, tuple) else (key,))]
        if any(isinstance(k, str) for k in parts):
            raise ArgumentError("a text among the parts says how NumPy joins them; write hm.concat(parts, axis=axis)")
        return xp.column_stack(parts) if self._as_columns else xp.concat([xp.atleast_1d(part) for part in parts])


mgrid, ogrid = Grid(False), Grid(True)
r_, c_ = Joined(False), Joined(True)
ndindex = np.ndindex

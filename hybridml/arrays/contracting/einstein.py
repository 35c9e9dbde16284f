"""Einstein summation: any number of operands, as products of pairs in an order that costs little.

A pair is a matrix product (with batch axes), or where nothing is summed a broadcast product, so all of it runs through
the rows that fuse and differentiate. Diagonals are views; what only one operand has is summed before it meets another.
Which rows run is decided once for each expression and shapes (8x8 by 8x8: 10 us, 41 deciding every time).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.values import has_dims

from ...core.aliasing import assign
from ...core.tensor import Tensor
from ..data_types import result_type
from ..indexing.selecting import lifted
from .contraction_order import Label, Labels, cost, order_of

_reshape, _permute, _matmul, _multiply, _sum, _astype = (
    OPS[name] for name in ("reshape", "permute_dims", "matmul", "multiply", "sum", "astype")
)
_NUMBERS = (bool, int, float, complex)


def einsum(subscripts: Any, /, *operands: Any, optimize: Any = True, out: Tensor | None = None) -> Tensor:
    """Sum of products over named axes: `einsum("ij,jk->ik", x, y)` is `x @ y`.

    `subscripts` has a letter for each axis of each operand, and after `->` those of the result; without it the result
    has the letters that occur once, in alphabetical order. A letter twice in an operand is its diagonal, `...` stands
    for any axes in front, which broadcast, and so do axes of size 1. `einsum(x, [0, 1], y, [1, 2], [0, 2])` is the
    list form. `optimize` True or "optimal" finds a cheap order of the products ("greedy": a pair at a time), False
    goes from left to right, and a path of `einsum_path` is followed. The dtype is the operands' common one; sums of
    bool are logical. `out` takes the result in place. ArgumentError for subscripts that make no sense, ShapeError for
    sizes that do not fit.

    Source: NumPy; orders as Smith and Gray, opt_einsum, JOSS 2018.

    >>> import hybridml as hm
    >>> x = hm.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> hm.einsum("ij,jk->ik", x, x).tolist()
    [[7.0, 10.0], [15.0, 22.0]]
    >>> hm.einsum("ii", x).item()
    5.0
    """
    names, given = _split(subscripts, operands)
    values = [lifted(x) for x in given]
    dtype = _common(given, values)
    logical = dtype.kind == "b"
    if logical:  # counted, and compared with 0 in the end
        dtype = dtypes.int64
    values = [t if t.dtype is dtype else _astype.fn(t, dtype) for t in values]
    for op, places, params in _program(names, tuple(t.shape for t in values), dtype, _hashable(optimize)):
        values.append(op.fn(*[values[k] for k in places], *params))
    result = OPS["not_equal"].fn(values[-1], 0) if logical else values[-1]
    return result if out is None else assign(out, result, "einsum(out=)")


def einsum_path(subscripts: Any, /, *operands: Any, optimize: Any = True) -> tuple[list[Any], str]:
    """The order in which `einsum` multiplies, as NumPy's list `["einsum_path", (0, 1), ...]`, and what it costs.

    A pair of the path names two operands of those that are left; their product goes to the end of the list.

    >>> import hybridml as hm
    >>> x, y, z = hm.ones((2, 90)), hm.ones((90, 90)), hm.ones((90, 3))
    >>> path, report = hm.einsum_path("ij,jk,kl", x, y, z)
    >>> path
    ['einsum_path', (0, 1), (0, 1)]
    >>> print(report)
    multiplications by this order: 16740, all at once: 48600
    """
    names, given = _split(subscripts, operands)
    inputs, output = _named(names, [lifted(x).ndim for x in given])
    recorder = _Recorder()
    terms = [
        _single(recorder, k, lifted(x).shape, labels) for k, (x, labels) in enumerate(zip(given, inputs, strict=True))
    ]
    sizes, labels = _sizes(terms), [term.labels for term in terms]
    steps = order_of(_hashable(optimize), labels, output, sizes)
    found, every = cost(steps, labels, output, sizes)
    return ["einsum_path", *steps], f"multiplications by this order: {found}, all at once: {every}"


# -- what is asked


def _split(subscripts: Any, operands: Sequence[Any]) -> tuple[Hashable, Sequence[Any]]:
    """Subscripts, as text or as lists of axes (that of the result may be None), and the operands."""
    if isinstance(subscripts, str):
        return subscripts, operands
    items = [subscripts, *operands]
    if len(items) < 2:
        raise ArgumentError("einsum: takes subscripts as text, or operands and lists of axes in turns")
    pairs = items[: len(items) // 2 * 2]
    output = _list(items[-1]) if len(items) % 2 else None
    return (tuple(map(_list, pairs[1::2])), output), pairs[::2]


def _list(labels: Any) -> Labels:
    found = tuple(labels) if isinstance(labels, Iterable) else None
    if found is None or any(label is not ... and not isinstance(label, int) for label in found):
        raise ArgumentError(f"einsum: a list of axes has integers and '...', got {labels!r}")
    return found


def _hashable(optimize: Any) -> Hashable:
    """The path of `optimize` as tuples."""
    if not isinstance(optimize, list | tuple):
        return bool(optimize) if isinstance(optimize, bool | np.bool_) else str(optimize)
    return tuple(tuple(step) if isinstance(step, list | tuple) else step for step in optimize)


def _common(given: Sequence[Any], values: Sequence[Tensor]) -> np.dtype:
    if values and all(t.dtype is values[0].dtype for t in values):
        return values[0].dtype
    return result_type(*(x if isinstance(x, _NUMBERS) else t for x, t in zip(given, values, strict=True)))


def _named(names: Any, ndims: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The labels of every axis of the operands, and those of the result."""
    given, output = _of_text(names) if isinstance(names, str) else names
    if len(given) != len(ndims) or not ndims:
        raise ArgumentError(f"einsum: {names!r} is for {len(given)} operands, and {len(ndims)} were given")
    named = [_without_dots(labels, ndim, k) for k, (labels, ndim) in enumerate(zip(given, ndims, strict=True))]
    return named, _output(named, output)


def _of_text(text: str) -> tuple[list[Labels], Labels | None]:
    left, arrow, right = text.replace(" ", "").partition("->")
    return [_letters(term, text) for term in left.split(",")], _letters(right, text) if arrow else None


def _letters(term: str, text: str) -> Labels:
    head, dots, tail = term.partition("...")
    for letter in (*head, *tail):
        if not letter.isalpha():
            raise ArgumentError(f"einsum: {letter!r} in {text!r}; subscripts are letters, commas, '...' and one '->'")
    return (*head, *([...] if dots else []), *tail)


def _without_dots(labels: Labels, ndim: int, operand: int) -> Labels:
    """One label per axis: those of `...` are counted from its end, so that they broadcast."""
    more = ndim - (len(labels) - labels.count(...))
    if more < 0 or (more and ... not in labels) or labels.count(...) > 1:
        raise ArgumentError(f"einsum: operand {operand} has {ndim} axes, and its subscripts are for {len(labels)}")
    dots = tuple(("...", k) for k in range(-more, 0))
    return tuple(itertools.chain.from_iterable(dots if label is ... else (label,) for label in labels))


def _output(named: Sequence[Labels], given: Labels | None) -> Labels:
    most = max(sum(isinstance(label, tuple) for label in labels) for labels in named)
    dots = tuple(("...", k) for k in range(-most, 0))
    every = list(itertools.chain.from_iterable(named))
    if given is None:
        once: Any = [label for label in every if every.count(label) == 1 and not isinstance(label, tuple)]
        return (*dots, *sorted(once))
    result = tuple(itertools.chain.from_iterable(dots if label is ... else (label,) for label in given))
    for label in result:
        if label not in every:
            raise ArgumentError(f"einsum: the result has {label!r}, which no operand has")
        if result.count(label) > 1:
            raise ArgumentError(f"einsum: the result has {label!r} twice; a label can be there once")
    if missing := [label for label in dots if label not in result]:
        raise ArgumentError(f"einsum: the result lacks the {len(missing)} axes of '...'; write '...' in it too")
    return result


# -- the rows that compute it

Step = tuple[Op, tuple[int, ...], tuple[Any, ...]]  # a row, the places of its operands among the values, parameters


class Term(NamedTuple):
    """A value: its place, and its axes."""

    place: int
    shape: tuple[int, ...]
    labels: Labels


class _Recorder:
    """Rows to run one after the other; each adds a value behind the operands."""

    def __init__(self, count: int = 0) -> None:
        self.count, self.steps = count, list[Step]()

    def add(self, op: Op, places: tuple[int, ...], *params: Any) -> int:
        self.steps.append((op, places, params))
        self.count += 1
        return self.count - 1

    def shaped(self, t: Term, shape: tuple[int, ...], labels: Labels) -> Term:
        return Term(t.place if t.shape == shape else self.add(_reshape, (t.place,), shape), shape, labels)

    def ordered(self, t: Term, wanted: Labels) -> Term:
        if t.labels == wanted:
            return t
        axes = tuple(t.labels.index(label) for label in wanted)
        return Term(self.add(_permute, (t.place,), axes), tuple(t.shape[k] for k in axes), wanted)

    def stretched(self, t: Term, wanted: Labels) -> Term:
        """A term with the axes in the order of `wanted`, of size 1 where it has none."""
        t = self.ordered(t, tuple(label for label in wanted if label in t.labels))
        sizes = iter(t.shape)
        return self.shaped(t, tuple(next(sizes) if label in t.labels else 1 for label in wanted), wanted)

    def summed(self, t: Term, wanted: Iterable[Label], dtype: np.dtype) -> Term:
        """A term summed over the labels that nothing wants."""
        gone = tuple(k for k, label in enumerate(t.labels) if label not in wanted)
        if not gone:
            return t
        left = [k for k in range(len(t.labels)) if k not in gone]
        place = self.add(_sum, (t.place,), gone, False, dtype)
        return Term(place, tuple(t.shape[k] for k in left), tuple(t.labels[k] for k in left))


def _program(names: Hashable, shapes: tuple[tuple[int, ...], ...], dtype: np.dtype, optimize: Hashable) -> list[Step]:
    """Rows whose last result is the sum; a size that comes with the call is part of no key."""
    if any(map(has_dims, shapes)):
        return _written(names, shapes, dtype, optimize)
    return _remembered(names, shapes, dtype, optimize)


def _written(names: Hashable, shapes: tuple[tuple[int, ...], ...], dtype: np.dtype, optimize: Hashable) -> list[Step]:
    inputs, output = _named(names, list(map(len, shapes)))
    r = _Recorder(len(shapes))
    terms = [_single(r, k, *of) for k, of in enumerate(zip(shapes, inputs, strict=True))]
    sizes = _sizes(terms)
    terms = [_without_ones(r, t, sizes) for t in terms]
    steps = order_of(optimize, [t.labels for t in terms], output, sizes)
    for number, step in enumerate(steps):
        chosen = [terms[k] for k in step]
        terms = [t for k, t in enumerate(terms) if k not in step]
        for k in range(1, len(chosen)):
            wanted = {*output, *(label for t in (*terms, *chosen[k + 1 :]) for label in t.labels)}
            a = r.summed(chosen[0], wanted.union(chosen[k].labels), dtype)
            b = r.summed(chosen[k], wanted.union(a.labels), dtype)
            last = number == len(steps) - 1 and k == len(chosen) - 1
            chosen[0] = _pair(r, a, b, wanted, output if last else (), dtype)
        terms.append(chosen[0])
    found = r.stretched(r.summed(terms[0], output, dtype), output)
    shape = tuple(sizes[label] for label in output)
    if found.shape != shape:
        r.add(OPS["broadcast_to"], (found.place,), shape)
    elif not r.steps or found.place != r.count - 1:
        r.add(_reshape, (found.place,), shape)
    return r.steps


_remembered = functools.lru_cache(maxsize=1024)(_written)


def _single(r: _Recorder, place: int, shape: tuple[int, ...], labels: Labels) -> Term:
    """An operand with every label once: a label that it has twice is a diagonal of it."""
    operand = place
    while len(set(labels)) < len(labels):
        label = next(label for label in labels if labels.count(label) > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        if shape[first] != shape[second]:
            raise ShapeError(
                f"einsum: operand {operand} has {label!r} at axes of sizes {shape[first]} and {shape[second]}, and a "
                "diagonal needs equal ones"
            )
        place = r.add(OPS["diagonal"], (place,), 0, first, second)
        rest = [k for k in range(len(labels)) if k not in (first, second)]
        shape, labels = (*(shape[k] for k in rest), shape[first]), (*(labels[k] for k in rest), label)
    return Term(place, shape, labels)


def _sizes(terms: Sequence[Term]) -> dict[Label, int]:
    sizes: dict[Label, int] = {}
    for operand, t in enumerate(terms):
        for label, n in zip(t.labels, t.shape, strict=True):
            known = sizes.setdefault(label, n)
            if known == 1:
                sizes[label] = n
            elif n not in (known, 1):
                name = "'...'" if isinstance(label, tuple) else repr(label)
                raise ShapeError(f"einsum: operand {operand} has size {n} for {name}, and one before it {known}")
    return sizes


def _without_ones(r: _Recorder, t: Term, sizes: dict[Label, int]) -> Term:
    """An operand without the axes of size 1 that another one stretches: they do not matter for the products."""
    stay = [k for k, label in enumerate(t.labels) if t.shape[k] == sizes[label]]
    return r.shaped(t, tuple(t.shape[k] for k in stay), tuple(t.labels[k] for k in stay))


def _pair(r: _Recorder, a: Term, b: Term, wanted: set[Label], order: Labels, dtype: np.dtype) -> Term:
    """The product of two, summed over what both have and nothing else wants; labels about in `order`."""
    batch = tuple(label for label in a.labels if label in b.labels and label in wanted)
    inner = tuple(label for label in a.labels if label in b.labels and label not in wanted)
    rows = tuple(label for label in a.labels if label not in b.labels)
    columns = tuple(label for label in b.labels if label not in a.labels)
    if not inner or (batch and not rows and not columns):
        shared = (*batch, *rows, *columns)
        labels = (*(order if set(order) == set(shared) else shared), *inner)
        x, y = r.stretched(a, labels), r.stretched(b, labels)
        shape = tuple(n if m == 1 else m for m, n in zip(x.shape, y.shape, strict=True))
        return r.summed(Term(r.add(_multiply, (x.place, y.place)), shape, labels), wanted, dtype)
    if rows and columns and order and order.index(rows[-1]) > order.index(columns[-1]):
        a, b, rows, columns = b, a, columns, rows
    x, y = r.ordered(a, (*batch, *rows, *inner)), r.ordered(b, (*batch, *inner, *columns))
    n = len(batch)
    lead, ends = x.shape[:n], (x.shape[n : n + len(rows)], y.shape[n + len(inner) :])
    k = math.prod(y.shape[n : n + len(inner)])
    x = r.shaped(x, (*lead, math.prod(ends[0]), k) if rows or batch else (k,), ())
    y = r.shaped(y, (*lead, k, math.prod(ends[1])) if columns or batch else (k,), ())
    made = (
        *lead,
        *((math.prod(ends[0]),) if rows or batch else ()),
        *((math.prod(ends[1]),) if columns or batch else ()),
    )
    product = Term(r.add(_matmul, (x.place, y.place)), made, ())
    return r.shaped(product, (*lead, *ends[0], *ends[1]), (*batch, *rows, *columns))


__all__ = ["einsum", "einsum_path"]

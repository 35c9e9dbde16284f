"""Einstein summation: any number of operands, as products of pairs in an order that costs little.

A pair is a matrix product (with batch axes), or where nothing is summed a broadcast product, so all of it runs through
the rows that fuse and differentiate. Diagonals are views; what only one operand has is summed before it meets another.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import hint

from .namespace import result_type
from .selecting import lifted
from .tensor import Tensor

Label = Hashable  # a letter, a number of the list form, or a place of the ellipsis counted from its end
Labels = tuple[Label, ...]
# Operands up to which every order is considered: 3^6 divisions into pairs take 2 ms, once for each expression.
EVERY_ORDER = 6

_reshape, _permute, _matmul, _multiply, _sum, _astype = (
    OPS[name] for name in ("reshape", "permute_dims", "matmul", "multiply", "sum", "astype")
)


def einsum(subscripts: Any, /, *operands: Any, optimize: Any = True) -> Tensor:
    """Sum of products over named axes: `einsum("ij,jk->ik", x, y)` is `x @ y`.

    `subscripts` has a letter for each axis of each operand, and after `->` those of the result; without it the result
    has the letters that occur once, in alphabetical order. A letter twice in an operand is its diagonal, `...` stands
    for any axes in front, which broadcast, and so do axes of size 1. `einsum(x, [0, 1], y, [1, 2], [0, 2])` is the
    list form. `optimize` True or "optimal" finds a cheap order of the products ("greedy": a pair at a time), False
    goes from left to right, and a path of `einsum_path` is followed. The dtype is the operands' common one; sums of
    bool are logical. ArgumentError for subscripts that make no sense, ShapeError for sizes that do not fit.

    Source: NumPy; orders as Smith and Gray, opt_einsum, JOSS 2018.

    >>> import hybridml as hm
    >>> x = hm.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> hm.einsum("ij,jk->ik", x, x).tolist()
    [[7.0, 10.0], [15.0, 22.0]]
    >>> hm.einsum("ii", x).item()
    5.0
    """
    terms, output, sizes, logical = _read(subscripts, operands)
    terms = [_without_ones(t, labels, sizes) for t, labels in terms]
    steps = _steps(optimize, terms, output, sizes)
    for step, (first, *others) in enumerate(steps):
        last = step == len(steps) - 1
        chosen = [terms[k] for k in (first, *others)]
        terms = [term for k, term in enumerate(terms) if k not in (first, *others)]
        wanted = {*output, *itertools.chain.from_iterable(labels for _, labels in terms)}
        term = _summed(*chosen[0], {*wanted, *itertools.chain.from_iterable(labels for _, labels in chosen[1:])})
        for k, other in enumerate(chosen[1:], 2):
            needed = {*wanted, *itertools.chain.from_iterable(labels for _, labels in chosen[k:])}
            order = output if last and k == len(chosen) else ()
            term = _pair(term, _summed(*other, {*needed, *term[1]}), needed, order)
        terms.append(term)
    ((found, labels),) = terms
    found = _arranged(found, labels, output, sizes)
    return OPS["not_equal"].fn(found, 0) if logical else found


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
    terms, output, sizes, _ = _read(subscripts, operands)
    steps = _steps(optimize, terms, output, sizes)
    labels = [frozenset(names) for _, names in terms]
    hints = {name: hint(n) for name, n in sizes.items()}
    cost = 0
    for chosen in steps:
        cost += _volume(frozenset().union(*(labels[k] for k in chosen)), hints)
        labels = _after(labels, chosen, frozenset(output))
    every = _volume(frozenset(hints), hints)
    return ["einsum_path", *steps], f"multiplications by this order: {cost}, all at once: {every}"


# -- what is asked


Term = tuple[Tensor, Labels]


def _read(subscripts: Any, operands: Sequence[Any]) -> tuple[list[Term], Labels, dict[Label, int], bool]:
    """Tensors of one dtype with the labels of their axes, those of the result, sizes, and whether all were bool."""
    if isinstance(subscripts, str):
        given = list(operands)
        inputs, output = _of_text(subscripts, len(given))
    else:
        given, inputs, output = _of_lists([subscripts, *operands])
    tensors = [lifted(x) for x in given]
    dtype = result_type(*(x if isinstance(x, bool | int | float) else t for x, t in zip(given, tensors, strict=True)))
    logical = dtype.kind == "b"
    if logical:  # counted, and compared with 0 in the end
        dtype = dtypes.int64
    tensors = [t if t.dtype is dtype else _astype.fn(t, dtype) for t in tensors]
    named = [_without_dots(labels, t.ndim, k) for k, (labels, t) in enumerate(zip(inputs, tensors, strict=True))]
    terms = [_single(t, labels, k) for k, (t, labels) in enumerate(zip(tensors, named, strict=True))]
    return terms, _output(named, output), _sizes(terms), logical


def _output(named: Sequence[Labels], given: Labels | None) -> Labels:
    dots = tuple(("...", k) for k in range(-max(map(_dots, named)), 0))
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


@functools.lru_cache(maxsize=1024)
def _of_text(text: str, count: int) -> tuple[list[Labels], Labels | None]:
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != count:
        raise ArgumentError(f"einsum: {text!r} is for {len(terms)} operands, and {count} were given")
    return [_letters(term, text) for term in terms], _letters(right, text) if arrow else None


def _letters(term: str, text: str) -> Labels:
    head, dots, tail = term.partition("...")
    for letter in (*head, *tail):
        if not letter.isalpha():
            raise ArgumentError(f"einsum: {letter!r} in {text!r}; subscripts are letters, commas, '...' and one '->'")
    return (*head, *([...] if dots else []), *tail)


def _of_lists(items: Sequence[Any]) -> tuple[list[Any], list[Labels], Labels | None]:
    output = _list(items[-1]) if len(items) % 2 else None
    pairs = items[: len(items) // 2 * 2]
    if not pairs:
        raise ArgumentError("einsum: takes subscripts as text, or operands and lists of axes in turns")
    return list(pairs[::2]), [_list(labels) for labels in pairs[1::2]], output


def _list(labels: Any) -> Labels:
    found = tuple(labels) if isinstance(labels, Iterable) else None
    if found is None or any(label is not ... and not isinstance(label, int) for label in found):
        raise ArgumentError(f"einsum: a list of axes has integers and '...', got {labels!r}")
    return found


def _without_dots(labels: Labels, ndim: int, operand: int) -> Labels:
    """One label an axis: those of `...` are counted from its end, so that they broadcast."""
    more = ndim - (len(labels) - labels.count(...))
    if more < 0 or (more and ... not in labels) or labels.count(...) > 1:
        raise ArgumentError(f"einsum: operand {operand} has {ndim} axes, and its subscripts are for {len(labels)}")
    dots = tuple(("...", k) for k in range(-more, 0))
    return tuple(itertools.chain.from_iterable(dots if label is ... else (label,) for label in labels))


def _dots(labels: Labels) -> int:
    return sum(isinstance(label, tuple) for label in labels)


def _single(t: Tensor, labels: Labels, operand: int) -> Term:
    """Every label once: a label that an operand has twice is a diagonal of it."""
    while len(set(labels)) < len(labels):
        label = next(label for label in labels if labels.count(label) > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        if t.shape[first] != t.shape[second]:
            raise ShapeError(
                f"einsum: operand {operand} has {label!r} at axes of sizes {t.shape[first]} and {t.shape[second]}, "
                "and a diagonal needs equal ones"
            )
        t = OPS["diagonal"].fn(t, 0, first, second)
        labels = (*(k for i, k in enumerate(labels) if i not in (first, second)), label)
    return t, labels


def _sizes(terms: Sequence[Term]) -> dict[Label, int]:
    sizes: dict[Label, int] = {}
    for operand, (t, labels) in enumerate(terms):
        for label, n in zip(labels, t.shape, strict=True):
            known = sizes.setdefault(label, n)
            if known == 1:
                sizes[label] = n
            elif n not in (known, 1):
                name = "'...'" if isinstance(label, tuple) else repr(label)
                raise ShapeError(f"einsum: operand {operand} has size {n} for {name}, and one before it {known}")
    return sizes


def _without_ones(t: Tensor, labels: Labels, sizes: dict[Label, int]) -> Term:
    """Without the axes of size 1 that another operand stretches: they do not matter for the products."""
    stay = [k for k, label in enumerate(labels) if t.shape[k] == sizes[label]]
    if len(stay) == len(labels):
        return t, labels
    return _reshape.fn(t, tuple(t.shape[k] for k in stay)), tuple(labels[k] for k in stay)


# -- products


def _summed(t: Tensor, labels: Labels, wanted: set[Label]) -> Term:
    """With the labels that something else has; the others are summed."""
    gone = tuple(k for k, label in enumerate(labels) if label not in wanted)
    if not gone:
        return t, labels
    return _sum.fn(t, gone, False, t.dtype), tuple(label for label in labels if label in wanted)


def _pair(a: Term, b: Term, wanted: set[Label], order: Labels) -> Term:
    """The product of two, summed over what both have and nothing else wants; labels about in `order`."""
    (x, names), (y, others) = a, b
    batch = tuple(label for label in names if label in others and label in wanted)
    inner = tuple(label for label in names if label in others and label not in wanted)
    rows = tuple(label for label in names if label not in others)
    columns = tuple(label for label in others if label not in names)
    if not inner or (batch and not rows and not columns):
        shared = (*batch, *rows, *columns)
        labels = (*(order if set(order) == set(shared) else shared), *inner)
        product = _multiply.fn(_stretched(x, names, labels), _stretched(y, others, labels))
        return _summed(product, labels, wanted)
    if rows and columns and order and order.index(rows[-1]) > order.index(columns[-1]):
        x, names, y, others, rows, columns = y, others, x, names, columns, rows
    left, right = _ordered(x, names, (*batch, *rows, *inner)), _ordered(y, others, (*batch, *inner, *columns))
    n = len(batch)
    lead, ends = left.shape[:n], (left.shape[n : n + len(rows)], right.shape[n + len(inner) :])
    k = math.prod(right.shape[n : n + len(inner)])
    left = _shaped(left, (*lead, math.prod(ends[0]), k) if rows or batch else (k,))
    right = _shaped(right, (*lead, k, math.prod(ends[1])) if columns or batch else (k,))
    product = _matmul.fn(left, right)
    return _shaped(product, (*lead, *ends[0], *ends[1])), (*batch, *rows, *columns)


def _ordered(t: Tensor, labels: Labels, wanted: Labels) -> Tensor:
    return t if labels == wanted else _permute.fn(t, tuple(labels.index(label) for label in wanted))


def _shaped(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    return t if t.shape == shape else _reshape.fn(t, shape)


def _stretched(t: Tensor, labels: Labels, wanted: Labels) -> Tensor:
    """With the axes in the order of `wanted`, and of size 1 where it has none."""
    t = _ordered(t, labels, tuple(label for label in wanted if label in labels))
    sizes = iter(t.shape)
    return _shaped(t, tuple(next(sizes) if label in labels else 1 for label in wanted))


def _arranged(t: Tensor, labels: Labels, output: Labels, sizes: dict[Label, int]) -> Tensor:
    """The one that is left, with the axes of the result."""
    t, labels = _summed(t, labels, set(output))
    t = _stretched(t, labels, output)
    shape = tuple(sizes[label] for label in output)
    return t if t.shape == shape else OPS["broadcast_to"].fn(t, shape)


# -- the order

Step = tuple[int, ...]
Sets = list[frozenset[Label]]


def _steps(optimize: Any, terms: Sequence[Term], output: Labels, sizes: dict[Label, int]) -> list[Step]:
    """Which of those that are left to multiply next, until one is left."""
    n = len(terms)
    if n == 1:
        return []
    if isinstance(optimize, list | tuple) and not isinstance(optimize[0], str):
        steps = [tuple(sorted(step)) for step in optimize]
    elif isinstance(optimize, list | tuple) and optimize[0] == "einsum_path":
        steps = [tuple(sorted(step)) for step in optimize[1:]]
    elif optimize is False or n == 2:
        steps = [(0, 1), *((0, k) for k in range(n - 2, 0, -1))]
    else:
        how = optimize[0] if isinstance(optimize, list | tuple) else optimize
        if how not in (True, "optimal", "greedy", "auto"):
            raise ArgumentError(f"einsum: optimize is True, False, 'optimal', 'greedy' or a path, got {optimize!r}")
        labels = tuple(frozenset(names) for _, names in terms)
        hints = tuple((label, hint(size)) for label, size in sizes.items())
        found = _optimal if how != "greedy" and n <= EVERY_ORDER else _greedy
        return found(labels, frozenset(output), hints)
    left = n
    for step in steps:
        if not step or len(set(step)) < len(step) or not 0 <= step[0] <= step[-1] < left:
            raise ArgumentError(f"einsum: {step} of the path {optimize!r} does not name operands of the {left} left")
        left += 1 - len(step)
    return steps if left == 1 else [*steps, tuple(range(left))]


def _volume(labels: frozenset[Label], sizes: dict[Label, int]) -> int:
    return math.prod(sizes[label] for label in labels)


def _after(labels: Sequence[frozenset[Label]], step: Step, output: frozenset[Label]) -> Sets:
    """The labels of those that are left when those of `step` have been multiplied."""
    rest = [names for k, names in enumerate(labels) if k not in step]
    joined = frozenset().union(*(labels[k] for k in step))
    return [*rest, joined & output.union(*rest)]


Sizes = tuple[tuple[Label, int], ...]


@functools.lru_cache(maxsize=1024)
def _greedy(labels: tuple[frozenset[Label], ...], output: frozenset[Label], sizes: Sizes) -> list[Step]:
    """At each step the pair whose product is the smallest beside the two; of those the cheapest."""
    by_label, left = dict(sizes), list(labels)
    steps: list[Step] = []

    def price(pair: Step) -> tuple[bool, int, int]:
        made = _after(left, pair, output)[-1]
        grown = _volume(made, by_label) - sum(_volume(left[k], by_label) for k in pair)
        return not left[pair[0]] & left[pair[1]], grown, _volume(left[pair[0]] | left[pair[1]], by_label)

    while len(left) > 1:
        best = min(itertools.combinations(range(len(left)), 2), key=price)
        left = _after(left, best, output)
        steps.append(best)
    return steps


@functools.lru_cache(maxsize=1024)
def _optimal(labels: tuple[frozenset[Label], ...], output: frozenset[Label], sizes: Sizes) -> list[Step]:
    """The order with the fewest multiplications, by dynamic programming over the subsets of operands."""
    by_label, n = dict(sizes), len(labels)
    every = (1 << n) - 1

    def of(subset: int) -> frozenset[Label]:
        return frozenset().union(*(labels[k] for k in range(n) if subset >> k & 1))

    made = {s: of(s) & (output | of(every & ~s)) for s in range(1, every + 1)}
    best: dict[int, tuple[int, int]] = {1 << k: (0, 0) for k in range(n)}  # subset -> (cost, one of its two parts)
    for subset in range(1, every + 1):
        part = (subset - 1) & subset
        while part:
            rest = subset & ~part
            if part > rest:
                cost = best[part][0] + best[rest][0] + _volume(made[part] | made[rest], by_label)
                if subset not in best or cost < best[subset][0]:
                    best[subset] = (cost, part)
            part = (part - 1) & subset
    left: list[int] = [1 << k for k in range(n)]
    steps: list[Step] = []

    def multiply(subset: int) -> None:
        part = best[subset][1]
        if not part:
            return
        multiply(subset & ~part)
        multiply(part)
        pair = tuple(sorted((left.index(part), left.index(subset & ~part))))
        steps.append(pair)
        left[:] = [other for k, other in enumerate(left) if k not in pair] + [subset]

    multiply(every)
    return steps


__all__ = ["einsum", "einsum_path"]

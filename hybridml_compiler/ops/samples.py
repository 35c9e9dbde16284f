"""Test inputs by kind of row: layouts, sizes, dtypes and edge values, so that rows only name their domain."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from .op import Accepts, ErrorSample, Sample
from .shapes import Shape

Domain = tuple[float, float]
Case = tuple[Sequence[Any], Mapping[str, Any]]
# quoted: numpy.random is slow to import, and only tests need it
Samples: TypeAlias = "Callable[[np.random.Generator], Iterable[Sample]]"

# Denormals are left out: backends may run with flush-to-zero.
EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-30, -1e30, np.inf, -np.inf, np.nan)
INT_EDGES = {"int8": (-128, -127, -1, 0, 1, 2, 7, 127), "uint8": (0, 1, 2, 7, 8, 255)}


def floats(rng: np.random.Generator, shape: Shape, domain: Domain = (-2.0, 2.0), dtype: Any = "f8") -> np.ndarray:
    return np.asarray(rng.uniform(*domain, shape), dtype)


def ints(rng: np.random.Generator, shape: Shape, dtype: Any = "i8", low: int = -5, high: int = 9) -> np.ndarray:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.asarray(rng.integers(0, 2, shape), dtype)
    return np.asarray(rng.integers(0 if kind == "u" else low, high, shape), dtype)


def _float_samples(rng: np.random.Generator, domains: Sequence[Domain], edges: bool) -> Iterator[Sample]:
    n = len(domains)

    def make(shapes: Sequence[Shape], dtype: str = "f8") -> tuple[np.ndarray, ...]:
        return tuple(floats(rng, shape, d, dtype) for shape, d in zip(shapes, domains, strict=True))

    yield Sample(make([(3, 4)] * n))
    yield Sample(make([()] * n))
    yield Sample(make([(17,)] * n, "f4"), grad=False)
    yield Sample(make([(1, 3, 17)] * n, "f4"), grad=False)
    yield Sample(make([(0, 3)] * n))
    yield Sample(tuple(a.T for a in make([(4, 3)] * n)))
    yield Sample(tuple(a[::-1, ::2] for a in make([(3, 5)] * n, "f4")), grad=False)
    if n > 1:
        yield Sample(make([(3, 1), (4,), ()][:n]))
        yield Sample(make([(4,), (2, 3, 1), (1, 4)][:n]))
        yield Sample(make([(), (3, 4), (3, 1)][:n], "f4"), grad=False)
    if edges:
        for dtype in ("f4", "f8"):
            table = np.array(list(itertools.product(EDGES, repeat=min(n, 2))), dtype).T
            columns = [np.ascontiguousarray(table[k % 2]) for k in range(n)]
            yield Sample(tuple(columns), grad=False)


def _complex_samples(rng: np.random.Generator, domains: Sequence[Domain], edges: bool) -> Iterator[Sample]:
    """The real parts of the domain, and imaginary parts that keep off the cuts along the axes; and parts of edges."""
    for dtype in ("c16", "c8"):
        for shapes in ([(3, 4)] * 3, [(3, 1), (4,), ()]):
            parts = [floats(rng, s, d) + 1j * floats(rng, s, (0.2, 0.9)) for s, d in zip(shapes, domains, strict=False)]
            yield Sample(tuple(np.asarray(x, dtype) for x in parts), grad=dtype == "c16")
        if edges:
            drawn = rng.choice(EDGES, (len(domains), 144, 2)).astype(f"f{np.dtype(dtype).itemsize // 2}")
            yield Sample(tuple(x.view(dtype)[:, 0] for x in drawn), grad=False)


def _int_samples(rng: np.random.Generator, n: int, names: Sequence[str]) -> Iterator[Sample]:
    for name in names:
        yield Sample(tuple(ints(rng, shape, name) for shape in [(3, 4), (4,), ()][:n]), grad=False)
        if name in INT_EDGES:
            table = np.array(list(itertools.product(INT_EDGES[name], repeat=min(n, 2))), name).T
            yield Sample(tuple(np.ascontiguousarray(table[k % 2]) for k in range(n)), grad=False)


def elementwise(n: int, domain: Domain | Sequence[Domain], accepts: Accepts, edges: bool = True) -> Samples:
    """Samples for `n` operands; `domain` (one, or one per operand) keeps gradient checks off kinks and poles."""
    domains: Sequence[Any] = domain if isinstance(domain[0], Sequence) else [domain] * n
    integer_names = {
        **dict.fromkeys(("any", "ordered"), ("int64", "int32", "int8", "uint8", "bool")),
        **dict.fromkeys(("number", "numeric"), ("int64", "int32", "int8", "uint8", "uint64")),
        "integer": ("int64", "int32", "int8", "uint8", "uint32"),
        "integral": ("int64", "int8", "uint8", "uint32", "bool"),
        "bool": ("bool",),
        **dict.fromkeys(("float", "inexact"), ()),
    }[accepts]

    def generate(rng: np.random.Generator) -> Iterator[Sample]:
        if accepts not in ("integer", "integral", "bool"):
            yield from _float_samples(rng, domains, edges)
        if accepts in ("any", "number", "inexact"):
            yield from _complex_samples(rng, domains, edges)
        yield from _int_samples(rng, n, integer_names)

    return generate


def cases(*rows: Case, values: Sequence[Case] = (), domain: Domain = (-2.0, 2.0), dtypes: str = "f8 f4") -> Samples:
    """Samples written as `(operands, params)`; an operand is a shape (random floats) or a ready array.

    Every row runs in float64 (checked for gradients) and once more in the other `dtypes`; results of `values` are not
    finite, so there is no gradient to check.
    """

    def generate(rng: np.random.Generator) -> Iterator[Sample]:
        for dtype, (finite, (operands, params)) in itertools.product(
            dtypes.split(), [*((True, row) for row in rows), *((False, row) for row in values)]
        ):
            args = tuple(_operand(rng, operand, domain, dtype) for operand in operands)
            yield Sample(args, params, grad=finite and dtype == "f8")

    return generate


def _operand(rng: np.random.Generator, operand: Any, domain: Domain, dtype: str) -> Any:
    if isinstance(operand, np.ndarray):
        return operand
    if isinstance(operand, list):  # a variadic input
        return [_operand(rng, item, domain, dtype) for item in operand]
    return ints(rng, operand, dtype) if np.dtype(dtype).kind != "f" else floats(rng, operand, domain, dtype)


def fails(error: type[Exception], match: str, *operands: Any, **params: Any) -> ErrorSample:
    """An error sample; operands are shapes (float32 zeros), arrays, or a list of them for a variadic row."""
    return ErrorSample(tuple(_zeros(operand) for operand in operands), params, error, match)


def _zeros(operand: Any) -> Any:
    if isinstance(operand, list):
        return [_zeros(item) for item in operand]
    return operand if isinstance(operand, np.ndarray) else np.zeros(operand, "f4")

"""`computed`: the constructor of rows of floats that NumPy computes element by element, as iterations must be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..aval import Aval
from ..errors import ArgumentError, DTypeError, GradientError, ShapeError
from . import samples
from .op import REQUIRED, ErrorSample, Op, Sample
from .samples import Domain, fails
from .shapes import broadcast


def computed(
    name: str,
    inputs: tuple[str, ...],
    eager: Callable[..., Any],
    vjp: tuple[Callable[..., Any] | None, ...],
    doc: str,
    domain: tuple[Domain, ...],
    values: tuple[tuple[float, ...], ...] = (),
    orders: tuple[Mapping[str, int], ...] = (),
    grad: bool = True,
) -> Op:
    """A row of floats that NumPy computes element by element, in float64, broadcast; `values`: points of the tests
    beside random ones of `domain`. With `orders` it has parameters that are orders of derivatives; they are those of
    the tests, and the row serves the derivatives of others."""

    def infer(*avals: Aval, **_: Any) -> Aval:
        return Aval(broadcast(name, *avals), avals[0].dtype, all(a.weak for a in avals))

    def in_float64(*arrays: np.ndarray, **params: int) -> np.ndarray:
        with np.errstate(all="ignore"):
            found = eager(*np.broadcast_arrays(*(a.astype(np.float64) for a in arrays)), **params)
            return np.asarray(found, arrays[0].dtype)

    def canon(*_: Aval, **params: Any) -> dict[str, int]:
        integers = all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in params.values())
        if not integers or min(params.values()) < 0 or not 1 <= sum(params.values()) <= 100:
            got = ", ".join(map(repr, params.values()))
            raise ArgumentError(f"{name}: the order must be an integer from 1 to 100, got {got}")
        return {key: int(n) for key, n in params.items()}

    def error_samples() -> Iterable[ErrorSample]:
        yield fails(DTypeError, f"{name}: takes", *[np.zeros(2, "c8")] * len(inputs), **some)
        if len(inputs) > 1:
            yield fails(ShapeError, f"{name}: shapes", *[(2, 3), (4,), (1,)][: len(inputs)], **some)
        if orders:
            yield fails(ArgumentError, f"{name}: the order", *[(2,)] * len(inputs), **dict.fromkeys(some, -1))

    def all_samples(rng: np.random.Generator) -> Iterable[Sample]:
        for params in orders or ({},):
            for sample in samples.elementwise(len(inputs), domain, "float", edges=False)(rng):
                yield Sample(sample.args, params, sample.grad and grad)
            for dtype in ("f4", "f8"):
                yield Sample(tuple(np.array(c, dtype) for c in zip(*values, strict=True)), params, grad=False)

    some = dict(orders[0]) if orders else {}
    return Op(
        name,
        "opaque",
        inputs=inputs,
        infer=infer,
        eager=in_float64,
        vjp=vjp,
        samples=all_samples,
        error_samples=error_samples,
        params=dict.fromkeys(some, REQUIRED),
        canon=canon if orders else None,
        accepts="float",
        unify=tuple(range(len(inputs))),
        public=not orders,
        doc=doc,
    )


class Refused:
    """The rule of an input that has no derivative here: an error that says so, where the gradient is asked for."""

    def __init__(self, message: str) -> None:
        self.message = message

    def __call__(self, g: Any) -> Any:
        raise GradientError(self.message)

"""An elementwise function of several operands as one node: its parameter holds the graph of the function, over numbers.

    composite(operands; body)       body: numbers -> one number, by elementwise operations alone

What repeats in a program, as the update of each parameter by an optimizer, is captured, rewritten and weighed once, and
then is a node a time. The result has the bits of the operations one by one: the same are done on every element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..aval import Aval
from ..errors import ArgumentError
from .indexing import Index, Load, Scalar, at
from .op import Op
from .shapes import broadcast


def _infer(avals: Sequence[Aval], body: Any) -> Aval:
    wanted, got = [a.dtype for a in body.inputs], [a.dtype for a in avals]
    if wanted != got:
        raise ArgumentError(f"composite: a function of {wanted} is given {got}")
    return Aval(broadcast("composite", *avals), body.outputs[0].dtype)


def _eager(arrays: Sequence[np.ndarray], body: Any) -> np.ndarray:
    return np.asarray(body.over(arrays)[0])


def _lower(s: Any, i: Index, loads: Sequence[Load], body: Any) -> Scalar:
    found: Scalar = body.lower(s, [at(load, i) for load in loads])[0]
    return found


COMPOSITE = Op(
    "composite", "elementwise", inputs=("operands",), infer=_infer, eager=_eager, lower=_lower, samples=lambda _: (),
    params={"body": None}, variadic=True, unify=(), public=False, complex_kernels=True,
)  # fmt: skip


def _parts(operands: Sequence[Any], body: Any) -> tuple[Any, Sequence[Any], Sequence[Any]]:
    """Whether a loop begins, its carries, and what it is given beside them."""
    n = len(body.outputs)
    return operands[0], operands[1:n], operands[n:]


def _while(arrays: Sequence[np.ndarray], body: Any) -> list[np.ndarray]:
    going, carries, given = _parts(np.broadcast_arrays(*arrays), body)
    while going.any():
        goes, *after = body.over([*carries, *given])
        carries = [np.where(going, new, old) for new, old in zip(after, carries, strict=True)]
        going = going & goes
    return list(carries)


def lower_while(s: Any, i: Index, loads: Sequence[Load], body: Any, result: None) -> list[Scalar]:
    """A loop of real numbers: complex ones go by their parts."""
    go, carries, given = _parts([at(load, i) for load in loads], body)
    kinds = [s.dtype(x) for x in (*carries, *given)]

    def apart(values: Sequence[Scalar]) -> list[Scalar]:
        return [p for x in values for p in ((s.real(x), s.imag(x)) if s.dtype(x).kind == "c" else (x,))]

    def whole(parts: Sequence[Scalar], kinds: Sequence[np.dtype]) -> list[Scalar]:
        left = iter(parts)
        return [s.pair(next(left), next(left)) if kind.kind == "c" else next(left) for kind in kinds]

    def step(*parts: Scalar) -> list[Scalar]:
        goes, *after = body.lower(s, whole(parts, kinds))
        return [goes, *apart(after)]

    return whole(s.while_(go, apart(carries), apart(given), step), kinds[: len(carries)])


# while go: go, *carries = body(*carries, *given), of numbers: in the body of a composite each element takes its own
# number of steps.
WHILE = Op(
    "while", "elementwise", inputs=("operands",), variadic=True, unify=(), params={"body": None}, results=("carries",),
    infer=lambda avals, body: body.outputs[1:], eager=_while, lower=lower_while, samples=lambda _: (), public=False,
    complex_kernels=True,
)  # fmt: skip

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
    params={"body": None}, variadic=True, unify=(), public=False,
)  # fmt: skip

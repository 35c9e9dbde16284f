"""The dtypes that operands of elementwise rows are brought to, where their own alone decide: without the checks of the
general form (`dispatch.general`)."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import DTypeError
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.promotion import input_dtypes
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import hint

from ..tensor import Tensor, constant

_astype = OPS["astype"]
_weak_fits: dict[tuple[Any, ...], Sequence[np.dtype] | None] = {}
_NUMBERS = frozenset((float, int, bool, complex))


def wanted_dtypes(op: Op, args: Sequence[Any]) -> Sequence[np.dtype] | None:
    """The dtypes that operands are brought to for the hot path, where their own alone decide: of `x * 2.0` (1.5 us) or
    `mask * x` (3 us, 20 in general)."""
    kinds = tuple([a._array.dtype if type(a) is Tensor else type(a) for a in args])
    try:
        return _weak_fits[op, *kinds]
    except KeyError:
        wanted = promoted_dtypes(op, kinds)
        if wanted is not None and all(map(operator.is_, wanted, kinds)):  # which the hot path has refused
            wanted = None
        _weak_fits[op, *kinds] = wanted
        return wanted


def brought_to(wanted: Sequence[np.dtype], args: Sequence[Any]) -> Sequence[Tensor]:
    """The operands as tensors of these dtypes."""
    return [
        constant(a, dtype) if type(a) is not Tensor else a if a._array.dtype is dtype else _astype.fn(a, dtype)
        for a, dtype in zip(args, wanted, strict=True)
    ]


def is_numpys(op: Op, args: Sequence[Any], wanted: Sequence[np.dtype]) -> bool:
    """Whether the hot path is NumPy's function on operands as they are, which no program is faster than: one for
    `x * 0.5` of 200 x 220 took 1.5 times as long, and 30 ms to compile."""
    as_they_are = all([type(a) is not Tensor or a._array.dtype is d for a, d in zip(args, wanted, strict=True)])
    return as_they_are and isinstance(op.eager, np.ufunc)


@functools.cache
def promoted_dtypes(op: Op, kinds: tuple[Any, ...]) -> Sequence[np.dtype] | None:
    """The dtypes of operands, by dtype or class of each; None where the general form decides."""
    given = [k for k in kinds if isinstance(k, np.dtype)]
    if not given or any(map(dtypes.is_narrow, given)) or op.kind != "elementwise" or op.params:
        return None
    if not all(isinstance(k, np.dtype) or k in _NUMBERS for k in kinds):
        return None
    try:
        wanted = input_dtypes(op, [Aval((), k) if isinstance(k, np.dtype) else scalar_aval(k()) for k in kinds])
    except DTypeError:  # whose words have the shapes
        return None
    known = {*given, *(dtypes.complex_of(d) for d in given if d.kind == "f")}
    return wanted if all(d in known or d.kind not in "fc" for d in wanted) else None  # no default float of now


def scalar_aval(value: bool | int | float | complex) -> Aval:
    """The weak aval of a Python number."""
    return Aval((), dtypes.of_scalar(hint(value)), weak=True)  # a size is an int

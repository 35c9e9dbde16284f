"""Ints that data or steps decide, where they are written to NumPy arrays: `out[k] = n`.

NumPy raises an error for an int that the dtype does not have. A check finds one, and Python makes the call then.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import at_most

from ....core.context import current_interpreter
from ....core.proxies.integer import IntProxy
from ....core.tensor import Tensor
from ..loops.taken import fails_where

INTS = "ints"  # of a trace: Python asks for those outside of loops


def is_of_data(value: Any) -> bool:
    """Whether a value is an int that has no value in the trace."""
    return type(value) is IntProxy and value._value is None


def of_int(tracer: Any, value: IntProxy, dtype: np.dtype) -> Tensor:
    """The tensor that is written for an int that data decides."""
    if dtype.kind not in "iu":
        number: Tensor = value._number._tensor
        return number
    t: Any = value.as_index()
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    if value._bound > min(-least, most):
        fails_where(tracer, OPS["logical_or"].fn(t < least, t > min(most, np.iinfo(np.int64).max)))
    stored: Tensor = t
    return stored


def of_size(size: Any, dtype: np.dtype) -> Tensor | None:
    """The number of a step of a loop, or a size, in the dtype of what it meets, as an int there; None in dtypes that
    are too small for it, or have no sign."""
    if dtype.kind not in "if" or dtype.itemsize < 4:
        return None
    if dtype.kind == "i" and dtype.itemsize < 8:
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        if not (at_most(least, size) and at_most(size, most)):
            t: Any = OPS["full"].fn(shape=(), value=size, dtype=np.dtype(np.int64))
            fails_where(current_interpreter(), OPS["logical_or"].fn(t < least, t > most))
    found: Tensor = OPS["full"].fn(shape=(), value=size, dtype=dtype)
    return found

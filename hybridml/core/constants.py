"""Tensors of Python's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError

from .tensor import Tensor, wrap

_constants: dict[tuple[Any, np.dtype], Tensor] = {}


def constant(value: bool | int | float | complex, dtype: np.dtype) -> Tensor:
    """A cached 0-d tensor: `x + 2.0` converts its scalar once."""
    key = value or str(value), dtype  # 0.0 and -0.0 are equal
    found = _constants.get(key)
    if found is not None and type(value) is not complex:  # -0.0 may be a part of one
        return found
    if len(_constants) > 1000:
        _constants.clear()
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= value.real <= np.iinfo(dtype).max:
        raise ArgumentError(f"the Python number {value} does not fit {dtype.name}; cast the tensor with astype first")
    with np.errstate(all="ignore"):
        array = np.array(value, dtype)
    array.flags.writeable = False
    t = _constants[key] = wrap(array)
    return t

"""Transcendental functions of arrays by NumPy: the polynomials that compiled code runs, and so its bits."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from .complex_parts import BY_PARTS
from .scalar import Array, NumpyBuilder
from .transcendental import TABLE

BLOCK = 1 << 14  # elements in one run: its 20 to 40 temporaries stay in the second-level cache


class _Functions(NumpyBuilder):
    """The instructions and the functions of the table."""

    def __getattr__(self, name: str) -> Callable[..., Array]:
        return functools.partial(TABLE[name], self)


def transcendental(name: str, *arrays: Array) -> Array:
    """A function of the transcendental table on float arrays of one dtype, broadcast: the bits of compiled code. Or an
    instruction on complex arrays."""
    s = _Functions()
    if arrays[0].dtype.kind == "c":
        return np.asarray(BY_PARTS[name](s, *arrays))
    function = TABLE[name]
    operands = np.broadcast_arrays(*arrays) if len(arrays) > 1 else arrays
    flat = [np.ascontiguousarray(a).reshape(-1) for a in operands]
    out = np.empty(flat[0].size, flat[0].dtype)
    for start in range(0, out.size, BLOCK):
        part = slice(start, start + BLOCK)
        out[part] = function(s, *(a[part] for a in flat))
    return out.reshape(operands[0].shape)

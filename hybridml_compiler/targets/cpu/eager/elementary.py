"""Eager transcendentals and random bits from compiled kernels.

Eager and traced programs have the same bits because they run the same instructions. A kernel is compiled at its first
use (and comes from the object cache after that); where there is no compiler the NumPy forms answer, with the same bits.
"""

from __future__ import annotations

import numpy as np

from .... import dtypes
from ....loops.ir import ANY_LENGTH
from ....once import once
from ....ops.memory_order import order_of_result
from ....ops.movement import inverse
from ....ops.random import random_bits
from ..eager_calls import kernels
from ..runtime.allocation import empty
from .pointwise import ADDRESSES, Pointwise, compile_pointwise


def transcendental(name: str, *arrays: np.ndarray) -> np.ndarray:
    """The row `name` of the transcendental table over arrays of one float dtype, or an instruction on complex ones,
    broadcast against each other.

    >>> transcendental("exp", np.array([0.0, 1.0])).tolist()
    [1.0, 2.718281828459045]
    """
    first = arrays[0]
    shape = first.shape
    if len(arrays) > 1 and any(a.shape != shape for a in arrays):
        arrays = tuple(np.broadcast_arrays(*arrays))
        shape = arrays[0].shape
    order = order_of_result(arrays)
    if order is not None:  # the result lies as NumPy's would
        arrays = tuple([a.transpose(order) for a in arrays])
        shape = arrays[0].shape
    kernel, result = elementary(name, first.dtype.char, len(arrays))
    out = empty(shape, result)
    # native code reads the array structs: a NumPy scalar must not get through
    dense = [a if type(a) is np.ndarray and a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays]
    kernel(*dense, out)
    return out if order is None else out.transpose(inverse(order))


@once
def elementary(name: str, dtype: str, arity: int) -> tuple[Pointwise, np.dtype]:
    """The compiled kernel of one instruction, and the dtype of its result."""
    kind = np.dtype(dtype)
    result = dtypes.real_of(kind) if name == "abs" else kind
    symbol = f"{name}_{kind.name}"
    kernel = compile_pointwise(
        symbol, [kind] * arity, result, lambda s, i, xs: getattr(s, name)(*(s.load(x, i) for x in xs))
    )
    if symbol in ADDRESSES:
        kernels.learn((name, dtype, arity), ADDRESSES[symbol], dtypes.canonical(result))
    return kernel, result


def bits(state: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """`random_bits` of a (key, counter) state, uint32."""
    out = np.empty(shape, np.uint32)
    _bits_kernel()(np.ascontiguousarray(state), out)
    return out


@once
def _bits_kernel() -> Pointwise:
    class State:  # the operand as `lower` sees it
        shape, dtype = (2,), dtypes.uint64

        def __init__(self, s: object, buffer: object) -> None:
            self.s, self.buffer = s, buffer

        def __call__(self, index: tuple[int, ...]) -> object:
            return self.s.load(self.buffer, index[0])  # type: ignore[attr-defined]

    return compile_pointwise(
        "random_bits",
        [dtypes.uint64],
        dtypes.uint32,
        lambda s, i, xs: random_bits.lower(s, (i,), State(s, xs[0]), shape=(ANY_LENGTH,)),
    )

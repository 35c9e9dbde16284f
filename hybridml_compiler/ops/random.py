"""Random bits: Philox4x32-10, counter-based, so element i is the same bits in every style, order and number of threads.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. The state is (key, counter),
two uint64. Element i is word i % 4 of block counter + i // 4, whose counter words are (low, high, 0, 0) and whose key
words are (low, high) of the key. Distributions are composites over the bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import DTypeError, ShapeError
from ..hooks import hooks
from .indexing import Index, Load, Scalar, flatten
from .op import REQUIRED, Op
from .samples import cases, fails
from .shapes import Shape, shape_tuple

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)  # golden ratio, sqrt(3) - 1
ROUNDS = 10
_MASK = 0xFFFFFFFF


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """The 4 words of a block, as uint64 arrays below 2**32, from 4 counter words and 2 key words of the same kind."""
    c, (k0, k1) = counter, key
    mask, half = np.uint64(_MASK), np.uint64(32)
    m0, m1 = map(np.uint64, MULTIPLIERS)
    w0, w1 = map(np.uint64, KEY_STEPS)
    for _ in range(ROUNDS):
        p0, p1 = m0 * c[0], m1 * c[2]
        c = ((p1 >> half) ^ c[1] ^ k0, p1 & mask, (p0 >> half) ^ c[3] ^ k1, p0 & mask)
        k0, k1 = (k0 + w0) & mask, (k1 + w1) & mask
    return c


def numpy_bits(state: np.ndarray, shape: Shape) -> np.ndarray:
    """The row in NumPy: its reference meaning, and its code where there is no compiler."""
    n = math.prod(shape)
    mask, half = np.uint64(_MASK), np.uint64(32)
    key, first = state[0], state[1]
    block = np.arange((n + 3) // 4, dtype=np.uint64) + first
    zero = np.zeros_like(block)
    words = philox((block & mask, block >> half, zero, zero), (key & mask, key >> half))
    return np.stack(words, -1).astype(np.uint32).ravel()[:n].reshape(shape)


def _eager(state: np.ndarray, shape: Any) -> np.ndarray:
    return hooks.random_bits(state, shape_tuple("random_bits", shape))


def _block(s: Any, number: Scalar, state: Load) -> list[Scalar]:
    """The four uint32 words of block counter + number."""
    u8 = dtypes.uint64
    mask, half = s.const(_MASK, u8), s.const(32, u8)
    zero = s.const(0, u8)
    block = s.add(s.cast(number, u8), state((1,)))
    key = state((0,))
    c = (s.and_(block, mask), s.shr(block, half), zero, zero)
    k = (s.and_(key, mask), s.shr(key, half))
    m0, m1 = (s.const(m, u8) for m in MULTIPLIERS)
    steps = [s.const(w, u8) for w in KEY_STEPS]
    for _ in range(ROUNDS):
        p0, p1 = s.mul(m0, c[0]), s.mul(m1, c[2])
        c = (
            s.xor(s.xor(s.shr(p1, half), c[1]), k[0]),
            s.and_(p1, mask),
            s.xor(s.xor(s.shr(p0, half), c[3]), k[1]),
            s.and_(p0, mask),
        )
        k = tuple(s.and_(s.add(part, step), mask) for part, step in zip(k, steps, strict=True))
    return [s.cast(part, dtypes.uint32) for part in c]


def _lower(s: Any, i: Index, state: Load, shape: tuple[int, ...]) -> Scalar:
    # a zero index first: an empty index tuple has no scalar to make the position of
    position = s.add(s.const(0, dtypes.int64), flatten(s, i, shape))
    words = _block(s, s.floordiv(position, 4), state)
    word = s.mod(position, 4)
    low, high = s.select(s.eq(word, 0), words[0], words[1]), s.select(s.eq(word, 2), words[2], words[3])
    return s.select(s.lt(word, 2), low, high)


def _lower_tile(s: Any, t: Scalar, state: Load, shape: tuple[int, ...]) -> list[Scalar]:
    return _block(s, t, state)


def _infer(state: Aval, shape: Any) -> Aval:
    if state.dtype is not dtypes.uint64:
        raise DTypeError(f"random_bits: the state must be uint64 (key, counter), got {state}; use astype('uint64')")
    if state.shape != (2,):
        raise ShapeError(f"random_bits: the state must be the two numbers (key, counter), got {state}")
    return Aval(shape_tuple("random_bits", shape), dtypes.uint32)


def _state(key: int, counter: int) -> np.ndarray:
    return np.array([key, counter], np.uint64)


random_bits = Op(
    "random_bits",
    "random",
    public=False,
    inputs=("state",),
    params={"shape": REQUIRED},
    canon=lambda state, shape: {"shape": shape_tuple("random_bits", shape)},
    infer=_infer,
    eager=_eager,
    lower=_lower,
    tile=4,
    lower_tile=_lower_tile,
    vjp=(None,),
    samples=cases(
        ([_state(0, 0)], {"shape": (17,)}),
        ([_state(2**64 - 1, 2**64 - 2)], {"shape": (3, 5)}),
        ([_state(0x123456789ABCDEF0, 7)], {"shape": ()}),
        ([_state(1, 2**32 - 1)], {"shape": (2, 1, 4)}),
        ([_state(1, 1)], {"shape": (0, 3)}),
        dtypes="f8",
    ),
    error_samples=lambda: (
        fails(DTypeError, "random_bits: the state must be uint64", (2,), shape=(3,)),
        fails(ShapeError, "random_bits: the state must be the two numbers", np.zeros(3, "u8"), shape=(3,)),
        fails(ShapeError, "random_bits: a size cannot be negative", _state(0, 0), shape=(-3,)),
    ),
    cost=4.0,  # ten Philox rounds of 64-bit multiplications for one 32-bit word
    doc="uint32 random bits of `shape` from state = (key, counter), Philox4x32-10; then advance the counter by "
    "ceil(size / 4).",
)

ROWS = (random_bits,)

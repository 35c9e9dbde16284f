"""Random numbers that are equal in every style: distributions over the bits of a counter-based generator
(Philox4x32-10).

A generator is a tensor of two uint64, (key, counter). A draw reads the state and advances the counter in place by the
blocks it used, so inside a traced function the generator is state like any other. Distributions are compositions of
rows: the same bits eager and traced. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, DTypeError, TraceError
from hybridml_compiler.ops.shapes import shape_tuple
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import is_dim

from . import aliasing
from .context import current_interpreter, no_grad
from .creation import arange, asarray, tensor, zeros
from .tensor import Tensor, adopt, wrap

_bits, _add, _astype, _shift = (OPS[n] for n in ("random_bits", "add", "astype", "bitwise_right_shift"))
_full, _concat = OPS["full"], OPS["concat"]
# Elements of a draw from which it runs compiled, and shapes (and generators) for which one function is.
_LARGE, _MOST = 1 << 15, 64
_MOST_RANKED = 4096  # a traced permutation compares all pairs: 16M comparisons

P = ParamSpec("P")


class Generator:
    """A stream of random bits; two generators with one seed give the same numbers.

    >>> import hybridml as hm
    >>> a, b = hm.random.Generator(7), hm.random.Generator(7)
    >>> bool((hm.random.uniform((3,), generator=a) == hm.random.uniform((3,), generator=b)).all())
    True
    """

    def __init__(self, seed: int = 0) -> None:
        self.state = adopt(np.zeros(2, np.uint64))  # (key, counter)
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of `seed`, an integer (taken modulo 2**64)."""
        given: Any = seed
        if not isinstance(given, int | np.integer) or isinstance(given, bool):
            raise ArgumentError(f"manual_seed: the seed must be an integer, got {given!r}")
        with no_grad():
            self.state.copy_(tensor(np.array([int(seed) % 2**64, 0], np.uint64)))
        return self

    @classmethod
    def at(cls, state: Tensor) -> Generator:
        """A generator that starts from what `get_state` gave, to draw the same numbers again.

        >>> import hybridml as hm
        >>> state = hm.random.default_generator.get_state()
        >>> again = hm.random.Generator.at(state)
        >>> bool((hm.random.uniform((3,)) == hm.random.uniform((3,), generator=again)).all())
        True
        """
        generator = cls.__new__(cls)
        generator.state = state.clone()
        return generator

    def bits(self, shape: Any) -> Tensor:
        """uint32 random bits of `shape`; advances the state by a block for every four words."""
        out = _bits.fn(self.state, shape)
        blocks = (out.size + 3) // 4
        if blocks:
            step = _pair(blocks) if is_dim(blocks) else asarray(np.array([0, blocks], np.uint64))
            with no_grad():
                aliasing.update(self.state, _add.fn, (step,), "Generator.bits")
        return out

    def get_state(self) -> Tensor:
        """A copy of (key, counter)."""
        return self.state.clone()

    def set_state(self, state: Tensor) -> None:
        """Continue from what `get_state` gave."""
        with no_grad():
            self.state.copy_(state)

    def __repr__(self) -> str:
        return f"Generator(state={self.state.tolist() if type(self.state._array) is np.ndarray else 'traced'})"


def _pair(blocks: Any) -> Tensor:
    """(0, blocks) where the number is known when a call comes."""
    parts = [_full.fn(shape=(1,), value=n, dtype=dtypes.uint64) for n in (0, blocks)]
    return _concat.fn(parts, axis=0)


default_generator = Generator(0)


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, which every function here uses unless it is given another."""
    return default_generator.manual_seed(seed)


def _shape(shape: Any) -> tuple[int, ...]:
    return shape_tuple("random", int(shape) if isinstance(shape, np.integer) else shape)


def _float_dtype(dtype: Any, what: str) -> np.dtype:
    found = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
    if found.kind != "f":
        raise DTypeError(f"{what}: draws floats, got dtype {found.name}; use randint for integers")
    return found


def _is_bfloat16(dtype: Any) -> bool:
    return dtype is not None and dtypes.canonical(dtype).kind == "V"


def bits(shape: Any, *, generator: Generator | None = None) -> Tensor:
    """uint32 random bits."""
    return (generator or default_generator).bits(_shape(shape))


def _unit(shape: tuple[int, ...], dtype: np.dtype, generator: Generator | None) -> Tensor:
    """[0, 1): 24 bits of one word for float32, 53 bits of two words for float64, so that every value is exact."""
    if dtype is dtypes.float32:
        return _astype.fn(_shift.fn(bits(shape, generator=generator), 8), dtype) * 2.0**-24
    words = _astype.fn(bits((2, *shape), generator=generator), dtypes.uint64)
    joined = OPS["bitwise_or"].fn(OPS["bitwise_left_shift"].fn(words[0], 21), _shift.fn(words[1], 11))
    return _astype.fn(joined, dtype) * 2.0**-53


def _compiled_when_large(fn: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Decorator of a draw of some shape: a large one in eager code is one compiled call (4M normal numbers took 110 ms
    operation by operation, 17 compiled), with the same bits."""
    traced: list[Callable[P, Tensor]] = []

    @functools.wraps(fn)
    def draw(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        shape: Any = args[0] if args else kwargs.get("shape", ())
        if current_interpreter() is not None or math.prod(_shape(shape)) < _LARGE:
            return fn(*args, **kwargs)
        if not traced:
            from .trace import TracedFunction

            traced.append(TracedFunction(fn, most=_MOST, silent=True, dynamic=False))
        return traced[0](*args, **kwargs)

    return draw


@_compiled_when_large
def uniform(
    shape: Any = (), low: float = 0.0, high: float = 1.0, *, dtype: Any = None, generator: Generator | None = None
) -> Tensor:
    """Uniform in [low, high); for bfloat16 of float32's, rounded, so that `high` itself may occur."""
    if _is_bfloat16(dtype):
        return _astype.fn(uniform(shape, low, high, dtype=dtypes.float32, generator=generator), dtype)
    u = _unit(_shape(shape), _float_dtype(dtype, "uniform"), generator)
    return u if low == 0.0 and high == 1.0 else u * (high - low) + low


@_compiled_when_large
def normal(
    shape: Any = (), mean: float = 0.0, std: float = 1.0, *, dtype: Any = None, generator: Generator | None = None
) -> Tensor:
    """Normal, by the transform of Box and Muller (1958); two uniforms an element, so elements are independent."""
    if _is_bfloat16(dtype):
        return _astype.fn(normal(shape, mean, std, dtype=dtypes.float32, generator=generator), dtype)
    u = _unit((2, *_shape(shape)), _float_dtype(dtype, "normal"), generator)
    radius = OPS["sqrt"].fn(OPS["log"].fn(1.0 - u[0]) * -2.0)  # 1 - u is in (0, 1]
    z = radius * OPS["cos"].fn(u[1] * (2 * math.pi))
    return z if mean == 0.0 and std == 1.0 else z * std + mean


def rand(*shape: int, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """`uniform` with the sizes as arguments."""
    return uniform(_sizes(shape), dtype=dtype, generator=generator)


def randn(*shape: int, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """`normal` with the sizes as arguments."""
    return normal(_sizes(shape), dtype=dtype, generator=generator)


def _sizes(shape: tuple[Any, ...]) -> Any:
    return shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape


def randint(
    low: int, high: int | None = None, shape: Any = (), *, dtype: Any = None, generator: Generator | None = None
) -> Tensor:
    """Integers low <= n < high (0 <= n < low with one bound).

    The word is scaled and not divided (D. Lemire, "Fast random integer generation in an interval", 2019, without the
    rejection step: for a range of n numbers no probability is off by more than n / 2**32 of itself).
    """
    if high is None:
        low, high = 0, low
    if not 0 < high - low <= 2**32:
        raise ArgumentError(f"randint: needs low < high and at most 2**32 values, got low={low}, high={high}")
    words = _astype.fn(bits(shape, generator=generator), dtypes.uint64)
    scaled = _shift.fn(OPS["multiply"].fn(words, tensor(high - low, dtype=dtypes.uint64)), 32)
    return _astype.fn(_astype.fn(scaled, dtypes.int64) + low, dtypes.int64 if dtype is None else dtype)


def bernoulli(p: Any = 0.5, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """1 with probability `p` (a number or a tensor, whose shape is the default), else 0; bool without `dtype`."""
    wanted = _shape(shape) if shape is not None else (p.shape if isinstance(p, Tensor) else ())
    if isinstance(p, int | float) and not 0 <= p <= 1:
        raise ArgumentError(f"bernoulli: p is a probability, got {p}")
    drawn = _unit(wanted, dtypes.default_float(), generator) < p
    return drawn if dtype is None else _astype.fn(drawn, dtype)


def permutation(n: int, *, generator: Generator | None = None) -> Tensor:
    """0..n-1 in random order (int64): the order of n random 64-bit keys."""
    words = _astype.fn(bits((2, n), generator=generator), dtypes.uint64)
    keys = OPS["bitwise_or"].fn(OPS["bitwise_left_shift"].fn(words[0], 32), words[1])
    if current_interpreter() is None:
        return wrap(np.argsort(keys._array, kind="stable"))
    if n > _MOST_RANKED:
        raise TraceError(f"permutation: {n} numbers inside a traced function (at most {_MOST_RANKED}); draw it outside")
    position = arange(n)
    earlier = (keys[None, :] < keys[:, None]) | (
        (keys[None, :] == keys[:, None]) & (position[None, :] < position[:, None])
    )
    rank = earlier.sum(1)
    return OPS["scatter_add"].fn(zeros((n,), dtype=dtypes.int64), rank, position, axis=0)

"""Random bits that are equal in every style: a counter-based generator (Philox4x32-10); uniform numbers of its bits.

A generator is a tensor of two uint64, (key, counter). A draw advances the counter in place by the blocks that it is
going to use, and computes them from a copy of what was there before: no two threads draw the same numbers. Inside a
traced function the generator is state like any other (see tracing/run/random_draws.py). Source: Salmon et al.,
"Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.ops.shapes import shape_tuple
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import is_dim

from ..arrays.creation import asarray, tensor
from ..core import aliasing
from ..core.autodiff.replay import source
from ..core.context import at_place, lift, literal, no_grad
from ..core.device_tensor import transfer
from ..core.nested import top_nesting
from ..core.shared import generator_states
from ..core.tensor import CPU, Tensor, adopt, like, place_var, wrap
from ..tracing.python_state.names import roots

_bits, _add, _astype, _shift = (OPS[n] for n in ("random_bits", "add", "astype", "bitwise_right_shift"))
_full, _concat, _left, _or = (OPS[n] for n in ("full", "concat", "bitwise_left_shift", "bitwise_or"))


class Generator:
    """Stream of random bits, with every distribution of this package as a method.

    Two generators with one seed give the same numbers, in either style. `seed` is an integer (ArgumentError
    otherwise), taken modulo 2**64. Source: Philox4x32-10 (Salmon et al. 2011).

    >>> a, b = hm.random.Generator(7), hm.random.Generator(7)
    >>> bool((a.uniform((3,)) == hm.random.uniform((3,), generator=b)).all())
    True
    """

    if TYPE_CHECKING:  # `sampler` (see sampling.py) makes them methods

        def __getattr__(self, name: str) -> Callable[..., Tensor]: ...

    def __init__(self, seed: int = 0) -> None:
        self._start(adopt(np.zeros(2, np.uint64)))
        self.manual_seed(seed)

    def _start(self, state: Tensor) -> None:
        self.state = state  # (key, counter)
        generator_states.add(id(state), state)

    def manual_seed(self, seed: int) -> Generator:
        """Starts the stream of `seed`, an integer (taken modulo 2**64)."""
        given: Any = seed
        if not isinstance(given, int | np.integer) or isinstance(given, bool):
            raise ArgumentError(f"manual_seed: the seed must be an integer, got {given!r}")
        self.set_state(tensor(np.array([int(seed) % 2**64, 0], np.uint64), device=CPU))
        return self

    @classmethod
    def at(cls, state: Tensor) -> Generator:
        """Generator that starts from a state of `get_state`, to draw the same numbers again.

        >>> state = hm.random.default_generator.get_state()
        >>> again = hm.random.Generator.at(state)
        >>> bool((hm.random.uniform((3,)) == hm.random.uniform((3,), generator=again)).all())
        True
        """
        generator = cls.__new__(cls)
        generator._start(state.clone())
        return generator

    def bits(self, shape: Any) -> Tensor:
        """Random bits as uint32 numbers of `shape`; the state advances by one block per four of them."""
        shape = shape_of(shape)
        around = self._around()
        if around is not None:
            return around.draw(self.bits, shape)
        return _bits.fn(transfer(self.reserve(shape), place_var.get() or CPU.type), shape)

    def reserve(self, shape: Any) -> Tensor:
        """The state from which `bits` of a shape are drawn: the generator has gone on, and draws what comes after."""
        around = self._around()
        if around is not None:
            drawn: Tensor = around.reserve(self.reserve, shape_of(shape))
            return drawn
        blocks = (math.prod(shape_of(shape)) + 3) // 4
        state = lift(self.state)
        if type(state._array) is np.ndarray:
            before = np.empty(2, np.uint64)
            source().take(self.state, blocks, before)
            if blocks:
                aliasing.stamp(self.state)
            return wrap(before)
        start = like(state, state._array)
        if blocks:
            step = at_place(CPU.type, lambda: _step(blocks))  # where the state is
            with no_grad():
                aliasing.update(self.state, _add.fn, (step,), "Generator.bits")
        return start

    def _around(self) -> Any:
        """The transform that says what is drawn; None where the generator's state is one inside of it."""
        around = top_nesting()
        return None if around is None or around.owns(self.state) else around

    def spawn(self, n: int) -> list[Generator]:
        """`n` generators with keys drawn from this one, for workers whose numbers have nothing to do with each other.

        >>> import hybridml as hm
        >>> first, second = hm.random.Generator(0).spawn(2)
        >>> bool((first.normal((3,)) == second.normal((3,))).any())
        False
        """
        if n < 0:
            raise ArgumentError(f"spawn: n is a number of generators, got {n}")
        keys = at_place(CPU.type, lambda: words((n,), self))
        zero = asarray(np.array([0], np.uint64), device=CPU)
        return [Generator.at(_concat.fn([keys[k : k + 1], zero], axis=0)) for k in range(n)]

    def get_state(self) -> Tensor:
        """A copy of (key, counter)."""
        state = lift(self.state)
        return wrap(source().get(self.state)) if type(state._array) is np.ndarray else state.clone()

    def set_state(self, state: Tensor) -> None:
        """Continue from what `get_state` gave."""
        if type(lift(self.state)._array) is np.ndarray:
            return source().set(self.state, state)
        with no_grad():
            self.state.copy_(state)

    def __repr__(self) -> str:
        return f"Generator(state={self.state.tolist() if type(self.state._array) is np.ndarray else 'traced'})"


def _step(blocks: Any) -> Tensor:
    """The change of a state that has given so many blocks."""
    return _pair(blocks) if is_dim(blocks) else literal(adopt(np.array([0, blocks], np.uint64)))


def _pair(blocks: Any) -> Tensor:
    """(0, blocks) where the number is known when a call comes."""
    parts = [_full.fn(shape=(1,), value=n, dtype=dtypes.uint64) for n in (0, blocks)]
    return _concat.fn(parts, axis=0)


default_generator = roots["random"] = Generator(0)


def manual_seed(seed: int) -> Generator:
    """Seeds the default generator, which every function here uses unless it is given another, and returns it.

    Raises ArgumentError for a seed that is not an integer.

    >>> first = hm.random.manual_seed(7).uniform((3,))
    >>> bool((hm.random.manual_seed(7).uniform((3,)) == first).all())
    True
    """
    return default_generator.manual_seed(seed)


def default_rng(seed: int | None = None) -> Generator:
    """Generator of `seed`, by NumPy's name; without one of a seed drawn from the default generator.

    >>> hm.random.default_rng(7)
    Generator(state=[7, 0])
    """
    return default_generator.spawn(1)[0] if seed is None else Generator(seed)


def bits(shape: Any, *, generator: Generator | None = None) -> Tensor:
    """Random bits as uint32 numbers of `shape`, 32 random bits each.

    >>> hm.random.bits((2, 3)).dtype.name
    'uint32'
    """
    return (generator or default_generator).bits(shape_of(shape))


def shape_of(shape: Any) -> tuple[int, ...]:
    return shape_tuple("random", int(shape) if isinstance(shape, np.integer) else shape)


def words(shape: tuple[int, ...], generator: Generator | None) -> Tensor:
    """Random bits as uint64 numbers of `shape`."""
    halves = _astype.fn(bits((2, *shape), generator=generator), dtypes.uint64)
    return _or.fn(_left.fn(halves[0], 32), halves[1])


def unit(shape: tuple[int, ...], dtype: np.dtype, generator: Generator | None) -> Tensor:
    """[0, 1): 24 bits of one word for float32, 53 bits of two words for float64, so that every value is exact."""
    if dtype is dtypes.float32:
        return _astype.fn(_shift.fn(bits(shape, generator=generator), 8), dtype) * 2.0**-24
    halves = _astype.fn(bits((2, *shape), generator=generator), dtypes.uint64)
    return _astype.fn(_or.fn(_left.fn(halves[0], 21), _shift.fn(halves[1], 11)), dtype) * 2.0**-53


def open_unit(shape: tuple[int, ...], dtype: np.dtype, generator: Generator | None) -> Tensor:
    """(0, 1), symmetric about 1/2: the middles of 2**23 (float64: 2**52) intervals."""
    if dtype is dtypes.float32:
        return (_astype.fn(_shift.fn(bits(shape, generator=generator), 9), dtype) + 0.5) * 2.0**-23
    return (_astype.fn(_shift.fn(words(shape, generator), 12), dtype) + 0.5) * 2.0**-52

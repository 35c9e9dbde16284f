"""Common parts of every distribution besides its arithmetic: checks of its parameters, shape and dtype of the result, a
compiled call where it is large, and the rejection loop.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.compile_policy import COMPOSITE as LARGE
from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError
from hybridml_compiler.ops.shapes import broadcast, listing

from ..arrays.creation import asarray, full, zeros
from ..control_flow import while_loop
from ..core import ops
from ..core.context import at_place, no_grad, place_beside
from ..core.device_tensor import transfer
from ..core.interpreter import interpreter_stack
from ..core.library import compiled_when_repeated
from ..core.spellings import MARK, other_names, parameters_of, renamed
from ..core.tensor import CPU, Device, Tensor, place_var
from .generator import Generator, open_unit, shape_of, unit

P = ParamSpec("P")
_HERE = frozenset((Tensor, Generator, tuple, list, int, float, bool, type(None)))  # of what is on no other device
Parameter = float | Tensor | np.ndarray | Sequence[Any]  # of a distribution: its tensors broadcast


class Domain:
    """Set of the numbers that a parameter may be. Only Python numbers are checked: a tensor's elements would have to be
    read, which a compiled program does not. Where one is outside, floats are nan and counts are -1.
    """

    def __init__(self, what: str, holds: Callable[[Any], Any]) -> None:
        self.what, self.holds = what, holds

    def check(self, fn: str, name: str, value: Any) -> None:
        if isinstance(value, int | float):
            if not self.holds(value):
                raise ArgumentError(f"{fn}: {name} must be {self.what}, got {value}")
        else:
            check_array(fn, name, value)


def check_array(fn: str, name: str, value: Any) -> None:
    """Raises DTypeError for a parameter that is neither a number nor an array."""
    if not isinstance(value, Tensor | np.ndarray | np.generic | list):
        hint = "; sizes go to `shape`" if isinstance(value, tuple) else ""
        raise DTypeError(f"{fn}: {name} must be a number or a tensor, got {value!r}{hint}")


anything = Domain("a number", lambda v: True)
positive = Domain("above 0", lambda v: v > 0)
not_negative = Domain("0 or more", lambda v: v >= 0)
probability = Domain("a probability from 0 to 1", lambda v: 0 <= v <= 1)


def drawn(fn: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Decorator of a function that draws: it takes the other names of its parameters (`size` for `shape`) and
    `requires_grad`, and generators get it as a method.

    Numbers are computed on `device`, or on that of the parameters: a seed gives the same bits everywhere, and the state
    of a generator is on the CPU.
    """

    others = other_names(fn.__name__, parameters_of(fn))

    @functools.wraps(fn)
    def draw(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        given: Any = kwargs
        if not given:
            device = None
        elif "requires_grad" in given:
            is_leaf = given.pop("requires_grad")
            return draw(*args, **kwargs).requires_grad_(is_leaf)
        else:
            given = renamed(fn.__name__, given, others)
            device = given.pop("device", None)
        every = (*args, *given.values()) if given else args
        if device is None and place_var.get() is None and _HERE.issuperset(map(type, every)):
            return fn(*args, **given)
        place = (place_beside(every) if device is None else Device(device).type) or place_var.get() or CPU.type
        if place == CPU.type and place_var.get() is None:
            return fn(*args, **given)
        # Inside of a program or a batch numbers are drawn beside the generator's state: the compiler places them.
        there = place if interpreter_stack() is None else CPU.type
        moved: Any = [_on(there, a) for a in args]
        named: Any = {name: _on(there, value) for name, value in given.items()}
        return transfer(at_place(there, lambda: fn(*moved, **named)), place)

    def method(self: Generator, *args: Any, **kwargs: Any) -> Tensor:
        made: Any = draw
        return made(*args, generator=self, **kwargs)

    setattr(Generator, fn.__name__, functools.update_wrapper(method, fn))
    setattr(draw, MARK, others | {"requires_grad": "requires_grad"})
    return draw


def _on(place: str, value: Any) -> Any:
    return transfer(value, place) if issubclass(type(value), Tensor) else value


def sampler(**domains: Domain) -> Callable[[Callable[P, Tensor]], Callable[P, Tensor]]:
    """Decorator of a distribution: its parameters are checked, and a large draw of eager code is one compiled call
    (with the same bits); besides what `drawn` does.
    """

    def decorate(fn: Callable[P, Tensor]) -> Callable[P, Tensor]:
        name = fn.__name__
        positional = fn.__code__.co_varnames[: fn.__code__.co_argcount]
        leads = positional[0] == "shape" and domains
        hint = f"; it comes first, {' and '.join(domains)} after it or by name" if leads else ""
        draw = compiled_when_repeated(fn)

        sizes = {"shape", "num_samples"}
        places = [(k, key) for k, key in enumerate(positional) if key in sizes or key in domains]
        unchecked = {"dtype", "generator"}

        def check(key: str, value: Any) -> None:
            if key in domains:
                domains[key].check(name, key, value)
            elif key in sizes and isinstance(value, _NO_SIZES):
                raise ArgumentError(f"{name}: {key} must be an integer or a tuple of them, got {value!r}{hint}")

        @functools.wraps(fn)
        def checked(*args: P.args, **kwargs: P.kwargs) -> Tensor:
            if leads and len(args) > 1 and (_is_numpys(args) or "shape" in kwargs):
                first: Any = (kwargs.pop("shape", None),) if len(args) < 3 else args[2:]
                args = (*first, *args[:2])  # type: ignore[assignment]
            given = len(args)
            for k, key in places:
                if k < given:
                    check(key, args[k])
            if not unchecked.issuperset(kwargs):
                for key, named in kwargs.items():
                    check(key, named)
            return draw(*args, **kwargs)

        return drawn(checked)

    return decorate


_NO_SIZES = (float, Tensor, np.ndarray)


def _is_numpys(args: tuple[Any, ...]) -> bool:
    """Whether arguments are in NumPy's and PyTorch's order, `normal(0, 1, (3,))`: the shape comes last."""
    first, last = args[0], args[-1]
    if isinstance(first, _NO_SIZES):
        return True
    # `normal(0, 1, 100)`, `uniform(-1, 1)`: a shape of 0 or less draws nothing; `normal(5, 0, 1)` is five numbers.
    return isinstance(first, int) and (first <= 0 or (len(args) == 3 and isinstance(last, tuple | list)))


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor, and not one that represents a Python number in a trace."""
    return isinstance(value, Tensor) and not type(value).is_number


class Draw:
    """One call of a distribution: parameters in the dtype that is computed in, and the shape of the result.

    shape: None is that to which the parameters broadcast. dtype: None is that of the float tensors among the
    parameters, else the default float. float16 and bfloat16 are computed in float32 and rounded.
    """

    __slots__ = ("dtype", "generator", "params", "result", "shape")

    def __init__(self, name: str, shape: Any, dtype: Any, generator: Generator | None, *params: Any) -> None:
        given = [asarray(p) if isinstance(p, np.ndarray | np.generic | list) else p for p in params]
        tensors = [p for p in given if is_tensor(p)]
        self._place(name, shape, dtype, generator, tensors)
        self.params = [ops.astype(p, self.dtype) if is_tensor(p) and p.dtype is not self.dtype else p for p in given]

    def _place(self, name: str, shape: Any, dtype: Any, generator: Generator | None, tensors: list[Tensor]) -> None:
        self.generator, self.result = generator, self._result(name, dtype, tensors)
        self.dtype = dtypes.float32 if self.result.itemsize < 4 else self.result
        self.shape = common_shape(name, shape, tensors)

    def _result(self, name: str, dtype: Any, tensors: list[Tensor]) -> np.dtype:
        if dtype is not None:
            found = dtypes.canonical(dtype)
            if not dtypes.is_float(found):
                raise DTypeError(f"{name}: draws floats, got dtype {found.name}; use randint for integers")
            return found
        floats = [(t.dtype, False) for t in tensors if dtypes.is_float(t.dtype)]
        return dtypes.result_type(floats, name) if floats else dtypes.default_float()

    def tensors(self) -> list[Tensor]:
        """The parameters, numbers as tensors without axes."""
        return [full((), p, dtype=self.dtype) if isinstance(p, int | float) else p for p in self.params]

    def unit(self) -> Tensor:
        return unit(self.shape, self.dtype, self.generator)

    def open_unit(self) -> Tensor:
        return open_unit(self.shape, self.dtype, self.generator)

    def normal(self) -> Tensor:
        """Standard normal numbers by the transform of Box and Muller (1958), from two uniforms per element."""
        if self.dtype is dtypes.float32 and _is_of_whole_blocks(self.shape):
            first, second = self.unit(), self.unit()  # the same bits, each computed where it is read
        else:
            first, second = unit((2, *self.shape), self.dtype, self.generator)
        radius = ops.sqrt(ops.log(1.0 - first) * -2.0)  # 1 - u is in (0, 1]
        return radius * ops.cos(second * (2 * math.pi))

    def give(self, x: Tensor) -> Tensor:
        return x if x.dtype is self.result else ops.astype(x, self.result)


def _is_of_whole_blocks(shape: tuple[int, ...]) -> bool:
    """Whether a draw is of whole blocks of four words, and large."""
    return all(type(n) is int for n in shape) and math.prod(shape) >= LARGE and math.prod(shape) % 4 == 0


def of_vectors(name: str, dtype: Any, generator: Generator | None, mean: Any, matrix: Any) -> Draw:
    """The call of a distribution over vectors: a mean (..., k, 1) and a matrix (..., k, k), else ShapeError."""
    mean, matrix = asarray(mean), asarray(matrix)
    if not mean.ndim or matrix.shape[-2:] != mean.shape[-1:] * 2:
        raise ShapeError(
            f"{name}: needs a mean of k numbers and matrices of k by k, got shapes {mean.shape} and {matrix.shape}"
        )
    return Draw(name, None, dtype, generator, mean[..., None], matrix)


class Counts(Draw):
    """A draw of integers (int64, or the dtype that is asked for), computed in float64. It has no gradient."""

    __slots__ = ()

    def __init__(self, name: str, shape: Any, dtype: Any, generator: Generator | None, *params: Any) -> None:
        with no_grad():
            super().__init__(name, shape, dtype, generator, *(p.detach() if is_tensor(p) else p for p in params))

    def _place(self, name: str, shape: Any, dtype: Any, generator: Generator | None, tensors: list[Tensor]) -> None:
        self.generator, self.dtype = generator, dtypes.float64
        self.result = dtypes.int64 if dtype is None else dtypes.canonical(dtype)
        self.shape = common_shape(name, shape, tensors)


def common_shape(name: str, shape: Any, tensors: list[Tensor]) -> tuple[int, ...]:
    """Shape of the result: what the parameters broadcast to, or the one asked for, which they must fit (ShapeError)."""
    avals = [Aval(t.shape, t.dtype) for t in tensors]
    common = broadcast(name, *avals) if avals else ()
    if shape is None:
        return common
    wanted = shape_of(shape)
    if avals and broadcast(name, *avals, Aval(wanted, dtypes.float32)) != wanted:
        raise ShapeError(
            f"{name}: parameters {listing(avals)} do not broadcast to shape {wanted}; give the shape of all results, "
            "with the parameters' axes at its end"
        )
    return wanted


def until_accepted(propose: Callable[[], tuple[Tensor, Tensor]], shape: tuple[int, ...], dtype: np.dtype) -> Tensor:
    """The first proposal that is accepted, per element; `propose` gives (values, which are).

    The number of rounds depends on the bits alone, so the state of a generator is the same in either style.
    """

    def step(carry: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        value, done = carry
        new, accepted = propose()
        return ops.where(done, value, new), ops.logical_or(done, accepted)

    start = zeros(shape, dtype=dtype), zeros(shape, dtype=dtypes.bool_)
    value: Tensor = while_loop(lambda carry: ops.logical_not(ops.all(carry[1])), step, start)[0]
    return value

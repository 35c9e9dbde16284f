"""Aval: the abstract value (shape, dtype) of an array, used wherever no data is needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from . import dtypes
from .errors import DeviceError
from .record import record, replace
from .sizes.dims import Size, hints, is_symbolic
from .sizes.values import evaluate
from .sizes.values import parse as parse_size

CPU = "cpu"
T = TypeVar("T")


class _fact(Generic[T]):
    """A property of a type, which is worked out once where its sizes are numbers: the compiler asks for each twenty
    times a node."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function, self.name = function, function.__name__
        self.__doc__ = function.__doc__

    def __get__(self, aval: Any, owner: type) -> T:
        if aval is None:
            return self  # type: ignore[return-value]
        value = self.function(aval)
        if not is_symbolic(aval.shape):
            aval.__dict__[self.name] = value  # found before this method from now on
        return value


@record
class Aval:
    """Type of a value. `weak` marks a lifted Python scalar: it has a kind but follows the dtype of its other operands.

    A size may be a `Dim` (see sizes/dims.py), which is used as an int. Shape rules take no notice of the device:
    `together` says where the results of operands are; transfers and control operations say it themselves.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    weak: bool = False
    device: str = CPU

    def __hash__(self) -> int:
        found: int | None = self.__dict__.get("_hash")
        if found is None:  # tables of the compiler ask a type twenty times
            found = self.__dict__["_hash"] = hash((self.shape, self.dtype, self.weak, self.device))
        return found

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @_fact
    def size(self) -> int:
        return math.prod(self.shape)

    @_fact
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @_fact
    def symbolic(self) -> bool:
        return is_symbolic(self.shape)

    @property
    def hinted(self) -> Aval:
        """The type at the sizes at hand: for costs."""
        return Aval(hints(self.shape), self.dtype, device=self.device) if self.symbolic else self

    def at(self, sizes: Mapping[str, int]) -> Aval:
        """The type for these values of the symbols."""
        return replace(self, shape=tuple([evaluate(n, sizes) for n in self.shape]))

    def __str__(self) -> str:
        dims = ",".join(map(str, self.shape))
        where = "" if self.device == CPU else f"@{self.device}"
        return f"{dtypes.short(self.dtype)}[{dims}]{'~' if self.weak else ''}{where}"

    def on(self, device: str) -> Aval:
        """The type on another device."""
        return self if device == self.device else replace(self, device=device)


def together(avals: Iterable[Aval]) -> str:
    """The device of an operation on values of these types. Numbers of the CPU, of no axis, may meet any other's.

    Raises DeviceError for values of several devices.
    """
    found = CPU
    here: Aval | None = None
    for aval in avals:
        if aval.device == CPU:
            here = aval if aval.shape else here
        elif found not in (CPU, aval.device):
            raise mixed(found, aval)
        else:
            found = aval.device
    if found != CPU and here is not None:
        raise mixed(found, here)
    return found


def mixed(device: str, other: Aval) -> DeviceError:
    """The error of an operation on values of a device and of another one."""
    return DeviceError(
        f"tensors of one operation are on {device!r} and on {other.device!r} (shape {other.shape}); "
        f"move one of them, for example with .to({device!r})"
    )


def of(array: np.ndarray) -> Aval:
    return Aval(array.shape, dtypes.canonical(array.dtype))


def parse(text: str, symbols: Mapping[str, Size] | None = None) -> Aval:
    """Inverse of `str(aval)`: `f32[4,8]`, `i64[]`, `f32[]~`, `f32[3]@cuda`, and with symbols `f32[n,2*n+1]`."""
    text, _, device = text.partition("@")
    weak = text.endswith("~")
    name, _, rest = text.removesuffix("~").partition("[")
    dims = rest.rstrip("]")
    shape: Any = tuple(int(d) if d.isdigit() else parse_size(d, symbols or {}) for d in dims.split(",")) if dims else ()
    return Aval(shape, dtypes.from_short(name), weak, device or CPU)

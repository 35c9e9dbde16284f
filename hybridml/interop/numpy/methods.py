"""Methods that arrays have in NumPy, with NumPy's parameters, for code that calls them on tensors.

They replace some that other rooms have made, whose parameters they take too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hybridml_compiler.ops.table import OPS

from ...arrays import elementwise, methods
from ...arrays.reducing import missing, quantiles, statistics
from ...arrays.searching.orders import argsort
from ...arrays.shaping import assembly
from ...arrays.shaping.manipulation import std
from ...core.aliasing import assign
from ...core.native_methods import direct
from ...core.tensor import Tensor, method, values


def _as_function(name: str) -> Callable[..., Any]:
    """The method that is NumPy's function of its name."""

    function = getattr(np, name)

    def call(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        target = None if kwargs else direct.get((function, 1 + len(args)))
        if target is not None:
            return target(self, *args)
        from .functions import run

        return run(function, (self, *args), kwargs)

    call.__name__ = name
    call.__doc__ = f"`np.{name}` of this tensor, with its parameters."
    return call


for _name in ("argpartition", "choose", "copy", "put", "take", "trace"):
    method(_as_function(_name))


def _compress(self: Tensor, condition: Any, axis: int | None = None) -> Tensor:
    """The elements, or slices along an axis, where the condition holds; see `np.compress`."""
    from .functions import run

    return run(np.compress, (condition, self, axis), {})


def _argsort(
    self: Tensor, axis: int | None = -1, kind: Any = None, *, descending: bool = False, stable: bool = True
) -> Tensor:
    """The order that sorts, along an axis; see `hm.argsort`."""
    return argsort(self, axis=axis, descending=descending, stable=stable)


def _tobytes(self: Tensor) -> bytes:
    """The bytes of the elements in row-major order."""
    return values(self, "tobytes()").tobytes()


@method
def fill(self: Tensor, value: Any) -> None:
    """Writes `value` into every element, in place (`fill_` returns the tensor)."""
    methods.fill_(self, value)


class Flat:
    """Iterator `x.flat`: the elements in row-major order, to read, to iterate over and to write."""

    __slots__ = ("_x",)

    def __init__(self, x: Tensor) -> None:
        self._x = x

    def __len__(self) -> int:
        return self._x.size

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._x.ravel())

    def __getitem__(self, key: Any) -> Tensor:
        return self._x.ravel()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        x = self._x
        assign(x, x.ravel().at[key].set(value).reshape(x.shape), "x.flat[...] = value")


# Functions whose first argument is the tensor, with NumPy's or PyTorch's names of methods.
for _function in (
    assembly.diag, assembly.diagflat, assembly.dsplit, assembly.fliplr, assembly.flipud, assembly.hsplit,
    assembly.rot90, assembly.vsplit, elementwise.allclose, elementwise.deg2rad, elementwise.float_power,
    elementwise.fmax, elementwise.fmin, elementwise.fmod, elementwise.frac, elementwise.heaviside,
    elementwise.isclose, elementwise.isneginf, elementwise.isposinf, elementwise.isreal, elementwise.lerp,
    elementwise.rad2deg, missing.nan_to_num, missing.nanmean, missing.nansum, statistics.corrcoef, statistics.cov,
    statistics.histc, quantiles.nanquantile, quantiles.quantile,
):  # fmt: skip
    method(_function)

_MORE: dict[str, Any] = {
    "argsort": _argsort,
    "compress": _compress,
    "conjugate": OPS["conj"].fn,
    "flat": property(Flat),
    "round": elementwise.round,
    "std": std,
    "tobytes": _tobytes,
    "var": OPS["var"].fn,
    "__divmod__": lambda self, other: elementwise.divmod(self, other),
    "__rdivmod__": lambda self, other: elementwise.divmod(other, self),
    "__round__": elementwise.round,
}
for _name, _value in _MORE.items():
    setattr(Tensor, _name, _value)

"""Numbers of NumPy's before a tensor, `c + x`: elements of arrays that a program has made by `np.zeros`.

NumPy is asked first, and takes 0.5 us to ask `__array_ufunc__`. So the slots of its float64 and int64 get functions
that see a tensor on the right, of which they do what `__array_ufunc__` does; all else is NumPy's own function, 1 ns later.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..llvm.native import Label, Native, NativeBuilder, native
from ..runtime.linking.builtins import slot_function
from ..structs import WORD
from .elementwise import of_two, return_found
from .objects import is_eager, kind_of
from .slots import compared, row_of, row_of_comparison

SCALARS: dict[str, type] = {"float64": np.float64, "int64": np.int64}
_NUMBER, _COMPARE = 96, 200  # of a type, on all 64-bit CPythons: `tp_as_number` and `tp_richcompare`
_PLACES = {"add": 0, "sub": 1, "mul": 2, "mod": 3, "pow": 5, "floordiv": 29, "truediv": 30}  # in `PyNumberMethods`
_METHODS = {**{name: f"__{name}__" for name in _PLACES}, "compare": "__lt__"}


def _symbol(scalar: str, name: str) -> str:
    return f"hml_{scalar}_{name}"


def _before(scalar: str, name: str) -> str:
    """The symbol of NumPy's function."""
    return f"hml_numpy_{scalar}_{name}"


def _place(cls: type, name: str) -> int:
    """The address of a slot of a class in C."""
    if name == "compare":
        return id(cls) + _COMPARE
    return int(ctypes.c_uint64.from_address(id(cls) + _NUMBER).value) + _PLACES[name] * WORD


def found() -> dict[str, int]:
    """What is in the slots, by symbol."""
    return {
        _before(scalar, name): ctypes.c_uint64.from_address(_place(cls, name)).value
        for scalar, cls in SCALARS.items()
        for name in _METHODS
    }


def put(address_of: Callable[[str], int], functions: Mapping[str, int]) -> None:
    """Puts the functions of the module into the slots, where these have NumPy's own, by what its methods say."""
    for scalar, cls in SCALARS.items():
        for name, method in _METHODS.items():
            if functions[_before(scalar, name)] == slot_function(vars(cls).get(method)):
                ctypes.c_uint64.from_address(_place(cls, name)).value = address_of(_symbol(scalar, name))


def names() -> list[str]:
    return [_symbol(scalar, name) for scalar in SCALARS for name in _METHODS]


def functions() -> list[Native]:
    return [_function(scalar, name) for scalar in SCALARS for name in _METHODS]


def _function(scalar: str, name: str) -> Native:
    more = {"compare": ("i32",), "pow": ("ptr",)}.get(name, ())

    def slot(c: NativeBuilder, left: Any, right: Any, *others: Any) -> None:
        slow: Label = c.label("slow")
        c.unless(kind_of(right) == c.symbol("hml_tensor"), slow)
        is_eager(c, slow)
        if name == "compare":
            return_found(c, compared(c, row_of_comparison(c, *others), left, right, *others))
        else:
            return_found(c, of_two(c, row_of(c, "power" if name == "pow" else name), left, right))
        c.place(slow)
        c.ret(c.extern("ptr", _before(scalar, name), left, right, *others))

    return native("ptr", "ptr", "ptr", *more, name=_symbol(scalar, name))(slot)

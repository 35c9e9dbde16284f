"""Numbers of NumPy's before a tensor, `c + x`, and its functions, `np.exp(x)`, without the way round NumPy.

NumPy is asked first, and takes 0.5 us to ask `__array_ufunc__`. So the slots of its float64 and int64, and the entries
of its functions, get functions that do what `__array_ufunc__` does where a tensor is given; all else is NumPy's own
function, 1 ns later.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..llvm.native import Native, NativeBuilder, native
from ..runtime.linking.builtins import slot_function
from ..structs import WORD
from .elementwise import of_one, of_two, return_found
from .objects import array_of, is_eager, kind_of, plain_array
from .products import product
from .slots import compared, row_of, row_of_comparison
from .tables import DTYPE, ROW

_SCALARS: dict[str, type] = {"float64": np.float64, "int64": np.int64}
_ROWS = {"float64": 0, "int64": 2}  # of the table of dtypes
# Fields of a type, on all 64-bit CPythons: `tp_vectorcall_offset`, `tp_as_number` and `tp_richcompare`.
_CALL, _NUMBER, _COMPARE = 56, 96, 200
_HAS_CALL = 1 << 11  # `Py_TPFLAGS_HAVE_VECTORCALL`
_PLACES = {"add": 0, "sub": 1, "mul": 2, "mod": 3, "pow": 5, "floordiv": 29, "truediv": 30}  # in `PyNumberMethods`
_METHODS = {**{name: f"__{name}__" for name in _PLACES}, "compare": "__lt__"}
_ENTRY, _NUMPY_ENTRY = "hml_ufunc", "hml_numpy_ufunc"


def _word(address: int) -> Any:
    return ctypes.c_uint64.from_address(address)


def _slots() -> dict[str, tuple[type, str, int]]:
    """The slots by the names of their functions: class, method, address."""
    slots = {}
    for scalar, cls in _SCALARS.items():
        for name, method in _METHODS.items():
            table, place = (id(cls), _COMPARE) if name == "compare" else (_word(id(cls) + _NUMBER).value, 0)
            slots[f"hml_{scalar}_{name}"] = cls, method, table + place + _PLACES.get(name, 0) * WORD
    return slots


def _entry(ufunc: Any) -> int:
    """The address of what is called for a function of NumPy's."""
    return id(ufunc) + int(_word(id(np.ufunc) + _CALL).value)


def found() -> dict[str, int]:
    """NumPy's functions as they stand there, by symbol."""
    slots = {_numpy(name): _word(address).value for name, (_, _, address) in _slots().items()}
    return {**slots, _NUMPY_ENTRY: _word(_entry(np.exp)).value if _has_entries() else slots[_numpy("hml_int64_add")]}


def _numpy(name: str) -> str:
    return name.replace("hml_", "hml_numpy_")


def _has_entries() -> bool:
    return bool(np.ufunc.__flags__ & _HAS_CALL) and 0 < _word(id(np.ufunc) + _CALL).value < np.ufunc.__basicsize__


def put(address_of: Callable[[str], int], functions: Mapping[str, int], ufuncs: Iterable[Any]) -> None:
    """Puts the functions of the module there, where NumPy's own are: in slots by what its methods say."""
    for name, (cls, method, address) in _slots().items():
        if functions[_numpy(name)] == slot_function(vars(cls).get(method)):
            _word(address).value = address_of(name)
    for ufunc in ufuncs if _has_entries() else ():
        if _word(_entry(ufunc)).value == functions[_NUMPY_ENTRY]:
            _word(_entry(ufunc)).value = address_of(_ENTRY)


def names() -> list[str]:
    return [_ENTRY, *_slots()]


def functions() -> list[Native]:
    return [hml_ufunc, *map(_slot, _slots())]


def _slot(symbol: str) -> Native:
    scalar, _, name = symbol.removeprefix("hml_").rpartition("_")
    more = {"compare": ("i32",), "pow": ("ptr",)}.get(name, ())

    def slot(c: NativeBuilder, left: Any, right: Any, *others: Any) -> None:
        slow = c.label("slow")
        c.unless(kind_of(right) == c.symbol("hml_tensor"), slow)
        is_eager(c, slow)
        if name == "compare":  # of which NumPy makes an array first, which has a dtype of its own
            own = c.symbol("hml_dtypes") + DTYPE.nbytes * _ROWS[scalar]
            array = plain_array(c, right)
            c.unless(array != 0, slow)
            c.unless(array_of(array)["descr"] == own.load("ptr"), slow)
            return_found(c, compared(c, row_of_comparison(c, *others), left, right, *others))
        else:
            return_found(c, of_two(c, row_of(c, "power" if name == "pow" else name), left, right))
        c.place(slow)
        c.ret(c.extern("ptr", _numpy(symbol), left, right, *others))

    return native("ptr", "ptr", "ptr", *more, name=symbol)(slot)


@native("ptr", "ptr", "ptr", "i64", "ptr")
def hml_ufunc(c: NativeBuilder, ufunc: Any, args: Any, count: Any, names: Any) -> None:
    """The call of a function of NumPy's, with the arguments as CPython has them."""
    slow, n, tensor = c.label("slow"), c.variable(count & _ARGUMENTS), c.symbol("hml_tensor")
    c.unless((names == 0) & (n.value != 0) & (n.value <= 2), slow)
    first, second = args.load("ptr"), (args + (n.value - 1) * WORD).load("ptr")
    c.unless((kind_of(first) == tensor) | (kind_of(second) == tensor), slow)
    is_eager(c, slow)
    with c.if_then(ufunc == c.symbol("hml_np_matmul")):
        c.unless(n.value == 2, slow)
        return_found(c, product(c, row_of(c, "dot"), first, second))
        c.jump(slow)
    rows = c.symbol("hml_ufuncs")
    with c.each(c.symbol("hml_n_ufuncs").load()) as k:
        row = rows.item(k, "ptr").struct(ROW)
        with c.if_then((row["ufunc"] == ufunc) & (row["arity"] == n.value)):
            with c.if_then(n.value == 1):
                return_found(c, of_one(c, row, first))
                c.jump(slow)
            return_found(c, of_two(c, row, first, second))
            c.jump(slow)
    c.place(slow)
    c.ret(c.extern("ptr", _NUMPY_ENTRY, ufunc, args, count, names))


_ARGUMENTS = 2**63 - 1  # all but `PY_VECTORCALL_ARGUMENTS_OFFSET`

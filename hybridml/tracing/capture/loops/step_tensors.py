"""Parts of NumPy arrays of floats in the steps of loops: tensors, which are NumPy's arrays to what is done to them.

What is computed of them alone has NumPy's types: floats are such tensors again, or scalars (see `element`), and
whatever is no float is a stand-in of an array or a scalar of NumPy's, whose rules tensors do not have:
`np.argmin(a[i]) / 3` and `(a[i] > 0.5).sum() * 0.1` are float64. So are results of operands of several dtypes. Beside
other tensors they are tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from ....core.proxies.base import NumberProxy
from ....core.tensor import Tensor
from ..memory import OF_SCALARS, element, is_element
from ..numpy_rules import of_function, of_ufunc
from ..program_arrays import ProgramArray, ProgramScalar, ProgramValue, has_memory, value_of, waits
from ..traced_tensor import Traced
from ..tracer import Tracer, iterator_of, top_tracer

_ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "mod": np.remainder,
               "floordiv": np.floor_divide, "pow": np.power, "matmul": np.matmul}  # fmt: skip
_COMPARISONS = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
                "ne": np.not_equal}  # fmt: skip
_UNARY = ("neg", "pos", "abs")
_VIEWS = ("T", "mT")
_class = object.__dict__["__class__"]  # that of a tensor is Python's to nobody
Own = Callable[..., Any]


def is_part(value: Any) -> bool:
    """Whether a value is a tensor that stands for an array of NumPy's."""
    return issubclass(type(value), Traced) and type(value).is_part


def part(tracer: Tracer, t: Tensor) -> Tensor:
    """Makes a tensor of floats stand for an array of NumPy's, in place."""
    _class.__set__(t, _parts(tracer.cls))  # type: ignore[arg-type]  # mypy knows no hash of a class
    return t


@lru_cache(maxsize=1)  # of the trace that runs
def _parts(cls: type[Traced]) -> type[Traced]:
    return type("Tensor", (cls,), {"__slots__": (), "__module__": "hybridml", "is_part": True, **_OF_PARTS})


# -- what is given, and what comes out


def _in(value: Any) -> Iterator[Any]:
    """Yields a value, or what is in it."""
    kind = type(value)
    if kind in (tuple, list):
        for v in value:
            yield from _in(v)
    elif kind is dict:
        yield from _in(list(value.values()))
    else:
        yield value


def _is_numpys(value: Any) -> bool:
    return issubclass(type(value), Traced) and (type(value).is_part or type(value).is_element)


def _has_others(given: Any) -> bool:
    """Whether there are tensors that are none of NumPy's."""
    return any(issubclass(type(x), Tensor) and not (_is_numpys(x) or x.is_number) for x in _in(given))


def _are_alike(given: Any) -> bool:
    """Whether all arrays and scalars of NumPy's are of one dtype of floats, which tensors compute in as NumPy does."""
    found = {np.dtype(x.dtype) for x in _in(given) if issubclass(type(x), _TYPED)}
    found |= {np.dtype(np.float64) for x in _in(given) if issubclass(type(x), NumberProxy) and _is_double(x)}
    return len(found) < 2 and all(dtype.kind == "f" for dtype in found)


_TYPED = (Tensor, ProgramValue, np.ndarray, np.generic)


def _is_double(x: Any) -> bool:
    return issubclass(x._kind, np.generic)


def _stand_ins(tracer: Tracer, given: Any) -> Any:
    """Returns what is given, with stand-ins of arrays and scalars in the places of tensors."""
    kind = type(given)
    if kind in (tuple, list):
        return kind([_stand_ins(tracer, x) for x in given])
    if kind is dict:
        return {k: _stand_ins(tracer, x) for k, x in given.items()}
    if not issubclass(kind, Traced):
        return given
    return value_of(tracer, given, scalar=True) if is_element(given) else ProgramArray._of_step(tracer, given)


def _as_arrays(given: Any) -> Any:
    """Arguments for a function of tensors where all are NumPy's: scalars have dtypes as arrays have, and
    floats in lists are float64."""
    kind = type(given)
    if kind is list and given and all(type(x) in (int, float) for x in given) and float in map(type, given):
        return np.asarray(given)
    if kind in (tuple, list):
        return kind([_as_arrays(x) for x in given])
    return Tensor.__getitem__(given, ...) if _is_numpys(given) else given


def _shown(given: Any, result: Any) -> Any:
    """The result of a function of tensors, as NumPy's."""
    if type(result) in (tuple, list):
        return type(result)([_shown(given, x) for x in result])
    is_own = not issubclass(type(result), Traced) or result.is_number or any(x is result for x in _in(given))
    if is_own or _is_numpys(result) or _has_others(given):
        return result
    tracer = top_tracer()
    if tracer is None:  # another interpreter has made it
        return result
    beside_array = waits(result) or any(map(has_memory, _in(given)))
    if result.dtype.kind != "f" or (beside_array and result.ndim):
        return value_of(tracer, result, scalar=not result.ndim)
    return part(tracer, result) if result.ndim else element(tracer, result)


def _as_floats(result: Any) -> Any:
    """A result that NumPy's rules have given: scalars of floats are those of steps."""
    if type(result) is ProgramScalar and result.dtype.kind == "f" and result._memory.is_traced:
        return element(result._memory.tracer, result._value())
    return result


def _of_ufunc(self: Tensor, ufunc: np.ufunc, call: str, *inputs: Any, **kwargs: Any) -> Any:
    if _has_others([inputs, kwargs]) or (_are_alike(inputs) and kwargs.get("out") is None):
        result = Tensor.__array_ufunc__(self, ufunc, call, *inputs, **kwargs)
        return _shown([inputs, kwargs], result)
    tracer: Any = top_tracer()
    return _as_floats(of_ufunc(tracer, ufunc, call, _stand_ins(tracer, inputs), _stand_ins(tracer, kwargs)))


def _of_function(self: Tensor, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    if _has_others([args, kwargs]):
        return Tensor.__array_function__(self, func, types, args, kwargs)
    arrays, options = _as_arrays(args), {k: v if k == "out" else _as_arrays(v) for k, v in kwargs.items()}
    if _are_alike([arrays, options]):
        return _shown([args, kwargs], Tensor.__array_function__(self, func, types, arrays, options))
    tracer: Any = top_tracer()
    return _as_floats(of_function(tracer, func, _stand_ins(tracer, args), _stand_ins(tracer, kwargs)))


def _operator(own: Own, ufunc: np.ufunc, turned: bool, of_scalars: bool) -> Own:
    """An operator of parts, or of scalars, which leave it to an array beside them."""

    def of(self: Tensor, other: Any) -> Any:
        if of_scalars and (issubclass(type(other), ProgramArray) or is_part(other)):
            return NotImplemented
        given = (other, self) if turned else (self, other)
        if _has_others(given) or _are_alike(given):
            return _shown(given, own(self, other))
        if of_scalars and ufunc is np.power:  # they round in another way
            return _as_floats(operator.pow(*_stand_ins(top_tracer(), given)))  # type: ignore[arg-type]
        return _of_ufunc(self, ufunc, "__call__", *given)

    return of


def _unary(own: Own) -> Own:
    return lambda self: _shown((self,), own(self))


def _method(name: str) -> Own:
    """A method that NumPy's arrays have."""
    own = getattr(Tensor, name)

    def of(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if _has_others([args, kwargs]) or _are_alike([args, kwargs]) or not hasattr(np, name):
            return _shown([self, args, kwargs], own(self, *args, **kwargs))
        return _of_function(self, getattr(np, name), (), (self, *args), kwargs)

    return of


def _key(key: Any) -> Any:
    """A key with tensors in the places of stand-ins."""
    if type(key) is tuple:
        return tuple(map(_key, key))
    return key._value() if issubclass(type(key), ProgramValue) and key._memory.is_traced else key


def _getitem(self: Tensor, key: Any) -> Any:
    found: Any = Tensor.__getitem__(self, _key(key))
    tracer: Any = top_tracer()
    is_element = not found.ndim and not (key is ... or (type(key) is tuple and any(k is ... for k in key)))
    return element(tracer, found) if is_element else _shown((self,), found)


def _setitem(self: Tensor, key: Any, value: Any) -> None:
    Tensor.__setitem__(self, _key(key), value)


def _sort(self: Tensor, axis: int = -1, **options: Any) -> None:
    self[...] = np.sort(self, axis, **options)


def _partition(self: Tensor, *args: Any, **kwargs: Any) -> NoReturn:
    tracer: Any = top_tracer()
    tracer.loops[-1].refuse("a slice is partitioned in place, in NumPy's order")
    raise AssertionError


def _iter(self: Tensor) -> Iterator[Any]:
    return iterator_of(self) or map(self.__getitem__, range(len(self)))


_OF_PARTS: dict[str, Any] = {
    "__array_ufunc__": _of_ufunc, "__array_function__": _of_function, "__getitem__": _getitem,
    "__setitem__": _setitem, "__iter__": _iter,
}  # fmt: skip
_OF_PARTS |= {f"__{name}__": _unary(getattr(Tensor, f"__{name}__")) for name in _UNARY}
_OF_PARTS |= {name: property(_unary(getattr(Tensor, name).fget)) for name in _VIEWS}
for _name, _ufunc in (_ARITHMETIC | _COMPARISONS).items():
    for _slot in (f"__{_name}__", f"__r{_name}__")[: 1 + (_name in _ARITHMETIC)]:
        _given = getattr(Tensor, _slot), _ufunc, _slot[:3] == "__r"
        _OF_PARTS[_slot], OF_SCALARS[_slot] = (_operator(*_given, of_scalars) for of_scalars in (False, True))
    if f"__i{_name}__" in OF_SCALARS:
        OF_SCALARS[f"__i{_name}__"] = OF_SCALARS[f"__{_name}__"]
_METHODS = {
    name: _method(name) for name in dir(np.ndarray)
    if name[0] != "_" and callable(getattr(np.ndarray, name)) and callable(getattr(Tensor, name, None))
    and name not in ("item", "tolist", "fill")
}  # fmt: skip
_OF_PARTS |= _METHODS | {"sort": _sort, "partition": _partition}
OF_SCALARS |= _METHODS | {"__array_ufunc__": _of_ufunc, "__array_function__": _of_function}

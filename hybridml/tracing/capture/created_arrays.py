"""NumPy's creation functions in a trace: the arrays that the function's own code makes are values of the program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hybridml_compiler.record import record

from ...core.proxies.scalar import ScalarProxy
from ...core.tensor import Tensor
from . import numpy_rules as numpy_rules  # what is done with such arrays
from . import waiting_arrays as waiting_arrays  # and with those that wait
from .loops import sized_arrays  # and those of sizes that come with the call
from .memory import check_written, holds
from .numbers import sliced as sliced  # and with slices whose ends data decides
from .program_arrays import ProgramArray, ProgramValue, given_back, has_tensor, is_program, plain
from .tracer import Tracer, current_tracer

_NAMES = (
    "arange array asanyarray asarray ascontiguousarray empty empty_like eye full full_like geomspace identity indices "
    "linspace logspace ones ones_like tri zeros zeros_like"
)
_np_stack = np.stack
FUNCTIONS: dict[str, Callable[..., Any]] = {name: getattr(np, name) for name in _NAMES.split()}


def _patch(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as the code that is traced finds it, and everybody else as it is."""
    converts, unset = "array" in name, name in ("empty", "empty_like")
    shares = name in ("asarray", "asanyarray")

    def make(*args: Any, **kwargs: Any) -> Any:
        tracer, code = current_tracer(), sys._getframe(1).f_code
        if tracer is None or code not in tracer.codes or code.co_name == "__array__":  # NumPy wants its own of that
            return function(*args, **kwargs)
        first: Any = args[0] if args else None
        if is_program(first) and first.is_argument:
            first._settled()
        if (sized := sized_arrays.made(tracer, name, args, kwargs)) is not None:
            return sized
        if (as_array := getattr(type(first), "as_array", None)) is not None:
            return as_array(first, _Made(function, args[1:], kwargs))
        if converts and type(first) is ProgramArray:
            own = first._array
            found = function(own, *plain(args[1:]), **plain(kwargs))
            if found is own:
                return first
            if not first._memory.is_traced or (found.dtype == own.dtype and np.may_share_memory(found, own)):
                return given_back(tracer, found, (first,))
        if converts and has_tensor(first) and not (shares and issubclass(type(first), Tensor)):
            return _filled(tracer, function, first, (first, *args[1:]), kwargs)
        if name == "full" and len(args) > 1 and has_tensor(args[1]):
            return _filled(tracer, function, args[1], args, kwargs)
        found = function(*args, **kwargs)
        if unset and holds(found):
            found[...] = 0  # what memory holds would be a literal of the program
        return given_back(tracer, found, args)

    make.stands_for = function  # type: ignore[attr-defined]
    return make


@record
class _Made:
    """A function of NumPy with arguments behind the first one. `of_arrays`: an array of the items is as good as a
    list of them."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    of_arrays = property(lambda self: self.function is not _np_stack)

    def __call__(self, values: Any) -> Any:
        return self.function(values, *self.args, **self.kwargs)


def _stack(arrays: Any, *args: Any, **kwargs: Any) -> Any:
    """`np.stack`: of a list of the program it is made when the call ends."""
    as_array = getattr(type(arrays), "as_array", None)
    return _np_stack(arrays, *args, **kwargs) if as_array is None else as_array(arrays, _Made(_np_stack, args, kwargs))


def _filled(tracer: Tracer, function: Callable[..., Any], values: Any, args: Any, kwargs: Any) -> Any:
    """An array of the shape and dtype that NumPy finds for such values, into which they are written."""
    for _, value in _leaves(values):
        if issubclass(type(value), Tensor):
            check_written(tracer, value, lambda: False)
    found = given_back(tracer, function(*map(_model, args), **kwargs))
    if type(found) is ProgramArray:
        for key, value in _leaves(values):
            found[key] = value
        return found
    return function(*args, **kwargs)


def _model(x: Any) -> Any:
    """Zeros in the places of tensors."""
    if type(x) in (list, tuple):
        return type(x)(map(_model, x))
    if not has_tensor(x):
        return plain(x)
    if issubclass(type(x), ProgramArray):
        return np.zeros_like(x._array)
    if issubclass(type(x), Tensor):
        return np.zeros(x.shape, x.dtype)
    return x.dtype.type(0) if issubclass(type(x), ProgramValue) else 0.0 if type(x) is ScalarProxy else x


def _leaves(x: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """Yields what is in nested lists, with its place."""
    if type(x) in (list, tuple):
        for k, item in enumerate(x):
            yield from _leaves(item, (*at, k))
    elif has_tensor(x):
        yield at or ..., x


PATCHES = {name: _patch(name, function) for name, function in FUNCTIONS.items()}
FUNCTIONS["stack"], PATCHES["stack"] = _np_stack, _stack

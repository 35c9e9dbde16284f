"""Operators and keys of small tensors as native methods: what takes over from the Python ones when they have been
called some times, and calls them for all that it does not take ([Note: Eager calls])."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.once import once
from hybridml_compiler.ops.elementwise import instructions_of
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.reduction import accumulator
from hybridml_compiler.ops.table import OPS

from . import aliasing, source_location
from .codegen import REDUCED, accepted
from .context import clock, watchers
from .dispatch import installers, is_plain_elementwise, not_yet
from .interpreter import interpreter_var
from .library import MISS, missed
from .tensor import Tensor

if TYPE_CHECKING:
    from hybridml_compiler.targets.cpu.eager_calls.methods import Method

_SLOTS = ("__getitem__", "__bool__", "__float__", "__int__", "__index__", "__len__", "__rpow__")
_OTHERS = {"__array_ufunc__": "array_ufunc", "__array_function__": "array_function", "__array__": "array",
           "clone": "clone", "copy": "copy"}  # fmt: skip
_FLOATS = frozenset((dtypes.float32, dtypes.float64))
# Rows that are NumPy's functions of floats, and of other dtypes functions of their own.
_OF_FLOATS = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "sign": np.sign}
# Functions that take so many arguments of one of NumPy's as they are: 0.2 us, where binding them takes 3.
direct: dict[tuple[Any, int], Callable[..., Any]] = {}
fallbacks: dict[str, Callable[..., Any]] = {}  # the functions of the methods that are native now
_noted: dict[str, Any] = {}


def note() -> None:
    """Notes the methods that may be exchanged: none that a program has put in their place since."""
    _noted.update(vars(Tensor))


def install_soon(compiles: bool) -> bool:
    """`install`, if the code may be compiled or has been."""
    from hybridml_compiler.targets.cpu.eager_calls.methods import is_kept

    if not (compiles or is_kept(_known())):
        return False
    install()
    return True


@once
def install() -> None:
    """Makes the methods native ones, once, where the interpreter's structs are known."""
    from hybridml_compiler.targets.cpu.eager_calls.methods import native_methods

    methods = _known()
    known = {
        "hml_level": interpreter_var, "hml_forget": aliasing.forget, "hml_clock": clock.__self__,  # type: ignore[attr-defined]
        "hml_stamped": source_location.stamped, "hml_known_user": source_location.known_user,
        "hml_direct": direct, "hml_miss": MISS,
    }  # fmt: skip
    words = {
        "hml_watchers": watchers, "hml_known_number": source_location.known_number,
        "hml_writes": source_location.native_writes, "hml_default_bits": dtypes.default_bits,
    }  # fmt: skip
    functions, found = native_methods(Tensor, methods, known, words)
    for op in OPS.values():
        row = f"__{op.operator}__" if op.operator else op.name
        if row in functions and (methods[row].ufunc is op.eager or row in REDUCED):
            op.fn.__globals__["_row"] = functions[row]
        elif op.fn.__globals__.get("_row") is not_yet:
            op.fn.__globals__["_row"] = missed
    for name, method in found.items():
        if methods[name].fallback is vars(Tensor).get(name):
            fallbacks[name] = methods[name].fallback
            setattr(Tensor, name, method)


def _ufunc_of(name: str) -> np.ufunc | None:
    """The function of NumPy's that a row of this name is."""
    found = [getattr(np, spelled, None) for spelled in (name, f"arc{name[1:]}", "power" if name == "pow" else "")]
    return next((ufunc for ufunc in found if isinstance(ufunc, np.ufunc)), None)


@once
def _known() -> dict[str, Method]:
    return dict(_methods())


def _methods() -> Iterator[tuple[str, Method]]:
    """The methods as noted, and functions of NumPy's that have none, by name."""
    from hybridml_compiler.targets.cpu.eager_calls.methods import Method

    def of(op: Op, does: str, fallback: Any, ufunc: Any = None) -> Method:
        mixes, floats = is_plain_elementwise(op), op.accepts in ("float", "inexact")
        taken = frozenset() if ufunc else accepted(op)
        given = (op.differentiable, mixes, floats, len(op.inputs), tuple(instructions_of(op).items()))
        return Method(does, fallback, ufunc or op.eager, taken, *given)

    for name, op in OPS.items():
        if name in REDUCED:
            same = frozenset([dtype for dtype in accepted(op) if dtype.kind in "iuf" and accumulator(dtype) is dtype])
            yield name, Method("reduction", op.fn, REDUCED[name], same, arity=1 + len(op.params))
        if op.kind != "elementwise" or op.params:
            continue
        if not isinstance(op.eager, np.ufunc):
            like = _ufunc_of(op.name) if instructions_of(op) else None
            if like is not None:
                yield like.__name__, of(op, "function", op.fn, like)
            elif name in _OF_FLOATS:
                yield name, Method("function", op.fn, _OF_FLOATS[name], _FLOATS, op.differentiable, arity=1)
            continue
        if not op.operator:
            yield name, of(op, "function", op.fn)
            continue
        spelled = [(f"__{op.operator}__", "operator" if len(op.inputs) == 2 else "unary")]
        spelled += [(f"__r{op.operator}__", "reflected"), (f"__i{op.operator}__", "update")] * (len(op.inputs) == 2)
        for method, does in spelled:
            if method in _noted:
                yield method, of(op, does, _noted[method])
    for method, does in (*((name, "slot") for name in _SLOTS), *_OTHERS.items()):
        yield method, Method(does, _noted[method])
    yield "__setitem__", Method("slot", _noted["__setitem__"])
    real = frozenset([dtype for dtype in accepted(OPS["square"]) if dtype.kind in "iuf"])
    yield "__pow__", Method("slot", _noted["__pow__"], np.square, real, arity=1)
    yield "__matmul__", Method("operator", _noted["__matmul__"], np.matmul, _FLOATS, arity=2)
    yield "__rmatmul__", Method("reflected", _noted["__rmatmul__"])
    yield "dot", Method("product", OPS["matmul"].fn, np.matmul, _FLOATS, arity=2)


installers.append(install_soon)

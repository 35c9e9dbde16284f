"""Python's complex numbers, and NumPy's, that steps of loops decide: `z = z * w`, `cmath.exp(-1j * k)`.

Sums, differences and products have the bits of the rows of the table. All else Python computes: a call, for all steps
before the program runs where nothing but their numbers has a part in it (see passes/step_tables.py).
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hybridml_compiler.dtypes import complex128
from hybridml_compiler.graph import ir
from hybridml_compiler.hooks import hooks
from hybridml_compiler.ops.exact import COMPLEX_FUNCTIONS
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import is_dim

from ....core.proxies.complex import ComplexProxy, conjugate
from ....core.proxies.integer import IntProxy
from ....core.proxies.scalar import ScalarProxy
from ....core.tensor import Tensor
from ..tracer import Tracer, top_tracer

# Functions that are rows, of Python's numbers and of NumPy's scalars; NumPy's own functions may round another way.
_ROWS: dict[Any, str] = {
    operator.add: "add", operator.sub: "subtract", operator.mul: "multiply", operator.neg: "negative",
    np.add: "add", np.subtract: "subtract", np.negative: "negative", np.conjugate: "conj", conjugate: "conj",
}  # fmt: skip
_PARTS = {"real": OPS["real"], "imag": OPS["imag"]}
_NAMES: dict[Any, str] = {function: name for name, function in COMPLEX_FUNCTIONS.items()}
_CONVERTS = sys.version_info < (3, 14)  # a float beside a complex number to one
_NUMPYS = (np.float64, np.complex128)


def compute(function: Callable[..., Any], *operands: Any) -> Any:
    """The number that a function makes of numbers, a complex one among them; None where their values are asked for."""
    tracer = top_tracer()
    if tracer is None:
        return None
    found = [of for x in operands if (of := _operand(tracer, x)) is not None]
    if len(found) < len(operands):
        return None
    tensors, kinds = [t for t, _ in found], tuple([kind for _, kind in found])
    double = isinstance(function, np.ufunc) or not {"float64", "complex128"}.isdisjoint(kinds)
    if function in (operator.eq, operator.ne):
        answer = bool(tracer.emit(OPS["equal" if function is operator.eq else "not_equal"], tensors, {}))
        return np.bool_(answer) if double else answer
    if isinstance(function, operator.attrgetter):
        return _number(tracer, tracer.emit(_PARTS[function.__reduce__()[1][0]], tensors, {}), double)
    row = _ROWS.get(function)
    if row is not None and (_CONVERTS or len({*kinds} - {"int"}) == 1 or double):
        return _number(tracer, tracer.emit(OPS[row], tensors, {}), double)
    name = _NAMES.get(function)
    if name is None:
        return None
    tracer.may_be_slower |= bool(tracer.loops)
    found_by_python = tracer.emit(OPS["python_complex"], [tensors[0], tensors[-1]], {"name": name, "kinds": kinds})
    return _number(tracer, found_by_python, double)


ComplexProxy.compute = staticmethod(compute)


def _operand(tracer: Tracer, x: Any) -> tuple[Tensor, str] | None:
    """The complex tensor of a number, and what it is to Python."""
    kind = type(x)
    if kind in (int, float, complex, *_NUMPYS):
        value = complex(x) if kind is not int or abs(x) < 1 << 53 else None
        return None if value is None else (tracer.wrap(ir.constant(np.asarray(value)), True), kind.__name__)
    name = "int" if is_dim(x) or kind is IntProxy else x._kind.__name__ if kind in (ScalarProxy, ComplexProxy) else ""
    if not name or (kind is IntProxy and x._value is not None):
        return None
    x = hooks.size_as_float(x) if is_dim(x) else x._number if kind is IntProxy else x
    return (x._tensor if kind is ComplexProxy else tracer.emit(OPS["astype"], [x._tensor], {"dtype": complex128})), name


def _number(tracer: Tracer, t: Tensor, double: bool) -> Any:
    return (ComplexProxy if t.dtype.kind == "c" else ScalarProxy)(tracer.wrap(t._array, True, double))


def _patch(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of `cmath`, as the thread that traces finds it, and everybody else as it is."""

    def patched(*args: Any) -> Any:
        tracer = top_tracer()
        if tracer is None or not tracer.loops or not any(map(_is_number, args)):
            return function(*args)
        found = compute(function, *args) if len(args) == (2 if name == "rect" else 1) else None
        return function(*args) if found is None else found

    return patched


def _is_number(x: Any) -> bool:
    return type(x) in (ScalarProxy, ComplexProxy) or is_dim(x) or (type(x) is IntProxy and x._value is None)


def complex_of(parts: tuple[Any, ...]) -> Any:
    """The result of `complex(*parts)` of numbers of the program; None where that is Python's."""
    tracer = top_tracer()
    if tracer is None or not tracer.loops or len(parts) not in (1, 2) or not any(map(_is_number, parts)):
        return None
    found = [of for x in parts if (of := _operand(tracer, x)) is not None]
    if len(found) < len(parts) or (len(parts) == 2 and any("complex" in kind for _, kind in found)):
        return None
    real, *imag = (tracer.emit(OPS["real"], [t], {}) for t, _ in found)
    if not imag:
        return ComplexProxy(tracer.wrap(found[0][0]._array, True))
    return ComplexProxy(tracer.wrap(tracer.emit(OPS["complex"], [real, imag[0]], {})._array, True))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    name.removeprefix("cmath."): function for name, function in COMPLEX_FUNCTIONS.items() if name[:6] == "cmath."
}
PATCHES = {name: _patch(name, function) for name, function in FUNCTIONS.items()}

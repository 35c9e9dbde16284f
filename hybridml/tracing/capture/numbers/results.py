"""Classes of the results that rows make of numbers of Python's, of scalars of NumPy's and of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS

from ....core.tensor import Tensor
from ..number_bounds import is_literal
from ..traced_tensor import Traced, is_number

_astype, _python_power = OPS["astype"], OPS["python_power"]


def class_of(tracer: Any, op: Op, tensors: Sequence[Tensor]) -> type[Traced]:
    """The class of the result: arithmetic of numbers gives a number, and a cast is how a number becomes a tensor."""
    found: Any = tracer.cls
    if op is _astype:
        strong = tracer.strong_double if type(tensors[0]) is tracer.double else tracer.strong
        found = strong if is_number(tensors[0]) else tracer.cls
    elif tensors and (op is _python_power or op.kind == "elementwise"):
        of_numpy = next((type(t) for t in tensors if type(t).is_element), None)
        if all(map(is_number, tensors)):
            found = tracer.double if any(type(t) is tracer.double for t in tensors) else tracer.number
        elif of_numpy is not None and all(map(_is_beside_scalars, tensors)):
            found = of_numpy
    kind: type[Traced] = found
    return kind


def _is_beside_scalars(t: Any) -> bool:
    """Whether NumPy makes a scalar of one of its own and this operand."""
    return type(t).is_element or type(t).was_number or is_literal(t._array)

"""The interpreter at the bottom of every stack: NumPy, or kernels compiled for large arrays, compute at once.

Generated functions do the same for the common case without it (see codegen.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hybridml_compiler.eager.large import compute, is_small
from hybridml_compiler.errors import HybridmlError, OutOfBoundsError
from hybridml_compiler.ops.op import Op

from .context import FLOAT_FLAGS, watch_var
from .interpreter import Interpreter, Reading, interpreter_stack
from .tensor import Tensor, adopt, array_of, aval_of, leaked, wrap

CONVERSIONS: dict[Reading, Callable[[Any], Any]] = {"bool": bool, "int": int, "float": float, "nonzero": bool}
_ndarray = np.ndarray


class Eager:
    """The interpreter that computes; its tensors hold arrays."""

    def lift(self, value: Tensor | np.ndarray) -> Tensor:
        if type(value) is Tensor:
            return value
        if isinstance(value, _ndarray):
            return adopt(value)
        raise leaked(value)

    def constant(self, t: Tensor, weak: bool = False) -> Tensor:
        return t

    def apply(self, op: Op, operands: Sequence[Tensor], params: Mapping[str, Any]) -> tuple[Tensor, ...]:
        arrays = [t._array for t in operands]
        params = {**params, "result": None} if op.results else params
        try:
            found = op.run(arrays, params) if is_small(op, arrays) else compute(op, arrays, params)
        except Exception as error:
            found = recover(op, error, operands, params)
        results = found if op.results else (found,)
        outs = tuple([wrap(array if type(array) is _ndarray else np.asarray(array)) for array in results])
        watching = watch_var.get()
        if watching is not None:
            for out in outs:
                watching.check(op, arrays, out._array)
        return outs

    def read(self, t: Tensor, how: Reading, what: str) -> Any:
        array = array_of(t)
        if how in ("array", "text"):
            return array
        return CONVERSIONS.get(how, lambda value: value)(array.item())

    def write(self, t: Tensor, value: Tensor) -> None:
        np.copyto(array_of(t), array_of(value))

    def layout(self, t: Tensor) -> np.ndarray:
        return array_of(t)

    def trust(self, t: Tensor) -> None:
        """Ignored: NumPy checks indices in any case."""

    def watch(self, tensors: Iterable[Tensor]) -> Callable[[], list[tuple[Tensor, Tensor]]]:
        before = [(t, wrap(t._array.copy())) for t in tensors]
        return lambda: [(t, old) for t, old in before if not np.array_equal(t._array, old._array, equal_nan=True)]


EAGER: Interpreter[Tensor] = Eager()


def active_interpreter(*values: Any) -> Interpreter[Tensor]:
    """The interpreter that applies an operation to these values: the one on top of the stack, that of the device which
    has one of them, or the one that computes here.
    """
    level = interpreter_stack()
    if level is not None:
        return level.interpreter
    for value in values:
        home: Interpreter[Tensor] | None = getattr(type(value), "home", None)
        if home is not None:
            return home
    return EAGER


def recover(op: Op, error: Exception, tensors: Sequence[Tensor], params: Mapping[str, Any]) -> Any:
    """Handles an error of NumPy. A division by zero is a value here; the rest raise the error of the op's own shape
    rule, as a traced program would.
    """
    if isinstance(error, FLOAT_FLAGS):
        with np.errstate(all="ignore"):
            return op.run([t._array for t in tensors], params)
    avals = [aval_of(t) for t in tensors]
    try:
        op.infer_from(avals, op.canonical_params(avals, params))
    except HybridmlError as clear:
        raise clear from None  # NumPy's own words would stand above these
    if isinstance(error, IndexError) and not isinstance(error, OutOfBoundsError):
        raise OutOfBoundsError(f"{op.name}: {error}") from None
    raise error

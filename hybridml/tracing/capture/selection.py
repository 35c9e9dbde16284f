"""`x[mask]` in a trace. How many elements it has is a matter of data, which a program is for; so they wait until
something asks for them. Sums, means and logic over all of them are computed from x and the mask, whatever they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS

from ...core.context import current_interpreter, grad_is_off, set_grad_enabled
from ...core.interpreter import interpret
from ...core.tensor import Tensor
from .traced_tensor import Traced

_FILLS = {"sum": -0.0, "mean": -0.0, "prod": 1, "any": 0, "all": 1}  # what changes no result
_WHOLE = (None, 0, -1)  # axes


class Selection(Traced):
    """The elements of `of[0]` where `of[1]` is true; `found` once they were asked for."""

    __slots__ = ("compute", "found", "of")
    of: tuple[Tensor, Tensor]
    compute: Callable[[], Tensor]
    found: Tensor | None

    def _there(self) -> Tensor:
        if self.found is None:
            self.found = self.compute()
        return self.found

    @property
    def _array(self) -> Any:  # type: ignore[override]
        return self._there()._array

    @_array.setter
    def _array(self, value: Any) -> None:
        self._there()._array = value

    @property
    def _node(self) -> Any:  # type: ignore[override]
        return self._there()._node

    @_node.setter
    def _node(self, value: Any) -> None:
        self._there()._node = value

    def _reduced(self, op: Op, params: dict[str, Any]) -> Tensor | None:
        axis = params.get("axis")
        axis = axis[0] if type(axis) is tuple and len(axis) == 1 else axis
        plain = (axis is None or type(axis) is int) and axis in _WHOLE and not params.get("keepdims")
        if self.found is not None or op.name not in _FILLS or not plain:
            return None
        x, mask = self.of
        if op.name != "mean":
            return op.fn(_filled(x, mask, _FILLS[op.name]), **{**params, "axis": None})
        dtype = x.dtype if dtypes.is_inexact(x.dtype) else dtypes.default_float()
        wide = OPS["astype"].fn(x, dtypes.float32 if dtypes.is_narrow(dtype) else dtype)
        count = OPS["sum"].fn(mask, dtype=dtypes.int64)
        mean = OPS["sum"].fn(_filled(wide, mask, _FILLS["mean"])) / OPS["astype"].fn(count, wide.dtype)
        return OPS["astype"].fn(mean, dtype)


def _filled(x: Tensor, mask: Tensor, fill: float) -> Tensor:
    return OPS["where"].fn(mask, x, fill if dtypes.is_inexact(x.dtype) else bool(fill))


def selected(x: Tensor, mask: Tensor, select: Callable[[Tensor, Tensor], Tensor]) -> Tensor | None:
    """A selection of the values that x and the mask have now; None where the tracer is not on top."""
    tracer: Any = current_interpreter()
    kind = getattr(tracer, "selection", None)
    if kind is None or not all(issubclass(type(t), tracer.cls) for t in (x, mask)):
        return None
    recorded = not grad_is_off()
    x, mask = _present(tracer, x, recorded), _present(tracer, mask, False)

    def compute() -> Tensor:
        with set_grad_enabled(recorded):
            return interpret(tracer, lambda: select(x, mask))

    made = kind()
    made.of, made.compute, made.found, made._version = (x, mask), compute, None, 0
    return made


def _present(tracer: Any, t: Tensor, recorded: bool) -> Tensor:
    """The tensor as it is now, whatever is written to it later."""
    now: Tensor = tracer.wrap(t._array)
    now._node = t._node if recorded else None
    return now

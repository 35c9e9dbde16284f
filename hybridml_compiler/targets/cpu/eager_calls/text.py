"""The module of all native methods, as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..llvm.native import Native, NativeBuilder, native
from ..llvm.native import text as module_text
from ..spec import host_spec
from . import elementwise, functions, products, views
from .tables import ROW

_BODIES: dict[str, Callable[..., None]] = {
    "operator": lambda c, row, self, other: elementwise.operator(c, row, self, other, False),
    "reflected": lambda c, row, self, other: elementwise.operator(c, row, self, other, True),
    "update": elementwise.update,
    "square": elementwise.square,
    "matmul": products.matmul,
    "unary": lambda c, row, self, _: elementwise.function(c, row, self),
}
_OTHERS = {
    "getitem": views.hml_getitem, "setitem": views.hml_setitem, "bool": views.hml_bool, "float": views.hml_float,
    "int": views.hml_int, "index": views.hml_index,
    "array_ufunc": functions.hml_array_ufunc, "array_function": functions.hml_array_function,
}  # fmt: skip


def text(methods: Mapping[str, tuple[str, str]]) -> str:
    """LLVM IR of these: exported name -> (symbol of its row, what it does)."""
    emitted = [_function(name, *how) for name, how in methods.items()]
    return module_text("eager_calls", host_spec(), functions.hml_function, *emitted)


def _function(name: str, row: str, does: str) -> Native:
    if does in _OTHERS:
        return _OTHERS[does]
    body = _BODIES[does]

    def method(c: NativeBuilder, self: Any, other: Any) -> None:
        body(c, c.symbol(row).struct(ROW), self, other)

    return native("ptr", "ptr", "ptr", name=name)(method)

"""The rows of the operation table as public functions and Tensor methods: `hm.add`, `Tensor.add`, `Tensor.__add__`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hybridml_compiler.ops.table import ALIASES, OPS

from . import native_methods  # noqa: F401 (takes over from some of them)
from .autodiff import lost_histories  # noqa: F401 (conversions of tensors)
from .codegen import as_operator, generate, reflected
from .tensor import Tensor

_UNARY = {"neg": "__neg__", "pos": "__pos__", "abs": "__abs__", "invert": "__invert__"}
_COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}

names: dict[str, Callable[..., Any]] = {}  # of every row and alias


def _install() -> None:
    for name, op in OPS.items():
        fn = names[name] = generate(op)
        if op.method:
            setattr(Tensor, op.method, fn)
        if op.operator in _UNARY:
            setattr(Tensor, _UNARY[op.operator], as_operator(fn))
        elif op.operator:
            setattr(Tensor, f"__{op.operator}__", as_operator(fn))
            if op.operator not in _COMPARISONS:
                setattr(Tensor, f"__r{op.operator}__", reflected(op))
    for alias, name in ALIASES.items():
        names[alias] = names[name]
        row = OPS[name]
        if (row.method or row.operator in _COMPARISONS) and not hasattr(Tensor, alias):
            setattr(Tensor, alias, names[name])
    globals().update(names)


_install()
public = [name for name in names if OPS[ALIASES.get(name, name)].public]  # offered to users

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...

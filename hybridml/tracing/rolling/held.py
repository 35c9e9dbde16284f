"""Contents of mutable objects, as far as code can change them: compared before and after a step of a loop."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from hybridml_compiler.sizes.dims import is_dim

from ...core.proxies.base import Proxy
from ...core.tensor import Tensor

_MOST = 10_000  # objects, with what is in them
_EMPTY = types.CellType()
CONSTANTS = (bool, int, float, complex, str, bytes, type(None))
_FIXED = frozenset((
    *CONSTANTS, range, slice, type, type(Ellipsis), types.ModuleType, np.ufunc,
    *(type(np.dtype(name)) for name in "?bhilqBHILQefdgFDGOSUVMm"),
))  # fmt: skip


def held(variables: Mapping[str, Any], names: Iterable[str], cells: Iterable[str] = ()) -> list[Any] | None:
    """The containers, objects and arrays in variables, each with its contents; None where there is something, an
    iterator say, that changes in a way which is not seen. What is held lives on, so that nothing new has its address.
    `cells`: variables that functions may assign.
    """
    found: list[Any] = [variables[name] for name in sorted(cells) if name in variables]
    pending = [*found, *(variables[name] for name in sorted(names) if name in variables)]
    seen: set[int] = set()
    while pending and len(found) < _MOST:
        item = pending.pop()
        kind = type(item)
        if id(item) in seen or kind in _FIXED or is_dim(item) or issubclass(kind, (Tensor, Proxy, np.generic)):
            continue
        seen.add(id(item))
        if kind is np.ndarray:
            found += [item, item.tobytes()]
            continue
        parts = _parts(item, kind)
        if parts is None:
            return None
        found += [item, len(parts), *parts]
        pending += parts
    return None if pending else found


def are_same(before: list[Any], after: list[Any]) -> bool:
    """Whether objects hold what they held: the same things, arrays the same numbers."""
    return len(before) == len(after) and all(
        a is b or (type(a) is type(b) and type(a) in (bytes, int) and a == b)
        for a, b in zip(before, after, strict=True)
    )


def _parts(item: Any, kind: type) -> list[Any] | None:
    if kind in (list, tuple, set, frozenset):
        return list(item)
    if kind is dict:
        return [*item.keys(), *item.values()]
    if kind is types.FunctionType:
        cells = [cell.cell_contents for cell in item.__closure__ or () if cell != _EMPTY]
        return [*cells, *(item.__defaults__ or ()), *(item.__kwdefaults__ or {}).values()]
    if kind is types.MethodType:
        return [item.__self__, item.__func__]
    if kind is types.BuiltinFunctionType:  # `items.append` holds the list
        return [item.__self__]
    if kind is partial:
        return [item.func, *item.args, *item.keywords.values()]
    if not hasattr(item, "__dict__") or kind.__module__ == "builtins":
        return None
    of = next((base for base in (list, tuple, set, frozenset, dict) if issubclass(kind, base)), None)
    inherited = [] if of is None else _parts(of(item), of) or []
    return [*inherited, *vars(item).values()]

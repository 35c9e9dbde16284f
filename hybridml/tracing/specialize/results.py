"""Results that each call of a traced function can give."""

from __future__ import annotations

import inspect
import types
from collections.abc import AsyncGenerator, Generator, Iterator
from enum import Enum
from typing import Any

import numpy as np

from hybridml_compiler.errors import TraceError
from hybridml_compiler.sizes.dims import is_dim

from ...core.proxies.base import Proxy
from ...core.tensor import Device, Tensor
from ..python_state.mutations import PLAIN

_MADE_ANEW = (*PLAIN, Tensor, Proxy, Generator, AsyncGenerator, map, filter, zip, enumerate, reversed)
_NAMED = (type, np.ufunc, types.ModuleType, types.BuiltinFunctionType, Enum, Device, range, slice, type(Ellipsis))


def keys_of(tree_: Any) -> Iterator[Any]:
    """The keys of all dicts in a container."""
    pending, met = [tree_], set[int]()
    while pending:
        item = pending.pop()
        if id(item) in met:  # it may contain itself
            continue
        met.add(id(item))
        if isinstance(item, dict):
            yield from item
            pending += item.values()
        elif isinstance(item, list | tuple):
            pending += item


def each_call_has(leaf: Any) -> bool:
    """Whether each call can return such a value: one computed in the call, or that nobody can change."""
    kind = type(leaf)
    return issubclass(kind, _MADE_ANEW) or isinstance(leaf, _NAMED) or is_dim(leaf)


def finished(result: Any, name: str) -> Any:
    """The result of a coroutine that waits for nothing; any other result as it is."""
    if not inspect.iscoroutine(result):
        return result
    try:
        result.send(None)
    except StopIteration as end:
        return end.value
    result.close()
    raise TraceError(f"{name} waits for something while it is traced; await it before, and pass what it gives")

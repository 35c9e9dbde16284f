"""Watching functions: their callers do not notice, and nothing is left of it afterwards.

A function keeps its identity and gets other code, which calls a hook with what it was before. So all who hold it are
watched (a method, a name in another module, a slot of a class), in all threads, and while nobody watches a call costs
what it always has: there is no test in the function.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

_HOOK = "hybridml watches"  # stands for the hook in the code below


def _called(*args: Any, **kwargs: Any) -> Any:
    hook: Any = "hybridml watches"
    return hook(*args, **kwargs)


def _calling(hook: Callable[..., Any]) -> types.CodeType:
    code = _called.__code__
    return code.replace(co_consts=tuple(hook if value == _HOOK else value for value in code.co_consts))


class Watch:
    """`add(function, around)`: calls become `around(original)(...)`. `end()` undoes everything."""

    def __init__(self) -> None:
        self._before: dict[types.FunctionType, types.CodeType] = {}

    def add(self, function: types.FunctionType, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """`function` must have no closure: its code could not be exchanged."""
        if function in self._before:
            return
        code = self._before[function] = function.__code__
        original = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
        original.__kwdefaults__ = function.__kwdefaults__
        function.__code__ = _calling(around(original))

    def end(self) -> None:
        for function, code in self._before.items():
            function.__code__ = code
        self._before.clear()

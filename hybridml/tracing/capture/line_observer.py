"""The variables of a function while it is traced, by their names: the last value that each of them had.

Read from the frames themselves, whenever an operation runs and when the function is over, so that it is Python that
says what a name means: after a tuple is unpacked, a loop has gone on or a tensor has been updated. A frame that is kept
keeps its variables when its function has returned.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridml_compiler.errors import is_internal
from hybridml_compiler.graph import ir

from ...core.proxies.scalar import ScalarProxy
from ...core.tensor import Tensor
from ..python_state.libraries import is_library

if TYPE_CHECKING:
    from .tracer import Tracer

# The answer to a question of the trace: of the names by now, the node that is asked for, the values of this call.
Answer = Callable[[Mapping[str, ir.Node], ir.Node, Mapping[ir.Node, np.ndarray]], np.ndarray | None]


class Observer:
    """Observer of one trace's variables. `answer`: gives the values that it asks for; None to use those of the call."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer
        self.variables: dict[str, ir.Node] = {}  # when it is over
        self._frames: dict[int, FrameType] = {}  # outermost first
        self._own: dict[str, ir.Node] = {}  # of the traced function itself
        self._others: dict[str, ir.Node] = {}  # of the functions that it calls

    def see(self, tracer: Tracer, until: CodeType) -> None:
        """Notes the variables of the frames when an operation runs."""
        found: list[FrameType] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not until:
            if not is_internal(frame.f_code.co_filename) and not is_library(frame.f_globals.get("__name__", "")):
                found.append(frame)
            frame = frame.f_back
        for frame in reversed(found):
            self._frames.setdefault(id(frame), frame)
            self._read(tracer, frame)

    def names(self, tracer: Tracer) -> dict[str, ir.Node]:
        """The value of each variable; the function's own come before those of functions that it calls."""
        for frame in self._frames.values():
            self._read(tracer, frame)
        return self._others | self._own

    def end(self, tracer: Tracer) -> None:
        """Notes the last values when the function has returned."""
        self.variables = self.names(tracer)
        self._frames.clear()

    def _read(self, tracer: Tracer, frame: FrameType) -> None:
        names = self._own if frame.f_code is tracer.root else self._others
        for name, value in frame.f_locals.items():
            node = _node(tracer, value)
            if node is not None and name.isidentifier():
                names[name] = node


def _node(tracer: Tracer, value: Any) -> ir.Node | None:
    """The node of a value; None where the graph has none."""
    kind = type(value)
    if kind is ScalarProxy:
        value, kind = value._tensor, type(value._tensor)
    if kind is Tensor:
        value = tracer.shadows.get(id(value))
    elif not issubclass(kind, tracer.cls):
        return None
    return None if value is None else value._array

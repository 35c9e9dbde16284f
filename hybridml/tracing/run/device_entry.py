"""The entry of a program of a device: what a native entry does for one of the CPU (native_call.py).

Guards are native code; arguments are compared by the `Kind` of their arrays. Tensors that the program updates get
their new values here, as they do by the native step of a CPU's program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from hybridml_compiler.errors import CompileError, HybridmlError, is_late

from ...core import aliasing
from ...core.autodiff.references import VARIABLE
from ...core.device_tensor import home_of, wrapped
from ...core.library import MISS
from ...core.tensor import Tensor
from .compiled_path import CompiledPath, has_kin
from .placed import PlacedExecutable

_ndarray = np.ndarray
Native = Callable[..., Any]


_ALONE = VARIABLE + 1  # references to what a tensor and a variable hold


class _Array:
    def __init__(self) -> None:
        self.memory = object()


def _references(array: Any) -> int:
    """References to the memory of an array."""
    return getrefcount(array.memory)


_ONE = _references(_Array())  # if nobody else has it


class PlacedStep:
    """A program of a device as a native entry has it: its fresh outputs are those that are no update of a tensor."""

    def __init__(self, executable: PlacedExecutable, path: CompiledPath) -> None:
        self.executable = executable
        drawn = {id(draw.state) for draw in path.draws}
        written = {k for k, _ in path.writes}
        self.updated = [(k, i.real) for k, i in path.writes if id(i.real) not in drawn]
        self.fresh = [k for k in range(len(executable.outputs)) if k not in written]
        self.outputs = [executable.outputs[k] for k in self.fresh]
        self.home = home_of(executable.device.name)

    def entry(self, guard: Native, arguments: Sequence[Any], captured: Sequence[Tensor]) -> Native:
        """A call of so many tensors and floats. Of `arguments` there is for each the kind of its array, the class of a
        number, or in a tuple the one object that it must be. `captured`: tensors that the program reads beside."""
        run, updated, cls, placed = self.executable.run_on, self.updated, self.home.cls, [t for _, t in self.updated]
        first = len([a for a in arguments if type(a) is not tuple])
        overwritten = set(self.executable.overwritten)
        held = [
            (t, t._array.kind if type(t) is cls else None, k if k in overwritten else None)
            for k, t in enumerate(captured, first)
        ]
        makers = [(k, wrapped if self.executable.is_here(k) else self.home.wrap) for k in self.fresh]
        count = len(arguments)

        def call(*args: Any, **names: Any) -> Any:
            if names or len(args) != count or guard() is MISS:
                return MISS
            arrays: list[Any] = []
            shared = False
            for value, wanted in zip(args, arguments, strict=True):
                if type(value) is cls:
                    array = value._array
                    if array.kind is not wanted or value._node is not None:
                        return MISS
                    shared = shared or type(value._version) is list
                    arrays.append(array)
                elif wanted is float:
                    if type(value) is not float:
                        return MISS
                    arrays.append(np.asarray(value))
                elif type(wanted) is not tuple or value is not wanted[0]:
                    return MISS
            own: set[int] = set()
            for t, kind, written in held:
                array = t._array
                if kind is not None and array.kind is not kind:
                    return MISS
                if written is not None and getrefcount(array) == _ALONE and _references(array) == _ONE:
                    if not array.memory.users and not array.memory.is_adopted:  # other streams, other libraries
                        own.add(written)
                arrays.append(array)
            if shared and placed and has_kin(placed, [*captured, *args]):
                return MISS
            try:
                found = run(arrays, own)
            except HybridmlError as error:
                if isinstance(error, CompileError) or is_late(error):
                    raise
                return MISS  # the long way raises what the function raises
            for k, t in updated:
                if type(t._array) is _ndarray:
                    np.copyto(t._array, found[k])
                elif found[k] is not t._array or type(t._version) is list:
                    aliasing.exchange(t, found[k])
            tensors = [make(found[k]) for k, make in makers]
            return tensors[0] if len(tensors) == 1 else tuple(tensors) if tensors else None

        return call

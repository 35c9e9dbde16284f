"""The meta device (see targets/base.py): its arrays have a shape and a dtype, and no elements.

Operations are checked as anywhere, and compute nothing: a program has the types of its results.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ...aval import Aval
from ...errors import DeviceError
from ...once import lazy
from ..base import Executable, Interface, Program, Target
from ..device import DeviceArray, empty

NAME = "meta"


class Nothing:
    """A block of memory that nobody has."""

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


class MetaDevice:
    """The memory of no machine."""

    has_values = False

    def __init__(self, target: Target) -> None:
        self.name, self.target = NAME, target

    def allocate(self, nbytes: int) -> Nothing:
        return Nothing(nbytes)

    def write(self, memory: Nothing, data: np.ndarray) -> None:
        """Forgets the values that it is given."""

    write_later = write

    def read(self, memory: Nothing, nbytes: int) -> bytes:
        raise DeviceError(
            "a tensor of device 'meta' has a shape and a dtype, and no values; module.to_empty(device=...) gives a "
            "module memory, load_state_dict and initializers its values"
        )

    def copy(self, target: Any, source: Any) -> None:
        """Returns: there are no bytes."""

    def synchronize(self) -> None:
        """Returns at once: nothing is ever done."""

    def transfers(self) -> AbstractContextManager[None]:
        return nullcontext()


class MetaExecutable(Executable):
    """A program that knows the types of its results."""

    def __init__(self, program: Program, interface: Interface, device: MetaDevice) -> None:
        super().__init__(program, interface)
        self.device = device

    def run(self, arrays: Sequence[Any]) -> list[DeviceArray]:
        return [self._array(aval) for aval in self.outputs]

    def _array(self, aval: Aval) -> DeviceArray:
        return empty(self.device, aval.shape, aval.dtype)

    @property
    def llvm(self) -> str:
        return "; device 'meta' computes nothing"

    @property
    def launches(self) -> Sequence[Any]:
        return ()


class MetaTarget(Target):
    """The target whose programs are known before they are made."""

    name = NAME

    @lazy
    def device(self) -> MetaDevice:
        return MetaDevice(self)

    def find(self, key: str) -> Program:
        return Program((), 0, {})

    def executable(self, program: Program, interface: Interface) -> MetaExecutable:
        fresh = [k for k in range(len(interface.outputs)) if k not in interface.donate]
        return MetaExecutable(Program(fresh, 0, {}), interface, self.device)


TARGET = MetaTarget()

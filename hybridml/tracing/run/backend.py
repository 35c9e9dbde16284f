"""Backend: how the graphs of a traced function are run, and which devices may compute them."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from typing import Any, Literal

from hybridml_compiler.config import Settings
from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.record import record

from ...core.tensor import Device

BACKENDS = ("llvm", "interpret")
Placement = Literal["auto"] | Sequence[str | Device] | None
Memory = int | str | None
_PREFIXES = ("", "K", "M", "G", "T")


@record
class Backend:
    """The name of a backend; `among`: devices to place operations on by cost, or "auto" for those of the machine.
    Without them, operations are where their operands are. `memory`: bytes that a call may need on a device.
    `settings`: those of the compiler that are not as usual.
    """

    name: str = "llvm"
    among: Literal["auto"] | tuple[str, ...] | None = None
    memory: int | None = None
    settings: Settings = ()

    @property
    def takes_sizes(self) -> bool:
        """Whether sizes may come with the call."""
        return not self.among and self.memory is None


LLVM, INTERPRET = Backend(), Backend("interpret")


def backend_of(name: str, placement: Placement, memory: Memory) -> Backend:
    """The backend of `trace`'s options. ArgumentError for what they do not take, DeviceError for a missing device."""
    if name not in BACKENDS:
        raise ArgumentError(f"trace: backend must be one of {', '.join(BACKENDS)}, got {name!r}")
    if name == "interpret" and placement is not None:
        raise ArgumentError("trace: backend='interpret' computes on the CPU; placement needs the compiler")
    if name == "interpret" and memory is not None:
        raise ArgumentError("trace: backend='interpret' keeps every value; memory needs the compiler")
    return Backend(name, _among(placement), None if memory is None else _bytes(memory))


def _among(placement: Placement) -> Literal["auto"] | tuple[str, ...] | None:
    if placement is None or placement == "auto":
        return placement
    if isinstance(placement, str):
        raise ArgumentError(
            f"trace: placement must be 'auto' or a list of devices, got {placement!r}; [{placement!r}] is a list of one"
        )
    devices: list[Any] = list(placement)
    if not devices:
        raise ArgumentError("trace: placement must name a device at least, got an empty list")
    return tuple(dict.fromkeys(Device(device).type for device in devices))


def _bytes(memory: int | str) -> int:
    """The number of bytes in `memory`, such as 2000000000, "2GB" or "1.5 GiB"."""
    try:
        if not isinstance(memory, str):
            count = operator.index(memory)
        elif found := re.fullmatch(r"\s*([0-9.]+)\s*(?:([kKMGT])(i?))?B\s*", memory):
            count = int(float(found[1]) * (1024 if found[3] else 1000) ** _PREFIXES.index((found[2] or "").upper()))
        else:
            raise ValueError
    except (TypeError, ValueError):
        raise ArgumentError(
            f"trace: memory must be a number of bytes, or a string such as '2GB' (10**9) or '2GiB' (2**30), got "
            f"{memory!r}"
        ) from None
    if count <= 0 or isinstance(memory, bool):
        raise ArgumentError(f"trace: memory must be more than 0 bytes, got {memory!r}")
    return count

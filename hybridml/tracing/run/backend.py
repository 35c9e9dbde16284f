"""Backend: how the graphs of a traced function are run, and which devices may compute them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.record import record

from ...core.tensor import Device

BACKENDS = ("llvm", "interpret")
Placement = Literal["auto"] | Sequence[str | Device] | None


@record
class Backend:
    """The name of a backend; `among`: devices to place operations on by cost, or "auto" for those of the machine.
    Without them, operations are where their operands are.
    """

    name: str = "llvm"
    among: Literal["auto"] | tuple[str, ...] | None = None


LLVM, INTERPRET = Backend(), Backend("interpret")


def backend_of(name: str, placement: Placement) -> Backend:
    """The backend of `trace`'s options. ArgumentError for what they do not take, DeviceError for a missing device."""
    if name not in BACKENDS:
        raise ArgumentError(f"trace: backend must be one of {', '.join(BACKENDS)}, got {name!r}")
    if placement is None:
        return Backend(name)
    if name == "interpret":
        raise ArgumentError("trace: backend='interpret' computes on the CPU; placement needs the compiler")
    if isinstance(placement, str):
        if placement == "auto":
            return Backend(name, "auto")
        raise ArgumentError(
            f"trace: placement must be 'auto' or a list of devices, got {placement!r}; [{placement!r}] is a list of one"
        )
    devices: list[Any] = list(placement)
    if not devices:
        raise ArgumentError("trace: placement must name a device at least, got an empty list")
    return Backend(name, tuple(dict.fromkeys(Device(device).type for device in devices)))

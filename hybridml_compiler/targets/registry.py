"""Devices and targets by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from ..aval import CPU
from ..errors import ArgumentError
from .base import Target
from .device import Device

_DEVICES: dict[str, Callable[[], Device]] = {
    "reference": lambda: import_module(f"{__package__}.reference.target").DEVICE,
    "cuda:sim": lambda: import_module(f"{__package__}.cuda.target").TARGET.device,
}


def register(name: str, load: Callable[[], Device]) -> None:
    """Adds a device, which `load()` gives when somebody first asks for it. ArgumentError for a name that is taken."""
    if name in device_names():
        raise ArgumentError(f"there is a device {name!r} already: choose another name")
    _DEVICES[name] = load


def device_names() -> tuple[str, ...]:
    """The names of all devices."""
    return CPU, *_DEVICES


def find_device(name: str) -> Device:
    """A device by its name, loaded when it is first asked for. ArgumentError for one that there is not."""
    if name not in _DEVICES:
        raise ArgumentError(f"device {name!r} is not available: choose one of {', '.join(device_names())}")
    return _DEVICES[name]()


def find_target(device: str = CPU) -> Target:
    """The target that has a device's memory, loaded when it is first asked for. ArgumentError for an unknown device.

    >>> find_target("cpu").name
    'cpu'
    """
    if device != CPU:
        return find_device(device).target
    found: Target = import_module(f"{__package__}.cpu.target").TARGET
    return found

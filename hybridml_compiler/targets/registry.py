"""Devices and targets by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from ..aval import CPU
from ..errors import ArgumentError
from ..placement.performance import Performance
from .base import Target
from .device import Device
from .performance import ASSUMED

_GPU, _SIMULATED = "cuda", "cuda:sim"
_DEVICES: dict[str, Callable[[], Device]] = {
    "reference": lambda: import_module(f"{__package__}.reference.target").DEVICE,
    "meta": lambda: import_module(f"{__package__}.meta.target").TARGET.device,
    _SIMULATED: lambda: import_module(f"{__package__}.cuda.target").TARGET.device,
}


def register(name: str, load: Callable[[], Device]) -> None:
    """Adds a device, which `load()` gives when somebody first asks for it. ArgumentError for a name that is taken."""
    if name in device_names():
        raise ArgumentError(f"there is a device {name!r} already: choose another name")
    _DEVICES[name] = load


def device_names() -> tuple[str, ...]:
    """The names of all devices but GPUs, which are "cuda", "cuda:1" and so on, and of further simulated ones."""
    return CPU, *_DEVICES


def canonical(name: str) -> str:
    """The one name of a device that has several.

    >>> canonical("cuda:0")
    'cuda'
    """
    return name.removesuffix(":0") if name in (f"{_GPU}:0", f"{_SIMULATED}:0") else name


def machine_devices() -> tuple[str, ...]:
    """The CPU, and the GPUs that this machine has and can use."""
    count = import_module(f"{__package__}.cuda.availability").device_count()
    return CPU, *(canonical(f"{_GPU}:{index}") for index in range(count))


def find_device(name: str) -> Device:
    """A device by its canonical name, loaded when it is first asked for. ArgumentError for one that there is not,
    DeviceError, with what to do about it, for a GPU where there is none."""
    kind, _, index = name.partition(":")
    if kind == _GPU and name not in _DEVICES and (name == _GPU or index.isdecimal()):
        found: Device = import_module(f"{__package__}.cuda.target").gpu(int(index or 0)).device
        return found
    if name.startswith(f"{_SIMULATED}:") and (number := name.rpartition(":")[2]).isdecimal():
        further: Device = import_module(f"{__package__}.cuda.target").simulated(int(number)).device
        return further
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


def performance_of(device: str) -> Performance:
    """Speeds and size of a device: those of the table (performance.py), or what is assumed in their place."""
    return ASSUMED.get(device) or find_target(device).performance

"""`accelerator` and `backends`: what scripts ask before they choose a device, beside `hm.cuda`.

    device = hm.accelerator.current_accelerator() if hm.accelerator.is_available() else "cpu"

The accelerator that may be there is a GPU of CUDA's.
"""

from __future__ import annotations

from typing import Any

from hybridml_compiler.targets.registry import find_device

from ...core.spellings import advice, no_attribute
from ...core.tensor import Device


class Hardware:
    """A kind of device that PyTorch's programs ask for and that is not here."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<hm.{self._name}: not available>"

    def __getattr__(self, name: str) -> Any:
        if name[0] == "_":  # asked by copies and pickles, before there is a `_name`
            raise AttributeError(name)
        owner = f"hm.{self._name}"
        raise AttributeError(no_attribute(owner, name, dir(self), advice.get(owner, {})))

    def is_available(self) -> bool:
        """Whether there is such a device: False."""
        return False

    def is_built(self) -> bool:
        """Whether this installation could use one: False."""
        return False

    def device_count(self) -> int:
        """Number of such devices: 0."""
        return 0

    def current_accelerator(self) -> None:
        """The accelerator that programs use: None."""

    def manual_seed(self, seed: int) -> None:
        """Seeds the generators of such devices, of which there are none; `hm.manual_seed` seeds all that there are."""

    manual_seed_all = manual_seed

    def synchronize(self, device: Any = None) -> None:
        """Waits for the work of such devices, of which there is none."""

    def empty_cache(self) -> None:
        """Frees the memory that such devices keep, which is none."""


class Accelerator(Hardware):
    """The GPU of CUDA's, where there is one: `hm.cuda` under names that are for all accelerators."""

    def __repr__(self) -> str:
        return f"<hm.accelerator: {self.current_accelerator() or 'not available'}>"

    def is_available(self) -> bool:
        """Whether there is a GPU."""
        return self.device_count() > 0

    def is_built(self) -> bool:
        """Whether this installation could use one: True."""
        return True

    def device_count(self) -> int:
        """Number of GPUs that this machine has."""
        from hybridml_compiler.targets.cuda.availability import device_count

        return device_count()

    def current_accelerator(self) -> Any:
        """The device that programs use; None where there is none but the CPU."""
        return Device("cuda") if self.is_available() else None

    def synchronize(self, device: Any = None) -> None:
        """Waits until the GPU has done all that it was asked for."""
        if self.is_available():
            find_device("cuda").synchronize()

    def empty_cache(self) -> None:
        """Gives the memory of the GPU back that is kept for reuse."""
        if self.is_available():
            find_device("cuda").pool.empty_cache()  # type: ignore[attr-defined]


class Backends:
    """PyTorch's switches of its back ends: `mps`, `cuda` and `cudnn`."""

    def __init__(self) -> None:
        self.mps = Hardware("backends.mps")
        self.cuda = Hardware("backends.cuda")
        self.cudnn = Hardware("backends.cudnn")


accelerator = Accelerator("accelerator")
backends = Backends()
names: dict[str, Any] = {"accelerator": accelerator, "backends": backends}

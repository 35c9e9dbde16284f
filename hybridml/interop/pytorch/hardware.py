"""`cuda`, `accelerator` and `backends`: what scripts ask before they choose a device.

    device = "cuda" if hm.cuda.is_available() else "cpu"

The devices that are there are those of `hm.device`; there is no accelerator among them.
"""

from __future__ import annotations

from typing import Any

from ...core.spellings import advice, no_attribute


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


class Backends:
    """PyTorch's switches of its back ends: `mps`, `cuda` and `cudnn`."""

    def __init__(self) -> None:
        self.mps = Hardware("backends.mps")
        self.cuda = Hardware("backends.cuda")
        self.cudnn = Hardware("backends.cudnn")


cuda = Hardware("cuda")
accelerator = Hardware("accelerator")
backends = Backends()
names: dict[str, Any] = {"cuda": cuda, "accelerator": accelerator, "backends": backends}

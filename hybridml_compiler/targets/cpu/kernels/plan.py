"""The members that all plans of kernels have: numbers that say how a call is cut, for registers, caches and threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ....loops.ir import KernelSpec
from ....record import record
from ....sizes.dims import Size


class Amount(NamedTuple):
    """Memory of a prepared operand, and the number of units in which it is prepared."""

    nbytes: int
    units: int


NOTHING = Amount(0, 0)
# The number of images that kernels for any number are planned for: of tiles of several images as many fill them, and
# threads have enough units.
IMAGES = 32


def parts_of(extent: Size, size: int) -> Size:
    """Number of parts of this size, or less, that an extent is cut into."""
    return (extent + size - 1) // size


@record
class Plan:
    """A way to compute a call: the class of its plan says by which kernel, its fields how that is cut."""

    lanes: int

    def units(self, call: Any) -> Size:
        """Extent of the parallel range."""
        raise NotImplementedError

    def parts(self, call: Any) -> Sequence[KernelSpec]:
        """Code that the kernel calls."""
        return ()

    def prepared(self, call: Any) -> tuple[Amount, Amount]:
        """The image and the weights as launches of their own prepare them, if they do."""
        return NOTHING, NOTHING

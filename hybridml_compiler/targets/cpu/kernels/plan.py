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

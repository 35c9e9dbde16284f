"""The reference target (see targets/base.py): plans with every kind of fusion, and an interpreter that runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...loops.interpret import interpret_kernel
from ...loops.ir import Kernel
from ...placement.performance import Performance
from ...schedule.kernels.gemm import Product
from ...schedule.kernels.library import Capabilities
from ..kernel_target import KernelTarget

if TYPE_CHECKING:
    from ...schedule.kernels.library import Call


def has_library(call: Call) -> bool:
    """Whether the walk over a plan computes the call by NumPy."""
    return isinstance(call, Product)


class Reference(KernelTarget):
    """The target that says what a plan means."""

    name = "reference"
    capabilities = Capabilities(has_library=has_library, takes_epilogue=lambda _: True, cores=2, runs_control=True)

    @property
    def performance(self) -> Performance:
        from ..performance import REFERENCE

        return REFERENCE

    def code_of(self, kernel: Kernel) -> Kernel:
        """The loop nest as it is."""
        return kernel

    def run(self, code: Kernel, buffers: Sequence[np.ndarray], lo: int, hi: int) -> bool:
        return interpret_kernel(code, buffers, lo, hi) == 0


TARGET = Reference()
DEVICE = TARGET.device

"""Loop nests that the CUDA target has no generated code for yet, run as the reference target runs them.

Loop nests that `unsupported` names go through the interpreter of the loop dialect, here. Large plain products, Fourier
transforms, calls of NumPy, copies and control flow are those of the walk over a plan (targets/run_plan.py), as for the
reference target. So every graph runs on the simulated device, and a kernel moves out of here when it can be emitted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...loops.interpret import interpret_kernel
from ...loops.ir import Kernel
from ...loops.text import print_kernel
from ...record import record


@record(eq=False)
class Interpreted:
    """A loop nest without code, and why it has none."""

    kernel: Kernel
    reason: str

    @property
    def text(self) -> str:
        return f"// interpreted: {self.reason}\n{print_kernel(self.kernel)}"

    def run(self, buffers: Sequence[np.ndarray], lo: int, hi: int) -> bool:
        return interpret_kernel(self.kernel, buffers, lo, hi) == 0

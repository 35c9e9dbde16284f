"""Code of a spec: a kernel that the driver has loaded, or several launches with memory between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...record import record
from ...schedule.kernels.gemm import Product
from .driver import Convolve
from .emit.kernel import Source


@record
class Multiply:
    """A product by cuBLAS, whose result is stored in a dtype."""

    call: Product
    dtype: np.dtype

    def __str__(self) -> str:
        return f"{self.call} -> {self.dtype} by cuBLAS"


@record
class Clear:
    """The first bytes of an array set to zero."""

    nbytes: int

    def __str__(self) -> str:
        return f"{self.nbytes} bytes of zeros"


Ready = Convolve | Multiply | Clear  # what needs no kernel of ours
# A launch, and the numbers of what it is given: the operands of the spec, and then the memory that its code works in.
Step = tuple[Source | Ready, Sequence[int]]


@record(eq=False)
class RegionSource:
    """Sources of a spec that is several launches, and bytes of the memory that they work in."""

    parts: tuple[Step, ...]
    scratch: tuple[int, ...] = ()


@record(eq=False)
class CudaKernel:
    """A kernel's source, its function as the driver has loaded it, and the same for operands that do not begin where
    that needs it."""

    source: Source
    function: Any
    anywhere: Callable[[], CudaKernel]

    @property
    def text(self) -> str:
        return self.source.text


@record(eq=False)
class CudaRegion:
    """The same as code: kernels of ours, and calls of a library."""

    parts: tuple[tuple[CudaKernel | Ready, Sequence[int]], ...]
    scratch: tuple[int, ...] = ()

    @property
    def kernels(self) -> list[CudaKernel]:
        return [step for step, _ in self.parts if isinstance(step, CudaKernel)]

    @property
    def text(self) -> str:
        return "\n".join(step.text if isinstance(step, CudaKernel) else f"// {step}\n" for step, _ in self.parts)

    @property
    def sources(self) -> RegionSource:
        made = [(step.source if isinstance(step, CudaKernel) else step, order) for step, order in self.parts]
        return RegionSource(tuple(made), self.scratch)

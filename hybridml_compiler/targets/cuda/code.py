"""The code of a launch of a plan: a kernel that the driver has loaded, or several, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...record import record
from .contraction.library import LibraryCall
from .emit.kernel import Source


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
    """Kernels, and the numbers of their operands among those of the launch; after these come arrays of so many bytes,
    to work in, of which the first is zero at the start."""

    parts: tuple[tuple[CudaKernel, list[int]], ...]
    scratch: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        return "\n".join(kernel.text for kernel, _ in self.parts)


@record
class RegionSource:
    """The same as sources, for the disk."""

    parts: tuple[tuple[Source, list[int]], ...]
    scratch: tuple[int, ...]


@record(eq=False)
class CudaProduct:
    """A product by the library, and the kernel after it."""

    call: LibraryCall
    kernel: CudaKernel | None

    @property
    def text(self) -> str:
        after = "" if self.kernel is None else self.kernel.text
        return f"// {self.call.call} -> {self.call.dtype} by cuBLAS\n{after}"


@record(eq=False)
class ProductSource:
    """The same with the kernel's source, for the disk."""

    call: LibraryCall
    source: Source | None

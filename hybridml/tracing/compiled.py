"""Registers with `core` what it has of the tracer, which stands above it and is imported at the first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.ops.table import OPS

from ..core.dispatch import narrow_products
from ..core.library import compiled, factories
from ..core.tensor import Tensor


def _library_function(fn: Callable[..., Any], *how: Any, **more: Any) -> Any:
    from .library_function import LibraryFunction  # with the first call: it imports the tracer

    return LibraryFunction(fn, *how, **more)


@compiled
def matmul_bfloat16(x: Tensor, y: Tensor) -> Tensor:
    """The product of bfloat16 tensors, with sums in float32. Compiled, it reads them as they are in memory."""
    product = OPS["matmul"].fn(OPS["astype"].fn(x, dtypes.float32), OPS["astype"].fn(y, dtypes.float32))
    rounded: Tensor = OPS["astype"].fn(product, dtypes.bfloat16)
    return rounded


factories.append(_library_function)
narrow_products["bfloat16"] = matmul_bfloat16

"""The memory of a module's tensors: other memory for the same tensors, so that optimizers keep them."""

from __future__ import annotations

import numpy as np

from hybridml_compiler.errors import TraceError

from .. import arrays as xp
from ..core.aliasing import stamp
from ..core.autodiff.sparse import SparseGradient, shown
from ..core.autodiff.tape import Leaf
from ..core.device_tensor import move, on_device
from ..core.tensor import Tensor
from ..tracing.capture.tracer import is_tracing
from .lazy.uninitialized import become, forget, is_uninitialized


def convert(tensor: Tensor, dtype: np.dtype | None, device: str | None) -> None:
    """Gives a tensor, and its gradient, other memory. What was recorded with the old values is stale."""
    dtype, device = dtype or tensor.dtype, device or tensor.device.type
    if tensor.dtype is dtype and tensor.device == device:
        return
    if is_uninitialized(tensor):
        forget(tensor, device, dtype)
        return
    if is_tracing() and (type(tensor._array) is np.ndarray or type(tensor).home is not None):
        raise TraceError(
            "Module.to: a traced function cannot change the dtype or device of a captured module; do it outside"
        )
    node = tensor._node
    grad = shown(node) if type(node) is Leaf else None
    if type(grad) is SparseGradient:
        node.grad = grad.astype(dtype).to(device)
        grad = None
    for t in (tensor, grad):
        if t is not None:
            t._array = xp.astype(t.detach(), dtype)._array
            if t.device != device:
                move(t, device)
            stamp(t)
            if hasattr(t, "_view"):
                del t._view
    if type(node) is Leaf:
        node.dtype = dtype


def renew(tensor: Tensor, device: str, shape: tuple[int, ...] | None = None) -> None:
    """Gives a tensor memory with any values on a device; it has no gradient then."""
    if shape is None and is_uninitialized(tensor):
        forget(tensor, device)
    else:
        sizes = tensor.shape if shape is None else shape
        become(tensor, on_device(device, lambda: xp.empty(sizes, dtype=tensor.dtype)))

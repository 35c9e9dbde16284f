"""The convolutions of a library (see driver.Convolve), by NumPy."""

from __future__ import annotations

import numpy as np

from ....ops.convolution import convolution
from ..driver import Convolve, Images

_EXCHANGED = (4, 1, 2, 3, 0)  # images and channels of (n, h, w, groups, channels)


def array_of(memory: np.ndarray, images: Images) -> np.ndarray:
    """Images in some bytes, as an array of four axes."""
    flat = memory[: memory.size // images.dtype.itemsize * images.dtype.itemsize].view(images.dtype)[images.offset :]
    strides = [step * images.dtype.itemsize for step in images.strides]
    assert sum((n - 1) * step for n, step in zip(images.shape, images.strides, strict=True)) < flat.size
    found: np.ndarray = np.lib.stride_tricks.as_strided(flat, images.shape, strides)
    return found


def convolve(call: Convolve, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """Computes the call from the arrays of its operands to that of its result."""
    features, channels, kh, kw = call.w.shape
    groups = call.x.shape[1] // channels
    padding = tuple(zip(call.before, call.after, strict=True))
    x = _grouped(a.astype(call.dtype), groups)
    with np.errstate(all="ignore"):
        if call.weights:
            y = _grouped(b.astype(call.dtype), groups)
            found = convolution.eager(
                x.transpose(_EXCHANGED), y.transpose(1, 2, 3, 0, 4), call.dilation, padding, call.stride
            )[:, :kh, :kw]
            out[...] = found.transpose(3, 4, 0, 1, 2).reshape(features, channels, kh, kw)
        else:
            w = b.astype(call.dtype).reshape(groups, features // groups, channels, kh, kw).transpose(3, 4, 0, 2, 1)
            found = convolution.eager(x, w, call.stride, padding, call.dilation)
            out[...] = found.transpose(0, 3, 4, 1, 2).reshape(out.shape)


def _grouped(images: np.ndarray, groups: int) -> np.ndarray:
    """Images (n, c, h, w) as (n, h, w, groups, channels)."""
    n, c, h, w = images.shape
    return images.reshape(n, groups, c // groups, h, w).transpose(0, 3, 4, 1, 2)

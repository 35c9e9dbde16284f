"""Convolutions as library calls: operands read in place wherever their strides allow it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ... import dtypes
from ...graph.facts import moved, stored
from ...graph.ir import Node
from ...loops.ir import KernelSpec
from ...record import record, replace
from ...sizes.dims import hint, is_dim, is_symbolic, symbols_of
from .. import cost
from ..lowering.expressions import strides_of

Pair = tuple[int, int]


@record
class Strided:
    """Five axes in memory: element (i...) at offset + sum(i * strides), in elements."""

    offset: int
    strides: tuple[int, ...]


@record
class Convolution(KernelSpec):
    """out[n,y,x,g,o] = sum over ky,kx,c of a[n, y*sy + ky*dy - top, x*sx + kx*dx - left, g, c] * w[ky,kx,g,c,o].

    Zero outside of a; the output is row-major and contiguous. Where `a` has its first axis (n) next to each other in
    memory, and w too has its fourth (c), this is the gradient of a weight.
    """

    dtype: np.dtype
    batch: int
    size: Pair  # h, w
    out_size: Pair
    kernel: Pair
    groups: int
    channels: int  # of a group
    features: int  # of a group
    stride: Pair
    dilation: Pair
    padding: Pair  # top, left; below zero it crops
    a: Strided  # n, h, w, g, c
    w: Strided  # kh, kw, g, c, o
    channels_first: bool = False  # the result is out[n,g,o,y,x]
    stored: tuple[np.dtype, np.dtype] | None = None  # dtypes of a and w in memory, if narrower (low_precision.py)
    passing: bool = False  # only its epilogue reads the result: row by row, with no place in memory

    @property
    def result(self) -> tuple[int, int]:
        """Rows and columns of the result as one row-major matrix."""
        channels, pixels = self.groups * self.features, self.out_size[0] * self.out_size[1]
        return (self.batch * channels, pixels) if self.channels_first else (self.batch * pixels, channels)

    @property
    def symbolic(self) -> bool:
        """Whether the number of images comes with the call: the batch, or the channels of a gradient of weights."""
        return is_symbolic((self.batch, self.channels))

    @property
    def symbols(self) -> list[str]:
        return sorted(map(str, symbols_of(self.batch, self.channels)))

    def with_images(self, images: int) -> Convolution:
        """The convolution of so many images, if their number comes with the call."""
        batch, channels = (images if is_dim(n) else n for n in (self.batch, self.channels))
        return replace(self, batch=batch, channels=channels) if self.symbolic else self

    def in_parts(self, count: int) -> Convolution:
        return self

    @property
    def flops(self) -> float:
        taps = self.kernel[0] * self.kernel[1] * hint(self.channels)
        return 2.0 * hint(self.batch) * self.out_size[0] * self.out_size[1] * self.groups * self.features * taps

    def __str__(self) -> str:
        (kh, kw), (h, w), (oh, ow) = self.kernel, self.size, self.out_size
        shape = f"{self.batch}x{h}x{w}x{self.groups}x{self.channels} by {kh}x{kw} -> {oh}x{ow}x{self.features}"
        stored = "" if self.stored is None else " of " + " by ".join(map(dtypes.short, self.stored))
        return f"convolution {dtypes.short(self.dtype)} {shape}{stored}" + (", row by row" if self.passing else "")


@record
class Weights(KernelSpec):
    """The weights as the kernel of a convolution reads them, made by a launch of its own."""

    convolution: Convolution
    nbytes: int

    def __str__(self) -> str:
        return f"weights of {self.convolution}"


@record
class Pixels(KernelSpec):
    """The same in the place of its image: words of channels, where those in memory are none."""

    convolution: Convolution
    nbytes: int

    def __str__(self) -> str:
        return f"pixels of {self.convolution}"


@record
class Pretranspose(KernelSpec):
    """Code that others call: a square of as many rows and columns as a vector has lanes, rows made columns."""

    dtype: np.dtype
    lanes: int


def convolution_of(
    node: Node, in_memory: Callable[[Node], bool], narrow: bool = False
) -> tuple[Convolution, Node, Node] | None:
    """The library call that computes a convolution, with the nodes in memory that it reads; None if it has none.

    If `narrow` (see `reads_narrow`) it is the one that reads its operands as they are stored.
    """
    if not (node.dtype.kind == "f" or node.dtype is dtypes.int32) or node.aval.size == 0:
        return None

    def placed(operand: Node) -> tuple[Node, int, tuple[int, ...]] | None:
        if narrow:
            return strides_of(operand, lambda n: in_memory(n) and n.dtype is not node.dtype, casts=True)
        return strides_of(operand, in_memory)

    left, right = node.inputs
    a, w = placed(left), placed(right)
    if a is None or w is None or 0 in (*left.shape, *right.shape):
        return None
    n, *size, groups, channels = left.shape
    if is_symbolic((*size, groups, *right.shape[:3], right.shape[4], a[1], *a[2], w[1], *w[2])):
        return None
    (top, _), (low, _) = node.params["padding"]
    first = node.params["channels_first"]
    height, width = node.shape[3:] if first else node.shape[1:3]
    convolution = Convolution(
        node.dtype,
        n,
        (size[0], size[1]),
        (height, width),
        (right.shape[0], right.shape[1]),
        groups,
        channels,
        right.shape[4],
        node.params["stride"],
        node.params["dilation"],
        (top, low),
        Strided(a[1], a[2]),
        Strided(w[1], w[2]),
        first,
        (a[0].dtype, w[0].dtype) if narrow else None,
    )
    return convolution, a[0], w[0]


# Features of a group that make it worth a vector; convolutions of smaller groups cast their operands first.
MIN_FEATURES = 8


def reads_narrow(node: Node, gradients: bool = False) -> bool:
    """Whether its operands are read as they are stored, through casts, which depends on the convolution alone (and
    `gradients`: whether a target has products of those below).

    In bfloat16 or float16, a convolution whose kernel is larger than its result is the gradient of a weight, a sum over
    pixels, and no two of these are adjacent in memory. That is computed in float32, and so are small groups. Where the
    number of images comes with the call, operands are cast first.
    """
    if any(n.aval.symbolic for n in node.inputs):
        return False
    kinds = [stored(x).dtype for x in node.inputs]
    kh, kw, groups, channels, features = node.inputs[1].shape
    if node.dtype is dtypes.int32:
        narrow = all(x.itemsize == 1 and x.kind in "iu" for x in kinds)
    else:
        gradient = not gradients and kh * kw * node.shape[0] * groups * features > node.aval.size
        alike = dtypes.is_narrow(kinds[0]) and kinds[0] is kinds[1]
        narrow = node.dtype is dtypes.float32 and alike and not gradient
    if not narrow or node.aval.size * kh * kw * channels <= cost.WHOLE_PRODUCT:
        return False
    affine = [strides_of(x, lambda n: moved(n, casts=True) is None, casts=True) is not None for x in node.inputs]
    return all(affine) and (groups == 1 or features >= MIN_FEATURES)


def readable(node: Node, in_memory: Callable[[Node], bool]) -> bool:
    """Whether a convolution can read this operand in place. Strides are numbers, and some axis must be
    contiguous, as vectors are; narrow operands are packed into words, whichever axis is."""
    found = strides_of(node, in_memory, casts=True)
    if found is None or is_symbolic((found[1], *found[2])):
        return False
    return found[0].dtype is not node.dtype or any(s == 1 and n > 1 for s, n in zip(found[2], node.shape, strict=True))

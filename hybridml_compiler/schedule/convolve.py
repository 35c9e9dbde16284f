"""Convolutions as library calls: operands read in place wherever their strides allow it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .. import dtypes
from ..graph.ir import Node
from .lower import strides_of

Pair = tuple[int, int]


@dataclass(frozen=True)
class Strided:
    """Five axes in memory: element (i...) at offset + sum(i * strides), in elements."""

    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Convolution:
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

    @property
    def result(self) -> tuple[int, int]:
        """Rows and columns of the result as one row-major matrix."""
        channels, pixels = self.groups * self.features, self.out_size[0] * self.out_size[1]
        return (self.batch * channels, pixels) if self.channels_first else (self.batch * pixels, channels)

    @property
    def flops(self) -> float:
        taps = self.kernel[0] * self.kernel[1] * self.channels
        return 2.0 * self.batch * self.out_size[0] * self.out_size[1] * self.groups * self.features * taps

    def __str__(self) -> str:
        (kh, kw), (h, w), (oh, ow) = self.kernel, self.size, self.out_size
        shape = f"{self.batch}x{h}x{w}x{self.groups}x{self.channels} by {kh}x{kw} -> {oh}x{ow}x{self.features}"
        return f"convolution {dtypes.short(self.dtype)} {shape}"


@dataclass(frozen=True)
class Weights:
    """What the kernel of a convolution reads in the place of its weights, made by a launch of its own."""

    convolution: Convolution
    nbytes: int

    def __str__(self) -> str:
        return f"weights of {self.convolution}"


@dataclass(frozen=True)
class Turn:
    """Code that others call: a square of as many rows and columns as a vector has lanes, rows made columns."""

    dtype: np.dtype
    lanes: int


def convolution_of(node: Node, in_memory: Callable[[Node], bool]) -> tuple[Convolution, Node, Node] | None:
    """The library call that computes a convolution, with the nodes in memory that it reads; None if it has none."""
    if node.dtype.kind != "f" or node.aval.size == 0:
        return None
    left, right = node.inputs
    a, w = strides_of(left, in_memory), strides_of(right, in_memory)
    if a is None or w is None or 0 in (*left.shape, *right.shape):
        return None
    n, *size, groups, channels = left.shape
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
    )
    return convolution, a[0], w[0]


def readable(node: Node, in_memory: Callable[[Node], bool]) -> bool:
    """Can a convolution read this operand where it is? Some axis must lie next to each other, as vectors do."""
    found = strides_of(node, in_memory)
    return found is not None and any(s == 1 and n > 1 for s, n in zip(found[2], node.shape, strict=True))

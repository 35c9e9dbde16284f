"""Library calls that generated CUDA kernels compute, on random operands, and their exact results."""

from __future__ import annotations

import itertools
import math

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.record import record
from hybridml_compiler.schedule.kernels.convolution import Convolution, Strided
from hybridml_compiler.schedule.kernels.gemm import Matrix, Product
from hybridml_compiler.targets.cuda.contraction.contraction import contraction_of
from hybridml_compiler.targets.cuda.contraction.kernel import CallSource, sources_of
from hybridml_compiler.targets.cuda.contraction.tiles import Tile, tile_for

from .cuda import launch


@record
class CallCase:
    """A call in tiles of a size of its own, or of the one that its shape asks for."""

    @property
    def call(self) -> Product | Convolution:
        raise NotImplementedError

    def exact(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The result of operands in float64, as the call lays it out."""
        raise NotImplementedError

    @property
    def sums(self) -> int:
        """The number of products in an element of the result."""
        return contraction_of(self.call).k

    tile: Tile | None = None
    tf32: bool = False

    @property
    def sources(self) -> list[CallSource]:
        tile = self.tile or tile_for(contraction_of(self.call), tf32=self.tf32)
        return sources_of(self.call, None, tile)

    @property
    def source(self) -> CallSource:
        """The first of them, which has the products."""
        return self.sources[0]

    def error(self, text: str, blocks: int | None = None) -> float:
        """How far a result is from the exact one, in parts of the product of magnitudes; infinite for one that is wrong
        beyond measure. `text` is that of the first kernel."""
        (source, *more), rng = self.sources, np.random.default_rng(0)
        buffers = [
            rng.integers(-100, 100, int(x.size)).astype(x.dtype)
            if x.dtype.kind in "iu"
            else (rng.standard_normal(int(x.size)) * 3).astype(x.dtype)
            for x in source.operands
        ]
        launch(text, source, buffers, source.total, blocks)
        for second in more:
            made = [np.empty(int(x.size), x.dtype) for x in second.operands[1:]]
            launch(second.text, second, [buffers.pop(), *made], second.total, blocks)
            buffers += made
        a, b = (x.astype(np.float64) for x in buffers[:2])
        exact, most = self.exact(a, b), self.exact(np.abs(a), np.abs(b))
        found = buffers[2].astype(np.float64).reshape(exact.shape)
        return float(np.nan_to_num(np.abs(found - exact) / np.maximum(most, 1e-30), nan=math.inf).max())

    @property
    def bound(self) -> float:
        """The largest error of such a call: each sum is rounded once, in the precision of the result, and an operand of
        tf32 is, to 11 bits. Other operands are multiplied without an error; integers are exact."""
        kind = self.call.dtype
        if kind.kind == "i":
            return 0.0
        return self.sums * (2.0**-24 if kind.itemsize == 4 else 2.0**-53) + self.tf32 * 2 * 2.0**-11


@record
class ProductCase(CallCase):
    """A product of matrices."""

    m: int = 0
    n: int = 0
    k: int = 0
    dtype: str = "float32"
    stored: str = ""  # of both operands
    turned: str = ""  # "a", "b" or "ab" are transposed in memory
    batch: tuple[int, ...] = ()
    apart: int = 0  # elements between the rows of operands, and before their first

    @property
    def call(self) -> Product:
        stored = tuple(dtypes.canonical(name) for name in self.stored.split()) if self.stored else None
        sides = [
            self._matrix(rows, columns, name in self.turned)
            for name, rows, columns in (("a", self.m, self.k), ("b", self.k, self.n))
        ]
        kind = np.dtype(self.dtype)
        return Product(dtypes.canonical(kind), self.batch, self.m, self.n, self.k, *sides, stored)  # type: ignore

    def _matrix(self, rows: int, columns: int, turned: bool) -> Matrix:
        lines, length = (columns, rows) if turned else (rows, columns)
        pitch = length + self.apart
        steps = [lines * pitch * math.prod(self.batch[k + 1 :]) for k in range(len(self.batch))]
        return Matrix(self.apart, tuple(steps), 1 if turned else pitch, pitch if turned else 1)

    def exact(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        call = self.call
        left = _elements(a, call.batch, call.a, self.m, self.k)
        found: np.ndarray = left @ _elements(b, call.batch, call.b, self.k, self.n)
        return found


def _elements(memory: np.ndarray, batch: tuple[int, ...], matrix: Matrix, rows: int, columns: int) -> np.ndarray:
    """A batch of matrices."""
    strides = [step * memory.itemsize for step in (*matrix.batch, matrix.row, matrix.column)]
    first = memory[matrix.offset :]
    return np.lib.stride_tricks.as_strided(first, (*batch, rows, columns), strides)


@record
class ConvolutionCase(CallCase):
    """A convolution of images (n, h, w, groups, channels), or with `first` (n, groups, channels, h, w) in memory, or
    with `inner` (h, w, groups, channels, n), as a gradient of weights has them; `turned`: its weights are reversed."""

    images: tuple[int, int, int] = (1, 1, 1)  # n, h, w
    channels: tuple[int, int, int] = (1, 1, 1)  # groups, channels and features of each
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    first: bool = False
    inner: bool = False
    turned: bool = False
    stored: str = ""

    @property
    def call(self) -> Convolution:
        n, h, w = self.images
        g, c, o = self.channels
        steps = (h * w * g * c, w * g * c, g * c, c, 1) if not self.first else (g * c * h * w, w, 1, c * h * w, h * w)
        if self.inner:
            steps = (1, w * g * c * n, g * c * n, c * n, n)
        kh, kw = self.kernel
        weights, first = (kw * g * c * o, g * c * o, c * o, o, 1), 0
        if self.turned:
            first = (kh - 1) * weights[0] + (kw - 1) * weights[1]
            weights = (-weights[0], -weights[1], *weights[2:])
        stored = tuple(dtypes.canonical(name) for name in self.stored.split()) if self.stored else None
        return Convolution(
            dtypes.float32, n, (h, w), self.out, self.kernel, g, c, o, self.stride, self.dilation, self.padding,
            Strided(0, steps), Strided(first, weights), self.first, stored,  # type: ignore[arg-type]
        )  # fmt: skip

    @property
    def out(self) -> tuple[int, int]:
        sizes = zip(self.images[1:], self.kernel, self.stride, self.dilation, self.padding, strict=True)
        high, wide = ((n + 2 * pad - (k - 1) * apart - 1) // step + 1 for n, k, step, apart, pad in sizes)
        return high, wide

    def exact(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        (n, h, w), (g, c, o), (kh, kw), (high, wide) = self.images, self.channels, self.kernel, self.out
        x = a.reshape(n, g, c, h, w).transpose(0, 3, 4, 1, 2) if self.first else a.reshape(n, h, w, g, c)
        if self.inner:
            x = a.reshape(h, w, g, c, n).transpose(4, 0, 1, 2, 3)
        (top, left), weights = self.padding, b.reshape(kh, kw, g, c, o)[:: -1 if self.turned else 1]
        weights = weights[:, :: -1 if self.turned else 1]
        x = np.pad(x, ((0, 0), (top, top), (left, left), (0, 0), (0, 0)))
        found = np.zeros((n, high, wide, g, o))
        for ky, kx in itertools.product(range(kh), range(kw)):
            y0, x0 = ky * self.dilation[0], kx * self.dilation[1]
            part = x[:, y0 : y0 + (high - 1) * self.stride[0] + 1 : self.stride[0]]
            part = part[:, :, x0 : x0 + (wide - 1) * self.stride[1] + 1 : self.stride[1]]
            found += np.einsum("nyxgc,gco->nyxgo", part, weights[ky, kx])
        return found.transpose(0, 3, 4, 1, 2) if self.first else found

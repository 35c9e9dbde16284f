"""What is timed: named workloads, each with inputs that every candidate gets and a tolerance that results must meet.

A candidate module (`ours`, `with_torch`, `with_jax`, `with_tensorflow`) has one function a workload, under its name,
and one, `training`, for all of `training.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from . import training
from .training import Arrays, Training

# steady: calls in a warm process. first: the first call in a fresh process with empty caches. import: a fresh process.
Kind = Literal["steady", "first", "import"]

SEED = 20
OURS = ("hybridml eager", "hybridml traced")
TORCH, LAST = ("torch", "torch.compile"), ("torch channels_last", "torch.compile channels_last")
COMPILERS = ("jax", "tensorflow")
EVERYONE = (*OURS, *TORCH, *COMPILERS)
IMAGES = (*OURS, *TORCH, *LAST, *COMPILERS)
PRODUCTS = ("hybridml traced", "torch", "jax")
NARROW_IMAGES = ("hybridml traced", "torch", "torch channels_last", "jax")
QUANTIZED = ("hybridml traced", "torch")  # JAX has convolutions of 8 bits, and no kernel for them
EAGER, COMPILED = ("hybridml eager", "torch"), ("hybridml traced", "torch.compile", "jax")


@dataclass(frozen=True)
class Workload:
    """`tolerance`: largest difference from the first candidate's result, relative to its largest element.

    `reach`: the ratio best peer / traced that is aimed at; 0 where there is no aim.
    """

    name: str
    title: str
    kind: Kind
    inputs: Callable[..., Arrays] | None = None
    tolerance: float = 1e-5
    candidates: tuple[str, ...] = EVERYONE
    training: Callable[..., Training] | None = None
    reach: float = 0.0

    def arrays(self, **sizes: int) -> Arrays:
        """The inputs: the same for every candidate."""
        rng = np.random.default_rng(SEED)
        if self.training is not None:
            return self.training(**sizes).arrays(rng)
        return {} if self.inputs is None else self.inputs(rng, **sizes)

    def case(self, library: Any, arrays: Arrays, style: str, **sizes: int) -> Case:
        """The workload made ready by a candidate's module."""
        if self.training is not None:
            case: Case = library.training(self.training(**sizes), arrays, style)
            return case
        case = getattr(library, self.name)(arrays, style)
        return case


@dataclass
class Case:
    """A workload made ready in one candidate: `call` runs it once to its end, `read` gives the last results.

    `reset` goes back to the start, before each round. A model that is trained on one batch for ever has gradients that
    end as denormal numbers, which are slow on every candidate and are no part of training.
    """

    call: Callable[[], object]
    read: Callable[[], list[np.ndarray]]
    reset: Callable[[], object] = bool
    work: Callable[[], dict[str, float]] = dict  # of a call, where a candidate can say it: flops, bytes


def _normal(**shapes: tuple[int, ...]) -> Callable[[np.random.Generator], Arrays]:
    return lambda rng: {name: np.asarray(rng.standard_normal(shape, np.float32)) for name, shape in shapes.items()}


def _options(rng: np.random.Generator) -> Arrays:
    """Spot, strike, years, rate, volatility of a million options."""
    ranges = {"spot": (50, 150), "strike": (50, 150), "years": (0.1, 2), "rate": (0.0, 0.1), "volatility": (0.1, 0.6)}
    return {name: rng.uniform(*ends, 1 << 20).astype(np.float32) for name, ends in ranges.items()}


def _product(rng: np.random.Generator, n: int = 1024) -> Arrays:
    return _normal(x=(n, n), w=(n, n), b=(n,))(rng)


def _small_product(rng: np.random.Generator, n: int = 1024) -> Arrays:
    """Integers of 7 bits: sums of so many products are exact in float32."""
    return {name: rng.integers(-63, 64, (n, n), dtype=np.int8) for name in "xw"}


def _convolution(n: int, c: int, side: int, outputs: int, size: int, groups: int = 1) -> Callable[..., Arrays]:
    def make(rng: np.random.Generator) -> Arrays:
        arrays = _normal(x=(n, c, side, side), w=(outputs, c // groups, size, size), b=(outputs,))(rng)
        return arrays | {"w": arrays["w"] / np.float32(np.sqrt(c // groups * size * size))}

    return make


# Of an input, a weight and an output in 8 bits: real numbers are so many times the integers.
SCALES = 2.0**-6, 2.0**-9, 2.0**-5


def _small_convolution(n: int, c: int, side: int, outputs: int, size: int) -> Callable[..., Arrays]:
    """Integers of 7 bits, which kernels without instructions for products of bytes multiply without saturating."""

    def make(rng: np.random.Generator) -> Arrays:
        x, w = ((n, c, side, side), np.uint8, 0), ((outputs, c, size, size), np.int8, -63)
        operands = {k: rng.integers(low, 64, shape, dtype) for k, (shape, dtype, low) in (("x", x), ("w", w))}
        return operands | _normal(b=(outputs,))(rng)

    return make


def _attention(rng: np.random.Generator, length: int = 256) -> Arrays:
    return _normal(**{name: (8, 8, length, 64) for name in "qkv"})(rng)


_MILLIONS = _normal(x=(1 << 22,), y=(1 << 22,))
_ROWS = _normal(x=(4096, 1024))
_TINY = _normal(x=(16,))


# fmt: off
WORKLOADS: dict[str, Workload] = {w.name: w for w in [
    Workload("gelu_chain", "gelu_tanh(x*1.5+y)*sigmoid(y)+x, 4M float32", "steady", _MILLIONS, reach=2.0),
    Workload("black_scholes", "Black-Scholes call prices, 1M", "steady", _options, 1e-4, reach=1.5),
    Workload("softmax", "softmax(x / 8), 4096 x 1024", "steady", _ROWS, reach=1.3),
    Workload("layer_norm", "layer_norm, 4096 x 1024", "steady", _normal(x=(4096, 1024), weight=(1024,), bias=(1024,)),
             reach=1.15),
    Workload("sum_squares", "sum of squares over axis 0, 4096 x 1024", "steady", _ROWS, reach=1.15),
    Workload("linear_gelu", "gelu(x @ w + b), 1024 x 1024 x 1024", "steady", _product, reach=1.5),
    Workload("matmul_bf16", "x @ w, 1024 x 1024 x 1024 bfloat16", "steady", _product, 1e-2, PRODUCTS),
    Workload("matmul_int8", "x @ w, 1024 x 1024 x 1024 int8 to int32", "steady", _small_product, 0.0, PRODUCTS),
    Workload("conv3x3", "relu(conv 3x3), 8x64x56x56 -> 64", "steady", _convolution(8, 64, 56, 64, 3), 1e-4, IMAGES,
             reach=1.6),
    Workload("conv1x1", "relu(conv 1x1), 8x256x28x28 -> 256", "steady", _convolution(8, 256, 28, 256, 1), 1e-4, IMAGES,
             reach=1.15),
    Workload("conv3x3_bf16", "relu(conv 3x3), 8x64x56x56 -> 64 bfloat16", "steady", _convolution(8, 64, 56, 64, 3),
             2e-2, NARROW_IMAGES),
    Workload("conv1x1_bf16", "relu(conv 1x1), 8x256x28x28 -> 256 bfloat16", "steady", _convolution(8, 256, 28, 256, 1),
             2e-2, NARROW_IMAGES),
    Workload("conv3x3_int8", "relu(conv 3x3), 8x64x56x56 -> 64 uint8 by int8 to uint8", "steady",
             _small_convolution(8, 64, 56, 64, 3), 1e-2, QUANTIZED),
    Workload("conv1x1_int8", "relu(conv 1x1), 8x256x28x28 -> 256 uint8 by int8 to uint8", "steady",
             _small_convolution(8, 256, 28, 256, 1), 1e-2, QUANTIZED),
    Workload("depthwise", "relu6(depthwise 3x3), 8x128x56x56", "steady", _convolution(8, 128, 56, 128, 3, 128), 1e-4,
             IMAGES, reach=2.0),
    Workload("attention", "attention, 8x8x256x64", "steady", _attention, reach=1.6),
    Workload("mlp_step", "MLP 784-512-512-10, batch 128, Adam step", "steady", None, 1e-4, training=training.mlp,
             reach=1.2),
    Workload("gpt_step", "GPT 4 layers d=256 T=128 batch 8, Adam step", "steady", None, 1e-3, training=training.gpt,
             reach=1.3),
    Workload("lstm_step", "LSTM 128->256 T=64 batch 32, Adam step", "steady", None, 1e-3, training=training.lstm,
             reach=1.6),
    Workload("resnet_step", "ResNet-18, 8x3x64x64, SGD momentum step", "steady", None, 1e-2, IMAGES, training.resnet18,
             reach=1.3),
    # Its first loss is the same everywhere; by the fourth, PyTorch's two memory formats are 6e-3 apart.
    Workload("alexnet_step", "AlexNet, 16x3x224x224, SGD momentum step", "steady", None, 2e-2, IMAGES,
             training.alexnet, reach=1.1),
    Workload("ncf_step", "NCF 60000/3700 x 64, batch 1024, Adam step", "steady", None, 1e-3, training=training.ncf,
             reach=1.5),
    Workload("tiny_call", "x*2+1 on 16 float32", "steady", _TINY),
    Workload("captured_100", "x*2+1 on 16 float32, and 100 captured scalars", "steady",
             _normal(x=(16,), **{f"h{k}": () for k in range(100)}), candidates=COMPILED),
    Workload("first_tiny", "first call of x*2+1, empty caches", "first", _TINY, candidates=COMPILED),
    Workload("first_gelu", "first call of gelu_chain, empty caches", "first", _MILLIONS, candidates=COMPILED),
    Workload("add_16", "x + y on 16 float32", "steady", _normal(x=(16,), y=(16,)), candidates=EAGER),
    Workload("add_16_recorded", "x + y on 16, recorded", "steady", _normal(x=(16,), y=(16,)), candidates=EAGER),
    Workload("backward_16", "((r*r)+r).sum() on 16, with backward", "steady", _normal(r=(16,)), candidates=EAGER),
    Workload("import", "import in a fresh process", "import", candidates=(*EAGER, *COMPILERS)),
]}
# fmt: on
TABLE = tuple(name for name, workload in WORKLOADS.items() if workload.reach)
# How cost grows with work: a size of a workload, and its values.
SCALING: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("linear_gelu", "n", (256, 512, 1024, 2048)),
    ("mlp_step", "batch", (32, 128, 512)),
    ("mlp_step", "width", (256, 512, 1024)),
    ("gpt_step", "batch", (2, 4, 8)),
    ("gpt_step", "width", (128, 256, 512)),
    ("gpt_step", "layers", (2, 4, 8)),
    ("gpt_step", "length", (64, 128, 256)),
    ("attention", "length", (128, 256, 512, 1024)),
    ("lstm_step", "length", (16, 32, 64, 128)),
    ("resnet_step", "batch", (2, 8, 16)),
    ("ncf_step", "batch", (256, 1024, 4096)),
)

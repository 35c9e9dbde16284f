"""What is timed: named workloads, each with inputs that every candidate gets and a tolerance that results must meet.

A candidate module (`ours`, `with_torch`, `with_jax`) has one function a workload, under the workload's name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

Arrays = dict[str, np.ndarray]
# steady: calls in a warm process. first: the first call in a fresh process with empty caches. import: a fresh process.
Kind = Literal["steady", "first", "import"]

SEED = 20
WIDTHS = (784, 512, 512, 10)


@dataclass(frozen=True)
class Workload:
    """`tolerance`: largest difference from the first candidate's result, relative to its largest element."""

    name: str
    title: str
    kind: Kind
    inputs: Callable[[np.random.Generator], Arrays]
    tolerance: float = 1e-5
    candidates: tuple[str, ...] = ("hybridml eager", "hybridml traced", "torch", "torch.compile", "jax")

    def arrays(self) -> Arrays:
        """The inputs: the same for every candidate."""
        return self.inputs(np.random.default_rng(SEED))


@dataclass
class Case:
    """A workload made ready in one candidate: `call` runs it once to its end, `read` gives the last results.

    `reset` goes back to the start, before each round. A model that is trained on one batch for ever has gradients that
    end as denormal numbers, which are slow on every candidate and are no part of training.
    """

    call: Callable[[], object]
    read: Callable[[], list[np.ndarray]]
    reset: Callable[[], object] = bool


def _normal(**shapes: tuple[int, ...]) -> Callable[[np.random.Generator], Arrays]:
    return lambda rng: {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def _layer_norm(rng: np.random.Generator) -> Arrays:
    return _normal(x=(4096, 1024), weight=(1024,), bias=(1024,))(rng)


def _mlp(rng: np.random.Generator) -> Arrays:
    arrays: Arrays = {"x": rng.standard_normal((128, WIDTHS[0]), np.float32), "labels": rng.integers(0, 10, 128)}
    for k, (n, m) in enumerate(pairwise(WIDTHS)):
        arrays[f"w{k}"] = rng.standard_normal((m, n), np.float32) / np.float32(np.sqrt(n))
        arrays[f"b{k}"] = np.zeros(m, np.float32)
    return arrays


def _convnet(rng: np.random.Generator) -> Arrays:
    return {
        "x": rng.standard_normal((64, 1, 16, 16), np.float32),
        "labels": rng.integers(0, 10, 64),
        "w0": rng.standard_normal((16, 1, 3, 3), np.float32) / 3,
        "b0": np.zeros(16, np.float32),
        "w1": rng.standard_normal((32, 16, 3, 3), np.float32) / 12,
        "b1": np.zeros(32, np.float32),
        "w2": rng.standard_normal((10, 512), np.float32) / np.float32(np.sqrt(512)),
        "b2": np.zeros(10, np.float32),
    }


EAGER, COMPILED = ("hybridml eager", "torch"), ("hybridml traced", "torch.compile", "jax")
_MILLIONS = _normal(x=(1 << 22,), y=(1 << 22,))
# fmt: off
WORKLOADS: dict[str, Workload] = {w.name: w for w in [
    Workload("gelu_chain", "gelu_tanh(x*1.5+y)*sigmoid(y)+x, 4M float32", "steady", _MILLIONS),
    Workload("tiny_call", "x*2+1 on 16 float32", "steady", _normal(x=(16,))),
    Workload("first_tiny", "first call of x*2+1, empty caches", "first", _normal(x=(16,)), candidates=COMPILED),
    Workload("first_gelu", "first call of gelu_chain, empty caches", "first", _MILLIONS, candidates=COMPILED),
    Workload("add_16", "x + y on 16 float32", "steady", _normal(x=(16,), y=(16,)), candidates=EAGER),
    Workload("add_16_recorded", "x + y on 16, recorded", "steady", _normal(x=(16,), y=(16,)), candidates=EAGER),
    Workload("backward_16", "((r*r)+r).sum() on 16, with backward", "steady", _normal(r=(16,)), candidates=EAGER),
    Workload("mlp_step", "MLP 784-512-512-10, batch 128, whole Adam step", "steady", _mlp, 1e-4),
    Workload("convnet_step", "convnet on 64 images 16x16, whole SGD step", "steady", _convnet, 1e-4),
    Workload("softmax", "softmax of 4096 x 1024 float32", "steady", _normal(x=(4096, 1024))),
    Workload("layer_norm", "layer_norm of 4096 x 1024 float32", "steady", _layer_norm),
    Workload("import", "import in a fresh process", "import", _normal(), candidates=(*EAGER, "jax")),
]}
# fmt: on

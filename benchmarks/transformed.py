"""The workloads of `transforms.py`: gradients, Hessians and products with them, of one text for all libraries."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from . import training
from .training import Arrays
from .workloads import Case, Workload

BATCH = 128
WIDTHS = 20, 40, 5  # of the perceptron of 1,000 numbers
LIBRARIES = ("hybridml traced", "torch", "torch.compile", "jax")
CHAIN = ("hybridml traced", "hybridml kernel", "torch.compile", "jax")
NARROW = (
    "hybridml traced", "hybridml traced bf16", "torch", "torch bf16", "torch.compile", "torch.compile bf16",
)  # fmt: skip


@dataclass(frozen=True)
class Transformed(Workload):
    """A workload that is a function `make(names, style)` of a library's names."""

    make: Callable[[SimpleNamespace, str], Callable[..., Any]] | None = None

    def case(self, library: Any, arrays: Arrays, style: str, **sizes: int) -> Case:
        if self.make is None:
            return super().case(library, arrays, style, **sizes)
        names = NAMES[library.__name__.rpartition(".")[2]]()
        run = self.make(names, style)
        run = run if style == "eager" else names.compile(run)
        args = [names.tensor(array) for array in arrays.values()]
        last: list[Any] = [None]

        def call() -> None:
            last[0] = names.ready(run(*args))

        def read() -> list[np.ndarray]:
            found = last[0] if isinstance(last[0], tuple) else (last[0],)
            return [np.asarray(names.array(value), np.float32) for value in found]

        return Case(call, read)


# ---- the names of the libraries


def of_hybridml() -> SimpleNamespace:
    import hybridml as hm

    return SimpleNamespace(
        tensor=hm.asarray, array=lambda t: t.detach().numpy(), compile=hm.trace, ready=lambda value: value,
        grad=hm.grad, vmap=hm.vmap, hessian=hm.hessian, jvp=lambda f, x, v: hm.jvp(f, (x,), (v,))[1],
        relu=hm.nn.functional.relu, log_softmax=hm.nn.functional.log_softmax, tanh=hm.tanh, exp=hm.exp, where=hm.where,
        conv=lambda x, w: hm.nn.functional.conv2d(x, w, stride=2), kernel=hm.kernel,
    )  # fmt: skip


def of_torch() -> SimpleNamespace:
    import torch

    return SimpleNamespace(
        tensor=torch.from_numpy, array=lambda t: t.detach().numpy(), compile=torch.compile, ready=lambda value: value,
        grad=torch.func.grad, vmap=torch.func.vmap, hessian=torch.func.hessian,
        jvp=lambda f, x, v: torch.func.jvp(f, (x,), (v,))[1],
        relu=torch.relu, log_softmax=torch.log_softmax, tanh=torch.tanh, exp=torch.exp, where=torch.where,
        conv=lambda x, w: torch.nn.functional.conv2d(x, w, stride=2),
    )  # fmt: skip


def of_jax() -> SimpleNamespace:
    import jax
    import jax.numpy as jnp

    return SimpleNamespace(
        tensor=jnp.asarray, array=np.asarray, compile=jax.jit, ready=jax.block_until_ready,
        grad=jax.grad, vmap=jax.vmap, hessian=jax.hessian, jvp=lambda f, x, v: jax.jvp(f, (x,), (v,))[1],
        relu=jax.nn.relu, log_softmax=jax.nn.log_softmax, tanh=jnp.tanh, exp=jnp.exp, where=jnp.where,
        conv=lambda x, w: jax.lax.conv_general_dilated(
            x, w, (2, 2), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW")
        ),
    )  # fmt: skip


NAMES = {"ours": of_hybridml, "with_torch": of_torch, "with_jax": of_jax}


# ---- the functions


def per_sample(predict: Callable[..., Any]) -> Callable[[SimpleNamespace, str], Callable[..., Any]]:
    """The gradient of each sample's cross-entropy with respect to all weights."""

    def make(f: SimpleNamespace, style: str) -> Callable[..., Any]:
        def loss(weights: Any, x: Any, target: Any) -> Any:
            return -(f.log_softmax(predict(f, weights, x), -1) * target).sum()

        return lambda x, target, *weights: f.vmap(f.grad(loss), (None, 0, 0))(weights, x, target)

    return make


def perceptron(f: SimpleNamespace, weights: Any, x: Any) -> Any:
    w1, b1, w2, b2 = weights
    return w2 @ f.relu(w1 @ x + b1) + b2


def convolutional(f: SimpleNamespace, weights: Any, x: Any) -> Any:
    w1, w2, w3, b3 = weights
    return w3 @ f.relu(f.conv(f.relu(f.conv(x[None], w1)), w2)).reshape((-1,)) + b3


def curved(f: SimpleNamespace) -> Callable[..., Any]:
    """The loss of a perceptron whose weights are one vector."""
    a, b, c = WIDTHS

    def of(x: Any, y: Any) -> Callable[[Any], Any]:
        def loss(p: Any) -> Any:
            found = f.tanh(x @ p[: a * b].reshape((a, b))) @ p[a * b :].reshape((b, c))
            return ((found - y) * (found - y)).mean()

        return loss

    return of


def hessian(f: SimpleNamespace, style: str) -> Callable[..., Any]:
    return lambda p, v, x, y: f.hessian(curved(f)(x, y))(p)


def jvp(f: SimpleNamespace, style: str) -> Callable[..., Any]:
    return lambda p, v, x, y: f.jvp(curved(f)(x, y), p, v)


def hvp(f: SimpleNamespace, style: str) -> Callable[..., Any]:
    return lambda p, v, x, y: f.jvp(f.grad(curved(f)(x, y)), p, v)


def chain(f: SimpleNamespace, style: str) -> Callable[..., Any]:
    """A leaky unit, written in operations or as a function of one number, between others."""

    def unit(x: Any) -> Any:
        return f.where(x > 0, x, 0.1 * (f.exp(x) - 1))

    def number(x: float) -> float:
        return x if x > 0 else 0.1 * (math.exp(x) - 1)

    if style == "kernel":
        unit = f.kernel(number)
    return lambda x: f.tanh(unit(x * 1.5 + 0.25)) * 2 - x


def _images(*shape: int, **weights: tuple[int, ...]) -> Callable[[np.random.Generator], Arrays]:
    def make(rng: np.random.Generator) -> Arrays:
        data = {"x": rng.standard_normal((BATCH, *shape), np.float32)}
        data["target"] = np.eye(10, dtype=np.float32)[rng.integers(0, 10, BATCH)]
        return data | {name: training.start(f".{name}", size, rng) for name, size in weights.items()}

    return make


def _curved(rng: np.random.Generator) -> Arrays:
    a, b, c = WIDTHS
    sizes = {"p": (a * b + b * c,), "v": (a * b + b * c,), "x": (64, a), "y": (64, c)}
    return {name: rng.standard_normal(size, np.float32) * np.float32(0.3) for name, size in sizes.items()}


def _million(rng: np.random.Generator) -> Arrays:
    return {"x": rng.standard_normal(1 << 20, np.float32)}


_MLP = _images(784, w1=(256, 784), bias1=(256,), w2=(10, 256), bias2=(10,))
_CONVNET = _images(1, 28, 28, w1=(16, 1, 5, 5), w2=(32, 16, 5, 5), w3=(10, 512), bias=(10,))

# fmt: off
TRANSFORMS: dict[str, Workload] = {w.name: w for w in [
    Transformed("per_sample_mlp", "per-sample gradients, MLP 784-256-10, batch 128", "steady", _MLP, 1e-4, LIBRARIES,
                reach=1.0, make=per_sample(perceptron)),
    Transformed("per_sample_convnet", "per-sample gradients, convnet 1-16-32-10, batch 128", "steady", _CONVNET, 1e-4,
                LIBRARIES, reach=1.0, make=per_sample(convolutional)),
    Transformed("hessian", "hessian, MLP of 1,000 weights, 64 samples", "steady", _curved, 1e-4, LIBRARIES, reach=1.0,
                make=hessian),
    Transformed("jvp", "jvp of the same", "steady", _curved, 1e-4, LIBRARIES, reach=1.0, make=jvp),
    Transformed("hvp", "hvp of the same", "steady", _curved, 1e-4, LIBRARIES, reach=1.0, make=hvp),
    Transformed("chain", "tanh(unit(x * 1.5 + 0.25)) * 2 - x, 1M float32", "steady", _million, 1e-5, CHAIN, make=chain),
    Transformed("gpt", "GPT 2 layers d=128 T=64 batch 8, Adam step", "steady", None, 3e-2, NARROW,
                lambda: training.gpt(8, 64, 128, 2)),
    # In bfloat16 the second loss is 5 % from that in float32, here as in PyTorch.
    Transformed("resnet", "ResNet-18 of half the width, 16x3x64x64, SGD momentum step", "steady", None, 6e-2, NARROW,
                lambda: training.resnet18(16, 64, 10, 32)),
]}
# fmt: on

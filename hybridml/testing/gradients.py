"""`gradcheck`: gradients against differences, along one random direction, which costs two calls for any size.

Method: <w, (f(x + h u) - f(x - h u)) / 2h> is compared with <vjp(w), u> for random u and w; order 2 does the same for
the gradient. Of complex numbers the gradient is the direction of steepest ascent: a step u changes a real function by
the real part of conj(gradient) * u.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybridml import autograd
from hybridml.arrays.creation import asarray, tensor, zeros_like
from hybridml.core.pytree import tree_leaves
from hybridml.core.tensor import Tensor
from hybridml_compiler.errors import DTypeError, GradientError

Outputs = Callable[[Sequence[Tensor]], list[Tensor]]


def gradcheck(
    fn: Callable[..., Any], *inputs: Any, order: int = 2, step: float = 1e-6, rtol: float = 2e-5, atol: float = 2e-6,
    seed: int = 0,
) -> bool:  # fmt: skip
    """True if the gradients of `fn` at `inputs` agree with central differences, up to derivatives of `order`.

    `fn` takes tensors and returns tensors, or containers of them. `inputs` are arrays or tensors, and those of floats
    (float64 or complex128: a narrower one would drown the differences in rounding) are checked. Raises GradientError
    with both numbers where they disagree by more than `atol` + `rtol` times the difference quotient, DTypeError for
    narrow floats.

    >>> import hybridml as hm
    >>> from hybridml.testing import gradcheck
    >>> gradcheck(lambda x: hm.exp(x).sum(), [0.5, 1.5])
    True
    """
    points = [_point(x) for x in inputs]
    places = [x.device.type if isinstance(x, Tensor) else "cpu" for x in inputs]
    floats = [k for k, p in enumerate(points) if p.dtype.kind in "fc"]
    rng = np.random.default_rng(seed)

    def outputs(tensors: Sequence[Tensor]) -> list[Tensor]:
        placed = [t.to(place) for t, place in zip(tensors, places, strict=True)]
        return [t for t in tree_leaves(fn(*placed)) if isinstance(t, Tensor) and t.dtype.kind in "fc"]

    check: Outputs = outputs
    for k in range(1, order + 1):
        found = _compare(check, points, floats, rng, step)
        if found is None:  # nothing that depends on the inputs is left
            break
        numeric, analytic, check = found
        if not abs(numeric - analytic) <= atol + rtol * abs(numeric):
            raise GradientError(
                f"gradcheck: order {k}: the gradient says {analytic:.9g} along a random direction, differences say "
                f"{numeric:.9g}; a rule is wrong, or the function is not smooth there"
            )
    return True


def _point(x: Any) -> np.ndarray:
    array = x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
    if array.dtype.kind in "fc" and array.dtype.char not in "dD":
        raise DTypeError(f"gradcheck: needs float64 or complex128, got {array.dtype.name}; cast the input")
    return array


def _compare(
    outputs: Outputs, points: list[np.ndarray], floats: list[int], rng: np.random.Generator, step: float
) -> tuple[float, float, Outputs] | None:
    """The derivative by differences and by the gradient, and the function whose outputs the gradients are."""
    directions = [_random(rng, points[k]) for k in floats]

    def moved(by: float) -> list[np.ndarray]:
        shifted = list(points)
        for k, u in zip(floats, directions, strict=True):
            shifted[k] = points[k] + by * u
        return [t.detach().cpu().numpy() for t in outputs(_leaves(shifted, floats))]

    made = outputs(_leaves(points, floats))
    kept = [j for j, t in enumerate(made) if t.requires_grad]
    if not kept:
        return None
    weights = [_random(rng, made[j]) for j in kept]

    def gradients(tensors: Sequence[Tensor]) -> list[Tensor]:
        outs, wanted = outputs(tensors), [tensors[k] for k in floats]
        cotangents = [asarray(w, device=outs[j].device) for j, w in zip(kept, weights, strict=True)]
        found = autograd.grad([outs[j] for j in kept], wanted, cotangents, create_graph=True, allow_unused=True)
        return [zeros_like(t) if g is None else g for t, g in zip(wanted, found, strict=True)]

    pulled = gradients(_leaves(points, floats))
    analytic = math.fsum(_change(g.detach().numpy(), u) for g, u in zip(pulled, directions, strict=True))
    high, low = moved(step), moved(-step)
    numeric = math.fsum(_change(w, (high[j] - low[j]) / (2 * step)) for j, w in zip(kept, weights, strict=True))
    return numeric, analytic, gradients


def _leaves(points: list[np.ndarray], floats: list[int]) -> list[Tensor]:
    return [tensor(p, requires_grad=k in floats) for k, p in enumerate(points)]


def _random(rng: np.random.Generator, like: np.ndarray | Tensor) -> np.ndarray:
    found = rng.standard_normal(like.shape)
    return np.asarray(found + 1j * rng.standard_normal(like.shape) if like.dtype.kind == "c" else found)


def _change(gradient: np.ndarray, step: np.ndarray) -> float:
    return float((gradient.conj() * step).real.sum())

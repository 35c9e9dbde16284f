"""Gradient clipping, and flat vectors of parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from hybridml_compiler.errors import GradientError, ShapeError

from ... import arrays as xp
from ...core.autodiff.sparse import SparseGradient
from ...core.context import no_grad
from ...core.precision.composites import wide
from ...core.tensor import Tensor
from ..parameter import commit


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """Scales all gradients in place so that their joint norm is at most `max_norm`; returns the norm before, ().

    `parameters` is a tensor or an iterable of them, of which those without a gradient do not count; `norm_type` may be
    infinity. With `error_if_nonfinite` a norm that is not finite raises GradientError, and nothing is scaled.

    >>> w = hm.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> clip_grad_norm_([w], 1.0).item()
    10.0
    """
    found = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    with no_grad():
        total = _total("clip_grad_norm_", _grads(found), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(found, max_norm, total)
    return total


def clip_grads_with_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor) -> None:
    """Scales all gradients in place as `clip_grad_norm_` does for a joint norm `total_norm` (), which is given.

    >>> w = hm.tensor([3.0, 4.0], requires_grad=True)
    >>> w.sum().backward()
    >>> clip_grads_with_norm_([w], 1.0, hm.tensor(4.0))
    >>> [round(g, 4) for g in w.grad.tolist()]
    [0.25, 0.25]
    """
    grads = _grads(parameters)
    with no_grad():
        # The 1e-6 is PyTorch's: it keeps a norm of zero from dividing.
        scale = xp.minimum(max_norm / (total_norm + 1e-6), 1)
        dense = [grad for grad in grads if type(grad) is not SparseGradient]
        commit([(grad, grad * xp.astype(scale, grad.dtype)) for grad in dense])
        for grad in grads:
            if type(grad) is SparseGradient:
                grad.mul_(xp.astype(scale, grad.dtype))


def get_total_norm(
    tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """The norm () of tensors of any shapes as one vector; GradientError for one that is not finite, if that is asked.

    >>> get_total_norm([hm.tensor([3.0]), hm.tensor([[4.0]])]).item()
    5.0
    """
    found = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    return _total("get_total_norm", found, norm_type, error_if_nonfinite)


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Clips every gradient to ``-clip_value .. clip_value``, in place.

    `parameters` is a tensor or an iterable of them, of any shapes; those without a gradient are skipped. A sparse
    gradient is a GradientError.

    >>> w = hm.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> clip_grad_value_([w], 7.0)
    >>> w.grad.tolist()
    [6.0, 7.0]
    """
    grads = _grads(parameters)
    if any(type(grad) is SparseGradient for grad in grads):
        raise GradientError("clip_grad_value_ does not support sparse gradients, please consider clip_grad_norm_")
    with no_grad():
        commit([(grad, xp.clip(grad, -clip_value, clip_value)) for grad in grads])


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters concatenated to one vector (total size,), in order; differentiable.

    >>> parameters_to_vector(hm.nn.Linear(3, 2).parameters()).shape
    (8,)
    """
    return xp.concat([parameter.reshape((-1,)) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Writes the parts of the vector `vec` (total size,) into the parameters, in order and in place.

    Raises ShapeError for a vector of another size.

    >>> layer = hm.nn.Linear(2, 1)
    >>> vector_to_parameters(hm.asarray([1.0, 2.0, 3.0]), layer.parameters())
    >>> layer.bias.tolist()
    [3.0]
    """
    found = list(parameters)
    wanted = sum(parameter.size for parameter in found)
    if vec.shape != (wanted,):
        raise ShapeError(f"vector_to_parameters: {wanted} numbers are needed, got a vector of shape {vec.shape}")
    start = 0
    with no_grad():
        for parameter in found:
            parameter.copy_(vec[start : start + parameter.size].reshape(parameter.shape))
            start += parameter.size


def _grads(parameters: Tensor | Iterable[Tensor]) -> list[Any]:
    found = [parameters] if isinstance(parameters, Tensor) else parameters
    return [parameter.grad for parameter in found if parameter.grad is not None]


def _total(what: str, grads: list[Any], norm_type: float, error_if_nonfinite: bool) -> Tensor:
    total = _norm([grad.distinct() if type(grad) is SparseGradient else grad for grad in grads], norm_type)
    if error_if_nonfinite and not math.isfinite(float(total)):
        raise GradientError(f"{what}: the norm of the gradients is {float(total)}; nothing was scaled")
    return total


def _norm(grads: list[Tensor], norm_type: float) -> Tensor:
    if not grads:
        return xp.zeros(())
    grads = [wide(grad) for grad in grads]
    if norm_type == math.inf:
        return xp.stack([xp.abs(grad).max() for grad in grads]).max()
    if norm_type == 2:
        squares = [xp.real(grad * xp.conj(grad)) if grad.dtype.kind == "c" else grad * grad for grad in grads]
        return xp.sqrt(xp.stack([square.sum() for square in squares]).sum())
    powers = [(xp.abs(grad) ** norm_type).sum() for grad in grads]
    return xp.stack(powers).sum() ** (1 / norm_type)


__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm", "parameters_to_vector",
    "vector_to_parameters",
]  # fmt: skip

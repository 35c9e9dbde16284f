"""`weight_norm` and `spectral_norm` with their tensors in the layer itself, as ``weight_g`` and ``weight_v``."""

from __future__ import annotations

from typing import TypeVar

from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.ops.shapes import axis_index

from ...core.context import no_grad
from ...core.tensor import Tensor
from ...linalg.operands import described
from ..module import Module
from ..parameter import Parameter
from . import parametrizations as norms
from .computed import Rule, outside_of_traces, rule_of, set_rule, tensor_of

M = TypeVar("M", bound=Module)


class _WeightNorm(Rule):
    kind = "weight_norm"
    suffixes = ("_g", "_v")

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def read(self, module: Module, name: str) -> Tensor:
        return norms.scaled(getattr(module, f"{name}_g"), getattr(module, f"{name}_v"), self.dim)


class _SpectralNorm(Rule):
    kind = "spectral_norm"
    suffixes = ("_orig", "_u", "_v")

    def __init__(self, axis: int, iterations: int, eps: float) -> None:
        self.axis, self.iterations, self.eps = axis, iterations, eps

    def read(self, module: Module, name: str) -> Tensor:
        weight: Tensor = getattr(module, f"{name}_orig")
        matrix = norms.rows_of(weight, self.axis)
        u, v = getattr(module, f"{name}_u"), getattr(module, f"{name}_v")
        if module.training:
            v, u = norms.power_iterations(matrix.detach(), v, u, self.iterations, self.eps)
        return weight / norms.singular_value(u, matrix, v)


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Makes a module learn the length and the direction of a weight apart: ``g * v / |v|`` (Salimans and Kingma 2016).

    The parameter `name` becomes ``name_g`` and ``name_v``; lengths are of the slices of axis `dim`, or of all of it for
    None and -1, as in PyTorch. The module is changed and given back; ArgumentError if it has no such parameter.
    `parametrizations.weight_norm` is the newer one.

    >>> layer = weight_norm(hm.nn.Linear(3, 4))
    >>> list(layer.state_dict())
    ['bias', 'weight_g', 'weight_v']
    """
    weight = tensor_of(module, name, "weight_norm").detach()
    dim = -1 if dim is None else dim
    axis_index("weight_norm", dim, described(weight))
    delattr(module, name)
    module.register_parameter(f"{name}_g", Parameter(norms.length(weight, dim)))
    module.register_parameter(f"{name}_v", Parameter(weight.clone()))
    set_rule(module, name, _WeightNorm(dim))
    return module


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> M:
    """Divides a weight by its largest singular value, found by power iteration (Miyato et al. 2018).

    The weight is a matrix of the slices of axis `dim` (0; 1 for transposed convolutions) as rows. The parameter `name`
    becomes ``name_orig``; its singular vectors are the buffers ``name_u`` and ``name_v``, which a forward pass in
    training moves on by `n_power_iterations`. The module is changed and given back; ArgumentError if it has no such
    parameter. `parametrizations.spectral_norm` is the newer one.

    >>> layer = spectral_norm(hm.nn.Linear(3, 4))
    >>> list(layer.state_dict())
    ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    norms.checked_iterations(n_power_iterations)
    weight = tensor_of(module, name, "spectral_norm")
    axis = axis_index("spectral_norm", norms.output_axis(module) if dim is None else dim, described(weight))
    matrix = norms.rows_of(weight.detach(), axis)
    u, v = norms.random_vectors(matrix, eps)
    norms.power_iterations(matrix, v, u, 15, eps)  # as PyTorch's parametrization: a fresh layer is close to its norm
    delattr(module, name)
    module.register_parameter(f"{name}_orig", weight)
    module.register_buffer(f"{name}_u", u)
    module.register_buffer(f"{name}_v", v)
    set_rule(module, name, _SpectralNorm(axis, n_power_iterations, eps))
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Makes the weight of a `weight_norm` an ordinary parameter again, with its present value; returns the module.

    Raises ArgumentError where there is none.

    >>> layer = remove_weight_norm(weight_norm(hm.nn.Linear(3, 4)))
    >>> list(layer.state_dict())
    ['bias', 'weight']
    """
    return _removed(module, name, _WeightNorm)


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Makes the weight of a `spectral_norm` an ordinary parameter again, with its present value; returns the module.

    Raises ArgumentError where there is none.

    >>> layer = remove_spectral_norm(spectral_norm(hm.nn.Linear(3, 4)))
    >>> list(layer.state_dict())
    ['bias', 'weight']
    """
    return _removed(module, name, _SpectralNorm)


def _removed(module: M, name: str, kind: type[_WeightNorm] | type[_SpectralNorm]) -> M:
    outside_of_traces(f"remove_{kind.kind}")
    rule = rule_of(module, name)
    if not isinstance(rule, kind):
        raise ArgumentError(
            f"remove_{kind.kind}: {name!r} of this {type(module).__name__} has no {kind.kind} on top of it"
        )
    with no_grad():
        weight = getattr(module, name).detach()
    set_rule(module, name, None)
    for part in rule.parts(name):
        delattr(module, part)
    module.register_parameter(name, Parameter(weight))
    return module


__all__ = ["remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"]

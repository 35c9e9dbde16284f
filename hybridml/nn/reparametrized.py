"""Weights that a layer computes from other parameters: `weight_norm` and `spectral_norm`.

The layer gets a class of its own in which the weight is a property: it is computed where it is read, so nothing of a
forward pass stays behind in the layer, eager or traced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from hybridml_compiler.errors import ArgumentError

from .. import arrays as xp
from .. import linalg, random
from ..core.context import no_grad
from ..core.tensor import Tensor
from ..functional.distances import normalize as unit
from .module import Module
from .parameter import Parameter, is_parameter

M = TypeVar("M", bound=Module)


class _How(NamedTuple):
    """Rule by which a weight of a module is computed."""

    kind: str
    name: str
    axis: int | None
    iterations: int = 1
    eps: float = 1e-12


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Makes a module learn the length and the direction of a weight apart: ``g * v / |v|`` (Salimans and Kingma 2016).

    The parameter `name` becomes ``name_g`` and ``name_v``; lengths are of the slices of axis `dim`, or of all of it for
    None. The module is changed and given back.

    >>> layer = weight_norm(hm.nn.Linear(3, 4))
    >>> list(layer.state_dict())
    ['bias', 'weight_g', 'weight_v']
    """
    weight = _taken(module, name, "weight_norm")
    axis = None if dim is None else dim % weight.ndim
    module.register_parameter(f"{name}_g", Parameter(_length(weight, axis)))
    module.register_parameter(f"{name}_v", Parameter(weight))
    return _changed(module, _How("weight_norm", name, axis))


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> M:
    """Divides a weight by its largest singular value, found by power iteration (Miyato et al. 2018).

    The weight is a matrix of the slices of axis `dim` (0; 1 for transposed convolutions) as rows. The parameter `name`
    becomes ``name_orig``; its singular vectors are the buffers ``name_u`` and ``name_v``, which a forward pass in
    training moves on by `n_power_iterations`. The module is changed and given back.

    >>> layer = spectral_norm(hm.nn.Linear(3, 4))
    >>> list(layer.state_dict())
    ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    if n_power_iterations < 1:
        raise ArgumentError(f"spectral_norm: n_power_iterations must be 1 or more, got {n_power_iterations}")
    weight = _taken(module, name, "spectral_norm")
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    how = _How("spectral_norm", name, dim % weight.ndim, n_power_iterations, eps)
    rows, columns = _matrix(weight, how).shape
    module.register_parameter(f"{name}_orig", Parameter(weight))
    for part, size in (("u", rows), ("v", columns)):
        module.register_buffer(f"{name}_{part}", unit(random.normal((size,), dtype=weight.dtype), dim=0, eps=eps))
    _changed(module, how)
    with no_grad():
        for _ in range(15):  # as PyTorch's parametrisation: a fresh layer is close to its norm
            _iterated(module, how)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Makes the weight of a `weight_norm` an ordinary parameter again, with its present value; returns the module.

    Raises ArgumentError where there is none.

    >>> layer = remove_weight_norm(weight_norm(hm.nn.Linear(3, 4)))
    >>> list(layer.state_dict())
    ['bias', 'weight']
    """
    return _removed(module, name, "weight_norm", ("g", "v"))


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Makes the weight of a `spectral_norm` an ordinary parameter again, with its present value; returns the module.

    Raises ArgumentError where there is none.

    >>> layer = remove_spectral_norm(spectral_norm(hm.nn.Linear(3, 4)))
    >>> list(layer.state_dict())
    ['bias', 'weight']
    """
    return _removed(module, name, "spectral_norm", ("orig", "u", "v"))


def _taken(module: Module, name: str, what: str) -> Tensor:
    """The parameter `name`, which the module has no longer."""
    weight = module.__dict__.get(name)
    if not isinstance(weight, Tensor) or not is_parameter(weight):
        raise ArgumentError(f"{what}: {type(module).__name__} has no parameter {name!r}; it has {_names(module)}")
    delattr(module, name)
    return weight.detach()


def _names(module: Module) -> list[str]:
    return [name for name, _ in module.named_parameters(recurse=False)]


def _changed(module: M, how: _How) -> M:
    object.__setattr__(module, "__class__", _class_of(type(module), how))
    return module


_CLASSES: dict[tuple[type[Module], _How], type[Module]] = {}


def _class_of(base: type[Module], how: _How) -> type[Module]:
    if (base, how) in _CLASSES:
        return _CLASSES[base, how]
    body: dict[str, Any] = {
        how.name: property(lambda self: _COMPUTED[how.kind](self, how)),
        "_reparametrized": (base, how),
        "__reduce__": lambda self: (_made, (base, how), self.__getstate__()),
        "__module__": base.__module__,
        "__doc__": base.__doc__,
        "__qualname__": base.__qualname__,
    }
    made = _CLASSES[base, how] = type(base.__name__, (base,), body)
    return made


def _made(base: type[Module], how: _How) -> Module:
    """An empty instance, which pickle fills."""
    cls = _class_of(base, how)
    return cls.__new__(cls)


def _removed(module: M, name: str, kind: str, parts: tuple[str, ...]) -> M:
    base, how = getattr(type(module), "_reparametrized", (None, None))
    if how is None or (how.kind, how.name) != (kind, name):
        raise ArgumentError(f"remove_{kind}: {name!r} of this {type(module).__name__} has no {kind} on top of it")
    with no_grad():
        weight = getattr(module, name).detach()
    for part in parts:
        delattr(module, f"{name}_{part}")
    object.__setattr__(module, "__class__", base)
    module.register_parameter(name, Parameter(weight))
    return module


def _length(v: Tensor, axis: int | None) -> Tensor:
    if axis is None:
        return linalg.vector_norm(v)
    return linalg.vector_norm(v, axis=tuple(k for k in range(v.ndim) if k != axis), keepdims=True)


def _normed(module: Module, how: _How) -> Tensor:
    g, v = getattr(module, f"{how.name}_g"), getattr(module, f"{how.name}_v")
    found: Tensor = v * (g / _length(v, how.axis))
    return found


def _matrix(weight: Tensor, how: _How) -> Tensor:
    assert how.axis is not None
    return xp.moveaxis(weight, how.axis, 0).reshape((weight.shape[how.axis], -1))


def _iterated(module: Module, how: _How) -> tuple[Tensor, Tensor]:
    matrix = _matrix(getattr(module, f"{how.name}_orig").detach(), how)
    u, v = getattr(module, f"{how.name}_u"), getattr(module, f"{how.name}_v")
    new = u
    for _ in range(how.iterations):
        other = unit(xp.matmul(matrix.mT, new), dim=0, eps=how.eps)
        new = unit(xp.matmul(matrix, other), dim=0, eps=how.eps)
    v.copy_(other)
    u.copy_(new)
    return new, other


def _spectral(module: Module, how: _How) -> Tensor:
    weight = getattr(module, f"{how.name}_orig")
    if module.training:
        with no_grad():
            u, v = _iterated(module, how)
    else:
        u, v = getattr(module, f"{how.name}_u"), getattr(module, f"{how.name}_v")
    found: Tensor = weight / (u * xp.matmul(_matrix(weight, how), v)).sum()
    return found


_COMPUTED: dict[str, Callable[[Module, _How], Tensor]] = {"weight_norm": _normed, "spectral_norm": _spectral}

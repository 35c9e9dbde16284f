"""Functions of functions by the names of torch.func, and modules as functions of their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hybridml_compiler.errors import ArgumentError, ShapeError

from .arrays.shaping.manipulation import stack
from .core.tensor import Tensor
from .nn.module import Module
from .nn.utils.replaced import replaced
from .transforms.grad import Argnums, grad, jvp, value_and_grad, vjp
from .transforms.jacobian import hessian, jacfwd, jacrev, linearize
from .transforms.vmap import vmap

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "stack_module_state", "vjp", "vmap",
]  # fmt: skip


def grad_and_value(fn: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """`value_and_grad` the other way around: `(gradient, value)`.

    >>> import hybridml as hm
    >>> gradient, value = hm.func.grad_and_value(lambda x: x**2)(hm.tensor(3.0))
    >>> gradient.item(), value.item()
    (6.0, 9.0)
    """
    both = value_and_grad(fn, argnums, has_aux)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return gradient, value

    return wrapper


def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    strict: bool = False,
) -> Any:
    """The result of a module's call with these tensors in place of its parameters and buffers, by their names.

    parameters_and_buffers: one dictionary, or several, such as both of `stack_module_state`. args: a tuple of
    arguments, or the one there is. What is not named stays the module's own, with `strict` that is an
    error. Where parameters are shared, all places get the tensor of one. The module is as before afterwards. Not for
    one module in several threads at once. Errors: ArgumentError for names that it has not, ShapeError for other shapes.

    >>> import hybridml as hm
    >>> layer = hm.nn.Linear(2, 1)
    >>> given = {"weight": hm.ones((1, 2)), "bias": hm.zeros(1)}
    >>> hm.func.functional_call(layer, given, hm.tensor([3.0, 4.0])).tolist()
    [7.0]
    """
    arguments = args if isinstance(args, tuple) else (args,)
    several = isinstance(parameters_and_buffers, tuple | list)
    parts: Any = parameters_and_buffers if several else (parameters_and_buffers,)
    given = {name: value for part in parts for name, value in part.items()}
    if len(given) < sum(map(len, parts)):
        raise ArgumentError("functional_call: the dictionaries have names in common; give each tensor once")
    with replaced(_values(module, given, strict)):
        return module(*arguments, **(kwargs or {}))


def _values(module: Module, given: Mapping[str, Any], strict: bool) -> list[tuple[tuple[Module, str], Tensor]]:
    """The places of the given tensors, each with its tensor. Raises ArgumentError and ShapeError."""
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    places = _places(module)
    unknown = [name for name in given if name not in places]
    missing = [name for name in own if name not in given]
    if unknown or (strict and missing):
        said = f"has no {', '.join(map(repr, unknown))}" if unknown else f"lacks {', '.join(map(repr, missing))} here"
        raise ArgumentError(f"functional_call: {type(module).__name__} {said}; its names are {', '.join(own)}")
    found: dict[tuple[int, str], tuple[tuple[Module, str], Tensor]] = {}
    for name, value in given.items():
        before = getattr(*places[name])
        if isinstance(before, Tensor) and before.shape != value.shape:
            raise ShapeError(f"functional_call: {name} has shape {before.shape}, got {value.shape}")
        for owner, key in places.values():
            if getattr(owner, key) is before:
                found[id(owner), key] = (owner, key), value
    return list(found.values())


def _places(module: Module) -> dict[str, tuple[Module, str]]:
    """Owner and attribute of each parameter and buffer, those that are shared too, by its full name."""
    found = {}
    for path, owner in module.named_modules():
        for name, kind in owner._kinds.items():
            if kind in ("parameter", "buffer", "transient") and getattr(owner, name) is not None:
                found[f"{path}.{name}" if path else name] = owner, name
    return found


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(parameters, buffers) of models of one kind, each stacked along a first axis, for a `vmap` over the models.

    >>> import hybridml as hm
    >>> models = [hm.nn.Linear(2, 1) for _ in range(3)]
    >>> state = hm.func.stack_module_state(models)
    >>> call = lambda state, x: hm.func.functional_call(models[0], state, x)
    >>> hm.vmap(call, in_axes=(0, None))(state, hm.ones(2)).shape
    (3, 1)
    """
    if not models:
        raise ArgumentError("stack_module_state: needs at least one model")
    kinds = sorted({type(m).__name__ for m in models})
    if len(kinds) > 1:
        raise ArgumentError(f"stack_module_state: models are of one class, got {', '.join(kinds)}")
    parameters = [dict(m.named_parameters()) for m in models]
    buffers = [dict(m.named_buffers()) for m in models]
    leaves = {
        name: stack([p[name].detach() for p in parameters]).requires_grad_(parameters[0][name].requires_grad)
        for name in parameters[0]
    }
    return leaves, {name: stack([b[name] for b in buffers]) for name in buffers[0]}

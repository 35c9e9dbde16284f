"""Weights that are functions of other tensors: modules that are put on a parameter or a buffer of a module."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from hybridml_compiler.errors import ArgumentError, TraceError

from ...core.context import current_interpreter, grad_is_off, no_grad
from ...core.tensor import Tensor
from ...tracing.capture.tracer import Tracer, top_tracer
from ..containers import ModuleDict, ModuleList
from ..lazy.uninitialized import become
from ..module import Module
from ..parameter import Parameter, is_parameter
from .computed import Rule, outside_of_traces, rule_of, set_rule, tensor_of

M = TypeVar("M", bound=Module)


class _Cache(NamedTuple):
    """Values by module, name, grad mode and originals, and the interpreter that made them: no other may see them."""

    interpreter: Any
    values: dict[tuple[Any, ...], tuple[Tensor, list[Tensor]]]


_cache: ContextVar[_Cache | None] = ContextVar("hybridml_parametrizations", default=None)


@contextmanager
def cached() -> Iterator[None]:
    """A block in which each parametrized tensor is computed once, where it is first read.

    For weights that a forward pass reads more than once, as the cell of a recurrent network does. Do not change the
    originals in it. A traced function has blocks of its own: one around its call does not reach into it.

    >>> layer = register_parametrization(hm.nn.Linear(2, 2), "weight", hm.nn.Softplus())
    >>> with cached():
    ...     layer.weight is layer.weight
    True
    """
    outer, interpreter = _cache.get(), current_interpreter()
    same = outer is not None and outer.interpreter is interpreter
    token = _cache.set(outer if same else _Cache(interpreter, {}))
    try:
        yield
    finally:
        _cache.reset(token)


class Parametrization(Rule):
    """Rule of a parametrized tensor: the result of its list of parametrizations."""

    def read(self, module: Module, name: str) -> Tensor:
        compute = module.parametrizations[name]
        cache = _cache.get()
        if cache is None or cache.interpreter is not current_interpreter():
            found: Tensor = compute()
            return found
        originals = [getattr(compute, part) for part in compute.originals()]
        key = (id(module), name, grad_is_off(), *map(id, originals))
        if key in cache.values:
            return cache.values[key][0]
        tracer = top_tracer()
        if tracer is not None and tracer.frames:
            return _in_region(tracer, compute)
        cache.values[key] = compute(), originals
        return cache.values[key][0]

    def write(self, module: Module, name: str, value: Any) -> None:
        module.parametrizations[name].right_inverse(value)


def _in_region(tracer: Tracer, compute: Module) -> Tensor:
    """A value in a loop or branch of a program, which nothing outside may use; it is the same in each step."""
    written = tracer.watch([*compute.buffers()])
    found: Tensor = compute()
    if written():
        raise TraceError("cached: a parametrization that changes its buffers is first read in a loop; read it before")
    return found


class ParametrizationList(ModuleList):
    """Parametrizations of one tensor, the first of which takes the tensors that are trained.

    A call gives the tensor, of its shape (...,). Those are `original`, or `original0`, `original1`, ... where the
    `right_inverse` of the first gives several. Made by `register_parametrization`. Raises ArgumentError as that does.

    >>> layer = register_parametrization(hm.nn.Linear(2, 2), "weight", hm.nn.Softplus())
    >>> layer.parametrizations.weight.original.shape, len(layer.parametrizations.weight)
    ((2, 2), 1)
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not len(modules):
            raise ArgumentError("ParametrizationList: takes one module or more, got none")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        with no_grad():
            found: Any = original
            for module in reversed(modules):
                found = _inverted(module, found)
        self.is_tensor = isinstance(found, Tensor)
        values = [found] if self.is_tensor else _tensors(found)
        self.ntensors = len(values)
        if self.is_tensor:
            _same("right_inverse", "dtype of a tensor", dtype, found.dtype)
            _same("right_inverse", "device of a tensor", original.device, found.device)
        if not unsafe:  # before the original gets another value
            with no_grad():
                _check(self._result(*values), shape, dtype)
        add = self.register_parameter if is_parameter(original) else self.register_buffer
        if self.is_tensor:
            _put(original, found)
            add("original", original)
        else:
            for name, value in zip(self.originals(), found, strict=True):
                part = value.detach().clone()  # it may be the original, which another module may have, too
                add(name, Parameter(part, original.requires_grad) if is_parameter(original) else part)

    def originals(self) -> list[str]:
        """The names of the tensors that are trained."""
        return ["original"] if self.is_tensor else [f"original{k}" for k in range(self.ntensors)]

    def forward(self) -> Tensor:
        return self._result(*(getattr(self, name) for name in self.originals()))

    def _result(self, *values: Tensor) -> Tensor:
        first, *others = self.children()
        found: Tensor = first(*values)
        for module in others:
            found = module(found)
        return found

    def right_inverse(self, value: Tensor) -> None:
        """Writes the tensors that `value` is computed from. RuntimeError if a parametrization has no inverse."""
        found: Any = value
        with no_grad():
            for module in [*self.children()][::-1]:
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse")
                found = module.right_inverse(found)
        values = [found] if self.is_tensor else found
        if len(_tensors(values)) != self.ntensors:
            raise ArgumentError(f"right_inverse: gave {len(values)} tensors, there are {self.ntensors} originals")
        targets = [getattr(self, name) for name in self.originals()]
        for name, target, made in zip(self.originals(), targets, values, strict=True):
            _same("right_inverse", f"dtype of {name}", target.dtype, made.dtype)
        for target, made in zip(targets, values, strict=True):
            _put(target, made)

    def _older_keys(self, prefix: str) -> dict[str, str]:
        stem, _, name = prefix[:-1].rpartition("parametrizations.")
        suffixes = getattr(next(self.children()), "older_suffixes", ())
        return {f"{stem}{name}{old}": prefix + new for old, new in zip(suffixes, self.originals(), strict=False)}


def _inverted(module: Module, value: Any) -> Any:
    """The original that a parametrization makes a value of; the value itself where it has no inverse."""
    if not hasattr(module, "right_inverse"):
        return value
    try:
        return module.right_inverse(value)
    except NotImplementedError:
        return value


def _tensors(values: Any) -> Sequence[Tensor]:
    if not isinstance(values, Sequence) or not all(isinstance(value, Tensor) for value in values):
        kinds = [type(v).__name__ for v in values] if isinstance(values, Sequence) else type(values).__name__
        raise ArgumentError(f"right_inverse: must return a tensor or a sequence of tensors, got {kinds}")
    return values


def _same(what: str, fact: str, was: Any, now: Any, unless: str = "") -> None:
    if was != now:
        raise ArgumentError(f"{what}: the {fact} may not change{unless}: it is {was}, got {now}")


def _check(value: Any, shape: tuple[int, ...], dtype: Any) -> None:
    if not isinstance(value, Tensor):
        raise ArgumentError(
            f"register_parametrization: a parametrization must return a tensor, got {type(value).__name__}"
        )
    for fact, was, now in (("dtype", dtype, value.dtype), ("shape", shape, value.shape)):
        _same("register_parametrization", f"{fact} of the tensor", was, now, " without unsafe=True")


def _put(target: Tensor, value: Tensor) -> None:
    """Gives a tensor the value of another one, in place; it gets its shape and dtype, too."""
    if target is value:
        return
    if (target.shape, target.dtype) != (value.shape, value.dtype):
        return become(target, value.detach().clone())
    with no_grad():
        target.copy_(value)


def register_parametrization(module: M, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> M:
    """Makes a parameter or buffer of a module the result of a module that is called with a tensor in its place.

    ``module.weight`` is ``parametrization(original)``, computed where it is read; the tensor that is trained is
    ``module.parametrizations.weight.original``, the same object as before, so optimizers keep it. A further one is put
    on those before. A method ``right_inverse(weight)`` of it gives the original to begin with, and after an assignment
    to ``module.weight``; where it gives several tensors, they are ``original0``, ``original1``, ..., new parameters. It
    may not change shape or dtype without `unsafe`. The module is changed and given back; its class stays.
    Raises ArgumentError for a name that is no parameter or buffer and for results that do not fit.

    >>> class Symmetric(hm.nn.Module):
    ...     def forward(self, X):
    ...         return X.triu() + X.triu(1).T
    >>> layer = register_parametrization(hm.nn.Linear(3, 3), "weight", Symmetric())
    >>> bool((layer.weight == layer.weight.T).all()), list(layer.state_dict())
    (True, ['bias', 'parametrizations.weight.original'])
    """
    if not isinstance(parametrization, Module):
        got = type(parametrization).__name__
        raise ArgumentError(f"register_parametrization: a parametrization is a Module, got {got}")
    outside_of_traces("register_parametrization")
    if is_parametrized(module, tensor_name):
        parametrization.train(module.training)
        if not unsafe:
            with no_grad():
                _check_on_top(parametrization, getattr(module, tensor_name))
        module.parametrizations[tensor_name].append(parametrization)
        module.parametrizations[tensor_name].unsafe |= unsafe
        return module
    original = tensor_of(module, tensor_name, "register_parametrization", ("parameter", "buffer", "transient"))
    parametrization.train(module.training)
    made = ParametrizationList([parametrization], original, unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = made
    set_rule(module, tensor_name, Parametrization())
    return module


def _check_on_top(parametrization: Module, value: Tensor) -> None:
    made = parametrization(value)
    _check(made, value.shape, value.dtype)
    _check(_inverted(parametrization, made), value.shape, value.dtype)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has a parametrization, or has one on the tensor of this name.

    >>> is_parametrized(register_parametrization(hm.nn.Linear(2, 2), "weight", hm.nn.Softplus()), "bias")
    False
    """
    found = getattr(module, "parametrizations", None)
    return isinstance(found, ModuleDict) and (tensor_name in found if tensor_name is not None else len(found) > 0)


def remove_parametrizations(module: M, tensor_name: str, leave_parametrized: bool = True) -> M:
    """Makes a parametrized tensor an ordinary parameter or buffer again; returns the module.

    Its value is the one that is computed, with `leave_parametrized=False` the original. One original stays the same
    object, which optimizers keep; several become a new parameter, and have no original value (ArgumentError).
    ArgumentError too for a tensor that is not parametrized.

    >>> layer = register_parametrization(hm.nn.Linear(2, 2), "weight", hm.nn.Softplus())
    >>> list(remove_parametrizations(layer, "weight").state_dict())
    ['bias', 'weight']
    """
    outside_of_traces("remove_parametrizations")
    if not is_parametrized(module, tensor_name):
        raise ArgumentError(f"remove_parametrizations: {type(module).__name__} has none on {tensor_name!r}")
    made = module.parametrizations[tensor_name]
    tensors = [getattr(made, name) for name in made.originals()]
    if not made.is_tensor and not leave_parametrized:
        raise ArgumentError(
            f"remove_parametrizations: {tensor_name} is computed from {made.ntensors} tensors, so there is no original "
            "to leave; call with leave_parametrized=True"
        )
    original = tensors[0]
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name)
        if made.is_tensor:
            _put(original, value)
        else:
            wanted = any(tensor.requires_grad for tensor in tensors)
            original = Parameter(value, wanted) if is_parameter(original) else value.detach().clone()
    set_rule(module, tensor_name, None)
    del module.parametrizations[tensor_name]
    if not is_parametrized(module):
        del module.parametrizations
    add = module.register_parameter if is_parameter(original) else module.register_buffer
    add(tensor_name, original)
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class of a module, which parametrizations do not change here.

    >>> layer = register_parametrization(hm.nn.Linear(2, 2), "weight", hm.nn.Softplus())
    >>> type_before_parametrizations(layer) is hm.nn.Linear
    True
    """
    return type(module)


def transfer_parametrizations_and_params(from_module: Module, to_module: M, tensor_name: str | None = None) -> M:
    """Shares parametrizations, and the tensors that they are on, with another module, which is given back.

    Those of one name, or all; what the other module has of that name is dropped. Raises ArgumentError for a name that
    has none, and where something else computes it in the other module.

    >>> layer = register_parametrization(hm.nn.Linear(2, 2), "weight", hm.nn.Softplus())
    >>> other = transfer_parametrizations_and_params(layer, hm.nn.Linear(2, 2))
    >>> other.parametrizations.weight.original is layer.parametrizations.weight.original
    True
    """
    outside_of_traces("transfer_parametrizations_and_params")
    if not is_parametrized(from_module):
        return to_module
    names = [*from_module.parametrizations] if tensor_name is None else [tensor_name]
    what = "transfer_parametrizations_and_params"
    for name in names:
        if not is_parametrized(from_module, name):
            raise ArgumentError(f"{what}: {type(from_module).__name__} has none on {name!r}")
        rule = rule_of(to_module, name)
        if rule is not None and not isinstance(rule, Parametrization):
            raise ArgumentError(f"{what}: remove the {rule.kind} of {name!r} before")
    for name in names:
        if name in vars(to_module):
            delattr(to_module, name)
        if not is_parametrized(to_module):
            to_module.parametrizations = ModuleDict()
        to_module.parametrizations[name] = copy.copy(from_module.parametrizations[name])
        set_rule(to_module, name, Parametrization())
    return to_module


__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
    "transfer_parametrizations_and_params", "type_before_parametrizations",
]  # fmt: skip

"""Module: a tree of parameters, buffers and further modules, found by attribute assignment as in PyTorch.

Attributes are ordinary entries of the instance's ``__dict__``; ``_kinds`` remembers which of them are parameters,
buffers and modules, and in which order they came. So reading ``self.weight`` costs what reading any attribute costs.
``_kinds``, ``_hooks`` and ``_computed``, the rules of attributes that are computed where they are read (see
utils/computed.py), are replaced, never changed: a traced function watches the entries that it has seen, and would not
notice a new key in a dict.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, ParamSpec, Protocol, Self, TypeVar

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError

from .. import arrays as xp
from ..core.autodiff.sparse import SparseGradient
from ..core.context import no_grad
from ..core.device_tensor import names_device
from ..core.shared.memory import share
from ..core.tensor import Device, Tensor
from ..core.tracebacks import shorten
from ..tracing.python_state.mutation_epoch import attributes_changed
from .lazy.uninitialized import is_uninitialized
from .memory import convert, renew
from .parameter import commit, is_parameter

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class _WithForward(Protocol[P, R]):
    """Module, as far as a call looks at it."""

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


Kind = Literal["parameter", "buffer", "transient", "module"]  # a transient buffer stays out of the state dict


class IncompatibleKeys(NamedTuple):
    """Names that `load_state_dict(strict=False)` could not match: of the module alone, of the state dict alone.

    >>> hm.nn.Linear(1, 1, bias=False).load_state_dict({}, strict=False).missing_keys
    ['weight']
    """

    missing_keys: list[str]
    unexpected_keys: list[str]


class Module:
    """Base class of layers and models: a tree of parameters, buffers and further modules.

    Subclasses assign tensors and modules in ``__init__``, after ``super().__init__()`` (AttributeError before it), and
    write ``forward`` (NotImplementedError without it). A tensor is a parameter if it was made by `Parameter`, or is a
    leaf that requires a gradient, when it is assigned.

    >>> class Scale(Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = hm.nn.Parameter(hm.ones(()))
    ...
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> [name for name, _ in Scale().named_parameters()]
    ['factor']
    """

    training: bool
    _kinds: dict[str, Kind]
    _hooks: dict[str, dict[RemovableHook, Callable[..., Any]]] | None
    _computed: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        """An attribute that a rule computes, or one of a traced `forward`: `hm.trace(module).cache_info()`.

        Raises AttributeError for any other.
        """
        own = vars(self)
        if name in own.get("_computed", ()):
            return own["_computed"][name].read(self, name)
        traced = own.get("forward")
        if traced is not None and name[:1] != "_" and hasattr(type(traced), name):
            return getattr(traced, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __init__(self) -> None:
        object.__setattr__(self, "training", True)
        object.__setattr__(self, "_kinds", {})
        object.__setattr__(self, "_hooks", None)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward method: define forward(self, ...)")

    if TYPE_CHECKING:  # a call takes and returns what `forward` does

        def __call__(self: _WithForward[P, R], *args: P.args, **kwargs: P.kwargs) -> R: ...

    else:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            hooks = self._hooks
            if hooks is None:
                try:
                    return self.forward(*args, **kwargs)
                except Exception as error:
                    shorten(error)
                    raise
            for hook in hooks["before"].values():
                changed = hook(self, args)
                if changed is not None:
                    args = changed if isinstance(changed, tuple) else (changed,)
            result = self.forward(*args, **kwargs)
            for hook in hooks["after"].values():
                changed = hook(self, args, result)
                if changed is not None:
                    result = changed
            return result

    # --- attributes -------------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get(name, self) is value:  # `train()` every step: nothing changed, nothing to check again
            return
        if name in self.__dict__.get("_computed", ()):
            return self._computed[name].write(self, name, value)
        if issubclass(type(value), Tensor | Module) or name in self.__dict__.get("_kinds", ()):
            self._register(name, value)
        object.__setattr__(self, name, value)
        attributes_changed()

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._set_kind(name, None)
        attributes_changed()

    def _register(self, name: str, value: Any) -> None:
        """Gives an assigned value its place; a registered name keeps its place for a value of its own kind, or None."""
        kinds = self.__dict__.get("_kinds")
        if kinds is None:
            raise AttributeError(f"{type(self).__name__}: call super().__init__() before assigning {name!r}")
        known = kinds.get(name)
        if isinstance(value, Module):
            if known != "module":
                self._set_kind(name, "module")
        elif isinstance(value, Tensor):
            if is_parameter(value):
                if known != "parameter":
                    self._set_kind(name, "parameter")
            elif known == "parameter":
                raise TypeError(
                    f"{type(self).__name__}.{name} is a parameter and cannot become a plain tensor: assign "
                    f"nn.Parameter(value), write into it with `.copy_(value)` under no_grad, or `del` it first"
                )
            elif known == "module":
                self._set_kind(name, None)
        elif value is not None and known is not None:
            raise TypeError(
                f"{type(self).__name__}.{name} is a {known}: assign a value of that kind or None, or `del` it first; "
                f"got {type(value).__name__}"
            )

    def register_parameter(self, name: str, param: Tensor | None) -> None:
        """Adds a parameter, or reserves its name with None."""
        self._free_name(name)
        self._set_kind(name, "parameter")
        object.__setattr__(self, name, param)
        attributes_changed()

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a tensor that is state but is not trained; `persistent=False` keeps it out of the state dict."""
        self._free_name(name)
        self._set_kind(name, "buffer" if persistent else "transient")
        object.__setattr__(self, name, tensor)
        attributes_changed()

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a child under any name without a dot."""
        self._free_name(name)
        self._set_kind(name, "module")
        object.__setattr__(self, name, module)
        attributes_changed()

    register_module = add_module

    def _set_kind(self, name: str, kind: Kind | None) -> None:
        """Registers a name at the end of the order, or with None forgets it."""
        kinds = {key: value for key, value in self._kinds.items() if key != name}
        object.__setattr__(self, "_kinds", kinds if kind is None else {**kinds, name: kind})

    def _free_name(self, name: str) -> None:
        if "_kinds" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__}: call super().__init__() before adding {name!r}")
        if not name or "." in name:
            raise KeyError(f"name {name!r} must be non-empty and without a dot: dots join names in the state dict")
        if name not in self._kinds and hasattr(self, name):
            raise KeyError(f"{type(self).__name__} already has an attribute {name!r}")

    # --- the tree ---------------------------------------------------------------------------------------------------

    def named_children(self) -> Iterator[tuple[str, Module]]:
        yield from self._own("module")

    def children(self) -> Iterator[Module]:
        return (child for _, child in self.named_children())

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Yields this module (under `prefix`) and all below, each once (`remove_duplicate`), as registered."""
        memo = set() if memo is None else memo
        if self not in memo:
            if remove_duplicate:
                memo.add(self)
            yield prefix, self
            for name, child in self.named_children():
                yield from child.named_modules(memo, _join(prefix, name), remove_duplicate)

    def modules(self) -> Iterator[Module]:
        return (module for _, module in self.named_modules())

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Names and parameters of this module and, with `recurse`, all below; shared ones once (`remove_duplicate`)."""
        return self._named_tensors(("parameter",), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        return self._named_tensors(("buffer", "transient"), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module under a dotted name (the empty name is this module); AttributeError if there is none."""
        module: Module = self
        for name in target.split(".") if target else ():
            if module._kinds.get(name) != "module":
                raise AttributeError(f"{type(module).__name__} has no child {name!r} (asked for {target!r})")
            module = getattr(module, name)
        return module

    def get_parameter(self, target: str) -> Tensor:
        """The parameter under a dotted name; AttributeError if there is none."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if module._kinds.get(name) != "parameter":
            raise AttributeError(f"{type(module).__name__} has no parameter {name!r} (asked for {target!r})")
        return getattr(module, name)

    def apply(self, fn: Callable[[Module], None]) -> Self:
        """Calls `fn` on every module below, then on this one."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def _own(self, *kinds: Kind) -> Iterator[tuple[str, Any]]:
        for name, kind in list(self._kinds.items()):
            value = self.__dict__[name]
            if kind in kinds and value is not None:
                yield name, value

    def _named_tensors(
        self, kinds: tuple[Kind, ...], prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Tensor]]:
        seen: set[int] = set()
        below = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for path, module in below if recurse else [(prefix, self)]:
            for name, tensor in module._own(*kinds):
                if not (remove_duplicate and id(tensor) in seen):
                    seen.add(id(tensor))
                    yield _join(path, name), tensor

    # --- modes ------------------------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Sets training behaviour (dropout, batch statistics) here and below; returns this module."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Sets evaluation behaviour here and below; returns this module."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Makes every parameter trainable, or with False freezes it; returns this module."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        attributes_changed()
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops every gradient, or with `set_to_none=False` fills it with zeros."""
        drop_gradients(self.parameters(), set_to_none)

    def to(self, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False) -> Self:
        """``to(dtype)``, ``to(device)``, ``to(device, dtype)``: convert floating parameters and buffers, move all.

        They stay the same tensors: optimizers keep them, and a weight that two modules share stays shared. A dtype that
        is not floating is a DTypeError, a device that is not there an ArgumentError. `non_blocking` is PyTorch's
        and says nothing here.

        >>> hm.nn.Linear(2, 2).to(hm.bfloat16).weight.dtype.name
        'bfloat16'
        """
        for given in args:
            if names_device(given):
                device = given
            else:
                dtype = given
        place = None if device is None else Device(device).type
        wanted = None if dtype is None else dtypes.canonical(dtype)
        if wanted is not None and not dtypes.is_float(wanted):
            raise DTypeError(f"{type(self).__name__}: dtype must be a floating one, got {wanted.name}")
        for module in self.modules():
            for _, tensor in module._own("parameter", "buffer", "transient"):
                convert(tensor, wanted if dtypes.is_float(tensor.dtype) else None, place)
        attributes_changed()
        return self

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Gives parameters and buffers new memory on a device, whose values may be anything: after `device="meta"`.

        They stay the same tensors. `load_state_dict` or initializers give them values. With `recurse=False` those of
        this module alone. ArgumentError for a device that is not there.

        >>> with hm.device("meta"):
        ...     layer = hm.nn.Linear(2, 2)
        >>> layer.to_empty(device="cpu").weight.device
        device('cpu')
        """
        place = Device(device).type
        for module in self.modules() if recurse else [self]:
            for _, tensor in module._own("parameter", "buffer", "transient"):
                renew(tensor, place)
        attributes_changed()
        return self

    def _draw_in(self, dtype: Any) -> None:
        """The end of a layer's constructor: its values, drawn in the default dtype, in the one that was asked for.
        So a seed gives the same layer in every dtype, up to rounding."""
        self.to(dtype=dtype)

    def bfloat16(self) -> Self:
        """Casts parameters and buffers, as ``to(hm.bfloat16)``."""
        return self.to(xp.bfloat16)

    def float(self) -> Self:
        """Casts parameters and buffers, as ``to(hm.float32)``."""
        return self.to(xp.float32)

    def double(self) -> Self:
        """Casts parameters and buffers, as ``to(hm.float64)``."""
        return self.to(xp.float64)

    def cuda(self, device: Any = "cuda") -> Self:
        """Moves parameters and buffers to a GPU, as ``to("cuda")``. DeviceError where there is none."""
        return self.to(device=f"cuda:{device}" if isinstance(device, int) else device)

    def cpu(self) -> Self:
        """Moves parameters and buffers to the CPU, as ``to("cpu")``."""
        return self.to(device="cpu")

    def share_memory(self) -> Self:
        """Moves parameters and buffers to memory that other processes see: ``share_memory_`` of each tensor; returns
        this module.

        A process that is given the module reads and writes them where they are. Raises DeviceError for tensors that
        are not on the CPU, ArgumentError for tensors of which there are views, and inside of a traced function.

        >>> hm.nn.Linear(2, 2).share_memory().weight.is_shared()
        True
        """
        share("share_memory", [t for m in self.modules() for _, t in m._own("parameter", "buffer", "transient")])
        attributes_changed()
        return self

    # --- state ------------------------------------------------------------------------------------------------------

    def state_dict(self, *, prefix: str = "") -> OrderedDict[str, Tensor]:
        """Dotted name -> tensor for parameters and persistent buffers: the tensors themselves, detached, not copies."""
        found: OrderedDict[str, Tensor] = OrderedDict()
        for name, tensor in [*self._own("parameter"), *self._own("buffer")]:
            found[prefix + name] = tensor.detach()
        for name, child in self.named_children():
            found.update(child.state_dict(prefix=f"{prefix}{name}."))
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Copies values into the parameters and buffers, in place and all at once; nothing unless everything fits.

        A tensor of device "meta" comes to be where its value is; one of a lazy layer gets the shape of its value.

        Raises ArgumentError for missing or unexpected keys (unless `strict=False`), ShapeError or DTypeError listing
        each key whose tensor has another shape or kind of dtype.
        """
        own = self._state_targets("")
        if older := self._older_keys(""):
            state_dict = {k if older.get(k, k) in state_dict else older[k]: v for k, v in state_dict.items()}
        missing = [name for name in own if name not in state_dict]
        unexpected = [name for name in state_dict if name not in own]
        if strict and (missing or unexpected):
            raise ArgumentError(
                f"load_state_dict: the keys do not fit {type(self).__name__}."
                + _listed("missing", missing)
                + _listed("unexpected", unexpected)
                + "\n  strict=False loads the keys that do fit"
            )
        found = {name: xp.asarray(state_dict[name]) for name in own if name in state_dict}
        found = {k: v for k, v in found.items() if not is_uninitialized(v) or not is_uninitialized(own[k])}
        shaped = {k: v for k, v in found.items() if not is_uninitialized(own[k])}
        shapes = [f"{k}: has {own[k].shape}, got {v.shape}" for k, v in shaped.items() if own[k].shape != v.shape]
        if shapes:
            raise ShapeError("load_state_dict: shapes do not fit." + _listed("shapes", shapes))
        kinds = [
            f"{k}: has {own[k].dtype}, got {v.dtype}"
            for k, v in found.items()
            if own[k].dtype != v.dtype and not {own[k].dtype.kind, v.dtype.kind} <= {"f", "V"}
        ]
        if kinds:
            raise DTypeError("load_state_dict: dtypes do not fit." + _listed("dtypes", kinds))
        for name, value in found.items():
            there = own[name].device.type
            if there == "meta" or name not in shaped:  # the values come with their memory, and their shape
                renew(own[name], value.device.type if there == "meta" else there, value.shape)
        with no_grad():
            moved = {name: value.detach().to(device=own[name].device) for name, value in found.items()}
            commit([(own[name], xp.astype(value, own[name].dtype)) for name, value in moved.items()])
        return IncompatibleKeys(missing, unexpected)

    def _state_targets(self, prefix: str) -> dict[str, Tensor]:
        """Dict as of `state_dict`, but of the module's own tensors, which loading writes into."""
        found = {prefix + name: tensor for name, tensor in [*self._own("parameter"), *self._own("buffer")]}
        for name, child in self.named_children():
            found.update(child._state_targets(f"{prefix}{name}."))
        return found

    def _older_keys(self, prefix: str) -> dict[str, str]:
        """Key of today by one that older state dicts may have in its place."""
        children = self.named_children()
        return {old: key for n, child in children for old, key in child._older_keys(f"{prefix}{n}.").items()}

    # --- hooks and text ---------------------------------------------------------------------------------------------

    def register_forward_pre_hook(self, hook: Callable[[Module, tuple[Any, ...]], Any]) -> RemovableHook:
        """``hook(module, args)`` before `forward`; a result that is not None replaces the arguments."""
        return self._add_hook("before", hook)

    def register_forward_hook(self, hook: Callable[[Module, tuple[Any, ...], Any], Any]) -> RemovableHook:
        """``hook(module, args, result)`` after `forward`; a result that is not None replaces the result."""
        return self._add_hook("after", hook)

    def _add_hook(self, when: str, hook: Callable[..., Any]) -> RemovableHook:
        handle = RemovableHook(self, when)
        hooks = self._hooks or {"before": {}, "after": {}}
        object.__setattr__(self, "_hooks", {**hooks, when: {**hooks[when], handle: hook}})
        attributes_changed()
        return handle

    def extra_repr(self) -> str:
        """Text between the brackets of the `repr`; subclasses override it."""
        return ""

    def __repr__(self) -> str:
        children = [f"({name}): {child!r}".replace("\n", "\n  ") for name, child in self.named_children()]
        extra = self.extra_repr()
        if not children:
            return f"{type(self).__name__}({extra})"
        return (
            f"{type(self).__name__}(" + "".join(f"\n  {line}" for line in [*filter(None, [extra]), *children]) + "\n)"
        )


class RemovableHook:
    """Handle of a hook: `remove()` takes it off again."""

    def __init__(self, module: Module, when: str) -> None:
        self._module, self._when = module, when

    def remove(self) -> None:
        hooks = self._module._hooks or {"before": {}, "after": {}}
        left = {**hooks, self._when: {key: hook for key, hook in hooks[self._when].items() if key is not self}}
        object.__setattr__(self._module, "_hooks", left if any(left.values()) else None)
        attributes_changed()


def drop_gradients(parameters: Iterable[Tensor], set_to_none: bool) -> None:
    """Forgets gradients, or sets those that there are to zero.

    Forgetting does not look whether there is one: a traced step then does not depend on what was there before.
    """
    for parameter in parameters:
        if set_to_none:
            parameter.grad = None
            continue
        grad: Any = parameter.grad
        if type(grad) is SparseGradient:
            grad.zero_()
        elif grad is not None:
            parameter.grad = xp.zeros_like(grad)


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _listed(what: str, lines: Iterable[str]) -> str:
    found = list(lines)
    return f"\n  {what}: " + "\n    ".join(["", *found]).lstrip("\n") if found else ""


__all__ = ["IncompatibleKeys", "Module"]

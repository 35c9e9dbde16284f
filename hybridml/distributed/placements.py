"""Parameters of which each process of a group holds a part: which part, and whole tensors and state dicts of them.

A module has the placements of its own parameters in ``_placements``, by their names, so that copies have them too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakValueDictionary

from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.record import record

from ..arrays.creation import asarray, zeros
from ..arrays.shaping.manipulation import concat
from ..core.context import no_grad
from ..core.tensor import Tensor
from ..nn.lazy.uninitialized import become
from ..nn.module import IncompatibleKeys, Module
from ..nn.utils.gradients import clip_grads_with_norm_, get_total_norm
from .functions import all_gather, all_reduce
from .groups import Group
from .placing.homes import bring


class Layout(Protocol):
    """A way to cut a tensor into parts of equal shapes, one for each process of a group."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole tensor."""

    def part(self, whole: Tensor, rank: int) -> Tensor:
        """The part of a process."""

    def joined(self, parts: Tensor) -> Tensor:
        """The whole tensor, of the parts of all processes along a first axis."""


@record
class Flat:
    """Equal parts of the elements in row-major order, with zeros behind the last."""

    shape: tuple[int, ...]
    numel: int
    size: int  # processes

    @property
    def length(self) -> int:
        """The number of elements of a part."""
        return -(-self.numel // self.size)

    def part(self, whole: Tensor, rank: int) -> Tensor:
        flat = whole.reshape(-1)[rank * self.length : (rank + 1) * self.length]
        missing = self.length - flat.numel()
        return concat([flat, zeros((missing,), dtype=flat.dtype)]) if missing else flat

    def joined(self, parts: Tensor) -> Tensor:
        return parts.reshape(-1)[: self.numel].reshape(self.shape)


@record
class Placement:
    """The layout of a parameter over a group."""

    layout: Layout
    group: Group


def make_part(places: Sequence[tuple[Module, str]], layout: Layout, group: Group) -> None:
    """Makes a parameter, which is in all of these places, this process's part of it; it stays the same object."""
    owner, name = places[0]
    parameter = vars(owner)[name]
    with no_grad():
        become(parameter, layout.part(parameter.detach(), group.rank).clone())
    _parts[id(parameter)] = parameter
    for owner, name in places:
        known: Mapping[str, Placement] = vars(owner).get("_placements", {})
        object.__setattr__(owner, "_placements", {**known, name: Placement(layout, group)})


_parts: WeakValueDictionary[int, Tensor] = WeakValueDictionary()


def is_part(parameter: Tensor) -> bool:
    """Whether `make_part` has made the tensor a part."""
    return _parts.get(id(parameter)) is parameter


def placements(module: Module) -> dict[str, Placement]:
    """Names of the parameters of which the module has parts, and where the parts are."""
    return {
        f"{path}.{name}" if path else name: placement
        for path, owner in module.named_modules(remove_duplicate=False)
        for name, placement in vars(owner).get("_placements", {}).items()
    }


def full_state_dict(module: Module) -> dict[str, Tensor]:
    """The state dict of the module with whole tensors, which a module that is not sharded can load.

    Tensors that one process updates (see `device_of`) have its values, from now on in all. All processes must call it.
    Names are those of `state_dict()`.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def step():
    ...     layer = dist.fully_shard(hm.nn.Linear(3, 2))
    ...     return layer.weight.shape, dist.full_state_dict(layer)["weight"].shape
    >>> dist.run_threads(2, step)
    [((3,), (2, 3)), ((3,), (2, 3))]
    """
    bring(itertools.chain(module.parameters(), module.buffers()))
    found: dict[str, Tensor] = dict(module.state_dict())
    with no_grad():
        for name, (layout, group) in _pairs(module):
            part = found[name]
            found[name] = layout.joined(all_gather(part.reshape((1, *part.shape)), group))
    return found


def clip_grad_norm_(module: Module, max_norm: float, norm_type: float = 2.0) -> Tensor:
    """Scales all gradients of a module in place so that their joint norm, of the parts of all processes, is at most
    `max_norm`; returns the norm before, ().

    `nn.utils.clip_grad_norm_` would see this process's parts alone. All processes must call it.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def step():
    ...     layer = dist.fully_shard(hm.nn.Linear(4, 1, bias=False))
    ...     layer(hm.full((1, 4), 3.0)).sum().backward()
    ...     return round(dist.clip_grad_norm_(layer, 3.0).item(), 4), [round(g, 4) for g in layer.weight.grad.tolist()]
    >>> dist.run_threads(2, step)
    [(6.0, [1.5, 1.5]), (6.0, [1.5, 1.5])]
    """
    if not isinstance(module, Module):
        raise ArgumentError(f"clip_grad_norm_: takes a module, which knows its parts, got {type(module).__name__}")
    found = placements(module)
    gradients: dict[Group | None, list[Tensor]] = {one.group: [] for one in found.values()}  # also where none came
    for name, p in module.named_parameters():
        if p.grad is not None:
            gradients.setdefault(found[name].group if name in found else None, []).append(p.grad)
    with no_grad():
        norms = []
        for group, own in gradients.items():
            norm = get_total_norm(own, norm_type) if own else zeros(())
            if group is not None and norm_type == math.inf:
                norm = all_reduce(norm, "max", group)
            elif group is not None:
                norm = all_reduce(norm**norm_type, "sum", group) ** (1 / norm_type)
            norms.append(norm)
        total = get_total_norm(norms, norm_type)
    clip_grads_with_norm_(list(module.parameters()), max_norm, total)
    return total


def load_full_state_dict(module: Module, state_dict: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
    """Loads a state dict of whole tensors into a module of which each process has parts.

    Raises ShapeError for whole tensors of another shape, and what ``load_state_dict`` raises.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> whole = hm.nn.Linear(3, 2)
    >>> def step():
    ...     layer = dist.fully_shard(hm.nn.Linear(3, 2))
    ...     dist.load_full_state_dict(layer, whole.state_dict())
    ...     return bool((dist.full_state_dict(layer)["weight"] == whole.weight).all())
    >>> dist.run_threads(2, step)
    [True, True]
    """
    found = dict(state_dict)
    for name, (layout, group) in _pairs(module):
        if name in found:
            whole = asarray(found[name])
            if whole.shape != layout.shape:
                raise ShapeError(f"load_full_state_dict: {name} has shape {layout.shape}, got {whole.shape}")
            found[name] = layout.part(whole, group.rank)
    return module.load_state_dict(found, strict)


def _pairs(module: Module) -> Sequence[tuple[str, tuple[Layout, Group]]]:
    return [(name, (one.layout, one.group)) for name, one in placements(module).items()]

"""Checkpoints of parts: which tensors of a state are parts, and the parts that other processes have of the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.record import fields

from ..arrays.creation import asarray
from ..arrays.shaping.manipulation import stack
from ..core.tensor import Tensor
from ..nn.module import Module
from .functions import all_gather
from .groups import Group
from .placements import Flat, Layout, Placement, placements
from .tensor_parallel import Axis

Path = tuple[Any, ...]  # keys from the outermost dict of a state inwards
_LAYOUTS: dict[str, Any] = {one.__name__: one for one in (Axis, Flat)}
_HERE = "__parts__"  # the key that stands where parts are: a layout, its fields, and the ranks that have saved them


def placed(objects: Mapping[str, Any]) -> dict[Path, Placement]:
    """Paths to the tensors, in the state dicts of objects, of which each process has a part.

    Raises ArgumentError for the state of an optimizer that is neither a part of its parameter's shape nor a number.
    """
    found: dict[Path, Placement] = {}
    known: dict[int, Placement] = {}
    for name, value in objects.items():
        if isinstance(value, Module):
            found |= {(name, key): placement for key, placement in placements(value).items()}
            for owner in value.modules():
                known |= {id(vars(owner)[key]): one for key, one in vars(owner).get("_placements", {}).items()}
    for name, value in objects.items():
        if hasattr(value, "param_groups"):
            found |= {(name, *path): placement for path, placement in _of_optimizer(value, known)}
    return found


def _of_optimizer(optimizer: Any, known: Mapping[int, Placement]) -> Iterator[tuple[Path, Placement]]:
    params = [p for group in optimizer.param_groups for p in group["params"]]
    own = getattr(optimizer, "placements", None)
    where = [known.get(id(p)) for p in params] if own is None else own()
    state = optimizer.state_dict()["state"] if any(where) else {}
    for k, (p, placement) in enumerate(zip(params, where, strict=True)):
        for key, value in state.get(k, {}).items() if placement is not None else ():
            if isinstance(value, Tensor) and value.ndim:
                if value.shape != p.shape:
                    raise ArgumentError(
                        f"CheckpointManager: the state {key!r} of {type(optimizer).__name__} has shape {value.shape}, "
                        f"and the part of its parameter {p.shape}: it cannot be given to other processes"
                    )
                yield ("state", k, key), placement


def members(places: Mapping[Path, Placement], group: Group) -> dict[Group, list[int]]:
    """The ranks of this group's processes in the groups that have parts. All processes must call it."""
    groups = dict.fromkeys(placement.group for placement in places.values())
    return {part: all_gather(asarray([group.rank]), part).tolist() for part in groups}


def without_parts(
    tree: Any, places: Mapping[Path, Placement], ranks: Mapping[Group, Sequence[int]], path: Path = ()
) -> tuple[Any, dict[str, Tensor]]:
    """The tree with what is known of parts in their places, and the parts by their paths."""
    if path in places:
        layout = places[path].layout
        told = [type(layout).__name__, {name: getattr(layout, name) for name in fields(type(layout))}]
        return {_HERE: [*told, list(ranks[places[path].group])]}, {_text(path): tree}
    if not isinstance(tree, Mapping):
        return tree, {}
    made: dict[Any, Any] = {}
    parts: dict[str, Tensor] = {}
    for key, value in tree.items():
        made[key], more = without_parts(value, places, ranks, (*path, key))
        parts |= more
    return made, parts


def with_parts(
    tree: Any, places: Mapping[Path, Placement], saved_by: Callable[[int], Mapping[str, Tensor]], path: Path = ()
) -> Any:
    """The tree with this process's parts, or whole tensors where it has no part. `saved_by`: parts by rank."""
    placement = places.get(path)
    if isinstance(tree, Mapping) and _HERE in tree:
        name, given, ranks = tree[_HERE]
        layout: Layout = _LAYOUTS[name](**given)
        if placement is not None and placement.layout == layout:
            return saved_by(ranks[placement.group.rank])[_text(path)]
        tree = layout.joined(stack([saved_by(rank)[_text(path)] for rank in ranks]))
    elif isinstance(tree, Mapping):
        return {key: with_parts(value, places, saved_by, (*path, key)) for key, value in tree.items()}
    if placement is None:
        return tree
    whole = asarray(tree)
    if whole.shape != placement.layout.shape:
        raise ShapeError(
            f"CheckpointManager.restore: {_text(path)} has shape {placement.layout.shape}, the checkpoint {whole.shape}"
        )
    return placement.layout.part(whole, placement.group.rank)


def _text(path: Path) -> str:
    return "/".join(map(str, path))

"""`parallelize_module`: layers of a module that the processes of a group compute together, by a plan of styles."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from hybridml_compiler.errors import ArgumentError

from ...nn.attention import MultiheadAttention
from ...nn.module import Module
from ...nn.utils.computed import outside_of_traces
from ...nn.utils.replaced import forward_of
from ...random import default_generator
from ..buckets import copy_from
from ..functions import broadcast
from ..groups import Group, default
from ..placements import make_part
from .redistribute import Axis
from .styles import ParallelStyle

M = TypeVar("M", bound=Module)
Plan = ParallelStyle | Mapping[str, ParallelStyle]
Places = list[tuple[Module, str]]  # where one parameter is
Styles = Mapping[str, tuple[Module, ParallelStyle]]  # layers and their styles by the layers' names


class ParallelForward:
    """The forward of a layer that the processes compute together."""

    def __init__(self, module: Module, style: ParallelStyle, group: Group) -> None:
        self.module, self.style, self.group = module, style, group
        self.inner = forward_of(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.style.forward(self.module, self.group, self.inner, *args, **kwargs)


def parallelize_module(module: M, group: Group | None = None, parallelize_plan: Plan | None = None) -> M:
    """Makes the processes of a group compute layers of a module together, and returns the module.

    group: the processes, all of the job by default. They compute the same loss of the same batch.
    parallelize_plan: the style of each layer by its dotted name, in which ``*`` stands for any part between dots; or
    one style, which is the module's own.

    Layers are those that say where their outputs are in `weight` (`output_axis`): `Linear`, `Embedding`, and others
    with a `weight` and a `bias`. The parameters stay the same objects, which are now this process's part: an optimizer
    that is made before or after has the state of the part. All of the module's parameters and buffers become those of
    rank 0, and so does the default generator of random numbers: what all processes have whole is dropped alike. Use
    `full_state_dict` and `load_full_state_dict` for the whole parameters.

    Raises ArgumentError for names that the module does not have, layers that cannot be cut or are parallel already,
    and layers that share a parameter with one that is cut and are not in the plan; ShapeError for parameters that do
    not divide into equal parts.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def step():
    ...     model = hm.models.gpt2(vocab_size=20, width=8, layers=2, heads=2, positions=6)
    ...     dist.parallelize_module(model.transformer, None, {
    ...         "h.*.attn.c_attn": dist.ColwiseParallel(packed=3), "h.*.attn.c_proj": dist.RowwiseParallel(),
    ...         "h.*.mlp.c_fc": dist.ColwiseParallel(), "h.*.mlp.c_proj": dist.RowwiseParallel(),
    ...     })
    ...     return model(hm.ones((1, 4), dtype="int64")).shape
    >>> dist.run_threads(2, step)
    [(1, 4, 20), (1, 4, 20)]
    """
    outside_of_traces("parallelize_module")
    if not isinstance(module, Module):
        raise ArgumentError(f"parallelize_module: module must be a Module, got {type(module).__name__}")
    group = default(group)
    styles = _styled(module, parallelize_plan)
    if group.size == 1:
        return module
    places = _places(module)
    layouts = _layouts(module, styles, group.size, places)
    wholes = [vars(owner)[name] for (owner, name), *more in places.values() if not _is_part([(owner, name)])]
    copy_from(0, [*wholes, *module.buffers()], group)
    default_generator.set_state(broadcast(default_generator.get_state(), 0, group))
    for key, layout in layouts.items():
        make_part(places[key], layout, group)
    for layer, style in styles.values():
        object.__setattr__(layer, "forward", ParallelForward(layer, style, group))
    return module


def _styled(module: Module, plan: Plan | None) -> Styles:
    """The layers that the plan names. Raises ArgumentError for names that there are not."""
    named = dict(module.named_modules())
    found: dict[str, tuple[Module, ParallelStyle]] = {}
    for pattern, style in plan.items() if isinstance(plan, Mapping) else [("", plan)]:
        if not isinstance(style, ParallelStyle):
            raise ArgumentError(
                "parallelize_module: parallelize_plan is a style, such as ColwiseParallel(), or a dict of names and "
                f"styles, got {style!r}"
            )
        names = [name for name in named if _matches(name, pattern)]
        if not names:
            close = get_close_matches(pattern, named, 3) or [name for name in named if name][:8]
            raise ArgumentError(
                f"parallelize_module: {type(module).__name__} has no layer {pattern!r}; it has {', '.join(close)}"
            )
        for name in names:
            if name in found or isinstance(vars(named[name]).get("forward"), ParallelForward):
                raise ArgumentError(f"parallelize_module: {name or 'the module'} has a style already")
            around = named.get(name.rpartition(".")[0]) if name else None
            if isinstance(around, MultiheadAttention):
                raise ArgumentError(
                    f"parallelize_module: {name} is computed by the MultiheadAttention around it, with the weights of "
                    "its own: give that HeadwiseParallel()"
                )
            found[name] = named[name], style
    return found


def _matches(name: str, pattern: str) -> bool:
    parts, patterns = name.split("."), pattern.split(".")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def _places(module: Module) -> dict[int, Places]:
    """The places of each parameter, by its id."""
    found: dict[int, Places] = {}
    for owner in module.modules():
        for name, parameter in owner._own("parameter"):
            found.setdefault(id(parameter), []).append((owner, name))
    return found


def _is_part(places: Places) -> bool:
    owner, name = places[0]
    return name in vars(owner).get("_placements", {})


def _layouts(module: Module, styles: Styles, size: int, places: Mapping[int, Places]) -> dict[int, Axis]:
    """The layouts of the parameters that are cut, by their ids."""
    found: dict[int, Axis] = {}
    for path, (layer, style) in styles.items():
        for name, layout in style.layouts(layer, size).items():
            key = id(layer.get_parameter(name))
            if _is_part(places[key]) or found.setdefault(key, layout) != layout:
                raise ArgumentError(
                    f"parallelize_module: {name} of {path or 'the module'} is cut in another way already; what layers "
                    "share is cut along one axis, such as an embedding's rows and the outputs of a linear layer"
                )
    planned = {part for layer, _ in styles.values() for part in layer.modules()}
    for path, layer in module.named_modules():
        for name, parameter in layer._own("parameter"):
            if id(parameter) in found and layer not in planned and hasattr(type(layer), "output_axis"):
                raise ArgumentError(
                    f"parallelize_module: {name} of {path} is shared with a layer that is cut; give {path} a style too"
                )
    return found

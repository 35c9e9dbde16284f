"""`hybridml.summary`: the layers of a model with the shapes that they return and the parameters that they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hybridml_compiler.errors import ArgumentError

from ..core import pytree
from ..core.context import no_grad
from ..core.tensor import Tensor
from ..display.reports import Report, size
from .snapshot import Snapshot
from .stances import eager

_HEADS = ("layer", "kind", "output", "parameters")


@dataclass(frozen=True)
class LayerLine:
    """One module of a model: its path, class, the shape that it returned first, and the numbers that are its own."""

    name: str
    kind: str
    output: str  # empty where it was not called, or by itself
    parameters: int


@dataclass(frozen=True, repr=False)
class Summary(Report):
    """Report of `hybridml.summary`. Shown as a table, in notebooks as HTML."""

    layers: tuple[LayerLine, ...]
    parameters: int
    trainable: int
    bytes: int  # of parameters and buffers

    TEMPLATE = "summary.html.jinja"

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Rows of the table; the first is the head."""
        lines = [(line.name, line.kind, line.output, f"{line.parameters:,}") for line in self.layers]
        return [_HEADS, *lines]

    @property
    def total(self) -> str:
        """The sums over all layers, as a sentence."""
        return f"{self.parameters:,} parameters, {self.trainable:,} of them trainable; {size(self.bytes)} with buffers"

    def to_text(self) -> str:
        """The table, and the sums below it."""
        wide = [max(len(row[k]) for row in self.rows) for k in range(len(_HEADS))]
        lines = [f"{a:<{wide[0]}}  {b:<{wide[1]}}  {c:<{wide[2]}}  {d:>{wide[3]}}" for a, b, c, d in self.rows]
        return "\n".join([*lines, self.total])


def summary(model: Any, *inputs: Any, **named: Any) -> Summary:
    """Summarizes a model: its layers, the shapes that they return for these inputs, and their parameters.

    The model is called once with the inputs, eagerly and without gradients, and left as it was, running statistics and
    random numbers included; without inputs it is not called, and no shapes are shown. A shared parameter counts once,
    for the first layer that has it. Raises ArgumentError for what is no module, and whatever the model raises.

    >>> import hybridml as hm
    >>> model = hm.nn.Sequential(hm.nn.Linear(4, 8), hm.nn.ReLU(), hm.nn.Linear(8, 2, bias=False))
    >>> hm.summary(model, hm.ones((3, 4)))
    layer         kind        output  parameters
    (the model)   Sequential  (3, 2)           0
    0             Linear      (3, 8)          40
    1             ReLU        (3, 8)           0
    2             Linear      (3, 2)          16
    56 parameters, 56 of them trainable; 224 B with buffers
    """
    if not hasattr(model, "named_modules"):
        raise ArgumentError(f"summary: takes a module, got {type(model).__name__}; for a function there is hm.explain")
    modules = dict(model.named_modules())
    outputs = _outputs(model, list(modules.values()), inputs, named) if inputs or named else {}
    counted: set[int] = set()
    lines = []
    for name, module in modules.items():
        own = [p for p in module.parameters(recurse=False) if id(p) not in counted]
        counted.update(map(id, own))
        count = sum(p.size for p in own)
        lines.append(LayerLine(name or "(the model)", type(module).__name__, outputs.get(id(module), ""), count))
    parameters, buffers = list(model.parameters()), list(model.buffers())
    return Summary(
        layers=tuple(lines),
        parameters=sum(p.size for p in parameters),
        trainable=sum(p.size for p in parameters if p.requires_grad),
        bytes=sum(t.nbytes for t in (*parameters, *buffers)),
    )


def _outputs(model: Any, modules: Sequence[Any], inputs: Any, named: Any) -> dict[int, str]:
    """The shape that each module returns first, by its identity."""
    found: dict[int, str] = {}

    def keep(module: Any, args: Any, result: Any) -> None:
        shapes = [str(leaf.shape) for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
        found.setdefault(id(module), ", ".join(shapes))

    snapshot = Snapshot(model=model, inputs=inputs, named=named)
    hooks = [module.register_forward_hook(keep) for module in modules]
    try:
        with no_grad(), eager():
            model(*inputs, **named)
    finally:
        for hook in hooks:
            hook.remove()
        snapshot.restore()
    return found

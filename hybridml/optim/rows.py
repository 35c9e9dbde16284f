"""Updates of some rows: a parameter with a sparse gradient is updated as a smaller one, made of these rows.

The formulas of updates are elementwise. Where an element without a gradient stays as it is, they are applied to the
rows of the gradient, with the same rows of the state, and the results are written there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import arrays as xp
from ..core.autodiff.sparse import SparseGradient
from ..core.autodiff.tape import Leaf
from ..core.tensor import Tensor
from ..nn.parameter import RowWrites, Writes
from .group import ParameterGroup


def is_sparse(grad: Any) -> bool:
    return type(grad) is SparseGradient


class RowsOfGroup:
    """A group whose parameters are, where their gradients are sparse, the rows of these."""

    def __init__(self, group: ParameterGroup, parameters: Sequence[Any]) -> None:
        self.group, self.parameters = group, parameters

    def __getitem__(self, key: str) -> Any:
        return self.parameters if key == "params" else self.group[key]

    def __contains__(self, key: str) -> bool:
        return key in self.group

    def get(self, key: str) -> Any:
        return self[key] if key in self else None

    def uses(self, key: str) -> bool:
        return self.group.uses(key)


def update_rows(
    update: Callable[[Any, list[int], Tensor], Writes], group: ParameterGroup, sparse: Sequence[int], steps: Tensor,
    state: dict[Tensor, dict[str, Any]],
) -> RowWrites:  # fmt: skip
    """The new rows of parameters and their state, where the gradients of the parameters `sparse` are not zero."""
    targets: dict[int, tuple[Tensor, Tensor]] = {}
    made: list[Any] = [None] * len(group["params"])

    def taken(t: Tensor, rows: Tensor) -> Tensor:
        found: Tensor = xp.take(t, rows, axis=0)
        targets[id(found)] = t, rows
        return found

    try:
        for k in sparse:
            parameter = group["params"][k]
            rows, sums = parameter.grad.summed()
            small = made[k] = taken(parameter, rows)
            leaf = small._node = Leaf(small.shape, small.dtype)
            leaf.grad = sums
            state[small] = {name: taken(t, rows) for name, t in state[parameter].items()}
        writes = update(RowsOfGroup(group, made), list(sparse), steps)
    finally:
        for small in made:
            state.pop(small, None)
    return [(*targets[id(small)], new) for small, new in writes]

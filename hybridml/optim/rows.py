"""Updates of some rows: a parameter with a sparse gradient is updated as a smaller one, made of these rows.

The formulas of updates are elementwise. Where an element without a gradient stays as it is, they are applied to the
rows of the gradient, with the same rows of the state, and the results are written there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from hybridml_compiler.compile_policy import MOST, WORTH_ROWS, known_or_made

from .. import arrays as xp
from ..core.autodiff.sparse import SparseGradient
from ..core.autodiff.tape import Leaf
from ..core.context import current_interpreter
from ..core.tensor import Tensor
from ..nn.parameter import RowWrites, Writes
from .group import ParameterGroup


def is_sparse(grad: Any) -> bool:
    return type(grad) is SparseGradient


_steps_taken: WeakKeyDictionary[Any, dict[tuple[int, ...], int]] = WeakKeyDictionary()


def come_again(optimizer: Any, counts: tuple[int, ...]) -> bool:
    """Whether enough steps of an optimizer have had sparse gradients with these numbers of rows to compile them."""
    taken = _steps_taken.setdefault(optimizer, {})
    number = known_or_made(taken, counts, MOST, lambda: 0)
    if number is not None and number < WORTH_ROWS:
        taken[counts] += 1
    return number == WORTH_ROWS


def rows_of(grad: Any, lazy: bool) -> SparseGradient | None:
    """A sparse gradient; with `lazy` also one that has few rows in the graph of a trace."""
    if is_sparse(grad):
        found: SparseGradient = grad
        return found
    tracer: Any = current_interpreter()
    if not lazy or grad is None or type(grad) is not getattr(tracer, "cls", None) or not hasattr(tracer, "wrap"):
        return None
    from ..tracing.run.sparse_outputs import few_rows

    return few_rows(tracer, grad)


def touched(parameter: Tensor) -> Tensor:
    """Whether the gradient of each row has an element that is not zero, bool (n, 1, ...)."""
    nonzero = xp.not_equal(parameter.grad, 0)
    return xp.any(nonzero, axis=tuple(range(1, parameter.ndim)), keepdims=True) if parameter.ndim > 1 else nonzero


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
    update: Callable[[Any, list[int], Tensor], Writes], group: ParameterGroup, sparse: Mapping[int, SparseGradient],
    steps: Tensor, state: dict[Tensor, dict[str, Any]],
) -> RowWrites:  # fmt: skip
    """The new rows of parameters and their state, where the gradients `sparse` of these parameters are not zero."""
    targets: dict[int, tuple[Tensor, Tensor]] = {}
    made: list[Any] = [None] * len(group["params"])

    def taken(t: Tensor, rows: Tensor) -> Tensor:
        found: Tensor = xp.take(t, rows, axis=0)
        targets[id(found)] = t, rows
        return found

    try:
        for k, grad in sparse.items():
            parameter = group["params"][k]
            rows, sums = grad.summed()
            small = made[k] = taken(parameter, rows)
            leaf = small._node = Leaf(small.shape, small.dtype)
            leaf.grad = sums
            state[small] = {name: taken(t, rows) for name, t in state[parameter].items()}
        writes = update(RowsOfGroup(group, made), list(sparse), steps)
    finally:
        for small in made:
            state.pop(small, None)
    return [(*targets[id(small)], new) for small, new in writes]

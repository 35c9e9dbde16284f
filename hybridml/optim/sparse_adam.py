"""SparseAdam: Adam in which only rows with a gradient move (PyTorch's lazy version of Kingma and Ba 2014)."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from hybridml_compiler.errors import GradientError

from .. import arrays as xp
from ..core.context import current_interpreter
from ..core.tensor import Tensor
from ..nn.parameter import Writes
from ..tracing.specialize.errors import Untraceable
from .formulas import moving_mean, over_root
from .group import ParameterGroup
from .per_parameter import New, PerParameter


class SparseAdam(PerParameter):
    """Adam for sparse gradients: rows that were looked up move, and all others keep their values and their means.

    For ``nn.Embedding(..., sparse=True)``: time and memory of a step do not depend on the size of the table. The means
    of a row decay in the steps that look it up; their correction counts all steps. `betas` and `maximize` are as of
    `Adam`. Raises GradientError for a dense gradient, and what `Adam` raises.

    >>> table = hm.nn.Embedding(1000, 2, sparse=True)
    >>> before = table.weight.detach().clone()
    >>> opt = SparseAdam(table.parameters(), lr=0.5)
    >>> table(hm.asarray([7])).sum().backward()
    >>> opt.step()
    >>> (before - table.weight.detach())[6:8].round(decimals=4).tolist()
    [[0.0, 0.0], [0.5, 0.5]]
    """

    numbers = ("lr", "betas", "eps")
    tensors = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def refuses_sparse(self, group: ParameterGroup) -> str:
        return ""

    def update(self, group: Any, ready: list[int], steps: Tensor) -> Writes:
        if isinstance(group, ParameterGroup):  # and not rows of one
            if current_interpreter() is not None:
                raise Untraceable("SparseAdam meets a dense gradient, as look-ups in loops of a graph have")
            raise GradientError("SparseAdam does not support dense gradients, please consider Adam instead")
        return super().update(group, ready, steps)

    def coefficients(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        beta1, beta2 = group["betas"]
        step_size = group["lr"] * xp.sqrt(1 - beta2**steps) / (1 - beta1**steps)
        return {"step_size": step_size, "eps": group["eps"], "rest1": 1 - beta1, "rest2": 1 - beta2}

    def rule(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor, state: dict[str, Any]) -> New:
        mean = moving_mean.here(state["exp_avg"], g, s.rest1)
        square = moving_mean.here(state["exp_avg_sq"], g * g, s.rest2)
        stepped = value - over_root.here(mean, square, s.eps) * s.step_size
        return stepped, {"exp_avg": mean, "exp_avg_sq": square}

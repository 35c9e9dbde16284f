"""`ZeroRedundancyOptimizer`: an optimizer whose state is spread over the processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hybridml_compiler.errors import ArgumentError

from ..core.context import enable_grad, no_grad
from ..core.tensor import Tensor
from ..nn.parameter import Parameter
from ..optim.optimizer import Optimizer
from .buckets import buckets
from .fully_shard import gathered
from .groups import Group, default
from .placements import Flat, Placement, is_part


class ZeroRedundancyOptimizer:
    """An optimizer of which each process has a part of the state, and updates that part of each parameter.

    params: as an optimizer takes them. optimizer_class: one whose update of an element looks at this element alone, as
    SGD's, Adam's and most do. defaults: its settings. After `step` all processes have all of the updated parameters.
    Their gradients must be the same in all processes, as with `DataParallel`. Beside the state there is a copy of each
    part; `fully_shard` with `reshard_after_forward=False` takes less memory, and moves as much. Source: ZeRO
    (Rajbhandari et al., SC 2020), stage 1; the name is PyTorch's. Raises what the optimizer's class raises.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def step():
    ...     w = hm.tensor([1.0, 2.0, 3.0], requires_grad=True)
    ...     optimizer = dist.ZeroRedundancyOptimizer([w], hm.optim.SGD, lr=0.5)
    ...     (w * w).sum().backward()
    ...     optimizer.step()
    ...     return w.tolist()
    >>> dist.run_threads(2, step)
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """

    def __init__(
        self, params: Iterable[Any], optimizer_class: type[Optimizer], group: Group | None = None, **defaults: Any
    ) -> None:
        self.group = default(group)
        given: list[Any] = [params] if isinstance(params, Tensor) else list(params)
        groups = given if given and isinstance(given[0], Mapping) else [{"params": given}]
        self._wholes: list[Tensor] = []
        self._parts: list[Tensor] = []
        self._layouts: list[Flat] = []
        self.optimizer = optimizer_class([{**g, "params": self._parts_of(g["params"])} for g in groups], **defaults)

    def _parts_of(self, params: Any) -> list[Tensor]:
        wholes = [params] if isinstance(params, Tensor) else list(params)
        for p in wholes:
            if not isinstance(p, Tensor):
                raise ArgumentError(f"ZeroRedundancyOptimizer: params are tensors, got {type(p).__name__}")
            if is_part(p):
                raise ArgumentError(
                    "ZeroRedundancyOptimizer: a parameter is a part already (fully_shard, parallelize_module), whose "
                    "state is in parts as well; use the optimizer itself"
                )
            layout = Flat(tuple(p.shape), p.numel(), self.group.size)
            self._wholes.append(p)
            self._layouts.append(layout)
            self._parts.append(Parameter(layout.part(p.detach(), self.group.rank).clone(), p.requires_grad))
        return self._parts[len(self._parts) - len(wholes) :]

    @property
    def param_groups(self) -> list[Any]:
        """The settings of the groups of parameters. Schedules take `optimizer`, which has the same ones."""
        return self.optimizer.param_groups

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of the parameters, or makes them zeros."""
        for p in self._wholes:
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                p.grad.zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates all parameters; returns the closure's result, where one is given to compute the gradients."""
        result = None
        if closure is not None:
            with enable_grad():
                result = closure()
        rank = self.group.rank
        with no_grad():
            for whole, part, layout in zip(self._wholes, self._parts, self._layouts, strict=True):
                part.copy_(layout.part(whole.detach(), rank))  # it may have been written to
                part.grad = None if whole.grad is None else layout.part(whole.grad, rank)
            self.optimizer.step()
            for part in self._parts:
                part.grad = None
            self._give_all()
        return result

    def _give_all(self) -> None:
        """Gives all processes the parts of all, in buckets."""
        known = {id(part): k for k, part in enumerate(self._parts)}
        for bucket in buckets(("", part) for part in self._parts):
            numbers = [known[id(part)] for part in bucket.tensors]
            parts = [part.detach() for part in bucket.tensors]
            wholes = gathered(parts, [self._layouts[k] for k in numbers], self.group, type(self).__name__)
            for k, whole in zip(numbers, wholes, strict=True):
                self._wholes[k].copy_(whole)

    def state_dict(self) -> dict[str, Any]:
        """The state of this process's part, as the optimizer's own; `CheckpointManager` saves that of all."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads the state of this process's part."""
        self.optimizer.load_state_dict(state_dict)

    def placements(self) -> list[Placement]:
        """The placements of the state of each parameter."""
        return [Placement(layout, self.group) for layout in self._layouts]

"""A shard: the part of a model's parameters that one actor of a parameter server holds and updates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ...arrays.creation import asarray
from ...core.context import no_grad
from ...core.tensor import Tensor
from ...nn.parameter import Parameter
from ...optim.optimizer import Optimizer
from .embedding import Table
from .gradients import mean
from .values import Arrays, array_of, write

OptimizerFactory = Callable[[Iterable[Tensor]], Optimizer]


class Shard:
    """Parameters and parts of tables, the optimizer of these, and the number of updates, which is their version."""

    def __init__(
        self, number: int, count: int, values: Arrays, tables: Mapping[str, Table], optimizer: OptimizerFactory
    ) -> None:
        parts = {name: table.part(number, count) for name, table in tables.items()}
        self.values = {name: Parameter(asarray(value.copy())) for name, value in values.items()}
        self.tables = {name: Parameter(asarray(part)) for name, part in parts.items()}
        self.all = {**self.values, **self.tables}
        self.optimizer = optimizer(list(self.all.values()))
        self.version = 0

    def pull(self) -> Arrays:
        """The parameters of now, as copies."""
        return {name: array_of(p).copy() for name, p in self.values.items()}

    def rows(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Some rows of its part of a table."""
        return array_of(self.tables[name])[rows]

    def push(self, *gradients: Mapping[str, Any]) -> int:
        """Updates by the mean of some workers' gradients; returns the version that this makes.

        A worker that has none of a parameter adds nothing to it; one that nobody has a gradient of stays as it is.
        """
        for name, p in self.all.items():
            found = [given[name] for given in gradients if name in given]
            p.grad = mean(found, len(gradients), p) if found else None
        self.optimizer.step()
        self.version += 1
        return self.version

    def state_dict(self) -> dict[str, Any]:
        """Values, state of the optimizer and version, as copies for a checkpoint."""
        values = {name: array_of(p).copy() for name, p in self.all.items()}
        return {"values": values, "optimizer": self.optimizer.state_dict(), "version": self.version}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes back to what `state_dict` has returned."""
        with no_grad():
            write(self.all, state["values"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.version = state["version"]

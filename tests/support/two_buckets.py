"""A data-parallel training whose gradients travel in two buckets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hybridml as hm
from hybridml import distributed as dist


def trained(traced: bool) -> Callable[[], Any]:
    """A step without arguments; it returns the loss."""
    model = dist.DataParallel(hm.nn.Sequential(hm.nn.Linear(8, 8), hm.nn.Linear(8, 4)), bucket_mb=2e-4)
    optimizer = hm.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    run = hm.trace(step) if traced else step
    return lambda: run(hm.ones((3, 8)))

"""Models whose parts are computed by ranks of a group, their training, and the messages of a program."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

import hybridml as hm
from hybridml import distributed as dist

F = hm.functional
Block = Callable[[int], AbstractContextManager[None]]
SGD: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}


def everywhere(rank: int) -> AbstractContextManager[None]:
    return nullcontext()


def batch(rows: int = 24) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    return hm.asarray(rng.standard_normal((rows, 8), np.float32)), hm.asarray(rng.integers(0, 4, rows))


def mlp() -> hm.nn.Module:
    hm.manual_seed(0)
    return hm.nn.Sequential(*[hm.nn.Linear(n, m) for n, m in ((8, 40), (40, 30), (30, 4))])


def towers(width: int = 40) -> hm.nn.Module:
    hm.manual_seed(0)
    a = hm.nn.Sequential(hm.nn.Linear(8, width), hm.nn.ReLU(), hm.nn.Linear(width, 30))
    b = hm.nn.Sequential(hm.nn.Linear(8, width), hm.nn.BatchNorm1d(width), hm.nn.Tanh(), hm.nn.Linear(width, 30))
    return hm.nn.ModuleList([a, b, hm.nn.Linear(30, 4)])


def forward_of_mlp(model: Any, x: Any, on: Block, size: int) -> Any:
    for k, layer in enumerate(model):
        with on(k % size):
            x = hm.tanh(layer(x))
    return x


def forward_of_towers(model: Any, x: Any, on: Block, size: int) -> Any:
    with on(size - 1):
        u = model[0](x)
    with on(0):
        v = model[1](x)
    return model[2](u + v)


MODELS: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
    "mlp": (mlp, forward_of_mlp),
    "towers": (towers, forward_of_towers),
}


def values(module: Any) -> dict[str, np.ndarray]:
    return {name: t.detach().numpy().copy() for name, t in dist.full_state_dict(module).items()}


def trained(
    kind: str, model: Any, on: Block, size: int, traced: bool, make: Any = None, bring: bool = True
) -> tuple[Any, Any, str]:
    """Losses and norms of gradients, the model in the end (`bring`: which all get), and the program of this process."""
    optimizer = (make or (lambda parameters: hm.optim.SGD(parameters, **SGD)))(model.parameters())

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(MODELS[kind][1](model, x, on, size), y)
        loss.backward()
        norm = hm.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss, norm

    run: Any = hm.trace(step) if traced else step
    found = [[float(number) for number in run(*batch())] for _ in range(4)]
    return found, values(model) if bring else None, run.ir if traced else ""


def same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> bool:
    return ours.keys() == theirs.keys() and all((ours[name] == theirs[name]).all() for name in ours)


def messages(text: str) -> list[tuple[str, int]]:
    """Sends and receives of a program, with the other rank, in their order: that of the tokens."""
    found = re.findall(r"= (?:(s)end_to|(r)eceive_from)\(.*peer=(\d+),(?! result=0)", text)
    return [(send + receive, int(peer)) for send, receive, peer in found]

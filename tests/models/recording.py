"""What both records of peers in PyTorch are made of: weights from their names, numbers that stand for tensors."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hybridml import models


def value(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """A weight or running statistic of a name, float64, of about the size that keeps activations at 1."""
    noise = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)
    if len(shape) > 1:
        return noise * math.sqrt(2 / math.prod(shape[1:]))
    return 1 + 0.1 * abs(noise) if name.endswith(("var", "weight")) else 0.1 * noise


def values(model: Any) -> dict[str, np.ndarray]:
    """Those of a model's state dict, counts of batches left at none. A tensor of two names is made of the first."""
    state, first = model.state_dict(), dict[int, str]()
    owned = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
    names = {name: first.setdefault(id(owned[name]), name) for name in sorted(state)}
    return {k: value(names[k], tuple(v.shape)) if v.ndim else np.asarray(0) for k, v in state.items()}


def without_dropout(model: Any) -> Any:
    """The model itself, of whose random layers none drops anything."""
    for layer in model.modules():
        if type(layer).__name__ == "Dropout":
            layer.p = 0.0
        elif isinstance(getattr(layer, "dropout", None), float):
            layer.dropout = 0.0
    return model


def batch(name: str) -> list[np.ndarray]:
    """Arrays of the loss: those of the table, in float64, and for the autoencoder the noise of its codes."""
    arrays = [a.astype(np.float64) if a.dtype == np.float32 else a for a in models.example_batch(name, 4, tiny=True)]
    return [*arrays, value("noise", (4, 4))] if name == "vae" else arrays


def tree(state: dict[str, Any]) -> dict[str, Any]:
    """Shapes by the parts of their names, in order."""
    found: dict[str, Any] = {}
    for name, tensor in state.items():
        *path, last = name.split(".")
        at = found
        for part in path:
            at = at.setdefault(part, {})
        at[last] = " ".join(map(str, tensor.shape))
    return found


def numbers(outputs: Any) -> list[float]:
    """At most 20 numbers of each tensor that a model returns, from all of its places."""
    tensors = outputs if isinstance(outputs, tuple) else (outputs,)
    flat = [t.detach().numpy().reshape(-1) for t in tensors]
    return [_rounded(number) for array in flat for number in array[:: -(-array.size // 20)]]


def projections(gradients: Iterable[tuple[str, np.ndarray]]) -> dict[str, float]:
    """Each gradient times noise: its norm would not tell a turned gradient from the right one."""
    return {name: _rounded((value(f"{name} projected", g.shape) * g).sum()) for name, g in gradients}


def _rounded(number: float) -> float:
    """A number with the eleven digits that are recorded."""
    return float(f"{number:.10e}")


def observed(name: str, model: Any, loss: Callable[..., Any], tensor: Callable[[np.ndarray], Any]) -> dict[str, Any]:
    """Outputs in training and after it (of statistics that training moved), the loss and its gradients."""
    arrays = [tensor(array) for array in batch(name)]
    inputs = arrays if name == "vae" else arrays[: models.architecture(name).inputs]
    found = {"training": numbers(model(*inputs))}
    total = loss(model, *arrays)
    total.backward()
    gradients = projections((path, p.grad.numpy()) for path, p in model.named_parameters())
    model.eval()
    return {**found, "loss": _rounded(total.item()), "gradients": gradients, "evaluation": numbers(model(*inputs))}


def recorded(name: str, published: Any, small: Any) -> dict[str, Any]:
    """The record of an architecture: shapes of the published size in PyTorch, what the small size computes."""
    import torch

    from hybridml_examples.in_torch import in_torch

    small = without_dropout(small).double()
    small.load_state_dict({k: torch.from_numpy(v) for k, v in values(small).items()})
    loss = getattr(in_torch("losses"), models.architecture(name).loss)
    return {"state_dict": tree(published.state_dict()), **observed(name, small, loss, torch.from_numpy)}


def record(path: Path, records: dict[str, Any]) -> None:
    """Writes records, a line for each architecture."""
    lines = (f"{json.dumps(name)}: {json.dumps(found, separators=(',', ':'))}" for name, found in records.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

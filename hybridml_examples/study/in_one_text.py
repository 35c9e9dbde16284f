"""The networks in hybridml and in PyTorch, whose names are the same: one text runs both, eagerly or compiled.

What a user compiles is compiled: with hybridml the whole training step, with PyTorch the model with its loss, whose
backward is another compiled function and whose optimizer is a fused kernel of its own.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from .candidates import Candidate
from .networks import OPTIMIZERS

SHOWN = 4096  # elements of an output that are compared


def prepare(candidate: Candidate, threads: int) -> None:
    """Imports the library and gives it its threads."""
    importlib.import_module(candidate.library).set_num_threads(threads)


def _modules(library: str, file: str) -> tuple[Any, Any]:
    """The module of an architecture's file in a library, and that of the losses."""
    if library == "torch":
        from ..in_torch import in_torch

        return in_torch(file), in_torch("losses")
    return importlib.import_module(f"hybridml.models.{file}"), importlib.import_module("hybridml.models.losses")


def without_dropout(model: Any) -> Any:
    """Layers that draw masks leave them: those of two libraries differ, and with them the losses that are compared."""
    for module in model.modules():
        for name in ("p", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


class Program:
    """A network on a batch: one training step, and inference, as calls without arguments."""

    def __init__(self, candidate: Candidate, spec: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.library = lib = importlib.import_module(candidate.library)
        self.device = candidate.device
        models, losses = _modules(candidate.library, spec["module"])
        model = without_dropout(getattr(models, spec["name"])(**spec["options"])).to(self.device)
        self.weights = {key[2:]: array for key, array in arrays.items() if key.startswith("w:")}
        rule = lib.optim.Adam if spec["optimizer"] == "adam" else lib.optim.SGD
        self.optimizer = optimizer = rule(model.parameters(), fused=True, **OPTIMIZERS[spec["optimizer"]])
        self.model, self.inputs = model, spec["inputs"]
        self.feed([arrays[f"b:{k}"] for k in range(spec["arrays"])])
        loss_of = getattr(losses, spec["loss"])

        def loss(*batch: Any) -> Any:
            return loss_of(model, *batch)

        def forward(*inputs: Any) -> Any:
            with lib.no_grad():
                return model(*inputs)

        compiled = candidate.style == "compiled"
        if compiled and candidate.library == "torch":
            loss, forward = lib.compile(loss), lib.compile(forward)

        def step(*batch: Any) -> Any:
            optimizer.zero_grad()
            found = loss(*batch)
            found.backward()
            optimizer.step()
            return found.detach()

        if compiled and candidate.library == "hybridml":
            step, forward = lib.trace(step), lib.trace(forward)
        self._step, self._forward, self.last = step, forward, None
        self.reset()

    def feed(self, batch: list[np.ndarray]) -> None:
        """Takes another batch, of the same shapes."""
        self.batch = [self.library.from_numpy(np.ascontiguousarray(array)).to(self.device) for array in batch]

    def reset(self) -> None:
        """Goes back to the first weights: trained on one batch for ever, gradients end as denormal numbers."""
        lib = self.library
        self.model.load_state_dict({name: lib.from_numpy(array) for name, array in self.weights.items()})
        with lib.no_grad():
            for state in self.optimizer.state.values():
                for value in state.values():
                    if isinstance(value, lib.Tensor):
                        value.zero_()

    def _wait(self) -> None:
        if self.device == "cuda":
            self.library.cuda.synchronize()

    def step(self) -> None:
        """One training step: zero_grad, forward, loss, backward, update."""
        if not self.model.training:
            self.model.train()
        self.last = self._step(*self.batch)
        self._wait()

    def infer(self) -> None:
        """The model's output, without gradients, as it is after training."""
        if self.model.training:
            self.model.eval()
        self.last = self._forward(*self.batch[: self.inputs])
        self._wait()

    def loss(self) -> float:
        """The loss of the last step."""
        return float(self.last.item())

    def output(self) -> np.ndarray:
        """The beginning of the first tensor of the last output."""
        found = self.last
        while not isinstance(found, self.library.Tensor):
            found = next(iter(found.values() if isinstance(found, dict) else found))
        return found.detach().cpu().numpy().astype(np.float32).ravel()[:SHOWN]

    def device_memory(self) -> int:
        """Bytes of a GPU at their most; 0 on a CPU."""
        return int(self.library.cuda.max_memory_allocated()) if self.device == "cuda" else 0

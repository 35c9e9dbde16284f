"""The workloads in PyTorch, eager or under `torch.compile`; optimizers in their fused form, which is their fastest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .workloads import WIDTHS, Arrays, Case


def set_threads(count: int) -> None:
    torch.set_num_threads(count)


def _styled(fn: Callable[..., Any], style: str) -> Callable[..., Any]:
    return torch.compile(fn) if style == "compile" else fn


def _case(fn: Callable[..., Any], style: str, *args: torch.Tensor) -> Case:
    run = _styled(fn, style)
    last: list[Any] = [None]

    def call() -> None:
        last[0] = run(*args)

    return Case(call, lambda: [last[0].detach().numpy()])


def _tensors(arrays: Arrays) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in arrays.values()]


def gelu_chain(arrays: Arrays, style: str) -> Case:
    def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.gelu(x * 1.5 + y, approximate="tanh") * torch.sigmoid(y) + x

    return _case(chain, style, *_tensors(arrays))


def tiny_call(arrays: Arrays, style: str) -> Case:
    return _case(lambda x: x * 2 + 1, style, *_tensors(arrays))


first_tiny, first_gelu = tiny_call, gelu_chain


def add_16(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, y: x + y, style, *_tensors(arrays))


def add_16_recorded(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, y: x + y, style, *(t.requires_grad_() for t in _tensors(arrays)))


def backward_16(arrays: Arrays, style: str) -> Case:
    r = torch.from_numpy(arrays["r"]).requires_grad_()
    loss = _styled(lambda: ((r * r) + r).sum(), style)

    def call() -> None:
        r.grad = None
        loss().backward()

    return Case(call, lambda: [r.grad.numpy()] if r.grad is not None else [])


def softmax(arrays: Arrays, style: str) -> Case:
    return _case(lambda x: F.softmax(x, -1), style, *_tensors(arrays))


def layer_norm(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, w, b: F.layer_norm(x, (1024,), w, b), style, *_tensors(arrays))


def _training(model: nn.Module, optimizer: torch.optim.Optimizer, arrays: Arrays, style: str) -> Case:
    parameters = list(model.parameters())
    names = [f"{kind}{k}" for k in range(len(parameters) // 2) for kind in "wb"]
    x, labels = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["labels"])
    loss_of = _styled(lambda x, labels: F.cross_entropy(model(x), labels), style)
    last: list[Any] = [None]

    def reset() -> None:
        with torch.no_grad():
            for name, parameter in zip(names, parameters, strict=True):
                parameter.copy_(torch.from_numpy(arrays[name]))
        for state in optimizer.state.values():
            for tensor in state.values():
                if tensor is not None:
                    tensor.zero_()

    def call() -> None:
        optimizer.zero_grad()
        last[0] = loss_of(x, labels)
        last[0].backward()
        optimizer.step()

    reset()
    return Case(call, lambda: [last[0].detach().numpy()], reset)


def mlp_step(arrays: Arrays, style: str) -> Case:
    a, b, c, d = WIDTHS
    model = nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, c), nn.ReLU(), nn.Linear(c, d))
    return _training(model, torch.optim.Adam(model.parameters(), lr=1e-3, fused=True), arrays, style)


def convnet_step(arrays: Arrays, style: str) -> Case:
    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(512, 10)),
    )
    return _training(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True), arrays, style)

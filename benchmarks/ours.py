"""The workloads in hybridml, eager or traced."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import hybridml as hm
from hybridml import functional as F
from hybridml import nn

from .workloads import WIDTHS, Arrays, Case


def set_threads(count: int) -> None:
    """The environment said it: a call here would load the compiler before the first call is timed."""


def _case(fn: Callable[..., Any], style: str, *args: hm.Tensor) -> Case:
    run = hm.trace(fn) if style == "traced" else fn
    last: list[Any] = [None]

    def call() -> None:
        last[0] = run(*args)

    return Case(call, lambda: [last[0].detach().numpy()])


def _tensors(arrays: Arrays) -> list[hm.Tensor]:
    return [hm.asarray(array) for array in arrays.values()]


def gelu_chain(arrays: Arrays, style: str) -> Case:
    def chain(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        return F.gelu(x * 1.5 + y, approximate="tanh") * F.sigmoid(y) + x

    return _case(chain, style, *_tensors(arrays))


def tiny_call(arrays: Arrays, style: str) -> Case:
    return _case(lambda x: x * 2 + 1, style, *_tensors(arrays))


first_tiny, first_gelu = tiny_call, gelu_chain


def add_16(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, y: x + y, style, *_tensors(arrays))


def add_16_recorded(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, y: x + y, style, *(t.requires_grad_() for t in _tensors(arrays)))


def backward_16(arrays: Arrays, style: str) -> Case:
    r = hm.asarray(arrays["r"]).requires_grad_()

    def call() -> None:
        r.grad = None
        ((r * r) + r).sum().backward()

    return Case(call, lambda: [r.grad.numpy()] if r.grad is not None else [])


def softmax(arrays: Arrays, style: str) -> Case:
    return _case(lambda x: F.softmax(x, -1), style, *_tensors(arrays))


def layer_norm(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, w, b: F.layer_norm(x, (1024,), w, b), style, *_tensors(arrays))


def _training(model: nn.Module, optimizer: hm.optim.Optimizer, arrays: Arrays, style: str) -> Case:
    parameters = list(model.parameters())
    names = [f"{kind}{k}" for k in range(len(parameters) // 2) for kind in "wb"]
    fresh = copy.deepcopy(optimizer.state_dict())

    def reset() -> None:
        with hm.no_grad():
            for name, parameter in zip(names, parameters, strict=True):
                parameter.copy_(hm.asarray(arrays[name]))
        optimizer.load_state_dict(fresh)

    def step(x: hm.Tensor, labels: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    reset()
    case = _case(step, style, hm.asarray(arrays["x"]), hm.asarray(arrays["labels"]))
    return Case(case.call, case.read, reset)


def mlp_step(arrays: Arrays, style: str) -> Case:
    a, b, c, d = WIDTHS
    model = nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, c), nn.ReLU(), nn.Linear(c, d))
    return _training(model, hm.optim.Adam(model.parameters(), lr=1e-3), arrays, style)


def convnet_step(arrays: Arrays, style: str) -> Case:
    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(512, 10)),
    )
    return _training(model, hm.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), arrays, style)

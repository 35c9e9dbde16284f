"""The workloads in hybridml, eager or traced."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import hybridml as hm
from hybridml import functional as F
from hybridml_compiler.graph.text import parse_graph

from .training import RATES, Arrays, Training, split
from .workloads import SCALES, Case


def set_threads(count: int) -> None:
    """The environment said it: a call here would load the compiler before the first call is timed."""


def _case(fn: Callable[..., Any], style: str, *args: hm.Tensor) -> Case:
    run = hm.trace(fn) if "traced" in style else fn
    last: list[Any] = [None]

    def call() -> None:
        last[0] = run(*args)

    return Case(
        call,
        lambda: [np.asarray(last[0].detach().cpu().numpy(), np.float32)],
        work=lambda: _work(run) if "traced" in style else {},
    )


def _work(traced: Any) -> dict[str, float]:
    """Arithmetic of the products and convolutions of a call, and the bytes that its kernels read and write."""
    flops = 0.0
    for node in parse_graph(traced.ir).nodes():
        if node.op is not None and node.op.kind in ("contraction", "convolution"):
            a, b = (operand.shape for operand in node.inputs)
            terms = a[-1] if node.op.kind == "contraction" else b[0] * b[1] * b[3]  # kh, kw, channels of a group
            flops += 2.0 * math.prod(node.shape) * terms
    return {"flops": flops, "bytes": traced.stats.bytes}


def _tensors(arrays: Arrays) -> list[hm.Tensor]:
    return [hm.asarray(array) for array in arrays.values()]


def gelu_chain(arrays: Arrays, style: str) -> Case:
    def chain(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        return F.gelu(x * 1.5 + y, approximate="tanh") * F.sigmoid(y) + x

    return _case(chain, style, *_tensors(arrays))


def tiny_call(arrays: Arrays, style: str) -> Case:
    return _case(lambda x: x * 2 + 1, style, *_tensors(arrays))


first_tiny, first_gelu = tiny_call, gelu_chain


def captured_100(arrays: Arrays, style: str) -> Case:
    x, *held = _tensors(arrays)
    parts = hm.nn.ParameterList(hm.nn.Parameter(part, requires_grad=False) for part in held)
    return _case(lambda x: x * 2 + sum(parts, start=1), style, x)


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


def black_scholes(arrays: Arrays, style: str) -> Case:
    def price(spot: hm.Tensor, strike: hm.Tensor, years: hm.Tensor, rate: hm.Tensor, vol: hm.Tensor) -> hm.Tensor:
        spread = vol * hm.sqrt(years)
        d1 = (hm.log(spot / strike) + (rate + vol * vol * 0.5) * years) / spread
        d2 = d1 - spread
        up, down = (hm.erf(d * 0.5**0.5) * 0.5 + 0.5 for d in (d1, d2))
        return spot * up - strike * hm.exp(-rate * years) * down

    return _case(price, style, *_tensors(arrays))


def softmax(arrays: Arrays, style: str) -> Case:
    return _case(lambda x: F.softmax(x / 8, -1), style, *_tensors(arrays))


def layer_norm(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, w, b: F.layer_norm(x, (1024,), w, b), style, *_tensors(arrays))


def sum_squares(arrays: Arrays, style: str) -> Case:
    return _case(lambda x: (x * x).sum(0), style, *_tensors(arrays))


def linear_gelu(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, w, b: F.gelu(x @ w + b), style, *_tensors(arrays))


def matmul_bf16(arrays: Arrays, style: str) -> Case:
    return _case(hm.matmul, style, *(t.astype(hm.bfloat16) for t in _tensors(arrays)[:2]))


def matmul_int8(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, w: x.astype(hm.int32) @ w.astype(hm.int32), style, *_tensors(arrays))


def conv3x3(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)), style, *_tensors(arrays))


def conv1x1(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, w, b: F.relu(F.conv2d(x, w, b)), style, *_tensors(arrays))


def _narrow_convolution(arrays: Arrays, style: str) -> Case:
    padding = arrays["w"].shape[-1] // 2
    narrow = (t.astype(hm.bfloat16) for t in _tensors(arrays))
    return _case(lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=padding)), style, *narrow)


conv3x3_bf16 = conv1x1_bf16 = _narrow_convolution


def _quantized_convolution(arrays: Arrays, style: str) -> Case:
    padding, (of_x, of_w, of_y) = arrays["w"].shape[-1] // 2, SCALES

    def run(x: hm.Tensor, w: hm.Tensor, b: hm.Tensor) -> hm.Tensor:
        sums = F.conv2d(x.astype(hm.int32), w.astype(hm.int32), padding=padding)
        y = sums.astype(hm.float32) * (of_x * of_w / of_y) + (b / of_y).reshape((-1, 1, 1))
        return hm.round(hm.clip(y, 0, 255)).astype(hm.uint8)

    return _case(run, style, *_tensors(arrays))


conv3x3_int8 = conv1x1_int8 = _quantized_convolution


def depthwise(arrays: Arrays, style: str) -> Case:
    groups = len(arrays["w"])
    return _case(lambda x, w, b: F.relu6(F.conv2d(x, w, b, padding=1, groups=groups)), style, *_tensors(arrays))


def attention(arrays: Arrays, style: str) -> Case:
    return _case(F.scaled_dot_product_attention, style, *_tensors(arrays))


OPTIMIZERS = {
    "adam": lambda parameters: hm.optim.Adam(parameters, lr=RATES["adam"]),
    "sgd": lambda parameters: hm.optim.SGD(parameters, lr=RATES["sgd"], momentum=0.9),
}


def training(task: Training, arrays: Arrays, style: str, device: str = "cpu") -> Case:
    inputs, labels, weights = split(arrays)
    model = task.model().to(device)
    make = OPTIMIZERS[task.optimizer]
    optimizer = make(model.parameters())

    def reset() -> None:
        with hm.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(hm.asarray(weights[name], device=device))
        optimizer.load_state_dict(make(model.parameters()).state_dict())  # a copy kept for this would count as memory

    def step(labels: hm.Tensor, *inputs: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        with hm.autocast(dtype=hm.bfloat16, enabled="bf16" in style):
            logits = model(*inputs)
            if task.loss == "cross_entropy":
                loss = F.cross_entropy(logits.reshape((-1, logits.shape[-1])), labels.reshape((-1,)))
            else:
                loss = F.binary_cross_entropy_with_logits(logits, labels)
        loss.backward()
        optimizer.step()
        return loss

    reset()
    case = _case(step, style, *(hm.asarray(x, device=device) for x in (labels, *inputs)))
    return Case(case.call, case.read, reset, case.work)

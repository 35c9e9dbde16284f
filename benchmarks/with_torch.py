"""The workloads in PyTorch: eager or under `torch.compile`, in its usual memory format or in channels_last.

Optimizers are in their fused form, which is their fastest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from .training import RATES, Arrays, Training, split
from .workloads import SCALES, Case


def set_threads(count: int) -> None:
    torch.set_num_threads(count)


def _styled(fn: Callable[..., Any], style: str) -> Callable[..., Any]:
    if "compile" not in style:
        return fn
    return torch.compile(fn, mode="reduce-overhead" if "reduce-overhead" in style else None)


def _laid_out(tensor: torch.Tensor, style: str) -> torch.Tensor:
    last = "channels_last" in style and tensor.ndim == 4
    return tensor.contiguous(memory_format=torch.channels_last) if last else tensor


def _case(fn: Callable[..., Any], style: str, *args: torch.Tensor) -> Case:
    run = _styled(fn, style)
    args = tuple(_laid_out(tensor, style) for tensor in args)
    last: list[Any] = [None]

    def call() -> None:
        last[0] = run(*args)

    return Case(call, lambda: [last[0].detach().float().numpy()])


def _tensors(arrays: Arrays) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in arrays.values()]


def gelu_chain(arrays: Arrays, style: str) -> Case:
    def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.gelu(x * 1.5 + y, approximate="tanh") * torch.sigmoid(y) + x

    return _case(chain, style, *_tensors(arrays))


def tiny_call(arrays: Arrays, style: str) -> Case:
    return _case(lambda x: x * 2 + 1, style, *_tensors(arrays))


first_tiny, first_gelu = tiny_call, gelu_chain


def captured_100(arrays: Arrays, style: str) -> Case:
    x, *held = _tensors(arrays)
    parts = torch.nn.ParameterList(torch.nn.Parameter(part, requires_grad=False) for part in held)
    return _case(lambda x: x * 2 + sum(parts, start=1), style, x)


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


def black_scholes(arrays: Arrays, style: str) -> Case:
    def price(
        spot: torch.Tensor, strike: torch.Tensor, years: torch.Tensor, rate: torch.Tensor, vol: torch.Tensor
    ) -> torch.Tensor:
        spread = vol * torch.sqrt(years)
        d1 = (torch.log(spot / strike) + (rate + vol * vol * 0.5) * years) / spread
        d2 = d1 - spread
        up, down = (torch.erf(d * 0.5**0.5) * 0.5 + 0.5 for d in (d1, d2))
        return spot * up - strike * torch.exp(-rate * years) * down

    return _case(price, style, *_tensors(arrays))


def softmax(arrays: Arrays, style: str) -> Case:
    return _case(lambda x: F.softmax(x / 8, -1), style, *_tensors(arrays))


def layer_norm(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, w, b: F.layer_norm(x, (1024,), w, b), style, *_tensors(arrays))


def sum_squares(arrays: Arrays, style: str) -> Case:
    return _case(lambda x: (x * x).sum(0), style, *_tensors(arrays))


def linear_gelu(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, w, b: F.gelu(torch.addmm(b, x, w)), style, *_tensors(arrays))


def matmul_bf16(arrays: Arrays, style: str) -> Case:
    return _case(torch.mm, style, *(t.bfloat16() for t in _tensors(arrays)[:2]))


def matmul_int8(arrays: Arrays, style: str) -> Case:
    return _case(torch._int_mm, style, *_tensors(arrays))


def conv3x3(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)), style, *_tensors(arrays))


def conv1x1(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, w, b: F.relu(F.conv2d(x, w, b)), style, *_tensors(arrays))


def _narrow_convolution(arrays: Arrays, style: str) -> Case:
    padding = arrays["w"].shape[-1] // 2
    narrow = (t.bfloat16() for t in _tensors(arrays))
    return _case(lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=padding)), style, *narrow)


conv3x3_bf16 = conv1x1_bf16 = _narrow_convolution


def _quantized_convolution(arrays: Arrays, style: str) -> Case:
    """By the engine for x86, which keeps images channels last."""
    (x, w, b), (of_x, of_w, of_y) = _tensors(arrays), SCALES
    torch.backends.quantized.engine = "x86"
    image = torch._make_per_tensor_quantized_tensor(x, of_x, 0).contiguous(memory_format=torch.channels_last)
    weight = torch._make_per_tensor_quantized_tensor(w, of_w, 0)
    around = [w.shape[-1] // 2] * 2
    packed = torch.ops.quantized.conv2d_prepack(weight, b, [1, 1], around, [1, 1], 1)
    last: list[Any] = [None]

    def call() -> None:
        last[0] = torch.ops.quantized.conv2d_relu(image, packed, of_y, 0)

    return Case(call, lambda: [last[0].int_repr().float().numpy()])


conv3x3_int8 = conv1x1_int8 = _quantized_convolution


def depthwise(arrays: Arrays, style: str) -> Case:
    groups = len(arrays["w"])
    return _case(lambda x, w, b: F.relu6(F.conv2d(x, w, b, padding=1, groups=groups)), style, *_tensors(arrays))


def attention(arrays: Arrays, style: str) -> Case:
    return _case(F.scaled_dot_product_attention, style, *_tensors(arrays))


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=RATES["adam"], fused=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=RATES["sgd"], momentum=0.9, fused=True),
}


def training(task: Training, arrays: Arrays, style: str, device: str = "cpu") -> Case:
    """Forward and loss are one compiled function, its backward another; the optimizer is its own fused kernel."""
    data, targets, weights = split(arrays)
    model = task.model("torch").to(device)
    if "channels_last" in style:
        model = model.to(memory_format=torch.channels_last)
    optimizer = OPTIMIZERS[task.optimizer](model.parameters())
    inputs = [_laid_out(torch.from_numpy(x), style).to(device) for x in data]
    labels = torch.from_numpy(targets).to(device)
    last: list[Any] = [None]

    def loss_of(labels: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, enabled="bf16" in style):
            logits = model(*inputs)
            if task.loss == "cross_entropy":
                return F.cross_entropy(logits.reshape((-1, logits.shape[-1])), labels.reshape((-1,)))
            return F.binary_cross_entropy_with_logits(logits, labels)

    run = _styled(loss_of, style)

    def reset() -> None:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(torch.from_numpy(weights[name]))
        for state in optimizer.state.values():
            for tensor in state.values():
                if tensor is not None:
                    tensor.zero_()

    def call() -> None:
        optimizer.zero_grad()
        last[0] = run(labels, *inputs)
        last[0].backward()
        optimizer.step()

    reset()
    return Case(call, lambda: [last[0].detach().cpu().numpy()], reset)

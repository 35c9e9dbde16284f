"""Cases of `torch_cases` on hybridml: their inputs as tensors, values and gradients beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

import hybridml as hm
from hybridml import nn

from .by_operation import by_operation
from .closeness import assert_close
from .torch_cases import CONSTANT, arrays, cotangent, state

R = TypeVar("R")


def firsts(names: Iterable[str]) -> list[str]:
    """The first case of each function or class."""
    return list({name.split()[0]: name for name in reversed([*names])}.values())


def in_one_form(name: str, names: Iterable[str], check: Callable[[], R]) -> R:
    """A check with native calls for the first case of a function and for all of products; others run by operation.

    Their options are what PyTorch's record is for. Native calls of each would be 4 ms of LLVM a kernel, and are
    compared with those by operation in test_compiled_composites.
    """
    native = name in firsts(names) or name.lower().startswith(SUMS)
    return check() if native else by_operation(check)


def inputs_of(name: str, inputs: dict[str, Any], device: str = "cpu") -> Any:
    found = {key: hm.tensor(array, device=device) for key, array in arrays(name, inputs).items()}
    for key, tensor in found.items():
        if tensor.dtype.kind == "f" and key not in CONSTANT:
            tensor.requires_grad_()
    return SimpleNamespace(**found)


SUMS = ("conv", "linear", "bilinear", "attention", "cdist")  # functions whose value is a sum of products


def close_value(got: hm.Tensor, expected: np.ndarray, name: str) -> None:
    """The value of a case; its inputs, and so the terms of what it adds up, are of about 1."""
    assert_close(got.detach().cpu(), expected, "value", terms=largest(expected) if name.startswith(SUMS) else 1.0)


def close_gradient(tensor: hm.Tensor, expected: np.ndarray, name: str) -> None:
    got = hm.zeros_like(tensor) if tensor.grad is None else tensor.grad
    assert_close(got.cpu(), expected, f"gradient of {name}", terms=largest(expected))


def largest(expected: np.ndarray) -> float:
    return float(np.abs(expected).max(initial=1.0))


def close_to_record(name: str, case: Any, library: Any, values: Any, device: str = "cpu") -> None:
    """Checks the value and the gradients of a function, called under PyTorch's names, against those recorded."""
    key = f"F {name}"
    t = inputs_of(name, case.inputs, device)
    out = case.run(library, t)
    assert out.device == device
    close_value(out, values[f"{key}|out"], name)
    if out.requires_grad:
        (out * hm.asarray(cotangent(key, out.shape), device=device)).sum().backward()
    for input_name, tensor in vars(t).items():
        expected = values.get(f"{key}|grad {input_name}")
        if expected is not None:
            close_gradient(tensor, expected, input_name)


def module_close_to_record(name: str, case: Any, values: Any, keys: Any, device: str = "cpu") -> Any:
    """Checks the keys of a module, its value, gradients and buffers against those recorded. The module."""
    key = f"M {name}"
    t, module = inputs_of(name, case.inputs, device), case.make(nn).train(case.train)
    expected = {k: tuple(shape) for k, shape in keys[name].items()}
    assert {k: v.shape for k, v in module.state_dict().items()} == expected
    module.load_state_dict(state(name, expected))
    module.to(device)
    out = case.call(module, t)
    assert out.device == device
    assert_close(out.detach().cpu(), values[f"{key}|out"], "value", terms=largest(values[f"{key}|out"]))
    if out.requires_grad:
        (out * hm.asarray(cotangent(key, out.shape), device=device)).sum().backward()
    for tensor_name, tensor in [*vars(t).items(), *module.named_parameters()]:
        gradient = values.get(f"{key}|grad {tensor_name}")
        if gradient is not None:
            close_gradient(tensor, gradient, tensor_name)
    for buffer_name, buffer in module.named_buffers():
        assert_close(buffer.cpu(), values[f"{key}|after {buffer_name}"], buffer_name, terms=1.0)
    return module

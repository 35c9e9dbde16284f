"""Cases of `torch_cases` on hybridml: their inputs as tensors, values and gradients beside PyTorch's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

import hybridml as hm

from .closeness import assert_close
from .torch_cases import CONSTANT, arrays, cotangent


def inputs_of(name: str, inputs: dict[str, Any]) -> Any:
    found = {key: hm.tensor(array) for key, array in arrays(name, inputs).items()}
    for key, tensor in found.items():
        if tensor.dtype.kind == "f" and key not in CONSTANT:
            tensor.requires_grad_()
    return SimpleNamespace(**found)


SUMS = ("conv", "linear", "bilinear", "attention", "cdist")  # functions whose value is a sum of products


def close_value(got: hm.Tensor, expected: np.ndarray, name: str) -> None:
    """The value of a case; its inputs, and so the terms of what it adds up, are of about 1."""
    assert_close(got.detach(), expected, "value", terms=largest(expected) if name.startswith(SUMS) else 1.0)


def close_gradient(tensor: hm.Tensor, expected: np.ndarray, name: str) -> None:
    got = hm.zeros_like(tensor) if tensor.grad is None else tensor.grad
    assert_close(got, expected, f"gradient of {name}", terms=largest(expected))


def largest(expected: np.ndarray) -> float:
    return float(np.abs(expected).max(initial=1.0))


def close_to_record(name: str, case: Any, library: Any, values: Any) -> None:
    """Checks the value and the gradients of a function, called under PyTorch's names, against those recorded."""
    key = f"F {name}"
    t = inputs_of(name, case.inputs)
    out = case.run(library, t)
    close_value(out, values[f"{key}|out"], name)
    if out.requires_grad:
        (out * hm.asarray(cotangent(key, out.shape))).sum().backward()
    for input_name, tensor in vars(t).items():
        expected = values.get(f"{key}|grad {input_name}")
        if expected is not None:
            close_gradient(tensor, expected, input_name)

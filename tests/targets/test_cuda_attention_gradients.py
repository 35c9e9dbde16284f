"""Gradients of attention as generated kernels: against the CPU, what is in memory, and broken in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.schedule import cost
from hybridml_compiler.schedule.launch import Plan
from hybridml_compiler.targets.cuda.target import CudaCode
from tests.support.closeness import assert_close
from tests.support.cuda import SIM, compiled, needs_nvrtc

pytestmark = needs_nvrtc
attention = hm.functional.scaled_dot_product_attention
Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small scores are fused as large ones."""
    monkeypatch.setattr(cost, "CHAIN_BYTES", 1 << 10)


def some(*shape: int, seed: int = 0) -> Any:
    return hm.tensor(np.random.default_rng(seed).standard_normal(shape).astype("f4"))


def operands(batch: tuple[int, ...], queries: int, keys: int, features: int, values: int) -> list[Any]:
    shapes = ((queries, features), (keys, features), (keys, values), (queries, values))
    return [some(*batch, *shape, seed=k) for k, shape in enumerate(shapes)]


def causal(q: Any, k: Any, v: Any) -> Any:
    return attention(q, k, v, is_causal=True)


def scaled(q: Any, k: Any, v: Any) -> Any:
    return attention(q, k, v, scale=-0.4)


def grouped(q: Any, k: Any, v: Any) -> Any:
    return attention(q, k, v, enable_gqa=True)


# The last operand of each is the gradient of the result; the first three are differentiated.
CASES: dict[str, tuple[Function, list[Any]]] = {
    "plain": (attention, operands((2, 2), 70, 90, 20, 24)),
    "causal": (causal, operands((2,), 64, 64, 32, 32)),
    "causal, odd": (causal, operands((2,), 51, 51, 16, 16)),
    "mask": (attention, [*operands((2,), 70, 90, 16, 16), some(70, 90) > -0.5]),
    "mask of heads": (attention, [*operands((2, 2), 33, 40, 16, 16), some(2, 2, 33, 40) > -0.5]),
    "added mask": (attention, [*operands((2,), 70, 90, 16, 16), some(70, 90)]),
    "scale": (scaled, operands((2,), 40, 33, 16, 16)),
    "heads of 64": (attention, operands((1, 2), 33, 80, 64, 64)),
    "heads of 80": (causal, operands((2,), 40, 40, 80, 80)),
    "heads of 128": (attention, operands((1,), 40, 33, 128, 128)),
    "no batch": (attention, operands((), 33, 40, 16, 16)),
    "grouped": (grouped, [some(4, 40, 16), some(2, 33, 16, seed=1), some(2, 33, 16, seed=2), some(4, 40, 16, seed=3)]),
    "blocks": (causal, operands((1,), 256, 256, 16, 16)),
}


def gradients(function: Function) -> Function:
    """(result, gradients of queries, keys and values) of attention."""

    def program(q: Any, k: Any, v: Any, g: Any, *mask: Any) -> Any:
        q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
        out = function(q, k, v, *mask)
        return [out, *hm.autograd.grad([out], [q, k, v], [g])]

    return program


@contextmanager
def planned() -> Iterator[list[Plan]]:
    """The plans of programs that are compiled inside."""
    made: list[Plan] = []

    def finish(self: CudaCode, plan: Plan, *rest: Any) -> Any:
        made.append(plan)
        return before(self, plan, *rest)

    before = CudaCode.finish
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CudaCode, "finish", finish)
        yield made


def arguments(name: str, dtype: str) -> list[Any]:
    return [x.astype(dtype) if x.dtype.kind == "f" else x for x in CASES[name][1]]


def ran(name: str, dtype: str) -> tuple[list[Any], list[Plan], dict[str, Any]]:
    """(results there, plans, code by text)."""
    with compiled() as made, planned() as plans:
        found = hm.trace(gradients(CASES[name][0]))(*(x.to(SIM) for x in arguments(name, dtype)))
    return [x.cpu() for x in found], plans, {code.text: code for code in made}


def check_memory(name: str, plans: list[Plan], codes: dict[str, Any]) -> None:
    """No array of queries by keys is in memory, and no product is a kernel of its own."""
    q, k = CASES[name][1][:2]
    least = q.shape[-2] * k.shape[-2] * (2 if name != "blocks" else 1)  # bytes of a matrix of 16 bits
    assert not any("in tiles of" in text and "products of" not in text for text in codes), list(codes)
    for plan in plans:
        sizes = {buffer.what: buffer.nbytes for buffer in plan.buffers}
        matrices = int(np.prod(q.shape[:-2]))
        largest = max(x.nbytes for x in CASES[name][1][:4])
        assert max(sizes.values()) < max(least * matrices, largest + 1), sizes


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    found, plans, codes = ran(name, "float32")
    assert sum("products of" in text for text in codes) >= 1
    check_memory(name, plans, codes)
    for a, b in zip(found, gradients(CASES[name][0])(*arguments(name, "float32")), strict=True):
        assert_close(a, b)

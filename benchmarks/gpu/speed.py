"""Figures of kernels, library calls and launches."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import hybridml as hm
from hybridml import functional as F
from hybridml_compiler.targets.cuda.executable import CudaExecutable
from hybridml_compiler.targets.device import empty

from .device import DTYPES, Check, Record, torch_ms, torch_of


def bandwidth(check: Check) -> Record:
    """Fused kernels beside a copy of the same bytes, in GB/s."""
    found: Record = {}
    side = check.size(8192, 64)
    nbytes = side * side * 4
    source, target = (empty(check.gpu, (side, side), np.dtype("f4")) for _ in range(2))
    driver, stream = check.gpu.driver, check.gpu.stream

    def copy() -> None:
        driver.copy(target.memory.pointer, source.memory.pointer, nbytes, stream)

    found["copy"] = {"GB/s": check.tried(lambda: 2 * nbytes / check.milliseconds(copy) / 1e6)}
    here = hm.tensor(np.ones((side, side), np.float32))
    for name, x in (("upload", here), ("upload of page-locked memory", here.pin_memory(check.device))):

        def upload(x: Any = x) -> None:
            x.to(check.device, non_blocking=True)

        found[name] = {"GB/s": check.tried(lambda upload=upload: nbytes / check.milliseconds(upload) / 1e6)}
    cases: dict[str, tuple[Callable[..., Any], int]] = {
        "gelu(x * 1.5 + 1)": (lambda x: F.gelu(x * 1.5 + 1), 2),
        "softmax of rows": (lambda x: F.softmax(x, -1), 2),
        "layer_norm of rows": (lambda x: F.layer_norm(x, (side,)), 2),
        "sum of all": (lambda x: x.sum(), 1),
        "sum of columns": (lambda x: x.sum(0), 1),
        "transpose": (lambda x: (x.mT + 0).contiguous(), 2),
    }

    def rate(fn: Callable[..., Any], passes: int, dtype: str) -> float:
        x, run = check.array(side, side, dtype=dtype), hm.trace(fn)
        return float(passes * x.nbytes / check.milliseconds(lambda: run(x)) / 1e6)

    for dtype, (name, (fn, passes)) in itertools.product(DTYPES, cases.items()):
        found[f"{name}, {dtype}"] = {"GB/s": check.tried(partial(rate, fn, passes, dtype))}
    return found


def products(check: Check) -> Record:
    """Matrix products beside torch's, which are cuBLAS's, in TFLOP/s."""
    sizes = check.size(1024, 32), check.size(4096, 48)
    kinds = ("float32", "tf32", "bfloat16")
    return {f"{n} x {n} x {n}, {kind}": _product(check, n, kind) for n, kind in itertools.product(sizes, kinds)}


def _product(check: Check, n: int, kind: str) -> Record:
    dtype = "bfloat16" if kind == "bfloat16" else "float32"
    x, y = check.array(n, n, dtype=dtype), check.array(n, n, dtype=dtype, seed=1)
    plain, fused = hm.trace(lambda x, y: x @ y), hm.trace(lambda x, y: F.gelu(x @ y + 1))
    os.environ["HYBRIDML_TF32"] = str(int(kind == "tf32"))
    try:
        found = {
            "x @ y": check.tried(lambda: _tflops(n, check.milliseconds(lambda: plain(x, y)))),
            "gelu(x @ y + 1)": check.tried(lambda: _tflops(n, check.milliseconds(lambda: fused(x, y)))),
        }
    finally:
        del os.environ["HYBRIDML_TF32"]
    torch = torch_of(check)
    if torch is not None:
        torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
        a, b = (torch.randn(n, n, device="cuda", dtype=getattr(torch, dtype)) for _ in range(2))
        found["torch"] = check.tried(lambda: _tflops(n, torch_ms(torch, lambda: a @ b)))
    return found


def attention(check: Check) -> Record:
    """Attention, and it with its gradients, beside torch's, in TFLOP/s of two products and of seven."""
    usual = {(4, 16, 2048, 64): False, (4, 16, 2048, 128): False, (32, 16, 256, 32): True}
    shapes = {(1, 2, 16, 8): False} if check.small else usual
    return {
        f"{' x '.join(map(str, shape))}{', causal' * causal}, {dtype}": _attention(check, shape, causal, dtype)
        for (shape, causal), dtype in itertools.product(shapes.items(), DTYPES)
    }


def _attention(check: Check, shape: tuple[int, ...], causal: bool, dtype: str) -> Record:
    batch, heads, length, width = shape
    work = (2 if causal else 4) * batch * heads * length**2 * width / 1e9
    q, k, v, g = (check.array(*shape, dtype=dtype, seed=n) for n in range(4))
    forward = hm.trace(partial(F.scaled_dot_product_attention, is_causal=causal))
    both = hm.trace(lambda q, k, v, g: hm.vjp(forward, q, k, v)[1](g))
    found = {
        "traced": check.tried(lambda: work / check.milliseconds(lambda: forward(q, k, v))),
        "traced, with gradients": check.tried(lambda: 3.5 * work / check.milliseconds(lambda: both(q, k, v, g))),
    }
    torch = torch_of(check)
    return found if torch is None else found | _torch_attention(check, torch, shape, causal, dtype, work)


def _torch_attention(
    check: Check, torch: Any, shape: tuple[int, ...], causal: bool, dtype: str, work: float
) -> dict[str, Any]:
    given = [torch.randn(*shape, device="cuda", dtype=getattr(torch, dtype), requires_grad=True) for _ in range(3)]
    forward = partial(torch.nn.functional.scaled_dot_product_attention, *given, is_causal=causal)
    g = torch.randn_like(given[0])

    def plain() -> None:
        with torch.no_grad():
            forward()

    def both() -> None:
        torch.autograd.grad(forward(), given, g)

    return {
        "torch": check.tried(lambda: work / torch_ms(torch, plain)),
        "torch, with gradients": check.tried(lambda: 3.5 * work / torch_ms(torch, both)),
    }


def _tflops(n: int, ms: float) -> float:
    return 2 * n**3 / ms / 1e9


def launches(check: Check) -> Record:
    """Microseconds of small programs: one operation, and a chain of small kernels with and without graphs."""
    x = check.array(256, 256)
    calls, steps = check.size(200, 2), check.size(10, 1)

    def chain(x: Any) -> Any:
        for _ in range(steps):
            x = F.softmax(x.sum(0, keepdim=True) * 0.01 + x, 0)
        return x

    found: Record = {"eager x + 1": check.wall(lambda: x + 1, calls)}
    replayed = hm.trace(chain)
    found["a chain of kernels, replayed"] = check.wall(lambda: replayed(x), calls)
    original = CudaExecutable.replayed
    CudaExecutable.replayed = lambda self: self  # type: ignore[method-assign]
    try:
        single = hm.trace(lambda x: chain(x))
        found["a chain of kernels, one by one"] = check.wall(lambda: single(x), calls)
    finally:
        CudaExecutable.replayed = original  # type: ignore[method-assign]
    found["launches"] = replayed.stats.kernels
    weights = [check.array(64, 8).requires_grad_() for _ in range(check.size(50, 3))]
    optimizer = hm.optim.Adam(weights, 1e-3)

    @hm.trace
    def step() -> None:
        optimizer.zero_grad()
        hm.stack([(w * w).sum() for w in weights]).sum().backward()
        optimizer.step()

    found["an Adam step of many small tensors"] = check.wall(step, calls)
    torch = torch_of(check)
    if torch is not None:
        t = torch.randn(256, 256, device="cuda")

        def torch_chain(t: Any) -> Any:
            for _ in range(steps):
                t = torch.softmax(t.sum(0, keepdim=True) * 0.01 + t, 0)
            return t

        found["torch eager x + 1"] = check.wall(lambda: t + 1, calls)
        found["torch eager chain"] = check.wall(lambda: torch_chain(t), calls)
        compiled = torch.compile(torch_chain, mode="reduce-overhead")  # needs a compiler of C
        found["torch.compile with graphs, chain"] = check.tried(lambda: check.wall(lambda: compiled(t), calls))
    return found

"""What this machine can do at most, measured: multiply-adds a second and bytes a second, with kernels of a few lines.

A program's arithmetic and traffic, divided by its time, are set against these.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

CHAINS = 24  # independent accumulators: more than latency x units of any core so far, fewer than its registers
ROUNDS = 200_000
CACHED, UNCACHED = 1 << 19, 1 << 27  # bytes a thread: within a core's own cache, beyond every cache


def fma_text(lanes: int) -> str:
    """LLVM IR of `ROUNDS` x `CHAINS` multiply-adds of `lanes` floats."""
    kind, chains = f"<{lanes} x float>", range(CHAINS)
    ramp = ", ".join(f"float {k}.5" for k in range(lanes))
    phis = "\n".join(f"  %a{k} = phi {kind} [ <{ramp}>, %entry ], [ %b{k}, %loop ]" for k in chains)
    body = "\n".join(
        f"  %b{k} = call {kind} @llvm.fma({kind} %a{k}, {kind} %m, {kind} %a{(k + 1) % CHAINS})" for k in chains
    )
    sums = "\n".join(f"  %s{k} = fadd {kind} {f'%s{k - 1}' if k else '%m'}, %b{k}" for k in chains)
    return f"""
declare {kind} @llvm.fma({kind}, {kind}, {kind})
define float @kernel(ptr %data, i64 %count) {{
entry:
  %one = load float, ptr %data
  %v = insertelement {kind} undef, float %one, i32 0
  %m = shufflevector {kind} %v, {kind} undef, <{lanes} x i32> zeroinitializer
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %n, %loop ]
{phis}
{body}
  %n = add i64 %i, 1
  %more = icmp ult i64 %n, %count
  br i1 %more, label %loop, label %done
done:
{sums}
  %r = extractelement {kind} %s{CHAINS - 1}, i32 0
  ret float %r
}}"""


def read_text(lanes: int) -> str:
    """LLVM IR that adds up `count` blocks of 8 vectors."""
    kind, ways = f"<{lanes} x float>", range(8)
    phis = "\n".join(f"  %a{k} = phi {kind} [ zeroinitializer, %entry ], [ %b{k}, %loop ]" for k in ways)
    body = "\n".join(
        f"  %p{k} = getelementptr {kind}, ptr %row, i64 {k}\n  %x{k} = load {kind}, ptr %p{k}, align 4\n"
        f"  %b{k} = fadd {kind} %a{k}, %x{k}"
        for k in ways
    )
    sums = "\n".join(f"  %s{k} = fadd {kind} {f'%s{k - 1}' if k else 'zeroinitializer'}, %b{k}" for k in ways)
    return f"""
define float @kernel(ptr %data, i64 %count) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %n, %loop ]
{phis}
  %at = mul i64 %i, 8
  %row = getelementptr {kind}, ptr %data, i64 %at
{body}
  %n = add i64 %i, 1
  %more = icmp ult i64 %n, %count
  br i1 %more, label %loop, label %done
done:
{sums}
  %r = extractelement {kind} %s7, i32 0
  ret float %r
}}"""


def compiled(text: str) -> tuple[Any, Callable[[int, int], float]]:
    """The engine, to be kept, and the kernel; calls of it release the interpreter."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), opt=2)
    module = llvm.parse_assembly(text)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_void_p, ctypes.c_int64)
    return engine, kind(engine.get_function_address("kernel"))


def lanes_of_host() -> int:
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return 16 if features.get("avx512f") else 8 if features.get("avx") else 4


def rate(kernel: Callable[[int, int], float], arrays: list[np.ndarray], count: int, work: float) -> float:
    """`work` a thread over the shortest of some rounds, all threads at once."""
    best = float("inf")
    with ThreadPoolExecutor(len(arrays)) as pool:
        for _ in range(8):
            start = time.perf_counter()
            list(pool.map(lambda array: kernel(array.ctypes.data, count), arrays))
            best = min(best, time.perf_counter() - start)
    return work * len(arrays) / best


def limits(threads: int) -> dict[str, float]:
    """Multiply-adds as GF/s and reading as GB/s, from memory and from a core's cache: on one core and on `threads`."""
    lanes = lanes_of_host()
    fma_engine, fma = compiled(fma_text(lanes))
    read_engine, read = compiled(read_text(lanes))
    block = 8 * 4 * lanes
    found: dict[str, float] = {}
    for count in sorted({1, threads}):
        ones = [np.ones(UNCACHED // 4, np.float32) for _ in range(count)]
        halves = [np.full(16, 0.5, np.float32) for _ in range(count)]
        found[f"gflops_{count}"] = rate(fma, halves, ROUNDS, 2.0 * ROUNDS * CHAINS * lanes) / 1e9
        found[f"memory_gbs_{count}"] = rate(read, ones, UNCACHED // block, UNCACHED) / 1e9
        # In cache, a call is long enough to be timed only when the same block is read many times.
        engine, repeated = compiled(
            read_text(lanes).replace(
                "%at = mul i64 %i, 8", f"%w = and i64 %i, {CACHED // block - 1}\n  %at = mul i64 %w, 8"
            )
        )
        found[f"cache_gbs_{count}"] = rate(repeated, ones, UNCACHED // block, UNCACHED) / 1e9
        del engine
    del fma_engine, read_engine
    return found

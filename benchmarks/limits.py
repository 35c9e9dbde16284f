"""What this machine can do at most, measured: multiply-adds a second and bytes a second, with kernels of a few lines.

A program's arithmetic and traffic, divided by its time, are set against these.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np

CHAINS = 24  # independent accumulators: more than latency x units of any core so far, fewer than its registers
STEPS = 250_000  # of all accumulators: 2 ms, of which the waking of a thread is a fiftieth
CACHED, UNCACHED = 1 << 19, 1 << 27  # bytes a thread: within a core's own cache, beyond every cache
# Two threads that begin on one core stay there for tens of milliseconds, and another program may have one for longer:
# eight rounds of 1.5 ms once gave 113 GF/s where two cores have 220. Each rate is the best round of some passes over
# all kinds, which take 2 to 3 s together. Beside programs that keep all cores busy, rounds of 15 ms had no whole one.
PASSES, SECONDS = 4, 0.05
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

Kernel = Callable[[int, int], float]


def fma_text(lanes: int) -> str:
    """LLVM IR of `count` x `CHAINS` multiply-adds of `lanes` floats."""
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


def read_text(lanes: int, blocks: int = 0) -> str:
    """LLVM IR that adds up `count` blocks of 8 vectors; with `blocks`, a power of 2, the first so many over again."""
    kind, ways = f"<{lanes} x float>", range(8)
    phis = "\n".join(f"  %a{k} = phi {kind} [ zeroinitializer, %entry ], [ %b{k}, %loop ]" for k in ways)
    body = "\n".join(
        f"  %p{k} = getelementptr {kind}, ptr %row, i64 {k}\n  %x{k} = load {kind}, ptr %p{k}, align 4\n"
        f"  %b{k} = fadd {kind} %a{k}, %x{k}"
        for k in ways
    )
    sums = "\n".join(f"  %s{k} = fadd {kind} {f'%s{k - 1}' if k else 'zeroinitializer'}, %b{k}" for k in ways)
    block = f"and i64 %i, {blocks - 1}" if blocks else "add i64 %i, 0"
    return f"""
define float @kernel(ptr %data, i64 %count) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %n, %loop ]
{phis}
  %block = {block}
  %at = mul i64 %block, 8
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


def compiled(text: str) -> tuple[Any, Kernel]:
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


def last_cache() -> int:
    """Bytes of the last level of cache; 0 where the system does not say."""
    sizes = {path.parent / "level": path.read_text().strip() for path in CACHES.glob("index*/size")}
    levels = [(int(level.read_text()), int(size[:-1]) << 10) for level, size in sizes.items() if size.endswith("K")]
    return max(levels, default=(0, 0))[1]


@dataclass(frozen=True)
class Kind:
    """A kernel that does `work` in `count` rounds on each array. `engine` holds its code."""

    engine: Any
    kernel: Kernel
    arrays: Sequence[np.ndarray]
    count: int
    work: float


def rate(kind: Kind) -> float:
    """The work of all threads, which begin each round together, over the shortest round."""
    rounds = max(2, int(SECONDS / min(run_once(kind, kind.arrays[0]) for _ in range(2))))
    together = Barrier(len(kind.arrays))

    def run(array: np.ndarray) -> list[tuple[float, float]]:
        spans = []
        for _ in range(rounds):
            together.wait()
            start = time.perf_counter()
            spans.append((start, start + run_once(kind, array)))
        return spans

    with ThreadPoolExecutor(len(kind.arrays)) as pool:
        found = list(pool.map(run, kind.arrays))
    best: float = min(max(end for _, end in one) - min(start for start, _ in one) for one in zip(*found, strict=True))
    return kind.work * len(kind.arrays) / best


def run_once(kind: Kind, array: np.ndarray) -> float:
    """Seconds."""
    address: int = array.ctypes.data
    start = time.perf_counter()
    kind.kernel(address, kind.count)
    return time.perf_counter() - start


def kinds(count: int, lanes: int, share: int) -> dict[str, Kind]:
    """What is measured on so many threads; `share`: bytes of the last cache that each reads."""
    halves = [np.full(16, 0.5, np.float32) for _ in range(count)]
    ones = [np.ones(UNCACHED // 4, np.float32) for _ in range(count)]
    found = {f"gflops_{count}": Kind(*compiled(fma_text(lanes)), halves, STEPS, 2.0 * STEPS * CHAINS * lanes)}
    within = {"memory": 0, "cache": CACHED}
    if share:
        within["last"] = 1 << share.bit_length() - 1
    block = 8 * 4 * lanes
    for name, size in within.items():
        reader = compiled(read_text(lanes, size // block))
        found[f"{name}_gbs_{count}"] = Kind(*reader, ones, UNCACHED // block, UNCACHED)
    return found


def limits(threads: int) -> dict[str, float]:
    """Multiply-adds as GF/s and reading as GB/s, from memory, from the last cache (of `last_bytes`, where known) and
    from a core's own: on one core and on `threads`."""
    last_bytes = last_cache()
    share = last_bytes // 2 // threads  # half of all: others may use it too; one thread alone reads no more than of two
    asked = {key: kind for n in sorted({1, threads}) for key, kind in kinds(n, lanes_of_host(), share).items()}
    found: dict[str, float] = dict.fromkeys(asked, 0.0)
    for _ in range(PASSES):
        for key, kind in asked.items():
            found[key] = max(found[key], rate(kind) / 1e9)
    return found | {"last_bytes": last_bytes}

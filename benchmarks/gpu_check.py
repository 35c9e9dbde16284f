"""Device "cuda" on a real GPU: is it right, and how fast is it?

`python -m benchmarks.gpu_check` runs every check in eight minutes, and writes `benchmarks/results/gpu.json` after each
of them and the page `docs/gpu.md` at the end. Nothing is fetched: what is not installed (pytest, PyTorch, JAX,
compute-sanitizer) is left out and said. Without a GPU it says so in one line. `--device cuda:sim --small` runs the
script itself on a machine that has none.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hybridml as hm
from hybridml import functional as F
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.targets.cuda.availability import availability
from hybridml_compiler.targets.cuda.cupy_rows import ROWS as CUPY_ROWS
from hybridml_compiler.targets.cuda.executable import CudaExecutable
from hybridml_compiler.targets.device import empty
from hybridml_compiler.targets.registry import find_device

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "gpu.json"
SECONDS = 450.0  # of all checks together; a check that has not begun by then is left out
SANITIZERS = ("memcheck", "racecheck", "synccheck")
# Kinds of rows whose sums are added in another order than the CPU's or the simulator's.
REORDERED = ("reduction", "contraction", "convolution")
DTYPES = {"float32": hm.float32, "bfloat16": hm.bfloat16}

Record = dict[str, Any]


class Check:
    """The device that all checks run on, and how large everything is."""

    def __init__(self, device: str, small: bool, ends: float) -> None:
        self.device, self.small, self.ends = device, small, ends
        self.gpu: Any = find_device(device)

    def left(self) -> float:
        """Seconds until the end."""
        return self.ends - time.monotonic()

    def tried(self, measure: Callable[[], Any]) -> Any:
        """A measurement, or why there is none: the others are made all the same."""
        if self.left() < 0:
            return "left out: no time"
        try:
            return measure()
        except Exception as error:
            return f"{type(error).__name__}: {error}".splitlines()[0][:200]

    def size(self, usual: int, small: int) -> int:
        return small if self.small else usual

    def array(self, *shape: int, dtype: str = "float32", seed: int = 0) -> Any:
        values = np.random.default_rng(seed).standard_normal(shape, np.float32)
        return hm.tensor(values).to(self.device).to(DTYPES[dtype])

    def milliseconds(self, call: Callable[[], object], repeats: int = 20) -> float:
        """The median of some runs by the device's own clock, each of as many calls as take two milliseconds."""
        for _ in range(3):
            call()
        repeats = self.size(repeats, 2)
        count = self.size(max(1, min(200, int(2 / max(self._timed(call, 1), 1e-3)))), 1)
        return statistics.median(self._timed(call, count) for _ in range(repeats))

    def _timed(self, call: Callable[[], object], count: int) -> float:
        with hm.cuda.device(self.device):
            start, end = hm.cuda.Event(enable_timing=True), hm.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(count):
                call()
            end.record()
            end.synchronize()
            return start.elapsed_time(end) / count

    def wall(self, call: Callable[[], object], calls: int) -> float:
        """Microseconds of the host for each of so many calls, and until the device has done them."""
        for _ in range(3):
            call()
        found = []
        for _ in range(self.size(7, 2)):
            self.gpu.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            self.gpu.synchronize()
            found.append((time.perf_counter() - start) / calls * 1e6)
        return statistics.median(found)


# ---- is it right?


def rows(check: Check) -> Record:
    """Every row of the operation table, on the device beside the CPU and the simulated device."""
    from tests.support.closeness import assert_close, same_bits
    from tests.support.on_devices import results

    tally: Counter[str] = Counter()
    wrong: dict[str, str] = {}
    ops = list(itertools.islice(OPS.values(), check.size(10**6, 12)))
    for op in ops:
        if check.left() < 0:
            break
        sample = next(iter(op.samples(np.random.default_rng(0))), None)
        if sample is None or op.name == "transfer":
            continue
        try:
            here, simulated, there = (
                results(op, sample, device, grad=False) for device in ("cpu", "cuda:sim", check.device)
            )
            for a, b, c in zip(here, simulated, there, strict=True):
                library = op.name in CUPY_ROWS
                if library and op.results:  # vectors are defined up to a sign, or phase
                    a, b, c = abs(a), abs(b), abs(c)
                assert_close(c, a, rtol=1e-3 if library else None)
                tally["the bits of the simulator"] += same_bits(c, b)
                tally["the bits of the CPU"] += same_bits(c, a)
                tally["results"] += 1
                if op.kind not in REORDERED and not library and not same_bits(c, b):
                    wrong[op.name] = "other bits than the simulator"
        except Exception as error:
            wrong[op.name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return {"rows": len(ops), **tally, "wrong": wrong}


def suite(check: Check) -> Record:
    """The tests of devices on this one, where what runs tests is installed; the rows of the table have a check of their
    own."""
    missing = [name for name in ("pytest", "hypothesis") if importlib.util.find_spec(name) is None]
    if missing:
        return {"left out": f"{' and '.join(missing)} not installed"}
    files = (
        "tests/targets/test_cuda_driver.py",
        "tests/targets/test_cuda_page_locked.py",
        "tests/targets/test_cuda_random.py",
        "tests/core/test_devices.py",
        "tests/control_flow/test_control_devices.py",
    )
    chosen = "gpu or (test_devices and not row) or test_control_devices"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", chosen]
    run = _run(command, min(150.0, check.left()), HYBRIDML_TEST_DEVICE=check.device)
    return {"status": run.returncode, "said": run.stdout.splitlines()[-30:]}


def sanitizer(check: Check) -> Record:
    """compute-sanitizer over a few programs."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(tool):
        return {"left out": "compute-sanitizer is not here"}
    found: Record = {}
    for name in SANITIZERS:
        command = [tool, "--tool", name, "--error-exitcode", "9", sys.executable, "-m", "benchmarks.gpu_check"]
        run = _run([*command, "--device", check.device, "--programs"], min(60.0, check.left()))
        found[name] = {"status": run.returncode, "said": run.stdout.splitlines()[-6:]}
    return found


def programs(device: str) -> None:
    """Programs with every kind of kernel, run twice: what the sanitizer looks at."""
    x = hm.tensor(np.random.default_rng(0).standard_normal((33, 130), np.float32)).to(device).requires_grad_()
    for _ in range(3):
        loss = (F.softmax(x @ x.mT, -1) + F.layer_norm(x, (130,))[:, :33]).cumsum(0).sum() + x[
            hm.arange(5).to(device)
        ].max()
        loss.backward()
    assert x.grad is not None and bool(hm.isfinite(x.grad).all())


def streams(check: Check) -> Record:
    """Checks what no simulator shows: two streams at the same time, and memory that PyTorch's stream shares."""
    n = check.size(2048, 8)
    x, y = check.array(n, n), check.array(n, n, seed=1)
    run = hm.trace(lambda x: F.softmax(x @ x * 0.01, -1) @ x)

    def product(x: Any) -> Any:
        for _ in range(check.size(4, 1)):
            x = run(x) @ y
        return x

    def beside() -> bool:
        """The bits of products on two streams are those of one stream."""
        alone = [product(x).cpu().numpy(), product(y).cpu().numpy()]
        with hm.cuda.device(check.device):
            ours, found = [hm.cuda.Stream(), hm.cuda.Stream()], []
            for _, (stream, start) in itertools.product(range(check.size(4, 2)), zip(ours, (x, y), strict=True)):
                with hm.cuda.stream(stream):
                    found.append(product(start))
        return all(np.array_equal(a.cpu().numpy(), alone[k % 2]) for k, a in enumerate(found))

    found: Record = {"two streams": check.tried(beside)}
    torch = _torch(check)
    if torch is not None:

        def given() -> bool:
            """PyTorch reads what our stream has not computed yet; our memory is not used again before it has."""
            expected, seen = product(x).cpu().numpy(), []
            for _ in range(8):
                seen.append(torch.from_dlpack(product(x)).mul(1))  # ours is freed at once
                product(y)
            return all(np.array_equal(t.cpu().numpy(), expected) for t in seen)

        def taken() -> bool:
            """We read what PyTorch's stream has not computed yet; its memory is not used again before we have."""
            base, seen = torch.randn(n, n, device="cuda"), []
            chain = partial(torch.linalg.multi_dot, [base] * 6)
            expected = (chain() * 2).cpu().numpy()
            for _ in range(8):
                seen.append(hm.from_dlpack(chain()) * 2)  # theirs is freed at once
                torch.randn(n, n, device="cuda")
            return all(np.array_equal(t.cpu().numpy(), expected) for t in seen)

        found |= {"ours to PyTorch": check.tried(given), "PyTorch's to us": check.tried(taken)}
    return found


def _run(command: Sequence[str], seconds: float, **variables: str) -> subprocess.CompletedProcess[str]:
    wait, both = max(seconds, 5), {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        return subprocess.run(command, cwd=ROOT, timeout=wait, text=True, env={**os.environ, **variables}, **both)
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
        text = said.decode(errors="replace") if isinstance(said, bytes) else said
        return subprocess.CompletedProcess(command, 124, f"{text}\nstopped after {seconds:.0f} s")


# ---- how fast is it?


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
    torch = _torch(check)
    if torch is not None:
        torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
        a, b = (torch.randn(n, n, device="cuda", dtype=getattr(torch, dtype)) for _ in range(2))
        found["torch"] = check.tried(lambda: _tflops(n, _torch_ms(torch, lambda: a @ b)))
    return found


def attention(check: Check) -> Record:
    """Attention, forward, beside torch's, in TFLOP/s."""
    shape = (4, 16, 2048, 64) if not check.small else (1, 2, 16, 8)
    batch, heads, length, width = shape
    found: Record = {}
    torch = _torch(check)
    work = 4 * batch * heads * length**2 * width / 1e9

    def traced(dtype: str) -> float:
        q, k, v = (check.array(*shape, dtype=dtype, seed=n) for n in range(3))
        return work / check.milliseconds(partial(hm.trace(F.scaled_dot_product_attention), q, k, v))

    def theirs(dtype: str) -> float:
        given = [torch.randn(*shape, device="cuda", dtype=getattr(torch, dtype)) for _ in range(3)]
        return work / _torch_ms(torch, partial(torch.nn.functional.scaled_dot_product_attention, *given))

    for dtype in DTYPES:
        found[f"{' x '.join(map(str, shape))}, {dtype}"] = entry = {"traced": check.tried(partial(traced, dtype))}
        if torch is not None:
            entry["torch"] = check.tried(partial(theirs, dtype))
    return found


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
    torch = _torch(check)
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


def training(check: Check) -> Record:
    """Training steps of the CPU's list, at batch sizes that fill the chip, in milliseconds."""
    from . import training as tasks

    usual = {
        "mlp": tasks.mlp(4096, 2048), "gpt": tasks.gpt(32, 256, 512, 6, 8192), "lstm": tasks.lstm(256, 64, 512),
        "resnet18": tasks.resnet18(64, 128), "ncf": tasks.ncf(16384),
    }  # fmt: skip
    small = {"mlp": tasks.mlp(4, 16)}
    found: Record = {}
    for name, task in (small if check.small else usual).items():
        found[name] = entry = {}
        arrays = task.arrays(np.random.default_rng(0))
        for who, case in _candidates(check, task, arrays):
            entry[who] = check.tried(partial(_trained, check, case))
    return found


def _trained(check: Check, case: Callable[[], Any]) -> Record:
    made, losses = case(), []
    for _ in range(3):
        made.call()
        losses.append(float(made.read()[0]))
    return {"ms": check.wall(made.call, check.size(10, 1)) / 1e3, "losses": losses}


def _candidates(check: Check, task: Any, arrays: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    from . import ours

    yield "traced", lambda: ours.training(task, arrays, "traced", check.device)
    yield "eager", lambda: ours.training(task, arrays, "eager", check.device)
    if _torch(check) is not None:
        from . import with_torch

        yield "torch eager", lambda: with_torch.training(task, arrays, "eager", "cuda")
        yield "torch.compile", lambda: with_torch.training(task, arrays, "compiled reduce-overhead", "cuda")
    if importlib.util.find_spec("jax") is not None and not check.small:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # it would take three quarters of the memory
        from . import with_jax

        yield "JAX", lambda: with_jax.training(task, arrays, "traced")


def _torch(check: Check) -> Any:
    """PyTorch, where it is installed and sees the GPU."""
    if check.device == "cuda:sim" or importlib.util.find_spec("torch") is None:
        return None
    import torch

    return torch if torch.cuda.is_available() else None


def _torch_ms(torch: Any, call: Callable[[], object]) -> float:
    for _ in range(5):
        call()
    found = []
    for _ in range(20):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(5):
            call()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / 5)
    return statistics.median(found)


# ---- all of it

CHECKS: dict[str, Callable[[Check], Record]] = {
    "rows": rows, "suite": suite, "streams": streams, "bandwidth": bandwidth, "products": products,
    "attention": attention, "launches": launches, "training": training, "sanitizer": sanitizer,
}  # fmt: skip


def machine(device: str) -> Record:
    """Names and versions of the machine that was measured."""
    found = availability()
    gpu = hm.cuda.get_device_properties(device)
    return {
        "device": device, "gpu": gpu.name, "architecture": f"sm_{gpu.major}{gpu.minor}",
        "memory": gpu.total_memory, "multiprocessors": gpu.multi_processor_count, "driver": found.driver,
        "cupy": found.cupy, "nvrtc": found.nvrtc, "python": platform.python_version(), "hybridml": hm.__version__,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_check", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default=",".join(CHECKS), help="names of checks, separated by commas")
    parser.add_argument("--small", action="store_true", help="tiny sizes: whether the script runs, no figures")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of all checks together")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--programs", action="store_true", help="run some programs and nothing else")
    options = parser.parse_args(arguments)
    problem = availability().problem
    if problem and options.device != "cuda:sim":
        print(f"no GPU to check: {problem}")
        return 0
    if options.programs:
        programs(options.device)
        return 0
    check = Check(options.device, options.small, time.monotonic() + options.seconds)
    record: Record = {"machine": machine(options.device), "checks": {}}
    for name in options.only.split(","):
        start = time.monotonic()
        try:
            found = CHECKS[name](check) if check.left() > 0 else {"left out": "no time"}
        except Exception:
            found = {"failed": traceback.format_exc().splitlines()[-12:]}
        record["checks"][name] = {**found, "seconds": round(time.monotonic() - start, 1)}
        print(f"{name}: {json.dumps(record['checks'][name])[:2000]}", flush=True)
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if options.json == RESULTS:
        from .gpu_page import write

        write()
    return 0


if __name__ == "__main__":
    sys.exit(main())

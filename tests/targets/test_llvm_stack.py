"""How much stack generated code takes: read from the LLVM IR of programs, and asked of the threads that run it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from benchmarks import ours
from benchmarks.workloads import WORKLOADS
from hybridml import functional as F
from hybridml_compiler.errors import CompileError
from hybridml_compiler.runtime import stacks
from hybridml_compiler.targets.cpu.llvm import ir
from hybridml_compiler.targets.cpu.runtime import scratch
from hybridml_compiler.targets.cpu.spec import host_spec

MOST = 64 << 10  # bytes of a chain of calls
BYTES = {"ptr": 8, "float": 4, "double": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}
rng = np.random.default_rng(7)


def array(*shape: int) -> hm.Tensor:
    return hm.tensor(rng.standard_normal(shape).astype(np.float32))


def stack_of(text: str) -> int:
    """Bytes of the largest chain of calls: a function that names another may call it."""
    own: dict[str, int] = {}
    called: dict[str, set[str]] = {}
    name = ""
    for line in text.splitlines():
        if found := re.match(r"define .*?@([\w.]+)\(", line):
            name = found[1]
            own[name], called[name] = 0, set()
        elif found := re.match(r"  \S+ = alloca (\w+), i64 (\d+)(, align \d+)?$", line):
            own[name] += BYTES[found[1]] * int(found[2])
        else:
            assert "alloca" not in line, f"memory of no known size: {line}"
            called.setdefault(name, set()).update(re.findall(r"@([\w.]+)", line))

    def chain(function: str) -> int:
        return own[function] + max((chain(f) for f in called[function] if f in own), default=0)

    return max(map(chain, own))


def convolution_step(kernel: int, groups: int = 1, channels: int = 64) -> Any:
    x, w = array(2, channels, 40, 40), array(channels, channels // groups, kernel, kernel)

    @hm.trace
    def step(x: hm.Tensor, w: hm.Tensor) -> Any:
        y, pull = hm.vjp(lambda x, w: F.relu(F.conv2d(x, w, padding=kernel // 2, groups=groups)), x, w)
        return pull(y)

    step(x, w)
    return step


def accumulators() -> Any:
    f = hm.trace(lambda x: (x.sum(0), (x * x).sum(0), x.max(0), (x + 1).sum(0)))
    f(array(512, 2048))
    return f


def many_operands() -> Any:
    f = hm.trace(lambda *xs: hm.concatenate(xs))
    f(*[array(2 + k % 3) for k in range(300)])
    return f


def workload(name: str) -> Any:
    made: list[Any] = []
    before = hm.trace
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hm, "trace", lambda *args, **names: made.append(before(*args, **names)) or made[-1])
        WORKLOADS[name].case(ours, WORKLOADS[name].arrays(), "traced").call()
    return made[-1]


PROGRAMS: dict[str, Callable[[], Any]] = {
    "3x3": lambda: convolution_step(3),
    "5x5": lambda: convolution_step(5),
    "1x1": lambda: convolution_step(1),
    "depthwise": lambda: convolution_step(3, groups=64),
    "groups": lambda: convolution_step(3, groups=16),
    "few channels": lambda: convolution_step(5, channels=2),
    "accumulators": accumulators,
    "operands": many_operands,
    **{name: lambda name=name: workload(name) for name in ("attention", "linear_gelu", "matmul_bf16", "matmul_int8")},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_stack_of_a_program_is_bounded(name: str) -> None:
    assert 0 < stack_of(PROGRAMS[name]().llvm) <= MOST


def function(name: str = "kernel") -> ir.IRBuilder:
    module = ir.Module("test", host_spec())
    made = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.IntType(1)]), name)
    return ir.IRBuilder(made.append_basic_block("entry"))


def test_memory_beyond_the_bound_is_not_on_the_stack() -> None:
    b = function()
    b.memory(ir.FloatType(), ir.STACK_BYTES // 4 - 16)
    b.memory(ir.FloatType(), 16)
    b.memory(ir.FloatType(), 1)
    b.memory(ir.DoubleType(), 1000)
    b.ret_void()
    text = str(b.module)
    assert text.count("alloca") == 2 and text.count(f"call ptr @{scratch.SCRATCH}()") == 1
    assert stack_of(text) == ir.STACK_BYTES
    assert "i64 8064" in text  # 64 bytes for the float, 8000 for the rest


def test_functions_of_a_module_share_the_bound() -> None:
    b = function()
    b.memory(ir.IntType(8), ir.STACK_BYTES)
    other = ir.Function(b.module, ir.FunctionType(ir.VoidType(), []), "other")
    ir.IRBuilder(other.append_basic_block("entry")).memory(ir.IntType(8), 1)
    assert str(b.module).count("alloca") == 1


def test_unbounded_memory_is_refused() -> None:
    b = function()
    with pytest.raises(CompileError, match=r"kernel: .* is more than the \d+ bytes of scratch memory"):
        b.memory(ir.FloatType(), 1 << 20)
    with pytest.raises(CompileError, match=r"kernel: .* has no bound"):
        b.memory(ir.FloatType(), b.append("add i64 1, 2", ir.IntType(64)))  # type: ignore[arg-type]
    with b.if_then(b.function.args[0]), pytest.raises(CompileError, match="not from within a loop or branch"):
        b.memory(ir.FloatType())
    b.memory(ir.FloatType())


SMALL_STACKS = """
import sys, threading
import numpy as np, hybridml as hm
threading.stack_size(int(sys.argv[1]))
from hybridml import functional as F
from hybridml_compiler.targets.cpu.spec import host_spec
rng = np.random.default_rng(0)
x, w, deep = (rng.standard_normal(s).astype("f") for s in ((2, 64, 40, 40), (64, 64, 3, 3), (64, 1, 3, 3)))
done = []
def work():
    for taps, groups in ((w, 1), (deep, 64)):
        f = hm.trace(lambda x, w: F.conv2d(x, w, padding=1, groups=groups))
        for _ in range(3):
            y = f(hm.tensor(x), hm.tensor(taps))
        hm.set_num_threads(1)
        assert (f(hm.tensor(x), hm.tensor(taps)) == y).all()
        hm.set_num_threads(2)
    done.append(threading.stack_size())
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert done == [int(sys.argv[1])], "the setting of the program is as it was"
"""


LEAST = 65536 if sys.version_info < (3, 14) else 131072  # Python 3.14 needs more to import a module from its source


@pytest.mark.parametrize("size", [LEAST, 262144])
def test_threads_with_small_stacks(size: int) -> None:
    """In processes: what fails is a segmentation fault. 17 of 108 such did."""
    done = subprocess.run([sys.executable, "-c", SMALL_STACKS, str(size)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_stacks_stay_large_while_another_thread_starts_one() -> None:
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        with stacks.roomy():
            inside.set()
            done.wait(20)

    before = threading.stack_size(1 << 18)
    thread = threading.Thread(target=other)
    try:
        with stacks.roomy():
            thread.start()
            assert inside.wait(20)
        assert threading.stack_size() == stacks.LEAST
        done.set()
        thread.join(20)
        assert threading.stack_size() == 1 << 18
    finally:
        done.set()
        threading.stack_size(before)


LONG_ROWS = """
import numpy as np, hybridml as hm
x = np.random.default_rng(0).standard_normal(140_000).astype("f")
for stride, c in ((1, 1), (5, 1), (1, 2)):
    rows = hm.tensor(x.reshape(1, c, -1))
    w = hm.tensor(np.ones((8, c, 3), "f"), requires_grad=True)
    hm.functional.conv1d(rows, w, stride=stride).sum().backward()
    y = rows.numpy()[0].astype("d")
    count = (y.shape[1] - 3) // stride + 1
    want = np.stack([y[:, k : k + count * stride : stride].sum(1) for k in range(3)], 1)
    assert np.abs(w.grad.numpy() - want).max() < 0.05, stride
"""


def test_gradients_over_long_rows() -> None:
    """A row of sound is longer than what may be turned at once; on the stack it ended the process."""
    done = subprocess.run([sys.executable, "-c", LONG_ROWS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_rows_too_long_for_a_row_of_zeros() -> None:
    from hybridml_compiler import dtypes
    from hybridml_compiler.schedule.kernels.convolution import Convolution, Strided
    from hybridml_compiler.targets.cpu.kernels.conv_depthwise_nchw import planes_of
    from hybridml_compiler.targets.cpu.kernels.conv_tiling import Machine, tiling_of

    def convolution(width: int) -> Convolution:
        strides = (4 * 3 * width, width, 1, 3 * width, 1)
        size = (3, width)
        image, taps = Strided(0, strides), Strided(0, (12, 4, 1, 1, 1))
        return Convolution(
            dtypes.float32, 1, size, size, (3, 3), 4, 1, 1, (1, 1), (1, 1), (1, 1), image, taps, channels_first=True
        )

    machine = Machine(64, 32, 2)
    assert planes_of(convolution(1000), machine) and tiling_of(convolution(1000), machine)
    assert planes_of(convolution(3_000_000), machine) is None is tiling_of(convolution(3_000_000), machine)


def test_there_is_scratch_memory_in_every_thread() -> None:
    assert scratch.prepare() and scratch.prepare()
    assert stacks.LEAST >= 4 * MOST
    assert scratch.THREAD_BYTES >= 2 * ir.SCRATCH_BYTES


NO_MEMORY = """
import resource, threading, numpy as np, hybridml as hm
a, b = (hm.tensor(np.ones(s, "f")) for s in ((512, 784), (784, 64)))
f = hm.trace(lambda a, b: a @ b)
for _ in range(3):  # the last ones by native code, which LLVM makes
    want = f(a, b)
seen, wait = [], threading.Event()
def work():
    wait.wait()
    held = []
    for size in (3 << 20, 1 << 18):  # all that there is, but for a little
        try:
            while True:
                held.append(np.empty(size, "u1"))
        except MemoryError:
            del held[-3:]
    try:
        f(a, b)
    except MemoryError as error:
        seen.append(str(error))
thread = threading.Thread(target=work)
thread.start()
before = resource.getrlimit(resource.RLIMIT_AS)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 20), before[1]))
wait.set()
thread.join()
resource.setrlimit(resource.RLIMIT_AS, before)
assert len(seen) == 1, seen
assert "bytes that this thread works in" in seen[0], seen
assert (f(a, b) == want).all()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the size of the process is read from /proc")
def test_no_memory_is_an_error() -> None:
    """A thread that cannot have its memory raises before anything runs; in a process, which is short of memory."""
    done = subprocess.run([sys.executable, "-c", NO_MEMORY], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr

"""Device "cuda" without a GPU: the same programs on the simulated driver and on CuPy's, over a stand-in for CuPy."""

from __future__ import annotations

import ctypes
import re
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.errors import DeviceError
from hybridml_compiler.targets import registry
from hybridml_compiler.targets.cuda.device import CudaDevice
from hybridml_compiler.targets.cuda.executable import CudaExecutable
from hybridml_compiler.targets.cuda.machine import DeviceMachine
from hybridml_compiler.targets.cuda.simulated_driver import SimulatedDriver
from tests.support.closeness import assert_close
from tests.support.cuda import left_to_library, needs_nvrtc, planned_anew
from tests.support.examples import every
from tests.support.fake_cupy import FakeArray
from tests.support.gpus import Exporter, Gpu, array, gpu, there

__all__ = ["there"]
pytestmark = [needs_nvrtc, pytest.mark.usefixtures("own_devices")]


# ---- programs


def trained(device: str, trace: bool, steps: int = 6) -> tuple[list[float], list[np.ndarray]]:
    """Losses and weights of a small network with dropout, and the numbers that were drawn for it."""
    hm.manual_seed(3)
    model = hm.nn.Sequential(
        hm.nn.Linear(6, 16), hm.nn.LayerNorm(16), hm.nn.GELU(), hm.nn.Dropout(0.3), hm.nn.Linear(16, 3)
    ).to(device)
    optimizer = hm.optim.AdamW(model.parameters(), 0.02)

    def step(x: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        loss = hm.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    run = hm.trace(step) if trace else step
    losses = []
    for k in range(steps):
        x = array(8, 6, seed=k).to(device)
        labels = hm.tensor(np.arange(8) % 3).to(device)
        losses.append(float(run(x, labels)))
    return losses, [p.detach().cpu().numpy() for p in model.parameters()]


def test_a_training_step_is_replayed(there: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """With optimizer and random numbers: the bits of the launches one by one, and the CPU's numbers to rounding."""
    made: list[Any] = []
    original = CudaExecutable.replayed
    with monkeypatch.context() as patch:
        patch.setattr(CudaExecutable, "replayed", lambda self: self)
        plain = trained(there.name, trace=True)
    with monkeypatch.context() as patch:
        patch.setattr(CudaExecutable, "replayed", lambda self: made.append(original(self)) or made[-1])
        replayed = trained(there.name, trace=True)
    assert plain[0] == replayed[0]
    for a, b in zip(plain[1], replayed[1], strict=True):
        np.testing.assert_array_equal(a, b)
    (step,) = [exe.replay for exe in made if exe.replay is not None and exe.replay.calls > 2]
    assert step.calls >= 5 and 0 < step.misses < step.calls  # addresses came again
    losses, weights = trained("cpu", trace=True)
    np.testing.assert_allclose(losses, replayed[0], rtol=1e-4)
    for a, b in zip(weights, replayed[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.slow  # 14 s
def test_a_loop_comes_by_the_same_addresses_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights and moments of many steps, each in new memory: few graphs serve all of them."""
    made: list[Any] = []
    original = CudaExecutable.replayed
    monkeypatch.setattr(CudaExecutable, "replayed", lambda self: made.append(original(self)) or made[-1])
    there = gpu("simulated")
    weights = [array(8, 8, seed=k).to(there.name).requires_grad_() for k in range(6)]
    optimizer = hm.optim.Adam(weights, 0.01)

    @hm.trace
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        for w in weights:
            x = hm.tanh(x @ w)
        loss = (x**2).sum()
        loss.backward()
        optimizer.step()
        return loss

    losses, misses = [], []
    for k in range(50):  # after some steps, how many depends on where the host's memory is, no address is new
        losses.append(step(array(8, 8, seed=k).to(there.name)))
        misses.append(sum(exe.replay.misses for exe in made if exe.replay is not None))
    assert len({loss.item() for loss in losses}) == 50
    assert 0 < misses[30] == misses[-1] < 25


def test_a_replay_launches_once() -> None:
    there = gpu("cupy")
    f = hm.trace(lambda x: hm.functional.softmax((x @ x.mT).sum(0), 0) * hm.exp(x).sum(1))
    x = array(5, 5).to(there.name)
    results = []
    for _ in range(5):
        there.runtime.calls.clear()
        results.append(f(x).cpu().tolist())
    assert "graph" in there.runtime.calls and "launch" not in there.runtime.calls
    assert results == [results[0]] * 5


def test_arrays_that_never_come_again(there: Gpu) -> None:
    """A program whose arrays are always elsewhere gets memory of its own."""
    f = hm.trace(lambda x: (hm.exp(x).sum(0) * x).sum(1) + x.sum(0).sum())
    kept, before = [], hm.cuda.memory_allocated()
    for k in range(140):
        x = array(4, 4, seed=k)
        kept.append((f(x.to(there.name)), f(x)))
    assert hm.cuda.memory_allocated() - before < 200_000  # graphs keep no arrays of calls
    for a, b in kept:
        assert_close(a.cpu(), b)


def test_memory_of_a_capture_is_that_of_the_stream_of_its_call(there: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not of the stream that records it, which nobody asks for memory again."""
    made: list[Any] = []
    original = CudaExecutable.replayed
    monkeypatch.setattr(CudaExecutable, "replayed", lambda self: made.append(original(self)) or made[-1])
    f = hm.trace(lambda x: hm.scan(lambda c, row: (hm.exp(c).sum() * c + row, c * 2), x[0], x)[1] + x.sum(0))
    x = array(4, 4).to(there.name)
    for _ in range(3):
        f(x)
    (replay,) = [exe.replay for exe in made if exe.replay is not None]
    ((stream, blocks),) = replay._temporaries.values()
    assert {block.stream for block in blocks} == {stream} == {there.device.default_stream}


def test_a_library_and_the_host_have_a_part_in_a_replay(there: Gpu) -> None:
    """Operations of CuPy's or NumPy's and loops that look at a value stand between graphs."""

    def program(x: Any) -> Any:
        a = hm.exp(x * 0.1) + 3 * hm.eye(3, device=x.device)
        y = hm.linalg.solve(a, x) * 2
        z = hm.while_loop(lambda t: t.sum() < 50, lambda t: t * 2 + 1, hm.abs(y))
        return hm.functional.softmax(z, -1), hm.ldexp(z.sum(), 3), hm.linalg.eigvals(a + a.mT).real.sum() + 1

    f = hm.trace(program)
    used = []
    for k in range(6):
        used.append(hm.cuda.memory_allocated())
        x = array(3, 3, seed=k)
        for a, b in zip(f(x.to(there.name)), program(x), strict=True):
            assert a.device == there.name
            assert_close(a.cpu(), b)
    assert used[5] == used[4] == used[3]  # recordings keep no arrays of their calls
    kernels = f.explain().kernels
    copied, library = (
        {k.kind for k in kernels if words in k.reasons[-1]} for words in ("copied there", "on the device by CuPy")
    )
    assert library == {"solve by a routine", "NumPy's ldexp"} and copied == {"NumPy's eigvals"}


SHAPES = [
    ((4, 5), (5, 3)),
    ((7, 4, 5), (5, 3)),
    ((7, 4, 5), (7, 5, 3)),
    ((2, 3, 4, 5), (2, 3, 5, 6)),
    ((2, 1, 4, 5), (3, 5, 6)),
    ((2, 3, 1, 5), (2, 3, 5, 1)),
]


@pytest.mark.parametrize(("shapes", "library"), every(3, product(SHAPES, [True, False])))
def test_products(
    there: Gpu, shapes: tuple[tuple[int, ...], ...], library: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the library, and by kernels of ours."""
    planned_anew(monkeypatch)
    left_to_library(monkeypatch, always=library)
    a, b = (array(*shape, seed=k) for k, shape in enumerate(shapes))
    for x, y in ((a, b), (a.mT.contiguous().mT, b), (a, b.mT.contiguous().mT), (a.double(), b.double())):
        f = hm.trace(lambda x, y: hm.relu((x @ y).sum(0) + 1) * 2)
        for run in (hm.matmul, f, f, f):
            assert_close(run(x.to(there.name), y.to(there.name)).cpu(), run(x, y))
    dot = shapes[0][-2] == shapes[1][-1] == 1  # which is a sum, and no product
    assert there.blas is None or (len(there.blas.computes) > 0) == (library and not dot)
    for narrow in (hm.bfloat16, hm.float16):
        x, y = (z.to(narrow) for z in (a, b))
        assert_close((x.to(there.name) @ y.to(there.name)).cpu().float(), (x @ y).float())
        f = hm.trace(lambda x, y: x.float() @ y.float())  # read as they are stored
        assert_close(f(x.to(there.name), y.to(there.name)).cpu(), f(x, y))


def test_tf32_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    planned_anew(monkeypatch)
    left_to_library(monkeypatch, always=True)
    there = gpu("cupy")
    x = array(4, 4).to(there.name)
    x @ x
    monkeypatch.setenv("HYBRIDML_TF32", "1")
    x @ x
    assert there.blas.computes == [68, 77]


def test_a_profile_has_the_devices_time_of_each_launch(there: Gpu) -> None:
    f = hm.trace(lambda x: hm.functional.softmax(x @ x.mT, -1).sum(0) * 2)  # here
    x = array(6, 6).to(there.name)
    expected = [f(x).tolist() for _ in range(4)]
    with hm.profile() as found:
        seen = [f(x).tolist() for _ in range(2)]
    assert seen == expected[:2]  # one by one, and not by graphs
    launches = [event for event in found.events if event.kind == "launch"]
    assert len(launches) == 2 * f.stats.kernels > 2 and all(0 <= event.total_ns < 60e9 for event in launches)
    assert sum(event.total_ns for event in launches) > 0 and any("# here" in line for line in str(found).splitlines())
    assert f(x).tolist() == expected[0]


def test_streams_do_not_share_the_memory_that_products_work_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither eager products, nor those of a graph, which runs on the stream of its call and not on that of its
    capture."""
    planned_anew(monkeypatch)
    left_to_library(monkeypatch, always=True)
    there = gpu("cupy")
    x = array(4, 4).to(there.name)
    f = hm.trace(lambda x: hm.softmax(x @ x, -1) @ x)
    streams = [there.device.default_stream]
    for _ in range(3):
        f(x)
    with hm.cuda.device(there.name), hm.cuda.stream(hm.cuda.Stream()):
        streams.append(there.device.stream)
        x @ x
        for _ in range(2):
            f(x)
    first, second = there.blas.used.values()
    assert streams[0].ptr in first - second and streams[1].ptr in second - first
    assert len(first) == len(second) == 2  # and that of captures


# ---- errors


@pytest.mark.usefixtures("source_lines")
def test_an_index_out_of_range_names_the_users_line(there: Gpu) -> None:
    def chosen(x: Any, k: Any) -> Any:
        y = hm.exp(x * 2).sum(0)
        return y[k].sum() + x.sum()  # here

    traced = hm.trace(chosen)
    x, k, wrong = (t.to(there.name) for t in (hm.zeros((2, 4)), hm.tensor([1, -4]), hm.tensor([1, 7])))
    for _ in range(4):  # plain, recorded, replayed
        assert traced(x, k).item() == 4
    for run in (traced, traced, chosen):
        y = run(x, wrong)
        with pytest.raises(IndexError, match=r"test_cuda_driver\.py:\d+: .*  # here$"):
            y.item()
    assert traced(x, k).item() == 4


@pytest.mark.parametrize("kind", ["simulated", "cupy"])
def test_out_of_memory_names_the_lines_and_leaves_state_whole(kind: str) -> None:
    there = gpu(kind, memory=1 << 20)
    w = hm.ones((64, 64)).to(there.name).requires_grad_()
    optimizer = hm.optim.Adam([w], 0.1)

    @hm.trace
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = ((x @ w) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    small = array(16, 64).to(there.name)
    first = [step(small).item() for _ in range(2)]
    before = w.detach().cpu().numpy(), {k: v for k, v in optimizer.state_dict()["state"][0].items()}
    with pytest.raises(hm.cuda.OutOfMemoryError, match="no memory for") as error:
        held = array(1024, 64).to(there.name)  # here
        step(array(1024, 64).to(there.name))
    assert isinstance(error.value, MemoryError)
    assert "# here" in str(error.value) and re.search(r"test_cuda_driver\.py:\d+: .*in use|KiB", str(error.value))
    np.testing.assert_array_equal(w.detach().cpu().numpy(), before[0])
    del held
    assert step(small).item() < first[1] < first[0]
    stats = hm.cuda.memory_stats(there.name)
    assert stats["num_ooms"] >= 1 and stats["allocated_bytes.all.current"] < 1 << 20


def test_a_captured_stream_cannot_be_read() -> None:
    driver = SimulatedDriver()
    device = CudaDevice(driver, registry.find_target("cuda:sim"))
    block, stream = device.allocate(16), driver.stream()
    driver.begin_capture(stream)
    with pytest.raises(DeviceError, match="while it is captured"):
        driver.read(block.pointer, stream)
    with pytest.raises(DeviceError, match="while it is captured"):
        driver.synchronize(stream)
    driver.zero(block.pointer, 16, stream)
    graph = driver.end_capture(stream)
    assert set(driver.read(block.pointer, stream)) == {0xFF}  # new memory, and nothing has been done
    driver.replay(graph, stream)
    assert set(driver.read(block.pointer, stream)) == {0}


# ---- memory, streams, events


def test_blocks_are_used_again(there: Gpu) -> None:
    def allocated() -> int:
        return hm.cuda.memory_allocated()

    start = allocated()
    x = hm.zeros(1000, device=there.name)
    assert allocated() - start == 4096 and hm.cuda.max_memory_allocated() >= allocated()
    raw = x._array.memory.raw
    del x
    assert allocated() == start and hm.cuda.memory_reserved() >= start + 4096
    y = hm.ones(1020, device=there.name)
    assert y._array.memory.raw is raw or y._array.memory.raw == raw
    del y
    hm.cuda.reset_peak_memory_stats()
    assert hm.cuda.max_memory_allocated() == start
    hm.cuda.empty_cache()
    assert hm.cuda.memory_reserved() == start
    if there.runtime is not None:
        assert "free" in there.runtime.calls
    assert "test_cuda_driver.py" not in hm.cuda.memory_summary()


def test_the_part_of_memory_that_a_process_may_have(there: Gpu) -> None:
    hm.cuda.set_per_process_memory_fraction(0.001)
    total = hm.cuda.get_device_properties().total_memory
    assert hm.cuda.mem_get_info()[1] == int(0.001 * total)
    with pytest.raises(hm.cuda.OutOfMemoryError):
        hm.zeros(total // 2000, device=there.name)
    with pytest.raises(DeviceError, match="from 0 to 1"):
        hm.cuda.set_per_process_memory_fraction(2)


def test_streams_wait_for_what_they_read(there: Gpu) -> None:
    x = array(3, 4).to(there.name)
    stream = hm.cuda.Stream()
    with hm.cuda.stream(stream):
        assert hm.cuda.current_stream() == stream != hm.cuda.default_stream()
        assert isinstance(stream.cuda_stream, int)
        if there.runtime is not None:
            there.runtime.calls.clear()
        y = x * 2
        if there.runtime is not None:
            assert "wait_event" in there.runtime.calls
    assert hm.cuda.current_stream() == hm.cuda.default_stream()
    z = y + 1
    assert y._array.memory.stream is stream._stream and len(y._array.memory.users) == 1
    del y
    assert_close(z.cpu(), x.cpu() * 2 + 1)
    stream.synchronize()
    other = hm.cuda.Stream()
    other.wait_stream(stream)
    assert stream.query()


def test_memory_of_a_stream_is_for_that_stream(there: Gpu) -> None:
    """Work on it may be queued still; a stream that is gone leaves its memory to nobody but `empty_cache`."""
    hm.cuda.empty_cache()
    reserved = hm.cuda.memory_reserved()
    for _ in range(3):
        with hm.cuda.stream(hm.cuda.Stream()):
            x = array(100, 100).to(there.name)
        del x
    kept = hm.cuda.memory_reserved() - reserved
    assert kept == 3 * 40960
    hm.cuda.empty_cache()
    assert hm.cuda.memory_reserved() == reserved


def test_constants_outlive_a_program_until_streams_have_read_them(there: Gpu) -> None:
    device, numbers = there.device, np.ones(8)
    code: Any = SimpleNamespace()
    other = device.driver.stream()
    assert DeviceMachine(code, device, device.default_stream).memory(numbers).block.users == frozenset()
    assert DeviceMachine(code, device, other).memory(numbers).block.users == {other}


def test_events_tell_the_time(there: Gpu) -> None:
    start, end, untimed = (hm.cuda.Event(enable_timing=timed) for timed in (True, True, False))
    assert untimed.query()
    start.record()
    x = array(50, 50).to(there.name)
    hm.functional.softmax(x, -1)
    end.record()
    end.synchronize()
    assert 0 < start.elapsed_time(end) < 1e5
    untimed.record()
    with pytest.raises(DeviceError, match="enable_timing=True"):
        start.elapsed_time(untimed)
    hm.cuda.synchronize()


def test_names_of_the_device(there: Gpu) -> None:
    assert hm.cuda.get_device_name() and hm.cuda.get_device_capability() >= (8, 0)
    x = hm.ones(2).cuda(there.name)
    assert x.is_cuda and x.device == there.name and x.device.index == (0 if there.name == "cuda" else None)
    if there.name == "cuda":
        assert (
            hm.device("cuda:0") == hm.device("cuda") == "cuda:0"
            and x.to("cuda:0") is x
            and hm.cuda.current_device() == 0
        )
        assert hm.nn.Linear(2, 2).cuda().cuda(0).weight.device == "cuda" and x.cuda(0) is x
    with pytest.raises(DeviceError, match="'cpu' is no GPU"):
        hm.cuda.memory_allocated("cpu")


# ---- other libraries


def test_tensors_for_other_libraries() -> None:
    there = gpu("cupy")
    x = array(3, 4).to(there.name)
    assert x.__dlpack_device__() == (2, 0)
    interface = x.__cuda_array_interface__
    assert interface["shape"] == (3, 4) and interface["data"][0] == x._array.memory.raw
    assert not hasattr(hm.ones(2), "__cuda_array_interface__") and not hasattr(
        x.to(hm.bfloat16), "__cuda_array_interface__"
    )
    again = hm.from_dlpack(Exporter(x))
    assert again.device == there.name and again._array.memory.raw == x._array.memory.raw  # no copy
    assert again.cpu().tolist() == x.cpu().tolist()
    half = x.to(hm.bfloat16)
    back = hm.from_dlpack(Exporter(half))
    assert back.dtype == hm.bfloat16 and back.cpu().tolist() == half.cpu().tolist()
    with pytest.raises(DeviceError, match="out of NumPy's reach"):
        hm.ones(2).to("reference").__dlpack__()


def test_other_libraries_are_waited_for_and_wait() -> None:
    """Their stream does not know ours. It waits for what a tensor's memory holds, and the memory is used again when it
    has come so far; theirs is given back when our streams have."""
    there = gpu("cupy")
    others, ours = there.device.driver.others(), there.device.default_stream
    x = array(3, 4).to(there.name)
    x.__dlpack__()
    assert others.waited == [ours]
    assert x.__cuda_array_interface__ and others.waited == [ours] * 2
    ours.waited.clear()
    del x
    assert ours.waited == [others]
    y = hm.asarray(Exporter(np.zeros((2, 3), "f4").view(FakeArray)))
    with hm.cuda.device(there.name), hm.cuda.stream(hm.cuda.Stream()):
        z = y * 2
        used = there.device.stream
    others.waited.clear()
    del y
    assert set(others.waited) == {ours, used} and z.cpu().tolist() == [[0] * 3] * 2


def test_the_simulated_devices_memory_is_read_by_numpy() -> None:
    there = gpu("simulated")
    x = array(3, 4).to(there.name)
    seen = np.from_dlpack(x)
    assert seen.tolist() == x.tolist() and not seen.flags.writeable and x.__dlpack_device__() == (1, 0)
    assert not hasattr(x, "__cuda_array_interface__")
    old = np.from_dlpack(Exporter(x))  # a reader that cannot be told that memory is read-only gets a copy
    assert old.tolist() == x.tolist() and not np.shares_memory(old, seen)
    del x
    assert seen.any() and not np.isnan(seen).any()  # its memory is kept


def test_arrays_of_other_libraries() -> None:
    there = gpu("cupy")
    theirs = np.arange(6, dtype="f4").reshape(2, 3).view(FakeArray)
    x = hm.asarray(Exporter(theirs))
    assert x.device == there.name and (x * 2).cpu().tolist() == [[0, 2, 4], [6, 8, 10]]
    theirs[0, 0] = 7
    assert x.cpu()[0, 0] == 7  # the same memory
    only = SimpleNamespace(__cuda_array_interface__=None, __array_interface__=theirs.__array_interface__, keep=theirs)
    assert hm.asarray(only).cpu().tolist() == [[7, 1, 2], [3, 4, 5]]
    kept = x._array.memory.owner
    assert isinstance(ctypes.c_void_p(kept.data.ptr).value, int)

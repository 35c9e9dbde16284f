"""Calls of programs on a GPU: prepared launches, updates in place, and indices that nobody waits for."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import functional as F
from hybridml_compiler.targets.cuda.launching.calls import CallList
from hybridml_compiler.targets.device import DeviceArray, download
from tests.support.closeness import assert_close
from tests.support.cuda import needs_nvrtc
from tests.support.fake_cupy import FakeArray
from tests.support.gpus import Exporter, Gpu, array, gpu, there

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("own_devices")]
__all__ = ["there"]


# ---- updates


def test_an_updated_tensor_keeps_its_memory(there: Gpu) -> None:
    """Unless somebody else has it."""
    w = array(8, 8).to(there.name)

    @hm.trace
    def step(x: Any) -> Any:
        w.mul_(0.5)
        w.add_(x)
        return (w * x).sum(0)

    x = array(8, 8, seed=1).to(there.name)
    expected = w.cpu()

    def same(k: int = 1) -> None:
        nonlocal expected
        for _ in range(k):
            found = step(x)
            expected = expected * 0.5 + x.cpu()
            assert_close(w.cpu(), expected)
            assert_close(found.cpu(), (expected * x.cpu()).sum(0))

    same(4)
    address = w._array.memory.address
    same(3)
    assert w._array.memory.address == address
    for share in (w.detach, lambda: w.reshape(-1)):
        held = share()
        same()  # in other memory, and both follow
        assert_close(held.cpu().reshape(8, 8), w.cpu())
        assert w._array.memory.address != address
        del held
        same(2)
        address = w._array.memory.address
    for hold in (lambda: w._array, lambda: w._array.memory):  # as a history has it, or another library
        values, kept = w.cpu(), hold()
        array_of = kept if isinstance(kept, DeviceArray) else DeviceArray(w._array.kind, kept)
        same(2)
        np.testing.assert_array_equal(download(array_of), values)


@pytest.mark.parametrize("odd", [0, 1])
def test_memory_of_another_library_is_not_updated(odd: int) -> None:
    """Neither where it begins at 16 bytes, nor where a program is given a copy of it."""
    there = gpu("cupy")
    memory = np.zeros(128, "f4")
    first = -memory.ctypes.data // 4 % 4 + odd
    theirs = memory[first : first + 64]
    theirs[:] = 5
    p, g = hm.zeros(64).to(there.name), hm.ones(64).to(there.name)

    @hm.trace
    def step(g: Any) -> None:
        p.__isub__(g * 0.5)

    for _ in range(6):
        step(g)
    with hm.no_grad():
        p[...] = hm.from_dlpack(Exporter(theirs.view(FakeArray)))
    for expected in (4.5, 4.0, 3.5):
        step(g)
        assert p.cpu().tolist() == [expected] * 64 and (theirs == 5).all()


def test_what_the_cpu_computes_of_its_own_is_not_waited_for() -> None:
    """A step of an optimizer counts on the CPU, and reads nothing of the device."""
    there = gpu("cupy")
    weights = [array(4, 4, seed=k).to(there.name).requires_grad_() for k in range(3)]
    optimizer = hm.optim.Adam(weights, 0.1)

    @hm.trace
    def step() -> None:
        optimizer.zero_grad()
        hm.stack([(w * w).sum() for w in weights]).sum().backward()
        optimizer.step()

    for _ in range(4):
        step()
    there.runtime.downloaded = 0
    for _ in range(3):
        step()
    assert there.runtime.downloaded == 0
    assert all(state["step"] == 7 for state in optimizer.state_dict()["state"].values())


# ---- launches


def test_threads_launch_the_same_program() -> None:
    there = gpu("cupy")
    xs = [array(5, 7, seed=k).to(there.name) for k in range(4)]
    expected = [(x.cpu() * 2 + 1).numpy() for x in xs]
    f = hm.trace(lambda x: x * 2 + 1)
    f(xs[0]), xs[0] + 1
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(10):
            for run in (f, lambda x: x * 2 + 1):
                if not np.array_equal(run(xs[k]).cpu().numpy(), expected[k]):
                    wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_that_begins_anywhere() -> None:
    """Arrays of other libraries that kernels with wide accesses cannot read where they are."""
    gpu("cupy")
    whole = np.arange(66, dtype="f4")
    f = hm.trace(lambda x: hm.exp(x * 0.01) + 1)
    for first in (0, 1, 2, 0, 1):
        given = whole[first : first + 64].view(FakeArray)
        x = hm.asarray(given)
        expected = np.exp(given.view(np.ndarray) * np.float32(0.01)) + 1
        for run in (f, lambda x: hm.exp(x * 0.01) + 1):
            np.testing.assert_allclose(run(x).cpu().numpy(), expected, rtol=1e-6)


def test_launches_in_a_row_share_the_memory_that_they_work_in(there: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[CallList] = []
    made = CallList.__init__

    def noted(self: CallList, *arguments: Any) -> None:
        made(self, *arguments)
        found.append(self)

    monkeypatch.setattr(CallList, "__init__", noted)
    rows, ones = (t.to(there.name) for t in (hm.asarray(np.arange(100) % 7), hm.ones((100, 4))))

    def program(x: Any, times: int) -> Any:
        for k in range(times):
            x = hm.scatter_add(x, rows, ones * k, axis=0) * 2
        return x

    x, sizes = array(7, 4).to(there.name), []
    for times in (1, 3):
        expected = program(x, times).cpu()
        found.clear()
        f = hm.trace(lambda x, times=times: program(x, times))
        for _ in range(3):
            assert_close(f(x).cpu(), expected)
        (calls,) = found
        sizes.append(sum(nbytes for nbytes, _ in calls.temporaries))
    assert sizes[1] < 2 * sizes[0]


# ---- indices


def test_an_index_is_told_when_somebody_waits(there: Gpu) -> None:
    table = array(4, 2).to(there.name)
    good, bad = (hm.tensor(k).to(there.name) for k in ([0, 3], [1, 9]))
    f = hm.trace(lambda t, k: F.embedding(k, t) * 2)
    for run in (f, f, lambda t, k: t[k]):
        run(table, good).cpu()
        wrong = run(table, bad)  # this one
        after = run(table, good)  # nobody has asked yet
        with pytest.raises(IndexError, match="index 9 is out of range"):
            after.cpu()
        assert_close(after.cpu(), run(table, good).cpu())  # once
        assert wrong.shape == (2, 2)
        run(table, bad)
        with pytest.raises(IndexError, match="index 9"):
            hm.cuda.synchronize()
        hm.cuda.synchronize()
        with hm.cuda.stream(hm.cuda.Stream()):
            run(table, bad)
            with pytest.raises(IndexError, match="index 9"):
                hm.cuda.current_stream().synchronize()


@pytest.mark.usefixtures("source_lines")
def test_the_error_has_the_line_of_its_call(there: Gpu) -> None:
    table, bad = array(4, 2).to(there.name), hm.tensor([9]).to(there.name)
    for _ in range(20):
        table[bad]  # these
    with pytest.raises(IndexError, match="# these"):
        float(table.sum())
    assert float(table.sum()) is not None


def test_no_call_waits(there: Gpu) -> None:
    if there.runtime is None:
        pytest.skip("the stand-in counts what is read")
    table, good = array(4, 2).to(there.name), hm.tensor([0, 3]).to(there.name)
    f = hm.trace(lambda t, k: t[k] * 2)
    f(table, good)
    there.runtime.downloaded = 0
    for _ in range(3):
        f(table, good), table[good]
    assert there.runtime.downloaded == 0


def test_a_check_that_another_thread_looks_at_is_neither_lost_nor_told_twice(there: Gpu) -> None:
    checks: Any = there.device.checks

    class Watch:
        looked = 0

        def __init__(self) -> None:
            self.streams, self.calls = {1}, list[Any]()

        def failure(self) -> None:
            self.looked += 1
            checks.tell()  # as another thread

    watch = Watch()
    checks._pending[watch] = None
    checks.tell(object())  # on a stream that its call was not on
    assert watch.looked == 1 and watch in checks._pending
    checks.tell()
    assert watch.looked == 2 and watch not in checks._pending

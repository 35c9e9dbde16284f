"""Page-locked memory: copies to a GPU beside Python, from memory that stays until they are done."""

from __future__ import annotations

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.errors import DeviceError
from hybridml_compiler.targets.cuda import availability
from tests.support.closeness import assert_close
from tests.support.cuda import needs_nvrtc
from tests.support.gpus import Gpu, array, gpu, there

__all__ = ["there"]
pytestmark = [needs_nvrtc, pytest.mark.usefixtures("own_devices")]


def test_the_array_of_the_host_may_change_at_once(there: Gpu) -> None:
    """An upload has its values when it returns, however large it is."""
    array = np.ones((1 << 24 if there.pool.limit > 1 << 33 else 1 << 16,), "f4")
    x = hm.asarray(array, device=there.name)
    array[:] = 7
    assert bool((x == 1).all())


def test_pinned_memory_of_the_host_may_change_at_once() -> None:
    """CUDA reads it when the stream comes to it."""
    there, data = gpu("cupy"), np.ones(8, "f4")
    there.runtime.pinned[data.ctypes.data] = data.nbytes
    x = hm.asarray(data, device=there.name)
    data[:] = 7
    assert x.cpu().tolist() == [1] * 8


def test_a_gpu_that_reads_any_memory_of_the_host_is_waited_for() -> None:
    """It has no need of staging, and reads the array when the stream comes to it."""
    there, data = gpu("cupy"), np.ones(8, "f4")
    there.runtime.shares_pages = True
    x = hm.asarray(data, device=there.name)
    data[:] = 7
    assert x.cpu().tolist() == [1] * 8


def test_page_locked_memory_is_copied_later(there: Gpu) -> None:
    x = array(30, 20)
    pinned = x.pin_memory(there.name)
    assert pinned.is_pinned() and pinned[3:].T.is_pinned() and not x.is_pinned() and not (pinned + 1).is_pinned()
    assert pinned.tolist() == x.tolist() and pinned.pin_memory(there.name) is pinned and pinned.device == "cpu"
    found = pinned.to(there.name, non_blocking=True)
    assert (found * 2).cpu().tolist() == (x * 2).tolist()
    assert pinned.cuda(there.name, non_blocking=True).cpu().tolist() == x.tolist()
    assert pinned.T.to(there.name, non_blocking=True).cpu().tolist() == x.T.tolist()  # through a copy, at once
    hm.cuda.synchronize()
    pinned[...] = 7  # nothing is left to read it
    assert found.cpu().tolist() == x.tolist()


def test_a_copy_that_is_under_way_keeps_its_memory() -> None:
    there = gpu("cupy")
    there.runtime.calls.clear()
    found = array(30, 20).pin_memory(there.name).to(there.name, non_blocking=True)
    stream = there.device.default_stream
    assert stream.late and there.runtime.pinned and "synchronize" not in there.runtime.calls
    assert found.cpu().tolist() == array(30, 20).tolist() and not stream.late
    array(4).pin_memory(there.name).to(there.name, non_blocking=True)
    assert len(there.runtime.pinned) == 1  # that of the first is gone


def test_unless_it_may_be_late_a_copy_is_done(there: Gpu) -> None:
    pinned = array(30, 20).pin_memory(there.name)
    found, other = pinned.to(there.name), array(5).to(there.name, non_blocking=True)
    pinned[...] = 7
    assert found.cpu().tolist() == array(30, 20).tolist() and other.cpu().tolist() == array(5).tolist()


def test_memory_that_changes_before_it_is_copied() -> None:
    """On a GPU either value may arrive. The simulated one says so."""
    there = gpu("simulated")
    pinned = array(30, 20).pin_memory(there.name)
    found = pinned.to(there.name, non_blocking=True)
    pinned += 1
    with pytest.raises(
        DeviceError, match=r"\(30, 20\) was changed before its copy with non_blocking=True was waited for"
    ):
        found.cpu()
    late = gpu("cupy")
    pinned = array(30, 20).pin_memory("cuda")
    found = pinned.to("cuda", non_blocking=True)
    pinned += 1
    assert late.device.default_stream.late and found.cpu().tolist() == (array(30, 20) + 1).tolist()


def test_streams_order_late_copies(there: Gpu) -> None:
    """Another stream that reads what was copied waits for it, and an event says when the memory may change."""
    pinned, stream = array(30, 20).pin_memory(there.name), hm.cuda.Stream()
    with hm.cuda.stream(stream):
        found = pinned.to(there.name, non_blocking=True)
        event = stream.record_event()
    doubled = found * 2
    event.synchronize()
    pinned[...] = 0
    assert doubled.cpu().tolist() == (array(30, 20) * 2).tolist()


def test_gradients_go_through_page_locked_memory(there: Gpu) -> None:
    x = array(3, 4).requires_grad_()
    pinned = x.pin_memory(there.name)
    assert pinned.is_pinned() and pinned.requires_grad
    (pinned.to(there.name, non_blocking=True) * 3).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[3] * 4] * 3
    traced = hm.trace(lambda t: t.pin_memory(there.name) + 1)
    assert traced(x.detach()).tolist() == (x + 1).tolist()


def test_what_cannot_be_page_locked(there: Gpu) -> None:
    x = array(3, 4)
    assert x.pin_memory() is x or hm.cuda.is_available()
    with pytest.raises(DeviceError, match="only memory of the CPU can be pinned"):
        x.to(there.name).pin_memory(there.name)
    for device in ("cpu", "reference"):
        with pytest.raises(DeviceError, match=f"'{device}' is no GPU"):
            x.pin_memory(device)
    assert hm.zeros((0, 3)).pin_memory(there.name).shape == (0, 3)
    assert hm.tensor(2.0).pin_memory(there.name).to(there.name, non_blocking=True).item() == 2


def test_the_doctor_looks_at_page_locked_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu("cupy")
    found = availability.Availability((13, 0), 1, "14.2", (13, 0), (13, 0))
    monkeypatch.setattr(availability, "availability", lambda: found)
    findings = {what: (fine, said) for what, fine, said in hm.doctor().findings}
    assert findings["page-locked memory"] == (True, "copies with non_blocking=True are beside the CPU")
    x = array(3)
    assert x.pin_memory().is_pinned()  # of the first GPU, where there is one


def test_the_loader_takes_pin_memory(there: Gpu) -> None:
    data = hm.data.TensorDataset(array(10, 3), hm.arange(10))
    for workers in (0, 2):
        loader = hm.data.DataLoader(
            data, batch_size=4, pin_memory=True, pin_memory_device=there.name, num_workers=workers
        )
        found = []
        for x, y in loader:
            assert x.is_pinned() and y.is_pinned()
            found.append(x.to(there.name, non_blocking=True) * 2)
        assert_close(hm.concatenate(found).cpu(), array(10, 3) * 2)
    samples = [{"a": array(2), "b": "text"} for _ in range(3)]
    for batch in hm.data.DataLoader(samples, batch_size=2, pin_memory=True, pin_memory_device=there.name):
        assert batch["a"].is_pinned() and batch["b"][0] == "text"

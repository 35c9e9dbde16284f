"""Kernels that do not need each other in one launch of a GPU: the bits of their own launches, and few of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.targets.cuda import region as regions
from tests.support.closeness import assert_close
from tests.support.cuda import Counting, check_registers, compiled, gpu, needs_nvrtc, planned_anew

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("own_devices")]


@pytest.fixture(autouse=True)
def plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices of one name merge launches or do not."""
    planned_anew(monkeypatch)


def run(function: Callable[..., Any], driver: Counting, *arrays: np.ndarray) -> tuple[list[np.ndarray], int]:
    """The results on a device, and the launches of the second call."""
    traced, given = hm.trace(function), [hm.tensor(a).to(driver.name) for a in arrays]
    traced(*given)
    before = driver.launches
    found = [x.cpu().numpy() for x in traced(*given)]
    return found, driver.launches - before


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("f4")


def trained(driver: Counting, optimizer: str, shapes: list[tuple[int, ...]]) -> tuple[list[np.ndarray], int]:
    """Parameters after three traced steps, and the launches of the last."""
    weights = [hm.tensor(normal(*shape, seed=k)).to(driver.name).requires_grad_() for k, shape in enumerate(shapes)]
    optim = getattr(hm.optim, optimizer)(weights, 0.01)

    @hm.trace
    def step() -> Any:
        optim.zero_grad()
        loss = hm.stack([(w * w * w).sum() for w in weights]).sum()
        loss.backward()
        optim.step()
        return loss

    step(), step()
    before = driver.launches
    step()
    return [w.detach().cpu().numpy() for w in weights], driver.launches - before


@pytest.mark.parametrize(("optimizer", "most"), [("SGD", 5), ("Adam", 7)])  # sums have blocks of two sizes
def test_the_updates_of_fifty_tensors_are_few_launches(optimizer: str, most: int) -> None:
    shapes = [(8, 8), (8,), (5, 3)] * 16 + [(40, 30), (7,)]
    merged, few = trained(gpu(), optimizer, shapes)
    alone, many = trained(gpu("cuda:alone", merges=False), optimizer, shapes)
    assert few <= most and many >= 100
    for a, b in zip(merged, alone, strict=True):
        np.testing.assert_array_equal(a, b)


def mixed(x: Any, y: Any, z: Any) -> Any:
    """Kernels of ever other kinds: elementwise, of vectors, rows with shared memory, columns, positions."""
    return hm.exp(x) * 2, y + 1, hm.softmax(y, -1), z.sum(0), x.argmax(-1), hm.sum(x, -1), hm.tanh(z) - 1


@pytest.mark.parametrize("most_blocks", [3, 1024])
def test_kernels_of_all_kinds_share_a_launch(most_blocks: int) -> None:
    """Where there are fewer blocks than work they take turns, and wait for each other's shared memory."""
    arrays = normal(6, 70), normal(40, 300), normal(70, 5)
    driver = gpu(most_blocks=most_blocks)
    with compiled() as made:
        merged, few = run(mixed, driver, *arrays)
    alone, many = run(mixed, gpu("cuda:alone", merges=False, most_blocks=most_blocks), *arrays)
    assert few < many
    for a, b, c in zip(merged, alone, mixed(*map(hm.tensor, arrays)), strict=True):
        np.testing.assert_array_equal(a, b)
        assert_close(a, c.numpy())
    joined = next(code for code in made if "namespace stage1" in code.text)
    check_registers(joined.text, joined.source.block, 1, blocks=512 // joined.source.block)


def test_operands_that_begin_anywhere() -> None:
    """Kernels that load 16 bytes at once have another form for addresses that these cannot be loaded from."""

    def function(x: Any, y: Any) -> Any:
        return hm.exp(x), x * 3 - 1, y * 2

    x, y = normal(1 << 14), normal(10)
    driver = gpu()
    with compiled() as made:
        found, few = run(function, driver, x, y)
    assert few == 1 and max(code.source.alignment for code in made) == 16
    wide = next(code for code in made if code.source.alignment == 16)
    narrow = wide.anywhere()
    assert narrow.source.alignment == 1 and narrow.source.operands == wide.source.operands
    memory = [np.zeros(buffer.nbytes + 4, np.uint8)[4:] for buffer in wide.source.operands]
    for buffer, place in zip(wide.source.operands, memory, strict=True):
        if buffer.role == "in":
            place[:] = (x if buffer.size == x.size else y).view(np.uint8)
    narrow.function[0]().launch("kernel", narrow.source.total, narrow.source.block, [*memory, 0, narrow.source.total])
    made_there = [place.view("f4") for b, place in zip(wide.source.operands, memory, strict=True) if b.role != "in"]
    for a in made_there:
        assert any(a.size == b.size and (a == b).all() for b in found)


def test_a_launch_takes_so_many_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [normal(9, seed=k) for k in range(12)]

    def function(*xs: Any) -> Any:
        return tuple(hm.exp(x) + 1 for x in xs)

    whole, one = run(function, gpu(), *arrays)
    monkeypatch.setattr(regions, "_MOST_OPERANDS", 6)
    parts, four = run(function, gpu("cuda:few"), *arrays)
    assert (one, four) == (1, 4)
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_launch_has_no_more_shared_memory_than_a_block() -> None:
    """Each text has shared memory of its own: of seven transpositions in float64, 59 KB."""
    arrays = [normal(128, 128 + 32 * k, seed=k).astype("f8") for k in range(7)]
    with compiled() as made:
        found, few = run(lambda *xs: tuple(x.T + 1 for x in xs), gpu(), *arrays)
    assert few == 2
    for array, x in zip(arrays, found, strict=True):
        np.testing.assert_array_equal(x, array.T + 1)
    for text, threads in {code.text: code.source.block for code in made if "namespace" in code.text}.items():
        check_registers(text, threads, 1)


def test_a_kernel_of_more_operands_than_launches_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "_MOST_OPERANDS", 1)
    arrays = [normal(9, seed=k) for k in range(3)]
    found, few = run(lambda *xs: tuple(hm.exp(x) + 1 for x in xs), gpu(), *arrays)
    assert few == 3
    alone, _ = run(lambda *xs: tuple(hm.exp(x) + 1 for x in xs), gpu("cuda:alone", merges=False), *arrays)
    for a, b in zip(found, alone, strict=True):
        np.testing.assert_array_equal(a, b)

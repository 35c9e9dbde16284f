"""Reductions and scans on the simulated CUDA device: parts, squares of threads and positions against the CPU's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.schedule.plan import make_plan
from hybridml_compiler.targets.cuda import nvrtc, reductions
from hybridml_compiler.targets.cuda.emit.kernel import emit
from hybridml_compiler.targets.cuda.target import TARGET
from tests.support.closeness import assert_close, same_bits
from tests.support.cuda import SIM, check_registers, compiled, needs_nvrtc, sources
from tests.support.typical_graphs import array, graph, op

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f4")


def on_both(function: Callable[..., Any], given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = hm.tensor(given)
    return hm.trace(function)(x.to(SIM)).cpu().numpy(), function(x).numpy()


PROGRAMS: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
    "all": (lambda x: x.sum(), floats(4099)),
    "all in vectors": (lambda x: (x * x).sum(), floats(4096)),
    "rows": (lambda x: x.sum(1), floats(3, 2051)),
    "columns": (lambda x: x.sum(0), floats(301, 96)),
    "few columns": (lambda x: x.mean(0), floats(2003, 3)),
    "a prime number of columns": (lambda x: x.sum(0), floats(150, 53)),
    "a middle axis": (lambda x: x.sum(1), floats(3, 170, 20)),
    "variances of columns": (lambda x: x.var(0), floats(130, 48)),
    "several of columns": (lambda x: x.max(0) + x.sum(0) * x.min(0), floats(140, 40)),
    "images": (lambda x: x.mean((0, 2, 3)), floats(16, 5, 7, 9)),
    "variances of images": (lambda x: x.var((0, 2, 3)), floats(16, 3, 8, 9)),
    "channels last": (lambda x: x.mean((0, 1, 2)), floats(4, 9, 9, 24)),
    "normalized": (
        lambda x: (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True),
        floats(12, 4, 5, 15),
    ),
    "one row": (lambda x: hm.softmax(x, 0), floats(1000)),
    "one row of an odd number": (lambda x: (x - x.mean()) / x.std(), floats(333)),
    "bfloat16": (lambda x: hm.astype(hm.astype(x, hm.bfloat16).sum(1), hm.float32), floats(4, 1032)),
    "complex": (lambda x: x.sum(0), (floats(500, 6) + 1j * floats(500, 6)).astype("c8")),
    "complex rows": (lambda x: x.sum(1), (floats(3, 900) + 1j * floats(3, 900)).astype("c8")),
    "running": (lambda x: x.cumsum(1), floats(3, 1028)),
    "running products": (lambda x: hm.cumulative_prod(x, axis=1), 1 + floats(2, 261) / 50),
}


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reductions, "_LEAST_SPLIT", 2000)
    monkeypatch.setattr(reductions, "_LEAST_WORK", 2)


@needs_nvrtc
@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("name", PROGRAMS)
def test_sums(name: str) -> None:
    """Within the rounding of a sum in another order."""
    found, expected = on_both(*PROGRAMS[name])
    assert found.dtype == expected.dtype
    assert_close(found, expected)


def ties(n: int) -> np.ndarray:
    return RNG.integers(0, 9, n).astype("f4")


def with_nan(n: int) -> np.ndarray:
    values = floats(n)
    values[[n // 2, n - 1]] = np.nan
    return values


@needs_nvrtc
@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("shape", [(1, 6007), (1, 8192), (5, 700), (300, 20)])
@pytest.mark.parametrize("values", [ties, with_nan, floats, lambda n: np.full(n, -np.inf, "f4")])
def test_positions(shape: tuple[int, int], values: Callable[[int], np.ndarray]) -> None:
    """The position is NumPy's: that of the first extreme, or of the first nan."""
    x = values(shape[0] * shape[1]).reshape(shape)
    axis = 0 if shape[0] > shape[1] else 1
    found = hm.trace(lambda x: (x.argmax(axis), x.argmin(axis)))(hm.tensor(x).to(SIM))
    for result, expected in zip(found, (x.argmax(axis), x.argmin(axis)), strict=True):
        assert same_bits(result.cpu().numpy(), expected)


@needs_nvrtc
def test_running_sums_of_integers_are_exact() -> None:
    x = RNG.integers(-9, 9, (3, 1300))
    for function in (lambda x: x.cumsum(1), lambda x: hm.flip(hm.flip(x, 1).cumsum(1), 1)):
        found, expected = on_both(function, x)
        assert same_bits(found, expected)


# (shape, axes) and the blocks of each launch: enough for 132 multiprocessors wherever there is that much to read.
GRIDS: list[tuple[str, tuple[int, ...], tuple[int, ...], list[int]]] = [
    ("sum", (1 << 26,), (0,), [1024, 1]),
    ("sum", (1 << 20,), (0,), [256, 1]),
    ("sum", (1 << 14,), (0,), [1]),
    ("sum", (8192, 4096), (1,), [8192]),
    ("sum", (64, 1 << 20), (1,), [1024, 2]),
    ("sum", (8192, 4096), (0,), [1024, 32]),
    ("sum", (65536, 64), (0,), [1024, 2]),
    ("sum", (1000000, 10), (0,), [1250, 1]),
    ("mean", (32, 64, 56, 56), (0, 2, 3), [1024, 2]),
    ("var", (32, 64, 56, 56), (0, 2, 3), [1024, 1024, 2]),
    ("mean", (256, 2048, 7, 7), (0, 2, 3), [2048]),
    ("mean", (32, 56, 56, 64), (0, 1, 2), [1792, 2]),
    ("argmax", (1 << 24,), (0,), [1024, 1]),
    ("argmax", (8192, 32000), (1,), [8192]),
]  # fmt: skip


@needs_nvrtc
@pytest.mark.parametrize(("name", "shape", "axes", "blocks"), GRIDS)
def test_large_reductions_fill_a_gpu(
    name: str, shape: tuple[int, ...], axes: tuple[int, ...], blocks: list[int]
) -> None:
    """By the number of blocks of each launch, and by registers: four blocks fit a multiprocessor at once."""
    x = array(*shape)
    result = op(name, x, axis=axes[0] if name == "argmax" else axes)
    plan = make_plan(graph("reduction", [x], [result]), {}, TARGET.capabilities)
    kernels = [kernel for launch in plan.launches for kernel in launch.kernels]
    made = [emit(kernel) for kernel in kernels]
    assert [source.grid(int(k.total), 1 << 20) for k, source in zip(kernels, made, strict=True)] == blocks
    for source in made:
        check_registers(source.text, source.block, sum(shape), blocks=4)


def test_partial_results_depend_on_the_shape_alone() -> None:
    """No number of multiprocessors is asked for: a sum has the same bits on every GPU."""
    assert reductions.part_of(1 << 26, 1, 1) == 1 << 16
    assert reductions.part_of(1 << 15, 1, 1) == reductions.part_of(1 << 14, 1024, 1) == 0
    assert reductions.part_of(8192, 4096, 4096) == 1024


@needs_nvrtc
@pytest.mark.parametrize(
    "function",
    [lambda x: x.sum(), lambda x: x.argmax(1), lambda x: x.cumsum(1), lambda x: hm.functional.softmax(x, -1)],
)
def test_rows_are_loaded_sixteen_bytes_at_a_time(function: Callable[..., Any]) -> None:
    for source in sources(function, floats(7, 2048)):
        assert source.alignment == 16
        loads = re.findall(r"ld\.global[.\w]*", nvrtc.compile(source.text, "ptx").code.decode(), re.ASCII)
        assert loads and all(".v4" in load for load in loads)


@needs_nvrtc
def test_rows_that_begin_anywhere_have_the_same_sums() -> None:
    """Every other row of a loop begins between two vectors: the kernel that loads element by element adds in their
    order."""
    x = floats(3, 1025)

    def program(x: hm.Tensor) -> hm.Tensor:
        return hm.scan(lambda c, row: (c, hm.stack([row[:1024].sum(), row[:1024].cumsum(0)[1000]])), x[0, 0], x)[1]

    def whole(x: hm.Tensor) -> hm.Tensor:
        return hm.stack([x.sum(1), x.cumsum(1)[:, 1000]], 1)

    with compiled() as made:
        found = hm.trace(program)(hm.tensor(x).to(SIM))
    assert any(code.source.alignment == 16 for code in made)
    assert same_bits(found.cpu().numpy(), hm.trace(whole)(hm.tensor(x[:, :1024].copy()).to(SIM)).cpu().numpy())

"""Parts of the compiler that settings switch off: the plan is another one, results stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from hybridml.nn import functional as F
from hybridml_compiler import config, pipeline
from hybridml_compiler.graph.ir import Graph, apply, graph_of
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.schedule.fusion.epilogue import Fused
from hybridml_compiler.schedule.kernels.convolution import Convolution
from hybridml_compiler.schedule.launch import Copy
from hybridml_compiler.targets.base import Executable
from tests.support.cases import case
from tests.support.closeness import assert_close, same_bits
from tests.support.random_graphs import build, data

SAME_BITS = ("fusion", "memory_plan", "recompute", "in_place")  # kernels and memory move, sums stay as they are
ROUNDED = ("layout", "own_products", "own_convolutions")


def _off(*names: str) -> config.Settings:
    return tuple((name, False) for name in sorted(names))


def test_each_part_has_a_test_here() -> None:
    assert {*SAME_BITS, *ROUNDED} == {*config.SWITCHES}


# ---- results


@pytest.mark.parametrize("names", [(name,) for name in SAME_BITS] + [SAME_BITS], ids="+".join)
def test_random_graphs_have_the_same_bits(names: tuple[str, ...]) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        graph = build(lambda items, rng=rng: int(rng.integers(len(items))), 14)
        donate = _donatable(graph)
        arrays = [data(node.aval, rng) for node in graph.inputs]
        usual, found = (
            pipeline.compile(graph, donate, settings=settings)([a.copy() for a in arrays])
            for settings in ((), _off(*names))
        )
        with case(f"seed {seed}"):
            assert all(map(same_bits, usual, found))


def _donatable(graph: Graph) -> dict[int, int]:
    """Outputs that may be written to an input of their type."""
    donate: dict[int, int] = {}
    for k, node in enumerate(graph.outputs):
        alike = [i for i, x in enumerate(graph.inputs) if x.aval == node.aval and i not in donate.values()]
        if alike and node not in graph.outputs[:k]:
            donate[k] = alike[0]
    return donate


@pytest.mark.parametrize(("row", "name"), [("matmul", "own_products"), ("convolution", "own_convolutions")])
def test_samples_of_rows_that_have_kernels_of_ours(row: str, name: str) -> None:
    op = OPS[row]
    for number, sample in enumerate(list(op.samples(np.random.default_rng(0)))[:12]):
        arrays = [np.asarray(a) for a in sample.args]
        inputs = graph_of(arrays)
        graph = Graph(inputs, (apply(op, inputs, sample.params),))
        (usual,), (found,) = (pipeline.compile(graph, settings=s)(arrays) for s in ((), _off(name)))
        with case(f"sample {number}"):
            assert_close(found, usual)


class _Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.second, self.last = nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.Linear(16 * 16, 5)

    def forward(self, x: hm.Tensor) -> Any:
        x = F.relu(self.second(F.relu(self.norm(self.first(x)))))
        return self.last(x.flatten(1))


class _Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(20, 16), nn.Linear(16, 5)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)

    def forward(self, x: hm.Tensor) -> Any:
        return self.last(self.layer(self.words(x)).mean(1))


class _Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.last = nn.GRUCell(6, 8), nn.Linear(8, 5)

    def forward(self, x: hm.Tensor) -> Any:
        state, kept = hm.zeros((4, 8)), hm.zeros((6, 4, 8))
        for t in range(6):  # one step for all, which updates an array
            state = self.cell(x[t], state)
            kept[t] = state * 2
        return self.last(kept.sum(0))


def _batch(model: type[nn.Module]) -> hm.Tensor:
    if model is _Words:
        return hm.randint(0, 20, (4, 7))
    return hm.randn(4, 3, 8, 8) if model is _Images else hm.randn(6, 4, 6)


def _trained(model: type[nn.Module], *off: str) -> list[np.ndarray]:
    """The losses of three steps, and all parameters and buffers after them."""
    hm.manual_seed(0)
    x, y = _batch(model), hm.randint(0, 5, (4,))
    net = model()
    optimizer = hm.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    @hm.trace
    def step(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    with hm.config(**dict.fromkeys(off, False)):
        losses = [step(x, y).detach().numpy() for _ in range(3)]
    return [*losses, *(t.detach().numpy() for t in net.state_dict().values())]


@pytest.mark.parametrize(
    ("model", "runs"),
    [
        (_Images, [SAME_BITS, ("layout",), ("own_products", "own_convolutions")]),
        (_Words, [SAME_BITS, ("own_products",)]),
        (_Steps, [("fusion",), ("recompute", "in_place", "memory_plan")]),
    ],
)
def test_training_steps(model: type[nn.Module], runs: list[tuple[str, ...]]) -> None:
    usual = _trained(model)
    for names in runs:
        for k, (one, other) in enumerate(zip(_trained(model, *names), usual, strict=True)):
            with case(f"{names}, array {k} of losses, parameters and buffers"):
                if {*names} <= {*SAME_BITS}:
                    assert same_bits(one, other)
                else:
                    np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def test_errors_leave_state_as_it_was_without_updates_in_place() -> None:
    table, rows = hm.zeros((300, 8)), hm.tensor([1, 400])

    @hm.trace
    def write(table: hm.Tensor, rows: hm.Tensor) -> None:
        table[rows] = 1.0

    with hm.config(in_place=False):
        write(table, hm.tensor([1, 2]))
        assert table.sum().item() == 16
        with pytest.raises(hm.OutOfBoundsError):
            write(table, rows)
    assert table.sum().item() == 16


# ---- what each switches off


def _programs(fn: Callable[..., Any], *args: Any, off: str) -> tuple[Executable, Executable]:
    """The program of a call as usual, and without a part of the compiler."""
    traced = hm.trace(fn)
    found = []
    for value in (True, False):
        with hm.config(**{off: value}):
            traced(*args)
            found.append(traced.last_path.program.executable)
    return found[0], found[1]


def test_without_fusion_each_operation_is_a_launch() -> None:
    def fn(x: hm.Tensor, w: hm.Tensor) -> tuple[hm.Tensor, hm.Tensor]:
        return hm.relu(x @ w + 1), hm.softmax(x.mT * 2, -1)

    usual, found = _programs(fn, hm.randn(96, 64), hm.randn(64, 96), off="fusion")
    assert any(isinstance(launch.spec, Fused) for launch in usual.launches)
    assert len(usual.launches) < len(found.launches)
    for launch in found.launches:
        assert len([node for node in launch.nodes if not node.op.is_view]) <= 1, launch.reasons  # a view is copied


def test_without_a_memory_plan_nothing_shares_memory() -> None:
    def fn(x: hm.Tensor) -> hm.Tensor:
        for _ in range(4):
            x = (x @ x).cumsum(0)
        return x

    usual, found = _programs(fn, hm.eye(32), off="memory_plan")
    (_, places), (sizes, apart) = (_buffers(executable) for executable in (usual, found))
    assert sum(sizes) <= found.arena_bytes and usual.arena_bytes * 3 < found.arena_bytes
    assert len({*apart}) == len(apart) and len({*places}) < len(places)


def _buffers(executable: Executable) -> tuple[list[int], list[int]]:
    found = executable.stages.plan.buffers
    return [b.nbytes for b in found], [b.offset for b in found]


def test_without_recomputation_each_value_is_computed_once() -> None:
    def fn(x: hm.Tensor) -> tuple[hm.Tensor, hm.Tensor]:
        y = x * 2 + 1
        return y.sum(0), y.cumsum(1)

    usual, found = _programs(fn, hm.randn(64, 64), off="recompute")
    assert max(_times(usual).values()) > 1
    assert max(_times(found).values()) == 1


def _times(executable: Executable) -> Counter[Any]:
    """In how many launches each value is computed."""
    return Counter(node for launch in executable.launches for node in launch.nodes if not node.op.is_view)


def test_without_updates_in_place_state_is_copied_at_the_end() -> None:
    def fn(x: hm.Tensor) -> None:
        x.mul_(2).add_(1)

    x = hm.ones((64, 64))
    usual, found = _programs(fn, x, off="in_place")
    assert not any(isinstance(launch.spec, Copy) for launch in usual.launches)
    *computed, last = found.launches
    assert isinstance(last.spec, Copy) and last.overwrites and not any(launch.overwrites for launch in computed)
    assert usual.arena_bytes < found.arena_bytes
    assert x[0, 0].item() == 7


def test_without_layout_images_stay_as_the_program_has_them() -> None:
    first, second = nn.Conv2d(4, 8, 3), nn.Conv2d(8, 8, 3)
    usual, found = _programs(lambda x: second(F.relu(first(x))), hm.randn(2, 4, 12, 12), off="layout")
    assert usual.ir.count("permute_dims") == 1 and found.ir.count("permute_dims") == 5


def test_without_products_of_ours_blas_multiplies() -> None:
    x, y = hm.randn(150, 150), hm.randn(150, 150)
    usual, found = _programs(lambda x, y: hm.relu(x @ y), x, y, off="own_products")
    assert "hml_sgemm" not in usual.llvm and "hml_sgemm" in found.llvm
    integers = (x * 9).to(hm.int32)
    usual, found = _programs(lambda x: x @ x, integers, off="own_products")
    assert "gemm" not in found.llvm and found.ir == usual.ir  # BLAS has none


def test_without_convolutions_of_ours_loops_add_up() -> None:
    layer = nn.Conv2d(4, 8, 3, padding=1)
    usual, found = _programs(layer, hm.randn(2, 4, 9, 9), off="own_convolutions")

    def calls(executable: Executable) -> list[Any]:
        specs = [getattr(launch.spec, "call", launch.spec) for launch in executable.launches]
        return [spec for spec in specs if isinstance(spec, Convolution)]

    assert calls(usual) and not calls(found)

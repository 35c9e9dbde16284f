"""Programs with a limit of memory: they keep to it, compute the same bits, or say which lines hold the rest."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import Tensor, nn
from hybridml.nn import functional as F
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.graph.text import print_graph
from hybridml_compiler.graph.verify import verify
from hybridml_compiler.schedule.order_of_sums import add_up_alike
from hybridml_compiler.schedule.rematerialization import Launches, fitted
from tests.support.run_plan import plan_of
from tests.support.typical_graphs import Value, array, graph, op

ROWS, WIDTH = 4096, 64  # values of 1 MB, beside which what kernels wait for each other with is little


class Residual(nn.Module):
    """A normalised block with a residual path: (n, WIDTH) -> the same."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def plain() -> nn.Module:
    return nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())])


def dropped() -> nn.Module:
    return nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(0.3))])


def normalised() -> nn.Module:
    return nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))])


def residual() -> nn.Module:
    return nn.Sequential(*[Residual() for _ in range(5)])


class Embedded(nn.Module):
    """Rows of a table and a few blocks: (n,) -> (n, WIDTH)."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.rest = nn.Embedding(50, WIDTH), residual()

    def forward(self, at: Tensor) -> Tensor:
        return self.rest(self.table(at))


def convolutional() -> nn.Module:
    layers = [layer for _ in range(4) for layer in (nn.Conv2d(4, 4, 3, padding=1), nn.GELU())]
    return nn.Sequential(nn.Unflatten(1, (4, 4, 4)), *layers, nn.Flatten())


Train = tuple[Any, Callable[[], list[np.ndarray]], Tensor]


def train(make: Callable[[], nn.Module], memory: int | str | None, device: str = "cpu") -> Train:
    """A traced training step, a function that reads all that it changes, and its argument."""
    hm.manual_seed(0)
    model = make().to(device)
    optimizer = hm.optim.Adam(model.parameters(), lr=0.01)

    @hm.trace(memory=memory)
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    def state() -> list[np.ndarray]:
        return [t.detach().cpu().numpy().copy() for t in model.state_dict().values()]

    x = hm.randint(0, 50, (ROWS,)) if make is Embedded else hm.randn((ROWS, WIDTH))
    return step, state, x.to(device)


def memory_of(step: Any, x: Tensor) -> Any:
    return step.lower(x).compile().memory_analysis()


@pytest.mark.parametrize("make", [plain, dropped, normalised, residual, Embedded, convolutional])
def test_a_program_keeps_to_its_limit_to_the_same_bits(make: Callable[[], nn.Module]) -> None:
    whole, of_whole, x = train(make, None)
    before = memory_of(whole, x)
    limit = before.peak_bytes - int(0.3 * before.temp_size_in_bytes)
    small, of_small, _ = train(make, limit)
    after = memory_of(small, x)
    assert after.peak_bytes <= limit < before.peak_bytes
    assert after.argument_size_in_bytes == before.argument_size_in_bytes
    for _ in range(3):
        hm.manual_seed(1)
        loss = whole(x)
        hm.manual_seed(1)
        assert small(x).item() == loss.item()
    assert all(np.array_equal(a, b) for a, b in zip(of_whole(), of_small(), strict=True))
    assert whole.cache_info().compiles == small.cache_info().compiles == 1


def test_a_step_does_not_keep_gradients_for_what_all_updates_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam's corrections, a number for each parameter: of 300 layers more than a page, and still first."""
    monkeypatch.setattr("hybridml_compiler.schedule.fusion.execution_order._PAGE", 1)
    step, _, x = train(plain, None)
    assert memory_of(step, x).temp_size_in_bytes < 11 * x.nbytes


def test_less_memory_takes_more_launches() -> None:
    whole, _, x = train(residual, None)
    before = memory_of(whole, x)
    found = []
    for part in (0.7, 0.4):
        limit = int(before.peak_bytes - (1 - part) * before.temp_size_in_bytes)
        step, _, _ = train(residual, limit)
        found.append(memory_of(step, x).temp_size_in_bytes / before.temp_size_in_bytes)
        assert step.lower(x).compile().cost_analysis()["flops"] > whole.lower(x).compile().cost_analysis()["flops"]
    assert found[1] < found[0] < 1 and found[1] <= 0.4


def test_a_limit_that_is_not_needed_changes_nothing() -> None:
    whole, _, x = train(residual, None)
    wide, _, _ = train(residual, "1GB")
    assert wide.lower(x).compile().as_text() == whole.lower(x).compile().as_text()


def test_a_limit_that_cannot_be_kept_says_which_lines_hold_the_rest() -> None:
    step, state, x = train(residual, "100kB")
    before = state()
    with pytest.raises(hm.errors.OutOfMemoryError) as error:
        step(x)
    text = str(error.value)
    assert (
        text.startswith("step: a call needs ") and "and may have 100,000: arguments and captured tensors are " in text
    )
    assert "make the batch smaller. Most at a time is held by\n" in text
    assert f"MB  {__file__.rpartition('/')[2]}:" in text
    assert all(np.array_equal(a, b) for a, b in zip(before, state(), strict=True))


def test_gradients_outside_of_the_function_keep_to_the_limit() -> None:
    hm.manual_seed(0)
    model, x = plain(), hm.randn((ROWS, WIDTH))
    results = []
    for memory in (None, "10MB"):
        model.zero_grad()
        hm.trace(lambda x: (model(x) ** 2).mean(), memory=memory)(x).backward()
        results.append([p.grad.numpy().copy() for p in model.parameters() if p.grad is not None])
    assert results[0] and all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


def test_a_simulated_gpu_keeps_to_it_as_well() -> None:
    def small() -> nn.Module:
        return nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(8, 8), nn.Tanh())])

    x, found, limit = hm.randn((512, 8), device="cuda:sim"), [], None
    for _ in range(2):
        step, state, _ = train(small, limit, "cuda:sim")
        memory = memory_of(step, x)
        found.append((step(x).item(), memory.peak_bytes, state()))
        limit = memory.peak_bytes - memory.temp_size_in_bytes // 8
    (loss, most, whole), (same, less, again) = found
    assert same == loss and less < most
    assert all(np.array_equal(a, b) for a, b in zip(whole, again, strict=True))


@pytest.mark.parametrize("memory", ["2", "2 GiBs", "much", "1..5GB", True, 1.5, 0, "-1MB", "0.5B"])
def test_what_is_no_number_of_bytes_is_refused(memory: Any) -> None:
    with pytest.raises(hm.errors.ArgumentError, match="trace: memory must be "):
        hm.trace(lambda x: x, memory=memory)


def test_units() -> None:
    from hybridml.tracing.run.backend import backend_of

    given = {"2GB": 2 * 10**9, "1.5 GiB": 3 * 2**29, "10kB": 10_000, "10KB": 10_000, "10KiB": 10240, "7B": 7, 5: 5}
    assert {text: backend_of("llvm", None, text).memory for text in given} == given
    assert backend_of("llvm", None, np.int64(5)).memory == 5
    with pytest.raises(hm.errors.ArgumentError, match="memory needs the compiler"):
        hm.trace(lambda x: x, backend="interpret", memory=5)


# ---- the graph made anew


def chain(length: int) -> Graph:
    """Products one after the other, and then all of them in reverse, as gradients read them."""
    x, w = array(512, 64, name="x"), array(64, 64, name="w")
    values = [x]
    for _ in range(length):
        values.append(op("tanh", values[-1] @ w))
    g = values.pop()
    for value in reversed(values):
        g = (g @ w) * value
    return graph("chain", [x, w], [g])


def test_the_graph_reads_values_again_after_a_token() -> None:
    program = chain(3)
    launches = Launches(program, plan_of(program))
    (again, *_) = launches.choices(1 << 40)
    made, _ = launches.rewritten(again)
    verify(made)
    text = print_graph(made)
    assert text.count("after(") == len(set(again.first.values())) and text.count("tanh(") == 3 + len(again.first)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(node.shape).astype("f4") for node in program.inputs]
    assert np.array_equal(interpret(made, inputs)[0], interpret(program, inputs)[0])


def test_memory_grows_as_the_root_of_the_length() -> None:
    """Sixteen times as many values need four times as many that are kept, and a segment of as many (Chen et al.)."""
    value = 512 * 64 * 4
    for length, kept in ((8, 7), (32, 13)):
        program = chain(length)
        fixed = plan_of(program).nbytes - plan_of(program).arena_bytes
        assert plan_of(program).arena_bytes > length * value
        assert plan_of(fitted(program, plan_of, fixed + kept * value)).arena_bytes <= kept * value


def test_a_sum_keeps_its_order() -> None:
    """A kernel that reads each row twice has two loops, so its sum has other bits than one of what is in memory."""
    x, rows = array(512, 32, name="x"), array(256, 1, 32, name="rows")
    value = op("exp", x) + op("reshape", op("broadcast_to", rows, shape=(256, 2, 32)), shape=(512, 32))
    total = op("sum", value)
    alone, stored = graph("alone", [x, rows], [total]), graph("stored", [x, rows], [value, total])
    read = op("sum", array(512, 32))
    memory = graph("memory", [Value(read.node.inputs[0])], [read])
    assert add_up_alike(plan_of(alone), plan_of(stored), {})
    assert not add_up_alike(plan_of(alone), plan_of(memory), {read.node: total.node})


def test_a_limit_does_not_change_the_order_of_a_sum() -> None:
    """The mean reads a value in memory where there is no limit, and would compute it by the way with one."""
    hm.manual_seed(0)
    table, x, at = (hm.randn((37, 32)) * 0.3).requires_grad_(), hm.randn((512, 32)), hm.randint(0, 37, (256, 2))
    mean, rows = hm.ones((512, 32)), hm.zeros((37, 32))

    def step(x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
        h = F.dropout(F.dropout(x, 0.3), 0.3)
        first = h.T
        h = h + hm.repeat(table[at].sum(1), 2, axis=0)
        loss = (h**2).mean()
        (g,) = hm.autograd.grad(loss, [table])
        with hm.no_grad():
            mean.mul_(0.9).add_(h * 0.01)
            rows[at.reshape(-1)] = h
        return loss, first, h[3:9], g

    whole = hm.trace(step)
    memory = whole.lower(x, at).compile().memory_analysis()
    small = hm.trace(step, memory=memory.peak_bytes - memory.temp_size_in_bytes // 20)
    for seed in range(5):
        hm.manual_seed(seed)
        expected = whole(x, at)[0].item()
        hm.manual_seed(seed)
        with contextlib.suppress(hm.errors.OutOfMemoryError):
            assert small(x, at)[0].item() == expected


# ---- sums, whose bits have to be those of the program without a limit


@pytest.mark.parametrize("columns", [32, 64, 128, 160])
def test_a_sum_down_columns_has_the_same_bits_whatever_it_is_a_sum_of(columns: int) -> None:
    """Also where what is added up takes most registers."""
    rng = np.random.default_rng(0)
    x, y = (hm.tensor(rng.standard_normal((ROWS, columns)).astype(np.float32)) for _ in range(2))
    given = x, y > 0, y, hm.tensor(rng.standard_normal(columns).astype(np.float32))

    def masked(x: Tensor, mask: Tensor, y: Tensor, b: Tensor) -> Tensor:
        return hm.where(hm.relu(x + b) <= 0, 0, hm.where(mask, y, 0) * 1.4)

    fused, alone = hm.trace(lambda *given: masked(*given).sum(0)), hm.trace(lambda x: x.sum(0))
    assert np.array_equal(fused(*given).numpy(), alone(masked(*given)).numpy())

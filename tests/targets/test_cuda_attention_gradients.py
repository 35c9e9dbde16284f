"""Gradients of attention as generated kernels: against the CPU, what is in memory, and broken in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from benchmarks.models.gpt import GPT
from hybridml_compiler.schedule import cost
from hybridml_compiler.schedule.fusion.tile_fusion import TileFusion
from hybridml_compiler.schedule.launch import Plan
from hybridml_compiler.targets.cuda.driver import Pointer
from hybridml_compiler.targets.cuda.emit.kernel import Source
from hybridml_compiler.targets.cuda.sim.memory import SimulatorError
from hybridml_compiler.targets.cuda.simulated_driver import SimulatedDriver, _at
from hybridml_compiler.targets.cuda.target import CudaCode
from tests.support.closeness import assert_close
from tests.support.cuda import SIM, check_registers, compiled, launch, needs_nvrtc
from tests.support.examples import every

pytestmark = needs_nvrtc
attention = hm.functional.scaled_dot_product_attention
Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small scores are fused as large ones."""
    monkeypatch.setattr(cost, "CHAIN_BYTES", 1 << 10)


def some(*shape: int, seed: int = 0) -> Any:
    return hm.tensor(np.random.default_rng(seed).standard_normal(shape).astype("f4"))


def operands(batch: tuple[int, ...], queries: int, keys: int, features: int, values: int) -> list[Any]:
    shapes = ((queries, features), (keys, features), (keys, values), (queries, values))
    return [some(*batch, *shape, seed=k) for k, shape in enumerate(shapes)]


def causal(q: Any, k: Any, v: Any) -> Any:
    return attention(q, k, v, is_causal=True)


def scaled(q: Any, k: Any, v: Any) -> Any:
    return attention(q, k, v, scale=-0.4)


def grouped(q: Any, k: Any, v: Any) -> Any:
    return attention(q, k, v, enable_gqa=True)


# The last operand of each is the gradient of the result; the first three are differentiated.
CASES: dict[str, tuple[Function, list[Any]]] = {
    "plain": (attention, operands((2, 2), 70, 90, 20, 24)),
    "causal": (causal, operands((2,), 64, 64, 32, 32)),
    "causal, odd": (causal, operands((2,), 51, 51, 16, 16)),
    "mask": (attention, [*operands((2,), 70, 90, 16, 16), some(70, 90) > -0.5]),
    "mask of heads": (attention, [*operands((2, 2), 33, 40, 16, 16), some(2, 2, 33, 40) > -0.5]),
    "added mask": (attention, [*operands((2,), 70, 90, 16, 16), some(70, 90)]),
    "scale": (scaled, operands((2,), 40, 33, 16, 16)),
    "heads of 64": (attention, operands((1, 2), 33, 80, 64, 64)),
    "heads of 80": (causal, operands((2,), 40, 40, 80, 80)),
    "heads of 128": (attention, operands((1,), 40, 33, 128, 128)),
    "no batch": (attention, operands((), 33, 40, 16, 16)),
    "grouped": (grouped, [some(4, 40, 16), some(2, 33, 16, seed=1), some(2, 33, 16, seed=2), some(4, 40, 16, seed=3)]),
    "two blocks": (attention, operands((2,), 70, 50, 20, 24)),
    "causal blocks": (causal, operands((1,), 70, 70, 16, 16)),
    "parts": (causal, operands((1,), 256, 256, 16, 16)),
}


def gradients(function: Function) -> Function:
    """(result, gradients of queries, keys and values) of attention."""

    def program(q: Any, k: Any, v: Any, g: Any, *mask: Any) -> Any:
        q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
        out = function(q, k, v, *mask)
        return [out, *hm.autograd.grad([out], [q, k, v], [g])]

    return program


@contextmanager
def planned() -> Iterator[list[Plan]]:
    """The plans of programs that are compiled inside."""
    made: list[Plan] = []

    def finish(self: CudaCode, plan: Plan, *rest: Any) -> Any:
        made.append(plan)
        return before(self, plan, *rest)

    before = CudaCode.finish
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CudaCode, "finish", finish)
        yield made


def arguments(name: str, dtype: str) -> list[Any]:
    return [x.astype(dtype) if x.dtype.kind == "f" else x for x in CASES[name][1]]


def ran(name: str, dtype: str = "float32") -> tuple[list[Any], list[Plan], dict[str, Any]]:
    """(results there, plans, code by text)."""
    with compiled() as made, planned() as plans:
        found = hm.trace(gradients(CASES[name][0]))(*(x.to(SIM) for x in arguments(name, dtype)))
    return [x.detach().cpu() for x in found], plans, {code.text: code for code in made}


def expected(name: str, dtype: str = "float32", computed: str = "float32") -> list[Any]:
    """The results on the CPU, of arguments that were rounded to `dtype`."""
    function, given = gradients(CASES[name][0]), arguments(name, dtype)
    return [x.detach() for x in function(*(x if x.dtype == hm.bool else x.astype(computed) for x in given))]


def check_kernels(name: str, plans: list[Plan], codes: dict[str, Any]) -> None:
    """No product is a kernel of its own, and no array of queries by keys is in memory: those of the arena have fewer
    elements, or no more than an operand. There are registers enough."""
    assert not any("in tiles of" in text and "products of" not in text for text in codes), list(codes)
    assert any("attention of" in text for text in codes) and any("products of" in text for text in codes)
    q, k, v, g, *_ = CASES[name][1]
    most = max(2 * int(np.prod(g.shape[:-1])) * k.shape[-2] - 1, *(4 * x.size for x in (q, k, v, g)))  # bytes
    for plan in plans:
        assert all(buffer.nbytes <= most for buffer in plan.buffers), plan.buffers
        assert any(isinstance(launch.spec, TileFusion) for launch in plan.launches)
    for text, code in codes.items():
        if "products of" in text:
            check_registers(text, code.source.block, len(name))


# A few seconds each: one in nine runs always, here and below.
@pytest.mark.parametrize(("name", "apart"), every(9, product(CASES, [False, True])))
def test_gradients(name: str, apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of queries, keys and values are one launch; `apart`: two, as where the scores are large."""
    if apart:
        monkeypatch.setattr("hybridml.functional.attention._SHARED", 0)
    found, plans, codes = ran(name)
    check_kernels(name, plans, codes)
    for a, b in zip(found, expected(name), strict=True):
        assert_close(a, b)


@pytest.mark.parametrize(("name", "dtype"), every(13, product(CASES, ["bfloat16", "float16"])))
def test_on_tensor_cores(name: str, dtype: str) -> None:
    """The gradients are as near to those in float32 as the CPU's in the same type."""
    found, plans, codes = ran(name, dtype)
    check_kernels(name, plans, codes)
    assert all("mma.sync" in text for text in codes if "products of" in text)
    exact, rounded = expected(name, dtype), expected(name, dtype, dtype)
    for a, b, e in zip(found, rounded, exact, strict=True):
        a, b, e = (x.astype("float32").numpy() for x in (a, b, e))
        assert np.square(a - e).mean() <= 1.5 * np.square(b - e).mean()
        assert np.abs(a - e).max() <= 2 * np.abs(b - e).max()


def test_gradients_of_masks_have_memory() -> None:
    """The gradient of a mask is a matrix of queries by keys, which stays; the other gradients are right beside it."""
    q, k, v, g = operands((2,), 40, 33, 16, 16)
    mask = some(2, 40, 33)

    def program(q: Any, k: Any, v: Any, mask: Any, g: Any) -> Any:
        given = [t.detach().requires_grad_() for t in (q, k, v, mask)]
        return hm.autograd.grad([attention(*given)], given, [g])

    found = hm.trace(program)(*(x.to(SIM) for x in (q, k, v, mask, g)))
    for a, b in zip(found, program(q, k, v, mask, g), strict=True):
        assert_close(a.cpu(), b)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_training_step(dtype: str) -> None:
    """Two layers of a GPT: the loss and all parameters after two steps."""
    rng = np.random.default_rng(0)
    tokens, following = (hm.tensor(rng.integers(0, 31, (2, 48))) for _ in range(2))

    def trained(device: str) -> tuple[list[float], list[np.ndarray]]:
        hm.manual_seed(0)
        model = GPT(vocabulary=31, context=48, width=32, heads=2, layers=2).to(device)
        optimizer = hm.optim.SGD(model.parameters(), lr=0.1)

        @hm.trace
        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            with hm.autocast(dtype=hm.bfloat16, enabled=dtype == "bfloat16"):
                out = model(x)
            loss = hm.functional.cross_entropy(out.astype("float32").reshape((-1, 31)), y.reshape((-1,)))
            loss.backward()
            optimizer.step()
            return loss

        with hm.device(device):
            losses = [step(tokens.to(device), following.to(device)).item() for _ in range(2)]
        return losses, [p.detach().cpu().numpy() for p in model.parameters()]

    with compiled() as made:
        losses, weights = trained(SIM)
    texts = "\n".join(code.text for code in made)
    assert "// attention of" in texts and "// 3 products of 2 matrices" in texts
    expected_losses, expected_weights = trained("cpu")
    rtol = 1e-5 if dtype == "float32" else 2.0**-8
    for a, b in zip([losses, *weights], [expected_losses, *expected_weights], strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


# ---- planted bugs


@cache
def launched(name: str, dtype: str) -> tuple[Source, list[np.ndarray], list[np.ndarray]]:
    """The kernel of the gradients, and its operands before and after it."""
    seen: list[Any] = []

    def launch(self: SimulatedDriver, function: Any, grid: Any, block: Any, arguments: Any, stream: Any) -> None:
        memories = [_at(argument) for argument in arguments if isinstance(argument, Pointer)]
        before = [memory.copy() for memory in memories]
        run(self, function, grid, block, arguments, stream)
        seen.append((function, before, [memory.copy() for memory in memories]))

    run = SimulatedDriver.launch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedDriver, "launch", launch)
        codes = ran(name, dtype)[2].values()
    (code,) = (code for code in codes if "products of" in code.text)
    source = code.source
    ((before, after),) = (arrays for function, *arrays in seen if function is code.function)
    for x, array in zip(source.operands, before, strict=True):
        if x.role != "in":
            array.fill(0)
    return source, before, after


def is_right(name: str, dtype: str, change: Callable[[str], str]) -> bool:
    """Whether a changed kernel gives what it gave as generated, with two blocks that take turns."""
    source, before, after = launched(name, dtype)
    found = [array.copy() for array in before]
    launch(change(source.text), source, found, source.total, 2)
    bound = 1e-5 if dtype == "float32" else 2.0**-6
    typed = (
        [array.view(x.dtype).astype("f4") for array in pair]
        for x, *pair in zip(source.operands, found, after, strict=True)
    )
    return all(np.allclose(a, b, rtol=bound, atol=bound * np.abs(b).max()) for a, b in typed)


def caught(name: str, dtype: str, change: Callable[[str], str]) -> bool:
    try:
        return not is_right(name, dtype, change)
    except SimulatorError:
        return True


MUTANTS = [
    # masks of edges
    ("float32", "other + at < 70", "other + at <= 70"),
    ("float32", "first + line < 70", "first + line <= 70"),
    ("float32", "other < 50; other += 32", "other < 32; other += 32"),
    ("float32", "if (i < 70 && at < 20)", "if (i <= 70 && at < 20)"),
    ("float32", "if (i < 50 && at < 20)", "if (i < 50 && at <= 20)"),
    # places of blocks, matrices and rows
    ("float32", "matrix * 70 + first + at", "first + at"),
    ("float32", "tile < 2", "tile < 1"),
    ("float32", "place = tile - 2", "place = tile"),
    ("float32", "place % 2) * 64", "place % 2) * 32"),
    ("float32", "row0_0[line]", "row0_0[at]"),
    ("float32", "rows1(&row1_0[at], matrix * 70 + other + at", "rows1(&row1_0[at], matrix * 70 + at"),
    # tiles in the place of others, and transposed
    ("float32", "m11_tile[at][line] = made11", "m11_tile[line][at] = made11"),
    ("float32", "= *(const fragment<4>*)&m10_tile[", "= *(const fragment<4>*)&m11_tile["),
    ("float32", "right2_tile, right2_matrix, 0, other", "right2_tile, right2_matrix, 0, 0"),
    ("float32", "passed1_tile, passed1_matrix, other, 0", "passed1_tile, passed1_matrix, 0, 0"),
    (
        "float32",
        "result1[i][j] = fmaf(x[at % 2][i], y[at % 2][j], result1[i][j])",
        "result1[i][j] = fmaf(x[at % 2][i], y[at % 2][j], result0[i][j])",
    ),
    ("float32", "finish2(result1_tile[line][at]", "finish2(result1_tile[line][at ^ 1]"),
    ("float32", "m10_tile[at][line], &made11", "m10_tile[at][line ^ 1], &made11"),
    # layouts of fragments, and masks, on tensor cores
    ("bfloat16", "at + -1 * to + 0 >= 0", "at + -1 * to + 1 >= 0"),
    ("bfloat16", "-1 * at + to + 0 >= 0", "-1 * at + to + -1 >= 0"),
    ("bfloat16", "begin = max(begin,", "begin = max(32,"),
    ("bfloat16", "lane % 16][k * 16 + lane / 16 * 8]", "lane % 16][k * 16 + lane / 8 % 2 * 8]"),
    ("bfloat16", ".x4.trans", ".x4"),
    ("bfloat16", "multiply(result0[i][j + 1], x, y[1])", "multiply(result0[i][j + 1], x, y[0])"),
    ("bfloat16", "narrow(made11[0], made11[1])", "narrow(made11[1], made11[0])"),
    ("bfloat16", ">> 16 * c", ">> 16 * (1 - c)"),
    ("bfloat16", "quad + c / 2 * 8", "quad + c % 2 * 8"),
    ("bfloat16", "scores1[i / 2][j + i % 2], own1[i / 2][k]", "scores1[i / 2][j + i % 2], own0[i / 2][k]"),
    # tiles that come while others are computed with
    ("bfloat16", "stage ^= 1", "stage ^= 0"),
    ("bfloat16", "_tiles[stage][j * 8 + pair + c]", "_tiles[stage][j * 8 + pair]"),
    ("bfloat16", "cp.async.wait_group 0", "cp.async.wait_group 1"),
]  # fmt: skip
PLANTED = {"float32": "two blocks", "bfloat16": "causal blocks"}


@pytest.mark.parametrize("dtype", PLANTED)
def test_as_generated(dtype: str) -> None:
    assert is_right(PLANTED[dtype], dtype, lambda text: text)


@pytest.mark.parametrize(("dtype", "old", "new"), every(6, MUTANTS))
def test_a_planted_bug_is_caught(dtype: str, old: str, new: str) -> None:
    name = PLANTED[dtype]
    assert old in launched(name, dtype)[0].text, launched(name, dtype)[0].text
    assert caught(name, dtype, lambda text: text.replace(old, new))


# The gradients of columns have 12 barriers: before and after either matrix, either product and either result. Those of
# rows have 8, for one product.
@pytest.mark.parametrize("number", every(6, range(12 + 8)))
def test_a_missing_barrier_is_caught(number: int) -> None:
    name, dtype = PLANTED["float32"], "float32"
    parts = launched(name, dtype)[0].text.split("__syncthreads();")
    assert len(parts) == 21
    broken = "__syncthreads();".join(parts[: number + 1]) + "__syncthreads();".join(["", *parts[number + 1 :]])[16:]
    assert caught(name, dtype, lambda _: broken)


def test_a_missing_wait_is_caught() -> None:
    assert caught("two blocks", "float32", lambda text: text.replace("cp.async.wait_group 0", "cp.async.wait_group 1"))


def test_kernels_of_one_text_have_blocks_for_their_own_batch() -> None:
    """Where there is one product, the text does not tell the number of matrices."""

    def of_queries(q: Any, k: Any, v: Any, g: Any) -> Any:
        q = q.detach().requires_grad_()
        return hm.autograd.grad([attention(q, k, v)], [q], [g])[0]

    texts = []
    for batch in (2, 3):
        given = operands((batch,), 33, 40, 16, 16)
        with compiled() as made:
            found = hm.trace(of_queries)(*(x.to(SIM) for x in given))
        assert_close(found.cpu(), of_queries(*given))
        texts.append([code.text for code in made if "products of" in code.text])
    assert texts[0] == texts[1] != []

"""Attention as one generated kernel: against the CPU, with masks and dtypes, and broken in one place."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.schedule import cost
from hybridml_compiler.targets.cuda.contraction.kernel import CallSource
from hybridml_compiler.targets.cuda.sim.memory import SimulatorError
from tests.support import examples
from tests.support.closeness import assert_close
from tests.support.cuda import SIM, check_registers, compiled, launch, needs_nvrtc, planned_anew
from tests.support.examples import every

pytestmark = needs_nvrtc
attention = hm.functional.scaled_dot_product_attention


def some(*shape: int, seed: int = 0) -> Any:
    return hm.tensor(np.random.default_rng(seed).standard_normal(shape).astype("f4"))


def operands(batch: tuple[int, ...], queries: int, keys: int, features: int, values: int) -> list[Any]:
    shapes = ((queries, features), (keys, features), (keys, values))
    return [some(*batch, *shape, seed=k) for k, shape in enumerate(shapes)]


CAUSAL: Callable[..., Any] = lambda q, k, v: attention(q, k, v, is_causal=True)  # noqa: E731


def window(q: Any, k: Any, v: Any) -> Any:
    """Attention to the 20 keys up to a query, whose mask arithmetic decides."""
    i, j = (hm.arange(x.shape[-2], device=q.device) for x in (q, k))
    i = i[:, None]
    wide = [x.astype("float32") for x in (q, k, v)]
    scores = hm.where((i >= j) & (i - j < 20), wide[0] @ wide[1].mT, -math.inf)
    weights = hm.exp((scores - scores.max(axis=-1, keepdims=True)) * 0.25).astype(q.dtype)
    total = weights.sum(axis=-1, keepdims=True, dtype="float32")
    return (weights.astype("float32") @ wide[2] / total).astype(q.dtype)


def growing(queries: int, keys: int, features: int) -> list[Any]:
    """Operands of which the rows' largest scores grow from tile to tile, those of some queries more than of others."""
    q, k, v = operands((1,), queries, keys, features, features)
    return [
        q * 0 + hm.arange(queries)[:, None].astype("float32") / 20,
        k + hm.arange(keys)[:, None].astype("float32") / 20,
        v,
    ]


WINDOW: Callable[..., Any] = window
CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "plain": (attention, operands((2, 3), 70, 90, 20, 24)),
    "causal": (CAUSAL, operands((2, 2), 64, 64, 32, 32)),
    "mask": (attention, [*operands((2,), 70, 90, 16, 16), some(70, 90) > -0.5]),
    "mask of heads": (attention, [*operands((2, 2), 33, 40, 16, 16), some(2, 2, 33, 40) > -0.5]),
    "added mask": (attention, [*operands((2,), 70, 90, 16, 16), some(70, 90)]),
    "a row that sees nothing": (attention, [*operands((1,), 40, 32, 16, 16), hm.arange(40)[:, None] > hm.arange(32)]),
    "early keys unseen": (attention, [*operands((1,), 40, 90, 16, 16), hm.arange(90) > hm.arange(40)[:, None]]),
    "many features": (attention, operands((1, 1), 40, 50, 128, 128)),
    "heads of 80": (attention, operands((1, 1), 40, 50, 80, 80)),
    "one of all": (lambda x: attention(x, x, x), [some(2, 50, 32)]),
    "causal blocks": (CAUSAL, operands((2,), 150, 150, 16, 16)),
    "window": (WINDOW, operands((1, 2), 150, 150, 16, 16)),
    "growing": (attention, growing(40, 150, 16)),
    "slices": (lambda x: attention(x[..., :16], x[..., 16:32], x[..., 32:]), [some(2, 50, 48)]),
}


@pytest.fixture(autouse=True)
def chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small scores are fused as large ones."""
    planned_anew(monkeypatch)
    monkeypatch.setattr(cost, "CHAIN_BYTES", 1 << 10)


def given_in(dtype: str, given: list[Any]) -> list[Any]:
    return [x.astype(dtype) if x.dtype.kind == "f" else x for x in given]


def check(name: str, dtype: str = "float32") -> tuple[Any, Any]:
    """(the result there, and here), of one kernel of attention."""
    function, given = CASES[name]
    given = given_in(dtype, given)
    with compiled() as made:
        found = hm.trace(function)(*(x.to(SIM) for x in given))
    whole = {code.text: code for code in made if "// attention of" in code.text}
    assert len(whole) == 1 and not any("sums_tile" in code.text for code in made if code.text not in whole)
    ((text, code),) = whole.items()
    if given[0].shape[-1] >= 80 or examples.all_of_them:  # more features take more registers
        check_registers(text, code.source.block, len(dtype))
    return found.cpu(), function(*given)


@pytest.mark.parametrize("name", CASES)
def test_one_kernel(name: str) -> None:
    assert_close(*check(name))


@pytest.mark.parametrize(("name", "dtype"), every(4, product(CASES, ["bfloat16", "float16"])))
def test_on_tensor_cores(name: str, dtype: str) -> None:
    """Results are as near to those in float32 as the CPU's in the same type: weights, which are rounded once, may be
    below another maximum, and are powers of two."""
    found, expected = check(name, dtype)
    function, given = CASES[name]
    exact = function(*(x.astype("float32") if x.dtype.kind == "f" else x for x in given_in(dtype, given)))
    a, b, e = (x.astype("float32").numpy() for x in (found, expected, exact))
    ulp = 2.0**-8 if dtype == "bfloat16" else 2.0**-11
    np.testing.assert_allclose(a, e, rtol=2 * ulp, atol=max(2 * ulp, 2 * np.nanmax(np.abs(b - e))))


def test_tiles_that_a_mask_leaves_out() -> None:
    """Nobody looks at them: a block goes over the keys that some of its rows see."""
    for name, limits in (("causal", 1), ("causal blocks", 1), ("window", 2), ("mask", 0)):
        text = source(name, "bfloat16").text
        assert sum(text.count(limit) for limit in ("end = min(", "begin = max(")) == limits, text


def test_rows_keep_their_statistics() -> None:
    """The kernel stores each row's sum and maximum beside the result."""
    q, k, v = operands((2,), 40, 50, 16, 16)

    def program(q: hm.Tensor, k: hm.Tensor, v: hm.Tensor) -> Any:
        scores = q @ k.mT
        most = scores.max(axis=-1, keepdims=True)
        weights = hm.exp(scores - most)
        total = weights.sum(axis=-1, keepdims=True)
        return weights @ v / total, most + hm.log(total)

    traced = hm.trace(program)
    for a, b in zip(traced(*(x.to(SIM) for x in (q, k, v))), program(q, k, v), strict=True):
        assert_close(a.cpu(), b)
    assert "// attention of" in traced.llvm


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_maxima_that_grow(dtype: str) -> None:
    """Each tile of keys has larger scores than those before: what was added up shrinks to nothing, or by a little."""
    q, k, v = operands((1,), 40, 150, 16, 16)
    for step in (0.05, 2.0):
        given = [x.astype(dtype) for x in (q * 0 + 1, k + step * hm.arange(150)[:, None].astype("float32"), v)]
        found = hm.trace(lambda *x: attention(*x))(*(x.to(SIM) for x in given)).cpu()
        if dtype == "float32":
            assert_close(found, attention(*given))
        else:
            exact = attention(*(x.astype("float32") for x in given)).numpy()
            error, most = (np.abs(x.astype("float32").numpy() - exact).max() for x in (found, attention(*given)))
            assert error <= 1.5 * most + 2.0**-9


def test_weights_that_are_no_exponentials_of_scores_below_their_maximum_stay_apart() -> None:
    """No factor corrects the sums of such weights when the maximum grows."""
    programs: list[Callable[..., Any]] = [
        lambda s: hm.exp(s - s.max(axis=-1, keepdims=True) / 2),
        lambda s: hm.exp(s.max(axis=-1, keepdims=True) - s),
        lambda s: hm.exp(s * (s - s.max(axis=-1, keepdims=True))),
        lambda s: hm.tanh(s - s.max(axis=-1, keepdims=True)),
        lambda s: hm.exp(2 * s - s.max(axis=-1, keepdims=True)),
    ]
    q, k, v = operands((2,), 40, 50, 16, 16)
    for weights in programs:

        def program(q: Any, k: Any, v: Any, weights: Callable[..., Any] = weights) -> Any:
            w = weights(q @ k.mT * 0.1)
            return w @ v / w.sum(axis=-1, keepdims=True)

        traced = hm.trace(program)
        assert_close(traced(*(x.to(SIM) for x in (q, k, v))).cpu(), program(q, k, v))
        assert "// attention of" not in traced.llvm


def test_what_is_no_attention_stays_apart() -> None:
    """A chain of other launches, and features that no block has room for."""
    apart = hm.trace(lambda q, k, v: hm.tanh(q @ k.mT).sum(-1, keepdims=True) * v)
    q, k, v = operands((2,), 40, 40, 16, 16)
    assert_close(apart(*(x.to(SIM) for x in (q, k, v))).cpu(), hm.tanh(q @ k.mT).sum(-1, keepdims=True) * v)
    wide = hm.trace(lambda *x: attention(*x))
    given = operands((1,), 33, 40, 16, 160)
    assert_close(wide(*(x.to(SIM) for x in given)).cpu(), attention(*given))
    assert "// attention of" not in apart.llvm + wide.llvm


def test_gradients() -> None:
    q, k, v = operands((2,), 40, 40, 16, 16)

    def program(q: hm.Tensor, k: hm.Tensor, v: hm.Tensor) -> Any:
        return hm.autograd.grad([attention(q, k, v, is_causal=True)], [q, k, v], [q * 0 + 1])

    found, expected = (
        hm.trace(program)(*(hm.tensor(x.numpy()).to(device).requires_grad_() for x in (q, k, v)))
        for device in (SIM, "cpu")
    )
    for a, b in zip(found, expected, strict=True):
        assert_close(a.cpu(), b)


# ---- planted bugs


@cache
def source(name: str, dtype: str) -> CallSource:
    function, given = CASES[name]
    with compiled() as made:
        hm.trace(function)(*(x.to(SIM) for x in given_in(dtype, given)))
    (found,) = (code.source for code in made if "// attention of" in code.text)
    assert isinstance(found, CallSource)
    return found


def run(name: str, dtype: str, change: Callable[[str], str]) -> bool:
    """Whether the changed kernel gives the right result, with two blocks that take turns."""
    function, given = CASES[name]
    made = source(name, dtype)
    given = given_in(dtype, given)
    arrays = [np.ascontiguousarray(x.numpy()).reshape(-1) for x in given]
    expected = function(*given).astype("float32").numpy()
    text = change(made.text)
    assert text != made.text or change("") == "", made.text
    results = [k for k, x in enumerate(made.operands) if x.role != "in" and x.size == expected.size]
    buffers = [np.zeros(int(x.size), x.dtype) for x in made.operands]
    for k, array in zip(
        (k for k in range(len(buffers)) if k not in results and buffers[k].size > 1), arrays, strict=True
    ):
        buffers[k] = array
    launch(text, made, buffers, made.total, 2)
    found = buffers[results[-1]].astype("f4").reshape(expected.shape)
    bound = 1e-5 if dtype == "float32" else 2.0**-7
    return bool(np.allclose(found, expected, rtol=bound, atol=bound, equal_nan=True))


@pytest.mark.parametrize(("name", "dtype"), [("plain", "float32"), ("causal", "bfloat16")])
def test_as_generated(name: str, dtype: str) -> None:
    assert run(name, dtype, lambda text: text)


MUTANTS = [
    ("plain", "float32", "key + at < 90", "key + at <= 90"),
    ("plain", "float32", "key += 32", "key += 33"),
    ("plain", "float32", "total += counted", "total = counted"),
    ("plain", "float32", "total *= factor;", ""),
    ("plain", "float32", "factors[line] = factor;", "factors[line] = 1.0f;"),
    ("plain", "float32", "result_row + i % 4];", "result_row];"),
    ("early keys unseen", "float32", "&& most != none", ""),
    ("a row that sees nothing", "float32", "most - most", "0.0f"),
    ("plain", "float32", "w_tile[at][line] = w;", "w_tile[line][at] = w;"),
    ("plain", "float32", "load_v(v_tile, v_matrix, 0, key)", "load_v(v_tile, v_matrix, 0, 0)"),
    ("plain", "float32", "__shfl_xor_sync(0xffffffffu, total, step)", "total"),
    ("plain", "float32", "__shfl_xor_sync(0xffffffffu, most, step)", "most"),
    ("plain", "float32", "i < 70 && j < 24", "i < 70 && j <= 24"),
    ("plain", "float32", "part == 0) end_row", "part == 1 && line > 0) end_row"),
    # edges and masks, where scores are in registers
    ("plain", "bfloat16", "column < 90", "true"),
    ("plain", "bfloat16", "if (at < 70) {", "{"),
    ("plain", "bfloat16", "if (column < 24) finish", "finish"),
    ("mask", "bfloat16", "at < 70)", "at < 69)"),
    ("causal", "bfloat16", "at + -1 * column + 0 >= 0", "at + -1 * column + 1 >= 0"),
    ("causal blocks", "bfloat16", "end = min(end, (min(row + 64, 150) - 1)", "end = min(end, row"),
    ("causal blocks", "bfloat16", "-1 * (key + 31) + 0 >= 0", "-1 * key + 0 >= 0"),
    ("window", "bfloat16", "begin = max(begin, -(", "begin = max(begin, 64 - ("),
    ("window", "bfloat16", "first + -1 * (key + 31)", "first + -1 * key"),
    # fragments
    ("causal", "bfloat16", "e % 2 * 2 + 1]);", "e % 2 * 2]);"),
    ("causal", "bfloat16", "scores[i][2 * k + e / 2]", "scores[i][2 * k + e % 2]"),
    ("causal", "bfloat16", "quad + h * 8;", "quad + h;"),
    (
        "causal",
        "bfloat16",
        "multiply(sums[i / 2][j + i % 2], w[i / 2], y[i % 2])",
        "multiply(sums[i / 2][j + i % 2], w[i / 2], y[(i + 1) % 2])",
    ),
    ("causal", "bfloat16", "multiply(totals[i], w[i], ones)", "multiply(totals[i], w[0], w[i])"),
    # the maxima of rows
    ("plain", "bfloat16", "now = larger(now, __shfl_xor_sync(0xffffffffu, now, 2));", ""),
    ("plain", "bfloat16", "base[i][h] = now;", ""),
    ("growing", "bfloat16", "totals[i][2 * h] *= factor;", ""),
    ("growing", "bfloat16", "sums[i][j][2 * h + 1] *= factor;", ""),
    # tiles that come while others are computed with
    (
        "plain",
        "bfloat16",
        "load_v(v_tiles[stage ^ 1], v_matrix, 0, key + 32)",
        "load_v(v_tiles[stage ^ 1], v_matrix, 0, key)",
    ),
    ("plain", "bfloat16", "stage ^= 1", "stage ^= 0"),
    ("plain", "bfloat16", "cp.async.wait_group 0", "cp.async.wait_group 1"),
]


def caught(name: str, dtype: str, change: Callable[[str], str]) -> bool:
    try:
        return not run(name, dtype, change)
    except SimulatorError:
        return True


# One to five seconds each: one in six runs always.
@pytest.mark.parametrize(("name", "dtype", "old", "new"), every(6, MUTANTS))
def test_a_planted_bug_is_caught(name: str, dtype: str, old: str, new: str) -> None:
    assert old in source(name, dtype).text, source(name, dtype).text
    assert caught(name, dtype, lambda text: text.replace(old, new))


# Before and after scores; before and after products with values; before the last factors, the result and the next rows.
@pytest.mark.parametrize("number", every(3, range(7)))
def test_a_missing_barrier_is_caught(number: int) -> None:
    parts = source("plain", "float32").text.split("__syncthreads();")
    assert len(parts) == 8
    broken = "__syncthreads();".join(parts[: number + 1]) + "__syncthreads();".join(["", *parts[number + 1 :]])[16:]
    assert caught("plain", "float32", lambda _: broken)


# Before and after the fragments of queries, before each tile of keys, and before the next rows.
@pytest.mark.parametrize("number", every(2, range(4)))
def test_a_missing_barrier_of_warps_is_caught(number: int) -> None:
    parts = source("causal blocks", "bfloat16").text.split("__syncthreads();")
    assert len(parts) == 5
    broken = "".join(part + "__syncthreads();" * (k not in (number, 4)) for k, part in enumerate(parts))
    assert caught("causal blocks", "bfloat16", lambda _: broken)


def test_a_missing_wait_is_caught() -> None:
    assert caught("plain", "float32", lambda text: text.replace("cp.async.wait_group 0", "cp.async.wait_group 1"))

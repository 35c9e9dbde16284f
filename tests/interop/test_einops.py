"""einops and opt_einsum work on tensors as on arrays: eagerly, traced, with gradients."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import einops
import einops.array_api
import numpy as np
import opt_einsum
import pytest

import hybridml as hm

X = np.random.default_rng(0).standard_normal((2, 3, 4))
CALLS: list[Callable[[Any], Any]] = [
    lambda x: einops.rearrange(x, "a b c -> (c a) b"),
    lambda x: einops.rearrange(x, "a b (c d) -> d a b c", d=2),
    lambda x: einops.rearrange([x, x], "s a b c -> a (s b) c"),
    *(lambda x, how=how: einops.reduce(x, "a b c -> a 1 c", how) for how in ("mean", "sum", "max", "min", "prod")),
    lambda x: einops.reduce(x, "a (b k) c -> a b c", "max", k=3),
    lambda x: einops.repeat(x, "a b c -> a b (c 2)"),
    lambda x: einops.einsum(x, x, "a b c, a b d -> c d"),
    lambda x: einops.pack([x, x[0]], "* b c")[0],
    lambda x: einops.unpack(x, [[1], [1]], "* b c")[1],
    lambda x: opt_einsum.contract("abc,abd,dc->c", x, x, x[:, 0, :].T @ x[:, 0, :]),
    lambda x: opt_einsum.contract_expression("abc,abd->cd", x.shape, x.shape)(x, x),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_gives_what_it_gives_for_arrays(call: Callable[[Any], Any]) -> None:
    expected = call(X)
    for run in (call, hm.trace(call)):
        found = run(hm.tensor(X))
        assert isinstance(found, hm.Tensor)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    weights = np.cos(np.arange(expected.size)).reshape(expected.shape)
    grad = hm.grad(lambda t: (call(t) * hm.asarray(weights)).sum())(hm.tensor(X)).numpy()
    way = np.random.default_rng(1).standard_normal(X.shape)
    ends = [(call(X + step * way) * weights).sum() for step in (1e-6, -1e-6)]
    assert (grad * way).sum() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-7)


def test_opt_einsum_writes_into_a_tensor() -> None:
    x, out = hm.tensor(X), hm.zeros((4, 4), dtype=hm.float64)
    assert opt_einsum.contract("abc,abd->cd", x, x, out=out) is out
    np.testing.assert_allclose(out.numpy(), np.einsum("abc,abd->cd", X, X), rtol=1e-12)


def test_einops_by_the_array_api_standard() -> None:
    found = einops.array_api.rearrange(hm.tensor(X), "a b c -> c (a b)")
    np.testing.assert_array_equal(found.numpy(), einops.rearrange(X, "a b c -> c (a b)"))


@pytest.mark.parametrize("order", ["import einops\nimport hybridml as hm", "import hybridml as hm\nimport einops"])
def test_the_order_of_imports_does_not_matter(order: str) -> None:
    program = f"{order}\nassert einops.rearrange(hm.zeros((2, 3)), 'a b -> b a').shape == (3, 2)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_hybridml_does_not_import_them() -> None:
    program = "import hybridml, sys\nassert not {'einops', 'opt_einsum'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)

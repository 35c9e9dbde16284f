"""Ints among the arguments that are places or sizes: few programs for all of them, with eager code's results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import hybridml as hm

F = hm.functional
PROGRAMS: dict[str, tuple[Callable[[Any, int], Any], Sequence[int], int]] = {  # with values, and the most programs
    "row": (lambda x, n: x[n] * 2, (*range(16), 3, 0), 4),
    "column": (lambda x, n: x[:, n] + 1, range(8), 4),
    "first rows": (lambda x, n: x[:n].sum(0), (5, 7, 8, 9, 16, 3, 2), 3),
    "result of that size": (lambda x, n: x[:n] * 2, (5, 7, 8, 9, 16, 3, 2), 3),
    "window": (lambda x, n: x[n : n + 3] * 2, (5, 7, 8, 9, 12, 3), 3),
    "last rows": (lambda x, n: x[n:] * 2, (5, 7, 8, 9, 12, 3), 3),
    "before": (lambda x, n: x[n - 1], (5, 7, 8, 9, 12, 3), 3),
    "arange": (lambda x, n: hm.arange(n) * 2, (5, 7, 8, 9), 3),
    "zeros": (lambda x, n: hm.zeros((n, 2)) + 1, (5, 7, 8, 9), 3),
    "number and place": (lambda x, n: x[n] * n, (5, 7, 8, 9), 3),
    "comparison": (lambda x, n: x[n] if n > 6 else x[0], (5, 7, 8, 3, 9, 4), 4),
    "returned": (lambda x, n: (x[n], n + 1, n), (5, 7, 8, 9), 3),
    "from the end": (lambda x, n: x[n] * 2, (-1, -2, -1, 5, 6, 7, 8), 5),
    "beyond": (lambda x, n: x[: min(n, 16)] * 2, (1 << 20, 1 << 21, 5, 6, 7), 5),
}


def plain(found: Any) -> Any:
    if isinstance(found, tuple):
        return [plain(part) for part in found]
    return found.tolist() if isinstance(found, hm.Tensor) else (type(found), found)


@pytest.mark.parametrize("name", PROGRAMS)
def test_positions(name: str, trace: Any) -> None:
    program, values, most = PROGRAMS[name]
    traced, x = trace(program), hm.asarray(np.random.default_rng(0).normal(size=(16, 8)).astype("f4"))
    for n in values:
        assert plain(traced(x, n)) == plain(program(x, n)), n
    assert traced.cache_info().compiles <= most


@pytest.mark.parametrize("n", [16, 100, -17])
def test_a_place_that_is_not_there_is_the_same_error(n: int, trace: Any) -> None:
    x, traced = hm.ones((16, 8)), trace(lambda x, n: x[n] * 2)
    for k in range(5):
        traced(x, k)
    with pytest.raises(hm.OutOfBoundsError) as eager:
        x[n]
    with pytest.raises(hm.OutOfBoundsError) as found:
        traced(x, n)
    assert str(found.value).splitlines()[0] == str(eager.value).splitlines()[0]


def test_what_steers_python_is_a_program_for_each_value(trace: Any) -> None:
    traced = trace(lambda x, n: sum((x[k] for k in range(n)), hm.zeros(8)))
    x = hm.ones((16, 8))
    assert [traced(x, n)[0].item() for n in (3, 4, 5, 6, 3, 4)] == [3, 4, 5, 6, 3, 4]
    assert traced.cache_info().compiles == 4


def test_a_decoder_writes_its_cache(trace: Any) -> None:
    class Decoder(hm.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.parts, self.head = hm.nn.Embedding(32, 8), hm.nn.Linear(8, 24), hm.nn.Linear(8, 32)
            self.keys, self.values = hm.zeros((1, 2, 24, 4)), hm.zeros((1, 2, 24, 4))

        def forward(self, token: hm.Tensor, n: int) -> hm.Tensor:
            q, k, v = self.parts(self.embed(token)).reshape(1, 1, 3, 2, 4).permute(2, 0, 3, 1, 4)
            self.keys[:, :, n], self.values[:, :, n] = k[:, :, 0], v[:, :, 0]
            met = F.scaled_dot_product_attention(q, self.keys[:, :, : n + 1], self.values[:, :, : n + 1])
            return self.head(met.permute(0, 2, 1, 3).reshape(1, 1, 8))

    hm.random.manual_seed(0)
    net = Decoder()

    def written(step: Any) -> tuple[list[int], Any]:
        net.keys.zero_()
        token, found = hm.tensor([[3]]), []
        with hm.no_grad():
            for n in range(24):
                token = step(token, n)[:, -1].argmax(-1)[:, None]
                found.append(token.item())
        return found, net.keys.numpy().copy()

    traced = trace(net.forward)
    (tokens, keys), (expected, kept) = written(traced), written(net)
    assert tokens == expected == written(traced)[0]
    np.testing.assert_allclose(keys, kept, rtol=1e-5, atol=1e-6)
    assert traced.cache_info().compiles <= 4
    assert traced.retraces[-1].endswith("now for any n")


@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
def test_sizes_are_keys_as_numbers(style: Any) -> None:
    """Symbolic ones, too, which equal no number by their form."""
    table, known = {5: 2.0, 6: 3.0, 7: 4.0}, {5, 6}

    def f(x: hm.Tensor) -> Any:
        n = x.shape[0]
        return x * table.get(n, 1.0), {n: 1, x.shape: 2}, n in known

    run = style(f)
    for n in (5, 6, 7, 8, 6):
        scaled, keys, is_known = run(hm.ones(n))
        assert scaled.tolist() == [table.get(n, 1.0)] * n and is_known is (n in known)
        assert repr(keys) == repr({n: 1, (n,): 2}) and type(next(iter(keys))) is int

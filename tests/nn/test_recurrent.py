"""LSTM and GRU beyond their values: second derivatives, traced calls, dropout, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from hybridml.functional import recurrent
from hybridml.functional.recurrent import gru_sequence, lstm_sequence
from hybridml.tracing.library_function import LibraryFunction
from hybridml_compiler.compile_policy import STEPS
from hybridml_compiler.errors import ArgumentError, ShapeError

Step = Callable[..., hm.Tensor]


def tensors(*shapes: tuple[int, ...]) -> list[hm.Tensor]:
    rng = np.random.default_rng(3)
    return [hm.asarray(rng.normal(size=shape), dtype=hm.float64).requires_grad_() for shape in shapes]


def lstm(inputs: hm.Tensor, h: hm.Tensor, c: hm.Tensor, weight: hm.Tensor) -> hm.Tensor:
    """Step by step, as the books write it."""
    found = []
    for x in inputs:
        i, f, g, o = hm.chunk(x + h @ weight.mT, 4, axis=-1)
        c = hm.sigmoid(f) * c + hm.sigmoid(i) * hm.tanh(g)
        h = hm.sigmoid(o) * hm.tanh(c)
        found.append(h * 2 + c)
    return hm.stack(found)


def gru(inputs: hm.Tensor, h: hm.Tensor, weight: hm.Tensor, bias: hm.Tensor) -> hm.Tensor:
    found = []
    for x in inputs:
        (r, z, n), (pr, pz, pn) = hm.chunk(x, 3, axis=-1), hm.chunk(h @ weight.mT + bias, 3, axis=-1)
        z = hm.sigmoid(z + pz)
        h = (1 - z) * hm.tanh(n + hm.sigmoid(r + pr) * pn) + z * h
        found.append(h)
    return hm.stack(found)


def our_lstm(*args: hm.Tensor) -> hm.Tensor:
    h, c = lstm_sequence(*args)
    return h * 2 + c


CASES: dict[str, tuple[Step, Step, list[tuple[int, ...]]]] = {
    "lstm": (our_lstm, lstm, [(3, 2, 16), (2, 4), (2, 4), (16, 4)]),
    "gru": (gru_sequence, gru, [(3, 2, 12), (2, 4), (12, 4), (12,)]),
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives_of_both_orders_are_those_of_the_steps(name: str) -> None:
    ours, steps, shapes = CASES[name]
    found = []
    for fn in (ours, steps):
        args = tensors(*shapes)
        value = fn(*args)
        first = hm.autograd.grad((value * value).sum(), args, create_graph=True)
        second = hm.autograd.grad(sum((g * g).sum() for g in first), args)
        found.append([value, *first, *second])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-10, atol=1e-12)


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> list[LibraryFunction]:
    """The loops over steps, which no other test has called."""
    made: list[LibraryFunction] = []
    for name in ("_lstm_steps", "_lstm_steps_back", "_gru_steps", "_gru_steps_back"):
        library = LibraryFunction(getattr(recurrent, name).__wrapped__, True, STEPS)
        made.append(library)
        monkeypatch.setattr(recurrent, name, lambda *args, library=library: library.call(args, {}))
    return made


def programs(libraries: list[LibraryFunction]) -> list[int]:
    """Numbers of compiled programs."""
    return [fn.cache_info().compiles for library in libraries for fn in library.traced.values()]


@pytest.mark.parametrize("name", CASES)
def test_sequences_of_many_lengths_are_two_programs(name: str, libraries: list[LibraryFunction]) -> None:
    ours, steps, (shape, *others) = CASES[name]
    for length in (3, 7, 5, 9):
        found = []
        for fn in (ours, hm.trace(ours), steps):
            args = tensors((length, *shape[1:]), *others)
            value = fn(*args)
            found.append([value, *hm.autograd.grad((value * value).sum(), args)])
        for a, same, b in zip(*found, strict=True):
            np.testing.assert_array_equal(a.detach().numpy(), same.detach().numpy())
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-10, atol=1e-12)
    assert programs(libraries) == [2, 2]


@pytest.mark.parametrize("name", CASES)
def test_compiled_sequences_have_second_derivatives(name: str, libraries: list[LibraryFunction]) -> None:
    test_derivatives_of_both_orders_are_those_of_the_steps(name)
    assert [bool(library.traced) for library in libraries].count(True) == 2


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_traced_step_trains_as_the_eager_one(kind: str) -> None:
    losses = []
    for style in (hm.trace, lambda fn: fn):
        hm.manual_seed(0)
        layer, x = (
            getattr(nn, kind)(3, 4, 2, batch_first=True, dropout=0.5, bidirectional=True),
            hm.random.normal((2, 5, 3)),
        )
        optimizer = hm.optim.SGD(layer.parameters(), lr=0.5)

        def step(x: hm.Tensor) -> hm.Tensor:
            optimizer.zero_grad()  # noqa: B023 - called before the next turn
            loss = (layer(x)[0] ** 2).mean()  # noqa: B023
            loss.backward()
            optimizer.step()  # noqa: B023
            return loss

        run = style(step)
        losses.append([run(x).item() for _ in range(4)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0][-1] < losses[0][0]


def test_dropout_acts_between_layers_in_training_only() -> None:
    layer, x = nn.LSTM(3, 4, 2, dropout=1.0), hm.ones((5, 2, 3))
    without, _ = layer.eval()(x)
    dropped, _ = layer.train()(x)
    silent, _ = nn.LSTM(3, 4, 2).train()(x)
    assert not np.array_equal(without.tolist(), dropped.tolist())
    assert silent.shape == without.shape
    zeros = hm.zeros((5, 2, 4))
    alone = nn.LSTM(4, 4)
    alone.load_state_dict({k.replace("_l1", "_l0"): v for k, v in layer.state_dict().items() if "_l1" in k})
    np.testing.assert_array_equal(dropped.tolist(), alone(zeros)[0].tolist())


def test_how_it_looks() -> None:
    assert repr(nn.LSTM(3, 4, batch_first=True)) == "LSTM(3, 4, batch_first=True)"
    assert (
        repr(nn.GRU(3, 4, 2, dropout=0.5, bidirectional=True))
        == "GRU(3, 4, num_layers=2, dropout=0.5, bidirectional=True)"
    )
    assert repr(nn.GRUCell(3, 4, bias=False)) == "GRUCell(3, 4, bias=False)"


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: nn.LSTM(0, 4), ArgumentError, "input_size=0"),
        (lambda: nn.GRU(3, 4, dropout=2), ArgumentError, "0 <= dropout <= 1, got 2"),
        (lambda: nn.LSTM(3, 4)(hm.ones((5, 2, 4))), ShapeError, r"input_size=3 .* got shape \(5, 2, 4\)"),
        (lambda: nn.LSTM(3, 4)(hm.ones((0, 2, 3))), ShapeError, "at least one step"),
        (lambda: nn.GRU(3, 4)(hm.ones((5, 2, 3)), hm.ones((1, 3, 4))), ShapeError, r"\(1, 2, 4\), got \(1, 3, 4\)"),
        (lambda: nn.GRUCell(3, 4)(hm.ones((2, 2))), ShapeError, r"input_size=3, got shape \(2, 2\)"),
        (lambda: nn.LSTMCell(3, 4)(hm.ones((2, 3)), (hm.ones((2, 3)),) * 2), ShapeError, r"\(2, 4\), got \(2, 3\)"),
        (lambda: nn.LSTM(3, 4)(hm.ones((5, 2, 3)), hm.ones((1, 2, 4))), ArgumentError, r"\(h, c\) of tensors of shape"),
        (lambda: nn.GRU(3, 4)(hm.ones((5, 2, 3)), (hm.ones((1, 2, 4)),)), ArgumentError, "one tensor h of shape"),
    ],
)  # fmt: skip
def test_errors(make: Callable[[], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_inputs_and_first_states_of_other_dtypes_promote(name: str, style: Any) -> None:
    layer, cell = getattr(nn, name)(4, 3), getattr(nn, f"{name}Cell")(4, 3)
    x, h = hm.arange(8, dtype=hm.float32).reshape((1, 2, 4)), hm.ones((1, 2, 3), requires_grad=True)
    wanted, (narrow, wide) = layer(x)[0], (hm.bfloat16, hm.float64)
    for dtype, result in ((hm.int64, hm.float32), (narrow, hm.float32), (wide, wide)):
        found = style(lambda x: layer(x)[0])(x.astype(dtype))
        assert found.dtype == result and hm.allclose(found, wanted, atol=1e-6)
        step = style(lambda x: cell(x))(x[0].astype(dtype))
        assert (step[0] if name == "LSTM" else step).dtype == result
    output, _ = style(lambda x, h: layer(x, (h, h) if name == "LSTM" else h))(x.astype(wide), h)
    output.sum().backward()
    assert output.dtype == wide and h.grad is not None and h.grad.dtype == hm.float32

"""Sizes that change between calls: one more program for all of them, which is the eager function for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hybridml as hm
import hybridml.functional as F
from hybridml import nn
from hybridml_compiler.graph.text import parse_graph, print_graph
from tests.support.examples import examples

RNG = np.random.default_rng(7)
SIZES = (8, 9, 10, 33, 2, 100)
Case = tuple[Callable[..., Any], Callable[[int], Sequence[hm.Tensor]]]
CASES: dict[str, Callable[[], Case]] = {}


def case(f: Callable[[], Case]) -> Callable[[], Case]:
    CASES[f.__name__] = f
    return f


def normal(*shape: int) -> hm.Tensor:
    return hm.tensor(RNG.standard_normal(shape).astype("f4"))


def integers(high: int, *shape: int) -> hm.Tensor:
    return hm.tensor(RNG.integers(0, high, shape))


@case
def perceptron() -> Case:
    first, second = nn.Linear(16, 32), nn.Linear(32, 4)
    return lambda x: second(F.relu(first(x))), lambda n: [normal(n, 16)]


@case
def softmax_of_rows() -> Case:
    return lambda x: F.softmax(x, -1), lambda n: [normal(n, 10)]


@case
def softmax_over_the_size() -> Case:
    return lambda x: F.softmax(x, -1), lambda n: [normal(4, n)]


@case
def layer_norm() -> Case:
    layer = nn.LayerNorm(16)
    return layer.forward, lambda n: [normal(n, 5, 16)]


@case
def size_as_a_number() -> Case:
    return lambda x: x.sum() / x.shape[0] + (x * (1 / x.shape[0])).mean(0) * len(x.shape), lambda n: [normal(n, 4)]


@case
def new_tensors_of_the_size() -> Case:
    def f(x: hm.Tensor) -> hm.Tensor:
        n = x.shape[0]
        return hm.concat([x + hm.arange(n)[:, None], hm.zeros((n, 4)), hm.ones((n, 1)) * n], axis=1)

    return f, lambda n: [normal(n, 3)]


@case
def reshapes() -> Case:
    return lambda x: x.reshape((x.shape[0] * 2, -1)).reshape((-1,)) * 2, lambda n: [normal(n, 6)]


@case
def last_axis_and_row() -> Case:
    return lambda x: x[-1] * x[:, x.shape[1] - 1].sum(), lambda n: [normal(5, n)]


@case
def updates_in_place() -> Case:
    def f(x: hm.Tensor) -> hm.Tensor:
        y = x.clone()
        y[0] = 0
        y += 1
        return y

    return f, lambda n: [normal(n, 6)]


@case
def two_sizes() -> Case:
    return lambda x, y: x @ y.mT, lambda n: [normal(n, 7), normal(n + 1, 7)]


@case
def cross_entropy() -> Case:
    layer = nn.Linear(6, 5)
    return lambda x, y: F.cross_entropy(layer(x), y), lambda n: [normal(n, 6), integers(5, n)]


@case
def masked_attention() -> Case:
    query, key, value, out = (nn.Linear(16, 16) for _ in range(4))

    def f(x: hm.Tensor) -> hm.Tensor:
        b, t, c = x.shape

        def heads(z: hm.Tensor) -> hm.Tensor:
            return z.reshape((b, t, 4, 4)).permute_dims((0, 2, 1, 3))

        scores = heads(query(x)) @ heads(key(x)).mT / 2.0
        scores = hm.where(hm.tril(hm.ones((t, t))) == 0, -1e9, scores)
        y = F.softmax(scores, -1) @ heads(value(x))
        return out(y.permute_dims((0, 2, 1, 3)).reshape((b, t, c)))

    return f, lambda n: [normal(2, n, 16)]


@case
def causal_attention() -> Case:
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), lambda n: [normal(2, n, 8)] * 3


@case
def embedding() -> Case:
    layer = nn.Embedding(20, 8)
    return lambda i: layer(i).sum(0), lambda n: [integers(20, n, 3)]


@case
def stack_and_argmax() -> Case:
    return lambda x: hm.stack([x, x * 2]).sum(1) + hm.argmax(x, axis=0), lambda n: [normal(n, 6)]


@case
def standardised() -> Case:
    return lambda x: (x - x.mean()) / hm.sqrt(hm.var(x) + 1e-5), lambda n: [normal(n, 6)]


def close(a: hm.Tensor, b: hm.Tensor) -> None:
    assert a.shape == b.shape and a.dtype is b.dtype
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_two_programs_do_for_all_sizes(name: str) -> None:
    fn, arguments = CASES[name]()
    traced = hm.trace(fn)
    for n in SIZES:
        args = arguments(n)
        close(traced(*args), fn(*args))
    assert traced.cache_info().compiles == 2, traced.retraces
    assert len(traced.retraces) == 1 and ": now for any size of axis " in traced.retraces[0]


def test_the_interpreter_takes_symbols_too() -> None:
    fn, arguments = CASES["masked_attention"]()
    traced = hm.trace(fn, backend="interpret")
    for n in SIZES:
        args = arguments(n)
        close(traced(*args), fn(*args))
    assert traced.cache_info().compiles == 2


# ---------------------------------------------------------------- bits: random programs

_UNARY = {
    "exp": hm.exp,
    "tanh": hm.tanh,
    "negative": lambda x: -x,
    "square": lambda x: x * x,
    "half": lambda x: x * 0.5,
}
_SHAPES: dict[str, Callable[[Any], Any]] = {
    "turn": lambda x: x.mT if x.ndim > 1 else x,
    "flip": lambda x: x.flip(axis=0),
    "rest": lambda x: x[1:] if x.shape[0] > 3 else x,
    "front": lambda x: x[: x.shape[0] // 2] if x.shape[0] > 4 else x,
    "twice": lambda x: hm.concat([x, x * 2], axis=0),
    "flat": lambda x: x.reshape((-1,)),
    "column": lambda x: x[:, None] if x.ndim == 1 else x,
    "count": lambda x: x + hm.arange(x.shape[0])[(slice(None),) + (None,) * (x.ndim - 1)],
    "size": lambda x: x * x.shape[-1],
    "padded": lambda x: F.pad(x, (1, 2)),
}


@examples(40)
@given(
    st.lists(st.sampled_from([*_UNARY, *_SHAPES]), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=3, max_size=5),
)
def test_random_programs_have_the_bits_of_eager_code(steps: list[str], sizes: list[tuple[int, int]]) -> None:
    def f(x: Any) -> Any:
        for step in steps:
            x = (_UNARY | _SHAPES)[step](x)
        return x

    traced = hm.trace(f)
    for n, m in sizes:
        x = normal(n, m)
        try:
            expected = f(x)
        except Exception as error:
            with pytest.raises(type(error)):
                traced(x)
            continue
        got = traced(x)
        assert got.shape == expected.shape
        assert got.numpy().tobytes() == expected.numpy().tobytes(), (steps, n, m, traced.ir)


# ---------------------------------------------------------------- training, gradients, random numbers


def test_training_on_batches_of_any_size() -> None:
    def build() -> tuple[Any, Any]:
        hm.random.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 1))
        optimizer = hm.optim.Adam(model.parameters(), lr=0.1)

        def step(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step, model

    batches = [(normal(n, 6), normal(n, 1)) for n in (8, 9, 10, 33, 11)]
    eager, eager_model = build()
    losses = [eager(*batch).item() for batch in batches]
    state = hm.random.default_generator.get_state().tolist()
    step, model = build()
    traced = hm.trace(step)
    np.testing.assert_allclose([traced(*batch).item() for batch in batches], losses, rtol=1e-4)
    assert traced.cache_info().compiles == 2
    assert hm.random.default_generator.get_state().tolist() == state, "the draws depend on the size"
    for a, b in zip(model.parameters(), eager_model.parameters(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-3, atol=1e-5)


def test_a_transformer_layer_trains_on_sequences_of_any_length() -> None:
    norm, project, out, head = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 5)
    embedding = nn.Embedding(11, 8)
    layers = [norm, project, out, head, embedding]
    parameters = [p for layer in layers for p in layer.parameters()]

    def gradients(tokens: hm.Tensor, targets: hm.Tensor) -> Any:
        x = embedding(tokens)
        b, t, d = x.shape
        q, k, v = (
            z.reshape((b, t, 2, d // 2)).permute_dims((0, 2, 1, 3)) for z in hm.split(project(norm(x)), d, axis=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + out(y.permute_dims((0, 2, 1, 3)).reshape((b, t, d)))
        loss = F.cross_entropy(head(F.gelu(x)).reshape((-1, 5)), targets.reshape((-1,)))
        return loss, *hm.autograd.grad(loss, parameters)

    traced = hm.trace(gradients)
    for n in (8, 9, 3, 20, 2):
        args = integers(11, 3, n), integers(5, 3, n)
        for a, b in zip(traced(*args), gradients(*args), strict=True):
            close(a, b)
    assert traced.cache_info().compiles == 2, traced.retraces


def test_random_numbers_are_those_of_eager_code() -> None:
    def f(x: hm.Tensor) -> hm.Tensor:
        return x + hm.random.uniform(x.shape) + hm.random.normal((x.shape[0],))[:, None]

    traced = hm.trace(f)
    for n in SIZES:
        x = normal(n, 7)
        hm.random.manual_seed(n)
        expected = f(x)
        hm.random.manual_seed(n)
        assert traced(x).numpy().tobytes() == expected.numpy().tobytes()
    assert traced.cache_info().compiles == 2, traced.retraces


def test_draws_of_other_shapes_before_a_trace_do_not_matter() -> None:
    for _ in range(20):  # until they are native calls
        hm.random.uniform((2, 5))
    traced = hm.trace(lambda x: x + hm.random.uniform(x.shape))
    for n in SIZES:
        traced(normal(n, 7))
    assert traced.cache_info().compiles == 2, traced.retraces


def test_gradients_of_a_call_that_is_recorded() -> None:
    w = normal(6, 3).requires_grad_()

    def f(x: hm.Tensor) -> hm.Tensor:
        return hm.exp(x @ w * 0.1).mean(0).sum()

    traced = hm.trace(f)
    for n in SIZES:
        x, other = normal(n, 6), None
        for fn in (f, traced):
            w.grad = None
            given_x = hm.tensor(x.numpy(), requires_grad=True)
            fn(given_x).backward()
            assert w.grad is not None and given_x.grad is not None
            found = w.grad.numpy(), given_x.grad.numpy()
            for a, b in zip(found, other or found, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
            other = found
    assert traced.cache_info().compiles == 2


# ---------------------------------------------------------------- decisions


def test_a_batch_as_large_as_a_bias_has_no_program_of_its_own() -> None:
    layer = nn.Linear(6, 5)

    def loss(x: hm.Tensor) -> list[hm.Tensor]:
        return hm.autograd.grad((layer(x) ** 2).sum(), [layer.weight, layer.bias])

    traced = hm.trace(loss)
    for n in (4, 5, 6, 30):
        x = normal(n, 6)
        for got, expected in zip(traced(x), loss(x), strict=True):
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)
    assert traced.cache_info().compiles == 2, traced.retraces


def test_branches_on_a_size_are_guards() -> None:
    def f(x: hm.Tensor) -> hm.Tensor:
        return x * 2 if x.shape[0] > 10 else x + 1

    traced = hm.trace(f)
    for n in (8, 9, 10, 33, 40, 7, 11, 3):
        close(traced(normal(n, 3) * 0 + 5), f(normal(n, 3) * 0 + 5))
    assert traced.cache_info().compiles == 3  # 8; up to 10; beyond
    assert traced.cache_info().hits == 5
    guard, rest = traced.ir.split("\n", 1)
    assert guard.startswith("# n < 11  test_dynamic_shapes.py:") and "x.shape[0] > 10" in guard
    assert print_graph(parse_graph(traced.ir)) == rest


def test_a_number_that_is_asked_for_is_said_with_its_line_and_compiled_for_each_size() -> None:
    def f(x: hm.Tensor) -> hm.Tensor:
        return x.sum(0) * int(x.shape[0])  # a line that needs to know

    traced = hm.trace(f)
    for n in (4, 5, 6, 5, 4):
        close(traced(normal(n, 3) * 0 + 1), f(normal(n, 3) * 0 + 1))
    assert traced.cache_info().compiles == 3
    assert traced.retraces[0].startswith("f retraced: the size of axis 0 of x stays as it is: a number is asked for at")
    assert "return x.sum(0) * int(x.shape[0])" in traced.retraces[0]


@pytest.mark.parametrize("sizes", [(5, 2, 3, 4, 6), (3, 24, 4, 5, 6), (5, 4, 2, 24, 7)])
def test_a_size_that_meets_another_by_chance_is_alone(sizes: Sequence[int]) -> None:
    """All others still have one program."""

    def f(x: hm.Tensor) -> hm.Tensor:
        return x[1:].sum() * (2 if x.shape[0] == 24 else 1)

    traced = hm.trace(f)
    for n in sizes:
        x = normal(n, 3)
        close(traced(x), f(x))
    alone = sum(n in (2, 24) for n in sizes[1:])
    assert traced.cache_info().compiles == 2 + alone
    assert sum("in a program of its own: compared at" in line for line in traced.retraces) == alone


def test_text_of_a_size_is_that_of_its_number() -> None:
    def f(x: hm.Tensor) -> hm.Tensor:
        return x * int(f"{x.shape[0]}") * int(str(x.shape[1])) * len(repr(x.shape))

    traced = hm.trace(f)
    for n in (3, 4, 5):
        x = normal(n, 2)
        close(traced(x), f(x))


def test_equal_sizes_share_a_symbol_and_unequal_ones_do_not() -> None:
    def f(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        return x + y

    traced = hm.trace(f)
    for n in (4, 5, 6):
        traced(normal(n, 3), normal(n, 3))
    assert traced.cache_info().compiles == 2
    assert "f[n=5](" in traced.ir and "m" not in traced.ir.split("(")[0]
    with pytest.raises(hm.ShapeError, match=r"do not broadcast: axis -2 has sizes 7 and 8"):
        traced(normal(7, 3), normal(8, 3))
    assert traced(normal(7, 3), normal(1, 3)).shape == (7, 3)


def test_wrong_sizes_are_errors_of_eager_code_in_its_words() -> None:
    w = normal(3, 2)
    traced = hm.trace(lambda x: x @ w)
    for n in (4, 5, 6):
        traced(normal(n, 3))
    for shape in ((5, 4), (9, 5), (3,), (2, 2)):
        x = normal(*shape)
        try:
            expected = (x @ w).shape
        except hm.ShapeError as error:
            with pytest.raises(hm.ShapeError) as caught:
                traced(x)
            assert str(caught.value).split("\n")[0] == str(error).split("\n")[0]
        else:
            assert traced(x).shape == expected


@pytest.mark.parametrize("name", ["standardised", "softmax_of_rows", "reshapes", "new_tensors_of_the_size"])
def test_sizes_0_and_1_have_programs_of_their_own(name: str) -> None:
    fn, arguments = CASES[name]()
    traced = hm.trace(fn)
    for n in (3, 4, 1, 5, 0, 1, 0, 6):
        args = arguments(n)
        if n or name != "reshapes":
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(
                    traced(*args).numpy(), fn(*args).numpy(), rtol=1e-4, atol=1e-5, equal_nan=True
                )
    assert traced.cache_info().compiles <= 4, traced.retraces


def test_stretched_sizes() -> None:
    def f(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        return x * y + 1

    traced = hm.trace(f)
    for n, m in ((4, 4), (5, 1), (1, 6), (7, 7), (8, 1), (1, 1), (9, 9)):
        x, y = normal(n, 3), normal(m, 3)
        assert traced(x, y).numpy().tobytes() == f(x, y).numpy().tobytes()


def test_what_cannot_be_compiled_for_any_size_is_compiled_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise hm.CompileError("no code for this")

    w = normal(3, 2).requires_grad_()
    traced, later = hm.trace(lambda x: (x @ w).sum()), hm.trace(lambda x: hm.exp(x @ w).sum())
    later(normal(4, 3))
    later(normal(5, 3))
    monkeypatch.setattr("hybridml_compiler.pipeline._compile_symbolic", refuse)
    for n in (4, 5, 6):
        x = normal(n, 3)
        close(traced(x), (x @ w).sum())
    assert traced.cache_info().compiles == 3
    assert "it cannot be compiled for any size (no code for this)" in traced.retraces[0]
    w.grad = None
    later(hm.ones((6, 3)) * 0).backward()  # its gradient is compiled now
    assert w.grad is not None and w.grad.tolist() == [[0.0, 0.0]] * 3


def test_sizes_that_leave_the_function_are_numbers() -> None:
    seen: list[int] = []

    def f(x: hm.Tensor) -> Any:
        seen.append(x.shape[0] * 2)
        return x * 2, x.shape, {"half": x.shape[0] // 2, "is": isinstance(x.shape[0], int)}

    traced = hm.trace(f)
    for n in (4, 5, 6, 9):
        _, shape, found = traced(normal(n, 3))
        assert shape == (n, 3) and found == {"half": n // 2, "is": True}
        assert all(type(size) is int for size in (*shape, found["half"], *seen))
    assert seen == [8, 10, 12, 18] and traced.cache_info().compiles == 2


def test_asked_not_to() -> None:
    @hm.trace(dynamic=False)
    def f(x: hm.Tensor) -> hm.Tensor:
        return x * 2

    for n in (3, 4, 5):
        f(normal(n))
    assert f.cache_info().compiles == 3


def test_text_of_the_graph(golden: Callable[[str, str], None]) -> None:
    fn, arguments = CASES["masked_attention"]()
    traced = hm.trace(fn)
    for n in (8, 9):
        traced(*arguments(n))
    golden("dynamic_attention", traced.ir)


def test_sizes_that_would_cost_a_loop_stay_as_they_are() -> None:
    def product(ends: hm.Tensor, columns: hm.Tensor, values: hm.Tensor, x: hm.Tensor) -> hm.Tensor:
        y = hm.zeros((len(ends) - 1,), dtype=x.dtype)
        for i in range(len(y)):
            total = 0.0
            for k in range(ends[i], ends[i + 1]):
                total += values[k] * x[columns[k]]
            y[i] = total
        return y

    traced = hm.trace(product)
    for n in (60, 61, 75):
        r = np.random.default_rng(n)
        ends = np.sort(r.integers(0, n, 21))
        given = [hm.asarray(a) for a in (ends, r.integers(0, 9, n), r.random(n), r.random(9))]
        np.testing.assert_allclose(traced(*given).numpy(), product(*given).numpy(), rtol=1e-12)
        assert traced.ir.count(" loop(") == 2
    assert any("stays as it is" in line and "would be unrolled" in line for line in traced.retraces)

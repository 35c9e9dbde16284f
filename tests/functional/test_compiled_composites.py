"""Composites compiled at the granularity of one call: the numbers of the operations, gradients included."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import pytest

import hybridml as hm
from hybridml import functional as F
from hybridml.core import library as compiled
from hybridml.tracing import library_function
from hybridml_compiler.errors import GradientError
from hybridml_compiler.targets.cpu import arenas
from hybridml_compiler.targets.cpu.python_entry import spec
from tests.support.by_operation import by_operation
from tests.support.torch_layers import FUNCTIONS as LAYERS

X = np.random.default_rng(0).standard_normal((6, 4, 8, 8)).astype("f4")
W = np.random.default_rng(1).standard_normal((5, 4, 3, 3)).astype("f4")


def unit(x: hm.Tensor) -> hm.Tensor:
    return hm.sigmoid(x.detach()) * 0.5 + hm.sigmoid(x) * 0.5


CALLS: dict[str, Callable[[hm.Tensor], hm.Tensor]] = {
    "relu": F.relu,
    "logsigmoid": F.logsigmoid,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.3),
    "elu": lambda x: F.elu(x, 0.7),
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "softplus": F.softplus,
    "softmax": lambda x: F.softmax(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (8, 8)),
    "rms_norm": lambda x: F.rms_norm(x, (8,)),
    "group_norm": lambda x: F.group_norm(x, 2),
    "batch_norm": lambda x: F.batch_norm(x, hm.zeros((4,)), hm.ones((4,)), hm.ones((4,)), training=True),
    "conv2d": lambda x: F.conv2d(x, hm.asarray(W), stride=2, padding=1),
    "conv1d": lambda x: F.conv1d(x.reshape((6, 4, 64)), hm.asarray(W[:, :, 0]), dilation=2),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, hm.asarray(W[:4]), stride=2, output_padding=1),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 2),
    "embedding": lambda x: F.embedding(hm.asarray([[0, 5], [5, 23]]), x.reshape((24, 64)), padding_idx=0),
    "linear": lambda x: F.linear(x, hm.asarray(W[:, 0, 0, :].repeat(3, axis=1)[:, :8]), hm.asarray(W[:, 0, 0, 0])),
    "scaled_dot_product_attention": lambda x: F.scaled_dot_product_attention(x, x * 0.5, x + 1, is_causal=True),
    "nll_loss": lambda x: F.nll_loss(x.reshape((24, 64)), hm.arange(24)),
    "mse_loss": lambda x: F.mse_loss(x, x * x),
    "l1_loss": lambda x: F.l1_loss(x, x * x),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x * x, beta=0.5),
    "huber_loss": lambda x: F.huber_loss(x, x * x, reduction="sum"),
    "kl_div": lambda x: F.kl_div(x, x * x),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(unit(x), unit(x * 2)),
    "binary_cross_entropy_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, unit(x * 2)),
    "one_hot": lambda x: F.one_hot(hm.arange(8), 8) * x,
    "cross_entropy": lambda x: F.cross_entropy(x.reshape((24, 64)), hm.arange(24)),
}


def value_and_gradient(call: Callable[[hm.Tensor], hm.Tensor]) -> tuple[np.ndarray, np.ndarray]:
    x = hm.tensor(X, requires_grad=True)
    out = call(x)
    (out * hm.cos(hm.arange(out.size, dtype=hm.float32).reshape(out.shape))).sum().backward()
    assert x.grad is not None
    return out.detach().numpy(), x.grad.numpy()


@pytest.mark.parametrize("name", CALLS)
def test_compiled_and_plain_agree(name: str) -> None:
    plain = by_operation(lambda: value_and_gradient(CALLS[name]))
    for got, expected in zip(value_and_gradient(CALLS[name]), plain, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_statistics_move_in_a_compiled_call(training: bool) -> None:
    def run() -> list[np.ndarray]:
        mean, variance = hm.zeros((4,)), hm.ones((4,))
        outs = [
            F.batch_norm(hm.asarray(X), mean, variance, training=training, momentum=m) for m in (0.1, 0.1, 0.3, 0.1)
        ]
        return [np.asarray(t) for t in (*outs, mean, variance)]

    plain = by_operation(run)
    for got, expected in zip(run(), plain, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_every_composite_is_tried() -> None:
    named = {name for name in dir(F) if getattr(getattr(F, name), "__globals__", None) is vars(compiled)}
    assert named <= CALLS.keys() | {"relu6"} | {case.split()[0] for case in LAYERS}  # those are traced in test_layers


def test_errors_are_those_of_the_operations() -> None:
    def fails() -> str:
        with pytest.raises(ValueError) as error:
            F.softmax(hm.ones((2, 3)), 5)
        return str(error.value).splitlines()[0]

    assert fails() == by_operation(fails)


def made_by(fn: Callable[..., Any], **how: Any) -> tuple[Callable[..., Any], library_function.LibraryFunction]:
    """A library function, and what calls it."""
    library = library_function.LibraryFunction(fn, **how)
    return lambda *args, **kwargs: library.call(args, kwargs), library


def test_sizes_are_symbols_in_the_second_program_of_small_arrays() -> None:
    call, library = made_by(lambda x, y: x * 2 + y)
    for n in (3, 4, 5, 6, 6, 3, 4):
        assert call(hm.ones(n), hm.ones(n)).tolist() == [3.0] * n
    (traced,) = library.traced.values()
    assert traced.cache_info().compiles == 2 and len(library.known) == 4


ATTENTION = {"query": (-2,), "key": (-2,), "value": (-2,)}


@pytest.mark.parametrize("causal", [False, True])
def test_a_growing_sequence_has_one_program_whatever_came_first(causal: bool) -> None:
    x = {n: hm.asarray(np.random.default_rng(n).standard_normal((2, 3, n, 8), dtype=np.float32)) for n in (4, 9, 17)}
    found = []
    for order in ((4, 9, 17), (17, 4, 9)):
        call, library = made_by(F.scaled_dot_product_attention.__wrapped__, sizes=ATTENTION)
        results = {n: call(x[n], x[n], x[n], is_causal=causal).numpy().tobytes() for n in order}
        found.append([results[n] for n in x])
        assert sum(traced.cache_info().compiles for traced in library.traced.values()) == 1
    assert found[0] == found[1]


def test_stated_sizes_at_which_the_function_looks_have_programs_of_their_own() -> None:
    call, library = made_by(lambda x, y: hm.matmul(x, y) * len(range(x.shape[0])), sizes={"x": (-2,)})
    for n in (1, 2, 3, 4, 3, 2, 1):
        assert call(hm.ones((n, 2)), hm.ones((2, 1))).tolist() == [[2.0 * n]] * n
    assert sum(traced.cache_info().compiles for traced in library.traced.values()) == 4


def test_many_signatures_go_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_function, "MOST", 2)
    monkeypatch.setattr(library_function, "LARGE", 0)
    call, library = made_by(lambda x: x * 2)
    for n in (3, 4, 5, 6, 6, 3, 4):
        assert call(hm.ones(n)).tolist() == [2.0] * n
    (traced,) = library.traced.values()
    assert traced.cache_info().compiles == 2
    assert [call is library_function._one_too_many for call in library.known.values()] == [False, False, True, True]


def test_many_options_go_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_function, "MOST", 2)
    call, library = made_by(lambda x, n: x * n)
    for n in (3, 4, 5, 6, 6, 3, 4):
        assert call(hm.ones(2), n).tolist() == [float(n)] * 2
    assert len(library.traced) == 2 and len(library.known) == 4


EXACT: dict[str, Callable[[hm.Tensor], hm.Tensor]] = {
    **{
        name: getattr(F, name)
        for name in (
            "relu relu6 leaky_relu elu gelu silu softplus logsigmoid hardtanh hardsigmoid hardswish hardshrink "
            "softshrink tanhshrink softsign mish celu selu glu"
        ).split()
    },
    "threshold": lambda x: F.threshold(x, 0.1, 20.0),
    "pad": lambda x: F.pad(x, (1, 2), mode="reflect"),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "dropout": lambda x: F.dropout(x, 0.3),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.3, training=True),
    "roll": lambda x: hm.roll(x, 1, 2),
    "tile": lambda x: hm.tile(x, (1, 2)),
    "stack": lambda x: hm.stack([x, x * 2], 1),
    "normal": lambda x: x * hm.random.normal((6, 4, 8, 8)),
    "gamma": lambda x: x * hm.random.gamma(2.0, shape=(6, 4, 8, 8)),
    "power": lambda x: hm.exp(x) ** 1.7 + x**3,
    "where": lambda x: hm.where(x > 0, x, 0.25),
    "exp": hm.exp,
    "erf": hm.special.erf,
}


@pytest.mark.parametrize("name", EXACT)
def test_bits_of_what_waits_are_those_of_the_operations(name: str) -> None:
    def run() -> list[bytes]:
        hm.manual_seed(5)
        return [array.tobytes() for array in value_and_gradient(EXACT[name])]

    expected = by_operation(run)
    for _ in range(library_function.WORTH + 2):
        assert run() == expected


BATCHES: dict[str, Callable[[hm.Tensor], hm.Tensor]] = {
    "softmax": lambda x: hm.exp(x - x.max(-1, keepdims=True)) / hm.exp(x - x.max(-1, keepdims=True)).sum(-1, True),
    "norm": lambda x: (x - x.mean(0)) / hm.sqrt(x.var(0) + 1e-5),
    "total": lambda x: (x * x).sum() + x.mean(),
    "product": lambda x: x @ (x.mT @ x),
    "logsumexp": lambda x: hm.log(hm.exp(x).sum(1)),
    "cumsum": lambda x: hm.cumsum(x, 0) * hm.cumsum(x, 1),
}


@pytest.mark.parametrize("name", BATCHES)
def test_bits_do_not_depend_on_the_sizes_that_came_before(name: str) -> None:
    def run(sizes: tuple[int, ...]) -> list[bytes]:
        call, _ = made_by(lambda x: BATCHES[name](x))
        for n in sizes:
            x = hm.asarray(np.random.default_rng(0).standard_normal((n, 24)).astype("f4")).requires_grad_()
            out = call(x)
            (grad,) = hm.autograd.grad((out * out).sum(), [x])
        return [out.detach().numpy().tobytes(), grad.numpy().tobytes()]

    assert run((37,)) == run((16, 50, 21, 37))


def test_floats_are_inputs_unless_the_function_looks_at_them() -> None:
    call, library = made_by(lambda x, a=1.0: x * a)
    assert [call(hm.ones(2), a).tolist() for a in (2.0, 3.0, -0.0)] == [[2.0] * 2, [3.0] * 2, [-0.0] * 2]
    assert len(library.known) == 1
    call, library = made_by(lambda x, a=1.0: x * a if a > 2 else x + a)
    assert [call(hm.ones(2), a).tolist() for a in (2.0, 3.0, 2.0)] == [[3.0] * 2, [3.0] * 2, [3.0] * 2]
    assert library.looks and len(library.known) == 2


def test_options_by_name_and_by_position_are_one_signature() -> None:
    def fn(x: hm.Tensor, axis: int = 0, *, keepdims: bool = False) -> hm.Tensor:
        return hm.sum(x, axis=axis, keepdims=keepdims)

    call, library = made_by(fn)
    x = hm.ones((2, 3))
    assert call(x, 1).shape == call(x, axis=1).shape == (2,)
    assert call(x, 1, keepdims=True).shape == (2, 1) and call(x).shape == (3,)
    assert len(library.known) == 3
    for wrong in (lambda: call(), lambda: call(x, 1, 2, 3), lambda: call(x, x=x), lambda: call(x, unknown=1)):
        with pytest.raises(TypeError, match="argument"):
            wrong()


def test_memory_in_another_order_is_taken_as_it_lies() -> None:
    call, _ = made_by(lambda x, y: x * 2 + y)
    x = hm.asarray(np.arange(12, dtype="f4").reshape(3, 4))
    expected = (np.arange(12, dtype="f4").reshape(3, 4) * 2).T + 1
    assert (call(x.T, hm.ones((4, 3))).numpy() == expected).all()
    assert (call(x.T, hm.ones((4, 3))).numpy() == expected).all()
    assert (call(x[:, ::2], hm.ones((3, 2))).numpy() == x.numpy()[:, ::2] * 2 + 1).all()


def test_gradients_go_to_what_wants_them_and_to_any_order() -> None:
    call, _ = made_by(lambda x, y: x * x * y)
    x, y = hm.tensor([1.0, 2.0], requires_grad=True), hm.tensor([3.0, 4.0])
    call(x, y).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [6.0, 16.0] and y.grad is None
    (first,) = hm.autograd.grad(call(x, y).sum(), [x], create_graph=True)
    (second,) = hm.autograd.grad(first.sum(), [x])
    assert second.tolist() == [6.0, 8.0]
    with hm.no_grad():
        assert not call(x, y).requires_grad
    kept = call(x, y)
    x.detach().copy_(hm.ones(2))
    with pytest.raises(hm.GradientError, match="overwritten in place"):
        kept.sum().backward()


def test_lists_options_and_several_results() -> None:
    class Pair(NamedTuple):
        low: hm.Tensor
        high: hm.Tensor | None

    def fn(what: str, pair: Pair, more: list[hm.Tensor]) -> Pair:
        assert what == "sum"
        low = pair.low * more[0] if pair.high is None else pair.low * pair.high + more[0]
        return Pair(low, None if pair.high is None else low + more[-1])

    call, library = made_by(fn)
    x, y, z = (hm.tensor([float(k), 2.0], requires_grad=True) for k in (1, 2, 3))
    for _ in range(2):
        found = call("sum", Pair(x, None), [y, z])
        assert type(found) is Pair and found.low.tolist() == [2.0, 4.0] and found.high is None
        both = call("sum", Pair(x, y), [z])
        assert both.high.tolist() == [8.0, 8.0]
        dx, dy, dz = hm.autograd.grad((both.low * 2 + both.high).sum(), [x, y, z])
        assert (dx.tolist(), dy.tolist(), dz.tolist()) == ([6.0, 6.0], [3.0, 6.0], [4.0, 4.0])
        (dz,) = hm.autograd.grad(call("sum", Pair(x, y), [z]).high.sum(), [z])
        assert dz.tolist() == [2.0, 2.0]
    assert len(library.inner) == 2
    assert all(
        type(known) is not type(library_function._by_operation)
        for f in library.inner.values()
        for known in f.known.values()
    )


def test_numbers_are_drawn_and_arguments_updated() -> None:
    def fn(x: hm.Tensor, state: hm.Tensor) -> hm.Tensor:
        state.add_(1.0)
        return x * hm.random.uniform(x.shape) + state

    call, library = made_by(fn)
    x = hm.ones(4, requires_grad=True)
    found = []
    for run in (call, fn):
        state = hm.zeros(4)
        hm.manual_seed(3)
        outs = [run(x, state) for _ in range(3)]
        (grad,) = hm.autograd.grad(sum(out.sum() for out in outs), [x])
        found.append([state.tolist(), grad.tolist(), *(out.tolist() for out in outs)])
    assert found[0] == found[1] and found[0][0] == [3.0] * 4
    assert [type(known).__name__ for known in library.known.values()] == ["Recorded"]


def test_errors_of_native_calls_are_the_functions_own() -> None:
    call, _ = made_by(lambda x, i: hm.take(x, i, axis=0) * 2)
    x = hm.ones((3, 2))
    assert call(x, hm.tensor([0, 2])).shape == (2, 2)
    with pytest.raises(IndexError, match="index 5"):
        call(x, hm.tensor([0, 5]))


def test_threads_share_a_function() -> None:
    call, _ = made_by(lambda x: F.softmax(x * 2, -1).sum())
    x = hm.random.normal((64, 64))
    expected = call(x).item()
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: call(x).item(), range(200))) == {expected}


def test_the_default_dtype_is_part_of_a_signature() -> None:
    call, _ = made_by(lambda x: x * hm.full((), 0.1))
    x = hm.ones(2, dtype=hm.float64)
    first = call(x).tolist()
    hm.set_default_dtype(hm.float64)
    try:
        assert call(x).tolist() == [0.1, 0.1] != first
    finally:
        hm.set_default_dtype(hm.float32)
    assert call(x).tolist() == first


def test_the_gradient_of_a_traced_function_of_a_float() -> None:
    @hm.trace
    def scaled(x: hm.Tensor, a: float) -> hm.Tensor:
        return hm.exp(x * a)

    for a in (0.5, 0.7):
        x = hm.tensor([1.0, 2.0], requires_grad=True)
        scaled(x, a).sum().backward()
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), a * np.exp(np.array([1.0, 2.0]) * a), rtol=1e-6)
    assert scaled.cache_info().compiles == 1


@pytest.mark.usefixtures("source_lines")
@pytest.mark.parametrize(
    "fails",
    [
        lambda x: hm.where(x, x, 0.0),
        lambda x: x + hm.ones(3, dtype=hm.int64),
        lambda x: hm.ones(2, dtype=hm.int8) + 2**70,
        lambda x: x & 1,
    ],
)
def test_errors_of_rows_tell_the_line_of_the_user(fails: Callable[[hm.Tensor], hm.Tensor]) -> None:
    with pytest.raises((TypeError, ValueError), match=r"at test_compiled_composites\.py:\d+: lambda x"):
        fails(hm.ones(2))


def test_calls_of_many_sizes_share_an_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    arena = spec.arena
    monkeypatch.setattr(spec, "arena", lambda size: taken.append(size) or arena(size))
    call, library = made_by(lambda x: F.softmax.__wrapped__(F.softmax.__wrapped__(x[:, None] - x[None], 0), 1))
    for n in range(60, 90):
        x = hm.ones(n)
        assert call(x).shape == (n, n)
    assert len(library.known) == 30 and sum(taken) <= 4 * max(taken) and max(taken) > 90 * 90 * 4


def test_large_programs_share_an_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    arena = spec.arena
    monkeypatch.setattr(arenas, "_all", arenas.Arenas())  # none of tests before
    monkeypatch.setattr(spec, "arena", lambda size: taken.append(size) or arena(size))
    calls = [
        made_by(lambda x, k=k: F.softmax.__wrapped__(F.softmax.__wrapped__(x[:, None] * k - x[None], 0), 1))[0]
        for k in (1.0, 2.0, 3.0, 4.0)
    ]
    x = hm.linspace(0.0, 1.0, 1000)
    expected = [call(x).numpy().copy() for call in calls]
    assert sum(taken) <= 3 * max(taken) and max(taken) >= arenas.LARGE
    with ThreadPoolExecutor(4) as threads:  # at the same time: one of two finds the arena at work
        for _ in range(20):
            for found, want in zip(threads.map(lambda call: call(x).numpy(), calls), expected, strict=True):
                np.testing.assert_array_equal(found, want)


def test_a_call_that_finds_the_arena_at_work_takes_the_long_way() -> None:
    """The sizes share it: a second thread, or a call from within a step, may come with any of them."""
    call, library = made_by(lambda x: F.softmax.__wrapped__(x[:, None] - x[None], 0))
    for n in (3, 5, 4):
        call(hm.ones(n))
    keys = [*library.known]
    lock = library.programs[keys[1]].executable.shared_arena(0).lock
    lock.value = 1
    assert all(library.known[keys[k]](hm.ones(n)) is library_function.MISS for k, n in ((1, 5), (2, 4)))
    assert call(hm.ones(4)).tolist() == [[0.25] * 4] * 4
    lock.value = 0
    assert library.known[keys[2]](hm.ones(4)).shape == (4, 4)


def test_a_default_may_be_given_for_another_option() -> None:
    def fn(x: hm.Tensor, low: float = 0.5, high: float = 20.0) -> hm.Tensor:
        return x * low + high

    call, library = made_by(fn)
    assert fn.__defaults__ is not None
    low, high = fn.__defaults__
    for _ in range(2):
        assert call(hm.ones(2), high, high).tolist() == [40.0] * 2
        assert call(hm.ones(2), low, low).tolist() == [1.0] * 2
        assert library.direct(hm.ones(2), low, low).tolist() == [1.0] * 2


@pytest.mark.parametrize("strided", [False, True])
def test_what_numpy_computes_is_no_native_call(strided: bool) -> None:
    library = library_function.LibraryFunction(lambda x, y: hm.sqrt(x) * y, exact=True, row=True)
    x = hm.ones((3, 2)).T if strided else hm.ones((2, 3), dtype=hm.complex64)
    for _ in range(20):
        assert library.call((x, 2.0), {}).tolist() == [[2.0] * 3] * 2
    assert all(call is library_function._by_operation for call in library.known.values())


def test_permuted_memory_is_taken_natively_by_library_functions() -> None:
    library = library_function.LibraryFunction(F.relu6.__wrapped__, exact=True)
    x = hm.asarray(X).permute((0, 2, 3, 1))
    for _ in range(20):
        assert library.call((x,), {}).shape == (6, 8, 8, 4)
    assert library.known and library_function._by_operation not in library.known.values()


def test_statistics_in_strided_memory_move_and_read_only_ones_do_not() -> None:
    x = hm.asarray(X)
    for _ in range(3):
        mean, variance = hm.zeros(8)[::2], hm.ones(8)[::2]
        F.batch_norm(x, mean, variance, training=True)
        dense = hm.zeros(4)
        F.batch_norm(x, dense, hm.ones(4), training=True)
        assert mean.tolist() == dense.tolist() != [0.0] * 4
        array = np.zeros(4, np.float32)
        array.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            F.batch_norm(x, hm.asarray(array), hm.ones(4), training=True)
        assert not array.any()


def test_a_result_shows_the_function_that_made_it() -> None:
    x = hm.ones((1, 1, 2, 2), requires_grad=True)
    for out, name in ((F.softmax(x), "softmax"), (F.max_pool2d(x, 2), "max_pool2d"), (x + hm.arange(2), "add")):
        assert f"grad_fn=<{name}>" in repr(out)
    assert "grad_fn=<function>" in repr(hm.trace(lambda x: x * 2)(x))


@pytest.mark.parametrize(
    ("fn", "refused"),
    [(F.relu, False), (hm.tanh, False), (lambda x: x * 3.0, False), (lambda x: hm.roll(x, 1), False),
     (F.leaky_relu, True), (F.gelu, True), (hm.square, True)],
)  # fmt: skip
def test_an_overwritten_input_is_refused_from_the_first_call_on_or_never(fn: Callable[..., Any], refused: bool) -> None:
    """relu and tanh keep their result, gelu its input, as PyTorch's do, before there are programs of them too."""
    for _ in range(40):
        w = hm.ones((3, 5), requires_grad=True)
        x = w * 2.0
        x += fn(x)
        with pytest.raises(GradientError, match="overwritten in place") if refused else nullcontext():
            x.sum().backward()


def test_pulls_have_the_same_bits_before_and_after_they_are_native() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.uniform(0.5, 2, shape).astype("f4") for shape in ((5, 7), (5, 7), (1, 7)))
    for fn in (
        lambda x, y: (x * y).sum(), lambda x, y: hm.where(x > y, x, y).sum(), lambda x, y: x.max(axis=1).sum(),
        lambda x, y: (x**2 + hm.atan(y)).mean(), lambda x, y: (x / y).sum(axis=0)[2],
        lambda x, y: hm.clip(x, 1, y).sum(),
    ):  # fmt: skip
        for second in (b, c):
            found = []
            for _ in range(30):
                x, y = hm.tensor(a, requires_grad=True), hm.tensor(second, requires_grad=True)
                fn(x, y).backward()
                found.append([None if t.grad is None else t.grad.numpy().tobytes() for t in (x, y)])
            assert all(f == found[0] for f in found)


def test_attention_with_dropout_is_a_native_call() -> None:
    """Its sizes are constants: native calls draw no number of random numbers that comes with the call."""
    call, library = made_by(F.scaled_dot_product_attention.__wrapped__, sizes=ATTENTION)
    for n in (4, 5, 4):
        call(*[hm.ones((1, 2, n, 3))] * 3, dropout_p=0.5)
    assert len(library.known) == 2
    assert not any(call in library_function._NO_CALL for call in library.known.values())


def test_cotangents_lie_as_what_they_are_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of convolutions lie channels last. A step of MobileNet took 60 ms where each cotangent was copied to lie
    channels first, and takes 35."""
    x, w = hm.asarray(X), hm.ones((5, 4, 3, 3), requires_grad=True)

    def gradient() -> np.ndarray:
        w.grad = None
        y = F.batch_norm(F.conv2d(x, w), None, None, training=True)
        assert not y.detach().numpy().flags.c_contiguous
        F.conv2d(F.relu6(y), hm.ones((2, 5, 3, 3))).sum().backward()
        return w.grad.numpy()

    wanted = gradient()

    def copied(array: np.ndarray) -> np.ndarray:
        raise AssertionError(f"a copy of {array.shape}")

    monkeypatch.setattr(np, "ascontiguousarray", copied)
    np.testing.assert_array_equal(gradient(), wanted)

"""State of traced programs: parameters, gradients, random numbers, arguments updated in place, as in eager code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def same(a: hm.Tensor, b: hm.Tensor) -> None:
    assert type(a) is hm.Tensor and a.shape == b.shape and a.dtype is b.dtype
    np.testing.assert_allclose(np.asarray(a.detach()), np.asarray(b.detach()), rtol=2e-6, atol=1e-6)


def test_captured_arrays_are_read_at_each_call(trace: Any) -> None:
    a = np.ones(2, np.float32)
    f = trace(lambda x: x * a + hm.asarray(a))
    x = hm.tensor([1.0, 2.0])
    assert f(x).tolist() == [2, 3]
    a[:] = 10
    assert f(x).tolist() == [20, 30] and f.cache_info().compiles == 2  # NumPy alone has not read it, then or now
    for k in range(3):
        a[:] = k
        assert f(x).tolist() == [2 * k, 3 * k] and f.cache_info().compiles == 2


class MLP:
    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.w1 = hm.tensor(rng.standard_normal((4, 8)).astype("f4") * 0.3, requires_grad=True)
        self.w2 = hm.tensor(rng.standard_normal((8, 2)).astype("f4") * 0.3, requires_grad=True)
        self.b = hm.zeros((2,), requires_grad=True)
        self.seen = hm.zeros((), dtype=hm.int64)
        self.momentum = [hm.zeros_like(p) for p in self.parameters()]

    def parameters(self) -> list[hm.Tensor]:
        return [self.w1, self.w2, self.b]

    def __call__(self, x: hm.Tensor) -> hm.Tensor:
        return hm.tanh(x @ self.w1) @ self.w2 + self.b

    def step(self, x: hm.Tensor, y: hm.Tensor, lr: float) -> hm.Tensor:
        for p in self.parameters():
            p.grad = None
        loss = ((self(x) - y) ** 2).mean()
        loss.backward()
        self.seen += 1
        with hm.no_grad():
            for p, m in zip(self.parameters(), self.momentum, strict=True):
                m.mul_(0.9).add_(p.grad)
                p -= lr * m
        return loss

    def state(self) -> list[np.ndarray]:
        return [np.asarray(t.detach()) for t in [*self.parameters(), *self.momentum, self.seen]]


def test_a_whole_training_step(trace: Any) -> None:
    rng = np.random.default_rng(1)
    data = [(hm.asarray(rng.standard_normal((6, 4)).astype("f4")), hm.asarray(rng.standard_normal((6, 2)).astype("f4")))
            for _ in range(5)]  # fmt: skip
    eager, traced = MLP(), MLP()
    step = trace(lambda x, y, lr: traced.step(x, y, lr))
    for k, (x, y) in enumerate(data):
        assert step(x, y, 0.1 / (k + 1)).item() == pytest.approx(eager.step(x, y, 0.1 / (k + 1)).item(), rel=1e-6)
    for a, b in zip(eager.state(), traced.state(), strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-6)
    for p, q in zip(eager.parameters(), traced.parameters(), strict=True):
        same(q.grad, p.grad)
        assert q.is_leaf and q.requires_grad
    assert step.cache_info().compiles == 1 and step.cache_info().hits == 4
    with pytest.raises(hm.GradientError, match="freed"):
        step(*data[0], 0.1).backward()


def test_gradients_outside(trace: Any) -> None:
    w = hm.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=hm.float64, requires_grad=True)

    def program(x: hm.Tensor) -> tuple[hm.Tensor, hm.Tensor]:
        y = hm.sin(x @ w)
        return (y * y).sum(), y.detach() * x

    f = trace(program)

    def gradients(fn: Callable[..., Any]) -> list[np.ndarray]:
        x = hm.tensor([[0.5, -1.0]], dtype=hm.float64, requires_grad=True)
        w.grad = None
        s, d = fn(x * 1)
        (s * 3 + d.sum()).backward(create_graph=True)
        first = [x.grad, w.grad]
        second = hm.autograd.grad(first[0].sum() * first[1].sum(), [x, w])
        return [np.asarray(g.detach()) for g in [*first, *second]]

    for got, expected in zip(gradients(f), gradients(program), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    assert f.cache_info().compiles == 1


def test_gradients_of_every_order(trace: Any) -> None:
    f = trace(lambda x: (x**4).sum())
    x = hm.tensor([1.0, 2.0])

    def derivative(fn: Callable[..., Any]) -> Callable[..., Any]:
        return lambda t: hm.grad(fn)(t).sum()

    assert hm.grad(f)(x).tolist() == [4, 32]
    assert hm.grad(derivative(f))(x).tolist() == [12, 48]
    assert hm.grad(derivative(derivative(f)))(x).tolist() == [24, 48]
    assert hm.trace(hm.grad(derivative(f)))(x).tolist() == [12, 48]
    assert trace(hm.grad(lambda t: hm.grad(lambda u: (u**3).sum())(t).sum()))(x).tolist() == [6, 12]


def test_custom_functions_keep_their_gradient(trace: Any) -> None:
    class Through(hm.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: hm.Tensor) -> hm.Tensor:
            ctx.save_for_backward(x)
            return hm.round(x)

        @staticmethod
        def backward(ctx: Any, g: hm.Tensor) -> hm.Tensor:
            return g * 100

    x = hm.tensor([1.4, 2.6], requires_grad=True)
    trace(lambda t: Through.apply(t * 1).sum())(x).backward()
    assert x.grad.tolist() == [100, 100]


def test_kept_inputs_that_change_are_noticed(trace: Any) -> None:
    x = hm.tensor([1.0, 2.0], requires_grad=True)
    f = trace(lambda t: (t * t).sum())
    y = x * 1
    z = f(y)
    with hm.no_grad():
        y += 1
    with pytest.raises(hm.GradientError, match="overwritten in place"):
        z.backward()


def test_arguments_updated_in_place(trace: Any) -> None:
    @trace
    def f(x: hm.Tensor, a: np.ndarray) -> hm.Tensor:
        x[0] = 5
        row = x.T[1]
        row += 1
        x.reshape(-1)[-1] = -1
        return x

    x = hm.zeros((2, 2))
    t = hm.zeros((4, 4))[::2, ::2]  # not contiguous
    for given in (x, t, x):
        given.zero_()
        out = f(given, X)
        assert out is given and given.tolist() == [[5, 6], [0, -1]]
    w = hm.tensor([3.0], requires_grad=True)

    @trace
    def store(buffer: hm.Tensor) -> None:
        buffer[1] = w[0] * 2

    buffer = hm.zeros((2,))
    store(buffer)
    (buffer * 5).sum().backward()
    assert buffer.tolist() == [0, 6] and w.grad.tolist() == [10]


def test_random_numbers_are_the_eager_ones(trace: Any) -> None:
    def program(x: hm.Tensor) -> Any:
        mask = hm.random.uniform(x.shape) > 0.5
        noise = hm.random.normal(x.shape, dtype=hm.float64)
        return hm.where(mask, x, 0.0), noise, hm.random.randint(0, 100, (7,)), hm.random.permutation(9)

    f, x = trace(program), hm.asarray(X)
    hm.manual_seed(3)
    eager = [program(x) for _ in range(3)]
    hm.manual_seed(3)
    for expected in eager:
        for got, want in zip(f(x), expected, strict=True):
            np.testing.assert_array_equal(got, want)
    hm.manual_seed(3)
    same(f(x)[0], eager[0][0])
    assert f.cache_info().compiles == 1


def test_gradient_of_dropout_sees_the_mask_of_its_call(trace: Any) -> None:
    def program(x: hm.Tensor) -> hm.Tensor:
        return hm.where(hm.random.uniform(x.shape) > 0.5, x * x, 0.0).sum()

    results = []
    for fn in (program, trace(program)):
        hm.manual_seed(0)
        x = hm.tensor(X, requires_grad=True)
        a, b = fn(x), fn(x)
        (a + 2 * b).backward()
        results.append(np.asarray(x.grad))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


def test_errors_leave_what_eager_leaves(trace: Any) -> None:
    def run(style: Callable[[Any], Any]) -> list[Any]:
        w = hm.tensor([1.0, 2.0], requires_grad=True)
        state = hm.zeros((2,))

        @style
        def f(x: hm.Tensor) -> hm.Tensor:
            state.add_(x)
            (w * x).sum().backward()
            with hm.no_grad():
                w.sub_(x)
            hm.random.uniform((3,))
            return x + hm.ones((3,))

        hm.manual_seed(5)
        with pytest.raises(hm.ShapeError, match="do not broadcast"):
            f(hm.ones((2,)))
        assert hm.is_grad_enabled() and (w * 2).requires_grad
        if style is trace:
            assert f.cache_info().entries == 0
        return [t.tolist() for t in (state, w, w.grad, hm.random.default_generator.state)]

    assert run(trace) == run(lambda fn: fn)


def test_index_errors_at_run_time(trace: Any) -> None:
    table, counter = hm.asarray(X), hm.zeros(())

    @trace
    def f(i: hm.Tensor) -> hm.Tensor:
        counter.add_(1)
        return hm.take(table, i, axis=0)

    assert f(hm.tensor([0, -1])).shape == (2, 4)
    with pytest.raises(hm.OutOfBoundsError, match="take: index 3 is out of range for axis 0 of size 3"):
        f(hm.tensor([0, 3]))
    assert counter.item() == 2  # as eagerly: the update comes before the error
    assert f(hm.tensor([1, 1])).shape == (2, 4) and counter.item() == 3 and f.cache_info().compiles == 1


def test_grad_modes(trace: Any) -> None:
    w = hm.tensor([2.0], requires_grad=True)

    @trace
    def f(x: hm.Tensor) -> tuple[hm.Tensor, hm.Tensor]:
        with hm.no_grad():
            frozen = x * w
        return frozen, x * w

    x = hm.tensor([3.0])
    for _ in range(3):
        frozen, live = f(x)
        assert not frozen.requires_grad and live.requires_grad
    with hm.no_grad():
        for _ in range(3):
            assert not f(x)[1].requires_grad
    w.requires_grad_(False)
    for _ in range(3):
        assert not f(x)[1].requires_grad
    w.requires_grad_()
    assert f(x)[1].requires_grad


def test_grad_accumulates(trace: Any) -> None:
    w = hm.tensor([1.0, 2.0], requires_grad=True)
    f = trace(lambda x: (w * x).sum().backward())
    x = hm.tensor([1.0, 10.0])
    for k in range(1, 5):
        assert f(x) is None
        assert w.grad.tolist() == [k, 10 * k]
    assert f.cache_info().compiles == 2  # without and with a gradient to add to
    w.grad = None
    f(x)
    assert w.grad.tolist() == [1, 10] and f.cache_info().compiles == 2


def test_hooks_are_never_stale(trace: Any) -> None:
    w = hm.tensor([1.0], requires_grad=True)

    @trace
    def f(x: hm.Tensor) -> None:
        w.grad = None
        (w * x).sum().backward()

    x = hm.tensor([2.0])
    for _ in range(3):
        f(x)
    handle = w.register_hook(lambda g: g * 10)
    for _ in range(3):
        f(x)
        assert w.grad.item() == 20
    handle.remove()
    f(x)
    assert w.grad.item() == 2 and f.cache_info().compiles == 2


def test_gradient_of_an_argument(trace: Any) -> None:
    f = trace(lambda x: (x * x).sum().backward())
    for value in (1.0, 2.0, 3.0):
        x = hm.tensor([value], requires_grad=True)
        f(x)
        assert x.grad.item() == 2 * value
    outside = hm.tensor([1.0], requires_grad=True) * 2
    with pytest.warns(UserWarning, match="runs eagerly in such calls: .* computed outside"):
        f(outside)


def test_results_that_are_inputs(trace: Any) -> None:
    w = hm.tensor([1.0])
    f = trace(lambda x, n: (x, w, x * 1, x * 1, n, "s", None))
    x = hm.tensor([2.0])
    for _ in range(3):
        a, b, c, d, n, s, none = f(x, 3)
        assert a is x and b is w and c is not d and c.numpy() is not d.numpy() and (n, s, none) == (3, "s", None)
        c += 1
        assert x.item() == 2 and d.item() == 2


def test_aliased_arguments(trace: Any) -> None:
    @trace
    def f(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        x += 1
        return x + y

    a, b = hm.tensor([1.0]), hm.tensor([1.0])
    assert f(a, b).item() == 3 and f(a, a).item() == 6 and f(a, b).item() == 5
    base = hm.zeros((4,))
    with pytest.warns(UserWarning, match="runs eagerly in such calls: .* shares memory"):
        assert f(base[:3], base[1:]).tolist() == [2, 2, 1] and base.tolist() == [1, 1, 1, 0]
    with pytest.raises(hm.TraceError, match="shares memory"):
        hm.trace(f._fn, strict=True)(base[:3], base[1:])
    assert base.tolist() == [1, 1, 1, 0]


def test_each_call_looks_at_the_memory_that_it_updates(trace: Any) -> None:
    w = hm.ones((4,))

    @trace
    def f(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        x += y
        return y * w

    for _ in range(3):
        f(hm.ones((4,)), hm.ones((4,)))
    base, fixed = hm.ones((5,)), np.ones(4, np.float32)
    fixed.flags.writeable = False
    for x, y, message in [
        (base[:4], base[1:], "shares memory"),
        (base[1:], base[:4], "shares memory"),
        (w[:], base[1:], "shares memory"),
        (hm.asarray(fixed), base[1:], "read-only"),
    ]:
        with pytest.raises(hm.TraceError, match=message):
            hm.trace(f._fn, strict=True)(x, y)
    with pytest.warns(UserWarning, match="read-only"), pytest.raises(hm.ShapeError, match="read-only"):
        f(hm.asarray(fixed), base[1:])
    assert base.tolist() == [1.0] * 5 and w.tolist() == [1.0] * 4 and fixed.tolist() == [1.0] * 4
    apart = hm.ones((8,))
    compiled = f.cache_info().compiles
    f(apart[::2], apart[1::2])
    f(apart[::2], apart[1::2])
    assert apart.tolist() == [3.0, 1.0] * 4 and f.cache_info().compiles <= compiled + 1


def test_views_between_each_other_do_not_share_memory(trace: Any) -> None:
    base = hm.ones((8,))
    even, odd = base[::2], base[1::2]
    f = trace(lambda x: even.add_(x))
    for _ in range(4):
        f(odd)
    assert base.tolist() == [5.0, 1.0] * 4 and f.cache_info().compiles == 1


def test_captured_tensors_passed_as_arguments(trace: Any) -> None:
    w = hm.tensor([1.0, 2.0])

    def program(x: hm.Tensor) -> hm.Tensor:
        w.add_(1)
        return x * w

    f, other = trace(program), hm.tensor([1.0, 1.0])
    expected = w.clone()
    for x in (other, w, other, w, w):
        got = f(x)
        expected += 1
        same(got, (expected if x is w else x) * expected)
        same(w, expected)
    assert f.cache_info().compiles == 2
    with pytest.warns(UserWarning, match="shares memory"):
        same(f(w.detach()), (expected + 1) ** 2)


def test_a_program_does_not_keep_what_its_first_call_was_given(trace: Any) -> None:
    import weakref

    w = hm.tensor([1.0, 2.0], requires_grad=True)

    def f(x: hm.Tensor) -> hm.Tensor:
        return (x * w.grad).sum()

    f = trace(f)
    w.grad = hm.tensor([3.0, 4.0])
    x = hm.tensor([1.0, 1.0])
    assert f(x).item() == 7
    given = [weakref.ref(x), weakref.ref(w.grad)]
    del x
    w.grad = hm.tensor([5.0, 6.0])
    assert [ref() for ref in given] == [None, None]
    assert f(hm.tensor([1.0, 1.0])).item() == 11 and f.cache_info().compiles == 1


def test_a_result_without_a_gradient_takes_none_from_the_others(trace: Any) -> None:
    w = hm.tensor([1.0, 2.0], requires_grad=True)

    def program(x: hm.Tensor) -> Any:
        early = hm.tanh(x * w)
        with hm.no_grad():
            w.mul_(0.5)
        return early, x * x

    for style in (lambda fn: fn, trace):
        x = hm.tensor([1.0, 3.0], requires_grad=True)
        early, late = style(program)(x)
        assert hm.autograd.grad(late.sum(), [x])[0].tolist() == [2, 6]
        with pytest.raises(hm.GradientError, match="overwritten in place"):
            early.sum().backward()


def test_a_call_that_fails_gives_its_random_numbers_back() -> None:
    traced = hm.trace(lambda x, i: x[i] + hm.rand((3,)))
    x, good, bad = hm.ones((3,)), hm.tensor([0, 1, 2]), hm.tensor([0, 1, 7])
    for calls in range(4):  # the first is traced, the second takes the general way, later ones the native one
        hm.manual_seed(0)
        for _ in range(calls):
            traced(x, good)
        with pytest.raises(IndexError):
            traced(x, bad)
        assert hm.random.default_generator.state.tolist() == [0, calls]

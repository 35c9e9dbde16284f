"""Gradients as PyTorch has them: accumulation, leaves, hooks, in-place updates, custom functions, gradients of
gradients."""

from __future__ import annotations

import gc
import sys
import threading

import numpy as np
import pytest

import hybridml as hm
from hybridml.core.autodiff.references import VARIABLE


def leaf(*values: float) -> hm.Tensor:
    return hm.tensor([float(v) for v in values], requires_grad=True)


def test_backward_accumulates() -> None:
    x = leaf(1, 2)
    (x * x).sum().backward()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [5, 7]
    x.grad = None
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_gradients_own_their_memory() -> None:
    x, y = leaf(1, 2), leaf(3, 4)
    (x + y).backward(g := hm.ones((2,)))
    with hm.no_grad():
        x.grad += 1
    assert y.grad.tolist() == [1, 1] and g.tolist() == [1, 1]
    z = leaf(1, 2)
    z.sum().backward()  # a broadcast scalar must become memory of its own
    z.grad.mul_(2)
    assert z.grad.tolist() == [2, 2]
    s = hm.tensor(1.0, requires_grad=True)
    s.backward()
    s.grad += 5
    t = hm.tensor(1.0, requires_grad=True)
    t.backward()
    assert t.grad.item() == 1


def test_broadcasting_is_undone() -> None:
    w, b = hm.tensor(np.ones((3, 1), "f4"), requires_grad=True), hm.tensor(2.0, requires_grad=True)
    (w * hm.ones((2, 3, 4)) * b).sum().backward()
    assert w.grad.shape == (3, 1) and w.grad.tolist() == [[16]] * 3 and b.grad.item() == 24


def test_leaf_rules() -> None:
    x = leaf(1, 2)
    for update in (
        lambda: x.add_(1),
        lambda: x.__setitem__(0, 1.0),
        lambda: x[0].add_(1),
        lambda: x.copy_(hm.ones((2,))),
    ):
        with pytest.raises(hm.GradientError, match="leaf tensor that requires grad"):
            update()
    with hm.no_grad():
        x.add_(1)
        x[0] = 5
    assert x.tolist() == [5, 3] and x.is_leaf and x.requires_grad
    with pytest.raises(hm.DTypeError, match="only float and complex tensors have gradients, got int64"):
        hm.tensor([1], requires_grad=True)
    with pytest.raises(hm.GradientError, match="only leaves can be switched"):
        (x * 2).requires_grad_(False)
    x.requires_grad = False
    assert not x.requires_grad and not (x * 2).requires_grad


def test_backward_errors() -> None:
    x = leaf(1, 2)
    with pytest.raises(hm.GradientError, match="needs a scalar, got shape"):
        (x * 2).backward()
    with pytest.raises(hm.GradientError, match="has no history"):
        x.detach().sum().backward()
    with pytest.raises(hm.ShapeError, match="the gradient has shape"):
        (x * 2).backward(hm.ones((3,)))
    y = (x * x).sum()
    y.backward()
    with pytest.raises(hm.GradientError, match="retain_graph=True"):
        y.backward()
    z = (x * x).sum()
    z.backward(retain_graph=True)
    z.backward()
    assert x.grad.tolist() == [6, 12]


def test_integer_results_have_no_history() -> None:
    x = leaf(1.5, 2.5)
    assert not (x > 2).requires_grad and not x.astype(hm.int64).requires_grad and not x.argmax().requires_grad
    assert x.astype(hm.float64).requires_grad


def test_modes() -> None:
    x = leaf(1)
    with hm.no_grad():
        assert not (x * 2).requires_grad and not hm.is_grad_enabled()
        with hm.enable_grad():
            assert (x * 2).requires_grad

    @hm.no_grad()
    def f() -> hm.Tensor:
        return x * 2

    @hm.no_grad
    def g() -> hm.Tensor:
        return x * 2

    assert not f().requires_grad and not g().requires_grad and hm.is_grad_enabled()
    seen = []
    with hm.no_grad():
        thread = threading.Thread(target=lambda: seen.append(hm.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]
    with pytest.raises(ValueError), hm.no_grad():
        raise ValueError
    assert hm.is_grad_enabled()


def test_hooks() -> None:
    x, seen = leaf(1, 2), []
    y = x * 2
    handle = y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: g + 1)
    y.sum().backward(retain_graph=True)
    assert seen == [[1, 1]] and x.grad.tolist() == [21, 21]
    handle.remove()
    y.sum().backward()
    assert len(seen) == 1
    z = leaf(1, 2)
    w = z * 3
    w.retain_grad()
    (w * w).sum().backward()
    assert w.grad.tolist() == [6, 12] and z.grad.tolist() == [18, 36] and (z * 2).grad is None
    bad = leaf(1)
    bad.register_hook(lambda g: 3)
    with pytest.raises(hm.ShapeError, match="hook must return"):
        bad.sum().backward()
    assert bad.grad is None


def test_overwritten_values_are_noticed() -> None:
    x = leaf(1, 2)
    y = x * 2
    z = y * y
    y += 1
    with pytest.raises(hm.GradientError, match=r"multiply: its input [xy] was overwritten in place"):
        z.sum().backward()
    e = hm.sqrt(x)
    e *= 2
    with pytest.raises(hm.GradientError, match="sqrt: its result was overwritten"):
        e.sum().backward()
    y = x * 2
    v = y[0]
    z = y * y
    with hm.no_grad():
        v += 1  # through a view
    with pytest.raises(hm.GradientError, match="overwritten"):
        z.sum().backward()
    y = x * 2
    z = y + y  # keeps nothing
    y += 1
    z.sum().backward()
    assert x.grad.tolist() == [4, 4]


def test_recorded_updates_in_place() -> None:
    x = leaf(1, 2)
    y = x * 1
    y *= 3
    y += x
    y.sum().backward()
    assert x.grad.tolist() == [4, 4]


def test_updates_through_views() -> None:
    w = leaf(1, 2, 3)
    out = hm.zeros((2, 3))
    for i in range(2):
        out[i] += w * (i + 1)
    row = out[0]
    out[:, 1] = w[0] * 10
    assert row.tolist() == [1, 10, 3] and row.requires_grad
    (out.sum() + row[1]).backward()
    assert out.tolist() == [[1, 10, 3], [2, 10, 6]]
    assert w.grad.tolist() == [3 + 20 + 10, 0, 3]
    buffer = hm.zeros((4,))
    flat = buffer.reshape(2, 2).T
    flat[0] = w[:2]
    assert buffer.tolist() == [1, 0, 2, 0]
    w.grad = None
    (buffer * hm.tensor([1.0, 2, 3, 4])).sum().backward()
    assert w.grad.tolist() == [1, 3, 0]


def test_setitem_of_itself() -> None:
    x = leaf(1, 2, 3)
    y = x * 1
    y[1:] = y[:2] * 2
    y.sum().backward()
    assert y.tolist() == [1, 2, 4] and x.grad.tolist() == [3, 2, 0]


def test_grad_function() -> None:
    x, y = leaf(1, 2), leaf(3, 4)
    u = x * y
    v = (u * u).sum()
    gx, gu = hm.autograd.grad(v, [x, u])
    assert gx.tolist() == [18, 64] and gu.tolist() == [6, 16] and x.grad is None
    with pytest.raises(hm.GradientError, match="do not depend on input 0"):
        hm.autograd.grad((x * 2).sum(), [y])
    assert hm.autograd.grad((x * 2).sum(), [y], allow_unused=True) == (None,)
    with pytest.raises(hm.GradientError, match=r"input 0 .* does not require grad"):
        hm.autograd.grad((x * 2).sum(), hm.ones((1,)))
    (two,) = hm.autograd.grad([x * 2, x * 3], x, [hm.ones((2,)), hm.tensor([1.0, 10.0])])
    assert two.tolist() == [5, 32]


def test_gradients_of_gradients() -> None:
    x = hm.tensor(2.0, requires_grad=True)
    (d,) = hm.autograd.grad(x * x * x * x, x, create_graph=True)
    (dd,) = hm.autograd.grad(d, x, create_graph=True)
    (ddd,) = hm.autograd.grad(dd, x)
    assert (d.item(), dd.item(), ddd.item()) == (32, 48, 48) and not ddd.requires_grad
    y = leaf(1, 2)
    (y * y * y).sum().backward(create_graph=True)
    (y.grad * y.grad).sum().backward()
    assert y.grad.tolist() == [3 + 36, 12 + 288]


def test_transforms() -> None:
    x = hm.tensor([1.0, 2.0])

    def f(t: hm.Tensor) -> hm.Tensor:
        return (t * t * t).sum()

    assert hm.grad(f)(x).tolist() == [3, 12] and not hm.grad(f)(x).requires_grad
    value, gradient = hm.value_and_grad(f)(x)
    assert value.item() == 9 and gradient.tolist() == [3, 12] and not value.requires_grad
    assert hm.grad(lambda t: hm.grad(f)(t).sum())(x).tolist() == [6, 12]
    tree = hm.grad(lambda p, s: (p["w"] * s).sum() + p["b"][0])({"w": x, "b": (hm.tensor(1.0), 3)}, hm.tensor(2.0))
    assert tree["w"].tolist() == [2, 2] and tree["b"][0].item() == 1
    gx, gy = hm.grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, x * 2)
    assert gx.tolist() == [2, 4] and gy.tolist() == [1, 2]
    g, aux = hm.grad(lambda t: (f(t), "aux"), has_aux=True)(x)
    assert g.tolist() == [3, 12] and aux == "aux"
    c = hm.tensor(3.0, requires_grad=True)
    inner = hm.grad(lambda t: (t * t * c).sum())(x)  # differentiable with respect to what it closes over
    inner.sum().backward()
    assert inner.tolist() == [6, 12] and c.grad.item() == 6
    y, pull = hm.vjp(lambda t: t * t, x)
    assert y.tolist() == [1, 4] and pull(hm.ones((2,)))[0].tolist() == [2, 4]
    y, tangent = hm.jvp(lambda t: t * t * t, [x], [hm.tensor([1.0, 10.0])])
    assert y.tolist() == [1, 8] and tangent.tolist() == [3, 120]
    with pytest.raises(hm.GradientError, match="must return a scalar tensor"):
        hm.grad(lambda t: t)(x)
    with pytest.raises(hm.DTypeError, match="only float and complex tensors"):
        hm.grad(f)(hm.tensor([1]))
    assert hm.grad(lambda t: hm.tensor(1.0))(x).tolist() == [0, 0]
    with pytest.raises(hm.ArgumentError, match="takes a function and gives a function, got Tensor"):
        hm.grad(c * 2, c)


class Cube(hm.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: hm.Tensor, scale: float) -> hm.Tensor:
        out = x * x * x * scale
        ctx.save_for_backward(x, out)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: object, g: hm.Tensor) -> tuple[hm.Tensor, None]:
        x, out = ctx.saved_tensors
        assert out.shape == x.shape
        return g * 3 * x * x * ctx.scale, None


class SinCos(hm.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: hm.Tensor) -> tuple[hm.Tensor, hm.Tensor]:
        s, c = hm.sin(x), hm.cos(x)
        ctx.save_for_backward(s, c)
        return s, c

    @staticmethod
    def backward(ctx: object, gs: hm.Tensor, gc: hm.Tensor) -> hm.Tensor:
        s, c = ctx.saved_tensors
        return gs * c - gc * s


def test_custom_function() -> None:
    x = leaf(1, 2)
    y = Cube.apply(x, 2.0)
    y.sum().backward()
    assert y.tolist() == [2, 16] and x.grad.tolist() == [6, 24]
    (d,) = hm.autograd.grad(Cube.apply(x, 1.0).sum(), x, create_graph=True)
    (dd,) = hm.autograd.grad(d.sum(), x)
    assert dd.tolist() == [6, 12]
    with pytest.raises(hm.GradientError, match="has no history"):
        Cube.apply(x.detach(), 1.0).sum().backward()


def test_a_custom_gradient_takes_the_dtype_of_its_argument() -> None:
    class Product(hm.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: object, g: hm.Tensor) -> tuple[hm.Tensor, hm.Tensor]:
            x, y = ctx.saved_tensors
            return g * y, g * x

    x, y = leaf(1, 2), hm.tensor([3.0, 4.0], dtype=hm.float64, requires_grad=True)
    Product.apply(x * 1, y).sum().backward()
    assert x.grad.dtype is hm.float32 and y.grad.dtype is hm.float64
    assert x.grad.tolist() == [3, 4] and y.grad.tolist() == [1, 2]


def test_custom_function_with_several_results() -> None:
    x = hm.tensor([0.3, 1.1], dtype=hm.float64, requires_grad=True)
    s, c = SinCos.apply(x)
    (g,) = hm.autograd.grad((s * 2 + c).sum(), x, create_graph=True)
    np.testing.assert_allclose(np.asarray(g.detach()), 2 * np.cos([0.3, 1.1]) - np.sin([0.3, 1.1]))
    (gg,) = hm.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(np.asarray(gg), -2 * np.sin([0.3, 1.1]) - np.cos([0.3, 1.1]))
    s, c = SinCos.apply(x)
    c.sum().backward()  # one result unused
    np.testing.assert_allclose(np.asarray(x.grad), -np.sin([0.3, 1.1]))


def test_custom_function_errors() -> None:
    class Wrong(Cube):
        @staticmethod
        def backward(ctx: object, g: hm.Tensor) -> hm.Tensor:
            return g

    class Shape(Cube):
        @staticmethod
        def backward(ctx: object, g: hm.Tensor) -> tuple[hm.Tensor, None]:
            return g.sum(), None

    x = leaf(1, 2)
    with pytest.raises(hm.GradientError, match="returned 1 gradients for 2 arguments"):
        Wrong.apply(x, 1.0).sum().backward()
    with pytest.raises(hm.ShapeError, match="must be a tensor of shape"):
        Shape.apply(x, 1.0).sum().backward()
    y = x * 1
    z = Cube.apply(y, 1.0)
    y += 1
    with pytest.raises(hm.GradientError, match="Cube: its saved tensor 0 was overwritten"):
        z.sum().backward()
    assert x.grad is None


@pytest.mark.usefixtures("small_heap")
def test_no_reference_cycles() -> None:
    def work() -> None:
        x = leaf(1, 2)
        y = hm.exp(x) * hm.sqrt(x)
        y = y.reshape(2, 1).T[0] + SinCos.apply(x)[0]
        y.sum().backward()

    work()
    gc.collect()
    gc.disable()
    try:
        work()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_backward_frees_what_was_kept() -> None:
    x = leaf(1, 2)
    big = x * 2
    y = (big * big).sum()
    array = big._array
    del big
    y.backward()
    assert sys.getrefcount(array) == VARIABLE


def test_deep_graphs_need_no_recursion() -> None:
    x = hm.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(5000):
        y = y + 1
    y.backward()
    assert x.grad.item() == 1

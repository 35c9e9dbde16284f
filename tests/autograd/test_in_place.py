"""Recorded updates in place: what PyTorch differentiates is differentiated, what it refuses is refused or right.

The values are PyTorch 2.13's, in float64, for x = [1, 2, 3] and s = 1.7: gradients of the sum of what each program
returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.core.autodiff import tape
from hybridml.testing import gradcheck
from hybridml_compiler import dtypes

T = hm.Tensor


def _view(y: T, s: T) -> T:
    v = y[1:]
    v *= s
    return y + v.sum()


def _transposed(y: T, s: T) -> T:
    v = y.reshape(1, 3).T
    v *= s
    return y


def _loop(y: T, s: T) -> T:
    for _ in range(3):
        y *= s
    return y


def _from_leaf(y: T, s: T) -> T:
    z = hm.zeros(3, dtype=hm.float64)
    z.copy_(y)
    z *= s
    z[1:] = z[:2]
    z **= 2
    return z


def _then(*steps: Callable[[T, T], Any]) -> Callable[[T, T], T]:
    """A program of updates of y, which it returns."""

    def program(y: T, s: T) -> T:
        for step in steps:
            step(y, s)
        return y

    return program


def _set(key: Any, value: Callable[[T, T], Any]) -> Callable[[T, T], None]:
    return lambda y, s: y.__setitem__(key, value(y, s))


# Name -> (program, gradient of x, gradient of s; None where it reaches none).
PROGRAMS: dict[str, tuple[Callable[[T, T], T], list[float], float | None]] = {
    "y *= s": (_then(lambda y, s: y.mul_(s)), [1.7, 1.7, 1.7], 6.0),
    "y /= s": (_then(lambda y, s: y.div_(s)), [0.58824, 0.58824, 0.58824], -2.07612),
    "y **= 2": (_then(lambda y, s: y.pow_(2)), [2.0, 4.0, 6.0], None),
    "y **= 3.0": (_then(lambda y, s: y.pow_(3.0)), [3.0, 12.0, 27.0], None),
    "y **= s": (_then(lambda y, s: y.pow_(s)), [1.7, 2.76166, 3.66804], 9.36337),
    "y %= s": (_then(lambda y, s: y.__imod__(s)), [1.0, 1.0, 1.0], -2.0),
    "y *= exp(y)": (_then(lambda y, s: y.mul_(hm.exp(y))), [5.43656, 22.16717, 80.34215], None),
    "y /= y.sum()": (_then(lambda y, s: y.div_(y.sum())), [0.0, 0.0, 0.0], None),
    "clamp_": (_then(lambda y, s: y.clamp_(1.5, 2.5)), [0.0, 1.0, 0.0], None),
    "y[0] *= s": (_then(lambda y, s: y[0].mul_(s)), [1.7, 1.0, 1.0], 1.0),
    "parts": (_then(lambda y, s: y[1:].mul_(s), lambda y, s: y[:2].mul_(s)), [1.7, 2.89, 1.7], 10.8),
    "places": (_then(_set([0, 2], lambda y, s: y[[0, 2]] * s)), [1.7, 1.0, 1.7], 4.0),
    "mask": (_then(lambda y, s: _set(y > 1.5, lambda y, s: y[y > 1.5] * s)(y, s)), [1.0, 1.7, 1.7], 5.0),
    "view": (_view, [1.0, 6.8, 6.8], 20.0),
    "transposed": (_transposed, [1.7, 1.7, 1.7], 6.0),
    "loop": (_loop, [4.913, 4.913, 4.913], 52.02),
    "powers": (_then(lambda y, s: y.pow_(2), lambda y, s: y.pow_(2)), [4.0, 32.0, 108.0], None),
    "y *= y.clone()": (_then(lambda y, s: y.mul_(s), lambda y, s: y.mul_(y.clone())), [5.78, 11.56, 17.34], 47.6),
    "overwritten": (_then(lambda y, s: y.mul_(s), lambda y, s: y.zero_()), [0.0, 0.0, 0.0], None),
    "overwritten at once": (_then(lambda y, s: y.zero_()), [0.0, 0.0, 0.0], None),
    "from a leaf": (_from_leaf, [11.56, 11.56, 0.0], 20.4),
    # PyTorch refuses this one: it keeps the old value for one operand alone.
    "y *= y": (_then(lambda y, s: y.mul_(y)), [2.0, 4.0, 6.0], None),
}

REFUSED: dict[str, Callable[[T, T], Any]] = {
    "kept by sin": lambda y, s: (hm.sin(y), y.mul_(s))[0],
    "kept by a product": lambda y, s: (y * s, y.mul_(s))[0],
    "kept result": lambda y, s: hm.exp(y).add_(1),
    "kept operand": lambda y, s: (t := s * 1, y * t, t.add_(1))[1],
    "its own view": lambda y, s: y.mul_(y[0]),
    "stored over itself": lambda y, s: (y.__setitem__(slice(1, None), y[:2] * s), y)[1],
}


def _leaves() -> tuple[T, T]:
    x, s = hm.tensor([1.0, 2.0, 3.0], dtype=hm.float64), hm.tensor(1.7, dtype=hm.float64)
    return x.requires_grad_(), s.requires_grad_()


@pytest.mark.parametrize("style", ["eager", "traced", "inside"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_in_place(name: str, style: str) -> None:
    program, of_x, of_s = PROGRAMS[name]
    run = program if style == "eager" else hm.trace(program, backend="interpret")
    x, s = _leaves()
    if style == "inside":  # the gradient too
        traced = hm.trace(lambda x, s: hm.grad(lambda x, s: program(x * 1, s).sum(), (0, 1))(x, s), backend="interpret")
        found = traced(x.detach(), s.detach())
    else:
        (run(x * 1, s) + x * 0).sum().backward()
        found = x.grad, s.grad
        assert (s.grad is None) == (of_s is None)
    assert found[0].tolist() == pytest.approx(of_x, abs=1e-4)
    assert of_s is None or found[1].item() == pytest.approx(of_s, abs=1e-4)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if "overwritten" not in name and name != "y %= s"])
def test_second_order(name: str) -> None:
    assert gradcheck(lambda x, s: PROGRAMS[name][0](x * 1, s) ** 2, [1.1, 2.2, 2.9], 1.7)


@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, style: Any) -> None:
    def gradients(x: T, s: T) -> Any:
        return hm.autograd.grad(REFUSED[name](x * 1, s).sum(), [x, s], allow_unused=True)

    with pytest.raises(hm.GradientError, match="was overwritten in place after it was kept for the gradient"):
        style(gradients)(*_leaves())


def test_a_copied_leaf_is_a_history_of_its_own() -> None:
    x = hm.tensor([1.0, 2.0], requires_grad=True)
    for store in (lambda y: y.copy_(x), lambda y: y.__setitem__(slice(None), x)):
        y = hm.zeros(2)
        store(y)
        assert not y.is_leaf and y.grad is None
    v = x * 2
    y = hm.zeros(2)
    y.copy_(v)
    y.register_hook(lambda g: g * 100)
    y.retain_grad()
    (v.sum() + y.sum()).backward()
    assert x.grad.tolist() == [202, 202] and y.grad.tolist() == [100, 100] and v.grad is None


@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
def test_an_update_ends_the_history_of_what_is_captured(style: Any) -> None:
    x = hm.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1

    @style
    def clear() -> None:
        y.zero_()

    @style
    def add(a: T) -> None:
        y.add_(a)

    for _ in range(3):
        x.grad = None
        clear()
        assert not y.requires_grad and y.tolist() == [0, 0]
        add(x)
        add(x)
        y.sum().backward()
        assert x.grad.tolist() == [2, 2]


def test_no_copy_without_need() -> None:
    """Memory is copied only where a gradient reads the old value."""
    x = hm.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1
    y += x
    (kept,) = [p for p in y._node if isinstance(p, hm.Tensor)] or [None]
    assert kept is None
    y *= 2.0
    kept = [p for p in y._node if isinstance(p, hm.Tensor)]
    assert all(p._array is not y._array for p in kept)


def test_gradients_that_are_views_of_a_cotangent_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leaf keeps the memory of a cotangent that nobody else has, also in another order."""
    x, index = hm.ones((3, 4), requires_grad=True), hm.tensor([1, 1])

    def copied(array: np.ndarray) -> np.ndarray:
        raise AssertionError("a copy")

    monkeypatch.setattr(tape, "materialized", copied)
    ((x * 2).T.reshape(2, 6) * 3).sum().backward()
    assert x.grad.tolist() == [[6.0] * 4] * 3
    x.grad = None
    (x[index] * 3).sum().backward()
    assert x.grad.tolist() == [[0.0] * 4, [6.0] * 4, [0.0] * 4]
    y, seen = hm.ones((2, 3), requires_grad=True), []
    out = y.T
    out.register_hook(seen.append)
    with pytest.raises(AssertionError, match="a copy"):
        (out * 2).sum().backward()


@pytest.mark.parametrize("dtype", [hm.float32, hm.float16, hm.complex64], ids=str)
def test_a_recorded_write_into_a_view_is_in_the_history_of_its_parent(dtype: Any) -> None:
    parent, x = hm.zeros(4, dtype=dtype), hm.ones(2, dtype=dtype).requires_grad_()
    view = parent[1:3].reshape(2, 1).T
    view.copy_(x * 3)
    assert parent.requires_grad
    hm.real(parent * hm.tensor([1, 2, 3, 4], dtype=dtype)).sum().backward()
    assert x.grad.tolist() == [6, 9]


@pytest.mark.parametrize(
    ("run", "error", "match"),
    [
        (lambda: hm.arange(2).div_(hm.arange(2)), hm.DTypeError, "div_: a float32 result does not fit a int64 tensor"),
        (lambda: hm.ones(2).add_(hm.ones(3)), hm.ShapeError, "do not broadcast"),
        (lambda: hm.ones(2).add_(hm.ones((2, 2))), hm.ShapeError, "does not fit a tensor of shape"),
        (lambda: hm.ones(2).broadcast_to((2, 2)).add_(hm.ones((2, 2))), hm.ShapeError, "read-only"),
    ],
)
def test_results_that_do_not_fit_and_a_row_that_does(run: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        run()
    x = hm.zeros((2, 3))
    x += hm.tensor([1.0, 2.0, 3.0])
    assert x.tolist() == [[1.0, 2.0, 3.0]] * 2


NUMBERS = (1, -3, 300, 2**40, 2**70, 0, 0.1, 1e300, -0.0, 1e-50, 65520.0, np.nan, np.inf, True)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_a_number_has_the_same_bits_in_place(dtype: np.dtype) -> None:
    """Or the same error, or none of the tensor's dtype, which is an error in place alone."""
    values = hm.tensor(np.random.default_rng(0).normal(size=7) * 10).astype(dtype)
    for number in NUMBERS:
        for name, apart in {"add_": hm.add, "sub_": hm.subtract, "mul_": hm.multiply, "div_": hm.divide}.items():
            x = values.clone()
            try:
                wanted: Any = apart(x, number)
            except Exception as error:
                with pytest.raises(type(error)):
                    getattr(x, name)(number)
                continue
            if wanted.dtype is not dtype:
                with pytest.raises(hm.DTypeError):
                    getattr(x, name)(number)
                assert x.numpy().tobytes() == values.numpy().tobytes(), "an error changes nothing"
                continue
            assert getattr(x, name)(number) is x
            assert x.numpy().tobytes() == wanted.numpy().tobytes(), (name, number)

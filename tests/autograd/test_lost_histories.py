"""NumPy's arrays keep no gradients: a tensor that requires grad does not go into one, in either style."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
import pytest

import hybridml as hm
from hybridml.core.autodiff.lost_histories import without_numpys_error

X = np.array([1.0, 2.0, 3.0])
OUTER = np.zeros(3)


def by_element(p: Any) -> Any:
    y = np.zeros(3)
    y[0] = p[0] * 2
    return (y * p).sum()


def by_two_indices(p: Any) -> Any:
    y = np.zeros((2, 2))
    y[1, 0] = p[0]
    return hm.asarray(y).sum()


def by_update(p: Any) -> Any:
    y = np.zeros(3)
    y[0] += p[0]
    return (y * p).sum()


def by_steps(p: Any) -> Any:
    y = np.zeros(20)
    for k in range(20):
        y[k] = (p * k).sum()
    return hm.asarray(y).sum()


def outside(p: Any) -> Any:
    OUTER[0] = p[0]
    return p.sum()


def by_slice(p: Any) -> Any:
    y = np.zeros(3)
    y[1:] = p[1:]
    return (hm.asarray(y) * p).sum()


def by_mask(p: Any) -> Any:
    y = np.zeros(3)
    y[y < 1] = p
    return (hm.asarray(y) * p).sum()


def by_list(p: Any) -> Any:
    y = np.zeros((2, 3))
    y[0] = [p[0], p[1], 1]
    return hm.asarray(y).sum()


def listed(p: Any) -> Any:
    return np.array([p[0], 2 * p[1]]).sum()


def converted(p: Any) -> Any:
    return (np.asarray(p) * p).sum()


def filled(p: Any) -> Any:
    return hm.asarray(np.full(3, p[0])).sum()


def copied(p: Any) -> Any:
    y = np.zeros(3)
    np.copyto(y, p)
    return (y * p).sum()


def of_numpy(p: Any) -> Any:
    return (p.numpy() * p).sum()


ELEMENTS = (by_element, by_two_indices, by_update, by_steps, outside)
OTHERS = (by_slice, by_mask, by_list, listed, converted, filled, copied, of_numpy)
PROGRAMS = pytest.mark.parametrize("program", (*ELEMENTS, *OTHERS), ids=lambda fn: fn.__name__)
STYLES = pytest.mark.parametrize("style", [lambda fn: fn, hm.trace], ids=["eager", "traced"])


@STYLES
@PROGRAMS
def test_transforms_say_it(program: Callable[..., Any], style: Callable[..., Any]) -> None:
    x, line = hm.asarray(X), "numeric.py" if program is filled else "test_lost_histories.py"  # of np.full
    calls: list[Callable[[], Any]] = [
        lambda: hm.grad(style(program))(x),
        lambda: style(hm.grad(program))(x),
        lambda: hm.vjp(style(program), x),
        lambda: hm.jvp(style(program), (x,), (x,)),
        lambda: hm.jacrev(style(program))(x),
    ]
    for call in calls:
        with pytest.raises(hm.GradientError, match=rf"this tensor requires grad, and NumPy.*\n  at {line}"):
            call()


@STYLES
@PROGRAMS
def test_recorded_tensors_do_not_go_in(program: Callable[..., Any], style: Callable[..., Any]) -> None:
    """An array asks for `float(t)`: NumPy makes a ValueError of our error, and tells the cause."""
    x = hm.tensor(X, requires_grad=True)
    with pytest.raises(hm.GradientError, match="NumPy's arrays keep no gradients"), without_numpys_error():
        style(program)(x)
    if program in ELEMENTS:
        with pytest.raises(ValueError, match="setting an array element with a sequence") as told:
            style(program)(x)
        assert type(told.value.__cause__) is hm.GradientError


@STYLES
@PROGRAMS
def test_what_needs_no_gradient_does(program: Callable[..., Any], style: Callable[..., Any]) -> None:
    x = hm.asarray(X)
    expected = program(X) if program is not of_numpy else (X * X).sum()
    np.testing.assert_allclose(np.asarray(style(program)(x)), expected, rtol=1e-14)
    with hm.no_grad():  # nothing is recorded, and nothing lost
        np.testing.assert_allclose(np.asarray(style(program)(hm.tensor(X, requires_grad=True))), expected, rtol=1e-14)


@STYLES
def test_numbers_and_detached_tensors_are_constants(style: Callable[..., Any]) -> None:
    def program(p: Any) -> Any:
        y = np.zeros(5)
        y[0], y[1], y[2] = float(p[0]), p[1].item(), p[2].detach()
        y[3:] = p[:2].detach()
        with hm.no_grad():
            y[4] = p[0]
            y[3:4] = p[:1]
        return (p * y[:3]).sum() + y.sum()

    np.testing.assert_array_equal(style(hm.grad(program))(hm.asarray(X)), X)
    np.testing.assert_array_equal(hm.grad(style(program))(hm.asarray(X)), X)


@STYLES
def test_tensors_in_their_place_keep_gradients(style: Callable[..., Any]) -> None:
    def written(p: Any) -> Any:
        y = hm.zeros(3, dtype=hm.float64)
        y[0] = p[0] ** 2
        return (y.at[1].set(p[1]) * hm.stack([p[1], 2 * p[0], p[2]])).sum()

    np.testing.assert_allclose(style(hm.grad(written))(hm.asarray(X)), [8.0, 3.0, 0.0], rtol=1e-14)


def test_a_number_has_no_history() -> None:
    for program in (lambda p: float(p.sum()), lambda p: np.float64(p.sum().item()), lambda p: p.sum().item()):
        with pytest.raises(hm.GradientError, match=r"got float.*, which has no history"):
            hm.grad(program)(hm.asarray(X))
        with pytest.raises(hm.GradientError, match=r"got float.*, which has no history"):
            hm.vjp(program, hm.asarray(X))
    with pytest.raises(hm.GradientError, match=r"got shape \(3,\); reduce it"):
        hm.grad(lambda p: p)(hm.asarray(X))


def test_numbers_are_read_as_before() -> None:
    loss = (hm.tensor(X, requires_grad=True) ** 2).sum()
    log = {"loss": float(loss), "item": loss.item(), "text": f"{loss:.1f}", "complex": complex(loss)}
    assert log == {"loss": 14.0, "item": 14.0, "text": "14.0", "complex": 14 + 0j}
    losses = [0.0]
    losses[0] = float(loss)  # the store of a list asks nothing
    assert losses == [14.0] and loss.tolist() == 14.0 and "14" in repr(loss)


def test_native_conversion_looks_at_histories() -> None:
    """After many calls `float(t)` is a native method."""
    array, p = np.zeros(1), hm.tensor(3.0, requires_grad=True)
    for _ in range(3000):
        array[0] = p.detach()
        float(p)
    with pytest.raises(ValueError, match="setting an array element") as told:
        array[0] = p
    assert type(told.value.__cause__) is hm.GradientError


def test_other_errors_of_elements_are_numpys() -> None:
    def program(p: Any) -> Any:
        y = np.zeros(3)
        y[0] = [1.0, 2.0]
        return p.sum()

    with pytest.raises(ValueError, match="setting an array element"):
        hm.grad(program)(hm.asarray(X))


def test_plots_and_tests_of_numpy_take_detached_tensors() -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot

    p = hm.tensor(X, requires_grad=True)
    figure, axes = pyplot.subplots()
    axes.plot(p.detach(), (p * 2).detach())
    np.testing.assert_array_equal(p.detach(), X)
    for call in (lambda: axes.plot(p), lambda: np.testing.assert_array_equal(p, X)):
        with pytest.raises(hm.GradientError, match=r"\.detach\(\)"):
            call()
    pyplot.close(figure)


def test_tangents_of_rows_have_no_history_of_their_own() -> None:
    """The pullback of `matrix_exp` is not linear in its cotangent for the tape, which kept the leaves of the rule."""
    x = hm.tensor([[0.0, 1.0], [0.5, 0.2]])
    value, tangent = hm.jvp(hm.matrix_exp, (x,), (x,))
    assert not value.requires_grad and not tangent.requires_grad
    w = x.clone().requires_grad_()
    assert hm.jvp(lambda y: hm.matrix_exp(y * w), (x,), (x,))[1].requires_grad

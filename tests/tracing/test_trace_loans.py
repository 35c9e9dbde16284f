"""Gradients that a compiled step drops: the next ones take their memory, if nobody else holds them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.targets.cpu.python_entry import object_layout

ROWS, WIDTH = 512, 64  # 128 KB: large enough to be used again

pytestmark = pytest.mark.skipif(object_layout.measured() is None, reason="the portable entry makes fresh arrays")


def table() -> hm.Tensor:
    return hm.full((ROWS, WIDTH), 0.5, requires_grad=True)


def step_of(w: hm.Tensor, *, late: bool = False) -> Callable[[hm.Tensor, float], hm.Tensor]:
    """Drops the gradient first or, `late`, after rows have been gathered."""

    def step(rows: hm.Tensor, scale: float) -> hm.Tensor:
        if not late:
            w.grad = None
        loss = (w[rows] * scale).sum()
        w.grad = None if late else w.grad
        loss.backward()
        return loss

    return hm.trace(step)


def rows(*at: int) -> hm.Tensor:
    return hm.asarray(np.array(at))


def expected(scale: float, *at: int) -> np.ndarray:
    found = np.zeros((ROWS, WIDTH), np.float32)
    np.add.at(found, np.array(at), np.float32(scale))
    return found


def warm(w: hm.Tensor, step: Callable[[hm.Tensor, float], hm.Tensor]) -> None:
    for _ in range(3):
        step(rows(1, 2), 1.0)


def grad_of(w: hm.Tensor) -> np.ndarray:
    assert w.grad is not None
    return w.grad.numpy()


def test_the_next_gradient_lies_where_the_last_one_did() -> None:
    w = table()
    step = step_of(w)
    step(rows(1, 2), 1.0)
    places = set()
    for k in range(5):
        step(rows(k, 3), float(k))
        np.testing.assert_array_equal(grad_of(w), expected(float(k), k, 3))
        places.add(grad_of(w).ctypes.data)
    assert len(places) == 1


def test_a_gradient_that_somebody_holds_stays() -> None:
    w = table()
    step = step_of(w)
    warm(w, step)
    held = [w.grad]
    step(rows(3, 4), 2.0)
    view = grad_of(w)[1:]
    step(rows(5, 6), 3.0)
    shown = memoryview(grad_of(w))
    step(rows(7, 8), 4.0)
    assert held[0] is not None
    np.testing.assert_array_equal(held[0].numpy(), expected(1.0, 1, 2))
    np.testing.assert_array_equal(view, expected(2.0, 3, 4)[1:])
    np.testing.assert_array_equal(np.asarray(shown), expected(3.0, 5, 6))
    np.testing.assert_array_equal(grad_of(w), expected(4.0, 7, 8))


def test_a_call_that_fails_loses_what_it_has_dropped_and_nothing_else() -> None:
    w = table()
    early = step_of(w)
    warm(w, early)
    with pytest.raises(IndexError):
        early(rows(1, ROWS), 1.0)
    assert w.grad is None
    late = step_of(w, late=True)
    warm(w, late)
    with pytest.raises(IndexError):
        late(rows(1, ROWS), 1.0)
    np.testing.assert_array_equal(grad_of(w), expected(1.0, 1, 2))
    early(rows(9, 9), 2.0)
    np.testing.assert_array_equal(grad_of(w), expected(2.0, 9, 9))


def test_a_call_for_another_signature_finds_the_gradient() -> None:
    """The guards are looked at after the gradient has been lent; a call that they turn away must not lose it."""
    w = table()

    def step(rows: hm.Tensor, fresh: bool) -> None:
        if fresh:
            w.grad = None
        w[rows].sum().backward()

    step = hm.trace(step)
    for _ in range(3):
        step(rows(1, 2), True)
    step(rows(3), False)
    np.testing.assert_array_equal(grad_of(w), expected(1.0, 1, 2, 3))


def test_gradients_of_permuted_memory() -> None:
    w = hm.asarray(np.ones((64, 3, 3, 64), np.float32)).permute_dims((0, 3, 1, 2)).detach().requires_grad_()

    def step(scale: float) -> None:
        w.grad = None
        (w * w * scale).sum().backward()

    step = hm.trace(step)
    step(1.0)
    places = set()
    for k in range(4):
        step(float(k))
        assert (grad_of(w) == 2 * k).all() and grad_of(w).strides == w.detach().numpy().strides
        places.add(grad_of(w).ctypes.data)
    assert len(places) == 1

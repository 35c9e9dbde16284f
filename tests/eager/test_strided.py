"""Large slices are read by kernels where they lie, and mean what NumPy's views mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices
from numpy.lib.stride_tricks import as_strided

import hybridml as hm
from hybridml_compiler.eager.strided import first_element, form_of
from hybridml_compiler.errors import OutOfBoundsError
from tests.support.closeness import assert_close


@given(st.data())
def test_a_form_gives_the_elements_of_the_view(data: Any) -> None:
    whole = np.arange(10_000, dtype="i4")[: 5 * 6 * 4 * 3].reshape(5, 6, 4, 3)  # there is memory behind it
    view = whole.transpose(data.draw(st.permutations(range(4))))
    view = view[data.draw(basic_indices(view.shape, allow_newaxis=True, allow_ellipsis=True))]
    if isinstance(view, np.ndarray) and data.draw(st.booleans()):  # axes of one element are repeated
        view = np.broadcast_to(view, [n if n != 1 else data.draw(st.integers(1, 3)) for n in view.shape])
    form = form_of(view) if isinstance(view, np.ndarray) else None
    if form is None:
        return
    strides = np.cumprod([1, *form.dense[:0:-1]])[::-1] * view.itemsize
    dense = as_strided(first_element(view, form), form.dense, strides)
    steps = (*(1,) * (len(form.shape) - 1), form.step)
    found = dense[tuple(slice(0, n * step, step) for n, step in zip(form.shape, steps, strict=True))]
    once = [1 if k in form.repeated else n for k, n in enumerate(view.shape)]
    found = found.transpose(form.axes).reshape(once)
    np.testing.assert_array_equal(np.broadcast_to(np.flip(found, form.reversed), view.shape), view)


@pytest.mark.parametrize("k", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("at", [np.s_[:, :, 5:], np.s_[1:, ::-2, :61], np.s_[..., None, :64], np.s_[3], np.s_[::-1]])
@pytest.mark.parametrize("by", [1, 2, -3])
def test_rows_on_views(by: int, at: Any, k: Any) -> None:
    a = np.random.default_rng(0).standard_normal((8, 300, 129 * abs(by))).astype("f4")[..., ::by].transpose(k)[at]
    b = a[::-1]
    x, y = hm.asarray(a), hm.asarray(b)
    for _ in range(4):  # the third call is the first of a kernel
        got = x * y
        np.testing.assert_array_equal(got.numpy(), a * b)
        np.testing.assert_array_equal(hm.maximum(x, 0.5).numpy(), np.maximum(a, np.float32(0.5)))
    longer = [k for k, n in enumerate(a.shape) if n != 1]
    assert [got.numpy().strides[k] for k in longer] == [(a * b).strides[k] for k in longer]
    np.testing.assert_array_equal(hm.max(x, axis=-1).numpy(), a.max(-1))
    assert_close(hm.sum(x, axis=0).numpy(), a.sum(0, dtype="f8").astype("f4"), terms=4.0)
    np.testing.assert_array_equal(x.clone().numpy(), a)


def test_an_index_out_of_range_of_a_view() -> None:
    x = hm.ones((400, 800))[:, 100:500]
    for _ in range(4):
        with pytest.raises(OutOfBoundsError, match="index 400 is out of range"):
            hm.take(x, hm.tensor([0, 400]), axis=1)
    assert hm.take(x, hm.tensor([0, -1]), axis=1).shape == (400, 2)


@pytest.mark.parametrize("shape", [(1, 500), (300, 1), (30, 50, 1), (7, 1, 30)])
def test_rows_on_repeated_elements(shape: tuple[int, ...]) -> None:
    whole = tuple(n if n > 1 else 400 for n in shape)
    a = np.broadcast_to(np.random.default_rng(0).standard_normal(shape).astype("f4"), whole)
    b = np.random.default_rng(1).standard_normal(whole).astype("f4")
    x, y = hm.broadcast_to(hm.asarray(a[tuple(slice(n) for n in shape)]), whole), hm.asarray(b)
    for _ in range(4):  # the third call is the first of a kernel
        np.testing.assert_array_equal((x * y).numpy(), a * b)
        np.testing.assert_array_equal(hm.negative(x).numpy(), -a)
    for axis in range(x.ndim):
        assert_close(hm.sum(x, axis=axis).numpy(), a.sum(axis, dtype="f8").astype("f4"), terms=4.0)
    np.testing.assert_array_equal(x.contiguous().numpy(), a)


def _values(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype("f4")


@pytest.mark.parametrize(
    "arrays",
    [
        (_values(500, 300).T, np.broadcast_to(_values(500), (300, 500))),
        (np.broadcast_to(_values(300, 1), (300, 500)), _values(500, 300).T),
        (_values(500), _values(500, 300).T),
        (_values(300, 500), _values(500, 300).T),
        (_values(60, 40, 90).transpose(1, 0, 2)[..., :70], _values(90, 40, 60).transpose(1, 2, 0)[..., :70]),
        (np.broadcast_to(_values(40, 60).T[:, None], (60, 90, 40)), _values(40)),
        (np.broadcast_to(_values(40, 60).T[..., None], (60, 40, 90)), _values(60, 40, 1)),
    ],
)
def test_results_lie_as_numpys_in_every_call(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    """And so do the bits of sums of them, which depend on the order of memory."""
    x, y = map(hm.asarray, arrays)
    sums = set()
    for _ in range(4):  # the third call is the first of a kernel
        found = x * y
        assert found.numpy().strides == (arrays[0] * arrays[1]).strides
        wide = found.astype(hm.float64).numpy()
        assert wide.strides == (arrays[0] * arrays[1]).astype("f8").strides
        sums.add(hm.sum(found, axis=0).numpy().tobytes())
    assert len(sums) == 1


@pytest.mark.parametrize("name", ["concat", "cumulative_sum", "tril", "max", "scatter_set", "windows"])
def test_other_rows_on_turned_operands_too(name: str) -> None:
    x = hm.asarray(_values(60, 40, 90).transpose(2, 0, 1))
    at, rows = hm.tensor([0, 2]), hm.zeros((2, 60, 40))
    run: dict[str, Any] = {
        "concat": lambda: hm.concat([x, x], axis=1),
        "cumulative_sum": lambda: hm.cumulative_sum(x, axis=1),
        "tril": lambda: hm.tril(x),
        "max": lambda: hm.max(x, axis=1),
        "scatter_set": lambda: x.at[at].set(rows),
        "windows": lambda: x.unfold(0, 7, 2),
    }
    found = [run[name]() for _ in range(4)]  # the third call is the first of a kernel
    assert len({y.numpy().strides for y in found}) == 1
    assert len({hm.sum(y, axis=0).numpy().tobytes() for y in found}) == 1


def test_a_zero_keeps_its_sign_beside_the_other_one() -> None:
    x = hm.ones((300, 300))
    for value in (0.0, -0.0, 0.0):
        got = hm.pad(x, ((1, 1), (1, 1)), "constant", constant_values=value)
        assert np.signbit(got.numpy()[0, 0]) == np.signbit(value)


def test_results_of_repeated_rows_are_row_major() -> None:
    x = hm.broadcast_to(hm.arange(500.0), (300, 500))
    assert hm.abs(x).numpy().strides == abs(x.numpy()).strides

"""Updates of places of a tensor, in place: without a copy, and as good as one."""

from __future__ import annotations

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.errors import GradientError, OutOfBoundsError

ROWS = hm.tensor([3, 0, 3])


@pytest.mark.parametrize("name", ["index_add", "index_copy"])
def test_views_see_the_update_and_sources_may_be_parts_of_the_tensor(name: str) -> None:
    x = hm.arange(12.0).reshape((4, 3)).clone()
    row, array = x[3], x.numpy()
    expected = getattr(hm, name)(x, 0, ROWS, x[:3]).numpy()
    assert getattr(x, f"{name}_")(0, ROWS, x[:3]) is x
    np.testing.assert_array_equal(x.numpy(), expected)
    np.testing.assert_array_equal(row.numpy(), expected[3])
    np.testing.assert_array_equal(array, expected)


def test_a_gradient_runs_through_the_update() -> None:
    source, x = hm.ones((3, 3), requires_grad=True), hm.zeros((4, 3))
    x.index_add_(0, ROWS, source * 2.0)
    (x * hm.arange(4.0).reshape((4, 1))).sum().backward()
    np.testing.assert_array_equal(source.grad.numpy(), [[6.0] * 3, [0.0] * 3, [6.0] * 3])
    base = hm.ones((4, 3), requires_grad=True)
    y = base * 3.0
    y.index_copy_(0, hm.tensor([1]), hm.zeros((1, 3)))
    (y * y).sum().backward()
    np.testing.assert_array_equal(base.grad.numpy(), [[18.0] * 3, [0.0] * 3, [18.0] * 3, [18.0] * 3])


def test_a_value_that_a_gradient_needs_is_not_overwritten_silently() -> None:
    w, x = hm.ones((4, 3), requires_grad=True), hm.ones((4, 3))
    y = w * x
    x.index_fill_(0, hm.tensor([0]), 5.0)
    with pytest.raises(GradientError, match="in place"):
        y.sum().backward()


def test_an_index_out_of_range_changes_nothing() -> None:
    x = hm.zeros((4, 3))
    with pytest.raises(OutOfBoundsError):
        x.index_add_(0, hm.tensor([1, 4]), hm.ones((2, 3)))
    assert not x.any()
    x += 1.0
    assert hm.index_add(x, 0, ROWS, hm.ones((3, 3))).sum() == 21.0
    assert x.sum() == 12.0


def test_bools_are_added_by_or_and_multiplied_by_and() -> None:
    x, i, v = hm.tensor([True, False, False]), hm.tensor([1, 1, 2]), hm.tensor([True, False, False])
    for style in (lambda f: f, hm.trace):
        assert style(lambda x: x.index_put((i,), v, accumulate=True))(x).tolist() == [True, True, False]
        assert style(lambda x: x.at[i].add(v))(x).tolist() == [True, True, False]
        assert style(lambda x: x.at[hm.tensor([0, 1])].multiply(False))(x).tolist() == [False, False, False]
        assert style(lambda x: x.at[i].max(v))(x).tolist() == [True, True, False]

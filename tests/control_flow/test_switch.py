"""`switch`: the branch of a number, in both styles, with its gradients, under `vmap`, and its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm

BRANCHES = [hm.sin, hm.cos, lambda x: x * x, lambda x: x - 1, hm.exp]
INDICES = [-3, 0, 1, 2, 3, 4, 9]


def expected(index: int, x: Any) -> Any:
    return BRANCHES[min(max(index, 0), len(BRANCHES) - 1)](x)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_every_index_has_its_branch(count: int) -> None:
    x = hm.tensor([0.5, -2.0])
    for index in INDICES:
        found = BRANCHES[min(max(index, 0), count - 1)](x)
        for i in (index, np.int64(index), hm.tensor(index)):
            traced = hm.trace(lambda i, x: hm.switch(i, BRANCHES[:count], x))
            assert np.array_equal(hm.switch(i, BRANCHES[:count], x), found)
            assert np.array_equal(traced(i, x), found)


def test_one_program_has_all_branches_of_a_tensors_index() -> None:
    traced = hm.trace(lambda i, x: hm.switch(i, BRANCHES, x))
    for index in INDICES:
        assert np.array_equal(traced(hm.tensor(index), hm.tensor(0.25)), expected(index, hm.tensor(0.25)))
    assert traced.cache_info().compiles == 1


def test_only_the_branch_of_the_index_runs() -> None:
    seen: list[str] = []
    branches = [lambda name=name: seen.append(name) or hm.tensor(0.0) for name in "abc"]
    hm.switch(hm.tensor(1), branches)
    assert seen == ["b"]


@pytest.mark.parametrize("index", INDICES)
def test_gradients(index: int) -> None:
    x = hm.tensor(0.7)
    slope = hm.grad(lambda x: expected(index, x))(x)
    step = hm.grad(lambda x: hm.switch(hm.tensor(index), BRANCHES, x))
    assert np.array_equal(step(x), slope) and np.allclose(hm.trace(step)(x), slope)
    assert np.allclose(hm.jvp(lambda x: hm.switch(hm.tensor(index), BRANCHES, x), (x,), (hm.ones(()),))[1], slope)


def test_under_vmap_every_index_has_its_own_branch() -> None:
    indices, xs = hm.tensor(INDICES), hm.linspace(0.1, 0.7, len(INDICES))
    each = hm.vmap(lambda i, x: hm.switch(i, BRANCHES, x))
    found = [expected(i, x).item() for i, x in zip(INDICES, xs, strict=True)]
    assert np.allclose(each(indices, xs), found) and np.allclose(hm.trace(each)(indices, xs), found)


def test_errors_are_the_same_in_both_styles() -> None:
    x = hm.ones(2)
    for style in (lambda f: f, hm.trace):
        with pytest.raises(hm.ArgumentError, match="takes an index and functions"):
            style(lambda x: hm.switch(0, [], x))(x)
        with pytest.raises(hm.DTypeError, match="index must be an integer, got float"):
            style(lambda x: hm.switch(0.5, [hm.sin], x))(x)
        with pytest.raises(hm.DTypeError, match="index must be an integer, got float32"):
            style(lambda x: hm.switch(x[0], [hm.sin, hm.cos], x))(x)
        with pytest.raises(hm.ShapeError, match="one element"):
            style(lambda x: hm.switch(x.to(hm.int32), [hm.sin, hm.cos], x))(x)


def test_checkpoint_where_pytorchs_programs_look_for_it() -> None:
    from hybridml.utils.checkpoint import checkpoint

    x = hm.tensor([0.5], requires_grad=True)
    y = checkpoint(hm.exp, x, use_reentrant=False, preserve_rng_state=True)
    y.backward()
    assert np.array_equal(x.grad, y.detach()) and hm.utils.checkpoint.checkpoint is checkpoint

"""Small tensors with gaps in memory, or with their axes in another order: the bits and the order of NumPy's results."""

from __future__ import annotations

import hypothesis.extra.numpy as arrays_of
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import hybridml as hm
from hybridml_compiler.ops.memory_order import order_of, order_of_result


@given(arrays_of.array_shapes(max_dims=4, max_side=4), st.data())
def test_the_order_of_one_operand_is_that_of_an_iterator(shape: tuple[int, ...], data: st.DataObject) -> None:
    steps = st.sampled_from([1, 1, 2, -1])
    order = data.draw(st.permutations(range(len(shape))))
    array = np.zeros(shape).transpose(order)[tuple(slice(None, None, data.draw(steps)) for _ in shape)]
    if data.draw(st.booleans()):
        array = np.broadcast_to(array, (2, *array.shape))
    how = [["readonly"], ["writeonly", "allocate"]]
    made = np.nditer((array, None), ["zerosize_ok"], how, [None, np.bool_], order="K").operands[-1]
    assert order_of_result([array]) == (None if array.flags.c_contiguous else order_of(made))


VIEWS = {
    "columns": lambda x: x[:, 2:7],
    "rows": lambda x: x[::2],
    "turned": lambda x: x.T,
    "backwards": lambda x: x[::-1],
    "repeated": lambda x: hm.broadcast_to(x[0], (3, 8)),
    "a column": lambda x: x[:, 3],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ["exp", "sigmoid", "relu", "erf", "abs"])
def test_a_view_has_the_bits_of_its_copy_at_every_call(name: str, view: str) -> None:
    x = hm.asarray(np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32))
    seen = VIEWS[view](x)
    copy = hm.asarray(np.ascontiguousarray(np.asarray(seen)))
    fn = getattr(hm, name)
    results = [np.asarray(fn(seen)) for _ in range(20)]  # native calls begin after some
    expected = np.asarray(fn(copy))
    assert all(r.tobytes() == expected.tobytes() for r in results)
    like = np.exp(np.asarray(seen))
    assert {(r.shape, order_of(r)) for r in results} == {(like.shape, order_of(like))}


def test_histories_of_calls_on_views_lead_to_the_tensor() -> None:
    x = hm.asarray(np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4), requires_grad=True)
    for _ in range(20):
        x.grad = None
        seen = x[:, 1:3]
        hm.exp(seen).sum().backward()
        assert x.grad is not None
        expected = np.zeros((4, 4), np.float32)
        expected[:, 1:3] = np.exp(np.asarray(x.detach()))[:, 1:3]
        np.testing.assert_allclose(np.asarray(x.grad), expected, rtol=1e-6)


def test_zeros_keep_their_sign_as_constants() -> None:
    x = hm.ones((2,))
    for zero, sign in ((0, 1.0), (0.0, 1.0), (-0.0, -1.0), (0, 1.0), (-0.0, -1.0)):
        assert np.copysign(1.0, np.asarray(hm.asarray(x * zero))).tolist() == [sign] * 2

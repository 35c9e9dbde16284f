"""Rows of small tensors as native calls: found once a signature has come often enough, with the bits of NumPy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import functional as F
from hybridml.core.dispatch import checked, libraries
from hybridml.tracing import library_function
from hybridml_compiler.compile_policy import COMPOSITE, LISTED, WORTH
from hybridml_compiler.errors import OutOfBoundsError
from hybridml_compiler.ops.op import Op

OFTEN = WORTH + 2
ROWS = [op for op in libraries if not op.variadic]


def often(call: Callable[[], Any]) -> list[Any]:
    return [call() for _ in range(OFTEN)]


def natives(op: Op) -> list[Any]:
    """The native calls of the signatures of a row."""
    found = [signature.native for signature in checked[op].values()]
    return [native for native in found if native not in (None, library_function.missed)]


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_native_calls_have_the_bits_of_numpy(op: Op) -> None:
    sample = next(iter(op.samples(np.random.default_rng(0))))
    arrays = [np.array(a) for a in sample.args]
    expected = op.on_arrays(*arrays, **sample.params)
    for t in often(lambda: op.fn(*[hm.asarray(a) for a in arrays], **sample.params)):
        found = t.numpy()
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()
    assert natives(op)  # by now or before: other tests call rows of these shapes


def row(name: str) -> Op:
    return next(op for op in libraries if op.name == name)


def test_a_list_is_one_native_call() -> None:
    op, a, b = row("concat"), hm.ones((2, 3)), hm.zeros((1, 3))
    before = len(natives(op))
    for joined in often(lambda: hm.concat([a, b, a])):
        assert joined.tolist() == [[1.0] * 3] * 2 + [[0.0] * 3] + [[1.0] * 3] * 2
    assert len(natives(op)) == before + 1
    assert hm.concat([a, b]).shape == (3, 3) and hm.concat((a, b, a)).shape == (5, 3)


def test_stacks_are_native_calls_by_their_length_and_axis() -> None:
    a, b = hm.asarray([1.0, 2.0]), hm.asarray([3.0, 4.0])
    for _ in range(OFTEN):
        assert hm.stack([a, b]).tolist() == [[1.0, 2.0], [3.0, 4.0]]
        assert hm.stack([a, b], 1).tolist() == [[1.0, 3.0], [2.0, 4.0]]
        assert hm.stack([a, b], axis=1).tolist() == [[1.0, 3.0], [2.0, 4.0]]
        assert hm.stack((a, b, a)).shape == (3, 2)
        assert hm.stack([a, [5.0, 6.0]]).tolist() == [[1.0, 2.0], [5.0, 6.0]]


def test_shapes_that_come_once_are_not_compiled() -> None:
    op, row_ = row("concat"), hm.ones((1, 4))
    before, cache = len(natives(op)), row_
    for _ in range(3 * WORTH):
        cache = hm.concat([cache, row_])
    assert cache.shape == (3 * WORTH + 1, 4) and len(natives(op)) == before


def test_when_users_have_native_calls() -> None:  # in other tests sooner (see conftest.py)
    program = """import sys, hybridml as hm
x, calls = hm.ones(20), 1
while hm.concat([x, x]).tolist() == [1.0] * 40 and "hybridml.tracing.function" not in sys.modules: calls += 1
print(calls)"""
    given = [sys.executable, "-c", program]
    assert int(subprocess.run(given, capture_output=True, check=True, timeout=100).stdout) == 4097


def test_large_tensors_are_not_compiled_for_their_shapes() -> None:
    x = hm.ones((COMPOSITE,))
    before = len(natives(row("concat")))
    often(lambda: hm.concat([x, x]))
    assert len(natives(row("concat"))) == before


@pytest.mark.parametrize("call", [hm.tril, lambda x: hm.stack([x, x]), lambda x: hm.concat([x, x]), lambda x: x.max(1)])
def test_histories_and_gaps_in_memory_after_native_calls(call: Callable[[hm.Tensor], hm.Tensor]) -> None:
    x = hm.asarray(np.arange(12.0, dtype="f4").reshape(3, 4))
    expected = often(lambda: call(x).tolist())[0]
    wanted = hm.tensor(x, requires_grad=True)
    out = call(wanted)
    assert out.requires_grad and out.tolist() == expected
    out.sum().backward()
    assert wanted.grad is not None
    with hm.no_grad():
        assert not call(wanted).requires_grad
    wide = hm.asarray(np.arange(24.0, dtype="f4").reshape(3, 8) / 2)
    assert call(wide[:, ::2]).tolist() == expected
    assert call(hm.asarray(np.asfortranarray(x.numpy()))).tolist() == expected


def test_values_are_checked_in_native_calls() -> None:
    x, good, bad = hm.arange(5), hm.asarray([0, 4]), hm.asarray([0, 5])
    often(lambda: hm.take(x, good))
    with pytest.raises(OutOfBoundsError):
        hm.take(x, bad)
    assert hm.take(x, good).tolist() == [0, 4]


def test_traced_programs_see_the_rows() -> None:
    x = hm.asarray([[1.0, 5.0], [3.0, 2.0]])
    often(lambda: hm.cumulative_sum(x, axis=1))
    traced = hm.trace(lambda t: hm.cumulative_sum(t, axis=1) + hm.stack([t, t])[0])
    assert traced(x).tolist() == [[2.0, 11.0], [6.0, 7.0]]
    assert len(traced.ir.splitlines()) > 2


def test_created_tensors_are_their_own() -> None:
    for make in (lambda: hm.zeros((3, 2)), lambda: hm.arange(6), lambda: hm.linspace(0, 1, 6), lambda: hm.eye(3, 2)):
        first, *rest = often(make)
        expected = first.tolist()
        first += 1
        assert all(t.tolist() == expected for t in [*rest, make()])
    assert hm.zeros((2, 3)).shape == (2, 3) and hm.zeros((3, 2), dtype=hm.int8).dtype is hm.int8


def test_floats_beside_bools_have_the_default_float_of_the_call() -> None:
    mask = hm.tensor([True, False])
    for call in (lambda: hm.where(mask, 0.0, 1e6), lambda: np.where(mask, 1.0, 0), lambda: hm.where(mask, 1j, 0)):
        before = call().dtype
        hm.set_default_dtype(hm.float64)
        try:
            assert all(t.dtype.itemsize == 2 * before.itemsize for t in [*often(call), hm.trace(call)()])
        finally:
            hm.set_default_dtype(hm.float32)
        assert all(t.dtype is before for t in often(call))


def test_created_tensors_have_the_default_float_and_device_of_the_call() -> None:
    often(lambda: hm.zeros((3,)))
    hm.set_default_dtype(hm.float64)
    try:
        assert all(t.dtype is hm.float64 for t in often(lambda: hm.zeros((3,))))
    finally:
        hm.set_default_dtype(hm.float32)
    assert hm.zeros((3,)).dtype is hm.float32
    assert str(hm.full((2,), -0.0)) != str(hm.full((2,), 0.0)) and hm.full((2,), True).dtype is hm.bool


def test_calls_by_keyword_and_with_tuples() -> None:
    x, w = hm.asarray(np.arange(6.0, dtype="f4").reshape(2, 3)), hm.ones((3,))
    softmax, norm = F.softmax(x, -1).tolist(), F.layer_norm(x, (3,), w).tolist()
    for _ in range(3):
        assert F.softmax(x, dim=-1).tolist() == softmax
        assert F.softmax(input=x, dim=-1).tolist() == softmax
        assert F.softmax(dim=-1, input=x).tolist() == softmax
        assert F.softmax(x, dim=0).tolist() != softmax
        for size in (3, 3):
            assert F.layer_norm(x, (size,), weight=w).tolist() == norm
    with pytest.raises(TypeError):
        F.softmax(x, -1, dim=-1)


def test_draws_by_native_calls_follow_the_generator() -> None:
    def draws() -> list[Any]:
        hm.manual_seed(3)
        return [hm.randn(2, 3).tolist(), hm.randint(0, 9, (4,)).tolist(), hm.rand(3).tolist()]

    first, *rest = often(draws)
    assert all(drawn == first for drawn in rest)
    assert first[0] != hm.randn(2, 3).tolist()


def test_assigned_parts_are_copies_and_seen_by_histories() -> None:
    x, row_ = hm.zeros((3, 2)), hm.asarray([1.0, 2.0])
    view = x[1]
    x[1] = row_
    x[2, 0] = hm.asarray([7.0])
    assert view.tolist() == [1.0, 2.0] and x.tolist() == [[0.0, 0.0], [1.0, 2.0], [7.0, 0.0]]
    x[1] += row_
    assert x[1].tolist() == [2.0, 4.0] and row_.tolist() == [1.0, 2.0]
    w = hm.tensor([3.0, 4.0], requires_grad=True)
    product = w * x[1]
    x[1] = row_
    with pytest.raises(hm.errors.GradientError):
        product.sum().backward()
    x[0] = w
    assert x.requires_grad
    with pytest.raises(OutOfBoundsError):
        hm.zeros((2, 2))[2] = row_
    with pytest.raises(hm.errors.ShapeError):
        hm.zeros((2, 2))[0] = hm.ones((3,))


def test_lists_of_numbers_of_one_kind() -> None:
    assert hm.asarray([1.0, 2.5]).dtype is hm.float32 and hm.asarray([1, 2]).dtype is hm.int64
    assert hm.asarray([True, 1]).dtype is hm.int64 and hm.asarray([1, 2.0]).dtype is hm.float32
    assert hm.asarray([1e300, -1e300]).tolist() == [np.inf, -np.inf]
    assert hm.asarray([1.0, 2.0], dtype=hm.int32).dtype is hm.int32
    assert hm.asarray([0.1], dtype=hm.float64).tolist() == [0.1]
    assert hm.asarray([2**63]).dtype is hm.uint64


def test_long_lists_are_not_compiled() -> None:
    xs = [hm.full((2,), float(k)) for k in range(LISTED)]
    before = len(natives(row("concat")))
    for _ in range(OFTEN):
        assert hm.concat(xs).shape == (2 * LISTED,)
        assert hm.stack(xs).tolist() == [[float(k)] * 2 for k in range(LISTED)]
    assert len(natives(row("concat"))) == before


@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
def test_integers_have_no_negative_power(style: Callable[..., Any]) -> None:
    for power in (lambda x: x**-1, lambda x: hm.pow(x, -2), lambda x: x ** np.int64(-3), lambda x: x[0] ** -1):
        with pytest.raises(ValueError, match=r"integers have no power -\d.*astype\('float64'\)"):
            style(power)(hm.tensor([2, 3]))
    assert style(lambda x: x**-1)(hm.tensor([2.0, 4.0])).tolist() == [0.5, 0.25]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64"])
def test_a_square_is_a_product_in_both_styles(dtype: str) -> None:
    x = hm.asarray((np.random.default_rng(0).standard_normal(4096) * 8).astype(dtype))

    def program(x: hm.Tensor) -> tuple[hm.Tensor, ...]:
        rows = hm.zeros(30, dtype=dtype)
        for i in range(30):
            rows[i] = x[i] ** 2
        return x**2, rows

    traced = hm.trace(program)
    for found, expected in zip(traced(x), program(x), strict=True):
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
    np.testing.assert_array_equal(traced(x)[0].numpy(), x.numpy() * x.numpy())
    assert "pow" not in str(traced.ir)

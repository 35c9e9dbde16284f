"""Rows of small tensors as native calls: found once a signature has come often enough, with the bits of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.core.dispatch import checked, libraries
from hybridml.tracing import library_function
from hybridml_compiler.compile_policy import COMPOSITE, WORTH
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
    before = len(natives(op))
    for t in often(lambda: op.fn(*[hm.asarray(a) for a in arrays], **sample.params)):
        found = t.numpy()
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()
    assert len(natives(op)) > before


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

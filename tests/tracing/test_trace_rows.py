"""Every row of the operation table, traced: the eager values, and the eager errors with the same type and text."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.ops.memory_order import order_of
from hybridml_compiler.ops.op import ErrorSample, Op
from hybridml_compiler.ops.table import OPS
from tests.support.cases import case

# Rows whose results have an order of their own, which depends on sizes: of kernels, of SciPy's and LAPACK's routines.
OWN_ORDER = ("windows", "convolution", "fft_c2r", "lu", "qr")


def arguments(op: Op, args: tuple[object, ...], order: Literal["C", "F"] = "C") -> list[object]:
    given = args[0] if op.variadic else args
    tensors = [hm.asarray(np.asarray(a, order=order)) for a in given]
    return [tensors] if op.variadic else tensors


@pytest.mark.parametrize("op", OPS.values(), ids=str)
def test_traced_is_eager(op: Op) -> None:
    """At all samples, in either order of memory, in one program: most of the time of a small one is that of a capture.
    Results lie in memory as eager ones."""
    samples = list(op.samples(np.random.default_rng(0))) * 2
    given = [arguments(op, sample.args, "F" if 2 * k >= len(samples) else "C") for k, sample in enumerate(samples)]

    def program(given: list[list[object]]) -> list[tuple[hm.Tensor, ...]]:
        found = [op.fn(*args, **sample.params) for args, sample in zip(given, samples, strict=True)]
        return found if op.results else [(out,) for out in found]

    traced = hm.trace(program, backend="interpret")
    for k, pair in enumerate(zip(program(given), traced(given), strict=True)):
        with case(f"sample {k}"):
            for a, b in zip(*pair, strict=True):
                assert b.shape == a.shape and b.dtype is a.dtype
                np.testing.assert_array_equal(np.asarray(b), np.asarray(a))
                if op.name not in OWN_ORDER:
                    assert order_of(np.asarray(b)) == order_of(np.asarray(a))
    assert traced.cache_info().compiles == 1


@pytest.mark.parametrize("op", [op for op in OPS.values() if list(op.error_samples())], ids=str)
def test_errors_are_the_same(op: Op) -> None:
    for k, sample in enumerate(op.error_samples()):
        with case(f"error sample {k}"):
            check_error(op, sample)


def check_error(op: Op, sample: ErrorSample) -> None:
    args = arguments(op, sample.args)

    def program(*xs: object) -> hm.Tensor:
        return op.fn(*xs, **sample.params)

    with pytest.raises(sample.error) as eager:
        program(*args)
    with pytest.raises(sample.error) as traced:
        hm.trace(program, backend="interpret")(*args)
    assert type(traced.value) is type(eager.value)
    assert str(traced.value) == str(eager.value)
    assert sample.match in str(eager.value)
    assert "test_trace_rows.py" in str(eager.value)  # the user's line is named


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.inputs and not list(op.error_samples())], ids=str)
def test_a_row_without_error_samples_takes_everything(op: Op) -> None:
    assert len(op.inputs) == 1 and not op.params, "with more there is something to refuse: error_samples"
    for dtype in ("?", "u1", "i8", "f2", "f4", "f8", "c8", "c16"):
        for shape in ((), (0,), (2, 3)):
            x = hm.asarray(np.ones(shape, dtype))
            traced = hm.trace(op.fn, backend="interpret")(x)
            assert traced.shape == shape and traced.dtype is op.fn(x).dtype


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.inputs], ids=str)
def test_what_is_no_tensor_is_refused_alike(op: Op) -> None:
    """A string in the place of the first input."""
    sample = next(iter(op.samples(np.random.default_rng(0))))
    args = arguments(op, sample.args)

    def program(*xs: object) -> object:
        wrong = ["text", *(xs[0] if op.variadic else xs)[1:]]
        return op.fn(wrong, **sample.params) if op.variadic else op.fn(*wrong, **sample.params)

    errors = []
    for style in (program, hm.trace(program, backend="interpret")):
        with pytest.raises(hm.HybridmlError, match=op.name) as caught:
            style(*args)
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]

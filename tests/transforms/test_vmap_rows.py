"""Every row of the table under `vmap`, batched over each operand and over all, against a loop over the elements."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.core.batching.interpreter import Batching
from hybridml.core.interpreter import interpret
from hybridml_compiler.ops.op import Op, Sample
from hybridml_compiler.ops.table import OPS

B = 3
_SAMPLES = 6  # of a row
ROWS = [op for op in OPS.values() if op.inputs and op.kind not in ("control", "effect")]  # tests/distributed has those


def variants(array: Any) -> list[np.ndarray]:
    """Operands of one shape for B elements; matrices stay definite, and indices within their bounds."""
    a = np.asarray(array)
    if a.dtype.kind in "fc":
        return [(a * a.dtype.type(1 - 0.125 * k)).astype(a.dtype) for k in range(B)]
    if a.dtype.kind == "V":
        return [a] * B
    return [np.roll(a.reshape(-1), k).reshape(a.shape) for k in range(B)]


def choices(count: int) -> list[tuple[bool, ...]]:
    each = [tuple(k == one for k in range(count)) for one in range(count)] if count > 1 else []
    return [(True,) * count, *each]


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_a_row_over_a_batch_is_a_loop_over_its_elements(op: Op) -> None:
    seen = 0
    for sample in itertools.islice(op.samples(np.random.default_rng(0)), _SAMPLES):
        args = sample.args[0] if op.variadic else sample.args
        for choice in choices(len(args)):
            seen += check(op, sample, args, choice)
    assert seen


def check(op: Op, sample: Sample, args: Any, choice: tuple[bool, ...]) -> bool:
    values = [variants(a) if chosen else [np.asarray(a)] * B for a, chosen in zip(args, choice, strict=True)]

    def call(tensors: list[Any]) -> tuple[Any, ...]:
        found = op.fn(tensors, **sample.params) if op.variadic else op.fn(*tensors, **sample.params)
        return found if isinstance(found, tuple) else (found,)

    try:
        loop = [call([hm.asarray(v[k].copy()) for v in values]) for k in range(B)]
    except hm.HybridmlError:
        return False  # another of the variants is no argument of the row
    batching = Batching(B)
    given = [
        batching.wrap(hm.asarray(np.stack(v)), True) if chosen else hm.asarray(v[0])
        for v, chosen in zip(values, choice, strict=True)
    ]
    found = interpret(batching, lambda: [batching.batch_of(t) for t in call(given)])
    for k, batch in enumerate(found):
        expected = np.stack([np.asarray(results[k]) for results in loop])
        assert batch.shape == expected.shape and batch.dtype == expected.dtype, (sample, choice)
        if expected.dtype.kind in "fc":
            rtol = 1e-9 if np.finfo(expected.dtype).eps < 1e-9 else 2e-5
            np.testing.assert_allclose(np.asarray(batch), expected, rtol=rtol, atol=rtol)
        elif expected.dtype.kind != "V":
            np.testing.assert_array_equal(np.asarray(batch), expected)
    return True

"""Samples of the operation table, put together where a row treats every element alike."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hybridml_compiler.ops.op import Op, Sample


def joined(op: Op, samples: Iterable[Sample]) -> list[Sample]:
    """The samples; of an elementwise row of one input one for each dtype and parameters, with all of their values.

    A kernel is then made once, and not for every shape: those of elementwise rows are one mechanism, which rows of two
    inputs are tried with.
    """
    if op.kind != "elementwise" or len(op.inputs) != 1 or op.variadic:
        return list(samples)
    alike: dict[object, list[Sample]] = {}
    for sample in samples:
        key = np.asarray(sample.args[0]).dtype, repr(sorted(sample.params.items()))
        alike.setdefault(key, []).append(sample)
    return [
        Sample((np.concatenate([np.ravel(s.args[0]) for s in group]),), group[0].params, all(s.grad for s in group))
        for group in alike.values()
    ]

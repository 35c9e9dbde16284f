"""Rows of the operation table on a device."""

from __future__ import annotations

import numpy as np

import hybridml as hm
from hybridml_compiler.ops.computed import Refused
from hybridml_compiler.ops.op import Op, Sample


def results(op: Op, sample: Sample, device: str, *, grad: bool = True) -> list[np.ndarray]:
    """The results of a row on a device, then the gradients of its inputs, as arrays of the host."""
    given = sample.args[0] if op.variadic else sample.args
    inputs = [hm.tensor(np.asarray(a)).to(device) for a in given]
    rules = op.vjp * len(inputs) if op.variadic else op.vjp
    for t, rule in zip(inputs, rules, strict=True):
        if t.dtype.kind in "fVc" and rule is not None and not isinstance(rule, Refused):
            t.requires_grad_()
    found = op.fn(inputs, **sample.params) if op.variadic else op.fn(*inputs, **sample.params)
    outs = list(found) if op.results else [found]
    assert {t.device.type for t in outs} == {device if inputs else "cpu"}
    wanted = [t for t in outs if t.requires_grad]
    if wanted and grad:
        ones = [hm.ones(t.shape, t.dtype).to(device) for t in wanted]
        leaves = [t for t in inputs if t.requires_grad]
        outs += [g for g in hm.autograd.grad(wanted, leaves, ones, allow_unused=True) if g is not None]
        assert {t.device.type for t in outs} == {device}
    return [t.detach().cpu().numpy() for t in outs]

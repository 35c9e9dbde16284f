"""Calls of rows on a device whose like has come before (core/devices/calls.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.core import dispatch
from tests.support.closeness import same_bits

DEVICE = "reference"


def x(*shape: int, seed: int = 0) -> Any:
    return hm.tensor(np.random.default_rng(seed).standard_normal(shape).astype("f4"))


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "number": lambda t, u: t + 1,
    "other number": lambda t, u: 2.5 - t,
    "truth": lambda t, u: t * True,
    "two": lambda t, u: t * u,
    "unary": lambda t, u: hm.exp(t),
    "parameters": lambda t, u: t.sum(axis=1, keepdims=True),
    "list": lambda t, u: hm.concat([t, u, t], axis=0),
    "view": lambda t, u: t.reshape(-1) * 2,
    "index": lambda t, u: t[1],
    "product": lambda t, u: t @ u.mT,
    "created": lambda t, u: t + hm.ones((), device=t.device),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("graded", [False, True])
def test_what_has_come_before_is_known(name: str, graded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The general path is not asked again, whatever the values are; histories are the same."""
    call, found = CALLS[name], []
    for k in range(3):
        with monkeypatch.context() as patch:
            if k:
                patch.setattr(dispatch, "general", _refused)
            t, u = (x(3, 4, seed=2 * k + j) for j in range(2))
            a, b = (v.to(DEVICE) for v in (t, u))
            if graded:
                t.requires_grad_(), a.requires_grad_()
            out = call(a, b)
        if name != "product":
            assert same_bits(out.detach().cpu().numpy(), call(t, u).detach().numpy())
        if graded:
            out.sum().backward()
            call(t, u).sum().backward()
            np.testing.assert_allclose(a.grad.cpu().numpy(), t.grad.numpy(), rtol=1e-6)
        found.append(out)
    assert all(type(out) is type(found[0]) for out in found)


def _refused(op: Any, *_: Any, **__: Any) -> Any:
    raise AssertionError(f"{op} went the general way")


def test_calls_that_are_no_equals() -> None:
    """Numbers of equal value, and parameters, shapes and dtypes that differ."""
    t = x(2, 3).to(DEVICE)
    for _ in range(2):
        assert np.signbit((t * 0.0 * 0.0 + -0.0 * hm.abs(t)).cpu().numpy()).any()
        assert [(hm.abs(t) * z).cpu().numpy().flat[0] for z in (0.0, -0.0)] == [0, 0]
        assert [bool(np.signbit((hm.abs(t) * z).cpu().numpy()).all()) for z in (0.0, -0.0)] == [False, True]
        assert np.isnan((t + float("nan")).cpu().numpy()).all()
        assert t.sum(axis=0).shape == (3,) and t.sum(axis=1).shape == (2,) and t.mT.sum(axis=0).shape == (2,)
        assert (t.to(hm.float64) + 1).dtype is hm.float64 and (t + 1).dtype is hm.float32
        assert (t.to(hm.int32) + 1).dtype is hm.int32 and (t.to(hm.int32) + 1.5).dtype.kind == "f"
        assert hm.full((2,), True, device=DEVICE).dtype is hm.bool and hm.full((2,), 1, device=DEVICE).dtype is hm.int64


def test_what_is_created_is_nobody_elses() -> None:
    """Small constants are one array; an update in place gives its tensor another."""
    for _ in range(3):
        t = hm.zeros(3, device=DEVICE)
        assert t.tolist() == [0, 0, 0]
        t += 1
        t[0] = 5
        assert t.tolist() == [5, 1, 1]


def test_a_view_of_the_same_memory_follows() -> None:
    t = x(2, 3).to(DEVICE)
    flat = t.reshape(-1)
    assert flat._array.memory is t._array.memory
    t[0] = 7
    assert flat.tolist()[:3] == [7, 7, 7]
    flat[5] = 9
    assert t.tolist()[1][2] == 9

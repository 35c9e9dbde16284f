"""Rows that move values between devices: `transfer`, as programs say it, and `send` and `recv`, as they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..aval import CPU, Aval
from ..errors import ArgumentError
from .op import REQUIRED, Op, Sample
from .samples import fails


def _movement(name: str, infer: Callable[[Aval, str], Aval], doc: str) -> Op:
    """A row whose result has the values of x."""

    def canon(x: Aval, device: Any) -> dict[str, Any]:
        if not isinstance(device, str):
            raise ArgumentError(f"{name}: device must be the name of a device, got {device!r}")
        return {"device": device}

    return Op(
        name,
        "transfer",
        public=False,
        inputs=("x",),
        params={"device": REQUIRED},
        canon=canon,
        infer=infer,
        eager=lambda x, device: x.copy(),
        samples=lambda rng: (Sample((rng.uniform(-2, 2, n),), {"device": CPU}, grad=False) for n in ((), (2, 3))),
        lower=lambda s, i, x, device: x(i),
        vjp=(None,),
        error_samples=lambda: (fails(ArgumentError, "must be the name of a device, got 3", (2,), device=3),),
        cost=0.0,
        unify=(),
        doc=doc,
    )


def _there(x: Aval, device: str) -> Aval:
    return Aval(x.shape, x.dtype, device=device)


transfer = _movement(
    "transfer",
    _there,
    "x on another device, in the graph of a traced program. Where one device computes all of the program, what is "
    "labelled as another's is moved before it or after it.",
)
send = _movement(
    "send",
    lambda x, device: Aval(x.shape, x.dtype, device=x.device),
    "x, which the program of its device gives to that of `device`, in a graph that several devices compute.",
)
recv = _movement("recv", _there, "x on `device`, which the program of another device has sent.")

ROWS = (transfer, send, recv)

"""Rows of queues: elements that threads hand to each other, put in and taken out within programs.

An element is several arrays, its parts. They are given one by one, and the last one puts the element in; one row takes
an element out, and one for each part reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import ShapeError
from .effects import ALONE, START, TOKEN, after, check_token, effect
from .op import REQUIRED, Op, Sample
from .samples import fails


def _row(
    name: str,
    doc: str,
    infer: Callable[..., Any],
    alone: Callable[..., Any],
    *,
    inputs: tuple[str, ...] = ("token",),
    results: tuple[str, ...] = (),
    sample: Mapping[str, Any] = {},
    **params: Any,
) -> Op:
    """A row with a token; `params` with their defaults, beside the queue."""
    arrays = (np.arange(6.0).reshape(2, 3), START)[-len(inputs) :]

    def canon(*avals: Aval, **given: Any) -> dict[str, Any]:
        check_token(name, avals[-1])
        return given

    return Op(
        name,
        "effect",
        public=False,
        inputs=inputs,
        results=results,
        params={"queue": REQUIRED, **params},
        canon=canon,
        infer=infer,
        eager=effect(name, "queue", alone),
        samples=lambda rng: (Sample(arrays, {"queue": ALONE, **sample}, grad=False),),
        error_samples=lambda: (
            fails(ShapeError, "the token must be", *arrays[:-1], (3,), queue=ALONE, **sample),
        ),
        vjp=(None,) * len(inputs),
        fails=True,  # it is computed where nobody reads its result: other threads wait for it
        unify=(),
        cost=0.0,
        doc=doc,
    )  # fmt: skip


def _token(*_: Any, **__: Any) -> Aval:
    return TOKEN


def _part(token: Aval, *, shape: tuple[int, ...], dtype: Any, **_: Any) -> Aval:
    return Aval(tuple(shape), dtypes.canonical(dtype))


enqueue = _row(
    "enqueue",
    "Gives a part of an element; the last one puts the element into the queue, which waits for room.",
    _token,
    lambda x, token, **_: after(token),
    inputs=("x", "token"),
    part=0,
    last=True,
    many=False,
    timeout=None,
)
dequeue = _row(
    "dequeue",
    "Takes an element out of the queue, or `count` of them, and waits for them; `dequeued` has its parts.",
    _token,
    lambda token, **_: after(token),
    count=None,
    timeout=None,
)
dequeued = _row(
    "dequeued",
    "A part of the element that the `dequeue` has taken which has made the token.",
    _part,
    lambda token, shape, dtype, **_: np.zeros(shape, dtype),
    part=0,
    shape=REQUIRED,
    dtype=REQUIRED,
    sample={"shape": (2,), "dtype": dtypes.float32},
)
queue_size = _row(
    "queue_size",
    "The number of elements in the queue.",
    lambda token, **_: (Aval((), dtypes.int64), TOKEN),
    lambda token: (np.zeros((), dtypes.int64), after(token)),
    results=("result", "token"),
)
close_queue = _row(
    "close_queue",
    "Closes the queue: no element comes any more.",
    _token,
    lambda token, **_: after(token),
    cancel=False,
)

ROWS = (enqueue, dequeue, dequeued, queue_size, close_queue)

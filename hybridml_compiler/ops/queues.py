"""Rows of queues: elements that threads hand to each other, put in and taken out within programs.

An element is several arrays, its parts. They are given one by one, and the last one puts the element in; one row takes
an element out, and one for each part reads it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from .effects import TOKEN, after, effect, to_token
from .op import REQUIRED

_row = partial(effect, owner="queue")


def _part(token: Aval, *, shape: tuple[int, ...], dtype: Any, **_: Any) -> Aval:
    return Aval(tuple(shape), dtypes.canonical(dtype))


enqueue = _row(
    "enqueue",
    "Gives a part of an element; the last one puts the element into the queue, which waits for room.",
    to_token,
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
    to_token,
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
    samples=({"shape": (2,), "dtype": dtypes.float32},),
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
    to_token,
    lambda token, **_: after(token),
    cancel=False,
)

ROWS = (enqueue, dequeue, dequeued, queue_size, close_queue)

"""Rows that processes of a group compute together: each gives its array, and gets what the group makes of all.

They have effects (effects.py), so that all processes call the same collectives in the same order. `group` is the name
by which `hybridml.distributed` knows the group in this process, `size` the number of its processes, `label` what the
array is: processes that move other things are told so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import ArgumentError, DTypeError, ShapeError
from .effects import ALONE, START, TOKEN, after, check_token, effect, to_token
from .op import REQUIRED, Op
from .samples import fails

REDUCTIONS = ("sum", "mean", "prod", "max", "min")
_PARTS: dict[str, Any] = {"size": 1, "label": ""}  # parameters of rows that move parts


def _kept(x: np.ndarray, token: np.ndarray, **_: Any) -> tuple[np.ndarray, np.ndarray]:
    return x.copy(), after(token)


def _nothing(token: np.ndarray, shape: tuple[int, ...], dtype: Any, **_: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(shape, dtype), after(token)


def _check(name: str, token: Aval, *, size: Any = 1, reduce: str = "sum", **_: Any) -> None:
    check_token(name, token)
    if not isinstance(size, int) or size < 1:
        raise ArgumentError(f"{name}: size is the number of processes of the group, got {size!r}")
    if reduce not in REDUCTIONS:
        raise ArgumentError(f"{name}: op is one of {', '.join(REDUCTIONS)}, got {reduce!r}")


def _row(
    name: str, doc: str, infer: Callable[..., Any], alone: Callable[..., Any] = _kept, **given: Any
) -> Op:  # fmt: skip
    """A row of a group, by default of an array, of which it makes another one."""
    usual = {"inputs": ("x", "token"), "results": ("result", "token")}
    return effect(name, doc, infer, alone, owner="group", check=_check, **usual | given)


def _same(x: Aval, token: Aval, **_: Any) -> tuple[Aval, Aval]:
    return Aval(x.shape, x.dtype, device=x.device), TOKEN


def _checked_dtype(name: str, x: Aval, reduce: str) -> None:
    if reduce == "mean" and x.dtype.kind not in dtypes.INEXACT:
        raise DTypeError(f"{name}: the mean of {x} is no {x.dtype}; use astype to make it a float")
    if reduce in ("sum", "prod") and x.dtype == dtypes.bool_:
        raise DTypeError(f"{name}: booleans have no {reduce}; use op='max' for any, 'min' for all, or astype to count")
    if reduce in ("max", "min") and x.dtype.kind == "c":
        raise DTypeError(f"{name}: complex numbers have no {reduce}, got {x}")


def _reduced(x: Aval, token: Aval, *, group: str, reduce: str) -> tuple[Aval, Aval]:
    _checked_dtype("all_reduce", x, reduce)
    return _same(x, token)


def _rows(name: str, x: Aval) -> Any:
    if not x.shape:
        raise ShapeError(f"{name}: x needs an axis, along which the processes' parts follow each other; got {x}")
    return x.shape[0]


def _gathered(x: Aval, token: Aval, *, group: str, size: int, label: str) -> tuple[Aval, Aval]:
    return Aval((_rows("all_gather", x) * size, *x.shape[1:]), x.dtype, device=x.device), TOKEN


def _parts(name: str, x: Aval, size: int) -> Any:
    rows = _rows(name, x)
    if rows % size:
        raise ShapeError(f"{name}: the first axis must divide into {size} parts, one for each process, got {x}")
    return rows // size


def _scattered(x: Aval, token: Aval, *, group: str, size: int, reduce: str, label: str) -> tuple[Aval, Aval]:
    _checked_dtype("reduce_scatter", x, reduce)
    return Aval((_parts("reduce_scatter", x, size), *x.shape[1:]), x.dtype, device=x.device), TOKEN


def _exchanged(x: Aval, token: Aval, *, group: str, size: int, label: str) -> tuple[Aval, Aval]:
    _parts("all_to_all", x, size)
    return _same(x, token)


def _received(token: Aval, *, shape: tuple[int, ...], dtype: Any, **_: Any) -> tuple[Aval, Aval]:
    return Aval(tuple(shape), dtypes.canonical(dtype)), TOKEN


all_reduce = _row(
    "all_reduce",
    "The sum of x over the processes of a group, in each of them; or the mean, product, maximum or minimum.",
    _reduced,
    reduce="sum",
    samples=[{"reduce": reduce} for reduce in REDUCTIONS],
    error_samples=lambda: (
        fails(ArgumentError, "all_reduce: op is one of sum", (2,), START, group=ALONE, reduce="median"),
        fails(DTypeError, "booleans have no sum", np.zeros(2, bool), START, group=ALONE),
    ),
)
broadcast_from = _row("broadcast_from", "x of the process `root`, in each process.", _same, root=0)
all_gather = _row("all_gather", "The x of all processes after each other, along the first axis.", _gathered, **_PARTS)
reduce_scatter = _row(
    "reduce_scatter",
    "The part of the sum of x over the processes that belongs to this one, along the first axis.",
    _scattered,
    **_PARTS,
    reduce="sum",
    error_samples=lambda: (
        fails(ShapeError, "must divide into 3 parts", (2,), START, group=ALONE, size=3),
        fails(ShapeError, "x needs an axis", (), START, group=ALONE),
    ),
)
all_to_all = _row(
    "all_to_all",
    "The parts, along the first axis, that the processes have for this one, after each other.",
    _exchanged,
    **_PARTS,
)
send_to = _row(
    "send_to",
    "Gives x to the process `peer`, which receives it.",
    to_token,
    lambda x, token, **_: after(token),
    results=(),
    asynchronous="send",
    peer=0,
    tag=0,
)
receive_from = _row(
    "receive_from",
    "The array, of this shape and dtype, that the process `peer` has sent.",
    _received,
    _nothing,
    inputs=("token",),
    asynchronous="receive",
    shape=REQUIRED,
    dtype=REQUIRED,
    peer=0,
    tag=0,
    samples=({"shape": (2,), "dtype": dtypes.float32},),
)
barrier = _row(
    "barrier",
    "A token once all processes of the group have come here.",
    to_token,
    lambda token, **_: after(token),
    inputs=("token",),
    results=(),
)
placed = _row(
    "placed",
    "A token once all processes of the group have begun a program that they compute together, each its part of a plan.",
    to_token,
    lambda token, **_: after(token),
    inputs=("token",),
    results=(),
    asynchronous="plan",
    plan="",
)
all_reduce_start = _row(
    "all_reduce_start",
    "Begins to add up x over the processes, while the program goes on; `all_reduce_wait` has the sum for the token.",
    to_token,
    lambda x, token, **_: after(token),
    results=(),
    asynchronous="start",
    label="",
)
all_reduce_wait = _row(
    "all_reduce_wait",
    "The sum of x over the processes, which the `all_reduce_start` of the same x has begun that has made the token.",
    lambda x, token, **_: _same(x, token)[0],
    lambda x, token, **_: x.copy(),
    results=(),
    asynchronous="wait",
)

ROWS = (
    *(all_reduce, broadcast_from, all_gather, reduce_scatter, all_to_all),
    *(send_to, receive_from, barrier, placed, all_reduce_start, all_reduce_wait),
)


def is_collective(node: Any) -> bool:
    """Whether a node of a graph is a row that processes compute together."""
    return node.op is not None and node.op.kind == "effect" and "group" in node.params


def is_token(node: Any) -> bool:
    """Whether a node of a graph is the token that a collective has made."""
    if not is_collective(node) or node.op.asynchronous == "wait":
        return False
    return not node.op.results or bool(node.op.results[node.params["result"]] == "token")

"""Reverse-mode differentiation: the tape and the engine that walks it.

A tape node is a plain list (cheapest object to make: 99 ns, against 174 for a slots object):

    [stamp, pull, shape of the result, input node..., kept value...]

`pull(g, node)` gives `(input node, cotangent)` pairs; it is generated for each row and each subset of inputs that
want gradients (dispatch.py), so a node keeps exactly what its rules name. Input *nodes* and not tensors: `a + b`
keeps no data. Leaves are `Leaf` objects. A node of several results has shape None; each of its results is a small
node that hands it `(position, cotangent)`. The stamp comes from one clock, so "newest first" is a topological order,
and a heap walks it without recursion. Broadcasting is undone here, once, for every rule. Source of the design: the
vector-Jacobian tape of Griewank & Walther, "Evaluating Derivatives" (2008), chapter 6; version stamps as in PyTorch.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from hybridml_compiler.errors import GradientError, ShapeError
from hybridml_compiler.ops.table import OPS

from .context import _no_grad, clock, current_interpreter, grad_is_off, switches
from .references import ARGUMENT, VARIABLE
from .shared import accumulating
from .source_location import line_of, overwritten_at
from .tensor import Tensor

Node = list[Any]
KEPT = 3  # first slot after [stamp, pull, shape]
_add, _sum, _reshape, _conj = OPS["add"], OPS["sum"], OPS["reshape"], OPS["conj"]


class Leaf:
    """History of a tensor that the user marked with `requires_grad`: where its gradient arrives."""

    __slots__ = ("dtype", "grad", "hooks", "shape")
    inner = False  # true where a trace lets one stand for a history outside

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.shape, self.dtype = shape, dtype
        self.grad: Tensor | None = None
        self.hooks: dict[int, Callable[[Tensor], Tensor | None]] | None = None


class Hooked:
    """The pull of a node whose result has hooks, or keeps its gradient (`retain_grad`)."""

    __slots__ = ("grad", "hooks", "pull", "retain")

    def __init__(self, pull: Callable[..., Any]) -> None:
        self.pull = pull
        self.hooks: dict[int, Callable[[Tensor], Tensor | None]] = {}
        self.retain = False
        self.grad: Tensor | None = None

    def __call__(self, g: Tensor, node: Node) -> Any:
        g = run_hooks(self.hooks, turned(g))
        if self.retain:
            with accumulating if current_interpreter() is None else nullcontext():
                self.grad = own(g) if self.grad is None else _add.fn(self.grad, g)
        return self.pull(turned(g), node)


def turned(g: Tensor) -> Tensor:
    """From a cotangent to the gradient that users see, and back (see autograd.py)."""
    return g if g._array.dtype.kind != "c" else _conj.fn(g)


def run_hooks(hooks: dict[int, Callable[[Tensor], Tensor | None]], g: Tensor) -> Tensor:
    for hook in tuple(hooks.values()):
        changed = hook(g)
        if changed is not None:
            given: Any = changed  # a hook is the user's: it may return anything
            if not isinstance(given, Tensor) or given.shape != g.shape:
                got = f"shape {given.shape}" if isinstance(given, Tensor) else type(given).__name__
                raise ShapeError(f"register_hook: a hook must return None or a tensor of shape {g.shape}, got {got}")
            g = changed
    return g


class Handle:
    """Handle that `register_hook` returns: `remove()` takes the hook off again."""

    __slots__ = ("_hooks", "_key")

    def __init__(self, hooks: dict[int, Any], key: int) -> None:
        self._hooks, self._key = hooks, key

    def remove(self) -> None:
        self._hooks.pop(self._key, None)
        switches.value += 1


def stale(op: str, what: str, version: Any, stamp: int, kept: Sequence[Any] | None = None) -> None:
    """Raise when a kept value was written to after its node was made."""
    last = version if type(version) is int else version[0]
    if last > stamp:
        where = "" if kept is None else f"\n  it was kept at {line_of(kept)}"
        line = overwritten_at(last)
        where += f"\n  it was overwritten at {line}" if line else ""
        raise GradientError(
            f"{op}: its {what} was overwritten in place after it was kept for the gradient; "
            f"use an out-of-place update, or clone() it before the update{where}"
        )


def part(joint: Node, k: int, shape: tuple[int, ...]) -> Node:
    """The history of result `k` of a node with several results."""
    return [clock(), _pull_part, shape, joint, k]


def _pull_part(g: Tensor, node: Node) -> Any:
    return ((node[KEPT], (node[KEPT + 1], g)),)


# -- the engine


def unbroadcast(g: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sum a cotangent over the axes along which its input was broadcast."""
    got = g._array.shape
    lead = len(got) - len(shape)
    axes = (*range(lead), *(k + lead for k, n in enumerate(shape) if n == 1 and got[k + lead] != 1))
    g = _sum.fn(g, axis=axes)
    return g if g._array.shape == shape else _reshape.fn(g, shape)


def run(
    seeds: Sequence[tuple[Any, Tensor]],
    *,
    retain: bool,
    create: bool,
    wanted: dict[int, int] | None = None,
    since: int = 0,
) -> dict[int, tuple[Any, Tensor]]:
    """Pull cotangents from the seeds back to the leaves: `id(node) -> (node, cotangent)`.

    With `wanted` (ids of nodes) only those are collected, and they may be inner nodes. Nodes that are no younger than
    the stamp `since` are leaves. Nothing outside is changed.
    """
    found: dict[int, tuple[Any, Tensor]] = {}
    pending: dict[int, Any] = {}
    heap: list[tuple[int, Node]] = []
    push, pop, add = heapq.heappush, heapq.heappop, _add.fn
    outer = grad_is_off()
    try:
        _no_grad.set(not create)
        contributions: Any = seeds
        while True:
            for p, c in contributions:
                key = id(p)
                if type(p) is list and p[0] > since:
                    shape = p[2]
                    if shape is None:  # a node of several results: c is (position, cotangent)
                        c = _bundle(pending.get(key), *c)
                        if key not in pending:
                            push(heap, (-p[0], p))
                        pending[key] = c
                        continue
                    if c._array.shape != shape:
                        c = unbroadcast(c, shape)
                    if key in pending:
                        pending[key] = add(pending[key], c)
                    else:
                        pending[key] = c
                        push(heap, (-p[0], p))
                else:
                    if wanted is None or key in wanted:
                        shape = p[2] if type(p) is list else p.shape
                        if c._array.shape != shape:
                            c = unbroadcast(c, shape)
                        found[key] = (p, add(found[key][1], c) if key in found else c)
            if not heap:
                return found
            node = pop(heap)[1]
            g = pending.pop(id(node))
            if wanted is not None and id(node) in wanted:
                found[id(node)] = (node, g)
            if len(node) == KEPT:
                raise GradientError(
                    "backward through a history that an earlier backward has freed; "
                    "pass retain_graph=True to the earlier call, or compute the result again"
                )
            contributions = node[1](g, node)
            if not retain and node[2] is not None:  # a node of several results is gone with the last of them
                del node[KEPT:]
    finally:
        _no_grad.set(outer)


def _bundle(bundle: Any, k: int, g: Tensor) -> dict[int, Tensor]:
    if bundle is None:
        return {k: g}
    bundle[k] = _add.fn(bundle[k], g) if k in bundle else g
    return bundle


def own(g: Tensor) -> Tensor:
    """A gradient that shares no memory with any other tensor, so that it may be updated in place."""
    array = g._array
    # Exclusive: the caller's variable and ours (of the array: the tensor and our variable).
    if type(array) is np.ndarray:
        base = array.base
        shared = base is not None and not _is_all_of(array, base)
        if shared or sys.getrefcount(array) > VARIABLE + 1 or sys.getrefcount(g) > ARGUMENT:
            array = array.copy(order="K")  # as it lies: a gradient lies as its weight does
    t = type(g)()
    t._array, t._node, t._version = array, g._node, 0
    return t


def _is_all_of(view: np.ndarray, base: Any) -> bool:
    """Whether `view` is a permutation of memory that nothing else refers to (the view, the caller's variable, ours)."""
    return (
        type(base) is np.ndarray
        and base.base is None
        and base.size == view.size
        and sys.getrefcount(base) <= ARGUMENT + 1
    )

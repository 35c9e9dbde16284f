"""Reverse-mode differentiation: the tape and the engine that walks it.

A tape node is a plain list, the cheapest object to make (90 ns; 220 with slots, 290 for a subclass of list):

    [stamp, pull, shape of the result, number of parents, parent..., kept value...]

Only this module knows these places: all others make nodes by `make_node` (generated functions by the text that
`node_source` gives them) and read them by `parents_of`, `kept_by` and their like.

`pull(g, node)` gives `(input node, cotangent)` pairs; it is generated for each row and each subset of inputs that
want gradients (pullbacks.py), so a node keeps exactly what its rules name. Input *nodes* and not tensors: `a + b`
keeps no data. Leaves are `Leaf` objects. A node of several results has shape None; each of its results is a small
node that hands it `(position, cotangent)`. The stamp comes from one clock, so "newest first" is a topological order,
and a heap walks it without recursion. Broadcasting is undone here, once, for every rule. Source of the design: the
vector-Jacobian tape of Griewank & Walther, "Evaluating Derivatives" (2008), chapter 6; version stamps as in PyTorch.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeGuard

import numpy as np

from hybridml_compiler.eager.large import materialized
from hybridml_compiler.errors import DeviceError, GradientError, ShapeError
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.collector import collector

from ..context import _no_grad, at_default_place, at_place, clock, current_interpreter, grad_is_off, homes, switches
from ..interpreter import regions_around
from ..shared import accumulating
from ..source_location import line_of, overwritten_at
from ..tensor import CPU, Tensor, like, place_of, place_var
from .references import ARGUMENT, VARIABLE
from .sparse import SparseGradient, added

Node = list[Any]
_STAMP, _PULL, _SHAPE, _COUNT, _HEAD = range(5)
_add, _sum, _reshape, _conj = OPS["add"], OPS["sum"], OPS["reshape"], OPS["conj"]


# -- nodes


def make_node(pull: Callable[..., Any], shape: tuple[int, ...] | None, parents: Sequence[Any], *kept: Any) -> Any:
    """A node of the tape: `pull` is given the cotangent of its result, of this shape, for the nodes `parents`.

    `shape` is None for a node of several results, whose tensors have a `part` of it each. A mark, where no parent is
    more than one.
    """
    if parents and type(parents[0]) is Mark and all([type(p) is Mark for p in parents]):
        return Mark(shape)
    return [clock(), pull, shape, len(parents), *parents, *kept]


def make_step(
    pull: Callable[..., Any], shape: tuple[int, ...], parent: Any, first: Any, second: Any, third: Any
) -> Node:
    """A node of the tape with one parent and three kept values: 0.1 us less than `make_node`, for indexing."""
    return [clock(), pull, shape, 1, parent, first, second, third]


def part(joint: Any, k: int, shape: tuple[int, ...]) -> Any:
    """The history of result `k` of a node of several results, or of a mark."""
    if type(joint) is Mark:
        return Mark(shape)
    return [clock(), _pull_part, shape, 1, joint, k]


def freed(shape: tuple[int, ...]) -> Node:
    """A node whose history a backward has freed."""
    return [clock(), None, shape, 0]


def node_source(pull: str, shape: str, parents: Sequence[str], kept: Sequence[str]) -> str:
    """Source of the expression that `make_node` computes, with `_clock` as the clock."""
    return f"[{', '.join(['_clock()', pull, shape, str(len(parents)), *parents, *kept])}]"


def parent_source(k: int) -> str:
    """Source of parent `k` of `_node`."""
    return f"_node[{_HEAD + k}]"


def kept_source(parents: int, k: int) -> str:
    """Source of the value `k` that `_node` keeps, after so many parents."""
    return f"_node[{_HEAD + parents + k}]"


def is_node(history: Any) -> TypeGuard[Node]:
    """Whether the history of a tensor is a node; it is None or a leaf otherwise."""
    return type(history) is list


def is_freed(node: Node) -> bool:
    """Whether a backward has freed the history that a node stands for."""
    return len(node) == _HEAD


def stamp_of(node: Node) -> int:
    """The clock's stamp of the moment when the node was made."""
    stamp: int = node[_STAMP]
    return stamp


def parents_of(node: Node) -> list[Any]:
    """Nodes and leaves of the inputs that want a gradient; none of a freed node."""
    return node[_HEAD : _HEAD + node[_COUNT]]


def kept_by(node: Node) -> list[Any]:
    """The values that a node keeps for its pull, as they were given to `make_node`."""
    return node[_HEAD + node[_COUNT] :]


def boundary(roots: Iterable[Any], since: int, own: Iterable[Any] = ()) -> list[Any]:
    """The ends of histories that were made after the stamp `since`: older nodes, and leaves that are none of `own`."""
    return [h for h in _reached(roots, since, own) if not is_node(h) or stamp_of(h) <= since]


def between(roots: Iterable[Any], since: int, own: Iterable[Any] = ()) -> list[Node]:
    """The nodes of histories up to that."""
    return [h for h in _reached(roots, since, own) if is_node(h) and stamp_of(h) > since]


def _reached(roots: Iterable[Any], since: int, own: Iterable[Any]) -> list[Any]:
    seen = {id(leaf) for leaf in own}
    found, stack = [], list(roots)
    while stack:
        history = stack.pop()
        if id(history) in seen:
            continue
        seen.add(id(history))
        found.append(history)
        if is_node(history) and stamp_of(history) > since:
            stack += [p for p in parents_of(history) if not is_node(p) or not is_freed(p)]
    return found


def leading(roots: Iterable[Any], ends: Iterable[Any], since: int = 0) -> set[int]:
    """The ids of nodes younger than the stamp `since`, from `roots` on, that lead to one of `ends`, and of those."""
    found = {id(end) for end in ends}
    order, seen, stack = [], set(found), list(roots)
    while stack:
        history = stack.pop()
        if id(history) not in seen and is_node(history) and stamp_of(history) > since:
            seen.add(id(history))
            order.append(history)
            stack += parents_of(history)
    for node in sorted(order, key=stamp_of):
        if any(id(p) in found for p in parents_of(node)):
            found.add(id(node))
    return found


def result_shape(history: Any) -> tuple[int, ...]:
    """Shape of the tensor whose node or leaf this is."""
    shape: tuple[int, ...] = history[_SHAPE] if type(history) is list else history.shape
    return shape


def pull_name(node: Node) -> str:
    """Name of the function that pulls a cotangent through the node, "pull_add_01"; "pull_softmax" of a program's node,
    which keeps what has the name of the program.
    """
    pull = node[_PULL]
    name: str = getattr(getattr(pull, "pull", pull), "__name__", "")
    program = "" if name.startswith("pull_") else getattr(next(iter(kept_by(node)), None), "name", "")
    return f"pull_{program}" if isinstance(program, str) and program.isidentifier() else name


def hooked(node: Node) -> Hooked | None:
    """The hooks of a node's result."""
    pull = node[_PULL]
    return pull if type(pull) is Hooked else None


def give_hooks(node: Node) -> Hooked:
    """The hooks of a node's result, made if it has none."""
    found = hooked(node)
    if found is None:
        found = node[_PULL] = Hooked(node[_PULL])
    return found


class Leaf:
    """History of a tensor that the user marked with `requires_grad`: where its gradient arrives."""

    __slots__ = ("dtype", "grad", "hooks", "reduction", "shape")
    inner = False  # true where a trace lets one stand for a history outside

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.shape, self.dtype = shape, dtype
        self.grad: Tensor | None = None
        self.hooks: dict[int, Callable[[Tensor], Tensor | None]] | None = None
        self.reduction: tuple[Any, int] | None = None  # what takes its gradients (reductions.py), and its number there


class Refusing(Leaf):
    """A leaf inside of a transform that no gradient is left in: `reached` says what a backward comes to there."""

    __slots__ = ()
    reached = ""

    @property
    def grad(self) -> None:
        return None

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            raise GradientError(
                f"backward: {self.reached}; use hm.grad or hm.autograd.grad inside, or call backward outside"
            )


class Mark(Refusing):
    """History of a tensor whose derivative is taken beside it, as a tangent, or at a level below: what is computed
    from it is marked alone, as nobody asks for cotangents, and keeps nothing for a backward.
    """

    __slots__ = ()
    inner = True
    reached = "inside of jvp it reaches an argument of the function"

    def __init__(self, shape: Any) -> None:
        self.shape, self.hooks, self.reduction = shape, None, None


def is_recorded(history: Any) -> bool:
    """Whether a backward may ask for cotangents of a tensor with this history."""
    return history is not None and type(history) is not Mark


class Hooked:
    """The pull of a node whose result has hooks, or keeps its gradient (`retain_grad`)."""

    __slots__ = ("grad", "hooks", "pull", "retain")

    def __init__(self, pull: Callable[..., Any]) -> None:
        self.pull = pull
        self.hooks: dict[int, Callable[[Tensor], Tensor | None]] = {}
        self.retain = False
        self.grad: Tensor | None = None

    def __call__(self, g: Tensor, node: Node) -> Any:
        g = run_hooks(self.hooks, conjugated(g))
        if self.retain:
            with accumulating if current_interpreter() is None else nullcontext():
                self.grad = own(g) if self.grad is None else _add.fn(self.grad, g)
        return self.pull(conjugated(g), node)


def conjugated(g: Any) -> Any:
    """Converts a cotangent to the gradient that users see, and back (see autograd.py)."""
    if g._array.dtype.kind != "c":
        return g
    return g._mapped(_conj.fn) if type(g) is SparseGradient else _conj.fn(g)


def run_hooks(hooks: dict[int, Callable[[Tensor], Tensor | None]], g: Any) -> Any:
    for hook in tuple(hooks.values()):
        changed = at_default_place(partial(hook, g))
        if changed is not None:
            given: Any = changed  # a hook is the user's: it may return anything
            if not isinstance(given, Tensor | SparseGradient) or given.shape != g.shape:
                got = f"shape {given.shape}" if isinstance(given, Tensor | SparseGradient) else type(given).__name__
                raise ShapeError(f"register_hook: a hook must return None or a tensor of shape {g.shape}, got {got}")
            if given.device.type != g.device.type:
                raise misplaced(changed, g.device.type, "register_hook")
            g = changed
    return g


def misplaced(g: Tensor, place: str, what: str) -> DeviceError:
    """The error for a gradient that is not on the device of its tensor."""
    return DeviceError(f"{what}: the gradient is on {g.device.type!r}, its tensor on {place!r}; use .to({place!r})")


class Handle:
    """Handle that `register_hook` returns: `remove()` takes the hook off again."""

    __slots__ = ("_hooks", "_key")

    def __init__(self, hooks: dict[int, Any], key: int) -> None:
        self._hooks, self._key = hooks, key

    def remove(self) -> None:
        self._hooks.pop(self._key, None)
        switches.value += 1


def last_write(t: Tensor) -> int:
    """The stamp of the last update of a tensor in place; 0: never."""
    return _last(t._version)


def _last(version: Any) -> int:
    last: int = version if type(version) is int else version[0]
    return last


def stale(op: str, what: str, version: Any, node: Node, kept: Sequence[Any] | None = None) -> None:
    """Raises when a kept value was written to after its node was made."""
    last = _last(version)
    if last > node[_STAMP]:
        where = "" if kept is None else f"\n  it was kept at {line_of(kept)}"
        line = overwritten_at(last)
        where += f"\n  it was overwritten at {line}" if line else ""
        raise GradientError(
            f"{op}: its {what} was overwritten in place after it was kept for the gradient; "
            f"use an out-of-place update, or clone() it before the update{where}"
        )


def _pull_part(g: Tensor, node: Node) -> Any:
    joint, k = node[_HEAD:]
    return ((joint, (k, g)),)


# -- the engine


def unbroadcast(g: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sums a cotangent over the axes along which its input was broadcast."""
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
    only: set[int] | None = None,
    sparse: bool = False,
    watch: Any = None,
) -> dict[int, tuple[Any, Any]]:
    """Pulls cotangents from the seeds back to the leaves: `id(node) -> (node, cotangent)`.

    With `wanted` (ids of nodes) only those are collected, and they may be inner nodes. Nodes that are no younger than
    the stamp `since` are leaves. `only`: ids of the nodes that are pulled through. `sparse`: cotangents of some rows
    stay so. `watch`: what looks at each pull (reductions.py). Nothing outside is changed.
    """
    # Sizes may be symbols; the history may cross devices.
    aside = _pulled_in_rank if collector.get() is not None else _pulled_beside if homes or place_var.get() else None
    found: dict[int, tuple[Any, Tensor]] = {}
    if (regions := regions_around()) is not None:
        aside = partial(regions.pulled, aside or _pulled)
    if watch is not None:
        aside = watch.around(aside or _pulled, found)
    pending: dict[int, Any] = {}
    heap: list[tuple[int, Node]] = []
    push, pop, add = heapq.heappush, heapq.heappop, _add.fn
    stamp, pull, of_result, head = _STAMP, _PULL, _SHAPE, _HEAD  # a look-up of a global for each node is 2 % of it
    outer = grad_is_off()
    try:
        _no_grad.set(not create)
        contributions: Any = seeds
        while True:
            for p, c in contributions:
                key = id(p)
                if type(p) is list and p[stamp] > since and (only is None or key in only):
                    shape = p[of_result]
                    if shape is None:  # a node of several results: c is (position, cotangent)
                        c = _bundle(pending.get(key), *c)
                        if key not in pending:
                            push(heap, (-p[stamp], p))
                        pending[key] = c
                        continue
                    if c._array.shape != shape:
                        c = unbroadcast(c, shape)
                    if key in pending:
                        pending[key] = add(pending[key], c)
                    else:
                        pending[key] = c
                        push(heap, (-p[stamp], p))
                else:
                    if wanted is None or key in wanted:
                        shape = p[of_result] if type(p) is list else p.shape
                        if c._array.shape != shape:
                            c = unbroadcast(c, shape)
                        if key in found:
                            c = added(found[key][1], c)
                        elif not sparse and type(c) is SparseGradient:
                            c = c.to_dense()
                        found[key] = (p, c)
            if not heap:
                return found
            node = pop(heap)[1]
            g = pending.pop(id(node))
            if wanted is not None and id(node) in wanted:
                found[id(node)] = (node, g)
            if len(node) == head:
                raise GradientError(
                    "backward through a history that an earlier backward has freed; "
                    "pass retain_graph=True to the earlier call, or compute the result again"
                )
            contributions = node[pull](g, node) if aside is None else aside(g, node)
            if not retain and node[of_result] is not None:  # a node of several results is gone with the last of them
                del node[head:]
    finally:
        _no_grad.set(outer)


def _pulled(g: Any, node: Node) -> Any:
    """The contributions of a node."""
    return node[_PULL](g, node)


def _pulled_beside(g: Any, node: Node) -> Any:
    """The contributions of a node; what its rules create is on the device of the cotangent."""
    first = next(iter(g.values())) if type(g) is dict else g
    return at_place(place_of(first) or CPU.type, partial(node[_PULL], g, node))


def _pulled_in_rank(g: Any, node: Node) -> Any:
    """The contributions of a node, each with the number of axes of its input: Python compares the first sizes of two
    shapes before their lengths, and a symbol compared with a number is a question."""
    found = []
    for p, c in _pulled_beside(g, node) if homes or place_var.get() else node[_PULL](g, node):
        shape = p[_SHAPE] if type(p) is list else p.shape
        fits = shape is None or len(c._array.shape) == len(shape)
        found.append((p, c if fits else unbroadcast(c, shape)))
    return found


def _bundle(bundle: Any, k: int, g: Tensor) -> dict[int, Tensor]:
    if bundle is None:
        return {k: g}
    bundle[k] = _add.fn(bundle[k], g) if k in bundle else g
    return bundle


def own(g: Any) -> Any:
    """A gradient that shares no memory with any other tensor, so that it may be updated in place."""
    if type(g) is SparseGradient:
        return g  # its rows and values are its own, or replaced by an update
    array = g._array
    # Exclusive: the caller's variable and ours (of the array: the tensor and our variable).
    if type(array) is np.ndarray:
        if getattr(g, "_view", None) is not None and sys.getrefcount(g) <= ARGUMENT:
            del g._view  # lets go of the cotangent that it is a view of
        base = array.base
        shared = base is not None and not _is_all_of(array, base)
        if shared or sys.getrefcount(array) > VARIABLE + 1 or sys.getrefcount(g) > ARGUMENT:
            array = materialized(array)  # as it lies: a gradient lies as its weight does
    return like(g, array, g._node)


def _is_all_of(view: np.ndarray, base: Any) -> bool:
    """Whether `view` is a permutation of memory that nothing else refers to (the view, the caller's variable, ours)."""
    return (
        type(base) is np.ndarray
        and base.base is None
        and base.size == view.size
        and sys.getrefcount(base) <= ARGUMENT + 1
    )

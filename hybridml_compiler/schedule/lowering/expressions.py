"""Elements of nodes as scalar expressions: inlined nodes are composed through the `lower` column of their rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np

from ... import dtypes
from ...errors import CompileError
from ...graph.facts import moved
from ...graph.ir import Node
from ...loops.builder import LoopBuilder
from ...loops.index import affine_coefficient, opaque_leaves
from ...loops.ir import Buffer, Expr, Role, loads
from ...record import replace
from ...sizes.dims import is_dim, same

Index = tuple[Any, ...]


class Expressions:
    """Elements of nodes as expressions over memory; `roots` are computed here, in memory or not."""

    def __init__(
        self,
        in_memory: Callable[[Node], bool],
        overwrites: Mapping[Node, Node],
        roots: Container[Node],
        builder: LoopBuilder | None = None,
    ) -> None:
        self.in_memory, self.overwrites, self.roots = in_memory, overwrites, roots
        self.s = builder or LoopBuilder()
        self.operands: dict[Node, Buffer] = {}  # in order of first use: the kernel's signature
        self._memo: dict[Any, Expr] = {}

    # ---- memory

    def buffer(self, node: Node, role: Role = "in") -> Buffer:
        """The buffer of a node; one that overwrites an input shares the input's."""
        home = self.overwrites.get(node, node)
        found = self.operands.get(home)
        if found is None:
            size = node.aval.size
            found = Buffer(f"b{len(self.operands)}", node.dtype, size if is_dim(size) else max(size, 1), role)
        elif found.role != role:
            found = replace(found, role="inout")
        self.operands[home] = found
        return found

    # ---- expressions

    def at(self, node: Node, i: Index) -> Expr:
        """The scalar node[i]: a constant, a load, or the row's `lower` over its operands."""
        if node.is_constant and not node.shape:
            assert node.value is not None
            return self.s.const(node.value[()], node.dtype)
        index = tuple(k if isinstance(k, Expr) else self.s.const(k, dtypes.int64) for k in i)
        key = (node, index, self.s.mask)
        found = self._memo.get(key) or self._memo.get((node, index, None))  # a value without a mask holds under one
        if found is None:
            found = self.kept(node, index)
        if found is None:
            if node.is_constant or (self.in_memory(node) and node not in self.roots):
                if self.s.mask is not None and same(node.aval.size, 0):
                    return self.s.const(0, node.dtype)  # a mask that is false would read the first element all the same
                found = self.s.load(self.buffer(node), self.flat(index, node.shape))
            else:
                found = self.compute(node, index)
            self._memo[key] = found
        return found

    def kept(self, node: Node, index: Index) -> Expr | None:
        """A value that the kernel has stored and reads again; None for any other."""
        return None

    def compute(self, node: Node, i: Index) -> Expr:
        """node[i] by its row, whether or not it is in memory."""
        assert node.op is not None
        loads: Any = [Load(self, operand) for operand in node.inputs]
        value = (
            node.op.lower(self.s, i, loads, **node.params)
            if node.op.variadic
            else node.op.lower(self.s, i, *loads, **node.params)
        )
        return value if isinstance(value, Expr) else self.s.const(value, node.dtype)

    def flat(self, index: Index, shape: tuple[int, ...]) -> Expr:
        return ravel(self.s, index, shape)

    def loop_vars(self, shape: tuple[int, ...]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        """(index, loop variables): an axis of size 1 has index 0 and no loop."""
        return self.s.variables("i", shape)


class Load:
    """An operand as `lower` sees it: `x(index) -> scalar`, `x.shape`, `x.dtype`."""

    __slots__ = ("dtype", "lowering", "node", "shape")

    def __init__(self, lowering: Expressions, node: Node) -> None:
        self.lowering, self.node = lowering, node
        self.shape: tuple[int, ...] = node.shape
        self.dtype: np.dtype = node.dtype

    def __call__(self, index: Index) -> Expr:
        return self.lowering.at(self.node, tuple(index))


def ravel(s: LoopBuilder, index: Index, shape: tuple[int, ...]) -> Expr:
    """The row-major position of an index."""
    position: Any = None
    for k, n in zip(index, shape, strict=True):
        position = k if position is None else s.add(s.mul(position, n), k)
    return position if isinstance(position, Expr) else s.const(position or 0, dtypes.int64)


def unravel(s: LoopBuilder, position: Expr, shape: tuple[int, ...]) -> Index:
    """Index from a position, inner axes first, each the remainder of those before: the builder sees one position."""
    index: list[Expr] = []
    for k, n in reversed(list(enumerate(shape))):
        outermost = math.prod(shape[:k]) == 1
        index.insert(0, s.const(0, dtypes.int64) if n == 1 else position if outermost else s.mod(position, n))
        position = position if outermost else s.floordiv(position, n)
    return tuple(index)


def strides_of(
    node: Node, in_memory: Callable[[Node], bool], *, casts: bool = False
) -> tuple[Node, int, tuple[int, ...]] | None:
    """(node in memory, offset, stride of each axis) if `node` only moves elements of it in an affine way, else None.

    This is how a matrix product reads transposed, sliced or head-split operands without a copy. If `casts`, it may
    widen them on the way.
    """
    base, moves = node, []
    while not in_memory(base):
        below = moved(base, casts=casts)
        if below is None:
            return None
        moves.append((base.op.name if base.op else "", base.text))
        base = below
    key = base.shape, *moves
    if key not in _strides:
        if len(_strides) >= _MOST_STRIDES:
            _strides.clear()
        _strides[key] = _strides_through(node, base, in_memory)
    found = _strides[key]
    return None if found is None else (base, *found)


_Strides = tuple[int, tuple[int, ...]]
_strides: dict[Any, _Strides | None] = {}  # by the shape in memory, and the movements over it
_MOST_STRIDES = 4096


def _chooses(expr: Expr, element: Expr) -> bool:
    """Whether the element is a value in some places only, as in a triangle of a matrix. A conversion of float16 chooses
    by the element."""
    if expr is element:
        return False
    by_place = expr.op == "select" and element not in loads(expr.args[0])
    return by_place or any(_chooses(arg, element) for arg in expr.args)


def _strides_through(node: Node, base: Node, in_memory: Callable[[Node], bool]) -> _Strides | None:
    if base is node:
        return 0, tuple(math.prod(node.shape[k + 1 :]) for k in range(len(node.shape)))
    probe = Expressions(in_memory, {}, [node])
    index, vars_ = probe.loop_vars(node.shape)
    load = probe.at(node, index)
    found = loads(load)  # one, and what `widens` makes of it
    if len(found) != 1 or len(found[0].args) != 1 or _chooses(load, found[0]):
        return None
    position = found[0].args[0]
    if opaque_leaves(position):
        return None
    strides = tuple(0 if k.op == "const" else affine_coefficient(position, k) for k in index)
    offset = probe.s.substitute(position, {v: probe.s.const(0, dtypes.int64) for v in vars_})
    if offset.op != "const":
        raise CompileError(f"strided view of {node} has a variable offset {offset}")
    return offset.attr, strides

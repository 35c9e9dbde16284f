"""The definition of the loop dialect by an interpreter: NumPy computes a kernel's statements, in order.

A loop is one axis of NumPy where its iterations are independent of each other, and a Python loop otherwise. A scan is a
Python loop over its own variable. A value is the array of its values over the axes of the loops around, inner ones in
front, so that a value of an outer loop broadcasts into an inner one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ..errors import CompileError
from ..sizes.values import evaluate
from ..walk import postorder
from . import regions
from .builder import scan_start
from .dependence import independent
from .ir import Expr, For, Kernel, Reduce, Scan, Stmt, Store, extent, statements, steps
from .scalar import Array, NumpyBuilder
from .transcendental import TABLE

_COMBINE: dict[str, Any] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


def interpret_kernel(
    kernel: Kernel,
    arrays: Sequence[np.ndarray],
    lo: int = 0,
    hi: int | None = None,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> int:
    """Run iterations lo..hi of the kernel over `arrays`: one flat array per operand, stored to in place.
    `sizes`: the value of each of its symbols.

    Returns the status: 0, or 1 if a checked index was out of range (element 0 was read in its place).
    Raises `CompileError` for arrays that are not the kernel's buffers, and for a load or store outside of its buffer.

    >>> from .text import parse_kernel
    >>> twice = parse_kernel("kernel(x: f32[3], y: f32[3] out) { for i < 3 { y[i] = x[i] + x[i] } }")
    >>> y = np.empty(3, "f4")
    >>> interpret_kernel(twice, [np.array([1, 2, 3], "f4"), y]), y
    (0, array([2., 4., 6.], dtype=float32))
    """
    for buffer, array in zip(kernel.operands, arrays, strict=True):
        if array.ndim != 1 or array.dtype != buffer.dtype or array.size < evaluate(buffer.size, sizes):
            raise CompileError(f"interpret_kernel: {buffer} needs a flat array, got {array.dtype}{list(array.shape)}")
    run = _Run(kernel, arrays, lo, evaluate(kernel.total, sizes) if hi is None else hi, sizes)
    with np.errstate(all="ignore"):
        run.body(kernel.body)
    return run.status


class _Run:
    def __init__(
        self, kernel: Kernel, arrays: Sequence[np.ndarray], lo: int, hi: int, sizes: Mapping[str, int]
    ) -> None:
        self.kernel, self.lo, self.hi, self.sizes = kernel, lo, hi, sizes
        self.arrays = {b.name: a for b, a in zip(kernel.operands, arrays, strict=True)}
        self.arrays |= {
            b.name: np.full(evaluate(b.size, sizes), 77).astype(b.dtype) for b in kernel.scratch
        }  # not zeros: it is dirty
        self.s = NumpyBuilder()
        self.grid: tuple[int, ...] = ()  # their extents, innermost first
        self.values: dict[Expr, Array] = {}  # variables, results, and values computed from them
        self.axes: dict[int, bool] = {}
        self.status = 0

    # ---- statements

    def body(self, body: Sequence[Stmt]) -> None:
        for step in steps(body):
            match step[0]:
                case Store():
                    stores = [s for s in step if isinstance(s, Store)]
                    for store, value in [(s, self.value(s.value)) for s in stores]:
                        self.store(store, value)
                case Reduce():
                    self.values |= {s.result: self.reduce(s) for s in step if isinstance(s, Reduce)}
                case For():
                    self.loop(step[0])
                case Scan():
                    self.scan(step[0])

    def loop(self, stmt: For) -> None:
        lo, hi = (self.lo, self.hi) if stmt.var is self.kernel.range else (0, self.extent(stmt.var))
        outer = self.enter()
        if self.side_by_side(stmt):
            self.axis(stmt.var, np.arange(lo, hi))
            self.body(stmt.body)
            self.leave(outer)
            return
        for iteration in range(lo, hi):
            self.values[stmt.var] = np.asarray(iteration)
            self.body(stmt.body)
            self.leave(outer)

    def side_by_side(self, stmt: For) -> bool:
        """Whether a loop is one axis. There is one scratch memory: iterations with one each take turns."""
        found = self.axes.get(id(stmt))
        if found is None:
            own = any(isinstance(x, Store) and x.buffer.role == "scratch" for x in statements(stmt.body))
            promised = stmt.kind in ("vector", "thread") or (stmt.kind != "serial" and not own)
            found = self.axes[id(stmt)] = promised or independent(stmt)
        return found

    def extent(self, var: Expr) -> int:
        return int(evaluate(extent(var), self.sizes))

    def enter(self) -> tuple[dict[Expr, Array], tuple[int, ...]]:
        return dict(self.values), self.grid

    def leave(self, outer: tuple[dict[Expr, Array], tuple[int, ...]]) -> None:
        """Forgets the values computed inside."""
        self.values, self.grid = dict(outer[0]), outer[1]

    def axis(self, var: Expr, numbers: Array) -> None:
        self.values[var] = numbers.reshape(-1, *(1,) * len(self.grid))
        self.grid = (numbers.size, *self.grid)

    def reduce(self, stmt: Reduce) -> Array:
        outer = self.enter()
        extents = tuple(map(self.extent, stmt.vars))
        for var in reversed(stmt.vars):
            self.axis(var, np.arange(self.extent(var)))
        value = np.broadcast_to(self.value(stmt.value), self.grid)
        self.leave(outer)
        flat = value.reshape(math.prod(extents), *self.grid)
        if stmt.op.startswith("arg"):
            return np.asarray(flat.argmax(axis=0) if stmt.op == "argmax" else flat.argmin(axis=0))
        return np.asarray(_COMBINE[stmt.op].reduce(flat, axis=0, dtype=value.dtype))

    def scan(self, stmt: Scan) -> None:
        outer = self.enter()
        total: Array = np.asarray(scan_start(stmt.op, stmt.value.dtype), stmt.value.dtype)
        order = range(self.extent(stmt.var))
        for iteration in reversed(order) if stmt.reverse else order:
            self.values[stmt.var] = np.asarray(iteration)
            total = _COMBINE[stmt.op](total, self.value(stmt.value), dtype=stmt.value.dtype)
            self.store(stmt, total)
            self.leave(outer)

    def store(self, stmt: Store | Scan, value: Array) -> None:
        at = self.inside(stmt.buffer.name, self.value(stmt.index))
        self.arrays[stmt.buffer.name][np.broadcast_to(at, self.grid)] = np.broadcast_to(value, self.grid)

    # ---- expressions

    def value(self, expr: Expr) -> Array:
        """The value of an expression over the current grid; operands first, not by recursion."""
        for part in postorder([expr], lambda part: () if part in self.values else part.args):
            if part not in self.values:
                self.values[part] = self.compute(part, [self.values[a] for a in part.args])
        return self.values[expr]

    def compute(self, expr: Expr, args: list[Any]) -> Any:
        match expr.op:
            case "const":
                return np.asarray(evaluate(expr.attr, self.sizes)).astype(expr.dtype)
            case "var" | "result":
                raise CompileError(f"interpret_kernel: {expr} is used outside of its scope")
            case "load":
                return self.load(expr.attr.name, *args)
            case "index":
                return self.checked_index(evaluate(expr.attr[0], self.sizes), *args)
            case "cast" | "bitcast":
                return np.asarray(getattr(self.s, expr.op)(np.asarray(args[0]), expr.dtype))
            case "table":
                return self.s.table(expr.attr, np.clip(args[0], 0, len(expr.attr) - 1), expr.dtype)
            case "while":
                return regions.loop(self.s, expr, args, self.compute)
            case "carry":
                return args[0][expr.attr]
        if expr.op in TABLE:
            shape = np.broadcast_shapes(*(a.shape for a in args))
            wide = [np.broadcast_to(a, shape).reshape(-1) for a in args]  # the polynomials assign to lanes: no 0-d
            return np.asarray(TABLE[expr.op](self.s, *wide)).reshape(shape)
        return np.asarray(getattr(self.s, expr.op)(*args))

    def load(self, name: str, at: Array, mask: Array | None = None) -> Array:
        array = self.arrays[name]
        if mask is None:
            return np.asarray(array[self.inside(name, at)])
        at = self.inside(name, np.where(mask, at, 0))
        return np.where(mask, array[at], np.zeros((), array.dtype))

    def inside(self, name: str, at: Array) -> Array:
        size = self.arrays[name].size
        if np.size(at) and not (np.min(at) >= 0 and np.max(at) < size):
            raise CompileError(f"interpret_kernel: element {np.min(at)}..{np.max(at)} of {name}, which has {size}")
        return at

    def checked_index(self, size: int, value: Array, mask: Array | None = None) -> Array:
        wrapped = np.where(value < 0, value + size, value)
        bad = (wrapped < 0) | (wrapped >= size)
        failed = bad if mask is None else bad & mask
        if np.any(failed):
            self.status = 1
        return np.where(bad, 0, wrapped)

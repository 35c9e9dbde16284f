"""Epilogues: elementwise work on the result of a matrix product or convolution, done while it is in cache.

A library call writes a row-major matrix. What reads it in place (bias, activation, residual, mask, cast, a factor of a
gradient) becomes an ordinary kernel over its elements,

    kernel(b0: f32[r*c] inout, b1: f32[c]) { for i0 < r parallel { for i1 < c vector { b0[i0*c + i1] = ... } } }

whose first operand is that matrix (with one column, the loop over rows runs in lanes). A backend emits it with both
ranges given at run time (`emit_epilogue`) and calls it on every part of the result (some rows, some columns) once the
call has written that part for good. So the matrix needs no memory of its own where nothing else reads it: it borrows
that of a result of the epilogue.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...graph.ir import Node
from ...loops.builder import LoopBuilder
from ...loops.ir import Expr, Kernel, KernelSpec, Store, expressions, serial, statements
from ...record import record, replace
from ...sizes.dims import same
from ..lowering.expressions import Index, unravel
from ..lowering.lower import GroupLowering
from .group import Group

if TYPE_CHECKING:
    from ..kernels.library import Call, Schedule


@record
class Fused(KernelSpec):
    """A call with loop nests round it: `prologue` computes its left operand (see prologue.py); the call writes its
    result into the first operand of `epilogue`, which then runs over it.

    Operands of the launch: the left one of the call, or those that the prologue reads and, if that checks indices, the
    status word; the right one of the call; its result, or the operands of the epilogue.
    """

    call: Call
    epilogue: Kernel | None = None
    prologue: Kernel | None = None

    @property
    def flops(self) -> float:
        return self.call.flops

    @property
    def left(self) -> int:
        """Number of arrays that the left operand of the call is made of."""
        return 1 if self.prologue is None else len(self.prologue.operands) - 1

    @property
    def firsts(self) -> list[int]:
        """Number of the operand that is the first of each loop nest; the first of a prologue has none."""
        return [*([-1] if self.prologue is not None else []), *([self.left + 1] if self.epilogue is not None else [])]

    @property
    def kernels(self) -> dict[str, Kernel]:
        both = {"prologue": self.prologue, "epilogue": self.epilogue}
        return {name: kernel for name, kernel in both.items() if kernel is not None}

    @property
    def nests(self) -> tuple[Kernel, ...]:
        return tuple(self.kernels.values())

    @property
    def nest(self) -> Kernel | None:
        return self.epilogue

    @property
    def symbolic(self) -> bool:
        return bool(self.symbols)

    @property
    def symbols(self) -> list[str]:
        return sorted({*self.call.symbols, *(name for kernel in self.nests for name in kernel.symbols)})

    def status_at(self, operands: int) -> int:
        return self.left

    def with_nests(self, nests: Sequence[Kernel]) -> Fused:
        new = dict(zip(self.kernels, nests, strict=True))
        return replace(self, epilogue=new.get("epilogue"), prologue=new.get("prologue"))

    def written(self, operands: int) -> list[bool]:
        """Whether each operand is written: those of the epilogue, and the first of these, which the call writes."""
        if self.epilogue is None:
            return self.call.written(operands)
        found = self.epilogue.written(operands)
        found[operands - len(self.epilogue.operands)] = True
        return found

    def part_counts(self, takes_epilogue: Callable[[Any], bool]) -> set[int]:
        if self.checked:
            return {1}
        cuts = {n: self.call.in_parts(n) for n in self.call.part_counts(takes_epilogue)}
        return {n for n, cut in cuts.items() if cut is self.call or takes_epilogue(cut)}

    def in_parts(self, count: int) -> Fused:
        return replace(self, call=self.call.in_parts(count))

    def reads_apart(self, operand: int, size: int, parts: int) -> bool:
        return self.call.reads_apart(operand, size, parts)

    def __str__(self) -> str:
        return " + ".join([str(self.call), *self.kernels])


def splits(shape: tuple[int, ...], rows: int, columns: int) -> bool:
    """Whether an array of this shape is the matrix: leading axes are its rows and trailing ones its columns."""
    return _row_axes(shape, rows, columns) is not None


def _row_axes(shape: tuple[int, ...], rows: int, columns: int) -> int | None:
    return next(
        (k for k in range(len(shape) + 1) if math.prod(shape[:k]) == rows and math.prod(shape[k:]) == columns), None
    )


def lower_epilogue(
    group: Group,
    in_memory: Callable[[Node], bool],
    overwrites: Mapping[Node, Node],
    schedule: Schedule,
) -> tuple[Kernel, tuple[Node, ...]]:
    """The kernel of all roots but the first, which the call computes, and the nodes whose memory it is given."""
    assert group.call is not None
    result, *roots = group.roots
    rows, columns = group.call[0].result
    lender = _lender(group, overwrites)
    epilogue = Group(roots, group.reads | {result}, group.inlined, local=group.local)
    lowering = GroupLowering(
        epilogue,
        lambda n: n is result or in_memory(n),
        overwrites if lender is None else {**overwrites, lender: result},
    )
    lowering.buffer(result)
    kernel = over_matrix(lowering, roots, rows, columns, schedule)
    homes = [lender if node is result and lender is not None else node for node in lowering.operands]
    return kernel, tuple(homes)


def is_idle(kernel: Kernel) -> bool:
    """Whether it stores only what it loads, as for a result that is another shape of the one that the call writes."""
    stores = [stmt for stmt in statements(kernel.body) if isinstance(stmt, Store)]
    return all(
        x.value.op == "load" and x.value.attr.name == x.buffer.name and x.value.args == (x.index,) for x in stores
    )


def matrices_of(kernel: Kernel) -> tuple[int, ...]:
    """Numbers of the operands after the first that have its order in memory and are read or written as they are."""
    first, *others = kernel.operands
    loads = [expr for expr in expressions(kernel.body) if expr.op == "load"]
    index = next((load.args for load in loads if load.attr.name == first.name), None)
    alike = {load.attr.name for load in loads if load.args == index}
    alike |= {x.buffer.name for x in statements(kernel.body) if isinstance(x, Store) and (x.index,) == index}
    return tuple(
        number
        for number, buffer in enumerate(others, start=1)
        if buffer.name in alike and buffer.dtype.itemsize == first.dtype.itemsize
    )


def over_matrix(lowering: GroupLowering, roots: Sequence[Node], rows: int, columns: int, schedule: Schedule) -> Kernel:
    """The kernel of these roots, each with so many rows and columns, in a loop over rows and one over columns."""
    s = lowering.s
    row, column = s.var("row", rows), s.var("column", columns)
    stores: list[Store] = []
    for root in roots:
        at = _row_axes(root.shape, rows, columns)
        assert at is not None
        lowering.root(root, _index(s, root.shape, at, row, column), stores)
    return lowering.finish(serial([row] if same(columns, 1) else [row, column], stores), schedule)


def _lender(group: Group, overwrites: Mapping[Node, Node]) -> Node | None:
    """A result of the epilogue whose memory may hold the call's own result, if nothing else reads the latter."""
    result, *roots = group.roots
    if result not in group.local:
        return None
    usable = (r for r in roots if r not in group.local and r not in overwrites and r.dtype is result.dtype)
    return next(usable, None)


def _index(s: LoopBuilder, shape: tuple[int, ...], at: int, row: Expr, column: Expr) -> Index:
    """Index into an array of this shape, whose first `at` axes are the rows, at a row and a column of the matrix."""
    return unravel(s, row, shape[:at]) + unravel(s, column, shape[at:])

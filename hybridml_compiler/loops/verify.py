"""The rules of the loop dialect, checked before code is generated from a kernel.

What a rule guards against is stated beside it. Ranges are judged only where they are exact: an index that is affine in
independent loop variables reaches its extremes, any other range is an over-estimate and proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .. import dtypes
from ..errors import LOCATION, CompileError, DTypeError
from ..sizes.dims import Size, hint
from .index import affine_terms
from .ir import (
    LOOP_KINDS,
    Buffer,
    Expr,
    For,
    Kernel,
    LoopKind,
    Reduce,
    Scan,
    Stmt,
    Store,
    expressions,
    extent,
    statements,
    steps,
    variables,
)
from .scalar import COMBINE, ISA, result_dtype
from .text import kernel_lines
from .transcendental import TABLE

REDUCTIONS = (*COMBINE, "argmin", "argmax")
_CONTEXT = 6  # lines of text shown on either side of the fault


def verify_kernel(kernel: Kernel, stage: str = "") -> None:
    """Raise `CompileError` with the text around the fault unless `kernel` follows the rules of the dialect.

    - buffers have distinct names; only "out" and "inout" are stored to, "out" is not read
    - a variable or result is defined once, by a statement around or before its uses; extents are 1 or more
    - operands have the dtypes that the instruction set asks for; indices are int64, masks bool
    - an index stays inside of its buffer
    - a loop of scalars reads its parameters alone, and its carries keep their dtypes
    - there is no vector loop in a vector loop, and no loop of threads in either that or a parallel one
    - parallel loops and blocks are the outermost ones
    - iterations of a loop that is not serial store to different places

    `stage` names the maker of the kernel in the error.
    """
    for stmt, message in _faults(kernel):
        raise _fault(kernel, stmt, message, stage)


Fault = tuple[Stmt | None, str]


def _faults(kernel: Kernel) -> Iterator[Fault]:
    buffers = {b.name: b for b in kernel.buffers}
    if len(buffers) != len(kernel.buffers):
        yield None, "two buffers have one name"
    for buffer in kernel.buffers:
        if hint(buffer.size) < 1:
            yield None, f"buffer {buffer.name} has {buffer.size} elements; extents are 1 or more"
    if kernel.lanes < 1 or kernel.granule < 1:
        yield None, f"{kernel.lanes} lanes, granule {kernel.granule}; both are 1 or more"
    for expr in kernel.expressions:
        for message in _expression_faults(expr, buffers):
            yield _user_of(kernel, expr), message
    yield from misplaced(kernel.body)
    yield from _Walk(buffers).body(kernel.body, frozenset(), ())


class _Walk:
    """The checks that depend on the position of a statement: scopes and conflicting stores."""

    def __init__(self, buffers: dict[str, Buffer]) -> None:
        self.buffers = buffers
        self.defined: set[Expr] = set()

    def body(self, body: Sequence[Stmt], scope: frozenset[Expr], around: tuple[For, ...]) -> Iterator[Fault]:
        for stmt, first in ((s, step[0]) for step in steps(body) for s in step):
            match stmt:
                case For(var, inner, _):
                    yield from self.variables(stmt, (var,))
                    if not inner:
                        yield stmt, f"the loop over {var} does nothing"
                    yield from self.body(inner, scope | {var}, (*around, stmt))
                case Reduce(result, _, variables, value, _):
                    if stmt is first:
                        yield from self.variables(stmt, variables)
                    yield from self.reduction(stmt)
                    yield from self.uses(stmt, value, scope.union(variables))
                    if result in self.defined:
                        yield stmt, f"{result} is defined twice"
                    self.defined.add(result)
                    scope |= {result}
                case Scan(_, _, op, var, value, _, kind):
                    yield from self.variables(stmt, (var,))
                    if op not in COMBINE or not _combines(op, value):
                        yield stmt, f"a scan cannot combine {dtypes.short(value.dtype)} by {op!r}"
                    if kind not in ("serial", "thread"):
                        yield stmt, f"a {kind} scan over {var}: it runs in order, or is shared by threads"
                    yield from self.store(stmt, scope | {var}, (For(var, (), "vector"), *around))
                case Store():
                    yield from self.store(stmt, scope, around)

    def variables(self, stmt: Stmt, variables: Sequence[Expr]) -> Iterator[Fault]:
        if not variables:
            yield stmt, "a loop over no variable"
        for var in variables:
            if var.op != "var" or var.low != 0 or var.high is None:
                yield stmt, f"{var} is not a variable that runs from 0"
            if var in self.defined:
                yield stmt, f"{var} is defined twice"
            self.defined.add(var)

    def uses(self, stmt: Stmt, expr: Expr, scope: frozenset[Expr]) -> Iterator[Fault]:
        if not expr.depends <= scope:
            unknown = ", ".join(sorted(str(d) for d in expr.depends - scope))
            yield stmt, f"{unknown} is used outside of its scope"

    def reduction(self, stmt: Reduce) -> Iterator[Fault]:
        if stmt.op not in REDUCTIONS or not _combines(stmt.op, stmt.value):
            yield stmt, f"a reduction cannot combine {dtypes.short(stmt.value.dtype)} by {stmt.op!r}"
        arg = stmt.op.startswith("arg")
        expected = dtypes.int64 if arg else stmt.value.dtype
        if stmt.result.op != "result" or stmt.result.dtype is not expected:
            yield stmt, f"the result of this reduction is {dtypes.short(expected)}, not {stmt.result.dtype}"

    def store(self, stmt: Store | Scan, scope: frozenset[Expr], around: Sequence[For]) -> Iterator[Fault]:
        buffer, index, value = stmt.buffer, stmt.index, stmt.value
        known = self.buffers.get(buffer.name)
        if known is None:
            yield stmt, f"buffer {buffer.name} is not the kernel's"
            return
        if known.role == "in":
            yield stmt, f"a store to {buffer.name}, which is only read"
        if value.dtype is not known.dtype:
            yield stmt, f"a store of {dtypes.short(value.dtype)} to {buffer.name}, which is {dtypes.short(known.dtype)}"
        if index.dtype is not dtypes.int64:
            yield stmt, f"an index of {dtypes.short(index.dtype)}; indices are i64"
        yield from self.uses(stmt, index, scope)
        yield from self.uses(stmt, value, scope)
        for var, kind in ((loop.var, loop.kind) for loop in around if loop.kind != "serial"):
            own = known.role == "scratch" and kind in ("parallel", "block")  # filled again in every iteration
            if var not in index.depends and hint(extent(var)) > 1 and not own:
                yield stmt, f"every iteration over {var} stores to the same place of {buffer.name}"
        span = exact_span(index)
        if span is not None and _outside(span, known.size):
            yield stmt, f"a store to {span[0]}..{span[1]} of {buffer.name}, which has {known.size} elements"


# Kinds of loop that a loop of each kind may be in.
_AROUND: dict[LoopKind, tuple[LoopKind, ...]] = {
    "serial": LOOP_KINDS,
    "vector": ("serial", "parallel", "block", "thread"),
    "parallel": ("parallel",),
    "block": ("block",),
    "thread": ("serial", "block", "thread"),
}


def misplaced(body: Sequence[Stmt], around: Sequence[For] = ()) -> Iterator[tuple[Stmt, str]]:
    """Loops and reductions whose kind does not fit those around them."""
    for stmt in body:
        if isinstance(stmt, Store):
            continue
        what, var = {For: "loop", Reduce: "reduction", Scan: "scan"}[type(stmt)], next(iter(variables(stmt)[-1:]), None)
        if stmt.kind in ("parallel", "block") and not isinstance(stmt, Scan):
            if isinstance(stmt, Reduce):
                yield stmt, f"a {stmt.kind} reduction over {var}: its parts cannot be combined"
            elif len(body) > 1:
                yield stmt, f"the {stmt.kind} loop over {var} has statements beside it"
        for loop in around:
            if loop.kind not in _AROUND[stmt.kind] or (
                not isinstance(stmt, For) and stmt.kind == loop.kind == "thread"
            ):
                yield stmt, f"a {stmt.kind} {what} over {var} inside of the {loop.kind} loop over {loop.var}"
        if isinstance(stmt, For):
            yield from misplaced(stmt.body, (*around, stmt))


def _combines(op: str, value: Expr) -> bool:
    kind = value.dtype.kind
    if kind == "c":
        return op == "add"
    return kind == "b" if op in ("and", "or") else kind != "b" if op in ("add", "mul") else True


def _expression_faults(expr: Expr, buffers: dict[str, Buffer]) -> Iterator[str]:
    if expr.op in ("const", "var", "result"):
        return
    if expr.op in ("load", "index"):
        yield from _access_faults(expr, buffers)
        return
    if expr.op == "param":
        yield f"{expr} is used outside of its loop"
        return
    if expr.op in ("while", "carry"):
        yield from (_loop_faults if expr.op == "while" else _carry_faults)(expr)
        return
    operands = tuple(a.dtype for a in expr.args)
    if expr.op in ISA and expr.op not in ("const", "rarely"):
        try:
            expected = result_dtype(expr.op, operands, expr.dtype)
        except DTypeError as error:
            yield str(error).partition(LOCATION)[0]
            return
        if expected is not expr.dtype:
            yield f"{expr.op} makes {dtypes.short(expected)}, not {dtypes.short(expr.dtype)}"
        if expr.op == "table" and not expr.attr:
            yield "a table without values"
    elif expr.op not in TABLE:
        yield f"{expr.op!r} is neither an instruction nor a transcendental function"
    elif {*operands, expr.dtype} not in ({dtypes.float32}, {dtypes.float64}):
        yield f"{expr.op} takes one float dtype, got {', '.join(map(dtypes.short, operands))}"


def _loop_faults(expr: Expr) -> Iterator[str]:
    region, (go, *values) = expr.attr, expr.args
    carries = values[: region.carries]
    if len(carries) < region.carries or [p.dtype for p in region.params] != [v.dtype for v in values]:
        yield f"a loop of {_types(region.params)} with {_types(values)}"
    if [r.dtype for r in region.results] != [dtypes.bool_, *(v.dtype for v in carries)] or go.dtype is not dtypes.bool_:
        yield f"a loop that starts with {_types([go, *carries])}, and a step of it makes {_types(region.results)}"
    for part in region.expressions:
        if part.op in ("load", "index", "var", "result") or (part.op == "param" and part not in region.params):
            yield f"{part} in a loop, which reads nothing but its parameters"
        elif part.op != "param":
            yield from _expression_faults(part, {})


def _carry_faults(expr: Expr) -> Iterator[str]:
    (whole,) = expr.args
    if whole.op != "while" or not 0 <= expr.attr < whole.attr.carries:
        yield f"carry {expr.attr} of {whole.op}"
    elif whole.args[1 + expr.attr].dtype is not expr.dtype:
        yield f"carry {expr.attr} of a loop is {dtypes.short(whole.args[1 + expr.attr].dtype)}, not {expr.dtype}"


def _types(exprs: Sequence[Expr]) -> str:
    return f"({', '.join(dtypes.short(e.dtype) for e in exprs)})"


def _access_faults(expr: Expr, buffers: dict[str, Buffer]) -> Iterator[str]:
    at, *mask = expr.args
    if at.dtype is not dtypes.int64:
        yield f"an index of {dtypes.short(at.dtype)}; indices are i64"
    if len(mask) > 1 or any(m.dtype is not dtypes.bool_ for m in mask):
        yield f"a mask of {', '.join(dtypes.short(m.dtype) for m in mask)}; a mask is one bool"
    if expr.op == "index":
        return
    buffer = buffers.get(expr.attr.name)
    if buffer is None:
        yield f"buffer {expr.attr.name} is not the kernel's"
        return
    if buffer.role == "out":
        yield f"a load of {buffer.name}, which is only written"
    if buffer.dtype is not expr.dtype:
        yield f"a load of {dtypes.short(expr.dtype)} from {buffer.name}, which is {dtypes.short(buffer.dtype)}"
    span = None if mask else exact_span(at)
    if span is not None and _outside(span, buffer.size):
        yield f"a load of {span[0]}..{span[1]} of {buffer.name}, which has {buffer.size} elements"


def _outside(span: tuple[Size, Size], size: Size) -> bool:
    """Whether the span is known to be outside of a buffer of this size; by the hint where the form of a size does not
    tell."""
    return hint(span[0]) < 0 or hint(span[1]) >= hint(size)


def exact_span(index: Expr) -> tuple[Size, Size] | None:
    """Least and greatest value of an index that is affine in loop variables; None when it is not."""
    terms, low = affine_terms(index)
    if any(part.op != "var" or hint(extent(part)) < 1 for part in terms):  # the rest of a size: nothing, by its hint
        return None
    high = low
    for var, factor in terms.items():
        reach = factor * (extent(var) - 1)
        low, high = low + (reach if hint(reach) < 0 else 0), high + (reach if hint(reach) > 0 else 0)
    return low, high


def _user_of(kernel: Kernel, expr: Expr) -> Stmt | None:
    """The first statement that evaluates the expression."""
    users = (stmt for stmt in statements(kernel.body) if not isinstance(stmt, For))
    return next((stmt for stmt in users if expr in expressions((stmt,))), None)


def _fault(kernel: Kernel, stmt: Stmt | None, message: str, stage: str) -> CompileError:
    lines, line_of = kernel_lines(kernel)
    at = line_of.get(id(stmt), 0)
    shown = range(max(0, at - _CONTEXT), min(len(lines), at + _CONTEXT + 1))
    text = "\n".join(f"{'>' if k == at else ' '} {k + 1:4} {lines[k]}" for k in shown)
    made = f" after {stage}" if stage else ""
    return CompileError(f"verify: a kernel{made} is broken: {message}\n{text}")

"""Tensors of a step that are numbers of Python's in some calls, or some steps: `e = 0.0`, then `e = max(e, x[i])`.

The program has a flag beside such a value: whether it is a tensor. What is computed from it has the same value either
way, or it is refused; where it is known that there is a number in some call alone, a check finds that, and Python makes
the call.

    best = 0.0                              best: 0.0        flag: False
    for v in x:
        if v > best: best = v               best: where(v > best, v, best)      flag: where(v > best, True, flag)
    return best                             Python asks for the flag: a float, or a tensor
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from functools import reduce
from typing import Any, Literal

import numpy as np

from hybridml_compiler.dtypes import bool_, float64, int64
from hybridml_compiler.errors import user_frame
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.facts import is_cast
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import record
from hybridml_compiler.walk import postorder

from ....core.tensor import Tensor
from ..loops.taken import fails_where, scalar
from ..number_bounds import is_literal, may_be_zero

_or, _and, _not, _equal, _where = (OPS[name] for name in ("logical_or", "logical_and", "logical_not", "equal", "where"))
_DIVIDE = [OPS[name] for name in ("divide", "floor_divide", "remainder")]
# Rows that make of tensors what Python's operators make of numbers.
_OF_INTS = [OPS[name] for name in ("add", "subtract", "multiply", "negative", "floor_divide", "remainder", "astype",
                                   "equal", "not_equal", "less", "less_equal", "greater", "greater_equal")]  # fmt: skip
_OF_FLOATS = [*_OF_INTS, OPS["divide"]]
_COMPARES = [OPS[name] for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")]
_OF_BOOLS = [OPS[name] for name in ("logical_and", "logical_or", "logical_not", "where", "reshape")]
_OPERATORS = ("BINARY_OP", "COMPARE_OP", "UNARY_NEGATIVE", "TO_BOOL", "POP_JUMP_")
_PLACES = ("BINARY_SUBSCR", "STORE_SUBSCR")
_MEETS = "a number that changes its type meets another dtype"
_TAKES = "a number that changes its type is given to a function"


@record
class Perhaps:
    """A value of the program that is a tensor where `flag` is true, and a number of this type of Python's elsewhere.
    `at_first`: that is so in the first step of a loop."""

    flag: ir.Node
    number: type | None  # None where it may be one or the other
    at_first: bool = False


Known = Perhaps | Literal["tensor", "literal"]


def known_of(tracer: Any, node: ir.Node) -> Known:
    """Returns what is known of the type of a value: it is a number of Python's in some calls, or computed from nothing
    but these, literals and numbers of steps; or a tensor, or a literal."""
    perhaps: dict[ir.Node, Perhaps] = tracer.perhaps_numbers

    def operands(n: ir.Node) -> Sequence[ir.Node]:
        computes = n.kind in ("elementwise", "opaque")  # or is a function of `math`
        return n.inputs if computes and not n.shape and n not in perhaps else ()

    known: dict[ir.Node, Known] = {}
    for n in postorder([node], operands):
        of = [known[m] for m in operands(n)]
        if n in perhaps:
            known[n] = perhaps[n]
        elif of:
            known[n] = _joined(of, n.dtype)
        else:
            known[n] = "literal" if is_literal(n) else "tensor"
    return known[node]


def may_be_number(tracer: Any, node: ir.Node) -> bool:
    """Whether a value is a number of Python's in some call, or some step."""
    return bool(tracer.perhaps_numbers) and isinstance(known_of(tracer, node), Perhaps)


def flag_of(tracer: Any, node: ir.Node) -> ir.Node:
    """Whether a value that is no literal is a tensor."""
    known = known_of(tracer, node) if tracer.perhaps_numbers else "tensor"
    return known.flag if isinstance(known, Perhaps) else ir.constant(True)


def _joined(of: Sequence[Known], dtype: np.dtype) -> Known:
    """Returns what is known of a value of this dtype that is computed from others."""
    some = [known for known in of if isinstance(known, Perhaps)]
    if "tensor" in of or not some:
        return "tensor" if "tensor" in of else "literal"
    flags = [*dict.fromkeys(known.flag for known in some)]
    numbers = {bool if dtype.kind == "b" else known.number for known in some}
    numbers = {None if number is int and dtype.kind == "f" else number for number in numbers}
    flag = reduce(lambda a, b: ir.apply(_or, [a, b]), flags)
    return Perhaps(flag, numbers.pop() if len(numbers) == 1 else None, any(known.at_first for known in some))


def type_of(tracer: Any, value: Any) -> Perhaps:
    """Returns what is known of the type of a number of Python's, or a tensor."""
    if issubclass(type(value), Tensor):
        known = known_of(tracer, value._array)
        return known if isinstance(known, Perhaps) else Perhaps(ir.constant(True), None)
    return Perhaps(ir.constant(False), type(value) if type(value) in (int, float) else int)


def chosen(question: Tensor, a: Perhaps, b: Perhaps) -> Perhaps:
    """Returns what is known of the type of a value that is chosen."""
    numbers = {of.number for of in (a, b) if not is_true(of.flag)}
    flag = a.flag if a.flag is b.flag else ir.apply(_where, [scalar(question._array), a.flag, b.flag])
    return Perhaps(flag, numbers.pop() if len(numbers) == 1 else None, a.at_first or b.at_first)


def note(tracer: Any, t: Tensor, known: Perhaps) -> None:
    """Notes what is known of the type of a tensor."""
    if not is_true(known.flag):
        tracer.perhaps_numbers[t._array] = known


def is_true(flag: ir.Node) -> bool:
    """Whether a flag is known to hold."""
    return flag.value is not None and bool(flag.value)


# -- what is computed with them


def check_alike(tracer: Any, op: Op, tensors: Sequence[Tensor]) -> Perhaps | None:
    """Sees to it that a row gives what Python has where an operand is a number: a check that it is none, or the loop
    step by step. Returns what is known of the type of the result, where that may be a number."""
    nodes = [t._array for t in tensors]
    known: list[Known] = [
        "literal" if type(t).is_number or getattr(t, "was_number", False) else known_of(tracer, t._array)
        for t in tensors
    ]
    some = [of for of in known if isinstance(of, Perhaps)]
    numbers = [n for n, of in zip(nodes, known, strict=True) if isinstance(of, Perhaps)]
    if not some:
        return None
    how = _instruction()
    of_bools = op in _OF_BOOLS and all(n.dtype.kind == "b" for n in numbers)
    places = _PLACES[1:] if any(n.shape for n in numbers) else _PLACES  # of an array views are taken
    if not (of_bools or how.startswith(places) or (op.kind == "control" and not how.startswith("CALL"))):
        _check(tracer, op, nodes, known, how)
    elif op.kind == "gather" and how.startswith("BINARY"):
        _refuse(tracer, some, _TAKES)  # an element at a number's place is a view
    if op.kind not in ("elementwise", "opaque") or any(n.shape for n in nodes):
        return None
    dtype = bool_ if op in _COMPARES else numbers[0].dtype
    scalars, others = [
        [of for t, of in zip(tensors, known, strict=True) if getattr(t, "is_element", False) is is_scalar]
        for is_scalar in (True, False)
    ]
    if scalars and any(isinstance(of, Perhaps) for of in others):  # a tensor is one beside NumPy's scalars, too
        joined = _joined(others, dtype)
        number = np.float64 if dtype is float64 and scalars == ["tensor"] else None
        return Perhaps(joined.flag, number, joined.at_first) if isinstance(joined, Perhaps) else None
    joined = _joined(known, dtype)
    if not isinstance(joined, Perhaps):
        return None
    of_numpy = any(getattr(t, "was_double", False) for t in tensors)
    return Perhaps(joined.flag, None, joined.at_first) if of_numpy else joined


def _check(tracer: Any, op: Op, nodes: Sequence[ir.Node], known: Sequence[Known], how: str) -> None:
    some = [of for of in known if isinstance(of, Perhaps)]
    others = [n for n, of in zip(nodes, known, strict=True) if of == "tensor" and n.dtype.kind != "b"]
    is_array = any(of.number is np.ndarray for of in some)
    if others or is_array:  # what is computed with an array and no tensor may be an array too
        is_alike = op.kind == "elementwise" and op is not OPS["pow"] and bool(others)
        if is_array and not all(n.dtype is float64 for n in others):
            is_alike = False
        if not is_alike or any(map(_is_cast, others)):
            _refuse(tracer, some, _MEETS if is_alike else _TAKES)
        return
    numbers = [n for n, of in zip(nodes, known, strict=True) if of != "tensor"]
    of_ints = any(n.dtype is int64 for n, of in zip(nodes, known, strict=True) if isinstance(of, Perhaps))
    is_alike = op in (_OF_INTS if of_ints else _OF_FLOATS) and how.startswith(_OPERATORS)
    if of_ints and not all(n.dtype.kind in "iu" for n in numbers):
        is_alike = False
    if not all(n.dtype in (float64, int64) for n, of in zip(nodes, known, strict=True) if isinstance(of, Perhaps)):
        is_alike = False
    if op in _DIVIDE and known[1] == "literal" and may_be_zero(nodes[1]):
        is_alike = False
    if not is_alike:
        _refuse(tracer, some, _TAKES)
    elif op in _DIVIDE and isinstance(known[1], Perhaps):
        joined = _joined(known, float64)
        assert isinstance(joined, Perhaps)
        zero = ir.apply(_equal, [nodes[1], ir.constant(0.0, nodes[1].dtype)])
        fails_where(tracer, tracer.wrap(ir.apply(_and, [zero, ir.apply(_not, [joined.flag])])))


def element_at(tracer: Any, array: Tensor, key: Any) -> Tensor:
    """An element of an array of NumPy's, which copies it whatever names its place."""
    tracer.is_alike = True
    try:
        return array[key]
    finally:
        tracer.is_alike = False


def _instruction() -> str:
    """The name of the user's instruction that runs: NumPy's scalars have operators in Python."""
    frame = user_frame()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("numpy."):
        frame = frame.f_back
    return "" if frame is None else dis.opname[frame.f_code.co_code[frame.f_lasti]]


def _is_cast(node: ir.Node) -> bool:
    return is_cast(node) and not node.inputs[0].aval.weak and node.inputs[0].dtype != node.dtype


def _refuse(tracer: Any, some: Sequence[Perhaps], why: str) -> None:
    """Refuses a loop whose first step always has a number there; checks that there is none elsewhere."""
    if tracer.loops and any(of.at_first for of in some):
        tracer.loops[-1].refuse_number(why)
    flags = [ir.apply(_not, [of.flag]) for of in some]
    fails_where(tracer, tracer.wrap(reduce(lambda a, b: ir.apply(_or, [a, b]), flags)))

"""Variables that are numbers of Python's before a loop and tensors after a step: where one is as good as the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from hybridml_compiler.dtypes import float32, float64
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.facts import is_cast
from hybridml_compiler.ops.table import OPS

from ...core.tensor import Tensor
from ..capture.loops.branches import Branch
from ..capture.numbers.perhaps import may_be_number
from ..capture.tracer import Frame
from .carries import Carry

_SHAPES = [OPS[name] for name in ("reshape", "broadcast_to")]
_ALIKE = [OPS[name] for name in ("add", "subtract", "multiply", "where", "greater", "less", "greater_equal",
                                 "less_equal", "equal", "not_equal")]  # fmt: skip


def computes_as_number(region: Frame, carry: Carry) -> bool:
    """Whether a step computes with a float32 what it would with Python's number: each time the dtype is that of another
    operand."""
    assert carry.given is not None
    given = carry.given._array
    readers = [node for node in region.made if given in node.inputs]
    return all(
        node.kind == "elementwise" and any(n.dtype in (float32, float64) and not n.aval.weak for n in node.inputs
                                           if n is not given)
        for node in readers
    )  # fmt: skip


def compute_as_floats(region: Frame, chosen: Set[ir.Node]) -> bool:
    """Whether a step does with tensors what it would with Python's floats that they may be: it stores them, or adds and
    compares them with tensors of that dtype. `1 / m` and `m + 0.1` are other numbers, or errors."""
    pending, readers = [*chosen & region.made], dict[ir.Node, list[ir.Node]]()
    for node in region.made if pending else ():
        for n in node.inputs:
            readers.setdefault(n, []).append(node)
    while pending:
        number = pending.pop()
        for reader in readers.get(number, ()):
            others = [n for n in reader.inputs if n not in chosen and not n.aval.weak and n.dtype.kind != "b"]
            is_stored = reader.op is not None and (reader.op.is_update or reader.op is OPS["scatter_set"])
            if reader.op in _SHAPES and not is_stored:
                pending.append(reader)
            elif is_stored:
                if number in reader.inputs[:-1] or reader.dtype is not number.dtype:
                    return False
            elif reader.op not in _ALIKE or not others or any(n.dtype is not number.dtype for n in others):
                return False
    return True


def _is_cast(node: ir.Node) -> bool:
    return is_cast(node) and not node.inputs[0].aval.weak and node.inputs[0].dtype != node.dtype


def meets_others(loop: Any) -> bool:
    """Whether a step computes with what may be a number of Python's, and with another dtype than float64: that is the
    dtype of the result where it is such a number."""

    def is_met(node: ir.Node) -> bool:
        numbers = [may_be_number(loop.tracer, n) for n in node.inputs]
        return any(numbers) and any(_is_cast(n) for n, known in zip(node.inputs, numbers, strict=True) if not known)

    return bool(loop.tracer.perhaps_numbers) and any(
        node.kind == "elementwise" and any(map(_is_cast, node.inputs)) and is_met(node) for node in loop.made
    )


def note_numbers(loop: Any, carried: Mapping[str, Carry], results: Sequence[Tensor]) -> None:
    """Notes results that are numbers of Python's where there is no step, or none that assigns them: nobody knows. What
    goes out of all loops has to be known."""
    tracer = loop.tracer
    if meets_others(loop):
        loop.refuse("a number that changes its type meets another dtype")
    for k, ((name, carry), t) in enumerate(zip(carried.items(), results, strict=False)):
        if carry.kind != "tensor" or carry.given is None:
            continue
        ends = [b.values[k]._array for b in _ways(loop)]
        assigned = [end for end in ends if end is not carry.given._array]
        begins_as_one = carry.of_number or may_be_number(tracer, carry.start._array)
        ends_as_one = any(may_be_number(tracer, end) for end in assigned)
        if not ends_as_one and not (begins_as_one and (len(assigned) < len(ends) or not loop.has_steps())):
            continue
        if not tracer.loops and name in loop.loop.after:
            loop.refuse(f"{name} may change its type")
        tracer.perhaps_numbers.add(t._array)


def may_change(loop: Any, k: int, carry: Carry) -> bool:
    """Whether a step may change a carry; of a tensor it does, as far as anybody knows."""
    given = carry.given
    return carry.kind == "tensor" or given is None or any(b.values[k]._array is not given._array for b in _ways(loop))


def _ways(loop: Any) -> Sequence[Branch[Tensor]]:
    """The ways that a step may go, those out of the loop too."""
    return (*loop.branches, *(way for way, _ in loop.leaving))

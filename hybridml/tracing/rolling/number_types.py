"""Variables that are numbers of Python's before a loop and tensors after a step: where one is as good as the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hybridml_compiler.dtypes import float32, float64

from ...core.tensor import Tensor
from ..capture.loops.branches import Branch
from ..capture.tracer import Frame
from .carries import Carry


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


def note_numbers(loop: Any, carried: Mapping[str, Carry], results: Sequence[Tensor]) -> None:
    """Notes results that are numbers of Python's where there is no step: nobody knows. Where there is one, each way
    that it goes has to make tensors of them."""
    numbers = loop.tracer.perhaps_numbers
    for k, ((name, carry), t) in enumerate(zip(carried.items(), results, strict=False)):
        if carry.of_number and not loop.has_steps():
            numbers.add(t._array)
        elif carry.of_number:
            ends = [b.values[k]._array for b in _ways(loop)]
            if any(carry.given is None or end is carry.given._array or end in numbers for end in ends):
                loop.refuse(f"{name} may change its type")


def may_change(loop: Any, k: int, carry: Carry) -> bool:
    """Whether a step may change a carry; of a tensor it does, as far as anybody knows."""
    given = carry.given
    return carry.kind == "tensor" or given is None or any(b.values[k]._array is not given._array for b in _ways(loop))


def _ways(loop: Any) -> Sequence[Branch[Tensor]]:
    """The ways that a step may go, those out of the loop too."""
    return (*loop.branches, *(loop.leaving if loop.is_left else ()))

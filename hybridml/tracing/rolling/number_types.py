"""Variables that are numbers of Python's before a loop and tensors after a step: where one is as good as the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from hybridml_compiler.dtypes import float32, float64
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS

from ...core.proxies.scalar import ScalarProxy
from ...core.tensor import Tensor
from ..capture.loops.branches import Branch
from ..capture.loops.counts import can_ask
from ..capture.numbers.perhaps import Perhaps, flag_of, is_true, known_of, may_be_number
from ..capture.tracer import Frame
from .carries import Carry, as_variable, computed_int, is_numpy_scalar, number_of, tensor_in

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


def flag_name(name: str) -> str:
    """The key among what a loop carries of the flag that a variable is a tensor."""
    return f"{name} is a tensor"


def begin_flag(loop: Any, name: str, carry: Carry) -> None:
    """Gives a variable that may be a number of Python's a flag, which goes from step to step."""
    assert carry.given is not None
    tracer = loop.tracer
    carry.of_end = loop.flagged.get(name)
    start = None if carry.number is not None else known_of(tracer, carry.start._array)
    before = start if isinstance(start, Perhaps) else None
    if carry.number is None and before is None and name not in loop.flagged:
        return
    is_number = carry.number is not None
    if carry.number is Tensor and may_be_number(tracer, carry.start._array):
        loop.refuse(f"{name} may change its type")
    if carry.number is np.ndarray and any(loop.before[name]._memory.tensor is state for state in loop.states):
        loop.refuse(f"{name}, an array that a step updates, changes its type")
    flag = before.flag if before is not None else ir.constant(not is_number)
    given = loop.input(tracer.wrap(flag))
    loop.types[flag_name(name)] = Carry("type", tracer.wrap(flag), given=given, of=name, is_element=carry.is_element)
    known = before if before is not None else Perhaps(flag, carry.number, is_number)
    tracer.perhaps_numbers[carry.given._array] = Perhaps(given._array, known.number, known.at_first)


def end_flag(loop: Any, carry: Carry, end: Any) -> Tensor:
    """The flag of what a variable is after a step: whether it has the type that steps give it."""
    tracer, t = loop.tracer, tensor_in(end)
    is_other = carry.is_element and not is_numpy_scalar(end)
    if is_other and t is not None and may_be_number(tracer, t._array):
        loop.refuse(f"{carry.of} may change its type")
    found: Tensor = tracer.wrap(ir.constant(False) if t is None or is_other else flag_of(tracer, t._array))
    return found


def finds_flags(loop: Any) -> bool:
    """Whether a variable was found to be a number of Python's after a step in some way, which has no flag yet."""
    ends = [loop.after, *(exit.variables for exit in loop.exits)]
    found = dict[str, Any]()
    for name, carry in loop._carried().items():
        values = [end.get(name) for end in ends]
        if carry.kind != "tensor" or name in loop.flagged:
            continue
        tensors = [t for value in values if (t := tensor_in(value)) is not None]
        numbers = {number_of(value) for value in values if tensor_in(value) is None} - {None}
        if any(may_be_number(loop.tracer, t._array) for t in tensors) or (numbers and carry.number is None):
            found[name] = numbers.pop() if len(numbers) == 1 else None
    loop.flagged |= found
    return bool(found)


def with_types(loop: Any, carried: Mapping[str, Carry], results: Sequence[Tensor]) -> dict[str, Any]:
    """The variables that may be numbers of Python's after a loop: where it is in no other one, Python asks what they
    are."""
    tracer, found = loop.tracer, dict[str, Any]()
    of = dict(zip(carried, results, strict=False))
    places = {name: k for k, name in enumerate(carried)}
    for name, carry in carried.items():
        flag = of.get(flag_name(name))
        if flag is None or carry.given is None:
            continue
        tracer.trust(flag)  # the value raises what there is
        ends = [b.values[places[name]]._array for b in _ways(loop)]
        flags = [b.values[places[flag_name(name)]]._array for b in _ways(loop)]
        if all(map(is_true, flags)) and loop.has_steps():
            continue  # each step makes it a tensor
        kinds = {known.number for end in ends if isinstance(known := known_of(tracer, end), Perhaps)}
        kinds |= {number for number in (carry.number, carry.of_end) if number is not None}
        known = Perhaps(flag._array, kinds.pop() if len(kinds) == 1 else None)
        tracer.perhaps_numbers[of[name]._array] = known
        if not tracer.loops and name in loop.loop.after:
            found[name] = _asked(loop, name, carry, of[name], known)
    return found


def _asked(loop: Any, name: str, carry: Carry, t: Tensor, known: Perhaps) -> Any:
    """The variable as Python has it: a tensor, or a number."""
    tracer = loop.tracer
    if not can_ask(tracer):
        loop.refuse(f"{name} may change its type")
    is_tensor = bool(tracer.ask(known.flag, "the type of a number"))
    del tracer.perhaps_numbers[t._array]
    if is_tensor:
        return as_variable(tracer, carry, t)
    if known.number is Tensor:
        return t
    if known.number is None:
        loop.refuse(f"{name} may change its type")
    if known.number is np.ndarray:
        return loop.before[name]
    if known.number is bool:
        return bool(tracer.ask(t._array, "bool()"))
    t = OPS["astype"].fn(t, float64)
    number = ScalarProxy(tracer.wrap(t._array, True, known.number is np.float64))
    return computed_int(tracer, number) if known.number is int else number


def may_change(loop: Any, k: int, name: str, carry: Carry) -> bool:
    """Whether a step may change a carry; of a tensor it does, as far as anybody knows, and a copy is another array."""
    given = carry.given
    if None in loop.arrays_before.get(name, ()) and loop.has_steps():
        return True
    return carry.kind == "tensor" or given is None or any(b.values[k]._array is not given._array for b in _ways(loop))


def _ways(loop: Any) -> Sequence[Branch[Tensor]]:
    """The ways that a step may go, those out of the loop too."""
    return (*loop.branches, *(way for way, _ in loop.leaving))

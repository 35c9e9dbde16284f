"""Lists that grow by the same in each step of a loop: what a step appends is a slice of what the loop gives out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hybridml_compiler.sizes.dims import LEAST, Size, is_dim, steps_of
from hybridml_compiler.sizes.steps import replaced

from ....core.proxies.complex import ComplexProxy
from ....core.proxies.integer import IntProxy
from ....core.proxies.scalar import ScalarProxy
from ....core.tensor import Tensor, aval_of
from ...capture.loops.one_memory import root_of
from ...capture.loops.step_tensors import is_part
from ...capture.program_arrays import ProgramScalar, has_memory, is_program, value_of
from ...capture.tracer import Frame, Tracer
from ..carries import are_one, computed_int, is_new_array, is_numpy_scalar, scalar_of
from ..held import CONSTANTS

_NUMBERS = (ScalarProxy, ComplexProxy, IntProxy)


class Grown:
    """A list that a loop does nothing with but append. `items`: what the last step has."""

    def __init__(self, target: list[Any]) -> None:
        self.target, self.length = target, len(target)
        self.items: list[Any] = []

    def take_back(self) -> None:
        self.items = self.target[self.length :]
        del self.target[self.length :]

    def has_like(self, items: Sequence[Any]) -> bool:
        """Whether the last step has appended items like these: tensors and numbers of the program of the same types,
        or the same functions of its number."""
        return len(items) == len(self.items) and all(map(_are_like, items, self.items))

    @property
    def leaves(self) -> list[Any]:
        """The items of the last step, those of tuples one by one."""
        return [leaf for item in self.items for leaf in leaves_of(item)]

    def values(self, region: Frame) -> list[Tensor] | None:
        """The tensors that a step appends; None where an item may be changed later, or is of no kind that we know."""
        found = []
        for item in self.leaves:
            if type(item) in _NUMBERS:
                found.append(_tensor(item))
            elif type(item) is ProgramScalar or (has_memory(item) and is_new_array(item)):
                found.append(item._memory.tracer.wrap(item._value()._array))
            elif issubclass(type(item), Tensor):
                if not is_new(item, region) or (is_part(item) and steps_of(*item.shape)):
                    return None
                found.append(item)
            elif not _is_known(item):
                return None
        return found

    def extend(self, tracer: Tracer, stacked: Iterator[Tensor], steps: Size, name: str) -> None:
        """Appends the items of all steps. `stacked`: what they are of tensors, along the first axis; this list takes
        its own."""
        if not self.items:
            return
        whole = [None if _is_known(leaf) else next(stacked) for leaf in self.leaves]

        def made(item: Any, k: int, of: Iterator[Tensor | None]) -> Any:
            if type(item) is tuple:
                return tuple([made(part, k, of) for part in item])
            values = next(of)
            if values is None:
                return replaced(item, name, LEAST + k) if is_dim(item) and name else item
            value: Any = values[k]
            if is_program(item) or is_part(item):
                return value_of(tracer, value, scalar=type(item) is ProgramScalar)
            if is_numpy_scalar(item):
                return scalar_of(tracer, value)
            if type(item) in _NUMBERS:
                kind = ComplexProxy if type(item) is ComplexProxy else ScalarProxy
                value = kind(tracer.wrap(value._array, True, _tensor(item).is_double))
            return computed_int(tracer, value) if type(item) is IntProxy else value

        for k in range(int(steps)):
            of = iter(whole)
            self.target += [made(item, k, of) for item in self.items]

    def share(self, variables: Mapping[int, Any]) -> None:
        """Puts variables in the places of those last items that are what variables are. `variables`: by the ids of
        their values after the step."""
        for k, item in enumerate(self.items, len(self.target) - len(self.items)):
            self.target[k] = _shared(item, self.target[k], variables)


def leaves_of(item: Any) -> Iterator[Any]:
    """Yields what is in nested tuples, or anything else itself."""
    if type(item) is tuple:
        for part in item:
            yield from leaves_of(part)
    else:
        yield item


def _shared(item: Any, made: Any, variables: Mapping[int, Any]) -> Any:
    if id(item) in variables:
        return variables[id(item)]
    if type(item) is not tuple:
        return made
    return tuple([_shared(part, own, variables) for part, own in zip(item, made, strict=True)])


def _is_known(item: Any) -> bool:
    """Whether an item is no value of the graph."""
    return is_dim(item) or type(item) in CONSTANTS


def _tensor(item: ScalarProxy | IntProxy) -> Tensor:
    return item._number._tensor if type(item) is IntProxy else item._tensor


def _are_like(a: Any, b: Any) -> bool:
    if type(a) is tuple and type(b) is tuple:
        return len(a) == len(b) and all(map(_are_like, a, b))
    if is_program(a) and type(a) is type(b):
        return bool(a.shape == b.shape and a.dtype == b.dtype)
    if type(a) is type(b) and type(a) in (ScalarProxy, IntProxy):
        return _tensor(a).is_double == _tensor(b).is_double
    if issubclass(type(a), Tensor) and issubclass(type(b), Tensor):
        is_same = is_part(a) is is_part(b) and is_numpy_scalar(a) is is_numpy_scalar(b)
        return is_same and aval_of(a) == aval_of(b)
    return are_one(a, b)


def is_new(t: Tensor, region: Frame) -> bool:
    """Whether a tensor has memory that a step has made, and that nothing has written to."""
    t = root_of(t)
    return region.has_made(t) and id(t) not in region.written


def lists_of(loop: Any, variables: Mapping[str, Any]) -> list[Grown]:
    """The lists that a loop appends to, and reaches in no way by which it might do anything else with them."""
    others = [variables.get(name) for name in loop.loop.read - loop.loop.grown]
    lists = {id(x): x for name in sorted(loop.loop.grown) if type(x := variables.get(name)) is list}
    held = [*map(id, others), *map(id, loop.held or ())]  # each list itself, and what else has it
    return [Grown(x) for x in lists.values() if held.count(id(x)) <= 1]

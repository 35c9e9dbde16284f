"""Lists that grow by the same in each step of a loop: what a step appends is a slice of what the loop gives out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hybridml_compiler.sizes.dims import LEAST, Size, is_dim
from hybridml_compiler.sizes.steps import replaced

from ...core.proxies.complex import ComplexProxy
from ...core.proxies.scalar import ScalarProxy
from ...core.tensor import Tensor
from ..capture.tracer import Frame, Tracer
from .carries import are_one, root_of
from .held import CONSTANTS


class Grown:
    """A list that a loop does nothing with but append. `items`: what the last step has."""

    def __init__(self, target: list[Any]) -> None:
        self.target, self.length = target, len(target)
        self.items: list[Any] = []

    def take_back(self) -> None:
        self.items = self.target[self.length :]
        del self.target[self.length :]

    def has_same(self, items: Sequence[Any]) -> bool:
        """Whether the last step has appended these items: they are the same function of its number."""
        return len(items) == len(self.items) and all(map(are_one, items, self.items))

    def values(self, region: Frame) -> list[Tensor] | None:
        """The tensors that a step appends; None where an item may be changed later, or is of no kind that we know."""
        found = []
        for item in self.items:
            if type(item) in (ScalarProxy, ComplexProxy):
                found.append(item._tensor)
            elif issubclass(type(item), Tensor):
                if not _is_new(item, region):
                    return None
                found.append(item)
            elif not (is_dim(item) or type(item) in CONSTANTS):
                return None
        return found

    def extend(self, tracer: Tracer, stacked: Iterator[Tensor], steps: Size, name: str) -> None:
        """Appends the items of all steps. `stacked`: what they are of tensors, along the first axis; this list takes
        its own."""
        if not self.items:
            return
        whole = [None if is_dim(item) or type(item) in CONSTANTS else next(stacked) for item in self.items]
        for k in range(int(steps)):
            for item, values in zip(self.items, whole, strict=True):
                if values is not None:
                    value: Any = values[k]
                    if type(item) in (ScalarProxy, ComplexProxy):
                        value = type(item)(tracer.wrap(value._array, True, item._tensor.is_double))
                    self.target.append(value)
                else:
                    self.target.append(replaced(item, name, LEAST + k) if is_dim(item) and name else item)

    def share(self, variables: Mapping[int, Any]) -> None:
        """Puts variables in the places of those last items that are what variables are. `variables`: by the ids of
        their values after the step."""
        for k, item in enumerate(self.items):
            if id(item) in variables:
                self.target[k - len(self.items)] = variables[id(item)]


def _is_new(t: Tensor, region: Frame) -> bool:
    """Whether a tensor has memory that a step has made, and that nothing has written to."""
    t = root_of(t)
    return region.has_made(t) and id(t) not in region.written

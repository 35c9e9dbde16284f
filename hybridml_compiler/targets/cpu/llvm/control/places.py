"""Places of numbers and arrays of a step: registers, and memory."""

from __future__ import annotations

from .. import ir
from ..scalars import Lanes


class Cell:
    """A number in a register: the value that it has where code is emitted."""

    __slots__ = ("value",)

    def __init__(self, value: Lanes | None = None) -> None:
        self.value = value

    @property
    def now(self) -> Lanes:
        assert self.value is not None, "a number is computed before it is read"
        return self.value


Place = Cell | ir.Value  # or a pointer

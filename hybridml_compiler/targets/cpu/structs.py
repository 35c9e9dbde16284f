"""Structs in memory, as native code and Python both see them: the offset and the type of each field."""

from __future__ import annotations

from collections.abc import Mapping

from ...record import record

WORD = 8


@record
class Struct:
    """Fields by name: byte offset, and type as LLVM spells it."""

    fields: Mapping[str, tuple[int, str]]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.fields)

    def offset(self, name: str) -> int:
        return self.fields[name][0]

    @property
    def nbytes(self) -> int:
        """Bytes of one with nothing but words, as a row of a table."""
        return WORD * len(self.fields)


def words(*names: str) -> Struct:
    """A struct of 64-bit words, pointers where the name begins with `*`."""
    return Struct({name.lstrip("*"): (WORD * k, "ptr" if name[0] == "*" else "i64") for k, name in enumerate(names)})

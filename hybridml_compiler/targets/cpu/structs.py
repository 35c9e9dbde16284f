"""Structs in memory, as native code and Python both see them: the offset and the type of each field."""

from __future__ import annotations

from collections.abc import Mapping

WORD = 8


class Struct:
    """Fields by name: byte offset, and type as LLVM spells it."""

    def __init__(self, fields: Mapping[str, tuple[int, str]]) -> None:
        self.fields = dict(fields)
        self.names = tuple(self.fields)

    def offset(self, name: str) -> int:
        return self.fields[name][0]

    @property
    def nbytes(self) -> int:
        """Bytes of one with nothing but words, as a row of a table."""
        return WORD * len(self.fields)


def words(*names: str) -> Struct:
    """A struct of 64-bit words, pointers where the name begins with `*`."""
    kinds = ("ptr" if name.startswith("*") else "i64" for name in names)
    return Struct({name.lstrip("*"): (WORD * k, kind) for k, (name, kind) in enumerate(zip(names, kinds, strict=True))})

"""Types of elements that have an order, and their keys: numbers without sign, in the order of the elements.

Zeros of both signs have one key, and nans the last.
"""

from __future__ import annotations

from typing import Any

from ...llvm.native import KINDS, NativeBuilder
from ...llvm.values import IntType, Literal

_I64 = KINDS["i64"]


class Elements:
    """A type by its letter: `f4`, `i8`, `u1`."""

    def __init__(self, letter: str) -> None:
        self.letter, self.kind, self.size = letter, letter[0], int(letter[1:])
        self.bits = 8 * self.size
        self.word = IntType(self.bits)

    def load(self, c: NativeBuilder, pointer: Any, i: Any) -> Any:
        """The bits of element i."""
        return c.load(pointer + i * self.size, self.word, self.size)

    def store(self, c: NativeBuilder, x: Any, pointer: Any, i: Any) -> None:
        c.store(x, pointer + i * self.size, self.size)

    def value(self, c: NativeBuilder, pointer: Any, i: Any) -> Any:
        """Element i, to be compared."""
        kind = {"f4": KINDS["float"], "f8": KINDS["double"]}.get(self.letter, self.word)
        return c.load(pointer + i * self.size, kind, self.size)

    def less(self, c: NativeBuilder, x: Any, y: Any, or_equal: bool = False) -> Any:
        """Whether x is less than y; a nan is nothing of it."""
        how = {"f": "fcmp ol", "i": "icmp sl", "u": "icmp ul"}[self.kind]
        return c.compare(how + ("e" if or_equal else "t"), x, y)

    def is_number(self, c: NativeBuilder, x: Any) -> Any:
        """Whether a float is not nan; True of an integer."""
        return c.compare("fcmp ord", x, x) if self.kind == "f" else Literal(KINDS["i1"], "true")

    def key(self, c: NativeBuilder, x: Any, turned: Any = 0) -> Any:
        """The key of an element by its bits, as an i64; `turned` are the bits in which it is another, all of them where
        the order descends."""
        first = -1 << (self.bits - 1)
        if self.kind == "i":
            x = c.xor(x, c.number(first, self.word))
        elif self.kind == "f":
            infinity = {4: 0x7F800000, 8: 0x7FF0000000000000}[self.size]
            sign = c.ashr(x, c.number(self.bits - 1, self.word))
            found = c.xor(x, c.or_(sign, c.number(first, self.word)))
            found = c.select(x == first, first, found)
            x = c.select((x & ~first) > infinity, -1, found)
        return c.zext(x, _I64) ^ turned

"""Words: how elements as they are stored become vectors of what an instruction multiplies and adds at once.

A word has 32 bits and one element or several, next to each other along the sum; or it is an element as it is stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernels.low_precision import BYTES, FLOATS, PAIRS, SHORTS, Format
from .. import ir
from ..types import I32, PTR, Literal, memory_type
from .loops import offset
from .vectors import prefix

WORD = 32
SIGNS = "splat (i32 -2139062144)"  # 0x80 in each byte


def multiply_add(b: ir.IRBuilder, how: Format, x: Any, y: Any, z: Any) -> Any:
    """z + x * y, vectors of words and of sums. Those of x86 take the words as integers, in 16 bits or 32."""
    if how is FLOATS and isinstance(z.type.element, ir.IntType):
        return b.add(z, b.mul(x, y))
    if how is FLOATS:
        return b.intrinsic("fma", z.type, [x, y, z], [z.type])
    if how is SHORTS:
        return _pairs(b, x, y, z)
    name = {PAIRS: "x86.avx512bf16.dpbf16ps.512", BYTES: "x86.avx512.vpdpbusd.512"}[how]
    words = ir.VectorType(I32, z.type.count)
    return b.intrinsic(name, z.type, [z, b.bitcast(x, words), b.bitcast(y, words)])


def _pairs(b: ir.IRBuilder, x: Any, y: Any, z: Any) -> Any:
    """Both halves of words multiplied: one instruction on x86, whose registers are wider than 128 bits."""
    name = {16: "x86.avx512.pmaddw.d.512", 8: "x86.avx2.pmadd.wd"}.get(z.type.count)
    if name is not None:
        halves = ir.VectorType(ir.IntType(WORD // 2), 2 * z.type.count)
        return b.add(z, b.intrinsic(name, z.type, [b.bitcast(x, halves), b.bitcast(y, halves)]))
    half = Literal(z.type, f"splat (i32 {WORD // 2})")
    for left, right in ((x, y), (b.shl(x, half), b.shl(y, half))):
        z = b.add(z, b.mul(b.ashr(left, half), b.ashr(right, half)))
    return z


class Words:
    """Vectors of words from elements of one dtype."""

    def __init__(self, b: ir.IRBuilder, stored: np.dtype, how: Format, lanes: int, shifted: bool = False) -> None:
        self.b, self.stored, self.lanes, self.shifted = b, stored, lanes, shifted
        self.group, self.bits = how.group, WORD // how.group
        self.plain = how.group == 1 and 8 * stored.itemsize >= WORD  # an element is a word
        self.type = memory_type(stored, lanes) if self.plain else ir.VectorType(I32, lanes)

    @property
    def chunk(self) -> int:
        """Elements of a vector of words."""
        return self.lanes * self.group

    def element(self, pointer: Any, at: Any) -> Any:
        return self.b.gep(pointer, [at], source_etype=memory_type(self.stored))

    def at(self, pointer: Any, *terms: tuple[Any, int]) -> Any:
        """Address of an element: indices, values or numbers, with the elements from one to the next."""
        return self.element(pointer, offset(self.b, *terms))

    def along(self, pointer: Any, live: int | None = None) -> Any:
        """Words of contiguous elements; those beyond `live` are zeros."""
        mask = None if live is None else prefix(self.chunk, live)
        return self._signs(self.b.bitcast(self._widened(self._load(pointer, self.chunk, mask)), self.type))

    def across(self, rows: list[Any], mask: Any = None) -> Any:
        """Words of elements across rows, as many as a word has elements or fewer: element j of each is in word j."""
        if self.plain:
            return self._load(rows[0], self.lanes, mask)
        b, word = self.b, None
        for k, pointer in enumerate(rows):
            part = b.zext(self._widened(self._load(pointer, self.lanes, mask)), self.type)
            if k:
                part = b.shl(part, Literal(self.type, f"splat (i32 {k * self.bits})"))
            word = part if word is None else b.or_(word, part)
        return self._signs(word)

    def single(self, places: list[Any]) -> Any:
        """One word of elements at any addresses, as many as it has or fewer."""
        b, word, one = self.b, None, ir.IntType(WORD)
        for k, pointer in enumerate(places):
            part = b.load(pointer, typ=memory_type(self.stored), align=self.stored.itemsize)
            if self.bits > 8 * self.stored.itemsize:
                kind = ir.IntType(self.bits)
                part = b.sext(part, kind) if self.stored.kind == "i" else b.zext(part, kind)
            part = b.zext(part, one)
            if k:
                part = b.shl(part, Literal(one, str(k * self.bits)))
            word = part if word is None else b.or_(word, part)
        return word

    def _signs(self, word: Any) -> Any:
        """a + 128 is a with the other sign."""
        return self.b.xor(word, Literal(self.type, SIGNS)) if self.shifted else word

    def _widened(self, x: Any) -> Any:
        """The vector with elements as wide as those of a word."""
        if self.plain:
            return x
        wide = ir.VectorType(ir.IntType(self.bits), x.type.count)
        if self.stored.kind == "V" and self.bits == WORD:
            return self.b.shl(self.b.zext(x, wide), Literal(wide, "splat (i32 16)"))
        if self.stored.kind in "fV":
            return self.b.bitcast(x, wide)
        return self.b.sext(x, wide) if self.stored.kind == "i" else self.b.zext(x, wide)

    def _load(self, pointer: Any, count: int, mask: Any) -> Any:
        kind, align = memory_type(self.stored, count), self.stored.itemsize
        if mask is None:
            return self.b.load(pointer, typ=kind, align=align)
        arguments = [pointer, ir.Constant(I32, align), mask, Literal(kind, "zeroinitializer")]
        return self.b.intrinsic("masked.load", kind, arguments, [kind, PTR])

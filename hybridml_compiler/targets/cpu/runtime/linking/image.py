"""Linked code as one block of bytes that runs at any address: linked once, kept on disk, loaded without LLVM.

    objects --link--> Image (bytes) --load--> addresses

LLVM's linker needs LLVM, which is slow to import ([Note: Runtime]). Here a process that finds a linked image on disk
copies it into memory, fills in the addresses that it imports, and has loaded it. An image is

    code    machine code, constants and one jump for each imported function; read and executed, never written
    data    variables, and the table of addresses (GOT) through which code reaches what it imports; read and written

with the distance between the two fixed, so that all references inside are relative and need no work at all. Linux on
x86-64 only, and only the relocations that LLVM makes there in the small code model; `link` answers None for anything
else, and `loader.load` leaves it to LLVM's linker.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import platform
import struct
import sys
from collections.abc import Mapping, Sequence

from hybridml_compiler.errors import CompileError
from hybridml_compiler.once import once
from hybridml_compiler.targets.cpu.runtime.linking.elf import (
    ABSOLUTE_64,
    CALL,
    RELATIVE_32,
    THROUGH_GOT,
    Foreign,
    Relocation,
    Section,
    Symbol,
    read,
)

from .....record import record

SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64"
PAGE = 4096
_JUMP = bytes([0xFF, 0x25])  # jmp [rip + offset], followed by the offset


@record
class Image:
    """Linked machine code. Offsets count from the beginning of `code`; `data` begins on the page after its end."""

    code: bytes
    data: bytes
    slots: Mapping[str, Sequence[int]]  # imported symbol -> offsets in data of words that hold its address
    own: Mapping[int, int]  # offset of a word in data -> offset that it points to
    exports: Mapping[str, int]

    def pack(self) -> bytes:
        """The image as bytes; `unpack` is the inverse."""
        words = [*self.own.items()]
        head = json.dumps([len(self.code), len(self.data), dict(self.slots), words, dict(self.exports)]).encode()
        return len(head).to_bytes(8, "little") + head + self.code + self.data

    @staticmethod
    def unpack(raw: bytes) -> Image:
        """Raises ValueError for bytes that `pack` has not made."""
        start = 8 + int.from_bytes(raw[:8], "little")
        n_code, n_data, slots, own, exports = json.loads(raw[8:start])
        if len(raw) != start + n_code + n_data:
            raise ValueError("not a linked image")
        code = raw[start : start + n_code]
        return Image(code, raw[start + n_code :], slots, dict(own), exports)


def link(objects: Sequence[bytes], exports: Sequence[str]) -> Image | None:
    """The image of these objects; symbols that none of them defines are imported when it is loaded.

    None where an object needs more than this linker does. Raises CompileError for an object that is not one, for a
    symbol that is defined twice, and for an export that is not defined.
    """
    sections: list[Section] = []
    relocations: list[Relocation] = []
    defined: dict[str, Symbol] = {}
    try:
        for data in objects:
            own_sections, symbols, own_relocations = read(data)
            sections += own_sections
            relocations += own_relocations
            for symbol in symbols:
                if symbol.local or symbol.section is None:
                    continue
                if symbol.name in defined:
                    raise CompileError(f"could not link generated code: symbol {symbol.name!r} is defined twice")
                defined[symbol.name] = symbol
        if missing := [name for name in exports if name not in defined]:
            raise CompileError(f"could not link generated code: no object defines the export {', '.join(missing)}")
        return _Linker(sections, relocations, defined).link(exports)
    except Foreign:
        return None


class _Linker:
    def __init__(
        self, sections: Sequence[Section], relocations: Sequence[Relocation], defined: Mapping[str, Symbol]
    ) -> None:
        self.sections, self.relocations, self.defined = sections, relocations, defined
        self.code, self.data = bytearray(), bytearray()
        self.start = 0  # of data
        self.got: dict[tuple[str, int], int] = {}  # (imported name, 0) or ("", offset) -> offset of its word
        self.jumps: dict[str, int] = {}
        self.slots: dict[str, list[int]] = {}
        self.own: dict[int, int] = {}

    def link(self, exports: Sequence[str]) -> Image:
        self._place(self.code, writable=False)
        for r in self.relocations:
            symbol = self._resolve(r.symbol)
            if r.kind == RELATIVE_32 and symbol.section is None:  # imported data may be further away than 2 GB
                raise Foreign
            if r.kind == CALL and symbol.section is None and symbol.name not in self.jumps:
                self.jumps[symbol.name] = _append(self.code, bytes(8), 8)
        self.start = _aligned(len(self.code), PAGE)
        self._place(self.data, writable=True)
        for name, at in self.jumps.items():
            slot = self._entry(Symbol(name, None, 0, False))
            self.code[at : at + 6] = _JUMP + struct.pack("<i", self.start + slot - (at + 6))
        for relocation in self.relocations:
            self._apply(relocation)
        offsets = {name: self._offset(self.defined[name]) for name in exports}
        return Image(bytes(self.code), bytes(self.data), self.slots, self.own, offsets)

    def _place(self, target: bytearray, *, writable: bool) -> None:
        for section in self.sections:
            if section.writable is writable:
                data = section.data or bytes(section.size)
                section.offset = self.start + _append(target, data, section.alignment)

    def _resolve(self, symbol: Symbol) -> Symbol:
        return self.defined.get(symbol.name, symbol) if symbol.section is None else symbol

    def _offset(self, symbol: Symbol) -> int:
        assert symbol.section is not None
        return symbol.section.offset + symbol.value

    def _entry(self, symbol: Symbol) -> int:
        """The GOT's entry of a symbol, as an offset in data."""
        key = (symbol.name, 0) if symbol.section is None else ("", self._offset(symbol))
        if key not in self.got:
            self.got[key] = at = _append(self.data, bytes(8), 8)
            self._point(at, symbol, 0)
        return self.got[key]

    def _point(self, at: int, symbol: Symbol, addend: int) -> None:
        """The word at `at` in data is to hold the address of the symbol."""
        if symbol.section is None:
            self.slots.setdefault(symbol.name, []).append(at)
            self.data[at : at + 8] = struct.pack("<q", addend)
        else:
            self.own[at] = self._offset(symbol) + addend

    def _apply(self, r: Relocation) -> None:
        symbol, place = self._resolve(r.symbol), r.section.offset + r.offset
        if r.kind == ABSOLUTE_64:
            self._point(place - self.start, symbol, r.addend)
            return
        if r.kind in THROUGH_GOT:
            target = self.start + self._entry(symbol)
        else:
            target = self.jumps[symbol.name] if symbol.section is None else self._offset(symbol)
        memory, at = (self.data, place - self.start) if r.section.writable else (self.code, place)
        memory[at : at + 4] = struct.pack("<i", target + r.addend - place)


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _append(memory: bytearray, data: bytes, alignment: int) -> int:
    """Put data at the next aligned offset, and say where that is."""
    at = _aligned(len(memory), max(alignment, 1))
    memory.extend(bytes(at - len(memory)))
    memory.extend(data)
    return at


# ---- loading


def load(image: Image, imports: Mapping[str, int]) -> tuple[dict[str, int], mmap.mmap]:
    """(address of each export, owner of the memory). CompileError names the symbols that `imports` lacks."""
    if missing := sorted(image.slots.keys() - imports.keys()):
        raise CompileError(f"could not link generated code: nothing defines {', '.join(missing)}")
    start = _aligned(len(image.code), PAGE)
    memory = mmap.mmap(-1, max(start + len(image.data), 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    data = bytearray(image.data)
    for name, offsets in image.slots.items():
        for at in offsets:
            (addend,) = struct.unpack_from("<q", data, at)
            struct.pack_into("<Q", data, at, (imports[name] + addend) % (1 << 64))
    for at, target in image.own.items():
        struct.pack_into("<Q", data, at, base + target)
    memory[: len(image.code)] = image.code
    memory[start : start + len(data)] = data
    if start and _mprotect()(base, start, mmap.PROT_READ | mmap.PROT_EXEC):
        raise CompileError("the system does not let this process execute generated code (mprotect failed)")
    return {name: base + at for name, at in image.exports.items()}, memory


@once
def _mprotect() -> ctypes._CFunctionType:
    function = ctypes.CDLL(None, use_errno=True).mprotect
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)(
        ctypes.cast(function, ctypes.c_void_p).value or 0
    )

"""Object files as LLVM makes them for Linux on x86-64: reading them, and cutting one into several.

Format: System V ABI, AMD64 supplement, chapter 4 (object files) and 4.4 (relocation). Only what `image` can link is
read: anything else is `Foreign`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

from hybridml_compiler.errors import CompileError

from .....record import record

# Section types and flags, special section numbers, bindings.
_PROGBITS, _SYMTAB, _STRTAB, _RELA, _NOBITS = 1, 2, 3, 4, 8
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2
_LOCAL, _GLOBAL = 0, 1
_NAMES = {_ALLOC: b".rodata\0", _ALLOC | _WRITE: b".data\0", _ALLOC | _EXECUTE: b".text\0"}
_LEFT_OUT = (".eh_frame",)  # unwind tables: nothing unwinds through generated code

# How a relocation is computed: S symbol, A addend, P place, G its entry in the GOT.
ABSOLUTE_64 = 1  # S + A
RELATIVE_32 = 2  # S + A - P
CALL = 4  # the same, through a jump if S is imported
THROUGH_GOT = (9, 41, 42)  # G + A - P

_HEADER = struct.Struct("<IIQQQQIIQQ")  # of a section
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")


@record(frozen=False, eq=False)
class Section:
    """A section that is loaded, and its place in an image."""

    data: bytes
    size: int
    alignment: int
    flags: int
    offset: int = 0

    @property
    def writable(self) -> bool:
        return bool(self.flags & _WRITE)


@record
class Symbol:
    name: str
    section: Section | None  # None: imported
    value: int
    local: bool


@record
class Relocation:
    section: Section
    offset: int
    kind: int
    symbol: Symbol
    addend: int


Contents = tuple[list[Section], list[Symbol], list[Relocation]]


class Foreign(Exception):
    """The object uses something that only LLVM's linker knows."""


def read(data: bytes) -> Contents:
    """The sections that are loaded, the symbols and the relocations of an object."""
    if data[:4] != b"\x7fELF":
        raise CompileError(f"could not link generated code: {len(data)} bytes are no object")
    try:
        return _read(data)
    except (struct.error, IndexError, ValueError, UnicodeDecodeError) as error:
        raise CompileError(f"could not link generated code: a damaged object of {len(data)} bytes ({error})") from None


def _read(data: bytes) -> Contents:
    (headers_at,) = struct.unpack_from("<Q", data, 40)
    size, count, names_at = struct.unpack_from("<HHH", data, 58)
    headers = [_HEADER.unpack_from(data, headers_at + k * size) for k in range(count)]

    def body(number: int) -> bytes:
        at, length = headers[number][4:6]
        if at + length > len(data):
            raise ValueError(f"section {number} ends beyond it")
        return data[at : at + length]

    names = body(names_at)
    loaded: dict[int, Section] = {}
    for number, (name, kind, flags, _, _, length, _, _, alignment, _) in enumerate(headers):
        if flags & _ALLOC and _text(names, name) not in _LEFT_OUT:
            contents = b"" if kind == _NOBITS else body(number)
            loaded[number] = Section(contents, length, alignment, flags)
    symbols: list[Symbol] = []
    for number, header in enumerate(headers):
        if header[1] == _SYMTAB:
            symbols = list(_symbols(body(number), body(header[6]), loaded))
    relocations = [
        r
        for number, header in enumerate(headers)
        if header[1] == _RELA and header[7] in loaded
        for r in _relocations(body(number), loaded[header[7]], symbols)
    ]
    return list(loaded.values()), symbols, relocations


def _symbols(table: bytes, names: bytes, loaded: Mapping[int, Section]) -> Iterator[Symbol]:
    for name, info, _, section, value, _ in _SYMBOL.iter_unpack(table):
        if section in (_ABSOLUTE, _COMMON) and info & 15 != 4:  # 4: the name of the source file
            raise Foreign
        yield Symbol(_text(names, name), loaded.get(section), value, info >> 4 == _LOCAL)


def _relocations(table: bytes, section: Section, symbols: Sequence[Symbol]) -> Iterator[Relocation]:
    for offset, kind, symbol, addend in _RELOCATION.iter_unpack(table):
        known = kind in (RELATIVE_32, CALL, *THROUGH_GOT) or (kind == ABSOLUTE_64 and section.writable)
        if not known:
            raise Foreign
        yield Relocation(section, offset, kind, symbols[symbol], addend)


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(0, at)].decode()


def cut(data: bytes, names: Sequence[str]) -> list[bytes]:
    """An object for each of these symbols, with the sections that it needs of the one that defines them all.

    Each symbol has a section of its own. In the object of one, the others are imported: Foreign where the object
    defines more, which would be in none.
    """
    _, symbols, relocations = read(data)
    defined = {symbol.name: symbol for symbol in symbols if not symbol.local and symbol.section is not None}
    if defined.keys() != set(names):
        raise Foreign
    within: dict[Section, list[Relocation]] = {}
    for relocation in relocations:
        within.setdefault(relocation.section, []).append(relocation)
    found = []
    for name in names:
        own, needed = defined[name], dict[Section, int]()
        waiting = [own.section]
        while waiting:
            section = waiting.pop()
            if section is None or section in needed:
                continue
            needed[section] = len(needed) + 1  # its number in the object: 0 is none
            waiting += [r.symbol.section for r in within.get(section, ()) if r.symbol.local or r.symbol.name == name]
        found.append(_write(data[:64], own, needed, [r for section in needed for r in within.get(section, ())]))
    return found


def _write(header: bytes, own: Symbol, sections: Mapping[Section, int], relocations: Sequence[Relocation]) -> bytes:
    """An object that exports one symbol; `header` is that of another object."""
    symbols = dict.fromkeys([r.symbol for r in relocations if r.symbol.local])
    first_global = len(symbols) + 1
    symbols |= dict.fromkeys([own, *(r.symbol for r in relocations)])
    number = {symbol: k + 1 for k, symbol in enumerate(symbols)}
    strings, table = bytearray(b"\0" + b"".join(_NAMES.values())), bytearray(_SYMBOL.size)
    for symbol in symbols:
        own_section = symbol.section if symbol.local or symbol is own else None
        here = _UNDEFINED if own_section is None else sections[own_section]
        value, binding = (symbol.value, _LOCAL if symbol.local else _GLOBAL) if here else (0, _GLOBAL)
        table += _SYMBOL.pack(len(strings), binding << 4, 0, here, value, 0)
        strings += symbol.name.encode() + b"\0"
    out, headers = bytearray(header), [bytes(_HEADER.size)]

    def add(kind: int, flags: int, body: bytes | bytearray, size: int, alignment: int, *rest: int) -> None:
        out.extend(bytes(-len(out) % max(alignment, 1)))
        link, info, entry = rest or (0, 0, 0)
        name = strings.index(_NAMES[flags]) if flags else 0
        headers.append(_HEADER.pack(name, kind, flags, 0, len(out), size, link, info, alignment, entry))
        out.extend(body)

    for section in sections:
        kind = _PROGBITS if section.data else _NOBITS
        add(kind, section.flags & (_WRITE | _ALLOC | _EXECUTE), section.data, section.size, section.alignment)
    table_at = len(headers)
    add(_SYMTAB, 0, table, len(table), 8, table_at + 1, first_global, _SYMBOL.size)
    add(_STRTAB, 0, strings, len(strings), 1)
    for section, k in sections.items():
        body = b"".join(
            [
                _RELOCATION.pack(r.offset, r.kind, number[r.symbol], r.addend)
                for r in relocations
                if r.section is section
            ]
        )
        if body:
            add(_RELA, 0, body, len(body), 8, table_at, k, _RELOCATION.size)
    out.extend(bytes(-len(out) % 8))
    struct.pack_into("<Q", out, 40, len(out))
    struct.pack_into("<HHH", out, 58, _HEADER.size, len(headers), table_at + 1)
    return bytes(out) + b"".join(headers)

"""PTX read from text: the kernels of a module, their instructions, and the memory that they declare."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field

import numpy as np

from ....errors import CompileError
from ....record import record

# PTX's types; "b" is bits, and a register of a wider type may hold a narrower value.
_KINDS = {"b": "u", "u": "u", "s": "i"}
DTYPES: dict[str, np.dtype] = {
    f"{kind}{bits}": np.dtype(f"{_KINDS[kind]}{bits // 8}") for kind in _KINDS for bits in (8, 16, 32, 64)
}
DTYPES |= {"f32": np.dtype("f4"), "f64": np.dtype("f8"), "pred": np.dtype("?")}


@record(eq=False)
class Instruction:
    """`@predicate op.parts operands;`"""

    parts: tuple[str, ...]
    operands: tuple[str, ...]
    text: str
    predicate: str = ""
    negated: bool = False

    @property
    def name(self) -> str:
        return self.parts[0]

    @property
    def dtype(self) -> np.dtype:
        """The type at the end of the name."""
        found = DTYPES.get(self.parts[-1])
        if found is None:
            raise CompileError(f"cuda:sim: {self.text}: an instruction on {self.parts[-1]}, which is not simulated")
        return found


@record(eq=False)
class Entry:
    """A kernel. Variables are at offsets in a block's shared and a thread's local memory."""

    name: str
    parameters: tuple[tuple[str, np.dtype], ...]
    registers: dict[str, np.dtype]  # by the letters of their names
    shared: dict[str, int]
    shared_bytes: int
    local: dict[str, int]
    local_bytes: int
    code: Sequence[Instruction]
    labels: dict[str, int]


@record(eq=False)
class Module:
    entries: dict[str, Entry]
    constants: dict[str, bytes] = field(default_factory=dict)  # variables in global memory, by name


_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\((.*?)\)([^{]*)\{", re.DOTALL)
_PARAMETER = re.compile(r"\.param\s+\.(\w+)\s+(?:\.ptr[^%\n]*?\s)?(\w+)\s*(?:,|$)")
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(%[A-Za-z]+)")
_VARIABLE = r"\.{}\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d+)\]\s*;"
_CONSTANT = re.compile(
    r"^\s*(?:\.visible\s+)?\.(?:global|const)\s+\.align\s+\d+\s+\.b8\s+([\w$]+)\[(\d+)\]\s*=\s*\{([^}]*)\}",
    re.MULTILINE,
)
_DIRECTIVE = re.compile(r"(?<![\w.])\.(?:reg|shared|local|loc|pragma)\s[^;]*;")
_STATEMENT = re.compile(r"(?:@(!?)(%\w+)\s+)?([\w.:]+)\s*(.*)$", re.DOTALL)
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s{}\[\]]+")
_WIDTHS: dict[int, np.dtype] = {
    1: np.dtype("u1"),
    8: np.dtype("u1"),
    16: np.dtype("u2"),
    32: np.dtype("u4"),
    64: np.dtype("u8"),
}


def parse_ptx(text: str) -> Module:
    """The module of a text, with comments and trailing zeros as NVRTC writes it."""
    text = re.sub(r"//[^\n]*", "", text.rstrip("\0"))
    constants = {m[1]: _bytes(m[3], int(m[2])) for m in _CONSTANT.finditer(text)}
    entries = {}
    for match in _ENTRY.finditer(text):
        end, depth = match.end(), 1
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        entries[match[1]] = _entry(match[1], match[2], text[match.end() : end - 1])
    return Module(entries, constants)


def _bytes(numbers: str, size: int) -> bytes:
    """The bytes of a variable, of which zeros at the end are left out."""
    return bytes(map(int, numbers.split(","))).ljust(size, b"\0")


def _entry(name: str, parameters: str, body: str) -> Entry:
    found = tuple((n, DTYPES[kind]) for kind, n in _PARAMETER.findall(parameters.strip()))
    registers = {letters: _register(kind) for kind, letters in _REGISTERS.findall(body)}
    shared, shared_bytes = _layout(re.findall(_VARIABLE.format("shared"), body))
    local, local_bytes = _layout(re.findall(_VARIABLE.format("local"), body))
    code, labels = _code(_DIRECTIVE.sub("", body))
    return Entry(name, found, registers, shared, shared_bytes, local, local_bytes, code, labels)


def _register(kind: str) -> np.dtype:
    """Registers hold bits, and predicates."""
    return DTYPES["pred"] if kind == "pred" else _WIDTHS[int(kind[1:])]


def _layout(variables: Sequence[tuple[str, str, str]]) -> tuple[dict[str, int], int]:
    """(offsets of variables, bytes of all)."""
    offsets: dict[str, int] = {}
    end = 0
    for align, name, size in variables:
        start = -(-end // int(align)) * int(align)
        offsets[name], end = start, start + int(size)
    return offsets, end


def _code(body: str) -> tuple[list[Instruction], dict[str, int]]:
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    for statement in body.split(";"):
        statement = statement.strip(" \t\n{}") + "}" * statement.strip().endswith("}")
        while label := re.match(r"([$\w]+):\s*", statement):
            labels[label[1]] = len(code)
            statement = statement[label.end() :]
        if not statement.strip("}"):
            continue
        match = _STATEMENT.match(statement)
        if match is None:
            raise CompileError(f"cuda:sim: {statement!r} is no PTX instruction")
        negated, predicate, op, operands = match.groups()
        parts = tuple(part for part in op.split(".") if part not in ("uni",))
        text = " ".join(statement.split())
        code.append(Instruction(parts, tuple(_OPERAND.findall(operands)), text, predicate or "", negated == "!"))
    return code, labels

"""The threads of some blocks, side by side: each register is an array with an element per thread."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import TypeAlias

import numpy as np

from ....errors import CompileError
from .memory import Access, GlobalMemory, Region, SimulatorError
from .ptx import Entry
from .races import ThreadIds

WARP = 32
Sizes: TypeAlias = tuple[int, int, int]  # along x, y and z
Lanes: TypeAlias = "np.ndarray | slice"  # which threads execute an instruction: their numbers, or all
_ADDRESS = re.compile(r"\[\s*([%$\w.]+?)\s*(?:\+\s*(-?\d+))?\s*\]$")


class Threads:
    """Registers, special registers and memory of the threads of consecutive blocks, all of one launch."""

    def __init__(
        self,
        entry: Entry,
        parameters: Mapping[str, np.ndarray],
        memory: GlobalMemory,
        grid: Sizes,
        block: Sizes,
        blocks: range,
        races: bool,
    ) -> None:
        self.entry, self.parameters, self.memory = entry, parameters, memory
        size = math.prod(block)
        self.per_block, self.count = size, len(blocks) * size
        self.of_block = np.tile(np.arange(size), len(blocks))  # a thread's number in its block
        self.local_block = np.repeat(np.arange(len(blocks)), size)  # its block's number among these
        self.block = self.local_block + blocks.start
        self.thread = self.block * size + self.of_block  # its number in the grid
        self.clock = np.zeros(self.count, np.int64)
        self.warp = self.local_block * -(-size // WARP) + self.of_block // WARP
        self.lane = self.of_block % WARP
        self.warps = len(blocks) * -(-size // WARP)
        self.special = self._special(grid, block)
        self.registers: dict[str, np.ndarray] = {}
        self.shared = Region.of_owners("shared memory", entry.shared_bytes, len(blocks), races=races)
        self.local = Region.of_owners("local memory", entry.local_bytes, self.count, races=False)
        self.copies = Copies(self)

    def _special(self, grid: Sizes, block: Sizes) -> dict[str, np.ndarray]:
        """Sizes and numbers along the axes, of which x is the innermost."""
        found = {"%laneid": self.lane.astype(np.uint32)}
        for size, of, sizes, values in (
            ("%ntid", "%tid", block, self.of_block),
            ("%nctaid", "%ctaid", grid, self.block),
        ):
            for axis, count in zip("xyz", sizes, strict=True):
                found[f"{size}.{axis}"] = np.full(self.count, count, np.uint32)
                found[f"{of}.{axis}"] = (values % count).astype(np.uint32)
                values = values // count
        return found

    def number(self, lanes: Lanes) -> int:
        """The number of these threads."""
        return self.count if isinstance(lanes, slice) else lanes.size

    def access(self, text: str, lanes: Lanes) -> Access:
        """An instruction's access by these threads."""
        return Access(text, ThreadIds(self.thread[lanes], self.block[lanes], self.clock[lanes]))

    # ---- operands

    def read(self, operand: str, dtype: np.dtype, lanes: Lanes) -> np.ndarray:
        """The values of an operand as this type; of a number one for all."""
        if operand[0] == "%":
            values = self.special.get(operand)
            if values is None:
                values = self._register(operand)
            return _as(values[lanes], dtype)
        if operand[0].isdigit() or operand[0] == "-":
            return _number(operand, dtype)
        return np.array(self._variable(operand), np.uint64).astype(f"u{dtype.itemsize}").view(dtype)

    def _variable(self, name: str) -> int:
        for table in (self.entry.shared, self.entry.local, self.memory.addresses):
            if name in table:
                return table[name]
        raise CompileError(f"cuda:sim: {name!r} is no variable of {self.entry.name}")

    def _register(self, name: str) -> np.ndarray:
        found = self.registers.get(name)
        if found is None:
            raise SimulatorError(f"cuda:sim: register {name} is read before anything is written to it")
        return found

    def write(self, name: str, values: np.ndarray, lanes: Lanes) -> None:
        """Sets a register; a wider one than the values is extended, by their sign where they have one."""
        if name == "_":
            return
        register = self.registers.get(name)
        if register is None:
            dtype = self.entry.registers[name.rstrip("0123456789")]
            register = self.registers[name] = np.zeros(self.count, dtype)
        register[lanes] = _as(np.asarray(values), register.dtype)

    def holds(self, predicate: str, negated: bool, lanes: Lanes) -> np.ndarray:
        """Whether each of these threads executes an instruction with this predicate."""
        found: np.ndarray = self._register(predicate)[lanes] ^ negated
        return found

    def address(self, operand: str, lanes: Lanes) -> np.ndarray:
        """The addresses `[register + offset]` or `[variable + offset]`."""
        base, offset = _base_and_offset(operand)
        if base[0] == "%":
            register = self._register(base)
            values = register[lanes].astype(np.int64) + offset
        else:
            values = np.full(self.number(lanes), self._variable(base) + offset, np.int64)
        return values


@cache
def _number(operand: str, dtype: np.dtype) -> np.ndarray:
    """A number in the text as this type; the bits of a float are of its own."""
    if operand[:2] in ("0f", "0F", "0d", "0D"):
        width = "u4" if operand[1] in "fF" else "u8"
        return np.array(int(operand[2:], 16), width).view("f4" if width == "u4" else "f8")
    number = int(operand.rstrip("U"), 0)
    if dtype.kind == "b":
        return np.array(bool(number))
    return np.array(number & ((1 << 8 * dtype.itemsize) - 1), f"u{dtype.itemsize}").view(dtype)


@cache
def _base_and_offset(operand: str) -> tuple[str, int]:
    match = _ADDRESS.match(operand)
    if match is None:
        raise CompileError(f"cuda:sim: {operand!r} is no address")
    return match[1], int(match[2] or 0)


class Copies:
    """Copies to shared memory that threads have started, in groups of which each waits for its own."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads
        self.groups = np.zeros(threads.count, np.int64)  # that a thread has closed
        self.open: list[tuple[np.ndarray, np.ndarray, np.ndarray, str]] = []  # threads, their groups, bytes, text

    def start(self, target: np.ndarray, words: np.ndarray, text: str, lanes: Lanes) -> None:
        """A copy of words to shared memory by each of these threads."""
        threads, t = np.arange(self.threads.count)[lanes], self.threads
        at = t.shared.expect(target, t.local_block[threads], words, t.access(text, threads))
        self.open.append((threads, self.groups[threads], at, text))

    def commit(self, lanes: Lanes) -> None:
        """Closes a group of each thread."""
        self.groups[lanes] += 1

    def wait(self, most: int, lanes: Lanes) -> None:
        """Until so many groups of each thread are on their way at most: the last ones."""
        waits = np.zeros(self.threads.count, np.bool_)
        waits[lanes] = True
        left = []
        for threads, group, at, text in self.open:
            ends = waits[threads] & (group < self.groups[threads] - most)
            if ends.any():
                self.threads.shared.arrive(at[ends], self.threads.access(text, threads[ends]))
            if not ends.all():
                left.append((threads[~ends], group[~ends], at[~ends], text))
        self.open = left


def _as(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The bits of values as another type; narrower ones are extended, wider ones cut off."""
    if values.dtype == dtype:
        return values
    if values.dtype.kind == "b" or dtype.kind == "b":
        raise CompileError(f"cuda:sim: a predicate as {dtype}, or the other way round")
    if values.dtype.itemsize == dtype.itemsize:
        return values.view(dtype)
    if values.dtype.itemsize > dtype.itemsize:
        return values.view(f"u{values.dtype.itemsize}").astype(f"u{dtype.itemsize}").view(dtype)
    if values.dtype.kind == "f":
        values = values.view(f"u{values.dtype.itemsize}")
    signed = "i" if values.dtype.kind == "i" else "u"
    return values.astype(f"{signed}{dtype.itemsize}").view(dtype)

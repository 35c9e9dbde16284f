"""Instructions of whole warps on matrices, and copies that arrive later: mma.sync, ldmatrix, cp.async.

Fragments are laid out as the PTX ISA says (9.7.14.5). A sum of products is exact, and rounded once: tensor cores add up
in an order and with a rounding of their own, which nothing may rely on.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....errors import CompileError
from .instructions import names, vector
from .memory import SimulatorError
from .ptx import Instruction
from .threads import WARP, Lanes, Threads

_U16, _U32 = np.dtype("u2"), np.dtype("u4")
_LANE = np.arange(WARP)
_QUAD, _IN_QUAD = _LANE // 4, _LANE % 4
_ROW_BYTES = 16  # of one of ldmatrix's matrices, 8x8 of 16 bits


def _warps(t: Threads, i: Instruction, lanes: Lanes) -> int:
    """The number of whole warps that these threads are, in order. An error where one is without some of its lanes."""
    warp = t.warp[lanes]
    if warp.size % WARP or (t.lane[lanes].reshape(-1, WARP) != _LANE).any():
        raise SimulatorError(f"cuda:sim: {i.text}: not all lanes of a warp are at this instruction")
    return int(warp.size // WARP)


def _registers(t: Threads, operand: str, warps: int, lanes: Lanes) -> np.ndarray:
    """The words of a vector of registers: (warp, lane, register)."""
    words = [np.broadcast_to(t.read(name, _U32, lanes), (warps * WARP,)) for name in vector(operand)]
    return np.stack(words, -1).reshape(warps, WARP, -1)


# ---- products

_WORDS: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # the numbers in 32 bits, the lower ones first
    "f16": lambda x: x.view("f2").astype("f4"),
    "bf16": lambda x: (x.view("u2").astype("u4") << np.uint32(16)).view("f4"),
    "tf32": lambda x: (x & np.uint32(0xFFFFE000)).view("f4"),  # the other bits are not read
}


def _places(kind: str) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """(row, column) in A of each element of a lane's fragment, (lane, element), and the same in B."""
    each = 1 if kind == "tf32" else 2  # numbers in a register
    a, b = np.arange(4 * each), np.arange(2 * each)
    quad, inside = _QUAD[:, None], _IN_QUAD[:, None] * each
    half = 4 * each  # rows of k in the first registers
    rows, columns = quad + a // each % 2 * 8, inside + a % each + a // (2 * each) * half
    return (rows, columns), (inside + b % each + b // each * half, quad + 0 * b)


@names("mma")
def _mma(t: Threads, i: Instruction, lanes: Lanes) -> None:
    shape, kind = i.parts[3:4], i.parts[7:8][0] if len(i.parts) == 10 else ""
    depth = {"f16": 16, "bf16": 16, "tf32": 8}.get(kind, 0)
    if i.parts[1:] != ("sync", "aligned", f"m16n8k{depth}", "row", "col", "f32", kind, kind, "f32"):
        raise CompileError(f"cuda:sim: {i.text}: this product of {''.join(shape)} is not simulated")
    warps = _warps(t, i, lanes)
    to, *operands = i.operands
    x, y, z = (_registers(t, operand, warps, lanes) for operand in operands)
    a, b = np.empty((warps, 16, depth)), np.empty((warps, depth, 8))
    (a_rows, a_columns), (b_rows, b_columns) = _places(kind)
    a[:, a_rows, a_columns] = _WORDS[kind](x)
    b[:, b_rows, b_columns] = _WORDS[kind](y)
    rows = _QUAD[:, None] + np.arange(4) // 2 * 8
    columns = _IN_QUAD[:, None] * 2 + np.arange(4) % 2
    found = ((a @ b)[:, rows, columns] + z.view("f4")).astype("f4")
    for k, name in enumerate(vector(to)):
        t.write(name, found[..., k].reshape(-1), lanes)


@names("ldmatrix")
def _ldmatrix(t: Threads, i: Instruction, lanes: Lanes) -> None:
    """Lane 8*k + r gives the address of row r of matrix k; each lane gets two neighbours of a row, or of a column."""
    count = {"x1": 1, "x2": 2, "x4": 4}.get(i.parts[4], 0) if len(i.parts) > 5 else 0
    if not count or i.parts[1:4] != ("sync", "aligned", "m8n8") or i.parts[-2:] != ("shared", "b16"):
        raise CompileError(f"cuda:sim: {i.text}: this load of matrices is not simulated")
    to, source = i.operands
    warps = _warps(t, i, lanes)
    given = np.tile(_LANE < 8 * count, warps)
    readers = (np.arange(t.count) if isinstance(lanes, slice) else lanes)[given]
    address = t.address(source, readers)
    if (address % _ROW_BYTES).any():
        raise SimulatorError(f"cuda:sim: {i.text}: an address is no multiple of {_ROW_BYTES}")
    access = t.access(i.text, readers)
    rows = np.stack(
        [t.shared.load(address + 2 * k, t.local_block[readers], _U16, access) for k in range(8)], -1
    ).reshape(warps, count, 8, 8)
    if "trans" in i.parts:
        rows = rows.swapaxes(-1, -2)
    words = np.ascontiguousarray(rows).view(_U32)  # two neighbours: (warp, matrix, row, quarter)
    for k, name in enumerate(vector(to)):
        t.write(name, words[:, k].reshape(-1), lanes)


# ---- copies to shared memory that arrive later


@names("cp")
def _cp(t: Threads, i: Instruction, lanes: Lanes) -> None:
    if i.parts[:2] != ("cp", "async"):
        raise CompileError(f"cuda:sim: {i.text}: this copy is not simulated")
    match i.parts[2:]:
        case ("commit_group",):
            t.copies.commit(lanes)
        case ("wait_group",):
            t.copies.wait(int(i.operands[0]), lanes)
        case ("wait_all",):
            t.copies.commit(lanes)
            t.copies.wait(0, lanes)
        case ("ca" | "cg" as where, "shared", "global"):
            _copy(t, i, lanes, where)
        case _:
            raise CompileError(f"cuda:sim: {i.text}: this copy is not simulated")


def _copy(t: Threads, i: Instruction, lanes: Lanes, where: str) -> None:
    to, source, width, *given = i.operands
    size = int(width)
    if size not in ((16,) if where == "cg" else (4, 8, 16)):
        raise CompileError(f"cuda:sim: {i.text}: a copy of {size} bytes past level one is not simulated")
    target, address = t.address(to, lanes), t.address(source, lanes)
    copied = np.broadcast_to(t.read(given[0], _U32, lanes) if given else np.uint32(size), target.shape)
    if ((target | address) % size).any():
        raise SimulatorError(f"cuda:sim: {i.text}: an address is no multiple of {size}")
    if not np.isin(copied, (0, size)).all():
        raise CompileError(f"cuda:sim: {i.text}: a copy of a part is not simulated")
    some = copied > 0
    words = np.zeros((target.size, size // 4), _U32)  # what is not copied is zero
    if some.any():
        readers = np.arange(t.count)[lanes][some]
        access = t.access(i.text, readers)
        for k in range(size // 4):
            words[some, k] = t.memory.load(address[some] + 4 * k, _U32, access)
    t.copies.start(target, words, i.text, lanes)

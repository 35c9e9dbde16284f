"""PTX's instructions, one function each: a table, and an error for whatever is not in it.

Only what rounds as IEEE 754 says is simulated, so that a result is the hardware's to the last bit. The exceptions are
the approximate divisions in the compiler's `fmod`, which corrects for their error, and the power of two of attention on
tensor cores, which here is the nearest float32.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ....errors import CompileError
from . import arithmetic
from .memory import Access, Region, SimulatorError
from .ptx import DTYPES, Instruction
from .threads import WARP, Lanes, Threads

Semantics = Callable[[Threads, Instruction, Lanes], None]
TABLE: dict[str, Semantics] = {}
_U32, _PRED = np.dtype("u4"), np.dtype("?")
_NOT_EXACT = ("approx", "ftz", "sat", "full")
_APPROXIMATE = (
    ("rcp", "approx", "ftz", "f32"), ("div", "approx", "f32"), ("rcp", "approx", "ftz", "f64"),
    ("ex2", "approx", "ftz", "f32"),
)  # fmt: skip
_UPDATES: dict[str, Callable[..., Any]] = {
    "exch": lambda _, value: value, "add": np.add, "min": np.minimum, "max": np.maximum, "or": np.bitwise_or,
}  # fmt: skip
_SIGNS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def semantics_of(instruction: Instruction) -> Semantics:
    """The function of an instruction. CompileError for one that is not simulated: never a guess."""
    found = TABLE.get(instruction.name)
    inexact = any(part in _NOT_EXACT for part in instruction.parts)
    if found is None or (inexact and instruction.parts not in _APPROXIMATE):
        raise CompileError(f"cuda:sim: {instruction.text}: this instruction is not simulated")
    return found


def names(*names: str) -> Callable[[Semantics], Semantics]:
    """Puts a function into the table, as what instructions of these names do."""

    def add(function: Semantics) -> Semantics:
        TABLE.update(dict.fromkeys(names, function))
        return function

    return add


def _values(t: Threads, i: Instruction, lanes: Lanes, dtype: np.dtype | None = None) -> list[np.ndarray]:
    """The operands after the first, as the instruction's type."""
    return [t.read(operand, dtype or i.dtype, lanes) for operand in i.operands[1:]]


@cache
def vector(operand: str) -> tuple[str, ...]:
    """The registers of an operand: one, or those in braces."""
    return tuple(re.findall(r"[^{},\s]+", operand))


# ---- moves and memory


@names("mov")
def _mov(t: Threads, i: Instruction, lanes: Lanes) -> None:
    to, source = i.operands
    if to[0] == "{" or source[0] == "{":
        _repack(t, i, lanes)
    else:
        t.write(to, t.read(source, i.dtype, lanes), lanes)


def _repack(t: Threads, i: Instruction, lanes: Lanes) -> None:
    """A register as its parts, or parts as one."""
    to, source = i.operands
    parts = vector(to if to[0] == "{" else source)
    part = np.dtype(f"u{i.dtype.itemsize // len(parts)}")
    if to[0] == "{":
        value = np.broadcast_to(t.read(source, i.dtype, lanes), (t.number(lanes),))
        for k, name in enumerate(parts):
            t.write(name, (value >> i.dtype.type(8 * part.itemsize * k)).astype(part), lanes)
        return
    whole = np.zeros(t.number(lanes), i.dtype)
    for k, name in enumerate(parts):
        whole |= t.read(name, part, lanes).astype(i.dtype) << i.dtype.type(8 * part.itemsize * k)
    t.write(to, whole, lanes)


@names("cvta")
def _cvta(t: Threads, i: Instruction, lanes: Lanes) -> None:
    """An address of one kind of memory is the same number as a generic one: only those of a kind are accessed."""
    t.write(i.operands[0], t.read(i.operands[1], i.dtype, lanes), lanes)


def _space(i: Instruction) -> str:
    found = next((part for part in i.parts if part in ("param", "global", "const", "shared", "local")), None)
    if found is None:
        raise CompileError(f"cuda:sim: {i.text}: an access through a generic address is not simulated")
    return found


def _own(t: Threads, space: str, lanes: Lanes) -> tuple[Region, np.ndarray]:
    """The shared memory of blocks, or the local one of threads, and the owner of each thread's."""
    if space == "shared":
        return t.shared, t.local_block[lanes]
    return t.local, np.arange(t.count)[lanes]


def _components(i: Instruction, operand: str, address: np.ndarray) -> tuple[str, ...]:
    names = vector(operand)
    if (address % (i.dtype.itemsize * len(names))).any():
        raise SimulatorError(f"cuda:sim: {i.text}: an address is no multiple of {i.dtype.itemsize * len(names)}")
    return names


@names("ld")
def _ld(t: Threads, i: Instruction, lanes: Lanes) -> None:
    to, source = i.operands
    space = _space(i)
    if space == "param":
        t.write(to, t.parameters[source[1:-1]].astype(i.dtype), lanes)
        return
    address, access = t.address(source, lanes), t.access(i.text, lanes)
    for k, name in enumerate(_components(i, to, address)):
        at = address + k * i.dtype.itemsize
        if space in ("global", "const"):
            value = t.memory.load(at, i.dtype, access)
        else:
            region, owner = _own(t, space, lanes)
            value = region.load(at, owner, i.dtype, access)
        t.write(name, value, lanes)


@names("st")
def _st(t: Threads, i: Instruction, lanes: Lanes) -> None:
    target, source = i.operands
    space, address, access = _space(i), t.address(target, lanes), t.access(i.text, lanes)
    for k, name in enumerate(_components(i, source, address)):
        at = address + k * i.dtype.itemsize
        value = np.broadcast_to(t.read(name, i.dtype, lanes), at.shape)
        if space == "global":
            t.memory.store(at, i.dtype, value, access)
        else:
            region, owner = _own(t, space, lanes)
            region.store(at, owner, i.dtype, value, access)


@names("atom", "red")
def _atom(t: Threads, i: Instruction, lanes: Lanes) -> None:
    """Updates that no other thread comes between, one thread after the other."""
    to, target, *values = ["_", *i.operands] if i.name == "red" else i.operands
    how = next((part for part in i.parts if part in _UPDATES), None)
    if how is None or not {"global", "shared"} & {*i.parts}:
        raise CompileError(f"cuda:sim: {i.text}: this atomic update is not simulated")
    address, before = t.address(target, lanes), np.zeros(t.number(lanes), i.dtype)
    value, alone = np.broadcast_to(t.read(values[0], i.dtype, lanes), address.shape), Access(i.text, None)
    for k in range(address.size):
        at, one = address[k : k + 1], slice(k, k + 1)
        if "shared" in i.parts:
            region, owner = _own(t, "shared", lanes)
            before[one] = region.load(at, owner[one], i.dtype, alone)
            region.store(at, owner[one], i.dtype, _UPDATES[how](before[one], value[one]), alone)
        else:
            before[one] = t.memory.load(at, i.dtype, alone)
            t.memory.store(at, i.dtype, _UPDATES[how](before[one], value[one]), alone)
    t.write(to, before, lanes)


# ---- arithmetic


@names("add", "sub")
def _add(t: Threads, i: Instruction, lanes: Lanes) -> None:
    x, y = _values(t, i, lanes)
    t.write(i.operands[0], x + y if i.name == "add" else x - y, lanes)


@names("mul", "mad")
def _mul(t: Threads, i: Instruction, lanes: Lanes) -> None:
    dtype = i.dtype
    x, y = (t.read(operand, dtype, lanes) for operand in i.operands[1:3])
    if "wide" in i.parts:
        dtype = np.dtype(f"{dtype.kind}{2 * dtype.itemsize}")
        found = x.astype(dtype) * y.astype(dtype)
    else:
        found = arithmetic.high_product(x, y) if "hi" in i.parts else x * y
    if i.name == "mad":
        found = found + t.read(i.operands[3], dtype, lanes)
    t.write(i.operands[0], found, lanes)


@names("fma")
def _fma(t: Threads, i: Instruction, lanes: Lanes) -> None:
    if i.parts[1] not in ("rn", "rz"):
        raise CompileError(f"cuda:sim: {i.text}: this rounding is not simulated")
    x, y, z = _values(t, i, lanes)
    t.write(i.operands[0], arithmetic.fma(x, y, z, i.parts[1] == "rz"), lanes)


@names("div", "rem")
def _div(t: Threads, i: Instruction, lanes: Lanes) -> None:
    x, y = _values(t, i, lanes)
    if i.dtype.kind == "f":
        t.write(i.operands[0], x / y, lanes)
    else:
        t.write(i.operands[0], arithmetic.truncated_division(x, y)[i.name == "rem"], lanes)


@names("rcp")
def _rcp(t: Threads, i: Instruction, lanes: Lanes) -> None:
    (x,) = _values(t, i, lanes)
    t.write(i.operands[0], i.dtype.type(1) / x, lanes)


@names("ex2")
def _ex2(t: Threads, i: Instruction, lanes: Lanes) -> None:
    (x,) = _values(t, i, lanes)
    found = np.exp2(x.astype(np.float64)).astype(i.dtype)
    t.write(i.operands[0], np.where(found < np.finfo(i.dtype).tiny, i.dtype.type(0), found), lanes)


@names("sqrt", "neg", "abs")
def _one_operand(t: Threads, i: Instruction, lanes: Lanes) -> None:
    (x,) = _values(t, i, lanes)
    function = {"sqrt": np.sqrt, "neg": np.negative, "abs": np.abs}[i.name]
    t.write(i.operands[0], function(x), lanes)


@names("min", "max")
def _extreme(t: Threads, i: Instruction, lanes: Lanes) -> None:
    x, y = _values(t, i, lanes)
    smaller = i.name == "min"
    if i.dtype.kind != "f":
        found = np.minimum(x, y) if smaller else np.maximum(x, y)
    else:  # of two zeros the one with the sign is the smaller
        with_nan, without = (np.minimum, np.fmin) if smaller else (np.maximum, np.fmax)
        found = (with_nan if "NaN" in i.parts else without)(x, y)
        zeros = (x == 0) & (y == 0)
        found = np.where(zeros, np.where(np.signbit(x) == smaller, x, y), found)
    t.write(i.operands[0], found, lanes)


@names("copysign")
def _copysign(t: Threads, i: Instruction, lanes: Lanes) -> None:
    sign, magnitude = _values(t, i, lanes)
    t.write(i.operands[0], np.copysign(magnitude, sign), lanes)


@names("cvt")
def _cvt(t: Threads, i: Instruction, lanes: Lanes) -> None:
    if i.parts[1:] in (("f32", "f16"), ("rna", "tf32", "f32")):
        _cvt_of_tensor_cores(t, i, lanes)
        return
    if i.parts[1] == "rn" and i.parts[2] in ("f16", "bf16", "f16x2", "bf16x2"):
        _cvt_to_narrow(t, i, lanes)
        return
    to = DTYPES.get(i.parts[-2])
    if to is None or (to.kind == "f" and i.dtype == np.float64 and to == np.float32 and "rn" not in i.parts):
        raise CompileError(f"cuda:sim: {i.text}: this conversion is not simulated")
    (x,) = _values(t, i, lanes)
    t.write(i.operands[0], arithmetic.convert(x, to, i.parts), lanes)


def _cvt_of_tensor_cores(t: Threads, i: Instruction, lanes: Lanes) -> None:
    """float16 as float32, or float32 as the nearest number of tf32, of two the one further from zero."""
    if i.parts[-1] == "f16":
        t.write(i.operands[0], t.read(i.operands[1], np.dtype("u2"), lanes).view("f2").astype("f4"), lanes)
        return
    bits = t.read(i.operands[1], _U32, lanes)
    nearest = (bits + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    t.write(i.operands[0], np.where(is_nan, np.uint32(0x7FFFFFFF), nearest), lanes)


def _cvt_to_narrow(t: Threads, i: Instruction, lanes: Lanes) -> None:
    """float32 as the nearest float16 or bfloat16; two of these fill a word, the second the lower half of it."""
    found = [arithmetic.narrowed(t.read(x, np.dtype("f4"), lanes), i.parts[2]) for x in i.operands[1:]]
    if len(found) == 2:
        found = [(found[0].astype(np.uint32) << np.uint32(16)) | found[1]]
    t.write(i.operands[0], found[0], lanes)


# ---- bits


@names("and", "or", "xor")
def _logic(t: Threads, i: Instruction, lanes: Lanes) -> None:
    x, y = _values(t, i, lanes)
    t.write(i.operands[0], _SIGNS[i.name](x, y), lanes)


@names("not")
def _not(t: Threads, i: Instruction, lanes: Lanes) -> None:
    (x,) = _values(t, i, lanes)
    t.write(i.operands[0], ~x, lanes)


@names("shl", "shr")
def _shift(t: Threads, i: Instruction, lanes: Lanes) -> None:
    x, amount = t.read(i.operands[1], i.dtype, lanes), t.read(i.operands[2], _U32, lanes)
    t.write(i.operands[0], arithmetic.shifted(i.name, x, amount), lanes)


@names("shf")
def _funnel(t: Threads, i: Instruction, lanes: Lanes) -> None:
    """The upper or lower word of two that are shifted together."""
    low, high, amount = (t.read(operand, _U32, lanes).astype(np.uint64) for operand in i.operands[1:])
    amount = amount & np.uint64(31) if "wrap" in i.parts else np.minimum(amount, np.uint64(32))
    both = (high << np.uint64(32)) | low
    found = (both << amount) >> np.uint64(32) if "l" in i.parts else both >> amount
    t.write(i.operands[0], found.astype(np.uint32), lanes)


@names("prmt")
def _permute(t: Threads, i: Instruction, lanes: Lanes) -> None:
    """Four bytes of eight, or their signs."""
    low, high, selector = (t.read(operand, _U32, lanes).astype(np.uint64) for operand in i.operands[1:])
    both, found = (high << np.uint64(32)) | low, np.zeros(t.number(lanes), np.uint64)
    for k in range(4):
        pick = (selector >> np.uint64(4 * k)) & np.uint64(15)
        byte = (both >> ((pick & np.uint64(7)) * np.uint64(8))) & np.uint64(255)
        signs = np.where(byte >> np.uint64(7) != 0, np.uint64(255), np.uint64(0))
        found |= np.where(pick & np.uint64(8) != 0, signs, byte) << np.uint64(8 * k)
    t.write(i.operands[0], found.astype(np.uint32), lanes)


@names("bfi")
def _insert(t: Threads, i: Instruction, lanes: Lanes) -> None:
    """The low bits of one word in the place of some of another's."""
    x, y = (t.read(operand, i.dtype, lanes) for operand in i.operands[1:3])
    first, length = (int(operand) for operand in i.operands[3:])
    mask = i.dtype.type((1 << length) - 1 << first)
    t.write(i.operands[0], (y & ~mask) | ((x << i.dtype.type(first)) & mask), lanes)


@names("popc", "clz", "brev")
def _count(t: Threads, i: Instruction, lanes: Lanes) -> None:
    (x,) = _values(t, i, lanes)
    bits = 8 * i.dtype.itemsize
    places = (x[..., None] >> np.arange(bits, dtype=i.dtype)) & i.dtype.type(1)
    if i.name == "popc":
        found = places.sum(-1).astype(np.uint32)
    elif i.name == "clz":
        found = np.where(x == 0, bits, places[..., ::-1].argmax(-1)).astype(np.uint32)
    else:
        found = (places[..., ::-1] << np.arange(bits, dtype=i.dtype)).sum(-1, dtype=i.dtype)
    t.write(i.operands[0], found, lanes)


# ---- comparison and choice


@names("setp")
def _setp(t: Threads, i: Instruction, lanes: Lanes) -> None:
    x, y = (t.read(operand, i.dtype, lanes) for operand in i.operands[1:3])
    found = arithmetic.compare(i.parts[1], x, y)
    if i.parts[2] in _SIGNS:
        found = _SIGNS[i.parts[2]](found, t.read(i.operands[3], _PRED, lanes))
    if "|" in i.operands[0]:
        raise CompileError(f"cuda:sim: {i.text}: two results are not simulated")
    t.write(i.operands[0], found, lanes)


@names("selp")
def _selp(t: Threads, i: Instruction, lanes: Lanes) -> None:
    x, y = (t.read(operand, i.dtype, lanes) for operand in i.operands[1:3])
    t.write(i.operands[0], np.where(t.read(i.operands[3], _PRED, lanes), x, y), lanes)


# ---- between the lanes of a warp


@names("shfl")
def _shfl(t: Threads, i: Instruction, lanes: Lanes) -> None:
    """Each lane gets the value of another one, which has to be here as well."""
    to, _, inside = i.operands[0].partition("|")
    value, by, clamp, mask = (
        np.broadcast_to(t.read(operand, _U32, lanes), (t.number(lanes),)) for operand in i.operands[1:]
    )
    warp, lane = t.warp[lanes], t.lane[lanes]
    held, here, exists = np.zeros((t.warps, WARP), np.uint32), *(np.zeros((t.warps, WARP), np.bool_) for _ in range(2))
    held[warp, lane], here[warp, lane], exists[t.warp, t.lane] = value, True, True
    named = (mask[:, None] >> np.arange(WARP, dtype=np.uint32)) & 1 != 0
    if (named & ~here[warp]).any():
        raise SimulatorError(f"cuda:sim: {i.text}: lanes that its mask names are not at this instruction")
    by, clamp = by.astype(np.int64), clamp.astype(np.int64)
    segment = (clamp >> 8) & 31
    last = (lane & segment) | (clamp & 31 & ~segment)
    source = {"down": lane + by, "up": lane - by, "bfly": lane ^ by, "idx": (lane & segment) | (by & ~segment & 31)}
    at = source[i.parts[2]]
    valid = at >= last if i.parts[2] == "up" else at <= last
    t.write(to, held[warp, np.where(valid, at, lane) & 31], lanes)
    if inside:
        t.write(inside, valid, lanes)


@names("vote")
def _vote(t: Threads, i: Instruction, lanes: Lanes) -> None:
    """The vote of the lanes that a mask names, all of which have to be here: whether any holds, or a bit for each."""
    if i.parts[1:] not in (("sync", "any", "pred"), ("sync", "ballot", "b32")):
        raise CompileError(f"cuda:sim: {i.text}: this vote is not simulated")
    to, condition, mask = i.operands
    holds = np.broadcast_to(t.read(condition, _PRED, lanes), (t.number(lanes),))
    named = (np.broadcast_to(t.read(mask, _U32, lanes), holds.shape)[:, None] >> np.arange(WARP, dtype=_U32)) & 1 != 0
    warp, lane = t.warp[lanes], t.lane[lanes]
    here, bits = np.zeros((t.warps, WARP), np.bool_), np.zeros((t.warps, WARP), np.uint32)
    here[warp, lane] = True
    if (named & ~here[warp]).any():
        raise SimulatorError(f"cuda:sim: {i.text}: lanes that its mask names are not at this instruction")
    bits[warp, lane] = holds.astype(np.uint32) << lane.astype(np.uint32)
    found = bits.sum(-1, dtype=np.uint32)[warp]
    t.write(to, found if i.parts[2] == "ballot" else found != 0, lanes)

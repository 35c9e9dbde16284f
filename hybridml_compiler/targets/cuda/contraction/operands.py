"""Operands of a contraction on their way from global to shared memory, as the text of a device function for each."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .... import dtypes
from ....record import record
from ..emit.types import c_type
from .contraction import Addresses, Digit, Inside, digit_of, joined, offset

_BYTES = 16  # that a thread copies at once, at most
_TURNS = 8  # copies by a thread that are unrolled: the addresses of more, kept from tile to tile, take all registers
_LANES = 32
_UNITS = (16, 8, 4)  # bytes that the hardware copies asynchronously; narrower elements pass through registers


@record
class Operand:
    """One side of a contraction, in tiles of `rows` by `steps`.

    A tile is in shared memory with its rows along the first axis, or, where `by_depth`, its steps.
    """

    name: str
    where: Addresses
    stored: np.dtype
    value: np.dtype  # in the tile
    is_deep: bool  # whether neighbouring threads copy neighbouring steps, rather than rows
    width: int  # elements that are copied at once
    rows: int
    steps: int
    pitch: int  # elements from one line of the tile to the next
    by_depth: bool

    @property
    def lines(self) -> int:
        return self.steps if self.by_depth else self.rows

    @property
    def nbytes(self) -> int:
        """Bytes of a tile in shared memory."""
        return self.lines * self.pitch * self.value.itemsize

    @property
    def is_asynchronous(self) -> bool:
        return self.stored is self.value and self.width * self.stored.itemsize in _UNITS

    @property
    def array(self) -> str:
        """The type of a tile, which `load` is given."""
        return f"{c_type(self.value)} (*tile)[{self.pitch}]"


def operand(name: str, where: Addresses, stored: np.dtype, value: np.dtype, rows: int, steps: int, tensor: str,
            wide: bool) -> Operand:  # fmt: skip
    """The operand of a tile of so many rows and steps."""
    deep = _neighbours(where.steps) >= _neighbours(where.rows)
    by_depth = not deep or not tensor  # tensor cores read rows of either axis, threads columns
    scattered = stored is not value or (deep and by_depth)  # each element is converted, or goes to another line
    width = 1 if scattered or not wide else _width(where, deep, stored.itemsize, steps if deep else rows)
    # Sixteen bytes more spread the lines of a tile over the banks of shared memory; of tf32 columns 32.
    pad = _BYTES // value.itemsize * (2 if tensor == "tf32" and not deep else 1)
    return Operand(name, where, stored, value, deep, width, rows, steps, (rows if by_depth else steps) + pad, by_depth)


def _neighbours(digits: Sequence[Digit]) -> float:
    """The number of elements of an index that a warp finds side by side, or as many of those as a stride leaves."""
    run = joined(digits)
    return min(run[-1].extent, _LANES) / max(abs(run[-1].stride), 1) if run else 0


def _width(where: Addresses, deep: bool, itemsize: int, tile: int) -> int:
    """The number of neighbours that are copied at once: they begin at a multiple of it in memory, and are all inside of
    the image or all outside."""
    digits = where.steps if deep else where.rows
    last, number = digits[-1], len(digits) - 1
    if last.stride != 1 or any((i.digit if deep else i.row) == number for i in where.inside):
        return 1
    others = [d.stride for d in (*where.batch, *where.rows, *where.steps) if d is not last and d.extent > 1]
    together = math.gcd(where.offset, *others, last.extent, tile) * itemsize
    return max(math.gcd(_BYTES, together) // itemsize, 1)


def load_function(side: Operand, threads: int) -> str:
    """`load_a(tile, from, first_row, first_step)` copies a tile of a matrix; what is outside of that is zero."""
    where = side.where
    line, at = ("row", "step") if side.is_deep else ("step", "row")
    inner = (side.steps if side.is_deep else side.rows) // side.width
    count = side.rows * side.steps // side.width
    turns = -(-count // threads)
    lines_of = where.rows if side.is_deep else where.steps
    # Turns an even number of lines apart: one address and constants, rather than an address of each in registers.
    apart = threads // inner if threads % inner == 0 and len(lines_of) == 1 and not where.inside else 0
    further = f" + turn * {apart}" if apart and turns > 1 else ""
    row, step = ("row" + further, "step") if side.is_deep else ("row", "step" + further)
    i, k = (f"i{further}", "k") if side.is_deep else ("i", f"k{further}")
    guards = [f"{i} < {where.size}"] * (where.size % side.rows != 0) + [f"{k} < {where.depth}"] * (
        where.depth % side.steps != 0
    )
    guards += [_inside(where, condition) for condition in where.inside]
    exists = " && ".join(guards) or "true"
    element = "from + " + (" + ".join(filter(None, (offset("i", where.rows), offset("k", where.steps)))) or "0")
    place = f"threadIdx.x{f' + turn * {threads}' if turns > 1 and not apart else ''}"
    where_lines = [
        f"const int place = {place};",
        f"const int {line} = place / {inner}, {at} = place % {inner}{f' * {side.width}' if side.width > 1 else ''};",
        "const int i = first_row + row, k = first_step + step;",
    ]
    if apart:
        where_lines.append(f"const {c_type(side.stored)}* const first = {element};")
        element = f"first{f' + turn * {apart * lines_of[0].stride}LL' if further else ''}"
    to = f"tile[{step if side.by_depth else row}][{row if side.by_depth else step}]"
    if side.is_asynchronous:
        copy = f"copy_{side.width * side.stored.itemsize}(&{to}, {element}, {exists});"
    else:
        value = _converted(f"*({element})", side.stored, side.value)
        copy = f"{to} = {value};" if exists == "true" else f"{to} = {exists} ? {value} : 0;"
    turn = [copy] if apart else [*where_lines, copy]
    if count % threads:
        last = f"place{f' + turn * {threads}' if apart and turns > 1 else ''}"
        turn = [*turn[:-1], f"if ({last} < {count}) {{", f"  {copy}", "}"]
    if turns > 1:
        unrolled = "#pragma unroll" if turns <= _TURNS else f"#pragma unroll {_TURNS}"
        turn = [unrolled, f"for (int turn = 0; turn < {turns}; ++turn) {{", *(f"  {x}" for x in turn), "}"]
    body = [*where_lines, *turn] if apart else turn
    given = f"{side.array}, const {c_type(side.stored)}* from, int first_row, int first_step"
    head = f"static __device__ __forceinline__ void load_{side.name}({given}) {{"
    return "\n".join([head, *(f"  {text}" for text in body), "}\n"])


def _inside(where: Addresses, condition: Inside) -> str:
    """Whether a coordinate is in the image: a negative one is a large number without a sign."""
    row, step = digit_of("i", where.rows, condition.row), digit_of("k", where.steps, condition.digit)
    start = f" + {condition.start}" if condition.start > 0 else f" - {-condition.start}" if condition.start else ""
    position = f"{_times(row, condition.row_step)} + {_times(step, condition.step)}{start}"
    return f"(unsigned int)({position}) < {condition.extent}u"


def _times(text: str, factor: int) -> str:
    return text if factor == 1 else f"{text} * {factor}"


def _converted(text: str, stored: np.dtype, value: np.dtype) -> str:
    """An element in memory as a value of the product."""
    if stored is value:
        return text
    if stored.name == "bfloat16":
        return f"__uint_as_float((unsigned int){text} << 16)"
    if stored is dtypes.float16:
        return f"half_to_float({text})"
    return f"({c_type(value)}){text}"


COPY = {
    f"copy_{size}": f"""\
static __device__ __forceinline__ void copy_{size}(void* to, const void* from, bool exists) {{
  asm volatile("cp.async.{"cg" if size == 16 else "ca"}.shared.global [%0], [%1], {size}, %2;"
               :: "r"((unsigned int)__cvta_generic_to_shared(to)), "l"(from), "r"(exists ? {size} : 0) : "memory");
}}
"""
    for size in _UNITS
}
HALF = """\
static __device__ __forceinline__ float half_to_float(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
"""

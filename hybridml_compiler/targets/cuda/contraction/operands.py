"""Operands of a product on their way from global to shared memory, as the text of a device function for each."""

from __future__ import annotations

import math

import numpy as np

from .... import dtypes
from ....record import record
from ....schedule.kernels.gemm import Matrix
from ..emit.types import c_type

_BYTES = 16  # that a thread copies at once, at most
_UNITS = (16, 8, 4)  # bytes that the hardware copies asynchronously; narrower elements pass through registers


@record
class Operand:
    """One side of a product: `size` rows of a, or columns of b, each `depth` long, in tiles of `rows` by `steps`.

    A tile is in shared memory as it is in global memory, or, where `by_depth`, with k along its first axis.
    """

    name: str
    stored: np.dtype
    value: np.dtype  # in the tile
    size: int
    depth: int
    along: int  # stride of rows
    down: int  # stride of k
    width: int  # elements that are copied at once
    rows: int
    steps: int
    pitch: int  # elements from one row of the tile to the next
    by_depth: bool

    @property
    def is_deep(self) -> bool:
        """Whether neighbours in k are neighbours in memory."""
        return self.down == 1

    @property
    def lines(self) -> int:
        return self.steps if self.by_depth else self.rows

    @property
    def nbytes(self) -> int:
        """Bytes of a tile."""
        return self.lines * self.pitch * self.value.itemsize

    @property
    def is_asynchronous(self) -> bool:
        return self.stored is self.value and self.width * self.stored.itemsize in _UNITS

    @property
    def array(self) -> str:
        """The type of a tile, which `load` is given."""
        return f"{c_type(self.value)} (*tile)[{self.pitch}]"


def operand(name: str, matrix: Matrix, size: int, depth: int, stored: np.dtype, value: np.dtype, rows: int,
            steps: int, tensor: str, wide: bool) -> Operand:  # fmt: skip
    """The operand of a tile of so many rows and steps; `matrix` has its rows (columns of b) along its rows."""
    deep = matrix.column == 1
    by_depth = not deep or not tensor  # tensor cores read rows of either axis, threads columns
    inner, step = (depth, steps) if deep else (size, rows)
    scattered = stored is not value or (deep and by_depth)  # each element is converted, or goes to another row
    together = math.gcd(matrix.offset, *matrix.batch, matrix.leading, inner, step) * stored.itemsize
    width = 1 if scattered or not wide else max(math.gcd(_BYTES, together) // stored.itemsize, 1)
    # Sixteen bytes more spread the rows of a tile over the banks of shared memory; of tf32 columns 32.
    pad = _BYTES // value.itemsize * (2 if tensor == "tf32" and not deep else 1)
    return Operand(name, stored, value, size, depth, matrix.row, matrix.column, width, rows, steps,
                   (rows if by_depth else steps) + pad, by_depth)  # fmt: skip


def load_function(side: Operand, threads: int) -> str:
    """`load_a(tile, from, rows, depth)` copies a tile, of which so many rows and steps in k exist; others are zero."""
    row, step = ("line", "at") if side.is_deep else ("at", "line")
    inner = (side.steps if side.is_deep else side.rows) // side.width
    count = side.rows * side.steps // side.width
    guards = [f"{row} < rows"] * (side.size % side.rows != 0) + [f"{step} < depth"] * (side.depth % side.steps != 0)
    exists = " && ".join(guards) or "true"
    stride = side.along if side.is_deep else side.down
    to = f"tile[{step}][{row}]" if side.by_depth else f"tile[{row}][{step}]"
    source = f"from + line * {stride}LL + at"
    if side.is_asynchronous:
        copy = f"copy_{side.width * side.stored.itemsize}(&{to}, {source}, {exists});"
    else:
        copy = f"{to} = {exists} ? {_converted(f'from[line * {stride}LL + at]', side.stored, side.value)} : 0;"
        copy = copy.replace("true ? ", "").replace(" : 0;", ";") if exists == "true" else copy
    at = f"threadIdx.x + turn * {threads}" if count > threads else "threadIdx.x"
    lines = [
        f"const int line = place / {inner}, at = place % {inner}{f' * {side.width}' if side.width > 1 else ''};",
        copy,
    ]
    if count % threads:
        lines = [f"if (place < {count}) {{", *(f"  {line}" for line in lines), "}"]
    turns = -(-count // threads)
    body = [f"const int place = {at};", *lines]
    if turns > 1:
        body = ["#pragma unroll", f"for (int turn = 0; turn < {turns}; ++turn) {{", *(f"  {b}" for b in body), "}"]
    head = f"void load_{side.name}({side.array}, const {c_type(side.stored)}* from, int rows, int depth) {{"
    return "\n".join([f"static __device__ __forceinline__ {head}", *(f"  {line}" for line in body), "}\n"])


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

"""The multiplication of two tiles in shared memory, by threads or by the tensor cores of warps: text of CUDA C.

The fragments of a warp's matrices are those of the PTX ISA: of m16n8k16 (f16, bf16), as `ldmatrix` reads them from rows
of either axis, and of m16n8k8 (tf32), of which each lane loads its own elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from .... import dtypes
from ....record import record
from ..emit.types import c_type
from .operands import Operand
from .tiles import Tile

_UNROLLED = 2  # steps of k
_GROUP = 4  # neighbours in memory that are one thread's
_BESIDE = 8  # threads of a warp side by side: with four below each other they read the least of both operands
_MATRIX = (16, 8)  # rows and columns of the result of a tensor core's instruction


@record
class Multiplication:
    """Lines of a kernel. `keep` stores the fragments FIRST to LAST of the sums to `sums_tile`, `scale` multiplies rows
    of the sums by their factors."""

    functions: Sequence[str]
    setup: Sequence[str]
    sums: Sequence[str]
    step: Sequence[str]
    scale: Sequence[str]
    keep: Sequence[str]
    gather: Sequence[str]  # adds the sums of all slices to those of the first
    fragments: int  # groups of rows of the sums of a thread or warp
    pad: int  # columns between rows of sums in shared memory that spread them over its banks


def multiplication(dtype: np.dtype, tile: Tile, a: Operand, b: Operand) -> Multiplication:
    """The multiplication of tiles of these operands."""
    return _by_warps(tile, a, b) if tile.tensor else _by_threads(dtype, tile)


def _by_threads(dtype: np.dtype, tile: Tile) -> Multiplication:
    (rows, columns), kind = tile.own, c_type(dtype)
    high, wide = math.gcd(_GROUP, rows), math.gcd(_GROUP, columns)
    beside = min(_BESIDE, tile.across)
    thread, slice = _thread(tile)
    if dtype.kind == "f":
        product = f"{'fmaf' if dtype is dtypes.float32 else 'fma'}(x[i], y[j], sums[i][j])"
    else:
        product = "(int)((unsigned int)sums[i][j] + (unsigned int)x[i] * (unsigned int)y[j])"  # wraps
    return Multiplication(
        [_FRAGMENT.format(kind=kind)],
        [f"const int thread_row = {thread} / {beside} % {tile.down} * {high}, "
         f"thread_column = ({thread} % {beside} + {thread} / {beside * tile.down} * {beside}) * {wide};"],
        [f"{kind} sums[{rows}][{columns}] = {{}};"],
        _steps(tile, dtype, product),
        [
            "#pragma unroll",
            f"for (int i = 0; i < {rows}; ++i)",
            "  #pragma unroll",
            f"  for (int j = 0; j < {columns}; ++j)",
            f"    sums[i][j] *= factors[i / {high} * {high * tile.down} + thread_row + i % {high}];",
        ],
        [
            *([f"if ({slice} == 0)"] if tile.slices > 1 else []),
            "#pragma unroll",
            f"for (int i = FIRST * {high}; i < LAST * {high}; ++i)",
            "  #pragma unroll",
            f"  for (int j = 0; j < {columns}; ++j)",
            f"    sums_tile[(i / {high} - FIRST) * {high * tile.down} + thread_row + i % {high}]"
            f"[j / {wide} * {wide * tile.across} + thread_column + j % {wide}] = sums[i][j];",
        ],
        _gathered(kind, tile) if tile.slices > 1 else [],
        rows // high,
        _GROUP if dtype.itemsize == 4 else _GROUP // 2,
    )  # fmt: skip


def _steps(tile: Tile, dtype: np.dtype, product: str) -> list[str]:
    """The lines that multiply the tiles of a stage, by steps of k, each of which reads the operands of the next."""
    (rows, columns), (_, slice), each = tile.own, _thread(tile), tile.depth // tile.slices
    high, wide = math.gcd(_GROUP, rows), math.gcd(_GROUP, columns)
    start, kind = f"{slice} * {each} + " if tile.slices > 1 else "", c_type(dtype)

    def read(name: str, size: int, count: int, k: str, to: str) -> list[str]:
        own, threads = ("x", tile.down) if name == "a" else ("y", tile.across)
        place = f"[stage][{start}{k}][i * {threads} + thread_{'row' if name == 'a' else 'column'}]"
        return [
            "#pragma unroll",
            f"for (int i = 0; i < {size}; i += {count}) "
            f"*(fragment<{count}>*)&{own}{to}[i] = *(const fragment<{count}>*)&{name}_tiles{place};",
        ]

    def fetch(k: str, to: str) -> list[str]:
        return [*read("a", rows, high, k, to), *read("b", columns, wide, k, to)]

    def multiply(at: str) -> list[str]:
        return [
            "#pragma unroll",
            f"for (int i = 0; i < {rows}; ++i)",
            "  #pragma unroll",
            f"  for (int j = 0; j < {columns}; ++j) sums[i][j] = "
            f"{product.replace('x[', f'x{at}[').replace('y[', f'y{at}[')};",
        ]

    body = [*fetch(f"(at + 1) % {each}", "[(at + 1) % 2]"), *multiply("[at % 2]")]
    lines = [
        f"__align__(16) {kind} x[2][{rows}], y[2][{columns}];",
        *fetch("0", "[0]"),
        f"#pragma unroll {_UNROLLED}",
        f"for (int at = 0; at < {each}; ++at) {{",
        *(f"  {line}" for line in body),
        "}",
    ]
    return ["{", *(f"  {line}" for line in lines), "}"]


def _thread(tile: Tile) -> tuple[str, str]:
    """(the number of a thread in its slice, that of the slice)."""
    own = tile.down * tile.across
    return (f"(int)threadIdx.x % {own}" if tile.slices > 1 else "(int)threadIdx.x"), f"(int)threadIdx.x / {own}"


def _gathered(kind: str, tile: Tile) -> list[str]:
    """The lines that add the sums of one slice after the other, through shared memory, to those of the first."""
    (rows, columns), (thread, slice) = tile.own, _thread(tile)
    where = f"shared_sums[(i * {columns} + j) * {tile.down * tile.across} + {thread}]"
    loops = [
        "#pragma unroll",
        f"for (int i = 0; i < {rows}; ++i)",
        "  #pragma unroll",
        f"  for (int j = 0; j < {columns}; ++j)",
    ]
    return [
        f"{kind}* const shared_sums = ({kind}*)shared;",
        "#pragma unroll 1",
        f"for (int other = 1; other < {tile.slices}; ++other) {{",
        "  __syncthreads();",
        f"  if ({slice} == other)",
        *(f"    {line}" for line in [*loops, f"    {where} = sums[i][j];"]),
        "  __syncthreads();",
        f"  if ({slice} == 0)",
        *(f"    {line}" for line in [*loops, f"    sums[i][j] += {where};"]),
        "}",
    ]


# Neighbours that a thread reads at once: round the end of a loop the compiler does not see by itself that they are.
_FRAGMENT = """\
template <int count>
struct __align__(sizeof({kind}) * count < 16 ? sizeof({kind}) * count : 16) fragment {{
  {kind} of[count];
}};
"""
LOAD = """\
static __device__ __forceinline__ void load_matrices{name}(unsigned int* to, const void* from) {{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4{way}.shared.b16 {{%0, %1, %2, %3}}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"((unsigned int)__cvta_generic_to_shared(from)) : "memory");
}}
"""
_TF32 = """\
static __device__ __forceinline__ unsigned int tf32(float value) {
  unsigned int bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}
"""
MULTIPLY = """\
static __device__ __forceinline__ void multiply(float* sums, const unsigned int* x, const unsigned int* y) {{
  asm volatile("mma.sync.aligned.m16n8k{depth}.row.col.f32.{kind}.{kind}.f32 {{%0, %1, %2, %3}}, "
               "{{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}}
"""


def _by_warps(tile: Tile, a: Operand, b: Operand) -> Multiplication:
    rows, columns = (own // size for own, size in zip(tile.own, _MATRIX, strict=True))
    depth = 8 if tile.tensor == "tf32" else 16
    fragments = _own_elements if tile.tensor == "tf32" else _matrices
    functions = [MULTIPLY.format(depth=depth, kind=tile.tensor)]
    if tile.tensor == "tf32":
        functions.append(_TF32)
    else:
        ways = sorted({side.by_depth for side in (a, b)})
        functions += [LOAD.format(name="_turned" * way, way=".trans" * way) for way in ways]
    return Multiplication(
        functions,
        [
            "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;",
            f"const int warp_row = warp / {tile.across} * 16, warp_column = warp % {tile.across} * {tile.own[1]};",
        ],
        [f"float sums[{rows}][{columns}][4] = {{}};"],
        [
            "#pragma unroll",
            f"for (int k = 0; k < {tile.depth}; k += {depth}) {{",
            f"  unsigned int x[{rows}][4], y[{columns}][2];",
            *(f"  {line}" for line in fragments(tile, a, b, rows, columns)),
            "  #pragma unroll",
            f"  for (int i = 0; i < {rows}; ++i)",
            "    #pragma unroll",
            f"    for (int j = 0; j < {columns}; ++j) multiply(sums[i][j], x[i], y[j]);",
            "}",
        ],
        [
            "#pragma unroll",
            f"for (int i = 0; i < {rows}; ++i)",
            "  #pragma unroll",
            f"  for (int j = 0; j < {columns}; ++j)",
            "    #pragma unroll",
            "    for (int c = 0; c < 4; ++c)",
            f"      sums[i][j][c] *= factors[i * {16 * tile.down} + warp_row + lane / 4 + c / 2 * 8];",
        ],
        [
            "#pragma unroll",
            "for (int i = FIRST; i < LAST; ++i)",
            "  #pragma unroll",
            f"  for (int j = 0; j < {columns}; ++j)",
            "    #pragma unroll",
            "    for (int c = 0; c < 4; ++c)",
            f"      sums_tile[(i - FIRST) * {16 * tile.down} + warp_row + lane / 4 + c / 2 * 8]"
            "[warp_column + j * 8 + lane % 4 * 2 + c % 2] = sums[i][j][c];",
        ],
        [],
        rows,
        8,
    )


def _matrices(tile: Tile, a: Operand, b: Operand, rows: int, columns: int) -> list[str]:
    """Fragments as four matrices of 8x8 at a time, to which each lane gives the address of a row."""
    # The four of a are rows by k: (0, 0), (8, 0), (0, 8), (8, 8); those of b two fragments of columns by k.
    row, step = f"i * {16 * tile.down} + warp_row", "k"
    if a.by_depth:
        x = f"a_tiles[stage][{step} + lane / 16 * 8 + lane % 8][{row} + lane / 8 % 2 * 8]"
    else:
        x = f"a_tiles[stage][{row} + lane % 16][{step} + lane / 16 * 8]"
    if b.by_depth:
        y = f"b_tiles[stage][{step} + lane % 16][warp_column + j * 8 + lane / 16 * 8]"
    else:
        y = f"b_tiles[stage][warp_column + j * 8 + lane / 16 * 8 + lane % 8][{step} + lane / 8 % 2 * 8]"
    return [
        "#pragma unroll",
        f"for (int i = 0; i < {rows}; ++i) load_matrices{'_turned' * a.by_depth}(x[i], &{x});",
        "#pragma unroll",
        f"for (int j = 0; j < {columns}; j += 2) load_matrices{'_turned' * b.by_depth}(y[j], &{y});",
    ]


def _own_elements(tile: Tile, a: Operand, b: Operand, rows: int, columns: int) -> list[str]:
    """Fragments element by element: those of a lane are its quad's row and its own column of four."""
    row, x_step = f"i * {16 * tile.down} + warp_row + lane / 4 + e % 2 * 8", "k + lane % 4 + e / 2 * 4"
    column, y_step = "warp_column + j * 8 + lane / 4", "k + lane % 4 + e * 4"
    x = f"[{x_step}][{row}]" if a.by_depth else f"[{row}][{x_step}]"
    y = f"[{y_step}][{column}]" if b.by_depth else f"[{column}][{y_step}]"
    return [
        "#pragma unroll",
        f"for (int i = 0; i < {rows}; ++i)",
        "  #pragma unroll",
        f"  for (int e = 0; e < 4; ++e) x[i][e] = tf32(a_tiles[stage]{x});",
        "#pragma unroll",
        f"for (int j = 0; j < {columns}; ++j)",
        "  #pragma unroll",
        f"  for (int e = 0; e < 2; ++e) y[j][e] = tf32(b_tiles[stage]{y});",
    ]


def renamed(lines: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """The lines of a multiplication with other names of its tiles, sums and places."""
    made = []
    for line in lines:
        for old, new in names.items():
            line = line.replace(old, new)
        made.append(line)
    return made

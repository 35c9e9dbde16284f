"""Blocking of a product of few rows with a transposed B: its columns are rows in memory, read along k. Numbers only.

A tile is some rows of A by some rows of B, each pair a dot product of its own. It is summed up in `SUMS` partial sums,
element k in number k % SUMS, which are then added in halves (k and k + 8, k and k + 4, ...): so many whatever the width
of a vector, so that the bits of the result depend on k alone.
"""

from __future__ import annotations

from .... import dtypes
from ....record import record
from ....schedule import cost
from ....schedule.kernels.gemm import Product

SUMS = 16  # float32 in the widest vector; two vectors with AVX2, four with NEON
MAX_COLUMNS = 8
# Adding up the partial sums takes as long as so many steps for every row (8x2048x64: 76, 65 and 24 GF/s against a
# product that packs B, and OpenBLAS; 8x2048x32: 56, 62 and 21).
STEPS_A_ROW = 8
# Smaller ones are left to BLAS, and need not be compiled (8x64x64: 0.7 us against 1.0).
MIN_SIZE = 1 << 16
# Rows of B are fetched a tile ahead where they come from memory (1x4096x4096: 25 -> 29 GB/s; 1x1024x1024: 77 -> 60).
FAR_BYTES = 1 << 23
UNITS_A_CORE = 4  # for cores that are not equally fast, or not ours alone


@record
class Gemv:
    lanes: int
    rows: int  # of the larger tiles; the others have one fewer
    large: int  # how many tiles of rows are larger; they come first
    tiles: int  # of rows
    columns: int  # of a tile, a power of two
    blocks: int  # of columns: units of a matrix
    block: int  # columns of all blocks but the last, which takes the remaining ones as well
    far: bool  # B comes from memory


def dots_of(product: Product, vector_bytes: int, registers: int, cores: int) -> Gemv | None:
    """The blocking; None where the operands are not contiguous along k, or another product is as fast."""
    along = product.a.column == 1 and product.b.row == 1 and product.n > 1
    size = product.matrices * product.m * product.n * product.k
    if not along or product.dtype is not dtypes.float32 or product.stored is not None or size < MIN_SIZE:
        return None
    if product.m > cost.UNPACKED_ROWS or product.k < max(SUMS, STEPS_A_ROW * product.m):
        return None
    lanes = vector_bytes // product.dtype.itemsize
    shapes = [(rows, columns) for rows in (1, 2, 3, 4) for columns in (1, 2, 4, MAX_COLUMNS)]
    fitting = [
        (rows, columns)  # sums, and vectors of A and of one row of B
        for rows, columns in shapes
        if rows <= product.m and columns <= product.n and SUMS // lanes * rows * columns + rows + 1 <= registers
    ]
    rows, columns = min(fitting, key=lambda shape: _loads(product.m, *shape))
    tiles = -(-product.m // rows)
    wanted = -(-UNITS_A_CORE * cores // product.matrices)
    if product.flops * cost.FLOP_NS <= cost.PARALLEL_THRESHOLD_NS:
        wanted = 1
    groups = product.n // columns
    block = -(-groups // wanted)
    return Gemv(
        lanes=lanes,
        rows=-(-product.m // tiles),
        large=product.m - (-(-product.m // tiles) - 1) * tiles,
        tiles=tiles,
        columns=columns,
        blocks=groups // block,
        block=block * columns,
        far=product.b_bytes >= FAR_BYTES,
    )


def _loads(m: int, rows: int, columns: int) -> float:
    """Vectors loaded in a step along k, for all rows and one column."""
    tiles = -(-m // rows)
    return (m + tiles * columns) / columns


def dot_units(product: Product, dots: Gemv) -> int:
    """Extent of the parallel range."""
    return product.matrices * dots.blocks

"""Blocking of products of few rows, which read B once and in place. Numbers only.

Of a transposed B, columns are rows in memory, read along k. A tile is some rows of A by some rows of B, each pair a dot
product of its own. It is summed up in `SUMS` partial sums, element k in number k % SUMS, which are then added in halves
(k and k + 8, k and k + 4, ...): so many whatever the width of a vector, so that the bits of the result depend on k
alone.

Of a B in row-major order, a row is added to the result some rows of B at a time, as the axpy form of gemv does (Golub
and Van Loan, "Matrix computations", 1.1.4): in the order of k, one fused multiply-add for each element. Where B comes
from memory, k is cut into blocks that threads share, each with a result of its own, and rows are read from end to end.

A product of each kind of one B runs both for a few rows of B at a time (see schedule/fusion/row_fusion.py).
"""

from __future__ import annotations

from ....record import record, replace
from ....schedule import cost
from ....schedule.kernels.gemm import Product
from ....sizes.dims import Size, hint, same
from .plan import Plan, parts_of

SUMS = 16  # float32 in the widest vector; two vectors with AVX2, four with NEON; twice as many of float64
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
class Gemv(Plan):
    rows: int  # of the larger tiles; the others have one fewer
    large: int  # how many tiles of rows are larger; they come first
    tiles: int  # of rows
    columns: int  # of a tile, a power of two
    blocks: int  # of columns: units of a matrix
    block: int  # columns of all blocks but the last, which takes the remaining ones as well
    far: bool  # B comes from memory

    def units(self, product: Product) -> int:
        return product.matrices * self.blocks


def dots_of(product: Product, vector_bytes: int, registers: int, cores: int) -> Gemv | None:
    """The blocking; None where the operands are not contiguous along k, or another product is as fast."""
    along = product.a.column == 1 and product.b.row == 1 and product.n > 1
    size = product.matrices * product.m * product.n * product.k
    if not along or product.dtype.kind != "f" or product.stored is not None or size < MIN_SIZE:
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


BROADCAST = 8  # rows of B that are added at once: each element of the result is loaded and stored once for all
# Columns of a unit: pieces of rows that are read as one stream, and a part of the result that stays in L1.
LEAST_COLUMNS = 256
LEAST_ROWS = 256  # of a B whose sums are in blocks: some tiles of dot products in each


@record
class Axpys(Plan):
    blocks: Size  # of columns: units of a matrix
    block: int  # columns of all blocks but the last, which may have fewer

    def units(self, product: Product) -> Size:
        return product.matrices * product.blocks * self.blocks


# Blocks of a B from memory. In strips of columns for the threads, a row of a strip is read, and then one elsewhere:
# 5000x4000 of float64 takes 6.4 ms on one core, 4.8 in rows.
SUM_BLOCKS = 8
# Bytes of rows of B that are read twice, from memory and from L2: two products of 5000x4000 of float64 take 13.5 ms one
# after the other, 6.6 so.
ROW_BYTES = 3 << 17


def sum_blocks_of(product: Product) -> int:
    """Parts of k, by the sizes alone; 1 where B is in a cache, or is not read by rows."""
    if product.symbolic or product.m != 1 or product.matrices != 1 or product.b.column != 1 or product.k < LEAST_ROWS:
        return 1
    return SUM_BLOCKS if product.b_bytes >= FAR_BYTES else 1


def axpys_of(product: Product, vector_bytes: int, cores: int) -> Axpys | None:
    """The blocking of a vector by a matrix in row-major order, of sizes that come with the call too; else None."""
    along = same(product.m, 1) and same(product.b.column, 1) and product.dtype.kind == "f" and product.stored is None
    lanes = vector_bytes // product.dtype.itemsize
    columns = hint(product.n)
    if not along or hint(product.matrices * product.n * product.k) < MIN_SIZE or columns < lanes:
        return None
    wanted = 1 if product.flops * cost.FLOP_NS <= cost.PARALLEL_THRESHOLD_NS else UNITS_A_CORE * cores
    wanted = parts_of(wanted, product.blocks)
    block = max(LEAST_COLUMNS, parts_of(columns * hint(product.matrices), wanted))
    block = parts_of(block, lanes) * lanes
    return Axpys(lanes, blocks=parts_of(product.n, block), block=block)


@record
class RowPlan(Plan):
    """Runs of at least so many rows of B, of a part of k each."""

    rows: int
    dots: Gemv
    updates: Axpys


def rows_of(product: Product, dots: Gemv, updates: Axpys, other: Product) -> RowPlan | None:
    """The plan of both products; None where few rows are too long for a cache."""
    most = ROW_BYTES // (product.k * product.dtype.itemsize)
    if most < 1:
        return None
    columns = next(n for n in (MAX_COLUMNS, 4, 2, 1) if n <= min(most, dots.columns))
    rows = min(most, other.k // other.blocks) // columns * columns
    return RowPlan(dots.lanes, rows, replace(dots, columns=columns), updates)

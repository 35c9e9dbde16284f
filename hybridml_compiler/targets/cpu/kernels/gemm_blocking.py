"""Blocking of our own matrix product: tiles for registers, panels for caches, units for threads. Numbers only, no code.

A unit computes some columns of some rows. It goes over k in blocks, over its tiles of rows, and with each over its
panels: columns one tile wide. A is read where it is. So is B, unless it is transposed, or too large to be read there by
so many rows; then each unit packs its own panels.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .... import dtypes
from ....record import record, replace
from ....schedule import cost
from ....schedule.kernels.gemm import Product
from ....sizes.dims import Size, is_dim, is_symbolic
from .plan import Plan

if TYPE_CHECKING:
    from ....schedule.kernels.convolution import Pretranspose

# Depth of a block of k. Every block but the first reads the result again, which shows where there are many rows of it
# (1024^3: 106 GF/s against 100 with 512; 128x512x1024: 100 against 105). Of a transposed A every step reads another
# line, and 256 of them and B are what L1 holds (1000x256x1024: 104 against 89 with 512).
MAX_DEPTH = 512
MAX_DEPTH_TALL = 1024
MAX_DEPTH_TRANSPOSED = 256
TALL_ROWS = 1024
DEPTH_MULTIPLE = 16  # lanes of the widest vector of the narrowest dtype
# More rows of A read at once are slower whatever their stride; and slow (512x16x1024: 23 against 113 GF/s) where that
# makes them share a set of L1.
MAX_ROWS = 14
LINE, L1_SETS, L1_WAYS = 64, 64, 8
L2_SETS, L2_WAYS = 2048, 8
# What reading another line of a transposed A costs in every step, against a multiply-add of vectors: wide tiles read
# fewer (256x1024x1024: 97 GF/s as tiles of 6x64, 93 as 8x32).
A_LINE = 2.5
# Multiply-adds in flight that hide their latency. With 16 registers, two are issued in a cycle, and 8 are just enough
# where nothing is late (128x512x512: 105 GF/s as tiles of 6x16, 97 as 4x16).
IN_FLIGHT = 8
IN_FLIGHT_FEW = 10
# A last panel of fewer vectors has a micro-kernel of its own (4 to 8 ms of compilation) in products that take so long:
# eight of 256x784x256, whose rows are 16 panels of 48 columns and one of 16, run at 103 GF/s of one core instead of 98.
TAIL_NS = 1e6
# B of a unit in a block of k, which its tiles of rows read one after the other: a quarter of the L2 of AVX-512 machines
# (64x4096x512: 104 against 97 GF/s without a limit). Where it is packed, it is in scratch memory.
UNIT_BYTES = 1 << 18
UNIT_BYTES_TALL = 1 << 19  # 2048^3: 106 against 103
# B is packed for so many rows, unless all of it stays near: in place, each step of k is in another page, which
# prefetchers do not follow. Speed packed over that in place, in turns on one core of a Sapphire Rapids: 394x2304x768
# 1.17, 256x512x512 1.34, 1024x512x512 1.26, 128x2304x512 1.15, 64x768x768 1.00; of a transposed A, which is in as many
# pages, 128x768x768 1.11, 64x768x768 1.04, 394x768x768 0.96. On Zen 4, 64x512x2304 is 97 GF/s packed and 107 in place,
# and packing A never paid (94 against 111).
PACK_ROWS = 128
PACK_ROWS_TRANSPOSED = 64
PACK_BYTES = 1 << 17
PACK_ALWAYS_BYTES = 1 << 23  # B comes from memory (four of 96x3025x363: 84 GF/s packed, 65 in place)
# Tiles of AVX2 are one line wide, which it takes a panel to read in order (128x512x512: 104 GF/s packed, 79 in place;
# 1000x256x1024 of a transposed A 98 and 70; 32x512x512 86 and 90; 128^3 100 and 107); sooner where the lines of a
# block of k share so few sets of L2 that they evict each other (16x1024x1024: 73 and 40).
PACK_ROWS_LINE = 64
PACK_ROWS_SHARED = 12
# Units that share columns pack them twice: each gets at least so many tiles of rows.
UNIT_TILES = 16
UNIT_TILES_COMPUTED = 2  # units that share rows of a computed A compute them twice
# Every block of columns reads A once more (1), every block of rows B. Fits two dozen shapes: the weight gradient
# 1024x256x2048 of a transposed A is 57 GF/s as 8 blocks of columns and 98 as 2 by 4; 1024^3 109 and 97.
READ_AGAIN = 2
PACKED_AGAIN = 8
# Rows of an A that is computed are in a buffer of its own: in sets of L1 of their own, and along k.
PITCH_PADDING = LINE
ROWS = 512  # of a product whose rows come with the call, to choose how the rest is cut
UNITS_A_CORE = 4  # for cores that are not equally fast, or not ours alone


@record
class Blocking(Plan):
    rows: int  # of the larger tiles; the others have one fewer
    large: Size  # how many tiles are larger; they come first
    tiles: Size  # of rows
    vectors: int  # across a tile
    depth: int  # of a block of k, a multiple of the lanes
    panels: int
    column_blocks: int  # of nearly equal numbers of panels
    unit_tiles: int
    pack: bool  # B
    tail: int  # vectors across a tile of the last panel
    pitch: int = 0  # elements between rows of A, or its steps in k if it is transposed, where A is computed

    @property
    def columns(self) -> int:
        return self.lanes * self.vectors

    @property
    def whole_panels(self) -> int:
        """Panels that have all of their columns computed by the same micro-kernel."""
        return self.panels - (self.tail < self.vectors)

    @property
    def unit_panels(self) -> int:
        """Panels per unit, at most."""
        return -(-self.panels // self.column_blocks)

    @property
    def row_blocks(self) -> Size:
        return (self.tiles + self.unit_tiles - 1) // self.unit_tiles

    def units(self, product: Product) -> Size:
        return product.matrices * self.column_blocks * self.row_blocks

    def parts(self, product: Product) -> list[Pretranspose]:
        if not (self.pack and product.b.transposed):
            return []
        from ....schedule.kernels.convolution import Pretranspose  # for those alone

        return [Pretranspose(product.dtype if product.stored is None else dtypes.float32, self.lanes)]


def blocking_of(product: Product, vector_bytes: int, registers: int, cores: int, *, tails: bool = True) -> Blocking:
    """`registers` of `vector_bytes` each; the bits of the result depend on neither them nor the number of cores.

    `tails`: the last panel may have fewer vectors.
    """
    size = product.dtype.itemsize
    lanes = vector_bytes // size
    tails = tails and product.flops * cost.FLOP_NS >= TAIL_NS
    most_rows = MAX_ROWS if product.computed else _most_rows(product.a.row * size)
    strided = product.a.transposed and not product.computed
    tiles, vectors = tile_shape(product.m, product.n, lanes, registers, most_rows, strided, tails=tails)
    rows = -(-product.m // tiles)
    panels = -(-product.n // (lanes * vectors))
    tall = product.m >= TALL_ROWS
    deepest = _deepest(product.a.column * size) if product.a.transposed else MAX_DEPTH_TALL if tall else MAX_DEPTH
    depth = _balanced(product.k, deepest)
    pack = product.b.transposed or product.b_bytes > _most_in_place(product, lanes * vectors * size, depth)
    most = max(1, (UNIT_BYTES_TALL if tall else UNIT_BYTES) // (depth * lanes * vectors * size))
    wanted = -(-UNITS_A_CORE * cores // product.matrices)
    if product.flops * cost.FLOP_NS <= cost.PARALLEL_THRESHOLD_NS:
        wanted = 1
    pitch = -(-rows // lanes) * lanes if product.a.transposed else depth + PITCH_PADDING // size
    least = UNIT_TILES_COMPUTED if product.computed and not pack else UNIT_TILES
    column_blocks, row_blocks = _blocks(product, -(-panels // most), panels, -(-tiles // least), wanted, pack)
    return Blocking(
        lanes=lanes,
        rows=rows,
        large=product.m - (rows - 1) * tiles,
        tiles=tiles,
        vectors=vectors,
        depth=depth,
        panels=panels,
        column_blocks=column_blocks,
        unit_tiles=-(-tiles // row_blocks),
        pack=pack,
        tail=-(-product.n // lanes) - (panels - 1) * vectors if tails and panels > 1 else vectors,
        pitch=pitch if product.computed else 0,
    )


def with_any_rows(product: Product) -> bool:
    """Whether the number of rows is the only size of a product that comes with the call."""
    a, b = product.a, product.b
    known = not is_symbolic((product.n, product.k, a.offset, a.row, a.column, b.offset, b.row, b.column))
    return is_dim(product.m) and known and not product.batch and not a.transposed and product.stored is None


def blocking_of_rows(product: Product, blocking: Blocking) -> Blocking:
    """The blocking of a product with `ROWS` rows, for any number of them: whole tiles, and then the remaining rows."""
    m, rows = product.m, blocking.rows
    return replace(blocking, large=m // rows, tiles=(m + rows - 1) // rows)


def _most_in_place(product: Product, panel: int, depth: int) -> int:
    """Bytes of B up to which it is read in place, in blocks of k and panels of so many bytes per row."""
    stride = product.b.row * product.dtype.itemsize
    rows = PACK_ROWS_TRANSPOSED if product.a.transposed else PACK_ROWS
    if panel <= LINE and panel < stride:
        shared = len({k * stride // LINE % L2_SETS for k in range(depth)}) * L2_WAYS < depth
        rows = PACK_ROWS_SHARED if shared else PACK_ROWS_LINE
    return PACK_BYTES if product.m >= rows else PACK_ALWAYS_BYTES


def _blocks(product: Product, fewest: int, panels: int, most_rows: int, wanted: int, pack: bool) -> tuple[int, int]:
    """Blocks of columns and of rows that make as many units as wanted, if there are, with the least traffic."""
    a = product.m * product.k * (PACKED_AGAIN if product.computed else 1)
    b = product.k * product.n * (PACKED_AGAIN if pack else READ_AGAIN)
    choices = []
    for columns in range(fewest, max(fewest, min(panels, wanted)) + 1):
        rows = min(most_rows, -(-wanted // columns))
        choices.append((max(wanted - columns * rows, 0), a * columns + b * rows, columns, rows))
    return min(choices)[2:]


def tile_shape(
    m: int, n: int, lanes: int, registers: int, most_rows: int, transposed: bool = False, *, tails: bool = False
) -> tuple[int, int]:
    """(tiles of rows, vectors across a tile): the cheapest whose sums, row of B and element of A fit the registers.

    With `tails`, the last panel may have fewer vectors. One register is left over: 6x16 is faster than 4x24, which
    fills 16 of them (128x512x512, B packed: 105 and 98 GF/s).
    """
    best = (math.inf, 0, 0)
    in_flight = IN_FLIGHT_FEW if registers <= 16 else IN_FLIGHT
    across = -(-n // lanes)
    for vectors in range(1, min(8, across, (registers - 2) // 2) + 1):
        fewest = -(-m // min((registers - 2 - vectors) // vectors, most_rows))
        # A number of tiles that divides m needs one micro-kernel, any other two (8 ms of compilation each).
        dividing = [t for t in range(fewest, fewest + fewest * 3 // 4 + 1) if m % t == 0][:1]
        for tiles in (fewest, *dividing):
            rows = -(-m // tiles)

            def step(vectors: int, rows: int = rows) -> float:
                """Time of a step in k: multiply-adds or loads; a row of B comes from further away than A."""
                step = max(rows * vectors, rows + vectors, in_flight) + 0.1 * rows + 0.3 * vectors + 0.5
                return step + (A_LINE if transposed else 0.0)

            whole, rest = divmod(across, vectors)
            # Another micro-kernel for the last panel should win more than 4 % (1024 columns as 8x32, and as 8x48 with
            # 8x16 at the end: within 3 %).
            masked = 1.0 if n % (lanes * vectors) == 0 else 1.04 if tails else 1.02
            last = step(rest if tails and whole else vectors) if rest else 0.0
            total = (step(vectors) * whole + last) * tiles * (1.0 if m % tiles == 0 else 1.03) * masked
            best = min(best, (total, tiles, vectors))
    return best[1], best[2]


def _most_rows(stride: int) -> int:
    """Rows of A, `stride` bytes apart, that may be read at once: streams in one set of L1 evict each other."""
    lines = {row * stride // LINE for row in range(MAX_ROWS)}
    if len(lines) <= L1_WAYS:  # one set has room for all: those of a transposed A are in a line or two
        return MAX_ROWS
    return min(MAX_ROWS, L1_WAYS * len({line % L1_SETS for line in lines}))


def _deepest(stride: int) -> int:
    """Steps of a transposed A, `stride` bytes apart, whose lines take half of the L2 sets that they share.

    1024x256x1024: 98 GF/s with 128, 91 with 256, where all of those lines share 32 sets.
    """
    sets = {k * stride // LINE % L2_SETS for k in range(MAX_DEPTH_TRANSPOSED)}
    return min(MAX_DEPTH_TRANSPOSED, max(len(sets) * L2_WAYS // 2, DEPTH_MULTIPLE))


def _balanced(extent: int, most: int) -> int:
    """Size of nearly equal blocks; the sum of each is rounded, so that it must not depend on the width of a vector."""
    blocks = -(-extent // most)
    share = -(-extent // blocks)
    return -(-share // DEPTH_MULTIPLE) * DEPTH_MULTIPLE

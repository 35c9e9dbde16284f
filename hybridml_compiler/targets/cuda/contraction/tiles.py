"""The tile of a contraction that a block computes at once: a table, and a choice from it by shape."""

from __future__ import annotations

import math

from .... import dtypes
from ....record import record, replace
from .contraction import Contraction

WARP = 32
SHARED_BYTES = 48 << 10  # of a block, without asking the driver for more
MOST_FEATURES = 128  # of operands of which a block has all, in kernels of several products
_MOST_STAGES = 3
# Blocks that fill the multiprocessors of a large GPU: a larger tile than leaves so many would leave some without work.
_BLOCKS = 128
_RESIDENT = 512  # threads of a multiprocessor with 128 registers each
_MOST_WIDE = 16  # sums of a thread in 8 bytes: 8x8 would not fit its registers
_LEAST_STEPS = 8  # of k, of a tile in slices: each begins with waiting for its operands
_MOST_PADDING = 1.5  # elements that are computed, to those of the result
# Where there are fewer threads than these, k is divided among so many blocks that there are four times as many, each
# with at least so much of it, and as many times its rows: their sums are written and read once more.
_THREADS_OF_GPU = 1 << 15
_LEAST_DEPTH, _LEAST_DEPTHS = 256, 8


@record
class Tile:
    """Rows and columns of the result, and how deep into k its operands are loaded at a time. It is shared by so many
    threads down and across, or, on tensor cores, warps; of those each of some `slices` of the depth has so many; and k
    by the blocks of so many `parts`."""

    rows: int
    columns: int
    depth: int
    down: int
    across: int
    tensor: str = ""  # the type of the tensor cores' operands in PTX: f16, bf16 or tf32
    slices: int = 1
    parts: int = 1

    @property
    def threads(self) -> int:
        return self.down * self.across * self.slices * (WARP if self.tensor else 1)

    @property
    def at_once(self) -> int:
        """Blocks that a multiprocessor has registers for, 128 a thread: of too few warps none hides what others wait
        for."""
        return 1 if self.tensor else max(1, _RESIDENT // self.threads)

    @property
    def own(self) -> tuple[int, int]:
        """Rows and columns of a thread, or of a warp."""
        return self.rows // self.down, self.columns // self.across

    def blocks(self, call: Contraction) -> int:
        """The number of tiles of one matrix."""
        return -(-call.m // self.rows) * -(-call.n // self.columns)

    def fits(self, call: Contraction) -> bool:
        """Whether enough blocks have work, and little of it is for nothing."""
        blocks = self.blocks(call)
        padding = blocks * self.rows * self.columns / (call.m * call.n)
        enough = self.slices == 1 or call.k >= _LEAST_STEPS * self.depth
        blocks *= call.matrices * self.parts_of(call)
        return blocks >= _BLOCKS and padding <= _MOST_PADDING and enough

    def parts_of(self, call: Contraction) -> int:
        """The number of parts of k that are worth blocks of their own: 1 where the tiles are enough."""
        threads = call.matrices * self.blocks(call) * self.threads
        if threads >= _THREADS_OF_GPU:
            return 1
        most = call.k // max(_LEAST_DEPTH, _LEAST_DEPTHS * self.rows)
        return max(1, min(4 * _THREADS_OF_GPU // threads, most))


# The largest first. A thread has 8x8 sums at most, a warp 64x32: more would not fit its registers. Where there is about
# one block for each multiprocessor, slices give it more warps.
_THREADS: tuple[Tile, ...] = (
    Tile(128, 128, 16, 16, 16),
    Tile(64, 64, 16, 8, 8, slices=4),
    Tile(64, 64, 16, 16, 16),
    Tile(32, 32, 32, 8, 8, slices=8),
    Tile(32, 32, 16, 8, 8),
    Tile(16, 16, 16, 8, 8),
)
_WARPS: tuple[Tile, ...] = (
    Tile(128, 128, 32, 2, 4, "16 bits"),
    Tile(64, 64, 32, 2, 2, "16 bits"),
    Tile(16, 64, 32, 1, 4, "16 bits"),
    Tile(32, 32, 32, 2, 2, "16 bits"),
)
_TENSOR = {"float16": "f16", "bfloat16": "bf16"}


def tensor_type(call: Contraction, *, tf32: bool = False) -> str:
    """The type of tensor cores that computes the call in its own precision (or, where `tf32`, that of float32 in 10
    bits of mantissa); nothing where threads have to."""
    if call.dtype is not dtypes.float32:
        return ""
    left, right = call.stored
    if left is right is dtypes.float32:
        return "tf32" if tf32 else ""
    return _TENSOR.get(left.name, "") if left is right else ""


def tile_for(call: Contraction, *, tf32: bool = False) -> Tile:
    """The tile for a product: the largest that fits it, or the one of the least padding and the most blocks."""
    tensor = tensor_type(call, tf32=tf32)
    table = _WARPS if tensor else _THREADS
    if call.dtype.itemsize > 4:
        table = tuple(tile for tile in table if math.prod(tile.own) <= _MOST_WIDE)
    found = next((tile for tile in table if tile.fits(call)), None)
    if found is None:
        alone = [tile for tile in table if tile.slices == 1]
        found = min(alone, key=lambda tile: (tile.blocks(call) * tile.rows * tile.columns, tile.rows))
    depth = 16 if tensor == "tf32" else found.depth
    steps = -(-call.k // depth)
    parts = -(-steps // -(-steps // found.parts_of(call)))  # of as many steps each, and none of none
    return replace(found, depth=depth, tensor=tensor, parts=parts)


def stages(bytes_of_one: int, steps: int, slices: int = 1) -> int:
    """The number of steps in k whose operands are in shared memory or on their way at the same time. Slices take fewer
    cycles for a step, and have no other block to wait beside."""
    most = _MOST_STAGES if slices == 1 else 2 * _MOST_STAGES
    return max(2, min(most, SHARED_BYTES // bytes_of_one, steps))

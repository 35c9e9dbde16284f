"""The tile of a contraction that a block computes at once: a table, and a choice from it by shape."""

from __future__ import annotations

from .... import dtypes
from ....record import record
from .contraction import Contraction

WARP = 32
SHARED_BYTES = 48 << 10  # of a block, without asking the driver for more
MOST_FEATURES = 128  # of operands of which a block has all, in kernels of several products
_MOST_STAGES = 3
# Blocks that fill the multiprocessors of a large GPU: a larger tile than leaves so many would leave some without work.
_BLOCKS = 128
_MOST_PADDING = 1.5  # elements that are computed, to those of the result
# Where there are fewer threads than these, k is divided among so many blocks that there are four times as many, each
# with at least so much of it, and as many times its rows: their sums are written and read once more.
_THREADS_OF_GPU = 1 << 15
_LEAST_DEPTH, _LEAST_DEPTHS = 256, 8


@record
class Tile:
    """Rows and columns of the result, and how deep into k its operands are loaded at a time. It is shared by so many
    threads down and across, or, on tensor cores, warps; and k by the blocks of so many `parts`."""

    rows: int
    columns: int
    depth: int
    down: int
    across: int
    tensor: str = ""  # the type of the tensor cores' operands in PTX: f16, bf16 or tf32
    parts: int = 1

    @property
    def threads(self) -> int:
        return self.down * self.across * (WARP if self.tensor else 1)

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
        return call.matrices * blocks * self.parts_of(call) >= _BLOCKS and padding <= _MOST_PADDING

    def parts_of(self, call: Contraction) -> int:
        """The number of parts of k that are worth blocks of their own: 1 where the tiles are enough."""
        threads = call.matrices * self.blocks(call) * self.threads
        if threads >= _THREADS_OF_GPU:
            return 1
        most = call.k // max(_LEAST_DEPTH, _LEAST_DEPTHS * self.rows)
        return max(1, min(4 * _THREADS_OF_GPU // threads, most))


# The largest first. A thread has 8x8 sums at most, a warp 64x32: more would not fit its registers.
_THREADS: tuple[Tile, ...] = (
    Tile(128, 128, 16, 16, 16),
    Tile(64, 64, 16, 16, 16),
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
    if call.dtype.itemsize > 4:  # sums of 8x8 doubles would not fit a thread's registers
        table = table[1:]
    found = next((tile for tile in table if tile.fits(call)), None)
    if found is None:
        found = min(table, key=lambda tile: (tile.blocks(call) * tile.rows * tile.columns, tile.rows))
    depth = 16 if tensor == "tf32" else found.depth
    steps = -(-call.k // depth)
    parts = -(-steps // -(-steps // found.parts_of(call)))  # of as many steps each, and none of none
    return Tile(found.rows, found.columns, depth, found.down, found.across, tensor, parts)


def stages(bytes_of_one: int, steps: int) -> int:
    """The number of steps in k whose operands are in shared memory or on their way at the same time."""
    return max(2, min(_MOST_STAGES, SHARED_BYTES // bytes_of_one, steps))

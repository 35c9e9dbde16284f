"""The cost model: the numbers that the scheduler decides by, each with its source (kernel_cost.py has the others).

Units: nanoseconds on one core for one element, measured on AVX-512 machines (Cascade Lake 2.8 GHz, Zen 4 3.7 GHz); they
decide between alternatives, they do not predict.
"""

from __future__ import annotations

# Reading or writing a byte: 40 GB/s in cache, 21 GB/s from memory; an intermediate is somewhere in between.
_BYTE = 0.03
# Memory alone, which the cores share: 21 GB/s for two. What a program keeps comes from there if all of it is more than
# one core's share of the last cache.
_FAR_BYTE = 0.1
CACHE_BYTES = 16 << 20
# Elements from one lane of a load to the next up to which the vectors between are loaded, and the lanes picked
# (targets/cpu/llvm/vectors/steps.py). Sums of squares of 2 x 2 of 8 x 32 x 128 x 128: 0.83 ms, 4.7 by gathers.
STEP = 4
# A result of so many bytes is stored past the caches (`nontemporal` stores). x + y and a reading of the result right
# after it, two cores and 32 MB of last cache, ordinary and past: 4 MB 0.16 and 0.34 ms, 8 MB 0.31 and 0.38, 12 MB 1.14
# and 1.07, 16 MB 2.66 and 1.97.
STREAM_BYTES = 16 << 20
# Handing a kernel to the pool costs about 0.3 us hot and up to 3 us on a busy machine; it must buy more than that.
PARALLEL_THRESHOLD_NS = 8_000.0
# A thread's share of a longer launch is cut into ranges of so many nanoseconds; others take over the remaining ones
# when they are ready: cores are not equally fast, nor ours alone (MLP step 2.36 ms, 2.28 with four of them). To claim
# one takes less than 0.1 us. Where both halves of 60 us were one range each, a worker that woke late found its own
# taken, polled for 60 us and slept again, call after call.
RANGE_NS = 6_000.0
RANGES_A_THREAD = 4
# So it is with one kernel more that threads fork for (hot, with the waiting for the slower thread).
FORK_NS = 500.0
# A kernel of a region this small is run by one thread: two would each read the same line of an operand.
REGION_WHOLE_NS = 1_000.0
# Kernels may wait for others to be launched with as long as the values kept for them alone stay in an L2 cache:
# ResNet-18 takes 35.5 ms, and 37.0 where they wait as long as the arena does not grow; GPT and MLP the same, NCF 2.33
# and 2.31.
REGION_BYTES = 1 << 20
# Rows of a row group are what threads share: with fewer than this, two threads wait for each other; below this many
# elements in all, one thread is enough anyway.
MIN_ROWS = 16
SMALL_SPACE = 1 << 14
# Long reductions are cut into blocks of rows (lowering/split.py) from so many elements on: another kernel costs 1-3 us.
SPLIT_SPACE = 1 << 17
# A block is 256 KB of float32, a part of L2: sum of squares over 4096 rows of 1024 takes 0.83 ms in one loop, 0.46 in
# blocks of 64 rows. Blocks of fewer rows would write too many partial results, of more would be too few for threads;
# and a column is worth cutting if it makes some blocks.
SPLIT_ELEMENTS = 1 << 16
SPLIT_ROWS = 64
SPLIT_MOST_ROWS = 1024
SPLIT_LENGTH = 4
# Rows of fewer elements than this leave most lanes empty: up to so many are taken for one (the mean colour of 32 images
# of 224x224x3: 4.7 ms without, 0.4 with).
SPLIT_NARROW = 8
SPLIT_PHASES = 64
# A row of intermediate values is kept in memory of the thread up to this size: half of the smallest first-level cache.
SCRATCH_BYTES = 1 << 14
# One multiply-add of a float32 matrix product on one core: 100-140 GF/s.
FLOP_NS = 0.01
# Multiply-adds of a product up to which BLAS uses one thread of its own accord (64^3); larger ones are cut into slabs.
WHOLE_PRODUCT = 1 << 18
# Our own product against OpenBLAS on Zen 4 with AVX-512, one thread, float32. From a million multiply-adds on, where
# OpenBLAS leaves its kernels for small matrices, ours wins for every layout, depth and edge (1024^3: 107 GF/s and 97;
# 128x512x512: 116 and 101; 16x1024x1024: 110 and 67; 8x1024x256: 112 and 49; 1024x512x16: 112 and 79; 1024x10x512: 77
# and 50). Below, those kernels are as fast (64x64x64: 102 and 104) and need not be compiled, but for two cases. They
# are called for every matrix of a batch (256 of 16x16x16: 82 against 111); and a transposed B suits them only where it
# is short or narrow (128x100x64: 66 against 81; 32x50x512: 108 against 76). One row times a transposed B is a sum along
# rows of B, which need no transposing: 42 against 13. Lanes beyond the columns are lost: with 4 columns the two are
# equal, with one BLAS wins (42 against 7). For float64 they are equal (43 and 43).
# With AVX2 against OpenBLAS' kernels for it: equal where it is large (128x512x512: 102 and 101; 1024^3: 106 and 104),
# and the same rows of the table win (8x512x512: 83 and 54; 64x64x64: 103 and 77; 1024x8x1024: 76 and 61), but for one
# row (23 and 38), and for a transposed A, which BLAS packs (1024^3: 50 and 106; 512x784x1024: 81 and 104).
OWN_PRODUCT_SIZE = 1 << 20
OWN_PRODUCT_ROWS = 32
OWN_PRODUCT_DEPTH = 32
OWN_PRODUCT_FILLED = 0.95
OWN_PRODUCT_HALF = 0.5
OWN_PRODUCT_BYTES = 64  # bytes of the vectors that the limits above speak of
# Number of products that pack one transposed B, each once per matrix, from which it is turned in memory first:
# 32x1024x256 takes 207 us with it and 163 with B along its columns, turning it 150.
TURN_PACKINGS = 8
# Products of at most so many rows read a transposed B where it is. Against one that packs it first, and OpenBLAS:
# 8x512x512 102, 62 and 24 GF/s; 16x256x256 100, 82 and 38; with AVX2 12x1024x1024 70, 66 and 62; more rows lose there.
UNPACKED_ROWS = 16
# An inlined expression longer than this compiles slowly and spills registers.
MAX_INLINE_NODES = 96
# All that one kernel computes, over all of its results: an Adam update is 20 nodes, a chain cut by the limit above 97.
MAX_KERNEL_NODES = 192
# Reductions of one loop, with 4 vectors each: more have no registers, and LLVM takes long to find them places. 300 sums
# of squares of rows of 50, float64, AVX2: 48 a loop take 0.48 s to compile, 8 take 0.06; a call 0.03 ms either way.
MAX_KERNEL_SUMS = 8

# Stores of one kernel that puts pieces together: more streams than this and their lines evict each other.
PIECES_STORES = 8
# Elements times pieces of a concatenation from which a kernel for each shape of a piece (0.3 us to launch) costs less
# than choosing among them for every element (0.1 ns a choice).
PIECES_SIZE = 1 << 12


# A call back into NumPy, without NumPy's own time: 5 us for an operand and a result of 16 elements.
NUMPY_CALL_NS = 5000.0


def worth_rows(rows: int, row: int) -> bool:
    """Whether so many rows, each the work of one thread, are enough for threads, or few elements in all."""
    return rows >= MIN_ROWS or rows * row <= SMALL_SPACE


def part_of(length: int, kept: int, beside: int) -> int:
    """Elements of a reduction that are worth a partial result; 0 where it is one loop. There are `kept` reductions of
    this length; `beside` of them are neighbours in memory, as columns are."""
    if length * kept < SPLIT_SPACE:
        return 0
    if beside == 1:
        return 0 if kept >= MIN_ROWS else SPLIT_ELEMENTS
    rows = min(max(SPLIT_ELEMENTS // beside, SPLIT_ROWS), SPLIT_MOST_ROWS)
    return rows if length >= SPLIT_LENGTH * rows else 0


def memory_cost(nbytes: float, far: bool = False) -> float:
    return nbytes * (_FAR_BYTE if far else _BYTE)


# An array of so many bytes per core is out of L2 by the time that the next launch reads it: worth a chain
# (batch_fusion.py).
CHAIN_BYTES = 1 << 20
# Bytes of scratch: elements as large as fit half of the L2 of AVX-512 machines (1 MB); where they cannot be cut so
# small, as leave something of a last level of cache (attention of 8 heads of 2048: 0.5 to 2 MB are within 3 %).
CHAIN_SLOT_BYTES = 1 << 19
CHAIN_SLOT_LIMIT = 1 << 22
# Rows below which a product is not cut: of fewer, reading (and packing) B costs as much as multiplying by it.
CHAIN_ROWS = 64
# Rows of a product that a thread takes through all steps of a loop: 16x1024x256 takes 81 us, 32x1024x256 158 (103 and
# 107 GF/s). Each thread reads all of the right operand in every step, which should stay in what it has of the caches.
APART_ROWS = 16
APART_BYTES = 1 << 22
# Loops over more than the caches hold run in tiles of rows and steps (fusion/time_tiling.py), of at least so many steps
# and at most as many as divide the traffic to nothing. A tile takes a core's share of the near caches; where rows are
# so long that it has few steps, more of the last cache. Jacobi's steps over two arrays of 2000 x 2000 float64, 49 of
# them, in tiles of 1, 4 and 16 MB: 153, 165 and 200 ms on one thread, 102, 96 and 95 on two; 384 and 190 without.
TIME_STEPS = 3
TIME_MOST_STEPS = 16
TIME_TILE_BYTES = 2 << 20


def time_bytes(cores: int) -> int:
    """Bytes of the arrays of a loop from which on its tiles pay. Jacobi's 49 steps on one thread, with and without:
    47.7 and 56.3 ms for 19 MB, 44.4 and 48.1 for 16, 8.3 and 8.2 for 4."""
    return max(CACHE_BYTES, CHAIN_BYTES * cores)


# Elements of the fullest slot against an even share.
CHAIN_BALANCE = 1.25

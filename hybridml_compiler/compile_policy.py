"""From how many elements on eager code treats arrays as large, and for how many signatures it compiles.

Library functions are native calls whatever their sizes ([Note: Eager calls]). Small arrays have programs in which sizes
are symbols, large ones a program for each shape, which is faster. Single operations and optimizers are compiled for
large arrays only. Compiling takes 10 ms to 1 s, which only signatures that come again pay back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from . import config

# Elements of an operand from which a kernel of one operation on two cores is faster than NumPy.
OPERATION = 1 << 16
# Bytes of a result from which its memory is kept when it is freed: making one takes 0.3 us more than NumPy does.
KEPT = 192 << 10
# Elements of an argument from which a library function (a layer, a loss, a draw of random numbers) is compiled for its
# shapes, and at the first call in any case.
COMPOSITE = 1 << 15
# Calls from which a small signature of what has the same bits operation by operation is compiled: 5 ms from the cache
# of the disk, 20 without, for 2 to 40 us a call.
WORTH = 256
# Calls of such operations from which the tracer is loaded, 0.1 s.
WORTH_TRACER = 4096
# Calls from which what is created has a kernel, where it is large.
WORTH_CREATED = 16
# Tensors of a list from which such functions leave it to NumPy: a program for 32 takes 30 ms to make, for 256 0.2 s.
LISTED = 33
# Elements of all parameters from which an optimizer's step, 20 operations for each of them, is one call.
UPDATE = 1 << 14
# Steps with as many rows of sparse gradients from which they are one call, of as many such numbers of rows as `MOST`:
# compiled in 0.1 to 0.3 s, on a table of 64 columns and 1024 rows it saves 0.04 ms a step of SGD, 0.7 of lazy Adam.
WORTH_ROWS = 32
# Elements of temporaries that one element of an argument of a composite stands for. Distances of 1000 x 3 rows have a
# million of pairs: 18 ms by operation, 6.8 compiled. A sequence is a Python loop of operations: the CTC loss of
# (50, 16, 30) takes 11 ms, and compiled, which takes 0.3 s once, 0.15.
PAIRS, STEPS = 16, 8
# Programs compiled for one function and its options. One with more (every batch of another length) does the others
# operation by operation, unless `hm.use_deterministic` is on.
MOST = 64
# Those of products, which are one function for a whole program: each layer has three, and each layout its own.
MOST_PRODUCTS = 256
# Kernels of Fourier transforms that eager code compiles, 10 to 25 ms each, once on a machine; signals of ever other
# lengths are NumPy's from there on.
MOST_TRANSFORMS = 1024

K = TypeVar("K")
V = TypeVar("V")


def known_or_made(programs: dict[K, V], key: K, most: int, make: Callable[[], V]) -> V | None:
    """The program for a signature, compiled when it is new; None beyond `most` of them.

    With `hm.use_deterministic` there is no limit: results must not depend on what ran before.
    """
    found = programs.get(key)
    if found is None and (len(programs) < most or config.is_deterministic()):
        found = programs[key] = make()
    return found

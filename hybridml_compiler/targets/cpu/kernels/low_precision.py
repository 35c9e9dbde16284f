"""Products of operands stored narrower than they are multiplied: read in place, packed into words.

A word is 32 bits, as wide as a sum: one float32, or as many narrower elements, next to each other along k, as an
instruction multiplies and adds at once. So a product of words is cut as one of float32 is, with fewer steps along k.

Casting the operands first and multiplying in float32 is slower for every size ([Note: Low precision]).
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

import numpy as np

from ....record import record, replace
from ....schedule.kernels.gemm import Matrix, Product
from .gemm_blocking import MAX_DEPTH, MAX_DEPTH_TALL, Blocking, blocking_of

if TYPE_CHECKING:
    from ....schedule.kernels.convolution import Convolution


@record
class Format:
    """Contents of a word, and how words of A and B are multiplied and added."""

    name: str
    group: int  # elements of a word


FLOATS = Format("fma", 1)  # bfloat16 is the upper half of a float32
SHORTS = Format("int16 pairs", 2)  # products of 8 bits, in pairs, are exact in 32
STRIP_BYTES = 1 << 18  # of rows of a result that passes, in scratch memory
PAIRS = Format("bfloat16 pairs", 2)
BYTES = Format("int8 fours", 4)  # bytes of A without a sign, of B with one


def format_of(product: Product | Convolution, features: Container[str]) -> Format:
    """The fastest format on a machine with these features (LLVM's names); operands stored otherwise are converted in
    packing."""
    a, b = _stored(product)
    if product.dtype.kind == "f":
        return PAIRS if a.kind == b.kind == "V" and "avx512bf16" in features else FLOATS
    return BYTES if b.kind == "i" and "avx512vnni" in features else SHORTS


def shifted(product: Product | Convolution, how: Format) -> bool:
    """Whether A is read as a + 128, and 128 times the sum of each column of B subtracted: exact, as integers wrap."""
    return how is BYTES and _stored(product)[0].kind == "i"


def in_place(product: Product, how: Format) -> bool:
    """Whether A has words in memory that the instruction can read."""
    steps = (product.k, product.a.row, product.a.offset, *product.a.batch)
    exact = how is PAIRS or (how is BYTES and not shifted(product, how))
    return exact and not product.a.transposed and all(step % how.group == 0 for step in steps)


def words_of(product: Product, how: Format) -> Product:
    """The product as one of words, with B packed."""
    k = -(-product.k // how.group)
    row = product.a.row // how.group if in_place(product, how) else k
    b = Matrix(0, product.b.batch, 1, k)
    return replace(product, k=k, a=Matrix(0, product.a.batch, row, 1), b=b, stored=None)


def narrow_blocking(product: Product, how: Format, vector_bytes: int, registers: int, cores: int) -> Blocking:
    """Its depth counts words."""
    return blocking_of(words_of(product, how), vector_bytes, registers, cores, tails=False)


def can_pass(product: Product, how: Format, blocking: Blocking) -> bool:
    """Whether the sums of a tile of rows are complete at once, however the product is cut, and fit scratch memory."""
    whole = -(-product.k // how.group) <= min(blocking.depth, MAX_DEPTH, MAX_DEPTH_TALL)
    return whole and blocking.rows * product.n * product.dtype.itemsize <= STRIP_BYTES


def _stored(product: Product | Convolution) -> tuple[np.dtype, np.dtype]:
    assert product.stored is not None
    return product.stored

"""Slabs of a product that BLAS computes on one thread each: rows or columns, one matrix of a batch. Numbers only.

They follow from the shape and the machine, never from the number of threads: BLAS adds up in an order that depends on
the number of rows, so one product in other slabs would have other bits (in every fifth shape tried).
"""

from __future__ import annotations

from ....record import record
from ....schedule.kernels.gemm import Product
from ....sizes.dims import Size, is_dim, same
from .plan import Plan

GRANULE = 16  # rows or columns: a whole number of register tiles in every BLAS kernel


@record
class Slabs(Plan):
    cores: int
    whole: bool  # not cut: a field, as code is kept by the text of its plan

    def slab(self, extent: Size) -> Size:
        """Rows or columns in one slab: one for each core, of whole register tiles."""
        share = (extent + self.cores - 1) // self.cores
        return ((share - 1) // GRANULE + 1) * GRANULE

    def units(self, product: Product) -> Size:
        """Matrices of a batch, else slabs of rows or columns, whichever are more."""
        if self.whole or not same(product.matrices, 1):
            return product.matrices
        extent = product.m if by_rows(product) else product.n
        each = self.slab(extent)
        return (extent + each - 1) // each


def by_rows(product: Product) -> bool:
    """Whether the product is cut into slabs of rows, not of columns. If a size comes with the call, rows are taken for
    more."""
    if is_dim(product.m) or is_dim(product.n):
        return is_dim(product.m)
    return product.m >= product.n

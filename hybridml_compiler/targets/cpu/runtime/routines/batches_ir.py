"""Routines over batches: `i64 hml_NAME_LETTER(ptr operands, ptr dims)`. The result is 0, or 1 where a
matrix is refused or there is no memory: then results are undefined.

Matrices of a batch are shared over the pool, each on one thread; of a single large one its columns are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ...llvm.native import KINDS, NULL, Native, NativeBuilder, native
from ...llvm.native import text as module_text
from ...llvm.values import Literal
from ...spec import CpuSpec
from . import extremes_ir, fortran_ir, matrices_ir, orders_ir, positions_ir, qr_ir, searches_ir
from .elements import Elements
from .kernels_ir import SMALL, Real
from .matrices_ir import Needs, One

LINE = 64
STACK = 12 << 10  # bytes of small matrices; callers may have small stacks
LARGE = 128 << 10  # bytes of memory that the C library gets from the kernel each time
KEPT = sys.platform == "linux"  # whether there are blocks of arrays to be used again


def text(name: str, letter: str, cpu: CpuSpec) -> str:
    """LLVM IR of the module of a routine."""
    symbol = f"hml_{name}_{letter}"
    of_elements: list[Any] = [room for room in (orders_ir, searches_ir, positions_ir) if name in room.ROWS]
    if of_elements:
        one, needs = of_elements[0].ROWS[name](Elements(letter))
        routine = _routine(symbol, one, needs, None, of_elements[0].granule)
    else:
        small = SMALL if name in matrices_ir.ROWS else None if name in extremes_ir.ROWS else 0
        one, needs = (matrices_ir.ROWS | qr_ir.ROWS | fortran_ir.ROWS | extremes_ir.ROWS)[name](Real(letter, cpu))
        routine = _routine(symbol, one, needs, small, _granule)
    return module_text(f"routine_{name}_{letter}", cpu, routine)


def _routine(symbol: str, one: One, needs: Needs, small: int | None, granule: Callable[..., Any]) -> Native:
    """A routine. `needs(c, dims)` tells the memory for a matrix; BLAS is called from so many rows on, or never."""

    @native("i64", "ptr", "ptr", "i64", "ptr", "ptr", name="one")
    def single(c: NativeBuilder, operands: Any, dims: Any, index: Any, space: Any, work: Any) -> None:
        c.ret(one(c, operands, dims, index, space, work))

    @native("void", "ptr", "i64", "i64", name="part")
    def part(c: NativeBuilder, given: Any, lo: Any, hi: Any) -> None:
        operands, dims, size = given.item(0, "ptr"), given.item(1, "ptr"), given.item(2)
        near = c.local("i8", STACK + LINE)
        far = c.variable(Literal(KINDS["ptr"], "null"))
        with c.if_then(size > STACK):
            far.value = _taken(c, size + LINE)
            with c.if_then(far.value == 0):
                (given + 24).store(1)
                c.ret_void()
        start = c.select(size > STACK, far.value, near)
        space = start + ((LINE - (c.word(start) & (LINE - 1))) & (LINE - 1))
        with c.each(hi, lo) as index:
            with c.if_then(single(c, operands, dims, index, space, given + 32) != 0):
                (given + 24).store(1)
        with c.if_then(size > STACK):
            _given_back(c, far.value, size + LINE)

    @native("i64", "ptr", "ptr", name=symbol)
    def routine(c: NativeBuilder, operands: Any, dims: Any) -> None:
        given, batch, n = c.local("i64", 6), dims.load(), dims.item(1)
        if small is not None:
            with c.if_then(n > small):
                c.extern("void", "hml_blas_hold")
        size, *work = needs(c, dims)
        for k, field in enumerate((operands, dims, size, 0, *work)):
            (given + 8 * k).store(field)
        some = granule(c, dims)
        c.extern("void", "hml_parallel_chunks", c.symbol("hml_pool"), part.define(c.module), given, batch, some, 4)
        if small is not None:
            with c.if_then(n > small):
                c.extern("void", "hml_blas_release")
        c.ret(given.item(3))

    return routine


def _taken(c: NativeBuilder, size: Any) -> Any:
    """Memory of so many bytes, or null. Large blocks are those that arrays leave: the C library gives its own back to
    the kernel, and a page that comes again is filled with zeros."""
    found = c.variable(Literal(KINDS["ptr"], "null"))
    if KEPT:
        with c.if_then(size >= LARGE):
            found.value = c.extern("ptr", "hml_malloc", NULL, size)
    with c.if_then((size < LARGE) if KEPT else size >= 0):
        found.value = c.extern("ptr", "malloc", size)
    return found.value


def _given_back(c: NativeBuilder, memory: Any, size: Any) -> None:
    if KEPT:
        with c.if_then(size >= LARGE):
            c.extern("void", "hml_free", NULL, memory, size)
    with c.if_then((size < LARGE) if KEPT else size >= 0):
        c.extern("void", "free", memory)


def _granule(c: NativeBuilder, dims: Any) -> Any:
    """Matrices that a thread takes at once: a range is no less than some microseconds of work."""
    n = dims.item(1)
    cube = n * n * n + 512
    return c.greatest(c.udiv(Literal(KINDS["i64"], "65536"), cube), 1)

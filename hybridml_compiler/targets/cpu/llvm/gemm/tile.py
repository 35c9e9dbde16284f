"""The micro-kernel of a matrix product: one tile of the result, kept in vector registers over all of k.

The tile's rows are broadcast from A, its columns are vectors of B (Goto and van de Geijn, "Anatomy of high-performance
matrix multiplication", 2008). Every element is one chain of fused multiply-adds in order of k, and so are the sums of
blocks of k: neither the shape of a tile, nor its place, nor the width of a vector can change a bit of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..... import dtypes
from .....record import record
from ...kernels.low_precision import FLOATS, Format
from .. import ir
from ..types import I1, I32, I64, PTR, VOID, Literal, constant, intrinsic, register_type
from ..vectors.packed_operands import multiply_add

_LINE = 64  # bytes
TILE_TYPE = ir.FunctionType(VOID, [PTR, PTR, PTR, I64, I64, I1])  # a, b, c, depth, live columns, first?
FETCHING_TYPE = ir.FunctionType(VOID, [*TILE_TYPE.args, PTR, I64])  # table, element of the matrices in it
# Steps of k that a transposed A is fetched ahead, as every step reads another line of it; and bytes to the right, from
# memory into L2, that later tiles read ([Note: Prefetching]).
PREFETCH = 8
FAR = 2 * _LINE


@record
class Tile:
    """Strides are in elements: A at a + i * a_row + k * a_step, B at b + k * b_step, C at c + i * c_row."""

    dtype: np.dtype
    lanes: int
    rows: int
    vectors: int
    a_row: int
    a_step: int
    b_step: int
    c_row: int
    partial: bool  # some tiles have fewer columns than their vectors have lanes
    bounded: bool  # B is read in place: beyond the live columns there may be no memory
    adds: bool  # k is cut into blocks: all but the first add to the result
    how: Format = FLOATS  # contents of a word of A and of B; a step of k is a word
    far: bool = False  # every step of k reads lines of A that no step before has read
    starts: bool = False  # sums start with the first row of B, which is no part of it
    ahead: tuple[int, ...] = ()  # operands of the table whose lines at the tile's place are fetched meanwhile


# For a function of loops around calls of micro-kernels: LLVM makes it in half the time, and it takes no longer to run
# ([Note: Compile time]).
AS_EMITTED = ("nounwind", "noinline", "optnone")


def emit_tile(module: ir.Module, name: str, tile: Tile) -> ir.Function:
    """`void tile(ptr a, ptr b, ptr c, i64 depth, i64 live, i1 first)`, depth > 0, 0 < live <= lanes * vectors.

    One with `ahead` takes a table of matrices, as large as that of c, too, and the element where the tile begins; it
    fetches them, a row each few steps of k.
    """
    function = ir.Function(module, FETCHING_TYPE if tile.ahead else TILE_TYPE, name)
    function.linkage = "internal"
    for attribute in ("nounwind", "noinline"):
        function.attributes.add(attribute)
    b = function.build()
    a, right, c, depth, live, first, *place = function.args
    memory = Vectors(b, tile.dtype, tile.lanes)
    masks = [memory.mask(live, j) for j in range(tile.vectors)] if tile.partial else [None] * tile.vectors
    at = range(tile.vectors)

    sums = [memory.zero] * (tile.rows * tile.vectors)
    if tile.starts:
        sums = [memory.load(memory.element(right, i64(j * tile.lanes))) for j in at] * tile.rows
        right = memory.element(right, i64(tile.b_step))

    def step(k: Any, sums: list[Any]) -> list[Any]:
        row = memory.element(right, b.mul(k, i64(tile.b_step)))
        across = [memory.load(memory.element(row, i64(j * tile.lanes)), masks[j] if tile.bounded else None) for j in at]
        column = memory.element(a, b.mul(k, i64(tile.a_step)))
        if tile.far:
            memory.prefetch(memory.element(column, i64(PREFETCH * tile.a_step)))
            memory.prefetch(memory.element(column, i64(FAR // tile.dtype.itemsize)), 2)
        updated = []
        for i in range(tile.rows):
            down = memory.splat(memory.scalar(memory.element(column, i64(i * tile.a_row))))
            updated += [multiply_add(b, tile.how, down, across[j], sums[i * tile.vectors + j]) for j in at]
        return updated

    if tile.ahead:
        sums = _loop_fetching(b, memory, tile, depth, sums, step, *place)
    else:
        sums = loop(b, i64(0), depth, 1, sums, step)
    places = [memory.element(c, i64(i * tile.c_row + j * tile.lanes)) for i in range(tile.rows) for j in at]
    masks = masks * tile.rows
    if tile.adds:
        sums = memory.add_to(places, masks, sums, unless=first)
    for value, place, mask in zip(sums, places, masks, strict=True):
        memory.store(value, place, mask)
    b.ret_void()
    return function


def _loop_fetching(
    b: ir.IRBuilder,
    memory: Vectors,
    tile: Tile,
    depth: Any,
    sums: list[Any],
    step: Callable[[Any, list[Any]], list[Any]],
    table: Any,
    at: Any,
) -> list[Any]:
    """The steps in as many parts as the tile has rows, if they are enough, and before each a row is fetched.

    The rows are those that the epilogue reads and writes ([Note: Prefetching]). Where k is cut into blocks the loop
    around the parts costs as much as it gains.
    """
    parts = least(b, i64(tile.rows), depth)
    bases = [memory.element(b.load(b.gep(table, [i64(k)], source_etype=PTR), typ=PTR), at) for k in tile.ahead]

    def part(number: Any, sums: list[Any]) -> list[Any]:
        for base in bases:
            row = memory.element(base, b.mul(number, i64(tile.c_row)))
            for line in range(0, tile.vectors * tile.lanes * tile.dtype.itemsize, _LINE):
                memory.prefetch(memory.element(row, i64(line // tile.dtype.itemsize)), 2)
        return loop(b, *share(b, number, parts, depth), 1, sums, step)

    return loop(b, i64(0), parts, 1, sums, part)


class Vectors:
    """Loads, stores and arithmetic on vectors of one dtype and width; a mask of None means all lanes."""

    def __init__(self, b: ir.IRBuilder, dtype: np.dtype, lanes: int) -> None:
        self.b, self.dtype, self.lanes = b, dtype, lanes
        self.scalar_type, self.type = register_type(dtype), ir.VectorType(register_type(dtype), lanes)
        self.zero = Literal(self.type, "zeroinitializer")

    def element(self, pointer: Any, offset: Any) -> Any:
        return self.b.gep(pointer, [offset], source_etype=self.scalar_type)

    def scalar(self, pointer: Any) -> Any:
        return self.b.load(pointer, typ=self.scalar_type, align=self.dtype.itemsize)

    def load(self, pointer: Any, mask: Any = None) -> Any:
        if mask is None:
            return self.b.load(pointer, typ=self.type, align=self.dtype.itemsize)
        arguments = [pointer, constant(self.dtype.itemsize, dtypes.int32), mask, self.zero]
        return self._call("masked.load", self.type, arguments, [self.type, PTR])

    def store(self, value: Any, pointer: Any, mask: Any = None) -> None:
        if mask is None:
            self.b.store(value, pointer, align=self.dtype.itemsize)
            return
        arguments = [value, pointer, constant(self.dtype.itemsize, dtypes.int32), mask]
        self._call("masked.store", VOID, arguments, [self.type, PTR])

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """z + x * y, of floats rounded once."""
        if self.dtype.kind in "iu":
            return self.b.add(z, self.b.mul(x, y))
        return self._call("fma", self.type, [x, y, z], [self.type])

    def prefetch(self, pointer: Any, level: int = 1) -> None:
        """Fetches a line into a cache, for reading."""
        arguments = [pointer, *(constant(x, dtypes.int32) for x in (0, 4 - level, 1))]
        self._call("prefetch", VOID, arguments, [PTR])

    def splat(self, x: Any) -> Any:
        return _splat(self.b, x, self.lanes)

    def mask(self, live: Any, vector: int) -> Any:
        """Lanes of vector number `vector` that are within the first `live` columns."""
        left = self.b.trunc(self.b.sub(live, i64(vector * self.lanes)), I32)
        return self.b.icmp_signed("<", _numbers(list(range(self.lanes))), _splat(self.b, left, self.lanes))

    def merge(self, *incoming: tuple[Any, Any]) -> Any:
        phi = self.b.phi(self.type)
        for value, block in incoming:
            phi.add_incoming(value, block)
        return phi

    def add_to(self, places: list[Any], masks: list[Any], values: list[Any], unless: Any) -> list[Any]:
        """The values with those at their places added to them, or alone."""
        before = self.b.block
        with self.b.if_then(self.b.not_(unless)):
            present = [self.load(place, mask) for place, mask in zip(places, masks, strict=True)]
            add = self.b.fadd if self.dtype.kind == "f" else self.b.add
            added = [add(x, y) for x, y in zip(present, values, strict=True)]
            adding = self.b.block
        return [self.merge((x, before), (y, adding)) for x, y in zip(values, added, strict=True)]

    def shuffle(self, x: Any, order: list[int]) -> Any:
        """Lane k of the result is lane order[k] of x."""
        return x if order == list(range(self.lanes)) else self.b.shuffle_vector(x, x, _numbers(order))

    def transpose(self, rows: list[Any]) -> list[Any]:
        """A square: interleaving row i with row i + half turns the bits of (row, column) by one place."""
        half = self.lanes // 2
        low = self._lanes_of("low", [x for k in range(half) for x in (k, self.lanes + k)])
        high = self._lanes_of("high", [x for k in range(half, self.lanes) for x in (k, self.lanes + k)])
        for _ in range(half.bit_length()):
            pairs = zip(rows[:half], rows[half:], strict=True)
            rows = [pick(x, y) for x, y in pairs for pick in (low, high)]
        return rows

    def _lanes_of(self, name: str, order: list[int]) -> Callable[[Any, Any], Any]:
        """A function of two vectors: lanes of them, by number.

        Any order is one instruction of AVX-512, but LLVM looks for a better one, twice as long as it takes where it is
        asked for that instruction, with the order in memory ([Note: Compile time]).
        """
        if self.lanes != 16 or self.dtype is not dtypes.float32:
            return lambda x, y: self.b.shuffle_vector(x, y, _numbers(order))
        module, numbers = self.b.module, _numbers(order)
        table = module.globals.get(name)
        if table is None:
            table = ir.GlobalVariable(module, numbers.type, name)
            table.linkage, table.global_constant, table.align = "internal", True, 64
            table.initializer = numbers
        index = self.b.load(table, typ=numbers.type)
        pick = intrinsic(module, "x86.avx512.vpermi2var.ps.512", self.type, [self.type, numbers.type, self.type], [])
        return lambda x, y: self.b.call(pick, [x, index, y])

    def _call(self, name: str, result: Any, arguments: Sequence[Any], overloads: Sequence[Any]) -> Any:
        kinds = [x.type for x in arguments]
        return self.b.call(intrinsic(self.b.module, name, result, kinds, list(overloads)), arguments)


def _splat(b: ir.IRBuilder, x: Any, lanes: int) -> Any:
    nothing = Literal(ir.VectorType(x.type, lanes), "poison")
    one = b.insert_element(nothing, x, constant(0, dtypes.int32))
    return b.shuffle_vector(one, nothing, _numbers([0] * lanes))


def _numbers(values: list[int]) -> Any:
    return ir.Constant(ir.VectorType(I32, len(values)), values)


def loop(
    b: ir.IRBuilder, low: Any, high: Any, step: int, carried: list[Any], body: Callable[[Any, list[Any]], list[Any]]
) -> list[Any]:
    """for (i = low; i < high; i += step) carried = body(i, carried), at least once; no loop for a single iteration."""
    first, end = ir.known(low), ir.known(high)
    if first is not None and end is not None and first + step >= end:
        return body(low, carried)
    before, head = b.block, b.append_basic_block("loop")
    b.branch(head)
    b.position_at_end(head)
    index, phis = b.phi(I64, name="i"), [b.phi(x.type) for x in carried]
    updated = body(index, list(phis))
    following = b.add(index, i64(step), flags=["nsw"])
    for phi, start, new in zip([index, *phis], [low, *carried], [following, *updated], strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(new, b.block)
    after = b.append_basic_block("done")
    b.cbranch(b.icmp_signed("<", following, high), head, after)
    b.position_at_end(after)
    return updated


def repeat(b: ir.IRBuilder, low: Any, high: Any, step: int, body: Callable[[Any], None]) -> None:
    """for (i = low; i < high; i += step) body(i), perhaps never."""

    def once(index: Any, _: list[Any]) -> list[Any]:
        body(index)
        return []

    first, end = ir.known(low), ir.known(high)
    if first is not None and end is not None and first >= end:
        return
    with b.if_then(b.icmp_signed("<", low, high)):
        loop(b, low, high, step, [], once)


def share(b: ir.IRBuilder, part: Any, parts: Any, extent: Any) -> tuple[Any, Any]:
    """Begin and end of part number `part` of an extent: none is larger than another by more than one. Threads take
    equal numbers of parts, or the last one is waited for ([Note: Runtime])."""
    return b.udiv(b.mul(part, extent), parts), b.udiv(b.mul(b.add(part, i64(1)), extent), parts)


def least(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    return b.select(b.icmp_signed("<", x, y), x, y)


def greatest(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    return b.select(b.icmp_signed(">", x, y), x, y)


def i64(value: int) -> Any:
    return constant(value, dtypes.int64)

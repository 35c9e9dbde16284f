"""Tile fusions of products, read off their launches: some make matrices, others multiply by these."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import numpy as np

from .... import config, dtypes
from ....loops.index import affine_terms
from ....loops.ir import Expr, Kernel, Store, expressions, perfect_nest
from ....once import lazy
from ....record import record
from ....schedule.fusion.epilogue import Fused
from ....schedule.fusion.tile_fusion import TileFusion
from ....schedule.kernels.gemm import Product
from ....walk import postorder
from .contraction import Contraction, Digit, contraction_of
from .tiles import MOST_FEATURES, tensor_type


@record
class Maker:
    """A product of rows and columns, and the matrices that are computed from it, by number, element by element."""

    form: Contraction
    operands: tuple[int, ...]
    nest: Kernel | None
    matrices: Mapping[int, Store | None]  # None: the product itself
    reads: tuple[int, ...]  # matrices that were made before
    of_rows: tuple[Expr, ...]  # what is the same for all elements of a row, and computed once for it


@record
class Reader:
    """A product whose left operand is a matrix, or where `turned` a transposed one, and what follows it."""

    call: Product
    nest: Kernel | None
    operands: tuple[int, ...]
    turned: bool

    @property
    def form(self) -> Contraction:
        return contraction_of(self.call)

    @property
    def matrix(self) -> int:
        return self.operands[0]


@record
class Form:
    """Makers and readers of `count` matrices of some rows and columns; those in memory are numbers below `given`."""

    makers: tuple[Maker, ...]
    readers: tuple[Reader, ...]
    given: int
    rows: int
    columns: int
    tensor: str

    @lazy
    def dtypes(self) -> dict[int, np.dtype]:
        """The type of each matrix."""
        return {
            number: maker.form.dtype if store is None else store.value.dtype
            for maker in self.makers
            for number, store in maker.matrices.items()
        }


class _Unfit(Exception):
    """The launches are none that a kernel is written for."""


def _demand(holds: bool) -> None:
    if not holds:
        raise _Unfit


def form_of(fusion: TileFusion) -> Form | None:
    """The launches as makers and readers. A single maker is better left alone: its matrix costs a launch little more to
    write and read than to make twice."""
    try:
        return _classified(fusion)
    except _Unfit:
        return None


def _classified(fusion: TileFusion) -> Form:
    makers: list[Maker] = []
    readers: list[Reader] = []
    given, made = fusion.operands, set[int]()
    for stage in fusion.stages:
        call = stage.spec.call if isinstance(stage.spec, Fused) else stage.spec
        _demand(isinstance(call, Product) and not stage.spec.checked and not call.computed)
        assert isinstance(call, Product)
        _demand(call.dtype is dtypes.float32 and stage.operands[1] < given)
        if stage.operands[0] >= given:
            _demand(stage.operands[0] in made and call.n <= MOST_FEATURES)
            _demand(all(number < given for number in stage.operands[2 + call.passing :]))
            readers.append(Reader(call, stage.spec.nest, stage.operands, call.a.column != 1))
        else:
            _demand(call.k <= MOST_FEATURES)
            makers.append(_maker(call, stage.spec.nest, stage.operands, given, made))
            made.update(makers[-1].matrices)
    _demand(len(makers) > 1 and len(readers) > 0)
    first = makers[0].form
    for maker in makers:
        _demand((maker.form.matrices, maker.form.m, maker.form.n) == (first.matrices, first.m, first.n))
    forms = [*(maker.form for maker in makers), *(reader.form for reader in readers)]
    tensors = {tensor_type(form, tf32=config.field("tf32")) for form in forms}
    _demand(len(tensors) == 1)
    form = Form(tuple(makers), tuple(readers), given, first.m, first.n, tensors.pop())
    for reader in readers:
        own = reader.form
        size = (form.columns, form.rows) if reader.turned else (form.rows, form.columns)
        strides = (1, form.columns) if reader.turned else (form.columns, 1)
        batch = () if first.matrices == 1 else (Digit(first.matrices, form.rows * form.columns),)
        _demand((own.matrices, own.m, own.k) == (first.matrices, *size))
        _demand((reader.call.a.row, reader.call.a.column) == strides and own.a.offset == 0 and own.a.batch == batch)
        _demand(form.dtypes[reader.matrix] is own.stored[0] and (bool(form.tensor) or own.stored[0] is own.dtype))
    return form


def _maker(call: Product, nest: Kernel | None, operands: tuple[int, ...], given: int, made: Container[int]) -> Maker:
    form, first = contraction_of(call), operands[2]
    if nest is None:
        _demand(first >= given)
        return Maker(form, operands, None, {first: None}, (), ())
    numbers = dict(zip((x.name for x in nest.operands), operands[2:], strict=True))
    loops, body = perfect_nest(nest.body)
    stores = [stmt for stmt in body if isinstance(stmt, Store)]
    _demand(len(loops) == 2 and len(stores) == len(body) and not nest.scratch)
    matrices: dict[int, Store | None] = {numbers[stmt.buffer.name]: stmt for stmt in stores}
    if first not in matrices and not call.passing:
        matrices[first] = None
    _demand(min(matrices) >= given)
    place = {loops[0].var: form.n, loops[1].var: 1}
    loads = [e for e in expressions(body) if e.op == "load" and numbers[e.attr.name] >= given]
    reads = dict.fromkeys(numbers[e.attr.name] for e in loads if numbers[e.attr.name] != first)
    _demand(all(number in made for number in reads) and not any(number in made for number in matrices))
    for at in (*(e.args[0] for e in loads), *(stmt.index for stmt in stores)):
        _demand(affine_terms(at) == (place, 0))
    return Maker(form, operands, nest, matrices, tuple(reads), _of_rows(stores, loops[0].var))


def _of_rows(stores: Sequence[Store], row: Expr) -> tuple[Expr, ...]:
    """The largest parts of the values that are read or computed from memory, by the row alone."""
    found: dict[Expr, None] = {}

    def parts(part: Expr) -> tuple[Expr, ...]:
        if part.depends == {row} and any(e.op == "load" for e in postorder([part], lambda e: e.args)):
            found[part] = None
            return ()
        return part.args

    postorder([stmt.value for stmt in stores], parts)
    return tuple(found)

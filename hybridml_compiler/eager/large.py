"""One operation on large arrays as a compiled kernel: on all cores, where NumPy uses one.

Elementwise rows are compiled once for their dtypes and run on any shape. Others, and elementwise rows that broadcast
more than single elements, are compiled for each signature as a graph of one node. The bits are those of the traced
program, since both run the same loops. What the kernels do not take (functions of complex numbers, elements in
steps, long lists) NumPy computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..compile_policy import KEPT, LISTED, MOST, known_or_made
from ..compile_policy import OPERATION as LARGE
from ..donation import taken
from ..hooks import hooks
from ..once import once
from ..ops.conversion import convert
from ..ops.elementwise import astype as _astype
from ..ops.indexing import Index
from ..ops.memory_order import order_of, order_of_result
from ..ops.op import SIMPLE, SPECIAL, Op, hash_key
from ..ops.table import OPS
from ..runtime.host_callback import reraise
from .strided import Form, first_element, form_of, viewed

if TYPE_CHECKING:
    from ..graph.ir import Node
    from ..targets.cpu.eager.pointwise import Pointwise

_positive, _permute_dims = OPS["positive"], OPS["permute_dims"]
_KINDS = ("elementwise", "reduction", "scan", "gather", "scatter")


def has_kernels(op: Op) -> bool:
    """Whether a row on large arrays is compiled: updates of slices are left out, where NumPy copies faster."""
    return op.kind in _KINDS or (op.kind == "movement" and len(op.inputs) == 1 and not op.is_view)


def least(op: Op) -> int:
    """Elements from which `compute` is faster. Rows with loops take long for each; those with parameters have a program
    for each size."""
    return LARGE if op.cost <= SPECIAL or op.params else int(LARGE * SIMPLE / op.cost)


def keeps(op: Op) -> bool:
    """Whether results of a row have the bytes of its operands, of a function of NumPy's."""
    return isinstance(op.eager, np.ufunc) and not op.params and not any(t.endswith("d->?") for t in op.eager.types)


def kept(kernel: Callable[..., Any], *arrays: Any) -> Any:
    """The result of a function of NumPy's, in memory that is kept when it is freed. Where several results of `KEPT`
    bytes live at once, the C library gives memory back to the kernel each time (fdtd_2d of 200 x 220: 10.7 ms, 4.9)."""
    return _under()(kernel, *arrays)


@once
def _under() -> Callable[..., Any]:
    from ..targets.cpu.runtime.allocation import handler  # what links and loads code is imported with the first kernel

    return handler().under


def deciding(op: Op) -> int:
    """The operand whose size says whether `compute` is faster: for a scatter the updates ([Note: Runtime])."""
    return -1 if op.kind == "scatter" else 0


def may_grow(op: Op) -> bool:
    """Whether small operands may broadcast to a large result."""
    return op.kind == "elementwise" and len(op.inputs) == 2


def is_small(op: Op, arrays: Sequence[np.ndarray]) -> bool:
    """Whether NumPy's call is as fast as `compute`."""
    if not arrays or arrays[deciding(op)].size >= least(op):
        return not arrays
    return not may_grow(op) or np.broadcast(*arrays).size < least(op)


def compute(op: Op, arrays: Sequence[np.ndarray], params: Mapping[str, Any]) -> Any:
    """`op.eager`, for operands whose `deciding` one is large, or which may broadcast to a large result."""
    known = _ways.setdefault(op, {})
    key = (*[(a.shape, a.dtype, a.strides) for a in arrays], *map(hash_key, params.values()))
    way = known.get(key)
    if way is None:
        way = _way(op, arrays, params)
        if way is None:
            return op.run(arrays, params)
        if len(known) >= _MOST_WAYS:
            known.clear()
        known[key] = way
    return way(arrays)


# Finding a way takes 6 us, looking it up 0.7.
_Way = Callable[[Sequence[np.ndarray]], Any]
_ways: dict[Op, dict[Any, _Way]] = {}  # by what decides about it: shapes, dtypes, strides, parameters
_MOST_WAYS = 4096


def _way(op: Op, arrays: Sequence[np.ndarray], params: Mapping[str, Any]) -> _Way | None:
    """The function that computes a row on arrays as these; None where it is NumPy's until they have come more often."""
    if may_grow(op) and np.broadcast(*arrays).size < least(op):
        if keeps(op) and np.broadcast(*arrays).size * arrays[0].itemsize >= KEPT:
            return lambda arrays: kept(op.eager, *arrays)
        return _by_numpy(op, params)
    order = order_of_result(arrays) if op.kind == "elementwise" else None
    if order is not None:  # the result lies as NumPy's
        return _turned(op, order, arrays, params)
    fits = has_kernels(op) and len(arrays) < LISTED and _takes(op, arrays) and all([_is_readable(a) for a in arrays])
    if not fits or not _compiler():
        return _by_numpy(op, params)
    pointwise = _pointwise(op, arrays) if op.kind == "elementwise" and not params else None
    if pointwise is None:
        return _of_signature(op, arrays, params)
    return _new_result(_largest(arrays).shape, *pointwise, op.body is not None)


def _by_numpy(op: Op, params: Mapping[str, Any]) -> _Way:
    return lambda arrays: op.run(arrays, params)


def created(op: Op, params: Mapping[str, Any]) -> Callable[[], np.ndarray] | None:
    """The kernel of a row without operands; None where the result is small, or of any shape: `hooks.materialized` has
    one kernel for all of these."""
    if op.kind != "creation" or "shape" in params or op.infer(**params).size < LARGE or not _compiler():
        return None
    way = _of_signature(op, (), params)
    return None if way is None else lambda: way(())


def _turned(op: Op, order: Sequence[int], arrays: Sequence[np.ndarray], params: Mapping[str, Any]) -> _Way:
    """The function that computes a row on operands with their axes in this order, and turns the result back."""
    back = np.argsort(order)

    def turned(a: np.ndarray) -> np.ndarray:
        return a.reshape((1,) * (len(order) - a.ndim) + a.shape).transpose(order) if a.ndim else a

    if order_of_result([turned(a) for a in arrays]) is not None:
        return _by_numpy(op, params)

    def run(arrays: Sequence[np.ndarray]) -> np.ndarray:
        found: np.ndarray = compute(op, [turned(a) for a in arrays], params).transpose(back)
        return found

    return run


def materialized(array: np.ndarray) -> np.ndarray:
    """A copy of an array, on all cores where it is large and dense, or one number seen as many; or what is donated."""
    if taken(array):
        return array
    if array.size < LARGE or not _is_plain(array) or not _compiler():
        return array.copy(order="K")
    found: np.ndarray = compute(_positive, [array], {})
    return found


def contiguous(array: np.ndarray) -> np.ndarray:
    """The array, or a copy in row-major order, made on all cores where it is large."""
    if array.flags.c_contiguous:
        return array
    if _is_uniform(array):
        return materialized(array)
    if array.size < LARGE or not _is_readable(array) or not _compiler():
        return np.ascontiguousarray(array)
    way = _of_signature(_positive, [array], {})
    found: np.ndarray = np.ascontiguousarray(array) if way is None else way([array])
    return found


def _takes(op: Op, arrays: Sequence[np.ndarray]) -> bool:
    """Whether there are kernels of the row for these dtypes."""
    return op.complex_kernels or all([a.dtype.kind != "c" for a in arrays])


def _is_plain(array: np.ndarray) -> bool:
    """Whether generated code can read the array."""
    return array.flags.c_contiguous or _is_uniform(array)


def _is_readable(array: np.ndarray) -> bool:
    """Whether a program can read the array, or a copy of it that takes no time."""
    return _is_plain(array) or array.size < LARGE or form_of(array) is not None


def _is_uniform(array: np.ndarray) -> bool:
    """Whether all elements are one in memory, as those of the gradient of a sum."""
    return not any(array.strides)


@once
def _compiler() -> bool:
    try:
        import llvmlite  # noqa: F401
    except ImportError:
        return False
    return True


def compute_into(op: Op, arrays: Sequence[np.ndarray], out: np.ndarray) -> bool:
    """Whether the result of an elementwise row was written to `out`, which may be an operand: where arrays are large
    and dense, and overlap in no other way."""
    if out.size < LARGE or not out.flags.c_contiguous or not all(map(_is_plain, arrays)) or not _compiler():
        return False
    if not _takes(op, arrays) or any(a is not out and np.may_share_memory(a, out) for a in arrays):
        return False
    found = _pointwise(op, arrays)
    if found is None or found[1] is not out.dtype:
        return False
    found[0](arrays, out)
    return True


_Fill = Callable[[Sequence[np.ndarray], np.ndarray], None]


def _pointwise(op: Op, arrays: Sequence[np.ndarray]) -> tuple[_Fill, np.dtype] | None:
    """The function that fills an array with the result, and its dtype, over operands of one shape, or of one element;
    None where they are others."""
    shape = _largest(arrays).shape
    if not all([_is_plain(a) and (a.shape == shape or (a.size == 1 and a.ndim <= len(shape))) for a in arrays]):
        return None
    single = tuple([a.size == 1 or _is_uniform(a) for a in arrays])
    kernel, result = _kernel(op, tuple([a.dtype for a in arrays]), single)

    def fill_from_some(arrays: Sequence[np.ndarray], out: np.ndarray) -> None:
        kernel(*[a[(0,) * a.ndim + (...,)] if one else a for a, one in zip(arrays, single, strict=True)], out)

    def fill(arrays: Sequence[np.ndarray], out: np.ndarray) -> None:
        kernel(*arrays, out)

    return (fill_from_some if any(single) else fill), result


def _largest(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return max(arrays, key=lambda a: (a.size, a.ndim))


def _new_result(shape: tuple[int, ...], fill: _Fill, dtype: np.dtype, may_stop: bool) -> _Way:
    from ..targets.cpu.runtime.allocation import empty  # what links and loads code is imported with the first kernel

    def run(arrays: Sequence[np.ndarray]) -> np.ndarray:
        out = empty(shape, dtype)
        fill(arrays, out)
        return out

    def run_or_raise(arrays: Sequence[np.ndarray]) -> Any:
        out = run(arrays)
        reraise()  # a loop that was interrupted
        return out

    return run_or_raise if may_stop else run


@once
def _kernel(op: Op, kinds: tuple[np.dtype, ...], single: tuple[bool, ...]) -> tuple[Pointwise, np.dtype]:
    from ..targets.cpu.eager.pointwise import compile_pointwise

    wide = tuple(dtypes.float32 if dtypes.is_narrow(kind) else kind for kind in kinds)
    computed = op.infer(*(Aval((), kind) for kind in wide)).dtype
    result = _rounded(computed, kinds)

    def value(s: Any, i: Any, buffers: Sequence[Any]) -> Any:
        loads = [_Load(s, *operand) for operand in zip(buffers, wide, single, strict=True)]
        return convert(s, op.lower(s, (i,), *loads), computed, result)

    spelled = "_".join(kind.name for kind in kinds)
    return compile_pointwise(f"{op.name}_{spelled}", kinds, result, value), result


class _Load:
    """An operand as `lower` sees it: of any length, or of one element."""

    def __init__(self, s: Any, buffer: Any, dtype: np.dtype, single: bool) -> None:
        from ..loops.ir import ANY_LENGTH

        self.s, self.buffer, self.dtype = s, buffer, dtype
        self.shape = (1,) if single else (ANY_LENGTH,)

    def __call__(self, index: Index) -> Any:
        return convert(self.s, self.s.load(self.buffer, index[0]), self.buffer.dtype, self.dtype)


def _rounded(computed: np.dtype, operands: Sequence[np.dtype]) -> np.dtype:
    """Rows compute on bfloat16 and float16 in float32, and round that."""
    narrow = next((kind for kind in operands if dtypes.is_narrow(kind)), None)
    return narrow if narrow is not None and computed is dtypes.float32 else computed


def _stores(op: Op) -> bool:
    """Whether the row moves elements of any dtype as they are."""
    return op.kind in ("gather", "movement") or op is _astype


def _cast(x: Node, dtype: np.dtype) -> Node:
    from ..graph.ir import apply

    return x if x.dtype is dtype else apply(_astype, [x], {"dtype": dtype})


_compiled: dict[Op, dict[Any, Any]] = {}
_awaited: dict[Any, int] = {}  # calls of signatures
_WORTH = 3


def _of_signature(op: Op, arrays: Sequence[np.ndarray], params: Mapping[str, Any]) -> _Way | None:
    forms = tuple([None if _is_plain(a) or a.size < LARGE else form_of(a) for a in arrays])
    known = _compiled.setdefault(op, {})
    key = (tuple((a.shape, a.dtype) for a in arrays), forms, *map(hash_key, params.values()))
    if any(forms) and not op.reorders and key not in known and not _is_worth((op, *key)):
        return None
    found = known.get(key) or known_or_made(known, key, MOST, lambda: _program(op, arrays, forms, params))
    if found is None:
        return _by_numpy(op, params)
    program, back = found
    if all([a.flags.c_contiguous for a in arrays]):
        return lambda arrays: program(arrays)[0]

    def run(arrays: Sequence[np.ndarray]) -> Any:
        given = [
            first_element(a, form) if form is not None else a if a.flags.c_contiguous else a.copy()
            for a, form in zip(arrays, forms, strict=True)
        ]
        found = program.run_at(given)
        if found is None:
            return op.run(arrays, params)  # NumPy says which index is out of range
        return found[0] if back is None else found[0].transpose(back)

    return run


def _is_worth(key: Any) -> bool:
    """Whether slices come often enough for a program: they may have another size in each call."""
    if len(_awaited) >= _MOST_WAYS:
        _awaited.clear()
    _awaited[key] = calls = _awaited.get(key, 0) + 1
    return calls >= _WORTH


def _program(op: Op, arrays: Sequence[np.ndarray], forms: Sequence[Form | None], params: Mapping[str, Any]) -> Any:
    """The program of a signature, and the axes by which its result is turned to lie as NumPy's, or None for no turn;
    None where NumPy's result is a view."""
    from ..graph.ir import Graph, apply, input_node
    from ..pipeline import compile

    order = None
    if any(forms) and op.kind != "elementwise":  # those are turned as a whole
        made = np.asarray(op.run(arrays, params))
        if any([np.may_share_memory(made, a) for a in arrays]):
            return None
        order = order_of(made)
    inputs, operands = [], []
    for a, form in zip(arrays, forms, strict=True):
        x = input_node(Aval(a.shape if form is None else form.dense, a.dtype))
        inputs.append(x)
        operands.append(x if form is None else viewed(x, form, a.shape))
    if _stores(op):
        out = apply(op, operands, params)
    else:
        out = apply(op, [_cast(x, dtypes.float32) if dtypes.is_narrow(x.dtype) else x for x in operands], params)
        out = _cast(out, _rounded(out.dtype, [x.dtype for x in inputs]))
    if order is not None:
        out = apply(_permute_dims, [out], {"axes": order})
    return compile(Graph(tuple(inputs), (out,), op.name)), None if order is None else np.argsort(order)


hooks.contiguous, hooks.materialized = contiguous, materialized

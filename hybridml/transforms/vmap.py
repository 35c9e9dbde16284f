"""`vmap`: a function of one element becomes one of a batch. Also what its elements have in common: `psum`, `pmean`."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError
from hybridml_compiler.ops.shapes import axis_index as axis_of
from hybridml_compiler.ops.table import OPS

from ..arrays.creation import arange, asarray
from ..autograd import Function
from ..core.batching.interpreter import Batching, Randomness
from ..core.batching.rules import moved, spread
from ..core.context import current_interpreter
from ..core.forward.interpreter import Forward
from ..core.interpreter import below, interpret, interpreter_stack
from ..core.nested import staged
from ..core.pytree import flatten, tree_leaves, tree_map, unflatten
from ..core.tensor import Tensor, aval_of

_RANDOMNESS = ("error", "different", "same")


def vmap(
    fn: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    *,
    randomness: Randomness = "error",
    chunk_size: int | None = None,
    in_dims: Any = 0,
    out_dims: Any = 0,
) -> Callable[..., Any]:
    """`vmap(fn)(xs)` is `fn` of each element of a batch, the results stacked, without a loop.

    in_axes: the axis of each argument that counts the elements, None for an argument that all of them share; one for
    all arguments, a tuple with one for each, and within it containers as those of the arguments. Keyword arguments
    count along axis 0. out_axes: where the axis is in results, likewise; None for what is the same for all.
    axis_size: number of elements, if no argument says it. axis_name: a name for `psum`, `pmean` and `axis_index`.
    randomness: what random numbers inside are, "different" for each element or the "same"; by default an error.
    chunk_size: elements that are computed together; less memory, the same results (so not with an axis_name or the same
    random numbers: ArgumentError). in_dims, out_dims: PyTorch's names
    of in_axes and out_axes.

    It composes with itself, `grad` and the other transforms, and `trace`, in any order. `if` and `while` of a value
    that differs are a TraceError: `where`, `cond`, `while_loop` are not. Errors: ArgumentError for axes that do not fit
    the arguments, ShapeError for batches of different sizes.

    >>> import hybridml as hm
    >>> hm.vmap(lambda x, y: (x * y).sum(), in_axes=(0, None))(hm.tensor([[1.0, 2.0], [3.0, 4.0]]), hm.ones(2)).tolist()
    [3.0, 7.0]
    >>> x = hm.tensor([1.0, 2.0, 3.0])
    >>> hm.vmap(hm.grad(lambda x: x**3))(x).tolist()
    [3.0, 12.0, 27.0]
    """
    if not callable(fn):
        raise ArgumentError(f"vmap: takes a function and gives a function, got {type(fn).__name__}")
    in_axes, out_axes = _one_of("in", in_axes, in_dims), _one_of("out", out_axes, out_dims)
    if randomness not in _RANDOMNESS:
        raise ArgumentError(f"vmap: randomness is one of {', '.join(map(repr, _RANDOMNESS))}, got {randomness!r}")
    if chunk_size is not None and (type(chunk_size) is not int or chunk_size < 1):
        raise ArgumentError(f"vmap: chunk_size is a number of elements, 1 or more, got {chunk_size!r}")

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        leaves: list[Any] = []
        structure = flatten((args, kwargs), leaves)
        axes = (*_axes_of_arguments(in_axes, args), *(0 if _has_axes(leaf) else None for leaf in tree_leaves(kwargs)))
        slots = [_slot(leaf, axis, k) for k, (leaf, axis) in enumerate(zip(leaves, axes, strict=True))]
        size = _size_of(slots, axis_size)

        def run(first: int, count: int) -> Any:
            batching = Batching(count, randomness, axis_name)
            given = [slot.element(batching, first, count, size) for slot in slots]
            inner_args, inner_kwargs = unflatten(structure, given)
            found: list[Any] = []
            call = staged(batching, fn)
            shape = flatten(interpret(batching, lambda: call(*inner_args, **inner_kwargs)), found)
            return shape, [_result(batching, leaf) for leaf in found]

        step = max(size if chunk_size is None else min(chunk_size, size), 1)
        if step < size and (axis_name is not None or randomness == "same"):
            what = "randomness='same'" if axis_name is None else f"axis_name={axis_name!r}"
            raise ArgumentError(
                f"vmap: chunk_size={chunk_size} does not go with {what}, which is about all {size} elements together"
            )
        parts = [run(first, min(step, size - first)) for first in range(0, size, step)] or [run(0, 0)]
        shape = parts[0][0]
        places = _axes_of(out_axes, unflatten(shape, range(len(parts[0][1]))), "out_axes", "the result")
        columns = zip(*[found for _, found in parts], strict=True)
        return unflatten(shape, [_placed(column, axis) for column, axis in zip(columns, places, strict=True)])

    return wrapper


# -- arguments


def _has_axes(leaf: Any) -> bool:
    return isinstance(leaf, Tensor | np.ndarray)


class _Slot(NamedTuple):
    """A leaf of the arguments, and the axis that counts its elements; None: all share it."""

    leaf: Any
    axis: int | None

    def element(self, batching: Batching, first: int, count: int, size: int) -> Any:
        """The leaf as the function gets it, of `count` elements from the `first` on."""
        if self.axis is None:
            return self.leaf
        front = moved(self.leaf, self.axis, 0)
        return batching.wrap(front if count == size else front[first : first + count], True, True)


def _slot(leaf: Any, axis: Any, number: int) -> _Slot:
    if axis is None or leaf is None:
        return _Slot(leaf, None)
    if not _has_axes(leaf):
        raise DTypeError(
            f"vmap: leaf {number} of the arguments is {leaf!r}, which has no axis {axis}; say None for it in in_axes"
        )
    t = asarray(leaf)
    if not -t.ndim <= axis < t.ndim:
        raise ShapeError(f"vmap: in_axes says axis {axis} of leaf {number} of the arguments, whose shape is {t.shape}")
    return _Slot(t, axis_of("vmap", axis, aval_of(t)))


def _size_of(slots: list[_Slot], given: int | None) -> int:
    sizes = {k: s.leaf.shape[s.axis] for k, s in enumerate(slots) if s.axis is not None}
    if given is not None:
        sizes[-1] = given
    if not sizes:
        raise ArgumentError("vmap: no argument has an axis to map over; say one in in_axes, or the number in axis_size")
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"leaf {k} has {n}" if k >= 0 else f"axis_size is {n}" for k, n in sizes.items())
        raise ShapeError(f"vmap: the arguments have different numbers of elements: {shown}")
    return int(next(iter(sizes.values())))


def _axes_of_arguments(in_axes: Any, args: tuple[Any, ...]) -> list[Any]:
    if not isinstance(in_axes, tuple | list):
        return list(_axes_of(in_axes, args, "in_axes", "the arguments"))
    if len(in_axes) != len(args):
        raise ArgumentError(f"vmap: in_axes has {len(in_axes)} entries for {len(args)} arguments")
    pairs = zip(in_axes, args, strict=True)
    return [axis for k, (a, arg) in enumerate(pairs) for axis in _axes_of(a, arg, "in_axes", f"argument {k}")]


def _axes_of(axes: Any, tree: Any, name: str, what: str) -> Iterator[int | None]:
    """An axis for each leaf of a container, of axes in containers of which the upper levels are the same."""
    if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
        yield from (axes for _ in tree_leaves(tree))
        return
    given, children = _children(axes), _children(tree)
    if given is None or children is None or given.keys() != children.keys():
        raise ArgumentError(
            f"vmap: {name} has {axes!r} for {what}, of class {type(tree).__name__}; say an int or None for all of it, "
            "or a container with an entry for each of its own"
        )
    for key, child in children.items():
        yield from _axes_of(given[key], child, name, f"{what}[{key!r}]")


def _children(tree: Any) -> dict[Any, Any] | None:
    if isinstance(tree, dict):
        return tree
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return {field.name: getattr(tree, field.name) for field in dataclasses.fields(tree)}
    return dict(enumerate(tree)) if isinstance(tree, tuple | list) else None


# -- results


class _Result(NamedTuple):
    """A leaf of what the function returns: the tensor outside, and whether its first axis counts the elements."""

    leaf: Any
    is_batch: bool
    size: int


def _result(batching: Batching, leaf: Any) -> _Result:
    if batching.owns(leaf):
        return _Result(leaf._array.tensor, leaf._array.is_batch, batching.size)
    if leaf is not None and not isinstance(leaf, Tensor | np.ndarray | np.generic | bool | int | float | complex):
        raise DTypeError(
            f"vmap: the function must return tensors, numbers or containers of them, got {type(leaf).__name__}"
        )
    return _Result(leaf if leaf is None else asarray(leaf), False, batching.size)


def _placed(parts: tuple[_Result, ...], axis: int | None) -> Any:
    """A result of all elements, with their axis where it is asked for."""
    first = parts[0]
    if first.leaf is None:
        return None
    if axis is None:
        if first.is_batch:
            raise ArgumentError(
                f"vmap: out_axes is None for a result of shape {first.leaf.shape[1:]} that differs from element to "
                "element; say where its axis is to be"
            )
        return first.leaf
    tensors = [p.leaf if p.is_batch else spread(p.leaf, p.size) for p in parts]
    whole = tensors[0] if len(tensors) == 1 else OPS["concat"].fn(tensors, axis=0)
    if not -whole.ndim <= axis < whole.ndim:
        raise ShapeError(f"vmap: out_axes is {axis} for a result of shape {whole.shape[1:]} for each element")
    return moved(whole, 0, axis % whole.ndim)


# -- what elements have in common


def psum(x: Any, axis_name: Any) -> Any:
    """The sum over all elements of the `vmap` whose axis has this name, or of several in a tuple of names; for a
    container, of each of its tensors.

    >>> import hybridml as hm
    >>> hm.vmap(lambda x: x / hm.psum(x, "batch"), axis_name="batch")(hm.tensor([1.0, 3.0])).tolist()
    [0.25, 0.75]
    """
    along = [_named("psum", name) for name in _names(axis_name)]
    return tree_map(lambda leaf: functools.reduce(_Sum.apply, along, asarray(leaf)), x)


def pmean(x: Any, axis_name: Any) -> Any:
    """The mean over all elements of the `vmap` whose axis has this name, or of several in a tuple of names; for a
    container, of each of its tensors.

    >>> import hybridml as hm
    >>> hm.vmap(lambda x: x - hm.pmean(x, "batch"), axis_name="batch")(hm.tensor([1.0, 3.0])).tolist()
    [-1.0, 1.0]
    """
    count = math.prod(_named("pmean", name).size for name in _names(axis_name))
    return tree_map(lambda leaf: leaf / count, psum(x, axis_name))


def axis_index(axis_name: Any) -> Tensor:
    """The number of the element, from 0, in the `vmap` whose axis has this name.

    >>> import hybridml as hm
    >>> hm.vmap(lambda x: x + hm.axis_index("batch"), axis_name="batch")(hm.zeros(3)).tolist()
    [0.0, 1.0, 2.0]
    """
    batching = _named("axis_index", axis_name)
    return _inside(batching, lambda: batching.wrap(below(batching, lambda: arange(batching.size)), True))


def _names(axis_name: Any) -> Sequence[Any]:
    return axis_name if isinstance(axis_name, tuple | list) else (axis_name,)


def _named(what: str, name: Any) -> Batching:
    level = interpreter_stack()
    while level is not None:
        if isinstance(level.interpreter, Batching) and level.interpreter.name == name:
            return level.interpreter
        level = level.beneath
    raise ArgumentError(f"{what}: no vmap around this call has axis_name={name!r}")


def _inside(batching: Batching, fn: Callable[[], Tensor]) -> Tensor:
    """`fn()` at the level of an interpreter, for the one on top of the stack."""
    top = current_interpreter()
    return fn() if top is batching or top is None else top.lift(below(top, lambda: _inside(batching, fn)))


def _summed(x: Tensor, batching: Batching) -> Tensor:
    top = current_interpreter()
    if top is batching:
        batch = batching.batch_of(x)
        return batching.wrap(below(batching, lambda: batch.sum(axis=0)), False)
    if isinstance(top, Forward):
        value, tangent = top.parts(x)
        total: Tensor = below(top, lambda: _summed(value, batching))
        return top.wrap(total, None if tangent is None else below(top, lambda: _summed(tangent, batching)))
    assert isinstance(top, Batching), "an interpreter above a vmap is one of a transform inside"
    element = top.lift(x)._array
    inner: Tensor = below(top, lambda: _summed(element.tensor, batching))
    return top.wrap(inner, element.is_batch)


class _Sum(Function):
    """The sum over a batch. Its derivative is a sum, too: each element has a part in that of all."""

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """The sum; of what all elements share, so many times it."""
        x, batching = args
        top: Any = current_interpreter()
        if top is batching and not batching.lift(x)._array.is_batch:
            return x * batching.size
        return super().apply(x, batching)

    @staticmethod
    def forward(ctx: Any, x: Tensor, batching: Batching) -> Tensor:
        ctx.batching = batching
        return _summed(x, batching)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return _Sum.apply(g, ctx.batching), None


def _one_of(name: str, axes: Any, dims: Any) -> Any:
    """The axes under JAX's name or PyTorch's, whichever is given."""
    if axes != 0 and dims != 0:
        raise ArgumentError(f"vmap: {name}_axes and {name}_dims are two names of one thing; give one of them")
    return dims if axes == 0 else axes

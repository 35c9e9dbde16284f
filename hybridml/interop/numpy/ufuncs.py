"""Elementwise functions of NumPy on tensors, and their methods `reduce`, `accumulate`, `outer`, `at` and `reduceat`.

A ufunc is known by its name: that of a function of `hybridml`. What its methods do follows from the function of two
operands, where no row says it in one step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, DTypeError, GradientError, ShapeError

from ... import arrays as xp
from ...arrays.indexing.at import OF_UFUNC, updated
from ...arrays.indexing.selecting import where as select
from ...arrays.shaping.manipulation import _axis, expand_dims, stack, unstack
from ...core.aliasing import assign
from ...core.proxies.base import Proxy
from ...core.tensor import Tensor, values
from . import texts
from .table import store

# NumPy's name -> ours, where they differ.
NAMES = {
    "conjugate": "conj", "_ones_like": "ones_like", "degrees": "rad2deg", "radians": "deg2rad",
}  # fmt: skip
STRINGS = frozenset({
    "count", "endswith", "find", "index", "isalnum", "isalpha", "isdecimal", "isdigit", "islower", "isnumeric",
    "isspace", "istitle", "isupper", "rfind", "rindex", "startswith", "str_len", "_center", "_expandtabs",
    "_expandtabs_length", "_ljust", "_lstrip_chars", "_lstrip_whitespace", "_partition", "_partition_index",
    "_replace", "_rjust", "_rpartition", "_rpartition_index", "_rstrip_chars", "_rstrip_whitespace", "_slice",
    "_strip_chars", "_strip_whitespace", "_zfill",
})  # fmt: skip
_TRUTH = frozenset({"logical_and", "logical_or", "logical_xor", "logical_not"})
# What a ufunc does along an axis in one step: (x, axis, keepdims) -> the reduced, (x, axis) -> the running result.
_REDUCE = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any",
    "logaddexp": "logsumexp",
}  # fmt: skip
_ACCUMULATE = {"add": "cumulative_sum", "multiply": "cumulative_prod"}
_IDENTITY = {"logical_and": True, "logical_or": False, "logical_xor": False}


@functools.cache
def target_of(ufunc: np.ufunc) -> Callable[..., Any] | None:
    """The function of `hybridml` that a ufunc stands for; None if there is none."""
    name = ufunc.__name__
    if name in texts.NUMBERS:
        return texts.of_numbers(ufunc)
    if name in STRINGS or name == "isnat":
        return None
    found: Any = getattr(xp, NAMES.get(name, name), None)
    return _of_truth(found) if found is not None and name in _TRUTH else found


def run(ufunc: np.ufunc, call: str, inputs: tuple[Any, ...], kwargs: dict[str, Any], of: str = "np") -> Any:
    """Result of a ufunc, or of its method `call`, on tensors; DTypeError for one that has none here. `of`: the
    namespace that it was found in, for errors."""
    target = target_of(ufunc)
    if (
        call == "__call__"
        and target is not None
        and not kwargs
        and not any(isinstance(x, list | tuple) for x in inputs)
    ):
        return target(*inputs)
    what = f"{of}.{ufunc.__name__}" + ("" if call == "__call__" else f".{call}")
    if target is None:
        raise DTypeError(f"{what}: {refusal(ufunc)}")
    if ufunc.__name__ in texts.NUMBERS and call == "__call__":
        return target(*inputs, **kwargs)
    out = kwargs.pop("out", None)
    for name in ("order", "subok", "casting"):
        kwargs.pop(name, None)
    try:
        return _CALLS[call](ufunc, target, inputs, out, what, **kwargs)
    except TypeError as error:
        if "unexpected keyword" not in str(error) or not kwargs:
            raise
        raise ArgumentError(f"{what}: {', '.join(f'{k}=' for k in kwargs)} is not supported on tensors") from error


def refusal(ufunc: np.ufunc) -> str:
    """The reason why a ufunc does not take tensors."""
    if ufunc.__name__ in STRINGS:
        return texts.WHY
    if ufunc.__name__ == "isnat":
        return "works on dates, and tensors hold numbers; np.isnan and hm.isnan are what finds NaN"
    return "has no counterpart for tensors; give it arrays (`t.detach().numpy()`), or use functions of hybridml"


def _called(
    ufunc: np.ufunc, target: Any, inputs: tuple[Any, ...], out: Any, what: str, where: Any = True, dtype: Any = None,
    **params: Any,
) -> Any:  # fmt: skip
    inputs = tuple(_operand(x, dtype) for x in inputs)
    if ufunc.signature is not None and "axes" in params:
        raise ArgumentError(f"{what}: axes= is not supported on tensors; move the axes with np.moveaxis")
    result = target(*inputs, **params)
    if out is None and where is not True:
        return select(where, result, xp.zeros_like(result))  # NumPy leaves there what memory holds
    return result if out is None else store(out, result, what, where)


def _operand(x: Any, dtype: Any) -> Any:
    """An operand of a row: sequences as tensors, everything in the dtype that was asked for."""
    if isinstance(x, list | tuple):
        x = xp.asarray(x)
    if dtype is None:
        return x
    return xp.astype(x if isinstance(x, Tensor) else xp.asarray(x), dtype, copy=False)


def _element(ufunc: np.ufunc, x: Any, dtype: Any) -> Tensor:
    """An operand whose elements a method puts together; those of logic are bools from the first one on."""
    x = _operand(_tensor(x), dtype)
    return xp.not_equal(x, 0) if ufunc.__name__ in _TRUTH and not _is_bool(x) else x


def _of_truth(target: Callable[..., Any]) -> Callable[..., Any]:
    """Logic on numbers: any but zero is true."""

    @functools.wraps(target)
    def logic(*inputs: Any) -> Any:
        return target(*(x if _is_bool(x) else xp.not_equal(x, 0) for x in map(_tensor, inputs)))

    return logic


def _is_bool(x: Any) -> bool:
    return x.dtype.kind == "b"


def _tensor(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else xp.asarray(x)


def _axes(what: str, x: Tensor, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(_axis(what, int(a), x.ndim, x) for a in (axis if isinstance(axis, tuple) else (axis,)))


def _reduce(
    ufunc: np.ufunc, target: Any, inputs: tuple[Any, ...], out: Any, what: str, axis: Any = 0, dtype: Any = None,
    keepdims: bool = False, initial: Any = None, where: Any = True,
) -> Any:  # fmt: skip
    x = _element(ufunc, inputs[0], dtype)
    if where is not True:
        neutral = _neutral(ufunc) if initial is None else initial
        if neutral is None:
            raise ArgumentError(f"{what}: where= needs initial=, as the function has no neutral element")
        x = select(where, x, xp.full((), neutral, dtype=x.dtype))
    name = _REDUCE.get(ufunc.__name__)
    axes = _axes(what, x, axis)
    if name is not None and hasattr(xp, name) and not (initial is not None and 0 in [x.shape[a] for a in axes]):
        result = getattr(xp, name)(x, axis=axes, keepdims=keepdims)
        result = result if initial is None else target(result, initial)
    else:
        result = _folded(ufunc, target, x, axes, initial, what)
        if keepdims:
            result = expand_dims(result, tuple(axes))
    return result if out is None else store(out, result, what)


def _neutral(ufunc: np.ufunc) -> Any:
    identity = ufunc.identity
    return _IDENTITY.get(ufunc.__name__, identity)


def _folded(ufunc: np.ufunc, target: Any, x: Tensor, axes: Sequence[int], initial: Any, what: str) -> Tensor:
    """A fold of one element after the other, along all axes at once."""
    rest = [k for k in range(x.ndim) if k not in axes]
    shape = tuple(x.shape[k] for k in rest)
    lines = xp.reshape(xp.permute_dims(x, (*axes, *rest)), (-1, *shape)) if x.size else x
    first = [] if initial is None else [xp.full(shape, initial, dtype=x.dtype)]
    parts = first + (list(unstack(lines, axis=0)) if x.size else [])
    if parts:
        return functools.reduce(target, parts)
    if _neutral(ufunc) is None:
        raise ShapeError(f"{what}: no elements along the axes, and the function has no neutral element")
    return xp.full(shape, _neutral(ufunc), dtype=x.dtype)


def _accumulate(
    ufunc: np.ufunc, target: Any, inputs: tuple[Any, ...], out: Any, what: str, axis: int = 0, dtype: Any = None
) -> Any:
    x = _element(ufunc, inputs[0], dtype)
    axis = _axes(what, x, axis)[0]
    name = _ACCUMULATE.get(ufunc.__name__)
    if name is not None and hasattr(xp, name):
        result = getattr(xp, name)(x, axis=axis)
    else:
        parts = unstack(x, axis=axis)
        result = stack(_running(target, parts), axis=axis) if parts else x
    return result if out is None else store(out, result, what)


def _running(target: Any, parts: Sequence[Tensor]) -> list[Tensor]:
    done = [parts[0]]
    for part in parts[1:]:
        done.append(target(done[-1], part))
    return done


def _outer(ufunc: np.ufunc, target: Any, inputs: tuple[Any, ...], out: Any, what: str, **params: Any) -> Any:
    if out is None and not params:
        return outer(target, *inputs)
    a, b = map(_tensor, inputs)
    return _called(ufunc, target, (a[(..., *[None] * b.ndim)], b), out, what, **params)


def outer(target: Any, a: Any, b: Any) -> Any:
    """A function of all pairs of elements."""
    a, b = _tensor(a), _tensor(b)
    return target(a[(..., *[None] * b.ndim)], b)


def _at(ufunc: np.ufunc, target: Any, inputs: tuple[Any, ...], out: Any, what: str) -> None:
    x, key, *operands = inputs
    if issubclass(type(x), Proxy):
        x._by_numpy(ufunc, "at", inputs, {})
        return
    if not isinstance(x, Tensor):
        part = tuple(_values(k, what) for k in key) if type(key) is tuple else _values(key, what)
        ufunc.at(x, part, *(_values(v, what) for v in operands))
        return
    if not operands:
        assign(x, x.at[key].apply(target), what)
        return
    how = OF_UFUNC.get(ufunc.__name__)
    if how is None:
        raise ArgumentError(f"{what}: not supported on tensors; {', '.join(OF_UFUNC)} are")
    assign(x, updated(xp.asarray(x), key, how, xp.asarray(operands[0])), what)


def _values(x: Any, what: str) -> Any:
    """The values that an array takes: of a tensor, which may have no gradient."""
    if isinstance(x, Tensor) and x.requires_grad:
        raise GradientError(f"{what}: NumPy's arrays keep no gradients; give a tensor, or .detach()")
    return values(x, what) if isinstance(x, Tensor) else x


def _reduceat(
    ufunc: np.ufunc, target: Any, inputs: tuple[Any, ...], out: Any, what: str, axis: int = 0, dtype: Any = None
) -> Any:
    x = _tensor(inputs[0])
    starts = np.asarray(inputs[1]).tolist()  # they are sizes of what is reduced: a traced program asks for their values
    axis = _axes(what, x, axis)[0]
    lead = (slice(None),) * axis
    parts = []
    for start, stop in zip(starts, [*starts[1:], x.shape[axis]], strict=True):
        part = x[(*lead, slice(start, stop if stop > start else start + 1))]
        parts.append(_reduce(ufunc, target, (part,), None, what, axis=axis, dtype=dtype))
    result = stack(parts, axis=axis)
    return result if out is None else store(out, result, what)


_CALLS: dict[str, Callable[..., Any]] = {
    "__call__": _called, "reduce": _reduce, "accumulate": _accumulate, "outer": _outer, "at": _at,
    "reduceat": _reduceat,
}  # fmt: skip

"""Functions captured for shapes and dtypes alone: `eval_shape`, and the first half of `fn.lower`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hybridml_compiler.errors import TraceError
from hybridml_compiler.targets.device import DeviceArray

from ..arrays.shape_dtype import ShapeDtypeStruct, untouched
from ..core.interpreter import eagerly
from ..core.pytree import tree_map
from ..core.tensor import Tensor, wrap
from ..tracing.capture.line_observer import Observer
from ..tracing.decorator import trace
from ..tracing.function import TracedFunction
from ..tracing.run.compiled_path import CompiledPath
from ..tracing.specialize.errors import RunEagerly
from ..tracing.specialize.path_tree import Arrays, without_values
from ..tracing.specialize.signature import Signature


def placeholder(x: Any) -> Any:
    """A tensor whose memory nobody touches in place of a `ShapeDtypeStruct`, and of a tensor that has no values: in a
    trace, under vmap. Anything else as it is."""
    has_values = isinstance(x, Tensor) and isinstance(x._array, np.ndarray | DeviceArray)
    if has_values or not isinstance(x, ShapeDtypeStruct | Tensor):
        return x
    return wrap(untouched(tuple(map(int, x.shape)), x.dtype))


def captured(
    what: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[CompiledPath, Any, bool]:
    """The path of a call with these arguments, the types of its result, and whether it is one of tensors that stand in
    for those of the function. Nothing is computed or compiled, and what the function changes is put back."""
    found: list[Any] = []

    def recorded(*args: Any, **kwargs: Any) -> Any:
        result = fn(*args, **kwargs)
        found.append(tree_map(_type, result))
        return result

    recorded.__wrapped__ = fn  # type: ignore[attr-defined]
    recorded.__name__ = getattr(fn, "__name__", type(fn).__name__)
    traced = trace(recorded)
    assert isinstance(traced, TracedFunction)
    leaves, structure, _, key, objects = traced._given(args, kwargs)
    entry = traced._entry(Signature.of(key), objects, leaves)
    try:
        with without_values(what) as shapes:
            path, _ = entry.grow(structure, leaves, Arrays(_unknown), Observer())
    except RunEagerly as error:
        raise TraceError(f"{what}: {traced._name} {error}: its calls run eagerly, and have no program") from None
    return path, found[-1], shapes.stood_in


def _unknown(node: Any) -> np.ndarray:
    raise KeyError(node)


def _type(x: Any) -> Any:
    return ShapeDtypeStruct(tuple(map(int, x.shape)), x.dtype) if isinstance(x, Tensor) else x


def eval_shape(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of what `fn(*args, **kwargs)` returns, without computing it. Source: `jax.eval_shape`.

    args, kwargs: tensors, of which only the types matter, `hm.ShapeDtypeStruct`s in their places, containers of them,
    and other Python values. Returns the result's container with a `ShapeDtypeStruct` for each tensor. Memory is not
    touched, random numbers are not drawn, and what the function changes is put back. TraceError where Python asks for
    the value of a tensor.

    >>> import hybridml as hm
    >>> x = hm.ShapeDtypeStruct((1000, 1000), hm.float32)
    >>> hm.eval_shape(lambda x: (x @ x.T).sum(0), x).shape
    (1000,)
    """
    given = tree_map(placeholder, (args, kwargs))
    return eagerly(lambda: captured("eval_shape", fn, *given)[1])

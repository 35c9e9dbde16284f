"""NumPy functions on tensors: `np.sin(t)`, `array * t` and `np.concatenate([t, u])` run the row of the same meaning.

So a function written for NumPy arrays traces and differentiates unchanged. A NumPy function without a row converts
eager tensors to arrays, and is an error inside a traced function.
"""

from __future__ import annotations

from typing import Any

from hybridml_compiler.errors import DTypeError, GradientError
from hybridml_compiler.ops.table import ALIASES, OPS

from .tensor import Tensor, method, values

_UFUNCS: dict[str, str] = {name: name for name in OPS} | ALIASES
# NumPy's name -> ours, where the arguments mean the same; `axis=` and `keepdims=` are the only keywords passed on.
_FUNCTIONS = {
    name: name
    for name in ("sum", "prod", "mean", "var", "std", "max", "min", "argmax", "argmin", "any", "all", "where",
                 "reshape", "concatenate", "stack", "squeeze", "expand_dims", "moveaxis", "swapaxes", "transpose",
                 "broadcast_to", "flip", "tril", "triu", "take", "zeros_like", "ones_like", "full_like", "roll", "tile",
                 "repeat", "clip", "nonzero", "argwhere", "count_nonzero",
                 "take_along_axis", "cumsum", "amax", "amin", "tensordot", "outer")
}  # fmt: skip


@method
def __array_ufunc__(self: Tensor, ufunc: Any, call: str, *inputs: Any, **kwargs: Any) -> Any:
    """NumPy's ufunc protocol: `np.add(array, tensor)` is `hm.add`."""
    name = _UFUNCS.get(ufunc.__name__)
    if call == "__call__" and name is not None and not kwargs:
        return OPS[name].fn(*inputs)
    if call == "__call__" and name is not None and set(kwargs) == {"out"}:
        raise DTypeError(f"np.{ufunc.__name__}: out= cannot be a tensor or receive one; assign the result instead")
    return getattr(ufunc, call)(*(_array(x, f"np.{ufunc.__name__}") for x in inputs), **kwargs)


@method
def __array_function__(self: Tensor, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """NumPy's function protocol: `np.sum(tensor)` is `hm.sum`."""
    import hybridml

    name = _FUNCTIONS.get(func.__name__)
    if name is not None and func.__module__ == "numpy" and set(kwargs) <= {"axis", "keepdims"}:
        return getattr(hybridml, name)(*args, **kwargs)
    return func(*_arrays(args, func), **{k: _arrays(v, func) for k, v in kwargs.items()})


def _arrays(x: Any, func: Any) -> Any:
    if isinstance(x, list | tuple):
        return type(x)([_arrays(v, func) for v in x])
    return _array(x, f"np.{func.__name__}")


def _array(x: Any, what: str) -> Any:
    if not isinstance(x, Tensor):
        return x
    if x.requires_grad:
        raise GradientError(f"{what}: has no counterpart that records gradients; use .detach() if none is wanted")
    return values(x, what)

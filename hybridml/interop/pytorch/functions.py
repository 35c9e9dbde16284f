"""Functions and constants of the namespace by the names that PyTorch, JAX and NumPy have for them.

`SAME` are other names of what is there; the functions below have a manner of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError

from ... import arrays as xp
from ... import random
from ...core import ops
from ...core.context import no_grad
from ...core.spellings import accepts_other_names
from ...core.tensor import Tensor

SAME: dict[str, Any] = {
    "Array": Tensor, "Size": tuple, "around": xp.round, "as_tensor": xp.asarray,
    "asanyarray": xp.asarray, "ascontiguousarray": xp.asarray, "asfortranarray": xp.asarray, "bool_": dtypes.bool_,
    "bernoulli": random.bernoulli, "broadcast_tensors": xp.broadcast_arrays, "cdouble": dtypes.complex128,
    "cfloat": dtypes.complex64, "conjugate": xp.conj, "degrees": xp.rad2deg, "double": dtypes.float64,
    "dtype": np.dtype, "float": dtypes.float32, "half": dtypes.float16, "identity": xp.eye, "inference_mode": no_grad,
    "int": dtypes.int32, "int_": dtypes.int64, "intp": dtypes.int64, "single": dtypes.float32,
    "long": dtypes.int64, "movedim": xp.moveaxis, "normal": random.normal,
    "poisson": random.poisson, "promote_types": xp.result_type, "radians": xp.deg2rad, "row_stack": xp.vstack,
    "sgn": xp.sign, "short": dtypes.int16, "swapdims": xp.swapaxes, "take_along_dim": xp.take_along_axis,
    "tensor_split": xp.array_split, "unbind": xp.unstack, "unsqueeze": xp.expand_dims,
}  # fmt: skip


def _face() -> Any:
    return sys.modules["hybridml"]


def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """``input + value * tensor1 / tensor2``. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.addcdiv(hm.ones(2), hm.ones(2), hm.full((2,), 4.0), value=2).tolist()
    [1.5, 1.5]
    """
    return input + value * tensor1 / tensor2


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """``input + value * tensor1 * tensor2``. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.addcmul(hm.ones(2), hm.ones(2), hm.full((2,), 4.0), value=2).tolist()
    [9.0, 9.0]
    """
    return input + value * tensor1 * tensor2


def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * (mat @ vec)``: (n, m) by (m,). Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.addmv(hm.ones(2), hm.ones((2, 3)), hm.ones(3)).tolist()
    [4.0, 4.0]
    """
    return xp.addmm(input, mat, vec, beta=beta, alpha=alpha)


def amax(x: Tensor, /, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The largest element along axes, or of all: `hm.max`, values alone also by `dim=`.

    >>> import hybridml as hm
    >>> hm.amax(hm.tensor([[1.0, 3.0], [2.0, 0.0]]), dim=1).tolist()
    [3.0, 2.0]
    """
    return ops.max(x, axis=axis, keepdims=keepdims)


def amin(x: Tensor, /, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The smallest element along axes, or of all: `hm.min`, values alone also by `dim=`.

    >>> import hybridml as hm
    >>> hm.amin(hm.tensor([[1.0, 3.0], [2.0, 0.0]]), dim=1).tolist()
    [1.0, 0.0]
    """
    return ops.min(x, axis=axis, keepdims=keepdims)


def clamp_max(input: Tensor, max: Any) -> Tensor:
    """The elements, at most `max`.

    >>> import hybridml as hm
    >>> hm.clamp_max(hm.tensor([1.0, 3.0]), 2).tolist()
    [1.0, 2.0]
    """
    return xp.clip(input, None, max)


def clamp_min(input: Tensor, min: Any) -> Tensor:
    """The elements, at least `min`.

    >>> import hybridml as hm
    >>> hm.clamp_min(hm.tensor([1.0, 3.0]), 2).tolist()
    [2.0, 3.0]
    """
    return xp.clip(input, min, None)


def clone(input: Tensor) -> Tensor:
    """A copy with its own memory; gradients flow through it.

    >>> import hybridml as hm
    >>> hm.clone(hm.ones(2)).tolist()
    [1.0, 1.0]
    """
    return input.clone()


def compile(
    model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: Any = None, mode: Any = None,
    options: Any = None, disable: bool = False,
) -> Any:  # fmt: skip
    """`hm.trace` by PyTorch's name: a function or a module that is captured and compiled when it is called.

    `fullgraph=True` is `trace(strict=True)`, `dynamic=False` compiles each size for itself. `backend`, `mode` and
    `options` choose among PyTorch's compilers and say nothing here.

    >>> import hybridml as hm
    >>> hm.compile(lambda x: x * 2)(hm.tensor(2.0)).item()
    4.0
    """
    if model is None:
        return lambda fn: compile(fn, fullgraph=fullgraph, dynamic=dynamic, disable=disable)
    return model if disable else _face().trace(model, strict=fullgraph, dynamic=dynamic is not False)


def detach(input: Tensor) -> Tensor:
    """The same values (shared memory) without history.

    >>> import hybridml as hm
    >>> hm.detach(hm.ones(2, requires_grad=True)).requires_grad
    False
    """
    return input.detach()


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The axes start_dim .. end_dim merged into one: (2, 3, 4) -> (24,). ShapeError for axes that are no range.

    >>> import hybridml as hm
    >>> hm.flatten(hm.ones((2, 3, 4)), 1).shape
    (2, 12)
    """
    return input.flatten(start_dim, end_dim)


def inverse(input: Tensor) -> Tensor:
    """The inverse of a matrix, or of each one of a batch: `hm.linalg.inv`.

    >>> import hybridml as hm
    >>> hm.inverse(hm.eye(2) * 2).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """
    return _face().linalg.inv(input)


def geomspace(start: float, stop: float, num: int = 50, *, dtype: Any = None) -> Tensor:
    """`num` numbers from `start` to `stop`, each the same multiple of the one before. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.geomspace(1, 8, 4).tolist()
    [1.0, 2.0, 4.0, 8.0]
    """
    return xp.asarray(np.geomspace(start, stop, num), dtype=xp.get_default_dtype() if dtype is None else dtype)


def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex.

    >>> import hybridml as hm
    >>> hm.is_complex(hm.ones(2))
    False
    """
    return bool(input.dtype.kind == "c")


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a float.

    >>> import hybridml as hm
    >>> hm.is_floating_point(hm.ones(2))
    True
    """
    return dtypes.is_inexact(input.dtype) and input.dtype.kind != "c"


def is_tensor(obj: Any) -> bool:
    """Whether an object is a tensor.

    >>> import hybridml as hm
    >>> hm.is_tensor(hm.ones(2)), hm.is_tensor([1.0])
    (True, False)
    """
    return isinstance(obj, Tensor)


def jit(
    fun: Any = None, *, static_argnums: Any = None, static_argnames: Any = None, donate_argnums: Any = None
) -> Any:  # fmt: skip
    """`hm.trace` by JAX's name. Which arguments are static needs no word: Python values that steer a function are.

    >>> import hybridml as hm
    >>> hm.jit(lambda x: x * 2)(hm.tensor(2.0)).item()
    4.0
    """
    return jit if fun is None else _face().trace(fun)


def logdet(input: Tensor) -> Tensor:
    """Logarithm of the determinant of a matrix, or of each one of a batch; NaN where it is negative.

    >>> import hybridml as hm
    >>> hm.logdet(hm.eye(2)).item()
    0.0
    """
    sign, log = _face().linalg.slogdet(input)
    return xp.where(sign < 0, xp.nan, log)


def matrix_power(input: Tensor, n: int) -> Tensor:
    """A square matrix to a whole power: `hm.linalg.matrix_power`.

    >>> import hybridml as hm
    >>> hm.matrix_power(hm.eye(2) * 2, 3).tolist()
    [[8.0, 0.0], [0.0, 8.0]]
    """
    return _face().linalg.matrix_power(input, n)


def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """The part of `length` elements from `start` on along an axis; a view.

    >>> import hybridml as hm
    >>> hm.narrow(hm.arange(5), 0, 1, 3).tolist()
    [1, 2, 3]
    """
    size = input.shape[dim]
    if -size <= start < 0:
        start += size
    if not 0 <= start <= size - length:
        raise ArgumentError(f"narrow: elements {start} to {start + length} are not all in the {size} of axis {dim}")
    return input[(slice(None),) * (dim % input.ndim) + (slice(start, start + length),)]


def norm(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The p-norm of a tensor as of one vector, or along an axis: (...) -> () or without the axis. Source: PyTorch.

    `p` is a number, an infinity, "fro" (the 2-norm) or, of two axes, "nuc". See `hm.linalg.norm`.

    >>> import hybridml as hm
    >>> hm.norm(hm.tensor([3.0, 4.0])).item(), hm.norm(hm.tensor([3.0, 4.0]), p=1).item()
    (5.0, 7.0)
    """
    linalg = _face().linalg
    input = input if dtype is None else input.astype(dtype)
    if p == "nuc":
        return linalg.norm(input, "nuc", axis=(-2, -1) if dim is None else dim, keepdims=keepdim)
    return linalg.vector_norm(input, axis=dim, ord=2 if p in ("fro", None) else p, keepdims=keepdim)


def numel(input: Tensor) -> int:
    """Number of a tensor's elements.

    >>> import hybridml as hm
    >>> hm.numel(hm.ones((2, 3)))
    6
    """
    return input.numel()


def permute(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """The axes in another order: `permute(x, (2, 0, 1))`, or without the brackets. See `hm.permute_dims`.

    >>> import hybridml as hm
    >>> hm.permute(hm.ones((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return xp.asarray(input).permute(*order, dims=dims)


def randint_like(input: Tensor, low: int, high: int | None = None, *, dtype: Any = None) -> Tensor:
    """Random integers low <= n < high (0 <= n < low with one bound) in the shape and dtype of a tensor.

    >>> import hybridml as hm
    >>> hm.randint_like(hm.ones((2, 3)), 10).shape
    (2, 3)
    """
    return random.randint(low, high, input.shape).astype(input.dtype if dtype is None else dtype)


def repeat_interleave(input: Tensor, repeats: Any, dim: int | None = None) -> Tensor:
    """Each element of an axis, or of the flattened tensor, `repeats` times: NumPy's `repeat`.

    >>> import hybridml as hm
    >>> hm.repeat_interleave(hm.tensor([1, 2]), 2).tolist()
    [1, 1, 2, 2]
    """
    return xp.repeat(input, repeats, axis=dim)


def set_printoptions(*, sci_mode: bool | None = None, profile: str | None = None, **options: Any) -> None:
    """Sets how tensors and NumPy's arrays are shown: by NumPy's names, as `precision` and `threshold`.

    PyTorch's `sci_mode=False` is `suppress=True`, its `profile` is "default", "short" or "full".

    >>> import hybridml as hm
    >>> hm.set_printoptions(precision=2)
    >>> hm.tensor([1.23456])
    Tensor([1.23])
    >>> hm.set_printoptions(profile="default")
    """
    profiles = {"default": (8, 1000, 3), "full": (8, sys.maxsize, 3), "short": (2, 1000, 2)}
    if profile is not None:
        if profile not in profiles:
            raise ArgumentError(f"set_printoptions: profile must be one of {[*profiles]}, got {profile!r}")
        chosen = dict(zip(("precision", "threshold", "edgeitems"), profiles[profile], strict=True))
        options = chosen | options
    if sci_mode is not None:
        options["suppress"] = not sci_mode
    np.set_printoptions(**options)


def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; a vector or a number as it is. ArgumentError for more axes.

    >>> import hybridml as hm
    >>> hm.t(hm.ones((2, 3))).shape
    (3, 2)
    """
    if input.ndim > 2:
        raise ArgumentError(f"t: takes at most two axes, got shape {input.shape}; use .mT, .T or permute")
    return input.T


def transpose(input: Tensor, *order: Any, axes: Any = None, dim0: Any = None, dim1: Any = None) -> Tensor:
    """Two axes exchanged, `transpose(x, 0, 1)` as in PyTorch; all in an order, `transpose(x, (2, 0, 1))` as in NumPy.

    Without either, all in reversed order.

    >>> import hybridml as hm
    >>> hm.transpose(hm.ones((2, 3, 4)), 0, 1).shape, hm.transpose(hm.ones((2, 3, 4))).shape
    ((3, 2, 4), (4, 3, 2))
    """
    return xp.asarray(input).transpose(*order, axes=axes, dim0=dim0, dim1=dim1)


def view_as_complex(input: Tensor) -> Tensor:
    """Complex numbers of a last axis with their two parts: (..., 2) -> (...). A copy.

    >>> import hybridml as hm
    >>> hm.view_as_complex(hm.tensor([[1.0, 2.0]])).tolist()
    [(1+2j)]
    """
    return xp.complex(input[..., 0], input[..., 1])


def view_as_real(input: Tensor) -> Tensor:
    """Real and imaginary parts in a last axis: (...) -> (..., 2). A copy.

    >>> import hybridml as hm
    >>> hm.view_as_real(hm.tensor([1 + 2j])).tolist()
    [[1.0, 2.0]]
    """
    return xp.stack([xp.real(input), xp.imag(input)], -1)


_FUNCTIONS: Sequence[Callable[..., Any]] = (
    addcdiv, addcmul, addmv, amax, amin, clamp_max, clamp_min, clone, compile, detach, flatten, geomspace, inverse,
    is_complex, is_floating_point, is_tensor, jit, logdet, matrix_power, narrow, norm, numel, permute,
    randint_like, repeat_interleave, set_printoptions, t, transpose, view_as_complex, view_as_real,
)  # fmt: skip
names: dict[str, Any] = SAME | {fn.__name__: fn for fn in _FUNCTIONS}
for _fn in (amax, amin):
    accepts_other_names(_fn)

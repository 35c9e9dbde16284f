"""Methods and attributes of tensors by PyTorch's names, beside those that other rooms have made."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError

from ... import arrays as xp
from ... import random
from ...arrays.methods import copy_
from ...core import aliasing
from ...core.context import no_grad
from ...core.spellings import accept
from ...core.tensor import Tensor, method, values
from .. import method_examples
from . import functions
from .hints import OF_TENSOR

# Functions of which the tensor is the first argument, by PyTorch's name of the method.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "angle": xp.angle, "baddbmm": xp.baddbmm, "bernoulli": random.bernoulli, "count_nonzero": xp.count_nonzero,
    "median": xp.median, "movedim": xp.moveaxis, "multinomial": random.multinomial, "nonzero": xp.nonzero,
    "partition": xp.partition,
    "sgn": xp.sign, "swapdims": xp.swapaxes, "take_along_dim": xp.take_along_axis, "tensor_split": xp.array_split,
}  # fmt: skip
_NAMED = (
    "addcdiv", "addcmul", "addmv", "amax", "amin", "clamp_max", "clamp_min", "inverse", "is_complex",
    "is_floating_point", "logdet", "matrix_power", "narrow", "norm", "repeat_interleave", "t", "view_as_complex",
    "view_as_real",
)  # fmt: skip
# Those of packages that are imported when first needed, by where `hybridml` has them.
_LATE = {
    **dict.fromkeys(("gelu", "log_softmax", "selu", "softmax"), "functional"),
    **dict.fromkeys(("cholesky", "det", "dist", "pinverse", "qr", "renorm", "slogdet", "svd"), "linalg"),
    **dict.fromkeys(("sinc", "xlogy"), "special"),
}
# Updates in place, by the function of the new value.
_IN_PLACE = (
    "abs", "addcdiv", "addcmul", "ceil", "clamp_max", "clamp_min", "clip", "cos", "cumsum", "erf", "exp", "expm1",
    "floor", "lerp", "log", "log10", "log1p", "log2", "logical_not", "nan_to_num", "neg", "reciprocal", "relu",
    "remainder", "round", "rsqrt", "scatter_add", "sigmoid", "sign", "sin", "sqrt", "square", "tan", "tanh", "tril",
    "triu", "trunc",
)  # fmt: skip


def _late(name: str, package: str) -> Callable[..., Any]:
    def call(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return getattr(getattr(sys.modules["hybridml"], package), name)(self, *args, **kwargs)

    call.__name__ = name
    call.__doc__ = f"`hm.{package}.{name}` of this tensor."
    return call


def _in_place(name: str) -> Callable[..., Any]:
    def update(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        fn: Callable[..., Tensor] = getattr(Tensor, name)
        return aliasing.update(self, lambda x, *more: fn(x, *more, **kwargs), args, f"{name}_")

    update.__name__ = f"{name}_"
    update.__doc__ = f"`{name}` in place."
    return update


@method
def scatter_add(self: Tensor, dim: int, index: Tensor, src: Any) -> Tensor:
    """The tensor with the elements of `src` added at the positions `index` of an axis, see `hm.scatter_reduce`."""
    return xp.scatter_reduce(self, dim, index, src, "sum")


for _name, _function in _FUNCTIONS.items():
    setattr(Tensor, _name, _function)
for _name in _NAMED:
    setattr(Tensor, _name, functions.names[_name])
for _name, _package in _LATE.items():
    method(_late(_name, _package))
for _name in _IN_PLACE:
    method(_in_place(_name))


# -- what a tensor is


def _data(self: Tensor) -> Tensor:
    """The values without history, in the same memory; what is assigned is written into it, without history too."""
    return self.detach()


def _set_data(self: Tensor, value: Any) -> None:
    with no_grad():
        copy_(self, value)


def _grad_fn(self: Tensor) -> Any:
    """The function that the tensor is a result of, as `repr` names it; None for one without history."""
    from ...display.tensors import history

    return history(self)


for _name, _property in {
    "data": property(_data, _set_data),
    "grad_fn": property(_grad_fn),
    "is_cuda": property(
        lambda self: self.device.type.partition(":")[0] == "cuda",
        doc="Whether the data is on a GPU, or a simulated one.",
    ),
    "is_sparse": property(
        lambda self: False, doc="Whether it has some rows alone, as gradients of `sparse=True` have: False of a tensor."
    ),
    "strides": property(
        lambda self: values(self, "strides").strides, doc="Bytes from one element to the next per axis."
    ),
}.items():
    setattr(Tensor, _name, _property)


@method
def equal(self: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape and elements; `==` and `hm.equal` compare element by element."""
    return bool(xp.array_equal(self, other))


@method
def stride(self: Tensor, dim: int | None = None) -> Any:
    """Elements of memory from one to the next along each axis, or along one."""
    found = tuple(n // self.itemsize for n in values(self, "stride()").strides)
    return found if dim is None else found[dim]


@method
def is_contiguous(self: Tensor) -> bool:
    """Whether the elements lie in memory in row-major order."""
    return bool(values(self, "is_contiguous()").flags.c_contiguous)


@method
def data_ptr(self: Tensor) -> int:
    """Address of the first element in memory."""
    return int(values(self, "data_ptr()").ctypes.data)


@method
def element_size(self: Tensor) -> int:
    """Bytes of an element."""
    return self.itemsize


@method
def block_until_ready(self: Tensor) -> Tensor:
    """The tensor itself, by JAX's name: results are there when a call returns."""
    return self


@method
def nelement(self: Tensor) -> int:
    """Number of the tensor's elements."""
    return self.numel()


@method
def ndimension(self: Tensor) -> int:
    """Number of the tensor's axes."""
    return self.ndim


# -- other tensors


def _cast(name: str, dtype: str) -> None:
    def cast(self: Tensor) -> Tensor:
        return self.to(dtype)

    cast.__name__ = name
    cast.__doc__ = f"As {dtype}."
    method(cast)


for _name, _dtype in {
    "bfloat16": "bfloat16", "byte": "uint8", "char": "int8", "half": "float16", "short": "int16",
}.items():  # fmt: skip
    _cast(_name, _dtype)


@method
def type(self: Tensor, dtype: Any = None) -> Any:
    """The tensor cast to `dtype`; without one the name of its dtype."""
    return f"hybridml.{self.dtype.name}" if dtype is None else self.to(dtypes.canonical(dtype))


@method
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor cast to the dtype of another one."""
    return self.to(other.dtype)


@method
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """The elements in the shape of another tensor."""
    return self.reshape(other.shape)


@method
def select(self: Tensor, dim: int, index: int) -> Tensor:
    """The part at one position of an axis, without that axis; a view."""
    return self[(slice(None),) * (dim % self.ndim) + (index,)]


@method
def repeat(self: Tensor, *repeats: Any, axis: int | None = None) -> Tensor:
    """`repeat(2)`: each element twice, as in NumPy; `repeat(2, 3)`: the tensor beside itself, as in PyTorch (`tile`).

    NumPy's second argument, the axis, is given by name: `repeat(2, axis=1)`.
    """
    if len(repeats) == 1:
        return xp.repeat(self, repeats[0], axis)
    if axis is not None or any(isinstance(n, Tensor | np.ndarray | list) or int(n) < 1 for n in repeats):
        raise ArgumentError(
            f"repeat: {repeats} are the numbers of tiles, as in PyTorch; each element of an axis is repeated by "
            "x.repeat(2, axis=0), no tile at all is x[:0]"
        )
    return xp.tile(self, repeats)


def _new(name: str, make: Callable[..., Tensor]) -> None:
    def new(self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        kept = self.dtype if dtype is None else dtype
        return make(*size, dtype=kept, device=self.device if device is None else device, requires_grad=requires_grad)

    new.__name__ = f"new_{name}"
    new.__doc__ = f"`hm.{name}` with the dtype and device of this tensor."
    method(new)


for _name in ("empty", "full", "ones", "tensor", "zeros"):
    _new(_name, getattr(xp, _name))


# -- drawn in place


@method
def uniform_(self: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fills the tensor with uniform numbers, in place."""
    drawn = random.uniform(self.shape, low, high, dtype=self.dtype, generator=generator)
    return aliasing.assign(self, drawn, "uniform_")


@method
def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fills the tensor with normal numbers, in place."""
    drawn = random.normal(self.shape, mean, std, dtype=self.dtype, generator=generator)
    return aliasing.assign(self, drawn, "normal_")


@method
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Fills the tensor with ones, each with probability `p`, and zeros, in place."""
    return aliasing.assign(self, random.bernoulli(p, self.shape, dtype=self.dtype, generator=generator), "bernoulli_")


@method
def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fills the tensor with exponential numbers of rate `lambd`, in place."""
    drawn = random.exponential(1 / lambd, self.shape, dtype=self.dtype, generator=generator)
    return aliasing.assign(self, drawn, "exponential_")


method_examples.describe()  # all methods are there now

# -- names that are not there


class Missing:
    """An attribute that tensors do not have, whose error says what to write instead.

    Python itself adds the names that are nearest to others. A `__getattr__` would make every attribute slower.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, t: Any, cls: Any) -> Any:
        message = f"'Tensor' object has no attribute {self._name!r}; {OF_TENSOR[self._name]}"
        raise AttributeError(message, name=self._name, obj=t)


for _name in OF_TENSOR:
    setattr(Tensor, _name, Missing(_name))
accept(vars(Tensor), vars(Tensor))

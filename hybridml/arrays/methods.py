"""Tensor methods that are more than a row: casts, shapes with sizes as arguments, in-place updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.compile_policy import OPERATION as LARGE
from hybridml_compiler.eager.large import compute_into
from hybridml_compiler.eager.large import contiguous as row_major
from hybridml_compiler.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.targets.device import is_page_locked
from hybridml_compiler.targets.registry import find_device, machine_devices

from ..core import aliasing, ops
from ..core.context import FLOAT_FLAGS, current_interpreter, grad_is_off, lift, placed
from ..core.device_tensor import names_device, transfer
from ..core.interpreter import interpreter_stack
from ..core.proxies.scalar import tensor_of
from ..core.shared import memory as shared_memory
from ..core.source_location import write_stamp
from ..core.tensor import Device, Tensor, array_of, method, place_of, wrap
from .creation import asarray, list_operand
from .shaping import manipulation

assert ops.names  # the rows' own methods come first: what is defined here replaces some of them
_ndarray = np.ndarray
_NUMBERS, _WIDE = frozenset((int, float)), 1e38  # numbers below it are float32's, too
_reshape, _permute, _astype, _broadcast = (OPS[n] for n in ("reshape", "permute_dims", "astype", "broadcast_to"))


def _sizes(name: str, args: tuple[Any, ...], keyword: Any) -> Any:
    """`f(2, 3)`, `f((2, 3))` and `f(shape=(2, 3))` are the same."""
    if keyword is not None:
        if args:
            raise ArgumentError(f"{name}: pass the sizes once, not both as arguments and by keyword")
        return keyword
    return args[0] if len(args) == 1 and not isinstance(args[0], int | np.integer) else args


# -- dtype and device


@method
def astype(self: Tensor, dtype: Any, copy: bool = True) -> Tensor:
    """The tensor cast to `dtype`; with copy=False the tensor itself when it already has it."""
    if not copy and self.dtype is dtypes.canonical(dtype):
        return self
    return _astype.fn(self, dtype)


@method
def to(
    self: Tensor, *args: Any, dtype: Any = None, device: Any = None, copy: bool = False, non_blocking: bool = False
) -> Tensor:
    """`to(dtype)`, `to("cpu")`, `to(other)` for the dtype and device of another one: the tensor itself when nothing
    changes. With `non_blocking=True` a GPU copies what is in page-locked memory (`pin_memory`) beside what Python does
    next: do not change it before `hm.cuda.synchronize()`, or an event behind it, has been waited for.
    """
    for a in args:
        if isinstance(a, Tensor):
            dtype, device = a.dtype, a.device
        elif names_device(a):
            device = a
        else:
            dtype = a
    moved = self if device is None else transfer(self, Device(device).type, non_blocking)
    if dtype is None or moved.dtype is dtypes.canonical(dtype):
        return moved.clone() if copy and moved is self else moved
    return _astype.fn(moved, dtype)


def _cast(name: str, dtype: np.dtype) -> Callable[[Tensor], Tensor]:
    def cast(self: Tensor) -> Tensor:
        return self if self.dtype is dtype else _astype.fn(self, dtype)

    cast.__name__ = name
    cast.__doc__ = f"As {dtype.name}."
    return method(cast)


_CASTS: dict[str, np.dtype] = {
    "float": dtypes.float32, "double": dtypes.float64, "int": dtypes.int32, "long": dtypes.int64, "bool": dtypes.bool_,
}  # fmt: skip
for _name, _dtype in _CASTS.items():
    _cast(_name, _dtype)


@method
def cpu(self: Tensor) -> Tensor:
    """The tensor in the memory of the CPU: a copy of one that is elsewhere, with its history."""
    return transfer(self, "cpu")


@method
def cuda(self: Tensor, device: Any = "cuda", non_blocking: bool = False) -> Tensor:
    """The tensor on a GPU, by its name or number, with its history; `to(device)` by PyTorch's other name. DeviceError
    where there is none. `non_blocking` is as in `to`."""
    return transfer(self, Device(f"cuda:{device}" if isinstance(device, int) else device).type, non_blocking)


@method
def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """A copy in page-locked memory of the CPU, which a GPU copies from without the CPU: `to("cuda", non_blocking=True)`
    returns at once. The tensor itself where its memory is such, or where there is no GPU; "cuda:sim" as the `device`
    has one. DeviceError for a tensor that is not on the CPU, and for a device that is no GPU.
    """
    found = machine_devices()[1:2] if device is None else (Device(device).type,)
    if not found or self.is_pinned() or current_interpreter() is not None:  # a program has memory of its own
        return self
    if type(self).home is not None:
        raise DeviceError(
            f"pin_memory: the tensor is on {self.device.type!r}, and only memory of the CPU can be pinned"
        )
    gpu: Any = None if found[0] == "cpu" else find_device(found[0])
    if not hasattr(gpu, "page_locked"):
        raise DeviceError(f"pin_memory: {found[0]!r} is no GPU")
    memory = gpu.page_locked(self.shape, self.dtype)
    memory[...] = array_of(self)
    if self._node is None or grad_is_off():
        return wrap(memory)
    copy = self.clone()
    copy._array = memory
    return copy


@method
def is_pinned(self: Tensor) -> bool:
    """Whether the memory is page-locked, by `pin_memory`."""
    return is_page_locked(self._array)


@method
def share_memory_(self: Tensor) -> Tensor:
    """Moves the tensor to memory that other processes see, and returns it; nothing where it is there.

    A process that is forked has it, and one that `multiprocessing` sends it to (in a pipe, a queue or the arguments of
    a process) gets a handle and not the data: what either writes in place, the other one reads, also in traced
    functions. Nothing orders such writes. The memory is freed with the last process that has it, however that ends.
    NumPy arrays over the old memory keep that. Raises DeviceError for a tensor that is not on the CPU, ArgumentError
    for one that is a view or has views. A traced function that calls it runs eagerly.
    """
    shared_memory.share("share_memory_", [self])
    return self


@method
def is_shared(self: Tensor) -> bool:
    """Whether the tensor is in memory that other processes see, by `share_memory_` or as it was sent."""
    return shared_memory.is_shared(self)


@method
def clone(self: Tensor) -> Tensor:
    """A copy with its own memory; gradients flow through it."""
    return OPS["positive"].fn(self) if self.dtype.kind != "b" else _astype.fn(self, self.dtype)


@method
def contiguous(self: Tensor) -> Tensor:
    """The tensor itself if its memory is in row-major order, else such a copy."""
    if _is_row_major(self):
        return self
    if interpreter_stack() is None and type(self._array) is _ndarray and (self._node is None or grad_is_off()):
        return wrap(row_major(self._array))
    flat = _reshape.fn(self, (-1,))  # a view, of elements in even steps
    return _reshape.fn(flat if _is_row_major(flat) else flat.clone(), self.shape)


def _is_row_major(t: Tensor) -> bool:
    array = t._array if type(t._array) is _ndarray else aliasing.layout(t)
    return bool(array.flags.c_contiguous)


# -- shape


def _is_fortran(what: str, order: str) -> bool:
    """Whether elements are read in Fortran's order. NumPy's "A" and "K" go by memory, of which tensors tell nothing."""
    if order not in ("C", "F", "A", "K"):
        raise ArgumentError(f'{what}: order must be "C" or "F", got {order!r}')
    return order == "F"


@method
def reshape(self: Tensor, *sizes: Any, shape: Any = None, order: str = "C") -> Tensor:
    """The same elements in another shape: `reshape(2, -1)` or `reshape((2, -1))`; read and placed in Fortran's order
    with `order="F"`.
    """
    if order == "C" and shape is None:
        return _reshape.fn(self, sizes[0] if len(sizes) == 1 else sizes)
    wanted = _sizes("reshape", sizes, shape)
    if not _is_fortran("reshape", order):
        return _reshape.fn(self, wanted)
    reversed_sizes = wanted if isinstance(wanted, int) else tuple(wanted)[::-1]
    return _permute.fn(_reshape.fn(_permute.fn(self, None), reversed_sizes), None)


@method
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """The same elements in the shape of another tensor."""
    return _reshape.fn(self, other.shape)


@method
def permute(self: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """Axes in the given order: `permute(2, 0, 1)`."""
    return _permute.fn(self, _sizes("permute", order, dims) if dims is not None or len(order) == 1 else order)


@method
def transpose(self: Tensor, *order: Any, axes: Any = None, dim0: Any = None, dim1: Any = None) -> Tensor:
    """`transpose(a, b)` exchanges two axes (PyTorch); `transpose()` reverses all, `transpose((2, 0, 1))` permutes."""
    if dim0 is not None or dim1 is not None:
        order = (*order, *(a for a in (dim0, dim1) if a is not None))
        if len(order) != 2:
            raise ArgumentError("transpose: dim0 and dim1 are two axes, which it exchanges")
    if len(order) == 2 and axes is None:
        return manipulation.exchanged(self, *order)
    return _permute.fn(self, None if axes is None and not order else _sizes("transpose", order, axes))


@method
def flatten(self: Tensor, start_dim: int = 0, end_dim: int = -1, *, order: str = "C") -> Tensor:
    """Axes start_dim..end_dim merged into one; all of them in Fortran's order with `order="F"`, or `flatten("F")`."""
    if isinstance(start_dim, str):
        start_dim, order = 0, start_dim
    if order != "C":
        return ravel(self, order)
    shape = self.shape
    n = len(shape)
    if n == 0:
        return _reshape.fn(self, (1,))
    if not (-n <= start_dim < n and -n <= end_dim < n) or start_dim % n > end_dim % n:
        raise ShapeError(f"flatten: axes {start_dim}..{end_dim} are no range of the {n} axes of shape {shape}")
    a, b = start_dim % n, end_dim % n
    return _reshape.fn(self, (*shape[:a], math.prod(shape[a : b + 1]), *shape[b + 1 :]))


@method
def ravel(self: Tensor, order: str = "C") -> Tensor:
    """The elements along one axis, in row-major order, or in Fortran's with `order="F"`."""
    if _is_fortran("ravel", order):
        return reshape(self, self.numel(), order=order)
    return _reshape.fn(self, (-1,) if self.numel() else (0,))


@method
def squeeze(self: Tensor, /, axis: int | Sequence[int] | None = None) -> Tensor:
    """The tensor without an axis (PyTorch: unchanged if its size is not 1), or without all axes of size 1."""
    if isinstance(axis, int | np.integer) and -self.ndim <= axis < self.ndim and self.shape[axis] != 1:
        return self
    return manipulation.squeeze(self, axis)


@method
def expand(self: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """The tensor broadcast to the sizes; -1 keeps the size of an axis."""
    wanted = tuple(_sizes("expand", sizes, size))
    lead = len(wanted) - self.ndim
    if lead < 0:
        raise ShapeError(f"expand: {len(wanted)} sizes for shape {self.shape}")
    shape = tuple(self.shape[k - lead] if n == -1 and k >= lead else n for k, n in enumerate(wanted))
    return _broadcast.fn(self, shape)


@method
def tile(self: Tensor, *repetitions: Any, dims: Any = None) -> Tensor:
    """The tensor beside itself: `tile(2, 3)`, or `tile((2, 3))`, see `hm.tile`."""
    return manipulation.tile(self, _sizes("tile", repetitions, dims))


@method
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor broadcast to the shape of another one."""
    return _broadcast.fn(self, other.shape)


for _name in ("expand_dims", "moveaxis", "swapaxes", "roll", "unflatten", "unfold", "unstack"):
    setattr(Tensor, _name, getattr(manipulation, _name))

_MORE: dict[str, Any] = {
    "chunk": manipulation.chunk,
    "split": manipulation.split,
    "unbind": manipulation.unstack,
    "unsqueeze": manipulation.expand_dims,
    "view": reshape,  # a traced program has no strides: both share memory where they can
    "clip": manipulation.clip,
    "clamp": manipulation.clip,
    "T": property(_permute.fn, doc="All axes in reversed order."),
    "mH": property(lambda self: manipulation.matrix_transpose(OPS["conj"].fn(self)), doc="The conjugate of `mT`."),
    "mT": property(manipulation.matrix_transpose, doc="The last two axes exchanged."),
}
for _name, _value in _MORE.items():
    setattr(Tensor, _name, _value)


# -- in place


# Updates by a number that NumPy takes for one of the dtype of the elements, as the rows do.
_WITH_NUMBERS = frozenset(("__iadd__", "__isub__", "__imul__", "__itruediv__", "add_", "sub_", "mul_", "div_"))


def _in_place(op: Op, name: str) -> Callable[[Tensor, Any], Tensor]:
    kernel: Any = op.eager if isinstance(op.eager, np.ufunc) else None
    takes_numbers = name in _WITH_NUMBERS

    def update(self: Tensor, other: Any, alpha: Any = None) -> Tensor:
        if alpha is not None:
            other = _times(name, other, alpha)
        if kernel is not None and interpreter_stack() is None and type(self) is Tensor:  # no copy, no history
            a, fits, small = self._array, False, False
            b: Any = other
            if type(other) is Tensor:
                b = other._array
                fits = a.dtype is b.dtype and (op.complex_eager is None or a.dtype.kind != "c")
                if fits and ((self._node is None and other._node is None) or grad_is_off()):
                    small = a.size < LARGE
                    fits = (small or a.shape == b.shape) and (
                        (a.base is None and b.base is None) or not np.may_share_memory(a, b)
                    )
                else:
                    fits = False
            elif takes_numbers and type(other) in _NUMBERS and (self._node is None or grad_is_off()):
                # 2.2 us instead of 6.4. A quotient of integers, which does not fit, is an error of NumPy's here.
                kind, small = a.dtype.char, a.size < LARGE and -_WIDE < other < _WIDE
                fits = small and (kind in "fd" or (kind in "bhilqBHILQ" and type(other) is int))
            if fits:
                try:
                    if small or not (a.flags.writeable and compute_into(op, (a, b), a)):
                        kernel(a, b, a)
                except FLOAT_FLAGS:  # NumPy looks at the flags when all is written (overlapping memory aside)
                    pass
                except (OverflowError, TypeError, ValueError):  # shapes, dtypes, read-only memory; nothing is written
                    return aliasing.update(self, op.fn, (other,), name)
                version = self._version
                if type(version) is list:
                    version[0] = write_stamp()
                else:
                    self._version = write_stamp()
                return self
        if isinstance(other, list | tuple):
            other = list_operand(other, self)
        return aliasing.update(self, op.fn, (other,), name)

    update.__name__ = name
    update.__doc__ = f"`{op.name}` in place."
    return update


def _times(name: str, other: Any, alpha: Any) -> Any:
    """The operand of `add_` and `sub_` with PyTorch's factor."""
    if name not in ("add_", "sub_"):
        raise TypeError(f"{name}() got an unexpected keyword argument 'alpha'")
    return other if alpha == 1 else other * alpha


for _name, _row in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide", "pow": "pow",
    "mod": "remainder", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift", "matmul": "matmul",
}.items():  # fmt: skip
    setattr(Tensor, f"__i{_name}__", _in_place(OPS[_row], f"__i{_name}__"))
for _name, _row in {"add_": "add", "sub_": "subtract", "mul_": "multiply", "div_": "divide", "pow_": "pow"}.items():
    setattr(Tensor, _name, _in_place(OPS[_row], _name))


@method
@placed
def copy_(self: Tensor, source: Any) -> Tensor:
    """Takes the values of `source`, which broadcasts, in place; a float source is cast to a float tensor's dtype.
    It may be on another device.
    """
    mine = self.dtype if isinstance(source, float | complex) and dtypes.is_inexact(self.dtype) else None  # all its bits
    value = lift(source if isinstance(source, Tensor) else asarray(source, dtype=mine))
    if value.dtype is not self.dtype and not (value.dtype.kind in "fV" and self.dtype.kind not in "fV"):
        value = _astype.fn(value, self.dtype)
    if place_of(value) != place_of(self):
        value = transfer(value, self.device.type)
    return aliasing.assign(self, value, "copy_")


@method
@placed
def fill_(self: Tensor, value: Any) -> Tensor:
    """Writes `value` into every element, in place."""
    self_ = self.detach() if self._node is not None else self
    value = tensor_of(value)
    filled = value if isinstance(value, Tensor) else OPS["full"].fn(shape=(), value=value, dtype=self_.dtype)
    return aliasing.assign(self, lift(filled), "fill_")


@method
def zero_(self: Tensor) -> Tensor:
    """Writes 0 into every element, in place."""
    return fill_(self, 0)


@method
def clamp_(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Clips the elements in place."""
    return aliasing.update(self, lambda x: manipulation.clip(x, min, max), (), "clamp_")


def _part(name: str) -> property:
    row, other = OPS[name], OPS["imag" if name == "real" else "real"]

    def part(self: Tensor) -> Tensor:
        return self if name == "real" and self._array.dtype.kind != "c" else row.fn(self)

    def put(self: Tensor, value: Any) -> None:
        if self.dtype.kind != "c":
            raise DTypeError(f"{name} = ...: a {self.dtype.name} tensor has no parts; assign to its elements")
        rest = other.fn(self)
        copy_(self, value + rest * 1j if name == "real" else rest + value * 1j)

    doc = f"{row.doc} Of complex tensors a copy, which may be assigned as a whole: `z.{name} = x`."
    return property(part, put, doc=doc)


for _name in ("real", "imag"):
    setattr(Tensor, _name, _part(_name))

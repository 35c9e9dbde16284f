"""Tensors of lazy layers, which have a dtype and a device, and no shape before the first call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ShapeError

from ... import arrays as xp
from ...core.aliasing import stamp
from ...core.autodiff.tape import Leaf
from ...core.device_tensor import on_device, set_class
from ...core.tensor import Device, StandIn, Tensor, default_device_var
from ..parameter import is_parameter, mark


def _refuse(name: str) -> NoReturn:
    raise ShapeError(
        f"{name}: the tensor of a lazy layer has no shape and no values before the first call: call the model with an "
        f"input, or hm.eval_shape(model, hm.ShapeDtypeStruct(shape, dtype)), or load a state dict into it"
    )


class _Unknown:
    """The value of a tensor without a shape: its dtype, and the device where its values will be."""

    def __init__(self, dtype: np.dtype, device: str) -> None:
        self.dtype, self.device = dtype, device

    @property
    def aval(self) -> _Unknown:
        return self

    def __getattr__(self, name: str) -> NoReturn:
        _refuse(name)


class _Refusing:
    """The interpreter of tensors without a shape: it does nothing with them."""

    def __getattr__(self, name: str) -> NoReturn:
        _refuse("an operation" if name in ("lift", "apply", "constant") else name)


class _Uninitialized(StandIn):
    """The class of a tensor without a shape; `materialize` makes it an ordinary one."""

    __slots__ = ()
    home: ClassVar[Any] = _Refusing()

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Gives the tensor its shape, and memory whose values may be anything."""
        kind = self.dtype if dtype is None else dtypes.canonical(dtype)
        there = self.device if device is None else Device(device)
        become(self, on_device(there, lambda: xp.empty(shape, dtype=kind)))

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        self._node = Leaf((), self.dtype) if requires_grad else None
        return self

    @property
    def is_leaf(self) -> bool:
        return True

    def detach(self) -> Tensor:
        return self

    def __repr__(self) -> str:
        return f"<uninitialized, dtype={self.dtype.name}, device={self.device.type!r}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copy = memo[id(self)] = _copy(self.dtype, self.device.type, self._node is not None, is_parameter(self))
        return copy

    def __reduce__(self) -> Any:
        return _copy, (self.dtype, self.device.type, self._node is not None, is_parameter(self))


def _copy(dtype: Any, device: str, requires_grad: bool, marked: bool) -> Tensor:
    tensor = _Uninitialized()
    tensor._version = 0
    forget(tensor, device, dtypes.canonical(dtype))
    if marked:
        mark(tensor)
    return tensor.requires_grad_(requires_grad)


def is_uninitialized(tensor: object) -> bool:
    """Whether a value is a tensor of a lazy layer that has no shape yet."""
    return type(tensor) is _Uninitialized


def forget(tensor: Tensor, device: str, dtype: np.dtype | None = None) -> None:
    """Makes a tensor one without a shape."""
    kind = tensor.dtype if dtype is None else dtype
    set_class(tensor, _Uninitialized)
    tensor._array = _Unknown(kind, device)


def become(tensor: Tensor, made: Tensor) -> None:
    """Gives a tensor the memory of another one, in place; it has no gradient then."""
    set_class(tensor, type(made))
    tensor._array = made._array
    stamp(tensor)
    if type(tensor._node) is Leaf:
        tensor._node.shape, tensor._node.dtype, tensor._node.grad = made.shape, made.dtype, None


if TYPE_CHECKING:

    class UninitializedParameter(_Uninitialized):
        def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None: ...

    class UninitializedBuffer(_Uninitialized):
        def __init__(self, requires_grad: bool = False, device: Any = None, dtype: Any = None) -> None: ...

else:

    class _UninitializedMeta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return is_uninitialized(instance) and is_parameter(instance) == cls.marked

        def __call__(cls, requires_grad: bool | None = None, device: Any = None, dtype: Any = None) -> Tensor:
            place = Device(default_device_var.get().place if device is None else device).type
            kind = xp.get_default_dtype() if dtype is None else dtype
            return _copy(kind, place, cls.marked if requires_grad is None else requires_grad, cls.marked)

    class UninitializedParameter(metaclass=_UninitializedMeta):
        """``UninitializedParameter(requires_grad=True, device=None, dtype=None)``: a parameter without a shape so far.

        Lazy layers have them until their first call, or until `materialize(shape)`; it stays the same tensor then.
        What needs its shape or values raises ShapeError.

        >>> p = UninitializedParameter()
        >>> p.materialize((2, 3))
        >>> p.shape, isinstance(p, UninitializedParameter), isinstance(p, hm.nn.Parameter)
        ((2, 3), False, True)
        """

        marked = True

    class UninitializedBuffer(metaclass=_UninitializedMeta):
        """``UninitializedBuffer(requires_grad=False, device=None, dtype=None)``: a buffer without a shape so far.

        See `UninitializedParameter`.

        >>> b = UninitializedBuffer(dtype=hm.int64)
        >>> b.materialize(3)
        >>> b.shape
        (3,)
        """

        marked = False


__all__ = ["UninitializedBuffer", "UninitializedParameter"]

"""Making tensors from data and from nothing: `tensor`, `asarray`, `zeros`, `ones`, `full`, `arange`, ..."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import Dim
from hybridml_compiler.sizes.steps import is_step

from ..core.aliasing import is_python_float
from ..core.context import FLOAT_FLAGS, beside, current_interpreter, lift, literal
from ..core.device_tensor import on_device, transfer, wrapped
from ..core.devices.dlpack import imported
from ..core.dispatch import list_operands
from ..core.proxies.integer import IntProxy
from ..core.proxies.scalar import ScalarProxy, tensor_of
from ..core.spellings import UNSET
from ..core.tensor import CPU, Device, Tensor, adopt, place_of, place_var, wrap

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_full, _arange, _linspace, _eye, _astype = (OPS[name] for name in ("full", "arange", "linspace", "eye", "astype"))

_UNSET: Any = UNSET


def asarray(obj: Any, dtype: DTypeLike | None = None, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor from a tensor, NumPy array (its memory is shared where the dtype allows), DLPack object, list or number.

    Lists and numbers: bool, int64, the default float (float32) or the complex dtype of such parts. What has a dtype of
    its own (arrays, pandas' Series and DataFrame, `array.array`) keeps it. `copy=True` always
    copies, `copy=False` never does and raises ArgumentError where it would have to.

    >>> import hybridml as hm, numpy as np
    >>> a = np.zeros(3, "f4")
    >>> t = hm.asarray(a)
    >>> a[0] = 1
    >>> t.tolist()
    [1.0, 0.0, 0.0]
    """
    if device is not None:
        if isinstance(obj, list | tuple | bool | int | float | complex) and not _has_tensor(obj):
            return on_device(device, lambda: asarray(obj, dtype, copy=copy))
        return transfer(on_device("cpu", lambda: asarray(obj, dtype, copy=copy)), Device(device).type)
    wanted = None if dtype is None else dtypes.canonical(dtype)
    interp = current_interpreter()
    if type(obj) is list and interp is None and copy is not False:
        numbers = _of_numbers(obj, wanted)
        if numbers is not None:
            return numbers
    given, obj = obj, tensor_of(obj)
    if isinstance(obj, Tensor):
        t = lift(obj)
        place = place_var.get()
        if obj is not given and isinstance(given, np.ndarray) and place is not None:  # NumPy's own, of a trace
            t = transfer(t, place)
        if is_python_float(t):
            typed = t.dtype if type(t).is_double or t.dtype.kind not in "fc" else _default_like(t)
            return _astype.fn(t, typed if wanted is None else wanted)
    elif isinstance(obj, np.ndarray):
        t = adopt(obj.view()) if interp is None else interp.lift(obj)
        place = place_var.get()
        t = t if place is None else transfer(t, place)
    elif (hasattr(obj, "__dlpack__") and not isinstance(obj, np.generic)) or hasattr(obj, "__cuda_array_interface__"):
        t = from_dlpack(obj)
    elif interp is not None and (found := int_of_trace(obj, dtypes.int64)) is not None:
        t, copy = found, None
    else:
        if copy is False:
            raise ArgumentError(f"asarray: copy=False, but a {type(obj).__name__} has no memory to share")
        t, copy = _from_python(obj, wanted), None
    if wanted is not None and t.dtype is not wanted:
        if copy is False:
            raise ArgumentError(f"asarray: copy=False, but {t.dtype.name} must be converted to {wanted.name}")
        return _astype.fn(t, wanted)
    return t.clone() if copy else t


def int_of_trace(value: Any, dtype: np.dtype) -> Tensor | None:
    """An int of a loop while it is captured, the number of a step or a count, as a tensor of float64, int64 or another
    float; None for any other value and dtype."""
    if not dtypes.is_float(dtype) and dtype is not dtypes.int64:
        return None
    if is_step(value):
        found: Tensor = _full.fn(shape=(), value=value, dtype=dtype)
        return found
    if not _is_of_data(value):
        return None
    number: Tensor = _astype.fn(value._number._tensor, dtype)
    return number


def _default_like(t: Tensor) -> np.dtype:
    """The dtype of a float or complex number of Python's, which a tensor of a trace stands for."""
    return dtypes.complex_of(dtypes.default_float()) if t.dtype.kind == "c" else dtypes.default_float()


def _has_tensor(obj: Any) -> bool:
    """Whether a value is a tensor, or an int of a loop while it is captured, or there is one in nested lists."""
    if not isinstance(obj, list | tuple):
        return isinstance(obj, Tensor) or type(obj) is ScalarProxy or is_step(obj) or _is_of_data(obj)
    kinds = set(map(type, obj))
    if any(issubclass(kind, Tensor) or kind is ScalarProxy for kind in kinds):
        return True
    return any(issubclass(kind, list | tuple | Dim | IntProxy) for kind in kinds) and any(map(_has_tensor, obj))


def _is_of_data(value: Any) -> bool:
    return type(value) is IntProxy and value._value is None


def _of_numbers(obj: list[Any], dtype: np.dtype | None) -> Tensor | None:
    """A tensor of a list of floats, or of integers, in a fifth of the time; None for any other, and where one does not
    fit."""
    kinds = set(map(type, obj))
    if kinds == {float}:
        dtype = dtypes.default_float() if dtype is None else dtype
        plain = dtype.kind == "f"
    else:
        dtype = dtypes.int64 if dtype is None else dtype
        plain = kinds == {int} and dtype is dtypes.int64
    if not plain or place_var.get() is not None:
        return None
    try:
        return wrap(np.array(obj, dtype))
    except (*FLOAT_FLAGS, OverflowError):
        return None


def _from_python(obj: Any, dtype: np.dtype | None) -> Tensor:
    """A tensor of lists, numbers and anything else that NumPy understands."""
    if isinstance(obj, list | tuple) and _has_tensor(obj):
        return _astacked(obj, dtype)
    try:
        array = np.array(obj)
    except ValueError as error:
        raise ShapeError(f"asarray: the nested lists do not form a regular array: {error}") from None
    if (
        array.dtype == object
        or array.dtype.kind in "US"
        or (array.dtype.kind == "V" and array.dtype.name != "bfloat16")
    ):
        raise DTypeError(f"asarray: cannot make a tensor of {obj!r:.60}; use numbers, bools or nested lists of them")
    if dtype is None and array.dtype.kind in "fc" and not _is_typed(obj):
        dtype = dtypes.of_scalar(array.dtype.type().item())
    if dtype is not None and array.dtype != dtype:
        if array.dtype.kind == "c" and dtype.kind not in "cb":
            raise DTypeError(f"asarray: {dtype.name} cannot hold {obj!r:.60}; use a complex dtype, or the real parts")
        with np.errstate(all="ignore"):
            array = array.astype(dtype)
    return literal(adopt(array))


def _is_typed(obj: Any) -> bool:
    """Whether the elements have a dtype of their own (NumPy's, pandas', a buffer's), as Python numbers do not."""
    while isinstance(obj, list | tuple) and obj:
        obj = obj[0]
    if isinstance(obj, np.ndarray | np.generic):
        return True
    if isinstance(obj, int | float | complex):  # also what stands for one inside a trace, which has `__array__`
        return False
    if any(hasattr(obj, name) for name in ("__array__", "__array_interface__", "__array_struct__")):
        return True
    try:
        memoryview(obj).release()
    except TypeError:
        return False
    return True


def list_operand(values: Any, other: Any) -> Any:
    """A list or a tuple as an operand beside `other`, whose float dtype its numbers take, as one number does."""
    if not isinstance(values, list | tuple):
        return values
    return beside((other,), lambda: _list_operand(values, other))


def _list_operand(values: Any, other: Any) -> Tensor:
    t = asarray(values)
    if _is_typed(values) or not dtypes.is_inexact(t.dtype):  # the dtype of floats is the operand's in any case
        return t
    wanted = dtypes.result_type([(asarray(other).dtype, False), (t.dtype, True)])
    return asarray(values, wanted) if dtypes.is_inexact(wanted) else t


list_operands.append(list_operand)


def _astacked(obj: Any, dtype: np.dtype | None) -> Tensor:
    parts = [asarray(x, dtype=dtype) for x in obj]
    shape = parts[0].shape
    for k, part in enumerate(parts):
        if part.shape != shape:
            raise ShapeError(f"asarray: all shapes must be equal; item 0 has {shape}, item {k} has {part.shape}")
    stacked: Tensor = OPS["concat"].fn([OPS["reshape"].fn(part, (1, *shape)) for part in parts], 0)
    return stacked


def tensor(data: Any, dtype: DTypeLike | None = None, *, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A new tensor with a copy of `data` (numbers, nested lists, arrays, tensors); a leaf without history.

    >>> import hybridml as hm
    >>> hm.tensor([1.0, 2.0], requires_grad=True).dtype.name
    'float32'
    """
    t = asarray(data, dtype=dtype, device=device)
    if isinstance(data, Tensor):
        t = t.detach()
    if isinstance(data, Tensor | np.ndarray) or hasattr(data, "__dlpack__"):
        t = t.clone()
    return t.requires_grad_() if requires_grad else t


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor over the memory of a NumPy array; `DTypeError` for a dtype that the framework lacks.

    >>> import hybridml as hm, numpy as np
    >>> hm.from_numpy(np.arange(3)).tolist()
    [0, 1, 2]
    """
    if not isinstance(array, np.ndarray):
        raise DTypeError(f"from_numpy: takes a NumPy array, got {type(array).__name__}; use hm.asarray")
    return asarray(array, device=CPU)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of any DLPack object (NumPy, PyTorch, JAX, CuPy, ...), on its device, bfloat16 included.

    `copy=True` always copies. What arrives read-only (JAX's arrays are) can be read, not written in place.

    >>> import hybridml as hm, numpy as np
    >>> a = np.zeros(2, "f4")
    >>> t = hm.from_dlpack(a)
    >>> a[0] = 1
    >>> t.tolist()
    [1.0, 0.0]
    """
    if isinstance(x, np.ndarray):
        return asarray(x, device=CPU if device is None else device, copy=copy)
    return asarray(x if isinstance(x, Tensor) else wrapped(imported(x)), device=device, copy=copy)


def full(
    shape: int | Sequence[int],
    fill_value: Any,
    dtype: DTypeLike | None = None,
    *,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of `shape` filled with one number.

    Without `dtype` that of the number's kind. Raises ArgumentError where the dtype cannot hold the number.

    >>> import hybridml as hm
    >>> hm.full((2,), 7).tolist()
    [7, 7]
    """
    if type(fill_value) is not float:
        fill_value = tensor_of(fill_value)
    if device is not None and not isinstance(fill_value, Tensor):
        return on_device(device, lambda: full(shape, fill_value, dtype, requires_grad=requires_grad))
    if isinstance(fill_value, Tensor):
        if dtype is None and getattr(type(fill_value), "is_double", False):  # a number of NumPy's
            dtype = _default_like(fill_value)
        t = OPS["broadcast_to"].fn(asarray(fill_value, dtype, device=device), shape).clone()
    else:
        t = _full.fn(shape=shape, value=fill_value, dtype=dtype)
    return t.requires_grad_() if requires_grad else t


def _filled(shape: Any, value: float, dtype: Any, device: Any = None, requires_grad: bool = False) -> Tensor:
    """`full` with a number."""
    if device is not None:
        return on_device(device, lambda: _filled(shape, value, dtype, None, requires_grad))
    t: Tensor = _full.fn(shape, value, dtype)
    return t.requires_grad_() if requires_grad else t


def _sizes(name: str, shape: Any, more: tuple[Any, ...], size: Any, dtype: Any) -> tuple[Any, Any]:
    """The shape and dtype of `zeros((2, 3), hm.int8)`, as in NumPy, or `zeros(2, 3)` or `zeros(size=)`, as in
    PyTorch."""
    if size is not _UNSET or shape is _UNSET:
        if (size is _UNSET) is (shape is _UNSET):
            raise ArgumentError(f"{name}: give the shape once, as {name}(2, 3), {name}((2, 3)) or {name}(size=(2, 3))")
        return size, dtype
    if all(isinstance(n, int | np.integer) for n in (shape, *more)):
        return (shape, *more), dtype
    if len(more) == 1 and dtype is None:
        return shape, more[0]
    raise ArgumentError(f"{name}: sizes must be integers, got {(shape, *more)}; a dtype is given by name (dtype=...)")


def zeros(
    shape: int | Sequence[int] = _UNSET,
    *more: Any,
    size: int | Sequence[int] = _UNSET,
    dtype: DTypeLike | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of zeros (default float without `dtype`).

    >>> import hybridml as hm
    >>> hm.zeros((2, 1)).tolist()
    [[0.0], [0.0]]
    """
    if more or shape is _UNSET or size is not _UNSET:
        shape, dtype = _sizes("zeros", shape, more, size, dtype)
    return _filled(shape, 0.0, _float(dtype), device, requires_grad)


def ones(
    shape: int | Sequence[int] = _UNSET,
    *more: Any,
    size: int | Sequence[int] = _UNSET,
    dtype: DTypeLike | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of ones (default float without `dtype`).

    >>> import hybridml as hm
    >>> hm.ones((2,), dtype=hm.int8).tolist()
    [1, 1]
    """
    if more or shape is _UNSET or size is not _UNSET:
        shape, dtype = _sizes("ones", shape, more, size, dtype)
    return _filled(shape, 1.0, _float(dtype), device, requires_grad)


def empty(
    shape: int | Sequence[int] = _UNSET,
    *more: Any,
    size: int | Sequence[int] = _UNSET,
    dtype: DTypeLike | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor to be written to. Its values are zeros: what an uninitialised one holds would not be repeatable.

    >>> import hybridml as hm
    >>> hm.empty((2,)).shape
    (2,)
    """
    return zeros(shape, *more, size=size, dtype=dtype, device=device, requires_grad=requires_grad)


def _as(x: Tensor, device: Any) -> Any:
    """The device of what is made like a tensor; None for where it is made anyway."""
    if device is not None or (type(x) is Tensor and place_var.get() is None) or place_of(x) == place_var.get():
        return device
    return x.device


def _model(x: Any) -> Any:
    """Returns what has the shape and dtype of x: itself, or the tensor of a list or a number."""
    return x if hasattr(x, "shape") else asarray(x)


def full_like(x: Tensor, fill_value: Any, dtype: DTypeLike | None = None, *, device: Any = None) -> Tensor:
    """`full` with the shape and dtype of x.

    >>> import hybridml as hm
    >>> hm.full_like(hm.ones((2,), dtype=hm.int8), 7).dtype.name
    'int8'
    """
    x = _model(x)
    return full(x.shape, fill_value, dtype=x.dtype if dtype is None else dtype, device=_as(x, device))


def zeros_like(x: Tensor, dtype: DTypeLike | None = None, *, device: Any = None) -> Tensor:
    """`zeros` with the shape and dtype of x.

    >>> import hybridml as hm
    >>> hm.zeros_like(hm.ones((2,))).tolist()
    [0.0, 0.0]
    """
    x = _model(x)
    return _filled(x.shape, 0.0, x.dtype if dtype is None else dtype, _as(x, device))


def ones_like(x: Tensor, dtype: DTypeLike | None = None, *, device: Any = None) -> Tensor:
    """`ones` with the shape and dtype of x.

    >>> import hybridml as hm
    >>> hm.ones_like(hm.zeros((2,))).tolist()
    [1.0, 1.0]
    """
    x = _model(x)
    return _filled(x.shape, 1.0, x.dtype if dtype is None else dtype, _as(x, device))


def empty_like(x: Tensor, dtype: DTypeLike | None = None, *, device: Any = None) -> Tensor:
    """`empty` with the shape and dtype of x.

    >>> import hybridml as hm
    >>> hm.empty_like(hm.ones((2, 3), dtype=hm.int8)).dtype.name
    'int8'
    """
    return zeros_like(x, dtype=dtype, device=device)


def arange(
    start: Any, stop: Any = None, step: Any = 1, dtype: DTypeLike | None = None, *, device: Any = None
) -> Tensor:
    """start, start + step, ... below stop; `arange(n)` counts from 0.

    int64 where all three are integers, else the default float. Raises ArgumentError for a step of 0 and for infinities.

    >>> import hybridml as hm
    >>> hm.arange(1, 7, 2).tolist()
    [1, 3, 5]
    """
    if device is not None:
        return on_device(device, lambda: arange(start, stop, step, dtype))
    return _arange.fn(start=_number(start), stop=_number(stop), step=_number(step), dtype=dtype)


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    *,
    dtype: DTypeLike | None = None,
    device: Any = None,
) -> Tensor:
    """`num` evenly spaced numbers from start to stop, which may be complex; without `endpoint`, stop is left out.

    With `retstep` a tuple of them and the step between them, a number, as NumPy.

    >>> import hybridml as hm
    >>> hm.linspace(0, 1, 5).tolist(), hm.linspace(0, 1, 5, retstep=True)[1]
    ([0.0, 0.25, 0.5, 0.75, 1.0], 0.25)
    """
    if device is not None:
        return on_device(device, lambda: linspace(start, stop, num, endpoint, retstep, dtype=dtype))
    start, stop = _number(start), _number(stop)
    if retstep:
        count = num - 1 if endpoint else num
        both: Any = linspace(start, stop, num, endpoint, dtype=dtype), (stop - start) / count if count > 0 else math.nan
        return both
    if isinstance(start, complex) or isinstance(stop, complex):
        wanted = dtypes.canonical(dtypes.of_scalar(1j) if dtype is None else dtype)
        parts = {"num": num, "endpoint": endpoint, "dtype": dtypes.real_of(wanted)}
        start, stop = complex(start), complex(stop)
        real = _linspace.fn(start=start.real, stop=stop.real, **parts)
        imag = _linspace.fn(start=start.imag, stop=stop.imag, **parts)
        return _astype.fn(real + imag * 1j, wanted)
    return _linspace.fn(start, stop, num, endpoint, dtype)


def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: float = 10.0,
    *,
    dtype: DTypeLike | None = None,
    device: Any = None,
) -> Tensor:
    """``base ** linspace(start, stop, num)``, computed in float64 and rounded once. As NumPy and PyTorch.

    >>> import hybridml as hm
    >>> hm.logspace(0, 2, 3).tolist()
    [1.0, 10.0, 100.0]
    """
    if device is not None:
        return on_device(device, lambda: logspace(start, stop, num, endpoint, base, dtype=dtype))
    powers = linspace(start, stop, num, dtype=dtypes.float64, endpoint=endpoint)
    found = OPS["pow"].fn(full((), float(_number(base)), dtype=dtypes.float64), powers)
    return _astype.fn(found, _float(dtype))


def eye(
    n_rows: int, n_cols: int | None = None, /, k: int = 0, dtype: DTypeLike | None = None, *, device: Any = None
) -> Tensor:
    """A matrix with ones on diagonal `k`.

    Default float without `dtype`; square without `n_cols`.

    >>> import hybridml as hm
    >>> hm.eye(2, 3, k=1).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    if device is not None:
        return on_device(device, lambda: eye(n_rows, n_cols, k, dtype))
    return _eye.fn(n=n_rows, m=n_cols, k=k, dtype=dtype)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinate matrices of 1-d tensors, in Cartesian ("xy") or matrix ("ij") order.

    Raises ArgumentError for another order.

    >>> import hybridml as hm
    >>> [x.tolist() for x in hm.meshgrid(hm.arange(2), hm.arange(3))]
    [[[0, 1], [0, 1], [0, 1]], [[0, 0], [1, 1], [2, 2]]]
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f'meshgrid: indexing must be "xy" or "ij", got {indexing!r}')
    n, xs = len(arrays), [asarray(x) for x in arrays]
    axes = list(range(n))
    if indexing == "xy" and n > 1:
        axes[0], axes[1] = 1, 0
    shape = [0] * n
    for x, axis in zip(xs, axes, strict=True):
        shape[axis] = x.numel()
    broadcast, reshape = OPS["broadcast_to"].fn, OPS["reshape"].fn
    return [
        broadcast(reshape(x, tuple(x.numel() if k == axis else 1 for k in range(n))), tuple(shape))
        for x, axis in zip(xs, axes, strict=True)
    ]


def _float(dtype: Any) -> Any:
    return dtypes.default_float() if dtype is None else dtype


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "from_numpy", "full", "full_like", "linspace",
    "logspace", "meshgrid", "ones", "ones_like", "tensor", "zeros", "zeros_like",
]  # fmt: skip

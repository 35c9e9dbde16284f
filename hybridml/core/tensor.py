"""Tensor: an array (or, inside a traced function, a graph node) and its place in the gradient history.

The class is bare on purpose: slots and no `__init__`, which is what makes an eager operation cost about a
microsecond (`Tensor()` and three stores take 0.10 us, a Python `__init__` 0.22 us). Rows of the operation table become
its methods in `ops.py`; other rooms add theirs with the `method` decorator. Make tensors with `hm.tensor` or
`hm.asarray`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from itertools import repeat
from operator import getitem
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import (
    ArgumentError,
    DTypeError,
    GradientError,
    ManyIndicesError,
    NoIndexError,
    ShapeError,
    TraceError,
)
from hybridml_compiler.sizes.dims import Dim
from hybridml_compiler.targets.registry import canonical, find_device

from .interpreter import Interpreter, Reading, interpreter_stack

if TYPE_CHECKING:  # what the rows of the operation table and other modules install
    from .tensor_methods import TensorMethods
else:
    TensorMethods = object

F = TypeVar("F", bound=Callable[..., Any])
_ndarray = np.ndarray


class DefaultDevice(NamedTuple):
    """The device where the user's code creates, and what was so around the block that chose it; None: the CPU."""

    place: str | None = None
    around: str | None = None  # of `place_var`
    outer: DefaultDevice | None = None


_NO_BLOCK = DefaultDevice()


# Context variables, as threads and async tasks must not see each other's blocks. Where operations without operands make
# their results now: the default device, but beside its operands in a function of the library (`context.beside`).
place_var: ContextVar[str | None] = ContextVar("hybridml_place", default=None)
default_device_var: ContextVar[DefaultDevice] = ContextVar("hybridml_default_device", default=_NO_BLOCK)


class Device:
    """The device of a tensor's data, by its name: "cpu", or one that a target has the memory of.

    As a context manager it is the default device: what is created inside is there, unless `device=` or operands say
    otherwise.

    >>> import hybridml as hm
    >>> hm.Device("cpu")
    device('cpu')
    >>> hm.ones(2).device == "cpu"
    True
    """

    __slots__ = ("type",)

    def __init__(self, type: Any = "cpu") -> None:
        # One object per name, by which native code knows it.
        self.type = sys.intern(canonical("cpu" if type is None else str(type)))
        if self.type != "cpu":
            find_device(self.type)

    @property
    def index(self) -> int | None:
        """The number of a GPU; None for other devices."""
        kind, _, number = self.type.partition(":")
        return int(number or 0) if kind == "cuda" and (number or "0").isdecimal() else None

    def __eq__(self, other: object) -> bool:
        return (
            other.type if isinstance(other, Device) else canonical(other) if isinstance(other, str) else other
        ) == self.type

    def __hash__(self) -> int:
        return hash(self.type)

    def __repr__(self) -> str:
        return f"device({self.type!r})"

    def __str__(self) -> str:
        return self.type

    @property
    def place(self) -> str | None:
        """The name of the device; None for the CPU."""
        return None if self.type == "cpu" else self.type

    def __enter__(self) -> Device:
        default_device_var.set(DefaultDevice(self.place, place_var.get(), default_device_var.get()))
        place_var.set(self.place)
        return self

    def __exit__(self, *exc: object) -> None:
        block = default_device_var.get()
        default_device_var.set(block.outer or _NO_BLOCK)
        place_var.set(block.around)


CPU = Device()


class Size(int):
    """A number of elements that can be called for a shape, as PyTorch's programs do: `x.size()`, `x.size(0)`."""

    shape: tuple[int, ...]

    def __call__(self, dim: int | None = None) -> Any:
        """The shape, or the size of one axis."""
        return self.shape if dim is None else self.shape[dim]

    def __reduce__(self) -> Any:
        return int, (int(self),)


class Tensor(TensorMethods):
    """A multi-dimensional array that can record how it was computed.

    Supported dtypes: bool, int8..int64, uint8..uint64, float32, float64, complex64, complex128, and float16 and
    bfloat16, which are computed in float32 and rounded. Operators broadcast and promote as in the array API standard
    (Python scalars take the tensor's dtype). Never call the class: `hm.tensor(data)` copies data, `hm.asarray(array)`
    shares the memory of a NumPy array.

    >>> import hybridml as hm
    >>> x = hm.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad.tolist()
    [[2.0, 4.0], [6.0, 8.0]]
    """

    __slots__ = ("__weakref__", "_array", "_made", "_node", "_version", "_view")

    _array: Any  # numpy.ndarray; a graph node while a function is traced
    _node: Any  # tape node (list), Leaf, or None when no gradient is wanted
    _version: Any  # stamp of the last in-place write: 0, an int, or a list shared by tensors over one memory
    _view: Any  # the parent of a view; unset on every other tensor (see aliasing.py)
    _made: Any  # how the parent made it: (op, params), or the key of `x[key]`

    __hash__ = object.__hash__
    home: ClassVar[Interpreter[Any] | None] = None  # the interpreter of a device that is not the CPU
    is_number = False  # true of what stands for a Python number inside a trace
    is_element = False  # true of what stands for a scalar of NumPy's there, in a step of a loop
    is_double = False  # true of those that are NumPy's float64, of which `asarray` makes a float64

    if TYPE_CHECKING:

        @property
        def grad(self) -> Tensor | None: ...
        @grad.setter
        def grad(self, value: Tensor | None) -> None: ...

    # -- what it is

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self._array.shape

    @property
    def dtype(self) -> np.dtype:
        """Data type, one of those that the class names: `hm.bool`, `hm.int8` ... `hm.complex128`."""
        return self._array.dtype

    @property
    def ndim(self) -> int:
        """Number of the tensor's axes."""
        return len(self._array.shape)

    @property
    def size(self) -> Size:
        """Number of elements, as `numel()`; called, `x.size()` and `x.size(0)`, the shape and one of it (PyTorch)."""
        count: Any = self.numel()
        size: Any
        if type(count) is Dim:  # a size of its own, as that of a shape may be shared
            size = object.__new__(Dim)
            size.terms, size.hint = count.terms, count.hint
        elif type(count) is int:
            size = Size(count)
        else:
            return count
        size.shape = self.shape
        return size

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self._array.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel() * self._array.dtype.itemsize

    @property
    def device(self) -> Device:
        """The device of the tensor's data."""
        place = place_of(self)
        return CPU if place is None else Device(place)

    def numel(self) -> int:
        """Number of the tensor's elements."""
        count = 1
        for n in self._array.shape:
            count *= n
        return count

    def dim(self) -> int:
        """Number of the tensor's axes."""
        return len(self._array.shape)

    # -- its values, as Python and NumPy see them

    def item(self, *place: int) -> bool | int | float:
        """The single value as a Python scalar; `ShapeError` when there is not exactly one. With a place (in the
        flattened tensor, or an index for each axis) the value there.
        """
        if place:
            return (self.reshape(-1)[place[0]] if len(place) == 1 else self[place]).item()
        if self.numel() != 1:
            raise ShapeError(f"item(): needs exactly one element, got shape {self.shape}; use .tolist() or an index")
        interpreter = _reader(self)
        return array_of(self).item() if interpreter is None else interpreter.read(self, "item", "item()")

    def tolist(self) -> Any:
        """The values as (nested) Python lists of scalars."""
        return values(self if place_of(self) is None else self.cpu(), "tolist()").tolist()

    def __bool__(self) -> bool:
        return bool(single_value(self, "bool", "bool()"))

    def __int__(self) -> int:
        return int(real_value(self, "int", "int()"))

    def __index__(self) -> int:
        array = self._array
        if array.dtype.kind not in "iu":
            raise NoIndexError(array)
        if type(array) is _ndarray and array.size != 1 and _reader(self) is None:
            raise ManyIndicesError(array)
        return int(single_value(self, "number", "index"))

    def __len__(self) -> int:
        shape: tuple[int, ...] = self._array.shape
        if not shape:
            raise ShapeError("len(): a 0-dimensional tensor has no length")
        return shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise TypeError("iteration over a 0-dimensional tensor")  # by which others know that it is a number
        return map(getitem, repeat(self), range(self.shape[0]))  # a bound method's call takes 20 ns more

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __format__(self, spec: str) -> str:
        # A number is shown as one, as in PyTorch, NumPy and JAX.
        is_number = self.ndim == 0 or (spec and self.numel() == 1)
        return format(self.item() if is_number else str(self), spec)

    # -- interchange

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """The memory of this tensor for another library (`from_dlpack` there); history stays behind."""
        from .devices.dlpack import exported

        array = values(self, "__dlpack__") if self.home is None else self._array
        return exported(array, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.home is None:
            return (1, 0)  # kDLCPU
        from .devices.dlpack import memory_of

        found: tuple[int, int] = memory_of(self._array, "__dlpack_device__").__dlpack_device__()
        return found

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The memory of a tensor on a GPU for CuPy, Numba and PyTorch; an AttributeError for others, by which they
        know."""
        from .devices.dlpack import memory_of

        if self.home is None or self.dtype.kind == "V":
            raise AttributeError("__cuda_array_interface__ is for tensors on a GPU, of dtypes that NumPy has")
        found: dict[str, Any] = memory_of(self._array, "__cuda_array_interface__").__cuda_array_interface__
        return found

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ArgumentError(f"array API version {api_version!r} is not known; 2024.12 is")
        return sys.modules["hybridml"]

    def to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
        """The tensor in the memory of a device, by the array API's name; see `to`."""
        return self.to(device=device)

    # -- copies and pickles

    def __reduce__(self) -> Any:
        home = type(self).home
        array = values(self, "pickle") if home is None else home.read(self, "text", "pickle")
        return _unpickle, (array, self._node is not None, self.device.type)

    def __copy__(self) -> Tensor:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if type(self._node) is list:
            raise GradientError("deepcopy: only tensors without history can be deep-copied; use .detach() or .clone()")
        copy: Tensor = self.detach().clone()
        copy.requires_grad_(self._node is not None)
        memo[id(self)] = copy
        return copy


def method(fn: F) -> F:
    """Decorator: the function becomes the Tensor method of its name."""
    setattr(Tensor, fn.__name__, fn)
    return fn


def wrap(array: np.ndarray) -> Tensor:
    """A tensor over an array that already has a canonical dtype; no copy, no check."""
    t = Tensor()
    t._array = array
    t._node = None
    t._version = 0
    return t


def adopt(array: np.ndarray) -> Tensor:
    """A tensor that shares the memory of any NumPy array; `DTypeError` for a dtype that the framework lacks."""
    array = np.asarray(array)
    dtype = dtypes.canonical(array.dtype)
    if array.dtype is not dtype:  # a foreign byte order is converted, an unpickled dtype only replaced
        array = array.view(dtype) if array.dtype == dtype else array.astype(dtype)
    return wrap(array)


def _reader(t: Tensor) -> Interpreter[Any] | None:
    """The interpreter that reads a tensor's values; None where they are NumPy's."""
    level = interpreter_stack()
    return type(t).home if level is None else level.interpreter


def values(t: Tensor, what: str) -> np.ndarray:
    """The NumPy array behind a tensor; `TraceError` where there is none: inside a trace, or leaked from one."""
    interpreter = _reader(t)
    if interpreter is not None:
        found: np.ndarray = interpreter.read(t, "array", what)
        return found
    array = t._array
    if type(array) is not _ndarray:
        raise leaked(t)
    return array


def array_of(t: Tensor) -> np.ndarray:
    """The array of an eager tensor; `TraceError` for one that has leaked from a trace."""
    array = t._array
    if type(array) is not _ndarray:
        raise leaked(t)
    return array


def aval_of(t: Tensor) -> Aval:
    """Shape and dtype, and whether `t` stands for a Python number."""
    array = t._array
    if type(array) is _ndarray:
        return Aval(array.shape, array.dtype)
    return Aval((), array.dtype, weak=True) if type(t).is_number else array.aval


def place_of(t: Tensor) -> str | None:
    """The name of the device that has a tensor's data, or will have that of a traced one; None for the CPU."""
    shown: Any = t
    if type(t) is not Tensor and issubclass(type(t), StandIn):
        shown = shown._shown()
    array = shown._array
    if type(array) is _ndarray or array.aval.device == CPU.type:
        return None
    name: str = array.aval.device
    return name


def like(t: Tensor, array: Any, node: Any = None, version: Any = 0) -> Tensor:
    """A tensor of the class of `t` over another value."""
    out = type(t)()
    out._array, out._node, out._version = array, node, version
    return out


class StandIn(Tensor):
    """A tensor of an interpreter's own class. Code that asks for the class is told `Tensor`."""

    __slots__ = ()
    made_by = "a function"  # what was traced when it was made, for errors

    # What a selection by a mask needs no elements for (see tracing/capture/selection.py); None or False where it does.

    @staticmethod
    def _selected(
        x: Tensor, mask: Tensor, lead: int, part: Callable[[Tensor], Tensor], select: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor | None:
        """The elements that a mask of axes of `part(x)` chooses, `select(x, mask)`, if they can wait."""
        return None

    def _applied(self, op: Any, args: Sequence[Any], params: dict[str, Any]) -> Tensor | None:
        """An operation of which it is an operand."""
        return None

    def _part(self, key: Any) -> Tensor | None:
        """The part of it that a key chooses."""
        return None

    def _placed(self, key: Any) -> Any:
        """The key with symbols of the program in the places of ends of slices that data decides."""
        return key

    def _over(self, x: Tensor, mask: Tensor, lead: int) -> tuple[Tensor, Tensor] | None:
        """The condition and the values, which broadcast with x, that `x[mask] = self` writes."""
        return None

    def _shown(self) -> Tensor:
        """A tensor of the same device and dtype, which has a value."""
        return self

    def _pending(self) -> Tensor | None:
        """Itself before an update in place."""
        return None

    def _take(self, value: Tensor) -> bool:
        """Whether it has become the value of such an update."""
        return False

    @property
    def __class__(self) -> Any:
        return Tensor

    @__class__.setter
    def __class__(self, cls: type) -> None:
        raise TypeError("the class of a tensor cannot be assigned")


def leaked(t: Tensor) -> TraceError:
    from .leaks import held_by

    made = getattr(t._array, "where", "") or "an unknown line"
    by, holder = getattr(type(t), "made_by", StandIn.made_by), held_by(t)
    return TraceError(
        f"a tensor that was made while {by} was traced is used after the trace: it has no value. Return it from "
        f"the traced function instead of storing it elsewhere. It was made at {made}"
        + (f"; it is {holder}" if holder else "")
    )


def single_value(t: Tensor, how: Reading, what: str) -> Any:
    """The single element of a tensor, read so; `ShapeError` for any other."""
    if t.numel() != 1:
        raise ShapeError(
            f"{what}: the truth value or number of a tensor with shape {t.shape} is ambiguous; "
            "reduce it first (any, all, sum)"
        )
    interpreter = _reader(t)
    return array_of(t).item() if interpreter is None else interpreter.read(t, how, what)


def real_value(t: Tensor, how: Reading, what: str) -> Any:
    """The single element of a tensor that is not complex."""
    if t.dtype.kind == "c":
        raise DTypeError(f"{what}: a {t.dtype.name} tensor is no real number; take .real, .imag or abs of it first")
    return single_value(t, how, what)


def _unpickle(array: np.ndarray, requires_grad: bool, device: str = "cpu") -> Tensor:
    t = adopt(array).to(device=device)
    return t.requires_grad_() if requires_grad else t


Tensor.__module__ = "hybridml"


_constants: dict[tuple[Any, np.dtype], Tensor] = {}


def constant(value: bool | int | float | complex, dtype: np.dtype) -> Tensor:
    """A cached 0-d tensor: `x + 2.0` converts its scalar once."""
    key = value or str(value), dtype  # 0.0 and -0.0 are equal
    found = _constants.get(key)
    if found is not None and type(value) is not complex:  # -0.0 may be a part of one
        return found
    if len(_constants) > 1000:
        _constants.clear()
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= value.real <= np.iinfo(dtype).max:
        raise ArgumentError(f"the Python number {value} does not fit {dtype.name}; cast the tensor with astype first")
    with np.errstate(all="ignore"):
        array = np.array(value, dtype)
    array.flags.writeable = False
    t = _constants[key] = wrap(array)
    return t

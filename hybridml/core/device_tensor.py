"""Tensors in the memory of a device other than the CPU, and the interpreter that computes with them.

An operation is a program of one node, compiled for the device's target when it first comes. Values are never changed
there: an update in place gives its tensor another value, and views of it follow as in a trace (see aliasing.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from hybridml_compiler.aval import Aval, mixed
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.targets import device as devices
from hybridml_compiler.targets import registry

from .autodiff.tape import kept_by, make_node, parents_of
from .context import at_place, current_interpreter, grad_is_off, homes, watch_var
from .eager import CONVERSIONS
from .interpreter import Reading
from .tensor import CPU, Device, StandIn, Tensor, adopt, array_of, aval_of, leaked, wrap

R = TypeVar("R")
_transfer = OPS["transfer"]
_MOST_PROGRAMS = 4096  # operations of a device, with their shapes; a program that makes more starts over


class DeviceTensor(StandIn):
    """A tensor whose `_array` is a `DeviceArray`; each device has a subclass."""

    __slots__ = ()


class OnDevice:
    """The interpreter of a device's tensors (see interpreter.py)."""

    def __init__(self, device: devices.Device) -> None:
        self.device = device
        members = {"__slots__": (), "home": self, "__module__": "hybridml"}
        self.cls: type[Tensor] = type("Tensor", (DeviceTensor,), members)
        self.known: dict[Any, Any] = {}  # calls of rows whose like has come before (core/devices/calls.py)
        self.numbers: dict[Any, Tensor] = {}  # that stood beside its tensors
        self._programs: dict[tuple[ir.Node, ...], Any] = {}
        self._inputs: dict[tuple[int, Aval], ir.Node] = {}
        self._constants: dict[int, tuple[Tensor, Tensor]] = {}  # with what each was made of, whose id is the key

    def wrap(self, array: devices.DeviceArray) -> Tensor:
        """A tensor over an array of the device."""
        t = self.cls()
        t._array, t._node, t._version = array, None, 0
        return t

    def lift(self, value: Tensor | np.ndarray) -> Tensor:
        given: Any = value
        if type(given) is self.cls:
            own: Tensor = given
            return own
        if not isinstance(given, Tensor):
            given = adopt(given)
        if not given.shape and type(given._array) is np.ndarray:  # a number may come from anywhere, as in PyTorch
            return transfer(given, self.device.name)
        if not isinstance(given._array, np.ndarray | devices.DeviceArray):
            raise leaked(given)
        raise mixed(self.device.name, aval_of(given))

    def constant(self, t: Tensor, weak: bool = False) -> Tensor:
        if type(t) is self.cls:
            return t
        if t.shape:
            return self.wrap(devices.upload(self.device, array_of(t)))
        known = self._constants.get(id(t))
        if known is None:
            if len(self._constants) >= _MOST_PROGRAMS:
                self._constants.clear()
            known = self._constants[id(t)] = t, self.wrap(devices.upload(self.device, array_of(t)))
        return known[1]

    def apply(self, op: Op, operands: Sequence[Tensor], params: Mapping[str, Any]) -> tuple[Tensor, ...]:
        arrays = [t._array for t in operands]
        found = self.program(op, arrays, params)(arrays)
        watching = watch_var.get()
        if watching is not None:
            for array in found:
                watching.check(op, arrays, array)
        return tuple(map(self.wrap, found))

    def program(
        self, op: Op, arrays: Sequence[devices.DeviceArray], params: Mapping[str, Any]
    ) -> Callable[[Sequence[devices.DeviceArray]], list[devices.DeviceArray]]:
        """The program of an operation on arrays of these types."""
        inputs = [self._input(k, array.aval) for k, array in enumerate(arrays)]
        if op.results:
            nodes = [ir.apply(op, inputs, {**params, "result": k}) for k in range(len(op.results))]
        else:
            nodes = [ir.apply(op, inputs, params, device=self.device.name)]
        if op.is_view and op.element_map == "flat":  # values never change: the same memory, seen in another shape
            kind = devices.kind_of(self.device, nodes[0].shape, nodes[0].dtype)
            return lambda arrays: [devices.DeviceArray(kind, arrays[0].memory)]
        return self._program(op.name, inputs, nodes)

    def _input(self, k: int, aval: Aval) -> ir.Node:
        found = self._inputs.get((k, aval))
        if found is None:
            found = self._inputs[k, aval] = ir.input_node(aval)
        return found

    def _program(self, name: str, inputs: Sequence[ir.Node], nodes: Sequence[ir.Node]) -> Any:
        """The program of nodes, which are the same objects whenever the operation and its operands' types are."""
        from hybridml_compiler.pipeline import compile

        key = tuple(nodes)
        found = self._programs.get(key)
        if found is None:
            if len(self._programs) >= _MOST_PROGRAMS:
                self._programs.clear()
            graph = ir.Graph(tuple(inputs), key, name)
            found = self._programs[key] = compile(graph, target=self.device.target)
        return found

    def read(self, t: Tensor, how: Reading, what: str) -> Any:
        if how == "array":
            raise devices.out_of_reach(self.device.name, what)
        if how == "text" and not self.device.has_values:
            return None
        array = devices.download(t._array)
        return array if how == "text" else CONVERSIONS.get(how, lambda value: value)(array.item())

    def write(self, t: Tensor, value: Tensor) -> None:
        t._array = self.lift(value)._array

    def layout(self, t: Tensor) -> np.ndarray:
        return np.empty(t.shape, t.dtype)

    def trust(self, t: Tensor) -> None:
        """Ignored: programs check their indices."""

    def watch(self, tensors: Iterable[Tensor]) -> Callable[[], list[tuple[Tensor, Tensor]]]:
        before = [(t, t._array) for t in tensors]
        return lambda: [(t, self.wrap(old)) for t, old in before if t._array is not old]


def home_of(name: str) -> OnDevice:
    """The interpreter of a device. ArgumentError for one that there is not."""
    found = homes.get(name)
    if found is None:
        found = homes.setdefault(name, OnDevice(registry.find_device(name)))  # the first of several threads' it is
    return found


_KINDS = ("cuda", "mps")  # GPUs, and what users of PyTorch write, for a clear error


def names_device(value: Any) -> bool:
    """Whether an argument of `to` says where, and not which dtype."""
    if not isinstance(value, str):
        return isinstance(value, Device)
    return value.partition(":")[0] in _KINDS or value in registry.device_names()


def on_device(device: Any, make: Callable[[], R]) -> R:
    """The result of `make()`, which creates on this device. ArgumentError for one that there is not."""
    return at_place(Device(device).type, make)


_CLASS: Any = vars(object)["__class__"]


def move(t: Tensor, device: str) -> None:
    """Gives a tensor its values on another device; it stays the same object. Its history is the caller's."""
    moved = transfer(t.detach(), device)
    set_class(t, type(moved))
    t._array = moved._array


def set_class(t: Tensor, cls: type) -> None:
    """Makes a tensor one of another device, whose class this is; its array is the caller's."""
    _CLASS.__set__(t, cls)


def wrapped(array: Any) -> Tensor:
    """A tensor over an array of NumPy's or of a device."""
    return wrap(array) if type(array) is np.ndarray else home_of(array.device.name).wrap(array)


def transfer(t: Tensor, device: str, later: bool = False) -> Tensor:
    """The values of a tensor on a device, with its history; the tensor itself where it is there already. `later`: what
    is in page-locked memory may be copied after this returns."""
    source = t.device.type
    if source == device:
        return t
    for name in {source, device} - {CPU.type}:  # so that a backward knows of it
        home_of(name)
    interp = current_interpreter()
    if interp is not None:
        t = interp.lift(t)
        (out,) = interp.apply(_transfer, [t], {"device": device})
    elif device == "cpu":
        out = adopt(devices.download(t._array))
    else:
        home = home_of(device)
        array = array_of(t) if type(t).home is None else devices.download(t._array)
        out = home.wrap(devices.upload(home.device, array, later))
    if t._node is not None and not grad_is_off():
        out._node = make_node(_pull_transfer, out.shape, [t._node], source)
    return out


def _pull_transfer(g: Tensor, node: list[Any]) -> Any:
    (source,) = kept_by(node)
    return ((parents_of(node)[0], transfer(g, source)),)

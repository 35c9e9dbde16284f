"""The signature of a call: the facts that must be equal for a compiled program to fit."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NamedTuple

import numpy as np

from hybridml_compiler import dtypes

from ...core import pytree
from ...core.context import grad_is_off
from ...core.proxies.integer import LARGEST
from ...core.proxies.scalar import ScalarProxy
from ...core.tensor import Size, Tensor, leaked, place_var
from ..capture.memory_order import Order, memory_order
from ..capture.traced_tensor import Traced

_ndarray = np.ndarray
_GAPS = "gaps"  # the order of an array whose elements do not fill its memory
_STATIC = (bool, int, str, bytes, type(None), np.dtype, type, slice, type(Ellipsis))
_INTEGERS = (int, np.int64)
_FLOAT, _DOUBLE = (float,), (np.float64,)


class TensorSpec(NamedTuple):
    """A tensor: an input of the program."""

    kind: type
    shape: tuple[int, ...]
    dtype: np.dtype
    order: Order | None
    history: int  # 1: requires grad, 2: is computed from what does

    def __str__(self) -> str:
        history = ("", " that requires grad", " with a history")[self.history]
        home = self.kind.home  # type: ignore[attr-defined]
        where = "" if home is None else f" on {home.device.name}"
        return f"{self.dtype}{list(self.shape)}{history}{' permuted' if self.order else ''}{where}"


class ArraySpec(NamedTuple):
    """A NumPy array: an input of the program."""

    kind: type
    shape: tuple[int, ...]
    dtype: np.dtype
    order: Order | None

    def __str__(self) -> str:
        if self.kind is Position:
            return str(self.shape[0])
        return f"array of {self.dtype}{list(self.shape)}{' permuted' if self.order else ''}"


class Position:
    """Kind of an int among the arguments that comes to the program as the length of an array: a place or a size, which
    can be a symbol as sizes are (see promoted_ints.py)."""

    MOST = 1 << 16

    @staticmethod
    def array(value: int) -> np.ndarray:
        """An array of this length, of one element in memory."""
        return np.ndarray((value,), np.uint8, b"\0", 0, (0,))


class NumberSpec(NamedTuple):
    """A number that is an input of the program, whatever its value."""

    kind: type

    def __str__(self) -> str:
        return self.kind.__name__


class ValueSpec(NamedTuple):
    """An argument that the program is specialized on: its value, or what stands for it in comparisons."""

    kind: type
    value: Any

    def __str__(self) -> str:
        if self.kind is object:
            return "an object"
        is_text = self.kind is complex or issubclass(self.kind, np.generic)
        return str(self.value) if is_text else repr(self.value)

    @property
    def is_integer(self) -> bool:
        """Whether the argument can be an int that is an input."""
        return self.kind in _INTEGERS and -LARGEST <= self.value <= LARGEST


Spec = TensorSpec | ArraySpec | NumberSpec | ValueSpec
Fields = tuple[Any, ...]  # of a Signature, which is equal to them


class Signature(NamedTuple):
    """The facts that must be equal for a compiled program to fit. Calls look for programs by its fields alone, which
    `signature` gives: making the objects as well takes 0.2 us, and 0.2 for each argument."""

    structure: pytree.Structure
    specs: tuple[Spec, ...]
    aliases: tuple[tuple[int, int], ...]  # pairs of leaves that are one object
    grad_is_off: bool
    default_float: np.dtype
    default_device: str | None  # None: the CPU

    @classmethod
    def of(cls, fields: Fields) -> Signature:
        """The signature with these fields."""
        structure, specs, *rest = fields
        return cls(structure, tuple(map(_spec, specs)), *rest)

    @property
    def doubles(self) -> frozenset[int]:
        """The leaves that are NumPy's float64 or int64."""
        return frozenset(k for k, spec in enumerate(self.specs) if spec.kind in (np.float64, np.int64))

    @property
    def integers(self) -> frozenset[int]:
        """The leaves that are inputs and ints."""
        return frozenset(k for k, s in enumerate(self.specs) if isinstance(s, NumberSpec) and s.kind in _INTEGERS)

    @property
    def positions(self) -> frozenset[int]:
        """The leaves that are ints and come as lengths."""
        return frozenset(k for k, spec in enumerate(self.specs) if spec.kind is Position)

    @property
    def shapes(self) -> dict[int, tuple[int, ...]]:
        """The shapes of arrays, by leaf."""
        return {k: spec.shape for k, spec in enumerate(self.specs) if isinstance(spec, TensorSpec | ArraySpec)}

    def without_sizes(self) -> Signature:
        """A signature with the ranks of arrays in place of their shapes."""
        specs = list(self.specs)
        for k, shape in self.shapes.items():
            specs[k] = specs[k]._replace(shape=(len(shape),))  # type: ignore[call-arg]
        return self._replace(specs=tuple(specs))

    def without_integers(self, leaves: Container[int] | None = None) -> Signature:
        """A signature without the values of the ints among these leaves that can be inputs; None: of all leaves."""
        specs: list[Spec] = [
            NumberSpec(spec.kind)
            if isinstance(spec, ValueSpec) and spec.is_integer and (leaves is None or k in leaves)
            else spec
            for k, spec in enumerate(self.specs)
        ]
        return self._replace(specs=tuple(specs))


def _spec(fields: Fields) -> Spec:
    kind = fields[0]
    if issubclass(kind, Tensor):
        return TensorSpec(*fields)
    if kind is _ndarray or kind is Position:
        return ArraySpec(*fields)
    return ValueSpec(*fields) if len(fields) > 1 else NumberSpec(kind)


def signature(structure: pytree.Structure, leaves: list[Any]) -> tuple[Fields, list[Any]]:
    """The fields of the signature of a call, and the objects that count by identity."""
    specs: list[Fields] = []
    objects: list[Any] = []
    tensors: dict[int, int] = {}
    aliases: list[tuple[int, int]] = []
    for k, leaf in enumerate(leaves):
        kind = type(leaf)
        if kind is Tensor:
            array, node = leaf._array, leaf._node
            history = 0 if node is None else 2 if type(node) is list else 1
            order = None if array.flags.c_contiguous else memory_order(array)
            specs.append((Tensor, array.shape, array.dtype, order, history))
            first = tensors.setdefault(id(leaf), k)
            if first != k:
                aliases.append((first, k))
        elif kind is float:
            specs.append(_FLOAT)
        elif kind is _ndarray:
            lies = None if leaf.flags.c_contiguous else memory_order(leaf) or _GAPS
            specs.append((_ndarray, leaf.shape, leaf.dtype, lies))
            first = tensors.setdefault(id(leaf), k)
            if first != k:
                aliases.append((first, k))
        elif kind in _STATIC:
            specs.append((kind, leaf) if kind is not slice else (kind, (leaf.start, leaf.stop, leaf.step)))
        elif kind is np.float64:
            leaves[k] = float(leaf)
            specs.append(_DOUBLE)  # a tensor of it is float64
        elif kind is ScalarProxy or issubclass(kind, Traced):
            raise leaked(leaf._tensor if kind is ScalarProxy else leaf)
        elif issubclass(kind, Tensor):  # of a device, by its class
            array, node = leaf._array, leaf._node
            specs.append((kind, array.shape, array.dtype, None, 0 if node is None else 2 if type(node) is list else 1))
            first = tensors.setdefault(id(leaf), k)
            if first != k:
                aliases.append((first, k))
        elif kind is Size:  # of a tensor: the number that it is
            leaves[k] = int(leaf)
            specs.append((int, leaves[k]))
        elif kind is np.int64:
            leaves[k] = leaf.item()
            specs.append((kind, leaves[k]))
        elif kind is complex:
            specs.append((kind, repr(leaf)))  # 0j == -0j, and the signs of zeros say on which side of a cut it is
        elif issubclass(kind, _ndarray):  # masked, or with fields, or of a unit: what NumPy alone makes of it
            specs.append((kind, (leaf.shape, leaf.dtype)))
        elif isinstance(leaf, np.generic):  # its arithmetic rounds and wraps as no number of Python does
            specs.append((kind, repr(leaf)))
        else:
            specs.append((object, id(leaf)))
            objects.append(leaf)
    return (structure, tuple(specs), tuple(aliases), grad_is_off(), dtypes.default_float(), place_var.get()), objects

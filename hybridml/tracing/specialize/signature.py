"""The signature of a call: what must be equal for a compiled program to fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybridml_compiler import dtypes

from ...core import pytree
from ...core.context import grad_is_off
from ...core.proxies.scalar import Number
from ...core.tensor import Tensor, leaked
from ..capture.memory_order import memory_order
from ..capture.traced_tensor import Traced

_ndarray = np.ndarray
_STATIC = (bool, int, str, bytes, type(None), np.dtype, type, slice, type(Ellipsis))


def signature(structure: pytree.Structure, leaves: list[Any]) -> tuple[Any, list[Any]]:
    """What must be equal for a compiled program to fit, and the objects that count by identity."""
    specs: list[Any] = []
    objects: list[Any] = []
    tensors: dict[int, int] = {}
    alias: list[tuple[int, int]] = []
    for k, leaf in enumerate(leaves):
        kind = type(leaf)
        if kind is Tensor:
            array, node = leaf._array, leaf._node
            kept = 0 if node is None else 2 if type(node) is list else 1
            specs.append((array.shape, array.dtype, kept, memory_order(array)))
            first = tensors.setdefault(id(leaf), k)
            if first != k:
                alias.append((first, k))
        elif kind is float:
            specs.append(float)
        elif kind is _ndarray:
            specs.append((_ndarray, leaf.shape, leaf.dtype, memory_order(leaf)))
            first = tensors.setdefault(id(leaf), k)
            if first != k:
                alias.append((first, k))
        elif kind in _STATIC:
            specs.append((kind, leaf) if kind is not slice else (kind, leaf.start, leaf.stop, leaf.step))
        elif kind is np.float64:
            leaves[k] = float(leaf)
            specs.append(kind)  # a tensor of it is float64
        elif kind is Number or issubclass(kind, Traced):
            raise leaked(leaf._tensor if kind is Number else leaf)
        elif kind is np.int64:
            leaves[k] = leaf.item()
            specs.append((kind, leaves[k]))
        elif kind is complex:
            specs.append((kind, repr(leaf)))  # 0j == -0j, and the signs of zeros say on which side of a cut it is
        elif issubclass(kind, _ndarray):  # masked, or with fields, or of a unit: what NumPy alone makes of it
            specs.append((kind, leaf.shape, leaf.dtype))
        elif isinstance(leaf, np.generic):  # its arithmetic rounds and wraps as no number of Python does
            specs.append((kind, repr(leaf)))
        else:
            specs.append((object, id(leaf)))
            objects.append(leaf)
    return (structure, tuple(specs), tuple(alias), grad_is_off(), dtypes.default_float()), objects


def doubles_in(key: Any) -> frozenset[int]:
    """The leaves that are NumPy's float64 or int64."""
    kinds = (np.float64, np.int64)
    return frozenset(k for k, spec in enumerate(key[1]) if spec in kinds or (type(spec) is tuple and spec[0] in kinds))

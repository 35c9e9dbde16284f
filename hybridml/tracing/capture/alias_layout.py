"""Memory layout that the tensors of a trace have in eager code, which decides whether a reshape is a view.

NumPy lays a result out as its operands lie ("K" order), so `(x.T + 1).reshape(-1)` is a copy. A traced tensor has no
memory; a *stand-in* has its shape and strides, over one element that must not be touched. Where the rule is NumPy's,
the operation itself says what it is: it runs on arrays of at most two elements an axis, which lie as the operands do.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from weakref import ReferenceType, ref

import numpy as np

from hybridml_compiler.graph import ir
from hybridml_compiler.ops.memory_order import order_of, order_of_result
from hybridml_compiler.sizes.dims import hints
from hybridml_compiler.sizes.values import at_hand

from ...core.aliasing import layout, origin_of
from ...core.tensor import Tensor
from .subgraph import between

_strided = np.lib.stride_tricks.as_strided


@lru_cache(1024)  # 10 us each, and most tensors of a program are of a few shapes
def stand_in(shape: tuple[int, ...], dtype: Any, order: tuple[int, ...] | None = None) -> np.ndarray:
    """A dense array with its axes in this order in memory (C order without one)."""
    strides = [0] * len(shape)
    step = np.dtype(dtype).itemsize
    for axis in reversed(range(len(shape)) if order is None else order):
        strides[axis] = step
        step *= max(1, shape[axis])
    return _strided(np.empty(1, dtype), shape, strides)


def _is_plain(array: np.ndarray) -> bool:
    """Whether results of this array alone are in C order."""
    steps = [s for s, n in zip(array.strides, array.shape, strict=True) if n > 1 and s]
    return array.flags.c_contiguous or (all(s > 0 for s in steps) and steps == sorted(steps, reverse=True))


def _small(array: np.ndarray) -> np.ndarray:
    """An array with this one's layout and at most two elements per axis."""
    axes = range(array.ndim)
    shape = [min(n, 2) if s or n == 0 else 1 for n, s in zip(array.shape, array.strides, strict=True)]
    order = sorted(axes, key=lambda k: -abs(array.strides[k]))
    dense = np.zeros([shape[k] for k in order], array.dtype).transpose([order.index(k) for k in axes])
    turned = dense[tuple(slice(None, None, -1 if s < 0 else 1) for s in array.strides)]
    return np.broadcast_to(turned, [min(n, 2) for n in array.shape])


def _dense(node: ir.Node) -> np.ndarray:
    return stand_in(hints(node.shape), node.dtype)


class Layouts:
    """The layouts of one trace."""

    def __init__(self) -> None:
        self._of: dict[ir.Node, np.ndarray | None] = {}  # None: dense, in C order
        self._pinned: dict[int, tuple[ReferenceType[Tensor], np.ndarray | None]] = {}  # None as above

    def source(self, t: Tensor, array: np.ndarray) -> None:
        """Notes that `t` is the traced tensor of this array."""
        if type(array) is not np.ndarray:
            return  # of a device, where values are dense and never change
        like = None
        if array.strides != stand_in(array.shape, array.dtype).strides:
            like = _strided(np.empty(1, array.dtype), array.shape, array.strides)  # not the array: it may be large
        self._pinned[id(t)] = ref(t), like
        self._of[t._array] = like

    def pin(self, t: Tensor) -> None:
        """Fixes the layout of `t` before it gets another value, which is stored where the present one is."""
        self._pinned[id(t)] = ref(t), self.of(t)

    def of(self, t: Tensor) -> np.ndarray:
        """A stand-in with the layout of a tensor that is no view."""
        pinned = self._pinned.get(id(t))
        if pinned is not None and pinned[0]() is t:
            return _dense(t._array) if pinned[1] is None else pinned[1]
        return self.of_node(t._array)

    def of_node(self, node: ir.Node) -> np.ndarray:
        found = self._known(node)
        return _dense(node) if found is None else found

    def _known(self, node: ir.Node) -> np.ndarray | None:
        if node not in self._of:
            for n in between([node], self._of):
                if n not in self._of:
                    self._of[n] = self._make(n)
        return self._of[node]

    def made(self, t: Tensor, operands: Sequence[Tensor]) -> None:
        """Notes a new result, `t`. What was written to lies where it lay, whatever its value's node says, and so may
        results computed from it.
        """
        node, known, pinned = t._array, self._of, self._pinned
        if node.op is None:
            return
        moves = node.op.is_view and node.op.element_map != "flat"
        if not moves and all([known.get(n, self) is None for n in node.inputs]):
            known.setdefault(node, None)  # as `_make` finds it later for others
        if node.op.is_view or not node.inputs:
            return
        if not any([id(x) in pinned or getattr(x, "_view", None) is not None for x in operands]):
            return
        if all(map(self._is_dense, operands)):  # of most results: of parameters, and numbers beside them
            self._of.setdefault(node, None)
            return
        laid = self._laid(node, [layout(x) for x in operands])
        own = self.of_node(node)
        laid = _dense(node) if laid is None else laid
        if laid.strides != own.strides:
            self._pinned[id(t)] = ref(t), laid

    def _is_dense(self, t: Tensor) -> bool:
        """Whether a tensor is dense in C order, and so is what its node says."""
        size = t._array.aval.size
        if type(size) is int and size == 1:
            return True
        if self._known(t._array) is not None:
            return False
        view = origin_of(t)
        if view is not None:
            parent, op, _ = view
            return op.element_map == "flat" and self._is_dense(parent)
        pinned = self._pinned.get(id(t))
        return pinned is None or pinned[1] is None or pinned[0]() is not t

    def _make(self, node: ir.Node) -> np.ndarray | None:
        if node.op is None:
            return None
        known = [self._of[n] for n in node.inputs]
        if node.op.is_view:
            dense = node.op.element_map == "flat" and known[0] is None
            return None if dense else self._view(node, self.of_node(node.inputs[0]))
        return self._laid(node, known)

    def _laid(self, node: ir.Node, known: Sequence[np.ndarray | None]) -> np.ndarray | None:
        """A stand-in laid out as the operation's result is for operands laid out as `known`; None for dense C order."""
        op = node.op
        assert op is not None
        if all(a is None or _is_plain(a) for a in known):
            return None
        operands = [_dense(n) if a is None else a for a, n in zip(known, node.inputs, strict=True)]
        if op.memory_order == "first":
            return stand_in(hints(node.shape), node.dtype, order_of(operands[0]))
        if not op.memory_order:
            return None
        params = {name: at_hand(value) for name, value in node.params.items()}
        small = [_small(a) for a in operands]
        if op.body is not None:  # of no elements that a program has, its loops might not end
            return stand_in(hints(node.shape), node.dtype, order_of_result(small))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = np.asarray(op.run(small, params))
        return stand_in(hints(node.shape), node.dtype, order_of(result))

    def _view(self, node: ir.Node, operand: np.ndarray) -> np.ndarray | None:
        assert node.op is not None
        params = {name: at_hand(value) for name, value in node.params.items()}
        if node.op.element_map == "flat":
            try:
                return np.reshape(operand, params["shape"], copy=False)
            except ValueError:
                return None
        found: np.ndarray = node.op.eager(operand, **params)
        return None if found.flags.c_contiguous else found

"""Gradients whose memory a call may write the new ones to.

A training step drops every `.grad` and makes new ones. Were the old ones kept until the new ones are there, as other
results are, there would be two of each: AlexNet has 233 MB of them. So where the program drops them before anything in
it may fail, they are lent to the call: if nobody else holds one, its memory is that of the next one. If the call fails,
the dropped gradients are None, as they are eagerly.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount

import numpy as np

from ...core.autodiff.references import VARIABLE
from ...core.tensor import Tensor
from ..capture.traced_tensor import ShadowLeaf
from ..capture.tracer import Input

_ALONE = VARIABLE + 1  # references to what a tensor and a variable hold


class GradDonation:
    """`grads`: tensors (by their inputs) whose new `.grad` is output k."""

    def __init__(self, grads: Sequence[tuple[Input, int]], n_outputs: int) -> None:
        dropped = [(source, k) for source, k in grads if isinstance(leaf := source.leaf, ShadowLeaf) and leaf.dropped]
        self.grads = [(source.real, k) for source, k in dropped]
        self.lent = np.empty(max(n_outputs, 1), object)  # output -> the array it may take, and this reference to it
        self._owners: list[Tensor] = []

    def offer(self) -> None:
        """Lends, before a call, the arrays that only the tensors themselves hold."""
        self._owners.clear()
        for real, k in self.grads:
            grad = real._node.grad
            array = None if grad is None or getrefcount(grad) != _ALONE else _memory(grad)
            self.lent[k] = array
            if array is not None:
                self._owners.append(real)

    def withdraw(self) -> None:
        """Takes the arrays back after a call that has not begun."""
        self.lent[:] = None

    def lose(self) -> None:
        """Drops the lent arrays after a call that failed half way."""
        for real in self._owners:
            real._node.grad = None


def _memory(grad: Tensor) -> np.ndarray | None:
    """The array that owns its memory; None for one that something else holds as well (the view, not the memory)."""
    array = grad._array
    if array.base is None:
        return array
    return array.base if type(array.base) is np.ndarray and getrefcount(array) == _ALONE else None

"""Transforms that apply others to parts of a tensor, take more axes together, or give another shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hybridml_compiler.errors import ArgumentError, ShapeError

from ... import arrays as xp
from ...core.tensor import Tensor
from ...random.generator import shape_of
from .. import constraints
from ..distribution import sum_rightmost
from .transform import Shape, Transform, needs_axes, of_axes


class IndependentTransform(Transform):
    """Another transform, of whose Jacobian's logarithm the last `reinterpreted_batch_ndims` axes are summed.

    >>> D = hm.distributions
    >>> x = hm.tensor([1.0, 2.0])
    >>> D.IndependentTransform(D.ExpTransform(), 1).log_abs_det_jacobian(x, hm.exp(x)).item()
    3.0
    """

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int) -> None:
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims
        self.bijective = base_transform.bijective
        self.domain = of_axes(base_transform.domain, base_transform.domain_event_dim + reinterpreted_batch_ndims)
        self.codomain = of_axes(base_transform.codomain, base_transform.codomain_event_dim + reinterpreted_batch_ndims)

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        needs_axes(self, x.shape, self.domain_event_dim)
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        needs_axes(self, y.shape, self.codomain_event_dim)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Shape) -> Shape:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """The last axes, of shape `in_shape`, in `out_shape`; ArgumentError unless that has as many elements.

    >>> hm.distributions.ReshapeTransform((4,), (2, 2))(hm.zeros((3, 4))).shape
    (3, 2, 2)
    """

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any) -> None:
        self.in_shape, self.out_shape = shape_of(in_shape), shape_of(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ArgumentError(f"ReshapeTransform: {self.in_shape} and {self.out_shape} differ in number of elements")
        self.domain, self.codomain = (of_axes(constraints.real, len(s)) for s in (self.in_shape, self.out_shape))

    def _changed(self, shape: Shape, old: Shape, new: Shape) -> Shape:
        needs_axes(self, shape, len(old))
        cut = len(shape) - len(old)
        if shape[cut:] != old:
            raise ShapeError(f"ReshapeTransform: needs a shape that ends in {old}, got {shape}")
        return (*shape[:cut], *new)

    def forward_shape(self, shape: Shape) -> Shape:
        return self._changed(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        return self._changed(shape, self.out_shape, self.in_shape)

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return xp.zeros(x.shape[: x.ndim - len(self.in_shape)], dtype=x.dtype)


class CatTransform(Transform):
    """Transforms `tseq`, each of its part of axis `dim`: `lengths` (by default 1 each) say how long they are.

    Raises ShapeError for an axis of another length than all parts together.

    >>> D = hm.distributions
    >>> D.CatTransform([D.ExpTransform(), D.AffineTransform(1.0, 2.0)], lengths=[1, 2])(hm.zeros(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        self.transforms, self.dim = list(tseq), dim
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise ArgumentError(f"CatTransform: {len(self.lengths)} lengths of {len(self.transforms)} transforms")
        self.bijective = all(t.bijective for t in self.transforms)
        self.domain = constraints.cat([t.domain for t in self.transforms], dim, self.lengths)
        self.codomain = constraints.cat([t.codomain for t in self.transforms], dim, self.lengths)

    @property
    def length(self) -> int:
        """Length of the axis: that of all parts together."""
        return sum(self.lengths)

    def _parts(self, x: Tensor) -> list[Tensor]:
        if not -x.ndim <= self.dim < x.ndim or x.shape[self.dim] != self.length:
            raise ShapeError(f"{type(self).__name__}: axis {self.dim} needs length {self.length}, got shape {x.shape}")
        ends = [sum(self.lengths[: k + 1]) for k in range(len(self.lengths))]
        before = (slice(None),) * (self.dim % x.ndim)
        return [x[(*before, slice(end - n, end))] for end, n in zip(ends, self.lengths, strict=True)]

    def _joined(self, parts: list[Tensor], axis: int) -> Tensor:
        return xp.concat(parts, axis=axis)

    def _call(self, x: Tensor) -> Tensor:
        return self._joined([t(part) for t, part in zip(self.transforms, self._parts(x), strict=True)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._joined([t.inv(part) for t, part in zip(self.transforms, self._parts(y), strict=True)], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        terms = [
            sum_rightmost(t.log_abs_det_jacobian(a, b), self.event_dim - t.event_dim)
            for t, a, b in zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        ]
        axis = self.dim % x.ndim - x.ndim + self.event_dim
        return self._joined(terms, axis) if axis < 0 else sum(terms[1:], terms[0])


class StackTransform(CatTransform):
    """Transforms `tseq`, each of its index of axis `dim`.

    Raises ShapeError for an axis of another length than there are transforms.

    >>> D = hm.distributions
    >>> D.StackTransform([D.ExpTransform(), D.AffineTransform(3.0, 2.0)])(hm.zeros(2)).tolist()
    [1.0, 3.0]
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0) -> None:
        super().__init__(tseq, dim)
        self.domain = constraints.stack([t.domain for t in self.transforms], dim)
        self.codomain = constraints.stack([t.codomain for t in self.transforms], dim)

    def _parts(self, x: Tensor) -> list[Tensor]:
        before = (slice(None),) * (self.dim % x.ndim)
        return [part[(*before, 0)] for part in super()._parts(x)]

    def _joined(self, parts: list[Tensor], axis: int) -> Tensor:
        return xp.stack(parts, axis=axis)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        parts = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        return xp.stack([t.log_abs_det_jacobian(a, b) for t, a, b in parts], axis=self.dim)

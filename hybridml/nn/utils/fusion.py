"""Normalisation in evaluation, folded into the weights of the layer before it."""

from __future__ import annotations

import copy
from typing import TypeVar

from hybridml_compiler.errors import ArgumentError

from ... import arrays as xp
from ...core.context import no_grad
from ...core.tensor import Tensor
from ..module import Module
from ..parameter import Parameter
from .parametrize import is_parametrized, remove_parametrizations

M = TypeVar("M", bound=Module)


def fuse_conv_bn_eval(conv: M, bn: Module, transpose: bool = False) -> M:
    """A copy of a convolution that computes ``bn(conv(x))`` of both in evaluation; `transpose` for transposed ones.

    Raises ArgumentError where one is in training mode, whose statistics are those of the batch, or `bn` keeps none.
    Shapes are those of `conv`: (n, channels, ...).

    >>> conv, bn = hm.nn.Conv2d(3, 4, 3).eval(), hm.nn.BatchNorm2d(4).eval()
    >>> x = hm.randn((2, 3, 8, 8))
    >>> bool(hm.allclose(fuse_conv_bn_eval(conv, bn)(x), bn(conv(x)), rtol=1e-4, atol=1e-5))
    True
    """
    return _fused("fuse_conv_bn_eval", conv, bn, transpose)


def fuse_linear_bn_eval(linear: M, bn: Module) -> M:
    """A copy of a linear layer (n, features) that computes ``bn(linear(x))`` of both in evaluation.

    Raises ArgumentError as `fuse_conv_bn_eval`.

    >>> linear, bn = hm.nn.Linear(3, 4).eval(), hm.nn.BatchNorm1d(4).eval()
    >>> x = hm.randn((2, 3))
    >>> bool(hm.allclose(fuse_linear_bn_eval(linear, bn)(x), bn(linear(x)), rtol=1e-4, atol=1e-5))
    True
    """
    return _fused("fuse_linear_bn_eval", linear, bn, False)


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Tensor, Tensor]:
    """Weight and bias, new parameters, of a convolution with the normalisation behind it, as `fuse_conv_bn_eval`.

    `bn_rm` and `bn_rv` (channels,) are the running mean and variance, `bn_w` and `bn_b` the scale and the shift.

    >>> w, b = fuse_conv_bn_weights(hm.ones((2, 3, 1)), None, hm.ones(2), hm.ones(2), 0.0, hm.tensor([1.0, 2.0]), None)
    >>> w[:, 0, 0].tolist(), b.tolist()
    ([1.0, 2.0], [-1.0, -2.0])
    """
    with no_grad():
        scale = 1 / xp.sqrt(bn_rv + bn_eps)
        if bn_w is not None:
            scale = scale * bn_w
        bias = (-bn_rm if conv_b is None else conv_b - bn_rm) * scale
        rows = scale.reshape((-1, conv_w.shape[1] if transpose else 1))  # transposed: one of each group
        rows = xp.repeat(rows, conv_w.shape[0] // rows.shape[0], axis=0)
        weight = (conv_w * rows.reshape((*rows.shape, *[1] * (conv_w.ndim - 2)))).astype(conv_w.dtype)
        like = conv_w if conv_b is None else conv_b
        bias = (bias if bn_b is None else bias + bn_b).astype(like.dtype)
        return Parameter(weight, conv_w.requires_grad), Parameter(bias, like.requires_grad)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Weight and bias, new parameters, of a linear layer with the normalisation behind it; see `fuse_conv_bn_weights`.

    >>> w, b = fuse_linear_bn_weights(hm.eye(2), hm.ones(2), hm.ones(2), hm.ones(2), 0.0, None, hm.zeros(2))
    >>> b.tolist()
    [0.0, 0.0]
    """
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def _fused(name: str, layer: M, bn: Module, transpose: bool) -> M:
    if layer.training or bn.training:
        raise ArgumentError(f"{name}: both layers are to be in evaluation; call .eval() on them")
    if getattr(bn, "running_mean", None) is None:
        raise ArgumentError(f"{name}: {type(bn).__name__} keeps no running statistics")
    found = copy.deepcopy(layer)
    for part in ("weight", "bias"):
        if is_parametrized(found, part):
            remove_parametrizations(found, part)
    found.weight, found.bias = fuse_conv_bn_weights(
        layer.weight, layer.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return found


__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]

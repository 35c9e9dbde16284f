"""Normalisation in evaluation, folded into the weights of the layer before it."""

from __future__ import annotations

import copy
from typing import TypeVar

from hybridml_compiler.errors import ArgumentError

from ... import arrays as xp
from ...core.context import no_grad
from ..module import Module
from ..parameter import Parameter

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
    return _fused("fuse_conv_bn_eval", conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: M, bn: Module) -> M:
    """A copy of a linear layer (n, features) that computes ``bn(linear(x))`` of both in evaluation.

    Raises ArgumentError as `fuse_conv_bn_eval`.

    >>> linear, bn = hm.nn.Linear(3, 4).eval(), hm.nn.BatchNorm1d(4).eval()
    >>> x = hm.randn((2, 3))
    >>> bool(hm.allclose(fuse_linear_bn_eval(linear, bn)(x), bn(linear(x)), rtol=1e-4, atol=1e-5))
    True
    """
    return _fused("fuse_linear_bn_eval", linear, bn, 0)


def _fused(name: str, layer: M, bn: Module, axis: int) -> M:
    if layer.training or bn.training:
        raise ArgumentError(f"{name}: both layers are to be in evaluation; call .eval() on them")
    if getattr(bn, "running_mean", None) is None:
        raise ArgumentError(f"{name}: {type(bn).__name__} keeps no running statistics")
    found = copy.deepcopy(layer)
    with no_grad():
        scale = 1 / xp.sqrt(bn.running_var + bn.eps)
        if bn.weight is not None:
            scale = scale * bn.weight
        shape = [1] * layer.weight.ndim
        shape[axis] = -1
        bias = -bn.running_mean if layer.bias is None else layer.bias - bn.running_mean
        bias = bias * scale
        found.weight = Parameter(layer.weight * scale.reshape(shape))
        found.bias = Parameter(bias if bn.bias is None else bias + bn.bias)
    return found


__all__ = ["fuse_conv_bn_eval", "fuse_linear_bn_eval"]

"""Reductions made of others: `logsumexp`, `aminmax`, `var_mean`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.ops.shapes import axes_tuple
from hybridml_compiler.ops.table import OPS

from ...core.library import compiled
from ...core.tensor import Tensor
from ..indexing.selecting import lifted
from ..shaping.manipulation import std

_where = OPS["where"]


class Bounds(NamedTuple):
    """The least and the greatest element."""

    min: Tensor
    max: Tensor


@compiled
def logsumexp(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) over `axis`, without overflow, in x's float dtype; -inf for elements of -inf, and for none.

    Its gradient, softmax, is 0 for an element of -inf, also where all are. Source: PyTorch, SciPy.

    >>> import hybridml as hm
    >>> hm.logsumexp(hm.tensor([[1000.0, 1000.0], [-hm.inf, -hm.inf]]), axis=1).tolist()
    [1000.693..., -inf]
    """
    x = lifted(x)
    if x.dtype.kind not in "fcV":
        x = OPS["astype"].fn(x, dtypes.default_float())
    axes = axes_tuple("logsumexp", axis, Aval(x.shape, x.dtype))
    if not math.prod(x.shape[k] for k in axes):
        return OPS["log"].fn(OPS["sum"].fn(x, axes, keepdims))
    top = OPS["max"].fn(x.detach() if x.dtype.kind != "c" else OPS["real"].fn(x.detach()), axes, True)
    level = _where.fn(OPS["isfinite"].fn(top), top, 0.0)
    total = OPS["sum"].fn(OPS["exp"].fn(x - level), axes, True)
    none = total == 0
    found = _where.fn(none, -math.inf, OPS["log"].fn(_where.fn(none, 1.0, total)) + level)
    if keepdims:
        return found
    return OPS["reshape"].fn(found, tuple(n for k, n in enumerate(x.shape) if k not in axes))


def aminmax(x: Tensor, *, axis: Any = None, keepdims: bool = False) -> Bounds:
    """The least and the greatest element over `axis`, as (min, max). Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.aminmax(hm.tensor([3, 1, 2]))
    Bounds(min=Tensor(1), max=Tensor(3))
    """
    return Bounds(OPS["min"].fn(x, axis, keepdims), OPS["max"].fn(x, axis, keepdims))


def var_mean(x: Tensor, axis: Any = None, *, correction: float = 1, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """The variance and the mean over `axis` (all). PyTorch's: `correction` is 1 here, and 0 in the standard's `var`.

    >>> import hybridml as hm
    >>> [t.item() for t in hm.var_mean(hm.tensor([1.0, 3.0]))]
    [2.0, 2.0]
    """
    return OPS["var"].fn(x, axis, correction, keepdims), OPS["mean"].fn(x, axis, keepdims)


def std_mean(x: Tensor, axis: Any = None, *, correction: float = 1, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean over `axis` (all); see `var_mean`.

    >>> import hybridml as hm
    >>> [t.item() for t in hm.std_mean(hm.tensor([0.0, 2.0]), correction=0)]
    [1.0, 1.0]
    """
    return std(x, axis=axis, correction=correction, keepdims=keepdims), OPS["mean"].fn(x, axis, keepdims)


for _method in (aminmax, logsumexp, std_mean, var_mean):
    setattr(Tensor, _method.__name__, _method)

__all__ = ["aminmax", "logsumexp", "std_mean", "var_mean"]

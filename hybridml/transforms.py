"""Functions of functions: `grad`, `value_and_grad`, `vjp`, `jvp`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, DTypeError, GradientError

from . import autograd, tree
from .arrays.creation import asarray, ones_like, zeros_like
from .autograd import enable_grad
from .context import clock, grad_is_off
from .tape import KEPT, Leaf
from .tensor import Tensor

Argnums = int | Sequence[int]


def _tracked(leaf: Any) -> Any:
    """A fresh leaf (or an inner tensor, when the outside is being recorded too) for one differentiated argument."""
    if isinstance(leaf, bool | int | str) or leaf is None:
        return leaf
    t = asarray(leaf)
    if not dtypes.is_inexact(t.dtype):
        raise DTypeError(
            f"grad: only float and complex tensors have gradients, got {t.dtype.name}; cast it with astype"
        )
    if t._node is not None and not grad_is_off():
        return t.clone()  # keeps the connection: gradients of gradients flow to the outside
    return t.detach().requires_grad_()


def _check_function(name: str, fn: Any) -> None:
    if not callable(fn):
        raise ArgumentError(
            f"{name}: takes a function and gives a function, got {type(fn).__name__}; the gradient of a tensor that is "
            "already computed is y.backward(), or hm.autograd.grad(y, x)"
        )


def value_and_grad(fn: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """`value_and_grad(fn)(*args)` is `(fn(*args), gradient)`.

    fn returns a scalar tensor, or `(scalar, aux)` with `has_aux`. The gradient has the structure of argument `argnums`
    (a container of tensors is fine), or is a tuple for several. Nothing is added to any `.grad`. The result can be
    differentiated again.

    >>> import hybridml as hm
    >>> value, g = hm.value_and_grad(lambda x: (x * x).sum())(hm.tensor([1.0, 2.0]))
    >>> value.item(), g.tolist()
    (5.0, [2.0, 4.0])
    """
    _check_function("grad", fn)
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        grad_off = grad_is_off()
        for n in positions:
            if not -len(args) <= n < len(args):
                raise ArgumentError(f"grad: argnums {n} but {len(args)} positional arguments")
        outer = not grad_off and any(
            isinstance(x, Tensor) and x.requires_grad for n in positions for x in tree.tree_leaves(args[n])
        )
        inner, given = list(args), [args[n] for n in positions]
        start = clock()
        with enable_grad():
            for n, arg in zip(positions, given, strict=True):
                inner[n] = tree.tree_map(_tracked, arg)
            result = fn(*inner, **kwargs)
            value, aux = result if has_aux else (result, None)
            if not isinstance(value, Tensor) or value.size != 1:
                got = f"shape {value.shape}" if isinstance(value, Tensor) else type(value).__name__
                raise GradientError(
                    f"grad: the function must return a scalar tensor, got {got}; reduce it with sum or mean"
                )
            wanted = [x for n in positions for x in tree.tree_leaves(inner[n]) if isinstance(x, Tensor)]
            # The backward is recorded where something outside may want to differentiate it again.
            create = not grad_off and (outer or _reaches_outside(value, {id(x._node) for x in wanted}, start))
            if value.requires_grad:
                found = autograd.grad(value, wanted, create_graph=create, retain_graph=create, allow_unused=True)
            else:
                found = (None,) * len(wanted)
        gradients = iter([zeros_like(x) if g is None else g for g, x in zip(found, wanted, strict=True)])
        out = [tree.tree_map(lambda x: next(gradients) if isinstance(x, Tensor) else None, inner[n]) for n in positions]
        gradient = out[0] if isinstance(argnums, int) else tuple(out)
        if not create:
            value = value.detach()
        return ((value, aux) if has_aux else value), gradient

    return wrapper


def _reaches_outside(value: Tensor, own: set[int], start: int) -> bool:
    """Whether the history of `value` reaches a leaf that is not ours, or something recorded before the call."""
    pending, seen = [value._node], set(own)
    while pending:
        node = pending.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if type(node) is not list or node[0] < start:
            return True
        pending += [
            p for p in node[KEPT:] if isinstance(p, Leaf) or (type(p) is list and len(p) >= KEPT and callable(p[1]))
        ]
    return False


def grad(fn: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The gradient function of a scalar function; see `value_and_grad`. `grad(grad(f))` works.

    >>> import hybridml as hm
    >>> hm.grad(hm.grad(lambda x: x**3))(hm.tensor(2.0)).item()
    12.0
    """
    both = value_and_grad(fn, argnums, has_aux)

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapper


def vjp(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Tensor], tuple[Any, ...]]]:
    """`(fn(*primals), pull)`; `pull(cotangent)` is the vector-Jacobian product, one entry a primal."""
    with enable_grad():
        inner = [_tracked(p) for p in primals]
        value = fn(*inner)
    if not isinstance(value, Tensor):
        raise GradientError(f"vjp: the function must return a tensor, got {type(value).__name__}")

    def pull(cotangent: Tensor) -> tuple[Any, ...]:
        wanted = [x for x in inner if isinstance(x, Tensor)]
        if not value.requires_grad:
            return tuple(zeros_like(x) for x in wanted)
        found = autograd.grad(
            value, wanted, cotangent, retain_graph=True, create_graph=not grad_is_off(), allow_unused=True
        )
        return tuple(zeros_like(x) if g is None else g for g, x in zip(found, wanted, strict=True))

    return value.detach(), pull


def jvp(fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """`(fn(*primals), Jacobian-vector product)`, by differentiating the vjp, which is linear in its cotangent.

    Source of the double-vjp form: J. Townsend, "A new trick for calculating Jacobian vector products" (2017).
    """
    with enable_grad():
        inner = [asarray(p).detach().requires_grad_() for p in primals]
        value = fn(*inner)
        if not value.requires_grad:
            return value, zeros_like(value)
        dummy = ones_like(value).requires_grad_()
        pulled = autograd.grad(value, inner, dummy, create_graph=True, allow_unused=True)
        pairs = [(g, asarray(t)) for g, t in zip(pulled, tangents, strict=True) if g is not None and g.requires_grad]
        if not pairs:
            return value.detach(), zeros_like(value)
        (product,) = autograd.grad([g for g, _ in pairs], dummy, [t for _, t in pairs], allow_unused=True)
    return value.detach(), zeros_like(value) if product is None else product

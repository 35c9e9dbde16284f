"""Derivatives of all outputs in all inputs: `jacrev`, `jacfwd`, `hessian`, `hvp`, `linearize`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from hybridml_compiler.errors import ArgumentError

from ..arrays.creation import asarray, eye, zeros, zeros_like
from ..core.autodiff.tape import conjugated
from ..core.context import clock, enable_grad, no_grad
from ..core.forward.transposition import differentiated, pulled
from ..core.ops import concat
from ..core.pytree import flatten, tree_leaves, tree_map, unflatten
from ..core.tensor import Tensor
from .grad import Argnums, grad, jvp, positions_of, vectors_like, vjp
from .vmap import vmap


def jacrev(
    fn: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *, chunk_size: int | None = None
) -> Callable[..., Any]:
    """The Jacobian of `fn`, a row at a time by reverse mode: for many inputs and few outputs.

    fn returns a tensor or a container of tensors, or `(value, aux)` with `has_aux`, and then so does the call. For an
    output of shape (*m) and an argument of shape (*n) the Jacobian has shape (*m, *n), in containers as the outputs'
    and, within, the argument's; a tuple over several `argnums`. chunk_size: rows that are computed together, all by
    default. Complex numbers: the row of an output is what `vjp` gives for 1, the conjugate of a derivative.
    Errors are those of `vjp`. It can be differentiated again.

    >>> import hybridml as hm
    >>> hm.jacrev(lambda x: x**2)(hm.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    return _jacobian("jacrev", fn, argnums, has_aux, functools.partial(_by_rows, chunk_size=chunk_size))


def jacfwd(
    fn: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *, chunk_size: int | None = None
) -> Callable[..., Any]:
    """The Jacobian of `fn`, a column at a time by forward mode: for few inputs and many outputs. Arguments, results and
    errors are those of `jacrev`.

    >>> import hybridml as hm
    >>> hm.jacfwd(lambda x: hm.stack([x, x**2, x**3]))(hm.tensor(2.0)).tolist()
    [1.0, 4.0, 12.0]
    """
    return _jacobian("jacfwd", fn, argnums, has_aux, functools.partial(_by_columns, chunk_size=chunk_size))


def hessian(fn: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The second derivatives of `fn`, `jacfwd(jacrev(fn))`: for a scalar function of shape (*n) they have (*n, *n).

    >>> import hybridml as hm
    >>> hm.hessian(lambda x: (x**3).sum())(hm.tensor([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    return jacfwd(jacrev(fn, argnums, has_aux), argnums, has_aux)


def hvp(fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The product of the second derivatives of a scalar function with a vector, without the matrix: by forward over
    reverse mode. primals, tangents: as of `jvp`; the result has the structure of the first primal.

    >>> import hybridml as hm
    >>> hm.hvp(lambda x: (x**3).sum(), (hm.tensor([1.0, 2.0]),), (hm.tensor([1.0, 0.5]),)).tolist()
    [6.0, 6.0]
    """
    return jvp(grad(fn), primals, tangents)[1]


def linearize(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """`(fn(*primals), push)`: `push(*tangents)` is the derivative along the tangents, as often as needed.

    >>> import hybridml as hm
    >>> value, push = hm.linearize(lambda x: x**2, hm.tensor(3.0))
    >>> value.item(), push(hm.tensor(1.0)).item(), push(hm.tensor(10.0)).item()
    (9.0, 6.0, 60.0)
    """
    value, pull = vjp(fn, *primals)
    is_wanted = any(t.requires_grad for t in tree_leaves((value, primals)) if isinstance(t, Tensor))
    start = clock()
    with enable_grad():
        seeds = tree_map(lambda t: differentiated(zeros(t.shape, dtype=t.dtype, device=t.device)), value)
        gradients = pull(seeds)
    moving, ends = [[t for t in tree_leaves(tree) if isinstance(t, Tensor)] for tree in (gradients, seeds)]

    def along(*tangents: Any) -> Any:
        vectors = map(conjugated, vectors_like("linearize: tangents", tangents, "primals", gradients))
        # A pull is linear: its own pull, anywhere, is the derivative itself (J. Townsend, 2017; see `jvp`). What leads
        # to the cotangents alone is pulled through: what leads to the primals would cost as much again.
        with nullcontext() if is_wanted else no_grad():
            pairs = [(g, v) for g, v in zip(moving, vectors, strict=True) if g.requires_grad]
            products = iter(pulled([g for g, _ in pairs], [v for _, v in pairs], ends, start))
            return tree_map(lambda end: zeros_like(end) if (g := next(products)) is None else conjugated(g), seeds)

    return value, along


# -- parts


def _jacobian(name: str, fn: Any, argnums: Argnums, has_aux: bool, way: Callable[..., Any]) -> Callable[..., Any]:
    if not callable(fn):
        raise ArgumentError(f"{name}: takes a function and gives a function, got {type(fn).__name__}")
    positions = positions_of(name, argnums)

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        for n in positions:
            if not -len(args) <= n < len(args):
                raise ArgumentError(f"{name}: argnums {n} but {len(args)} positional arguments")

        def of_chosen(*chosen: Any) -> Any:
            inner = list(args)
            for n, arg in zip(positions, chosen, strict=True):
                inner[n] = arg
            return fn(*inner, **kwargs)

        chosen = tuple([tree_map(_as_tensor, args[n]) for n in positions])
        jacobian, aux = way(of_chosen, chosen, has_aux)
        structure, derivatives = jacobian  # of each output, in all that is chosen
        found = unflatten(structure, [d[0] for d in derivatives] if isinstance(argnums, int) else derivatives)
        return (found, aux) if has_aux else found

    return wrapper


def _as_tensor(leaf: Any) -> Any:
    return asarray(leaf) if isinstance(leaf, float | complex) else leaf


def _basis(tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[int]]:
    """Unit vectors of the space of all tensors together, one after the other, and the sizes of the parts."""
    sizes = [t.numel() for t in tensors]
    total = sum(sizes)
    units = []
    for k, t in enumerate(tensors):
        before, after = sum(sizes[:k]), sum(sizes[k + 1 :])
        like: dict[str, Any] = {"dtype": t.dtype, "device": t.device}
        parts = [zeros((before, sizes[k]), **like), eye(sizes[k], **like), zeros((after, sizes[k]), **like)]
        rows = concat(parts, axis=0)
        units.append(rows.reshape((total, *t.shape)))
    return units, sizes


def _split(rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
    return [rows[end - n : end] for end, n in zip(ends, sizes, strict=True)]


def _by_rows(fn: Any, primals: tuple[Any, ...], has_aux: bool, chunk_size: int | None) -> Any:
    value, pull, *aux = vjp(fn, *primals, has_aux=has_aux)
    outputs: list[Any] = []
    structure = flatten(value, outputs)
    units, sizes = _basis(outputs)
    rows = vmap(pull, chunk_size=chunk_size)(unflatten(structure, units))
    leaves: list[Any] = []
    inside = flatten(rows, leaves)
    parts = [None if leaf is None else _split(leaf, sizes) for leaf in leaves]
    found = []
    for k, output in enumerate(outputs):
        own = [None if p is None else p[k].reshape((*output.shape, *p[k].shape[1:])) for p in parts]
        found.append(unflatten(inside, own))
    return (structure, found), aux[0] if aux else None


def _by_columns(fn: Any, primals: tuple[Any, ...], has_aux: bool, chunk_size: int | None) -> Any:
    leaves: list[Any] = []
    inside = flatten(primals, leaves)
    inputs = [t for t in leaves if isinstance(t, Tensor)]
    units, sizes = _basis(inputs)

    def push(*given: Tensor) -> Any:
        rest = iter(given)
        tangents = unflatten(inside, [next(rest) if isinstance(t, Tensor) else None for t in leaves])
        _, *found = jvp(fn, primals, tangents, has_aux=has_aux)
        return tuple(found)

    # The last axis, so that what is left of it are the axes of the outputs.
    columns, *aux = vmap(push, out_axes=(-1, None) if has_aux else -1, chunk_size=chunk_size)(*units)
    outputs: list[Any] = []
    structure = flatten(columns, outputs)
    found = []
    for output in outputs:
        ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
        own = [output[..., end - n : end] for end, n in zip(ends, sizes, strict=True)]
        shaped = iter([c.reshape((*output.shape[:-1], *t.shape)) for c, t in zip(own, inputs, strict=True)])
        found.append(unflatten(inside, [next(shaped) if isinstance(t, Tensor) else None for t in leaves]))
    return (structure, found), aux[0] if aux else None

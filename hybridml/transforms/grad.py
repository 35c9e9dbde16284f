"""Functions of functions: `grad`, `value_and_grad`, `vjp`, `jvp`; `stop_gradient`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, DTypeError, GradientError, ShapeError

from .. import autograd
from ..arrays.creation import asarray, zeros_like
from ..autograd import as_gradient, enable_grad
from ..core.autodiff.lost_histories import without_numpys_error
from ..core.autodiff.sparse import densified
from ..core.autodiff.tape import Leaf, Mark, is_node, parents_of, stamp_of
from ..core.context import clock, grad_is_off
from ..core.forward.interpreter import Dual, Forward
from ..core.interpreter import interpret
from ..core.nested import staged
from ..core.pytree import flatten, tree_leaves, tree_map
from ..core.tensor import Tensor, like

Argnums = int | Sequence[int]


class _Own(Leaf):
    """The leaf of a tensor that a call of a transform makes: only what runs inside of that call can meet it."""

    __slots__ = ("stamp",)

    def __init__(self, t: Tensor) -> None:
        super().__init__(t.shape, t.dtype)
        self.stamp = clock()


def _leaf(t: Tensor) -> Tensor:
    t = t.detach()
    t._node = _Own(t)
    return t


def _tracked(name: str, leaf: Any) -> Any:
    """A fresh leaf (or an inner tensor, when the outside is being recorded too) for one differentiated argument."""
    t = _primal(name, leaf)
    if not isinstance(t, Tensor):
        return t
    if type(t._node) is Mark and not grad_is_off():
        if type(t._array) is Dual:
            t._array.interpreter.takes_gradients = True
        return like(t, t._array, _Own(t))  # with its tangent
    if t._node is not None and not grad_is_off():
        return t.clone()  # keeps the connection: gradients of gradients flow to the outside
    return _leaf(t)


def _tensors(tree_: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree_) if isinstance(leaf, Tensor)]


def _check_function(name: str, fn: Any) -> None:
    if not callable(fn):
        raise ArgumentError(
            f"{name}: takes a function and gives a function, got {type(fn).__name__}; the gradient of a tensor that is "
            "already computed is y.backward(), or hm.autograd.grad(y, x)"
        )


def positions_of(name: str, argnums: Argnums) -> tuple[int, ...]:
    """The arguments that are differentiated."""
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if not all(hasattr(n, "__index__") for n in positions):
        raise ArgumentError(f"{name}: argnums counts positional arguments from 0, one int or several, got {argnums!r}")
    return positions


def value_and_grad(fn: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """`value_and_grad(fn)(*args)` is `(fn(*args), gradient)`.

    fn returns a scalar tensor, or `(scalar, aux)` with `has_aux`, and then so does the call: aux is any Python value,
    of whose history, as of the value's, only what lies outside of this call is kept. The gradient has the structure of
    argument `argnums` (a container of tensors is fine), or is a tuple for several. Nothing is added to any `.grad`. The
    result can be differentiated again.

    >>> import hybridml as hm
    >>> value, g = hm.value_and_grad(lambda x: (x * x).sum())(hm.tensor([1.0, 2.0]))
    >>> value.item(), g.tolist()
    (5.0, [2.0, 4.0])
    """
    _check_function("grad", fn)
    positions = positions_of("grad", argnums)

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        grad_off = grad_is_off()
        for n in positions:
            if not -len(args) <= n < len(args):
                raise ArgumentError(f"grad: argnums {n} but {len(args)} positional arguments")
        inner, given = list(args), [args[n] for n in positions]
        start = clock()
        with enable_grad():
            for n, arg in zip(positions, given, strict=True):
                inner[n] = tree_map(functools.partial(_tracked, "grad"), arg)
            with without_numpys_error():
                found = fn(*inner, **kwargs)
            value, aux = _parts("grad", found, has_aux)
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise GradientError(f"grad: the function must return a scalar tensor, got {_told(value)}")
            wanted = _tensors([inner[n] for n in positions])
            create = not grad_off and _concerns_outside([value, *_tensors(aux)], given, wanted, start)
            if value.requires_grad:
                found = autograd.grad(value, wanted, create_graph=create, retain_graph=create, allow_unused=True)
                found = tuple(map(densified, found))
            else:
                found = (None,) * len(wanted)
        gradients = iter([zeros_like(x) if g is None else g for g, x in zip(found, wanted, strict=True)])
        out = [tree_map(lambda x: next(gradients) if isinstance(x, Tensor) else None, inner[n]) for n in positions]
        gradient = out[0] if isinstance(argnums, int) else tuple(out)
        if not create:
            value, aux = value.detach(), _detached(aux)
        return ((value, aux) if has_aux else value), gradient

    return wrapper


def _concerns_outside(values: Sequence[Tensor], given: Any, wanted: Sequence[Tensor], start: int) -> bool:
    """Whether something outside may want to differentiate again: one of the arguments is recorded there, or the history
    of `values` reaches, beside `wanted`, a leaf of somebody else, or something recorded before the call.
    """
    if any(x.requires_grad for x in _tensors(given)):
        return True
    pending, seen = [value._node for value in values], {id(x._node) for x in wanted}
    while pending:
        node = pending.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if (stamp_of(node) if is_node(node) else node.stamp if isinstance(node, _Own) else 0) < start:
            return True
        if is_node(node):
            pending += parents_of(node)
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


def vjp(fn: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """`(fn(*primals), pull)`, or `(value, pull, aux)` with `has_aux`; `pull(cotangent)` gives vector-Jacobian products.

    primals: float or complex tensors, or containers of them. fn returns a tensor or a container of tensors;
    `(value, aux)` with `has_aux`. cotangent: of the structure and shapes of the value. `pull` returns a tuple, one
    entry of the structure of each primal (None for a leaf that is no tensor, as an int), and may be called again. The
    value and what `pull` gives can be differentiated, in the primals, the cotangent and what fn reads from outside.
    Errors: DTypeError for primals of integers, GradientError where fn returns no tensor, ArgumentError and ShapeError
    for a cotangent that does not fit the value.

    >>> import hybridml as hm
    >>> value, pull = hm.vjp(lambda x, y: {"product": x * y, "sum": x + y}, hm.tensor(2.0), hm.tensor(3.0))
    >>> value["product"].item(), pull({"product": hm.tensor(1.0), "sum": hm.tensor(10.0)})
    (6.0, (Tensor(13.), Tensor(12.)))
    """
    _check_function("vjp", fn)
    start = clock()
    with enable_grad():
        inner = tree_map(functools.partial(_tracked, "vjp"), primals)
        value, aux = _value_of("vjp", fn, inner, has_aux)
    outs, wanted = _tensors(value), _tensors(inner)
    outer = _concerns_outside([*outs, *_tensors(aux)], primals, wanted, start)

    def pull(cotangent: Any) -> tuple[Any, ...]:
        vectors = vectors_like("vjp: the cotangent", cotangent, "the value", value)
        pairs = [(o, v) for o, v in zip(outs, vectors, strict=True) if o.requires_grad]
        create = not grad_is_off() and (outer or any(v.requires_grad for _, v in pairs))
        found = autograd.pulled("vjp", [o for o, _ in pairs], wanted, [v for _, v in pairs], retain=True, create=create)
        products = iter([zeros_like(x) if g is None else g for g, x in zip(found, wanted, strict=True)])
        result: tuple[Any, ...] = tree_map(lambda x: next(products) if isinstance(x, Tensor) else None, inner)
        return result

    if not outer or grad_is_off():
        value, aux = _detached(value), _detached(aux)
    return (value, pull, aux) if has_aux else (value, pull)


def jvp(
    fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False
) -> tuple[Any, ...]:
    """`(fn(*primals), Jacobian-vector product)`, or `(value, product, aux)` with `has_aux`.

    primals: float or complex tensors, or containers of them; tangents: of the same structure and shapes (None for a
    leaf that is no tensor). fn returns a tensor or a container of tensors, `(value, aux)` with `has_aux`; the product
    has its structure. Both results can be differentiated again: in the primals, the tangents, and what fn reads from
    outside; `jvp` of `jvp` works. Errors: as `vjp`'s, and ArgumentError and ShapeError for tangents that do not fit.

    >>> import hybridml as hm
    >>> x, one = hm.tensor(2.0), hm.tensor(1.0)
    >>> hm.jvp(lambda x: x**3, (x,), (one,))
    (Tensor(8.), Tensor(12.))
    >>> hm.grad(lambda x: hm.jvp(lambda x: x**3, (x,), (one,))[1])(x)
    Tensor(12.)
    """
    _check_function("jvp", fn)
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list):
            raise ArgumentError(f"jvp: {name} is a tuple, one entry an argument, got {type(given).__name__}")
    forward = Forward()
    given = tree_map(functools.partial(_primal, "jvp"), tuple(primals))
    vectors = iter(vectors_like("jvp: tangents", tuple(tangents), "primals", given))

    def dual(x: Any) -> Any:
        return forward.argument(x, as_gradient(next(vectors), x, "jvp")) if isinstance(x, Tensor) else x

    with enable_grad():
        inner = tree_map(dual, given)
        fn = staged(forward, fn)
        value, product, aux = interpret(forward, lambda: _with_tangents(forward, *_value_of("jvp", fn, inner, has_aux)))
    if grad_is_off():
        value, product, aux = _detached((value, product, aux))
    return (value, product, aux) if has_aux else (value, product)


def stop_gradient(tree: Any) -> Any:
    """The same values, which gradients and tangents do not pass: as `detach` for every tensor of a container.

    tree: a tensor, or a container of tensors; other leaves stay as they are. The tensors share memory with the given.

    >>> import hybridml as hm
    >>> hm.grad(lambda x: x * hm.stop_gradient(x))(hm.tensor(3.0))
    Tensor(3.)
    """
    return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, tree)


def _with_tangents(forward: Forward, value: Any, aux: Any) -> tuple[Any, Any, Any]:
    """The value, its tangents, and aux, as tensors of the level below."""

    def primal(leaf: Any) -> Any:
        return forward.parts(leaf)[0] if isinstance(leaf, Tensor) else leaf

    return tree_map(primal, value), tree_map(lambda t: forward.materialized(t)[1], value), tree_map(primal, aux)


def _primal(name: str, leaf: Any) -> Any:
    """A leaf of the arguments, as a tensor where it is differentiated."""
    if isinstance(leaf, bool | int | str) or leaf is None:
        return leaf
    t = asarray(leaf)
    if not dtypes.is_inexact(t.dtype):
        raise DTypeError(
            f"{name}: only float and complex tensors have gradients, got {t.dtype.name}; cast it with astype"
        )
    return t


def _value_of(name: str, fn: Callable[..., Any], inner: Iterable[Any], has_aux: bool) -> tuple[Any, Any]:
    """The result of fn, a container of tensors, and its aux."""
    with without_numpys_error():
        found = fn(*inner)
    value, aux = _parts(name, found, has_aux)
    for leaf in tree_leaves(value):
        if not isinstance(leaf, Tensor):
            raise GradientError(
                f"{name}: the function must return a tensor or a container of tensors, got {_told(leaf)}; "
                "return other things beside it, with has_aux=True"
            )
    return value, aux


def _told(value: Any) -> str:
    """Returns the words for what a function has returned in place of a tensor."""
    if isinstance(value, Tensor):
        return f"shape {value.shape}; reduce it with sum or mean"
    kind = type(value).__name__
    is_number = isinstance(value, int | float | complex | np.generic | np.ndarray)
    return f"{kind}, which has no history (float(t), t.item() and NumPy's arrays have none)" if is_number else kind


def _parts(name: str, result: Any, has_aux: bool) -> tuple[Any, Any]:
    if not has_aux:
        return result, None
    if not (isinstance(result, tuple) and len(result) == 2):
        got = f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__
        raise ArgumentError(f"{name}: with has_aux the function returns (value, aux), got {got}")
    return result


def vectors_like(what: str, given: Any, other: str, like: Any) -> list[Tensor]:
    """The tensors of `given`, one for each of `like`."""
    leaves: list[Any] = []
    likes: list[Any] = []
    structure = flatten(like, likes)
    if flatten(given, leaves) != structure:
        raise ArgumentError(f"{what} must have the structure of {other}: {_shown(like)}, got {_shown(given)}")
    found = []
    for leaf, x in zip(leaves, likes, strict=True):
        if not isinstance(x, Tensor):
            if leaf is not None:
                raise DTypeError(
                    f"{what}: {other} has {x!r} there, which has no derivative; make it a float, or give None"
                )
            continue
        if leaf is None:
            raise DTypeError(f"{what} must be tensors where those of {other} are, got None; give zeros")
        number = isinstance(leaf, bool | int | float | complex)
        t = asarray(leaf, dtype=x.dtype) if number else asarray(leaf)
        if t.shape != x.shape:
            raise ShapeError(f"{what} must have the shape of {other}, {x.shape}, got {t.shape}")
        found.append(t)
    return found


def _shown(container: Any) -> str:
    return repr(tree_map(lambda leaf: leaf.shape if isinstance(leaf, Tensor) else leaf, container))


def _detached(value: Any) -> Any:
    return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) and leaf.requires_grad else leaf, value)

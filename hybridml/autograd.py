"""Gradients as the user sees them: `backward`, `grad`, `.grad`, hooks, `no_grad` and custom functions.

The tape itself and the engine are in tape.py.

Of complex tensors: cotangents inside are transposes, so that the rule of x * y is g * y for any numbers. What the user
sees is the conjugate of that, the direction of steepest ascent of a real result, as in PyTorch: the gradient of
abs(z)**2 is 2 * z. It is conjugated where gradients come in and go out: seeds, results, hooks and custom functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from numpy import ndarray

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, DTypeError, GradientError, ShapeError
from hybridml_compiler.ops.table import OPS

from .core import aliasing
from .core.autodiff.function import Function, filled
from .core.autodiff.reductions import watch
from .core.autodiff.sparse import SparseGradient, added, shown
from .core.autodiff.tape import (  # fmt: skip
    Handle,
    Leaf,
    Mark,
    conjugated,
    give_hooks,
    hooked,
    is_node,
    misplaced,
    own,
    run,
    run_hooks,
)
from .core.context import (
    _no_grad,
    clock,
    current_interpreter,
    enable_grad,
    grad_is_off,
    is_grad_enabled,
    lift,
    no_grad,
    switches,
)
from .core.device_tensor import transfer
from .core.eager import active_interpreter
from .core.nested import Nested
from .core.shared import accumulating
from .core.spellings import advise
from .core.tensor import StandIn, Tensor, constant, like, method, place_of

__all__ = ["Function", "enable_grad", "grad", "is_grad_enabled", "no_grad"]

_astype, _full = OPS["astype"], OPS["full"]


def _seed(t: Tensor, gradient: Any, what: str) -> tuple[Any, Tensor]:
    if t._node is None:
        raise GradientError(
            f"{what}: the result (shape {t.shape}) has no history: no input had requires_grad=True, "
            "or it was computed under no_grad or after detach()"
        )
    if gradient is None:
        if t.dtype.kind == "c":
            raise GradientError(
                f"{what}: needs a real result, got {t.dtype.name}; pass its gradient, or reduce it with abs"
            )
        if t.numel() != 1:
            raise GradientError(
                f"{what}: needs a scalar, got shape {t.shape}; reduce it (sum, mean) or pass the gradient of the result"
            )
        if not t.shape and type(t._array) is ndarray:
            return t._node, constant(1.0, t.dtype)
        return t._node, filled(t, 1.0)
    if not isinstance(gradient, Tensor):
        raise DTypeError(f"{what}: the gradient must be a tensor, got {type(gradient).__name__}")
    if gradient.shape != t.shape:
        raise ShapeError(f"{what}: the gradient has shape {gradient.shape}, the result has shape {t.shape}")
    return t._node, conjugated(as_gradient(gradient, t, what))


def as_gradient(gradient: Tensor, t: Tensor, what: str) -> Tensor:
    """A gradient or tangent of the dtype and on the device of its tensor."""
    gradient = _beside(lift(gradient), t, what)
    if gradient.dtype is not t.dtype:
        if gradient.dtype.kind == "c" and t.dtype.kind != "c":
            raise DTypeError(
                f"{what}: the result is {t.dtype.name}, and its gradient {gradient.dtype.name}; take .real"
            )
        gradient = _astype.fn(gradient, t.dtype)
    return gradient


def _beside(g: Tensor, t: Tensor, what: str) -> Tensor:
    """A gradient on the device of its tensor: a number is moved there, for all else it is a DeviceError."""
    if place_of(g) == place_of(t):
        return g
    if not g.shape:
        return transfer(g, t.device.type)
    raise misplaced(g, t.device.type, what)


@method
def backward(
    self: Tensor, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False
) -> None:
    """Adds the gradient of this tensor with respect to every leaf into the leaf's `.grad`.

    gradient: cotangent of this tensor, of its shape; may be left out for a single element.
    retain_graph: keep the history for another backward (default: the value of `create_graph`).
    create_graph: record the backward itself, so that gradients can be differentiated again.
    Raises GradientError without history, for a non-scalar without `gradient`, or when the history was freed.

    >>> import hybridml as hm
    >>> x = hm.tensor([3.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad.tolist()
    [6.0]
    """
    t = lift(self)
    retain = create_graph if retain_graph is None else retain_graph
    seed = _seed(t, gradient, "backward()")
    reductions = watch(seed[0], create_graph)
    reduced: Sequence[tuple[Tensor, Tensor]] = ()
    if reductions is None:
        found = run([seed], retain=retain, create=create_graph, sparse=True)
    else:
        found, reduced = reductions.around_walk(partial(run, [seed], retain=retain, create=create_graph, sparse=True))
    outer = grad_is_off()
    try:  # nothing is stored before the walk is over: an error leaves every .grad as it was
        _no_grad.set(not create_graph)
        new: list[tuple[Leaf, Tensor]] = []
        while found:
            leaf, g = found.popitem()[1]
            if is_node(leaf):
                continue
            g = conjugated(g)
            if leaf.hooks:  # of the user: they may wait for another thread's backward
                g = run_hooks(leaf.hooks, g)
            new.append((leaf, g))
            del g
        with accumulating if current_interpreter() is None else nullcontext():
            sums = []
            while new:
                leaf, g = new.pop()
                sums.append((leaf, own(g) if leaf.grad is None else added(shown(leaf), g)))
                del g
            for leaf, g in sums:
                leaf.grad = g
            for reached, g in reduced:
                reached.grad = g
    finally:
        _no_grad.set(outer)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
    *,
    only_inputs: bool = True,
) -> tuple[Tensor | None, ...]:
    """Gradients of `outputs` with respect to `inputs` (leaves or inner tensors); no `.grad` is touched.

    Returns a tuple, one entry an input; None for an input that the outputs do not depend on, which is an error unless
    `allow_unused`. `only_inputs` is PyTorch's and has one value there, True.

    >>> import hybridml as hm
    >>> x = hm.tensor(2.0, requires_grad=True)
    >>> (dy,) = hm.autograd.grad(x**3, x, create_graph=True)
    >>> (ddy,) = hm.autograd.grad(dy, x)
    >>> dy.item(), ddy.item()
    (12.0, 12.0)
    """
    outs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    ins = [lift(t) for t in ([inputs] if isinstance(inputs, Tensor) else inputs)]
    if grad_outputs is None or isinstance(grad_outputs, Tensor):
        cotangents: list[Tensor | None] = [grad_outputs] + [None] * (len(outs) - 1)
    else:
        cotangents = list(grad_outputs)
    if len(cotangents) != len(outs):
        raise ArgumentError(f"grad: {len(outs)} outputs but {len(cotangents)} grad_outputs")
    for k, t in enumerate(ins):
        if t._node is None:
            raise GradientError(f"grad: input {k} (shape {t.shape}) does not require grad; call requires_grad_() on it")
        if type(t._node) is Mark:
            raise GradientError(
                f"grad: input {k} (shape {t.shape}) has a tangent inside of jvp, and no history; use hm.grad, or call "
                "requires_grad_() on it first"
            )
    retain = create_graph if retain_graph is None else retain_graph
    found = pulled("grad", outs, ins, cotangents, retain=retain, create=create_graph, sparse=True)
    for k, g in enumerate(found):
        if g is None and not allow_unused:
            raise GradientError(
                f"grad: the outputs do not depend on input {k}; pass allow_unused=True to get None for it"
            )
    return found


def pulled(
    what: str,
    outs: Sequence[Tensor],
    ins: Sequence[Tensor],
    cotangents: Sequence[Tensor | None],
    *,
    retain: bool,
    create: bool,
    since: int = 0,
    sparse: bool = False,
) -> tuple[Any, ...]:
    """The gradient with respect to each of `ins`, None where nothing leads there; see `tape.run` for the options."""
    seeds = [_seed(lift(t), c, what) for t, c in zip(outs, cotangents, strict=True)]
    nodes = [lift(t)._node for t in ins]
    wanted = {id(n): k for k, n in enumerate(nodes)}
    found = run(seeds, retain=retain, create=create, wanted=wanted, since=since, sparse=sparse)
    return tuple(conjugated(found[id(n)][1]) if id(n) in found else None for n in nodes)


# -- Tensor attributes


def _get_grad(self: Tensor) -> Tensor | None:
    """Gradient that `backward` has accumulated here, or None."""
    node = lift(self)._node
    if type(node) is Leaf:  # the most frequent one, asked for by optimizers
        grad: Any = node.grad
        return shown(node) if type(grad) is SparseGradient else grad
    if is_node(node):
        hooks = hooked(node)
        return None if hooks is None else hooks.grad
    return None if node is None else node.grad


def _set_grad(self: Tensor, value: Tensor | None) -> None:
    t = lift(self)
    if value is not None:
        if not isinstance(value, Tensor | SparseGradient):
            raise DTypeError(f".grad must be a tensor or None, got {type(value).__name__}")
        if value.shape != t.shape or value.dtype is not t.dtype:
            raise ShapeError(
                f".grad must have the tensor's shape {t.shape} and dtype {t.dtype.name}, "
                f"got {value.shape} {value.dtype.name}"
            )
        if isinstance(value, Tensor):
            value = _beside(lift(value), t, ".grad")
    node = t._node
    if is_node(node) and (hooks := hooked(node)) is not None:
        hooks.grad = value
    elif node is not None and not is_node(node):
        node.grad = value
    elif value is not None:
        raise GradientError(".grad can only be set on a leaf that requires grad; call requires_grad_() first")


def _get_requires_grad(self: Tensor) -> bool:
    """True when operations on this tensor are recorded. Setting it is allowed on leaves of a float dtype."""
    t: Any = lift(self)
    return (t._shown() if issubclass(type(t), StandIn) else t)._node is not None


def _set_requires_grad(self: Tensor, on: bool) -> None:
    self.requires_grad_(on)


@method
def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Starts (or stops) recording operations on this leaf; returns the tensor itself."""
    t = lift(self)
    if is_node(t._node):
        if requires_grad:
            return self
        raise GradientError("requires_grad_(False): this tensor has history, only leaves can be switched; use detach()")
    if requires_grad:
        if not dtypes.is_inexact(t.dtype):
            raise DTypeError(f"requires_grad_: only float and complex tensors have gradients, got {t.dtype.name}")
        if t._node is None or type(t._node) is Mark:
            t._node = Leaf(t.shape, t.dtype)
            switches.value += 1
    elif t._node is not None:
        t._node = None
        switches.value += 1
    return self


def _is_leaf(self: Tensor) -> bool:
    """True for a tensor without recorded history."""
    return not is_node(lift(self)._node)


for _name, _property in {
    "grad": property(_get_grad, _set_grad),
    "requires_grad": property(_get_requires_grad, _set_requires_grad),
    "is_leaf": property(_is_leaf),
}.items():
    setattr(Tensor, _name, _property)


@method
def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> Handle:
    """Calls `hook(gradient)` when this tensor's gradient is complete; what it returns replaces the gradient."""
    t = lift(self)
    node = t._node
    if node is None:
        raise GradientError("register_hook: this tensor does not require grad")
    if is_node(node):
        hooks = give_hooks(node).hooks
    else:
        hooks = node.hooks = {} if node.hooks is None else node.hooks
    key = clock()
    if isinstance(t._array, Nested):
        t._array.register_hook(lambda g: hook(g) if key in hooks else None)
    hooks[key] = hook
    switches.value += 1
    return Handle(hooks, key)


@method
def retain_grad(self: Tensor) -> None:
    """Makes `backward` fill `.grad` of this inner (non-leaf) tensor too."""
    t = lift(self)
    if t._node is None:
        raise GradientError("retain_grad: this tensor does not require grad")
    if is_node(t._node):
        give_hooks(t._node).retain = True


@method
def detach(self: Tensor) -> Tensor:
    """The same values (shared memory) without history."""
    t = lift(self)
    out = like(t, t._array.detached() if isinstance(t._array, Nested) else t._array)
    if type(t._array) is not ndarray:
        aliasing.link(t, out, (aliasing.DETACHED, {}))
        note = getattr(active_interpreter(t), "note", None)
        if note is not None:  # a region of a trace is to know that it has made it
            note(out)
        return out
    if type(t._version) is int:
        t._version = [t._version]
    out._version = t._version
    return out


advise(globals())

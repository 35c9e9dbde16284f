"""Custom functions: operations with a hand-written gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from hybridml_compiler import dtypes
from hybridml_compiler.errors import DTypeError, GradientError, ShapeError
from hybridml_compiler.ops.table import OPS

from ..batching.interpreter import Batching
from ..batching.rules import spread
from ..context import at_default_place, at_place, grad_is_off, lift, no_grad
from ..forward.interpreter import Forward
from ..forward.transposition import by_pullback
from ..interpreter import below, interpret
from ..nested import top_nesting
from ..precision.autocast import forward_around, under_autocast
from ..source_location import here
from ..tensor import Tensor, like
from .tape import Mark, Node, conjugated, kept_by, make_node, misplaced, parents_of, part, result_shape, stale

Tangents = Sequence[Tensor | None]
Pushed = tuple[Sequence[Tensor], Tangents]  # results, and their tangents
_astype, _full = OPS["astype"], OPS["full"]


def filled(like: Tensor, value: float) -> Tensor:
    return at_place(like.device.type, lambda: _full.fn(shape=like.shape, value=value, dtype=like.dtype))


class Context:
    """Context that `Function.forward` leaves for `Function.backward`: saved tensors and any attribute you set."""

    __slots__ = ("__dict__", "_saved", "materialize_grads", "needs_input_grad")

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self._saved: tuple[Any, ...] = ()
        self.materialize_grads = True

    def set_materialize_grads(self, value: bool) -> None:
        """With False, `backward` gets None, instead of zeros, for a result that nothing used."""
        self.materialize_grads = value

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps inputs or outputs of `forward`; a later in-place update of one is noticed."""
        self._saved = tensors

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        return self._saved


class Function:
    """An operation with a hand-written gradient: subclass it, write two static methods, call `apply`.

    `forward(ctx, *args)` returns a tensor or a tuple of tensors, and is not recorded. `backward(ctx, *grads)` gets one
    gradient an output and returns one an argument (None for arguments without gradient), which is cast to the
    argument's dtype. If `backward` is written in framework operations it can be differentiated again. Forward mode
    transposes it, or calls a third static method, `jvp(ctx, *tangents)`: it gets one tangent an argument, None where
    that has none, and returns one an output.

    >>> import hybridml as hm
    >>> class Square(hm.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         (x,) = ctx.saved_tensors
    ...         return g * 2 * x
    >>> x = hm.tensor(3.0, requires_grad=True)
    >>> Square.apply(x).backward()
    >>> x.grad.item()
    6.0
    """

    # Whether the derivative of `forward`, operation by operation, is that of the function: then forward mode takes it.
    is_composite: ClassVar[bool] = False

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        raise NotImplementedError("a Function needs a static method forward(ctx, *args)")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("a Function needs a static method backward(ctx, *grads)")

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError("a Function without a static method jvp(ctx, *tangents) is pulled back")

    @classmethod
    def _pushed(cls, fn: Callable[..., tuple[Tensor, ...]], args: Sequence[Any], tangents: Tangents) -> Pushed:
        """The results of `fn`, which applies this function, and their tangents for those of its arguments."""
        return _by_jvp(cls, fn, args, tangents) if cls._has_tangents() else by_pullback(fn, args, tangents)

    @classmethod
    def _has_tangents(cls) -> bool:
        """Whether the function says its tangents itself."""
        return cls.jvp is not Function.jvp

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Runs `forward`, and records this function as one step of the history."""
        around = top_nesting()
        if type(around) is Batching:
            return _of_batches(around, cls, args)
        forward, narrow = forward_around()
        if forward is not None:
            return _of_duals(forward, cls, args, narrow)
        args = tuple(lift(a) if isinstance(a, Tensor) else a for a in args)
        wants = tuple(isinstance(a, Tensor) and a._node is not None and not grad_is_off() for a in args)
        ctx = Context(wants)
        with no_grad():
            result = cls.forward(ctx, *args)
        outs = _results(cls, result)
        if not any(wants):
            return result
        outs = _record_function(cls, ctx, args, wants, outs)
        return outs[0] if isinstance(result, Tensor) else outs


def _results(cls: type[Function], result: Any) -> tuple[Tensor, ...]:
    outs = (result,) if isinstance(result, Tensor) else result
    if not isinstance(outs, tuple) or not all(isinstance(o, Tensor) for o in outs):
        raise DTypeError(
            f"{cls.__name__}.forward must return a tensor or a tuple of tensors, got {type(result).__name__}"
        )
    return outs


def _record_function(
    cls: type[Function], ctx: Context, args: tuple[Any, ...], wants: tuple[bool, ...], outs: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """Records one node for the call, and a small node per output that hands it that output's cotangent."""
    results = [like(o, o._array, None, o._version if type(o._version) is list else [o._version]) for o in outs]
    # A kept output must not keep its own history alive (a reference cycle): it is rebuilt when backward asks for it.
    position = {id(o): k for k, o in enumerate(outs)}
    kept = [(position[id(t)], results[position[id(t)]]._version) if id(t) in position else t for t in ctx._saved]
    ctx._saved = ()
    positions = tuple((k, args[k].dtype, args[k].device.type) for k, want in enumerate(wants) if want)
    parents = [args[k]._node for k, *_ in positions]
    bare = [like(o, o._array) for o in outs]
    joint = make_node(_pull_function, None, parents, cls, ctx, positions, len(args), kept, bare, here())
    for k, t in enumerate(results):
        if dtypes.is_inexact(t.dtype):
            t._node = part(joint, k, t.shape)
    return tuple(results)


def _pull_function(bundle: dict[int, Tensor], node: Node) -> list[tuple[Any, Tensor]]:
    cls, ctx, positions, n_args, kept, bare, place = kept_by(node)
    name, saved = cls.__name__, []
    for i, t in enumerate(kept):
        if type(t) is tuple:
            k, version = t
            t = like(bare[k], bare[k]._array, part(node, k, bare[k].shape), version)
        if isinstance(t, Tensor) and t._version:
            stale(name, f"saved tensor {i}", t._version, node, place)
        saved.append(t)
    ctx._saved = tuple(saved)
    gs = [
        conjugated(bundle[k]) if k in bundle else filled(o, 0.0) if ctx.materialize_grads else None
        for k, o in enumerate(bare)
    ]
    result = at_default_place(lambda: cls.backward(ctx, *gs))
    ctx._saved = ()
    result = result if isinstance(result, tuple) else (result,)
    if len(result) != n_args:
        raise GradientError(f"{name}.backward returned {len(result)} gradients for {n_args} arguments of forward")
    pairs = []
    for parent, (k, dtype, device) in zip(parents_of(node), positions, strict=True):
        g = result[k]
        if g is None:
            continue
        shape = result_shape(parent)
        if not isinstance(g, Tensor) or g.shape != shape:
            got = f"shape {g.shape}" if isinstance(g, Tensor) else type(g).__name__
            raise ShapeError(f"{name}.backward: gradient {k} must be a tensor of shape {shape}, got {got}")
        if g.device.type != device:
            raise misplaced(g, device, f"{name}.backward")
        g = g.real if dtype.kind != "c" else conjugated(g)
        pairs.append((parent, lift(g if g.dtype is dtype else _astype.fn(g, dtype))))
    return pairs


# -- inside of vmap


class _Call:
    """A call of a function with elements of a batch: `forward` and `backward` see elements, the level below batches."""

    def __init__(self, batching: Batching, cls: type[Function], args: tuple[Any, ...]) -> None:
        self.batching, self.cls = batching, cls
        self.args = tuple([batching.lift(a) if isinstance(a, Tensor) else a for a in args])
        self.given = [a for a in self.args if isinstance(a, Tensor)]
        self.ctx = Context(tuple([isinstance(a, Tensor) and not grad_is_off() and _is_wanted(a) for a in self.args]))
        self.outs: list[Tensor] = []
        self.saved: tuple[Any, ...] = ()
        self.are_batches: list[bool] = []
        self.is_one = True

    def over(self, batches: Sequence[Tensor]) -> _Call:
        """The call with these tensors below: its own, or their values where those are dual numbers."""
        if all([b is t._array.tensor for b, t in zip(batches, self.given, strict=True)]):
            return self
        left = iter([self.batching.wrap(b, t._array.is_batch) for b, t in zip(batches, self.given, strict=True)])
        args = tuple([next(left) if isinstance(a, Tensor) else a for a in self.args])
        found: _Call = interpret(self.batching, lambda: _Call(self.batching, self.cls, args))
        found.ctx.needs_input_grad = self.ctx.needs_input_grad
        return found

    def pushed(self, tangents: Tangents) -> Pushed:
        """Results below, and their tangents for those of the tensors among the arguments."""
        batching, left = self.batching, iter(tangents)
        self.is_one = False

        def of_elements(*given: Any) -> tuple[Tensor, ...]:
            result = self.cls.apply(*given)
            self.is_one = isinstance(result, Tensor)
            return _results(self.cls, result)

        def run() -> list[tuple[Tensor, Tensor | None]]:
            given = [next(left) if isinstance(a, Tensor) else None for a in self.args]
            pairs = zip(given, self.args, strict=True)
            elements = [None if t is None else batching.wrap(t, a._array.is_batch) for t, a in pairs]
            outs, found = self.cls._pushed(of_elements, self.args, elements)
            return [(batching.lift(o), t if t is None else batching.lift(t)) for o, t in zip(outs, found, strict=True)]

        pairs = interpret(batching, run)
        self.are_batches = [any(t is not None and t._array.is_batch for t in pair) for pair in pairs]

        def whole(t: Tensor, is_batch: bool) -> Tensor:
            return interpret(batching, lambda: batching.batch_of(t)) if is_batch else t._array.tensor

        outs = [whole(o, is_batch) for (o, _), is_batch in zip(pairs, self.are_batches, strict=True)]
        return outs, [
            None if t is None else whole(t, is_batch) for (_, t), is_batch in zip(pairs, self.are_batches, strict=True)
        ]

    def forward(self) -> tuple[Tensor, ...]:
        """Computes the results below."""
        result = interpret(self.batching, lambda: self.cls.forward(self.ctx, *self.args))
        self.is_one = isinstance(result, Tensor)
        self.outs = [self.batching.lift(o) for o in _results(self.cls, result)]
        self.are_batches = [o._array.is_batch for o in self.outs]
        self.saved = self.ctx._saved
        return tuple([o._array.tensor for o in self.outs])

    def rewrapped(self, results: Sequence[Tensor]) -> list[Tensor]:
        """Results below as elements."""
        return [self.batching.wrap(t, is_batch) for t, is_batch in zip(results, self.are_batches, strict=True)]

    def saved_with(self, results: Sequence[Tensor]) -> tuple[Any, ...]:
        """Tensors that `forward` has saved, with these for its results."""
        now = {id(o): t for o, t in zip(self.outs, results, strict=True)}
        return tuple([now.get(id(t), t) for t in self.saved])

    def backward(self, results: Sequence[Tensor], gs: Sequence[Tensor | None]) -> list[Any]:
        """The gradients below of the tensors among the arguments."""

        def run() -> Any:
            wrapped = [None if g is None else self._element(g, o) for g, o in zip(gs, self.outs, strict=True)]
            self.ctx._saved = self.saved_with(self.rewrapped(results))
            try:
                found = self.cls.backward(self.ctx, *wrapped)
            finally:
                self.ctx._saved = ()
            found = found if isinstance(found, tuple) else (found,)
            if len(found) != len(self.args):
                raise GradientError(
                    f"{self.cls.__name__}.backward returned {len(found)} gradients for {len(self.args)} arguments of "
                    "forward"
                )
            return [g for g, a in zip(found, self.args, strict=True) if isinstance(a, Tensor)]

        elements = interpret(self.batching, run)
        return [self._below(g, a) for g, a in zip(elements, self.given, strict=True)]

    def _element(self, g: Tensor, out: Tensor) -> Tensor:
        """A cotangent below as that of an element; of a result that all share, each has its part."""
        if out._array.is_batch:
            return self.batching.wrap(g, True)
        return self.batching.wrap(below(self.batching, lambda: g / self.batching.size), False)

    def _below(self, g: Any, argument: Tensor) -> Any:
        if g is None:
            return None
        element = interpret(self.batching, lambda: self.batching.lift(g))._array
        if argument._array.is_batch:
            return element.tensor if element.is_batch else spread(element.tensor, self.batching.size)
        return element.tensor.sum(axis=0) if element.is_batch else element.tensor * self.batching.size


def _is_outside(t: Tensor) -> bool:
    """Whether all elements share a tensor, and nothing inside wants its gradient."""
    return not t._array.is_batch and (t._node is None or t._node is t._array.tensor._node)


def _is_wanted(t: Tensor) -> bool:
    return t._node is not None or t._array.tensor._node is not None


class _OfBatches(Function):
    """The function of batches that a function of elements is."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *batches: Tensor) -> tuple[Tensor, ...]:
        own = ctx.call = call.over(batches)
        results: tuple[Tensor, ...] = own.forward()
        call.are_batches, call.is_one = own.are_batches, own.is_one
        ctx.set_materialize_grads(call.ctx.materialize_grads)
        ctx.save_for_backward(*results)
        return results

    @classmethod
    def _pushed(cls, fn: Callable[..., tuple[Tensor, ...]], args: Sequence[Any], tangents: Tangents) -> Pushed:
        call, *batches = args
        if not call.cls._has_tangents():
            return super()._pushed(fn, args, tangents)
        own = call.over(batches)
        pushed = own.pushed(tangents[1:])
        call.are_batches, call.is_one = own.are_batches, own.is_one
        return pushed

    @staticmethod
    def backward(ctx: Any, *gs: Any) -> tuple[Any, ...]:
        return None, *ctx.call.backward(ctx.saved_tensors, gs)


def _of_batches(batching: Batching, cls: type[Function], args: tuple[Any, ...]) -> Any:
    """A call inside of `vmap`: one of batches below, which is recorded there, and a step of the elements' history."""
    call = _Call(batching, cls, args)
    if call.given and all(map(_is_outside, call.given)):  # once, so that `backward` gets the cotangent of all
        values = [a._array.tensor if isinstance(a, Tensor) else a for a in call.args]
        found = below(batching, lambda: cls.apply(*values))
        shared = [batching.wrap(t, False, True) for t in _results(cls, found)]
        return shared[0] if isinstance(found, Tensor) else tuple(shared)
    results = below(batching, lambda: _OfBatches.apply(call, *[t._array.tensor for t in call.given]))
    outs = tuple(call.rewrapped(results))
    wants = tuple([isinstance(a, Tensor) and a._node is not None and not grad_is_off() for a in call.args])
    if any(wants):
        ctx, saved = (call.ctx, call.saved_with(outs)) if call.outs else _again(cls, call.args, wants, outs)
        ctx._saved = saved
        outs = _record_function(cls, ctx, call.args, wants, outs)
    return outs[0] if call.is_one else outs


# -- in forward mode


def _of_duals(forward: Forward, cls: type[Function], args: tuple[Any, ...], narrow: Any = None) -> Any:
    """A call in forward mode: one of the values below, where it is recorded, with the tangents that `jvp` says or that
    `backward` is transposed to; and a step of the history of the dual numbers, where that is wanted. `narrow`: the
    float of an `autocast` around the call.
    """
    args = tuple([forward.lift(a) if isinstance(a, Tensor) else a for a in args])
    wants = tuple([isinstance(a, Tensor) and a._node is not None and not grad_is_off() for a in args])
    parents = [a._node for a, want in zip(args, wants, strict=True) if want]
    is_recorded = not all(type(p) is Mark for p in parents)
    if cls.is_composite and parents:
        return _by_operation(cls, args, wants, is_recorded)
    values = [a._array.tensor if isinstance(a, Tensor) else a for a in args]
    tangents = [a._array.tangent if isinstance(a, Tensor) and not grad_is_off() else None for a in args]

    is_one = False

    def of_values(*given: Any) -> tuple[Tensor, ...]:
        nonlocal is_one
        apply = cls.apply if narrow is None else under_autocast(cls.apply, narrow)
        result = apply(*given)
        is_one = isinstance(result, Tensor)
        return _results(cls, result)

    if any(t is not None for t in tangents):
        outs, found = below(forward, lambda: cls._pushed(of_values, values, tangents))
    else:
        outs = below(forward, lambda: of_values(*values))
        found = [None] * len(outs)
    duals = tuple([forward.wrap(o, t) for o, t in zip(outs, found, strict=True)])
    if is_recorded:
        ctx, saved = _again(cls, args, wants, duals)
        ctx._saved = saved
        duals = _record_function(cls, ctx, args, wants, duals)
    elif parents:
        for o in duals:
            o._node = Mark(o.shape) if dtypes.is_inexact(o.dtype) else None
    return duals[0] if is_one else duals


def _by_operation(cls: type[Function], args: Sequence[Any], wants: tuple[bool, ...], is_recorded: bool) -> Any:
    """A call in forward mode whose `forward` says the tangents, and `backward` the history, where that is wanted."""
    bare = [like(a, a._array, Mark(a.shape)) if want else a for a, want in zip(args, wants, strict=True)]
    ctx = Context(wants)
    result = cls.forward(ctx, *bare)
    if not is_recorded:
        return result
    given = {id(b): a for b, a in zip(bare, args, strict=True)}
    ctx._saved = tuple([given.get(id(t), t) for t in ctx._saved])
    outs = _record_function(cls, ctx, tuple(args), wants, _results(cls, result))
    return outs[0] if isinstance(result, Tensor) else outs


def _again(
    cls: type[Function], args: Sequence[Any], wants: tuple[bool, ...], outs: Sequence[Tensor]
) -> tuple[Context, tuple[Any, ...]]:
    """The context that `forward` leaves, and what it saves, with these for its results."""
    ctx = Context(wants)
    with no_grad():
        now = {id(o): out for o, out in zip(_results(cls, cls.forward(ctx, *args)), outs, strict=True)}
    return ctx, tuple([now.get(id(t), t) for t in ctx._saved])


def _by_jvp(
    cls: type[Function], fn: Callable[..., tuple[Tensor, ...]], values: Sequence[Any], tangents: Tangents
) -> Pushed:
    """The results of a function, and their tangents as its `jvp` says."""
    outs = fn(*values)
    ctx, saved = _again(cls, values, tuple([t is not None for t in tangents]), outs)
    ctx._saved = saved
    found = at_default_place(lambda: cls.jvp(ctx, *tangents))
    found = found if isinstance(found, tuple) else (found,)
    if len(found) != len(outs):
        raise GradientError(f"{cls.__name__}.jvp returned {len(found)} tangents for {len(outs)} results of forward")
    for k, (t, o) in enumerate(zip(found, outs, strict=True)):
        if t is not None and (not isinstance(t, Tensor) or t.shape != o.shape):
            got = f"shape {t.shape}" if isinstance(t, Tensor) else type(t).__name__
            raise ShapeError(f"{cls.__name__}.jvp: tangent {k} must be a tensor of shape {o.shape}, got {got}")
    return outs, [
        t if t is None or t.dtype is o.dtype else _astype.fn(t, o.dtype) for t, o in zip(found, outs, strict=True)
    ]

"""Functions with a derivative of their own, by JAX's conventions: `custom_jvp`, `custom_vjp`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, GradientError

from ..arrays.creation import asarray, zeros_like
from ..autograd import Function
from ..core.autodiff.tape import conjugated
from ..core.context import clock, enable_grad
from ..core.forward.transposition import differentiated, pulled_from_rule
from ..core.pytree import Structure, flatten, tree_leaves, tree_map, unflatten
from ..core.tensor import Tensor

Rule = Callable[..., Any]


class _Custom:
    """A function with rules, and its calls."""

    __name__: str

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        if not callable(fun):
            what = type(self).__name__
            raise ArgumentError(f"{what}: takes a function and gives a function, got {type(fun).__name__}")
        functools.update_wrapper(self, fun)
        self.fun, self.nondiff_argnums = fun, tuple(nondiff_argnums)
        self.signature = inspect.signature(fun)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _missing(self, define: str) -> Rule:
        def rule(*args: Any) -> Any:
            raise GradientError(f"{type(self).__name__}: {self.__name__} has no rule; define one with {define}")

        return rule

    def _applied(self, function: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            what = type(self).__name__
            raise ArgumentError(f"{what}: {self.__name__} has arguments that are given by their names alone")
        args = bound.args
        fixed = {n % len(args) for n in self.nondiff_argnums}
        call = _Call(self, [a for n, a in enumerate(args) if n in fixed], fixed)
        leaves: list[Any] = []
        call.arguments = flatten(tuple([a for n, a in enumerate(args) if n not in fixed]), leaves)
        found = function.apply(call, *[asarray(a) if isinstance(a, float | complex) else a for a in leaves])
        assert call.result is not None, "the function has run"
        return unflatten(call.result, [found] if isinstance(found, Tensor) else found)


class custom_jvp(_Custom):
    """Decorator for a function whose derivative along tangents is given, in both modes.

    `f.defjvp(rule)`, also as a decorator: `rule(primals, tangents)` gets two tuples, one entry an argument, and returns
    `(value, tangent)`, both as f returns its value; it must be linear in the tangents, which are zeros where nothing
    moves. Reverse mode transposes it. `f.defjvps(*rules)` gives a rule an argument instead, None where the derivative
    is zero: `rule(tangent, value, *primals)`; their results are added up. nondiff_argnums: arguments that are no
    tensors, as functions; rules get them first, outside of the tuples.

    Arguments and results are tensors or containers of them. What f reads from elsewhere has no derivative. Errors:
    GradientError for a derivative without a rule, or a rule whose results do not fit, ArgumentError for rules that are
    no functions.

    >>> import hybridml as hm
    >>> @hm.custom_jvp
    ... def f(x, y):
    ...     return hm.sin(x) * y
    >>> @f.defjvp
    ... def rule(primals, tangents):
    ...     (x, y), (dx, dy) = primals, tangents
    ...     return f(x, y), hm.cos(x) * dx * y + hm.sin(x) * dy
    >>> x, y = hm.tensor(0.0), hm.tensor(3.0)
    >>> hm.jvp(f, (x, y), (1.0, 0.0))[1].item(), hm.grad(f)(x, y).item()
    (3.0, 3.0)
    """

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        super().__init__(fun, nondiff_argnums)
        self.rule: Rule = self._missing("defjvp")

    def defjvp(self, jvp: Rule) -> Rule:
        """Sets the rule, and returns it."""
        if not callable(jvp):
            raise ArgumentError(f"defjvp: takes a function of primals and tangents, got {type(jvp).__name__}")
        self.rule = jvp
        return jvp

    def defjvps(self, *jvps: Rule | None) -> None:
        """Sets a rule an argument, whose results are added up; None for a derivative of zero."""
        if self.nondiff_argnums:
            raise ArgumentError("defjvps: takes no nondiff_argnums; write one rule, for defjvp")
        if not all(rule is None or callable(rule) for rule in jvps):
            raise ArgumentError("defjvps: takes functions, one an argument, or None")

        def rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
            if len(primals) != len(jvps):
                raise ArgumentError(f"defjvps: {len(jvps)} rules for {len(primals)} arguments of {self.__name__}")
            value = self(*primals)
            given = [(of, t) for of, t in zip(jvps, tangents, strict=True) if of is not None]
            parts = [of(t, value, *primals) for of, t in given] or [tree_map(zeros_like, value)]
            return value, tree_map(lambda *leaves: sum(leaves[1:], start=leaves[0]), *parts)

        self.rule = rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._applied(_CustomJvp, args, kwargs)


class custom_vjp(_Custom):
    """Decorator for a function whose gradient is given.

    `f.defvjp(fwd, bwd)`: `fwd` takes the arguments of f and returns `(value, kept)`, `bwd(kept, cotangent)` returns a
    tuple with the gradient of each argument, of its structure, or None where it is zero. nondiff_argnums: arguments
    that are no tensors; `bwd` gets them first, and gives no gradient for them. Forward mode transposes `bwd`, which is
    to be written in framework operations for that, and for gradients of gradients.

    Arguments and results are tensors or containers of them. What f reads from elsewhere has no gradient. Errors:
    GradientError for a gradient without rules, or rules whose results do not fit, ArgumentError for rules that are no
    functions.

    >>> import hybridml as hm
    >>> @hm.custom_vjp
    ... def clipped(x):
    ...     return x
    >>> clipped.defvjp(lambda x: (x, None), lambda kept, g: (hm.clip(g, -1, 1),))
    >>> hm.grad(lambda x: 5 * clipped(x))(hm.tensor(2.0)).item()
    1.0
    """

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        super().__init__(fun, nondiff_argnums)
        self.fwd = self.bwd = self._missing("defvjp")

    def defvjp(self, fwd: Rule, bwd: Rule) -> None:
        """Sets the function that keeps what the gradient needs, and the one that gives it."""
        for rule in (fwd, bwd):
            if not callable(rule):
                raise ArgumentError(f"defvjp: takes two functions, fwd and bwd, got {type(rule).__name__}")
        self.fwd, self.bwd = fwd, bwd

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._applied(_CustomVjp, args, kwargs)


class _Call:
    """A call of a function with a rule: its fixed arguments, and the forms of the others and of the result."""

    arguments: Structure
    result: Structure | None = None

    def __init__(self, custom: Any, given: Sequence[Any], places: set[int]) -> None:
        self.custom, self.given, self.places = custom, given, places

    def args(self, leaves: Sequence[Any]) -> list[Any]:
        """All arguments, from the leaves of those that are not fixed."""
        moving, fixed = iter(unflatten(self.arguments, leaves)), iter(self.given)
        count = len(self.places) + len(self.arguments.children)
        return [next(fixed) if n in self.places else next(moving) for n in range(count)]

    def value(self, leaves: Sequence[Any]) -> tuple[Tensor, ...]:
        """Leaves of the result, those of the arguments given."""
        return self.flat("the function", self.custom.fun(*self.args(leaves)))

    def pushed(self, leaves: Sequence[Any], tangents: Sequence[Any]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Leaves of the result and of its tangent, as the rule says."""
        custom = self.custom
        primals = unflatten(self.arguments, leaves)
        found = custom.rule(*self.given, primals, unflatten(self.arguments, tangents))
        value, tangent = self.pair("the rule", "(value, tangent)", found)
        value, tangent = self.flat("the rule", value), self.flat("the rule", tangent)
        for k, (v, t) in enumerate(zip(value, tangent, strict=True)):
            if v.shape != t.shape:
                raise GradientError(
                    f"custom_jvp: the rule of {custom.__name__} returns a value of shape {v.shape} and a tangent of "
                    f"shape {t.shape} for result {k}; they must be the same"
                )
        pairs = zip(value, tangent, strict=True)
        return value, tuple([t if t.dtype is v.dtype else t.astype(v.dtype) for v, t in pairs])

    def pulled(self, kept: Any, gs: Sequence[Tensor]) -> list[Any]:
        """A gradient for each leaf of the arguments, as the rule says; None where it is zero."""
        assert self.result is not None, "the function has run"
        found = self.custom.bwd(*self.given, kept, unflatten(self.result, gs))
        parts, name = self.arguments.children, self.custom.__name__
        if not isinstance(found, tuple) or len(found) != len(parts):
            got = f"a tuple of {len(found)}" if isinstance(found, tuple) else type(found).__name__
            raise GradientError(
                f"custom_vjp: bwd of {name} must return a tuple, one gradient an argument ({len(parts)}), got {got}"
            )
        gradients: list[Any] = []
        for k, (gradient, part) in enumerate(zip(found, parts, strict=True)):
            leaves: list[Any] = []
            if gradient is not None and flatten(gradient, leaves) != part:
                raise GradientError(
                    f"custom_vjp: bwd of {name} must return gradients of the structure of the arguments; that of "
                    f"argument {k} is another container"
                )
            gradients += leaves if gradient is not None else [None] * len(tree_leaves(unflatten(part, repeat(0))))
        return gradients

    def pair(self, what: str, of: str, found: Any) -> tuple[Any, Any]:
        """The two values that a rule returns."""
        if not isinstance(found, tuple) or len(found) != 2:
            got = f"a tuple of {len(found)}" if isinstance(found, tuple) else type(found).__name__
            kind, name = type(self.custom).__name__, self.custom.__name__
            raise GradientError(f"{kind}: {what} of {name} must return {of}, got {got}")
        return found

    def flat(self, what: str, result: Any) -> tuple[Tensor, ...]:
        leaves: list[Any] = []
        structure = flatten(result, leaves)
        if self.result is not None and structure != self.result:
            kind, name = type(self.custom).__name__, self.custom.__name__
            raise GradientError(f"{kind}: {what} of {name} returns another container than before")
        self.result = structure
        return tuple([asarray(leaf) for leaf in leaves])


def _tangents(leaves: Sequence[Any], given: Sequence[Tensor | None]) -> list[Any]:
    """A tangent for each leaf that is a tensor: zeros where none is given."""
    pairs = zip(leaves, given, strict=True)
    return [zeros_like(x) if t is None and isinstance(x, Tensor) else t for x, t in pairs]


class _CustomJvp(Function):
    """A call as a step of both modes: its backward is the transpose of its rule."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *leaves: Any) -> tuple[Tensor, ...]:
        ctx.call = call
        ctx.save_for_backward(*leaves)
        return call.value(leaves)

    @classmethod
    def _pushed(cls, fn: Any, args: Sequence[Any], tangents: Sequence[Tensor | None]) -> Any:
        call, *leaves = args
        return call.pushed(leaves, _tangents(leaves, tangents[1:]))

    @classmethod
    def _has_tangents(cls) -> bool:
        return True

    @staticmethod
    def backward(ctx: Any, *gs: Tensor) -> tuple[Any, ...]:
        leaves = ctx.saved_tensors
        wanted = [k for k, want in enumerate(ctx.needs_input_grad[1:]) if want]

        with enable_grad():
            start = clock()
            ts = [differentiated(zeros_like(leaves[k].detach())) for k in wanted]
            places: list[Any] = [None] * len(leaves)
            for k, t in zip(wanted, ts, strict=True):
                places[k] = t
            _, pushed = ctx.call.pushed(leaves, _tangents(leaves, places))
        moving = [(t, conjugated(g)) for t, g in zip(pushed, gs, strict=True) if dtypes.is_inexact(t.dtype)]
        custom, outs, seeds = ctx.call.custom, [t for t, _ in moving], [g for _, g in moving]
        found = pulled_from_rule(custom.rule, f"custom_jvp: {custom.__name__}", outs, seeds, ts, start)
        gradients = dict(zip(wanted, found, strict=True))
        return None, *[None if (g := gradients.get(k)) is None else conjugated(g) for k in range(len(leaves))]


class _CustomVjp(Function):
    """A call whose backward is its rule."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *leaves: Any) -> tuple[Tensor, ...]:
        if not any(ctx.needs_input_grad):
            return call.value(leaves)
        value, kept = call.pair("fwd", "(value, kept)", call.custom.fwd(*call.args(leaves)))
        saved: list[Any] = []
        ctx.call = call
        ctx.structure = flatten(kept, saved)
        ctx.save_for_backward(*saved)
        return call.flat("fwd", value)

    @staticmethod
    def backward(ctx: Any, *gs: Tensor) -> tuple[Any, ...]:
        return None, *ctx.call.pulled(unflatten(ctx.structure, ctx.saved_tensors), gs)

"""Functions with a derivative of their own, by JAX's conventions: `custom_jvp`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, GradientError

from ..arrays.creation import asarray, zeros_like
from ..autograd import Function
from ..core.autodiff.tape import conjugated
from ..core.context import clock, enable_grad
from ..core.forward.transposition import differentiated, pulled
from ..core.pytree import Structure, flatten, tree_map, unflatten
from ..core.tensor import Tensor

Rule = Callable[..., Any]


class custom_jvp:
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
        if not callable(fun):
            raise ArgumentError(f"custom_jvp: takes a function and gives a function, got {type(fun).__name__}")
        functools.update_wrapper(self, fun)
        self.fun, self.nondiff_argnums = fun, tuple(nondiff_argnums)
        self.signature = inspect.signature(fun)
        self.rule: Rule = _no_rule(self)

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

    __name__: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise ArgumentError(f"custom_jvp: {self.__name__} has arguments that are given by their names alone")
        args = bound.args
        fixed = {n % len(args) for n in self.nondiff_argnums}
        call = _Call(self, [a for n, a in enumerate(args) if n in fixed], fixed)
        leaves: list[Any] = []
        call.arguments = flatten(tuple([a for n, a in enumerate(args) if n not in fixed]), leaves)
        found = _CustomJvp.apply(call, *[asarray(a) if isinstance(a, float | complex) else a for a in leaves])
        assert call.result is not None, "the function has run"
        return unflatten(call.result, [found] if isinstance(found, Tensor) else found)


def _no_rule(custom: custom_jvp) -> Rule:
    def rule(*args: Any) -> Any:
        raise GradientError(f"custom_jvp: {custom.__name__} has no rule; define one with defjvp")

    return rule


class _Call:
    """A call of a function with a rule: its fixed arguments, and the forms of the others and of the result."""

    arguments: Structure
    result: Structure | None = None

    def __init__(self, custom: custom_jvp, given: Sequence[Any], places: set[int]) -> None:
        self.custom, self.given, self.places = custom, given, places

    def value(self, leaves: Sequence[Any]) -> tuple[Tensor, ...]:
        """Leaves of the result, those of the arguments given."""
        moving, fixed = iter(unflatten(self.arguments, leaves)), iter(self.given)
        count = len(self.places) + len(self.arguments.children)
        args = [next(fixed) if n in self.places else next(moving) for n in range(count)]
        return self._flat("the function", self.custom.fun(*args))

    def pushed(self, leaves: Sequence[Any], tangents: Sequence[Any]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Leaves of the result and of its tangent, as the rule says."""
        custom = self.custom
        primals = unflatten(self.arguments, leaves)
        found = custom.rule(*self.given, primals, unflatten(self.arguments, tangents))
        if not isinstance(found, tuple) or len(found) != 2:
            got = f"a tuple of {len(found)}" if isinstance(found, tuple) else type(found).__name__
            raise GradientError(f"custom_jvp: the rule of {custom.__name__} must return (value, tangent), got {got}")
        value, tangent = self._flat("the rule", found[0]), self._flat("the rule", found[1])
        for k, (v, t) in enumerate(zip(value, tangent, strict=True)):
            if v.shape != t.shape:
                raise GradientError(
                    f"custom_jvp: the rule of {custom.__name__} returns a value of shape {v.shape} and a tangent of "
                    f"shape {t.shape} for result {k}; they must be the same"
                )
        return value, tuple(
            [t if t.dtype is v.dtype else t.astype(v.dtype) for v, t in zip(value, tangent, strict=True)]
        )

    def _flat(self, what: str, result: Any) -> tuple[Tensor, ...]:
        leaves: list[Any] = []
        structure = flatten(result, leaves)
        if self.result is not None and structure != self.result:
            raise GradientError(f"custom_jvp: {what} of {self.custom.__name__} returns another container than before")
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
        found = pulled([t for t, _ in moving], [g for _, g in moving], ts, start)
        gradients = dict(zip(wanted, found, strict=True))
        return None, *[None if (g := gradients.get(k)) is None else conjugated(g) for k in range(len(leaves))]

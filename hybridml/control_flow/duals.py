"""Control flow inside of `jvp` in a traced program: loops and branches of the level below, whose carries and results
are values and their tangents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hybridml_compiler import dtypes

from ..core.autodiff.tape import Mark
from ..core.context import grad_is_off
from ..core.forward.interpreter import Forward
from ..core.interpreter import below
from ..core.pytree import Structure
from ..core.tensor import Tensor
from .batches import Recorded, step_of
from .containers import check_alike, flag_of, flatten, next_carry, run, unflatten


class _Pairs:
    """The order in which tensors inside lie below: their values, then the tangents of those that are floats."""

    def __init__(self, forward: Forward, tensors: Sequence[Tensor]) -> None:
        self.forward = forward
        self.moving = [dtypes.is_inexact(t.dtype) and not grad_is_off() for t in tensors]

    def below(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors below. Raises Recorded where a gradient of one is wanted inside of `jvp`."""
        if any(t._node is not None and type(t._node) is not Mark for t in tensors):
            raise Recorded
        pairs = [
            self.forward.materialized(t) if moving else (self.forward.parts(t)[0], None)
            for t, moving in zip(tensors, self.moving, strict=True)
        ]
        return [value for value, _ in pairs] + [tangent for _, tangent in pairs if tangent is not None]

    def inside(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors inside, from those below."""
        tangents = iter(tensors[len(self.moving) :])
        return [
            self.forward.wrap(t, next(tangents) if moving else None)
            for t, moving in zip(tensors, self.moving, strict=False)
        ]


def cond_of_duals(
    forward: Forward, cond: Callable[..., Any], flag: Tensor, true_fn: Any, false_fn: Any, operands: Sequence[Any]
) -> Any:
    """A branch as one of the level below, `cond`. Raises Recorded."""
    seen: list[tuple[list[Tensor], Structure]] = []

    def branch(name: str, fn: Any) -> Callable[[], list[Tensor]]:
        def step() -> list[Tensor]:
            found = flatten(fn(*operands), f"cond: what {name} returns")
            if seen:
                (first, old), (now, new) = seen[0], found
                check_alike("cond: true_fn and false_fn differ", "result", first, old, now, new)
            seen.append(found)
            return _Pairs(forward, found[0]).below(found[0])

        return lambda: forward.in_loop(step)

    value, _ = forward.parts(flag)
    results = below(forward, lambda: cond(value, branch("true_fn", true_fn), branch("false_fn", false_fn)))
    tensors, structure = seen[-1]
    return unflatten(structure, _Pairs(forward, tensors).inside(results))


def while_of_duals(
    forward: Forward,
    loop: Callable[..., Any],
    cond_fn: Any,
    body_fn: Any,
    carry: list[Tensor],
    structure: Structure,
    max_steps: int | None,
) -> Any:
    """A loop as one of the level below, `loop`. Raises Recorded."""
    pairs = _Pairs(forward, carry)

    def go(value: Sequence[Tensor]) -> Any:
        def step() -> Any:
            found = run("while_loop: cond_fn", cond_fn, (pairs.inside(value), structure))
            flag = flag_of(found, "while_loop: what cond_fn returns")
            return flag if isinstance(flag, bool) else forward.parts(flag)[0]

        return forward.in_loop(step)

    def body(value: Sequence[Tensor]) -> list[Tensor]:
        def step() -> list[Tensor]:
            given = pairs.inside(value)
            found = run("while_loop: body_fn", body_fn, (given, structure))
            return pairs.below(next_carry(given, structure, found, "while_loop"))

        return forward.in_loop(step)

    start = pairs.below(carry)
    found = below(forward, lambda: loop(go, body, start, max_steps=max_steps))
    return unflatten(structure, pairs.inside(found))


def scan_of_duals(
    forward: Forward,
    loop: Callable[..., Any],
    f: Any,
    carry: list[Tensor],
    structure: Structure,
    xs: list[Tensor],
    shape: Structure,
    steps: int,
    reverse: bool,
    **how: Any,
) -> tuple[Any, Any]:
    """A loop over slices as one of the level below, `loop`. Raises Recorded."""
    carried, sliced = _Pairs(forward, carry), _Pairs(forward, xs)
    made: list[tuple[_Pairs, Structure]] = []

    def body(value: Sequence[Tensor], slices: Sequence[Tensor]) -> Any:
        def step() -> Any:
            after, ys, new = step_of(f, carried.inside(value), structure, sliced.inside(slices), shape)
            made.append((_Pairs(forward, ys), new))
            return carried.below(after), made[-1][0].below(ys)

        return forward.in_loop(step)

    start, slices = carried.below(carry), sliced.below(xs)
    after, ys = below(forward, lambda: loop(body, start, slices, steps, reverse, **how))
    pairs, new = made[-1]
    return unflatten(structure, carried.inside(after)), unflatten(new, pairs.inside(ys))

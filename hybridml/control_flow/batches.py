"""Control flow inside of `vmap`: where elements of a batch go different ways, all ways are computed and masks choose.

The elements may have tangents (`jvp` inside of `vmap`): then it is dual numbers that masks choose from.

A loop runs as long as one element goes on. In a traced program it is one loop of the level below, over the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.ops.table import OPS

from ..core.batching.interpreter import Batching, varies
from ..core.interpreter import below
from ..core.nested import Nesting
from ..core.pytree import Structure
from ..core.tensor import Tensor
from .containers import check_alike, flag_of, flatten, next_carry, run, unflatten

__all__ = [
    "Recorded", "is_below_a_trace", "masked_while", "scan_below", "selected", "step_of", "varies",
    "while_below",
]  # fmt: skip

_where, _and, _not = OPS["where"], OPS["logical_and"], OPS["logical_not"]


class Recorded(Exception):
    """A gradient of the elements is wanted inside of `vmap`: the loop runs step by step, where they are recorded."""


def is_below_a_trace() -> bool:
    """Whether a function is being traced beneath the batches."""
    from ..tracing.capture.tracer import current_tracer

    return current_tracer() is not None


def selected(
    around: Nesting,
    flag: Tensor,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Sequence[Any],
) -> Any:
    """`cond` of a predicate that differs: both results, and for each element that of its own."""
    found = around.only(flag, lambda: true_fn(*operands))
    true, old = flatten(found, "cond: what true_fn returns")
    found = around.only(_not.fn(flag), lambda: false_fn(*operands))
    false, new = flatten(found, "cond: what false_fn returns")
    check_alike("cond: true_fn and false_fn differ", "result", true, old, false, new)
    return unflatten(old, [_where.fn(flag, x, y) for x, y in zip(true, false, strict=True)])


def _taking_part(around: Nesting, alive: Tensor) -> Tensor:
    """Flags of the elements that begin a loop: none that is in another branch of a `cond`, where it might never end."""
    if around.mask is None:
        return alive
    flag: Tensor = _and.fn(around.mask, alive)
    return flag


def _masked_step(
    around: Nesting, cond_fn: Any, body_fn: Any, carry: Sequence[Tensor], structure: Structure, alive: Tensor
) -> tuple[list[Tensor], Tensor]:
    """The carry after a step of those elements that go on, and which of them still do."""
    found = around.only(alive, lambda: run("while_loop: body_fn", body_fn, (carry, structure)))
    after = next_carry(carry, structure, found, "while_loop")
    kept = [_where.fn(alive, new, old) for new, old in zip(after, carry, strict=True)]
    more = around.only(alive, lambda: run("while_loop: cond_fn", cond_fn, (kept, structure)))
    go = flag_of(more, "while_loop: what cond_fn returns")
    return kept, _and.fn(alive, go)


def masked_while(
    around: Nesting,
    cond_fn: Any,
    body_fn: Any,
    carry: list[Tensor],
    structure: Structure,
    alive: Tensor,
    max_steps: int | None,
) -> list[Tensor]:
    """A loop, step by step, of which each element takes part as long as its own condition holds."""
    alive = _taking_part(around, alive)
    steps = 0
    while (max_steps is None or steps < max_steps) and around.any(alive):
        carry, alive = _masked_step(around, cond_fn, body_fn, carry, structure, alive)
        steps += 1
    return carry


def while_below(
    batching: Batching,
    loop: Callable[..., Any],
    cond_fn: Any,
    body_fn: Any,
    carry: list[Tensor],
    structure: Structure,
    max_steps: int | None,
) -> Any:
    """The loop as one of the level below, `loop`, over batches. Raises Recorded."""

    def go(value: Any) -> Tensor:
        found: Tensor = value[0].any()
        return found

    def body(value: Any) -> Any:
        alive, batches = value

        def step() -> Any:
            flag, *inner = elements(batching, [alive, *batches])
            kept, more = _masked_step(batching, cond_fn, body_fn, inner, structure, flag)
            return batches_of(batching, [more])[0], batches_of(batching, kept)

        return batching.in_loop(step)

    flag = flag_of(run("while_loop: cond_fn", cond_fn, (carry, structure)), "while_loop: what cond_fn returns")
    alive = _taking_part(batching, OPS["logical_or"].fn(flag, False))
    start = batches_of(batching, [alive])[0], batches_of(batching, carry)
    _, batches = below(batching, lambda: loop(go, body, start, max_steps=max_steps))
    return unflatten(structure, elements(batching, batches))


def scan_below(
    batching: Batching,
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
    """The loop as one of the level below, `loop`, over batches. Raises Recorded."""
    made: list[Structure] = []

    def body(batches: Any, slices: Any) -> Any:
        def step() -> Any:
            after, ys, new = step_of(f, elements(batching, batches), structure, elements(batching, slices), shape)
            made.append(new)
            return batches_of(batching, after), batches_of(batching, ys)

        return batching.in_loop(step)

    start, batches = batches_of(batching, carry), batches_of(batching, xs)

    def run_below() -> Any:
        slices = [x.permute_dims((1, 0, *range(2, x.ndim))) for x in batches]
        after, ys = loop(body, start, slices, steps, reverse, **how)
        return after, [y.permute_dims((1, 0, *range(2, y.ndim))) for y in ys]

    after, ys = below(batching, run_below)
    return unflatten(structure, elements(batching, after)), unflatten(made[-1], elements(batching, ys))


def elements(batching: Batching, batches: Sequence[Tensor]) -> list[Tensor]:
    return [batching.wrap(t, True) for t in batches]


def batches_of(batching: Batching, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The batches below. Raises Recorded where one of the tensors has a history."""
    if any(t._node is not None for t in tensors):
        raise Recorded
    return [batching.batch_of(t) for t in tensors]


def step_of(f: Any, carry: Sequence[Tensor], structure: Structure, x: Sequence[Tensor], shape: Structure) -> Any:
    """Runs one step: (next carry, ys, structure of the ys)."""
    result = run("scan: f", f, (carry, structure), (x, shape))
    if not isinstance(result, tuple) or len(result) != 2:
        got = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
        raise ArgumentError(f"scan: f must return (carry, y), got {got}; y may be None")
    ys, new = flatten(result[1], "scan: y")
    return next_carry(carry, structure, result[0], "scan"), ys, new

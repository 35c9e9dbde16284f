"""`while_loop` and `fori_loop`: a function as often as a condition holds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from hybridml_compiler.errors import ArgumentError

from ..arrays.creation import arange, asarray, zeros
from ..core.batching.interpreter import Batching
from ..core.context import beside, current_interpreter
from ..core.nested import top_nesting
from ..core.pytree import Structure
from ..core.tensor import Tensor, aval_of
from .batches import Recorded, is_below_a_trace, masked_while, varies, while_below
from .containers import (
    flag_of,
    flatten,
    is_count,
    next_carry,
    predicate_of,
    run,
    top_tracer,
    unflatten,
)
from .duals import while_of_duals
from .scans import scan

if TYPE_CHECKING:
    from ..tracing.capture.tracer import Tracer


def while_loop(
    cond_fn: Callable[[Any], Any], body_fn: Callable[[Any], Any], init: Any, *, max_steps: int | None = None
) -> Any:
    """`value = body_fn(value)`, from `init`, as long as `cond_fn(value)`; at most `max_steps` times.

    The carry keeps its structure, shapes, dtypes and devices (ArgumentError, ShapeError, DTypeError and DeviceError
    name the leaf). A gradient that is taken outside of a traced function, or in another loop, needs `max_steps`,
    because it keeps values of every step: GradientError without it.

    >>> import hybridml as hm
    >>> hm.while_loop(lambda x: x < 100, lambda x: x * 2, hm.tensor(3)).item()
    192
    """
    if max_steps is not None and not is_count(max_steps, 0):
        raise ArgumentError(f"while_loop: max_steps is a number of steps, got {max_steps!r}")
    carry, structure = flatten(init, "while_loop: init")
    tracer = top_tracer()
    around = top_nesting()
    if around is not None and is_below_a_trace():
        lowered = while_below if type(around) is Batching else while_of_duals
        with suppress(Recorded):
            return lowered(around, while_loop, cond_fn, body_fn, carry, structure, max_steps)
    if tracer is not None:
        return _traced_while(tracer, cond_fn, body_fn, carry, structure, max_steps)
    steps = 0
    while max_steps is None or steps < max_steps:
        go = run("while_loop: cond_fn", cond_fn, (carry, structure))
        flag = flag_of(go, "while_loop: what cond_fn returns")
        if around is not None and varies(flag):
            left = None if max_steps is None else max_steps - steps
            return unflatten(structure, masked_while(around, cond_fn, body_fn, carry, structure, flag, left))
        if not flag:
            break
        carry = next_carry(carry, structure, run("while_loop: body_fn", body_fn, (carry, structure)), "while_loop")
        steps += 1
    return unflatten(structure, carry)


def prange(*args: int) -> Iterable[int]:
    """`range`, of steps that do not need each other: a traced loop over it runs on all threads.

    Steps may write slices of arrays whose place their number decides, `out[i] = ...`, read what no other step writes,
    and add to variables, `total += ...`, whose sums have the bits of the loop in order. Where the compiler cannot tell
    that two steps touch other elements, they run in order: the hint is never wrong. `hm.audit` and `hm.explain` say
    where that is so.

    >>> import hybridml as hm
    >>> @hm.trace
    ... def rows(x):
    ...     out, total = hm.zeros(x.shape), 0.0
    ...     for i in hm.prange(x.shape[0]):
    ...         out[i] = hm.exp(-x[i, : i + 1]).sum() * x[i]
    ...         total += out[i].max()
    ...     return out, total
    >>> out, total = rows(hm.ones((100, 100)))
    >>> round(total.item(), 2), hm.audit(rows, hm.ones((100, 100))).in_order
    (1857.79, ())
    """
    if current_interpreter() is None:
        return range(*args)
    from ..tracing.capture.tracer import current_tracer

    tracer = current_tracer()
    if tracer is None or tracer.rolling is None:
        return range(*args)
    found: Iterable[int] = tracer.rolling.range(sys._getframe(1), args, parallel=True)
    return found


def _traced_while(
    tracer: Tracer, cond_fn: Any, body_fn: Any, carry: list[Tensor], structure: Structure, length: int | None
) -> Any:
    from ..tracing.capture.loops.loop import Loop
    from ..tracing.capture.subgraphs import capture_region, snapshot

    n = len(carry)

    def step(tensors: list[Tensor]) -> list[Tensor]:
        *given, count = tensors
        written = len(tracer.frames[-1].written)
        go = run("while_loop: cond_fn", cond_fn, (given, structure))
        if len(tracer.frames[-1].written) != written:
            raise ArgumentError(
                "while_loop: cond_fn updates a tensor or draws random numbers; do that in body_fn, and carry it"
            )
        go = asarray(predicate_of(go, "while_loop: what cond_fn returns"))
        after = next_carry(given, structure, run("while_loop: body_fn", body_fn, (given, structure)), "while_loop")
        return [*after, count + 1, go]

    start = [*carry, zeros((), dtype="int64")]
    region = capture_region(tracer, "the body of while_loop", [aval_of(t) for t in start], step, (body_fn, cond_fn))
    outputs = [*region.outputs[: n + 1], *region.outputs[n + 2 :]]
    init = [snapshot(tracer, t) for t in (*start, *region.states)]
    results = Loop(
        tracer, "while_loop", region.since, region.made, region.inputs, [], outputs, [], init, [], length,
        go=region.outputs[n + 1], steps=n, checks=region.checks,
    ).run()  # fmt: skip
    region.leave(results[n + 1 :])
    return unflatten(structure, results[:n])


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init: Any) -> Any:
    """`value = body_fun(i, value)` for i from `lower` to `upper` - 1, integers or tensors of one.

    >>> import hybridml as hm
    >>> hm.fori_loop(0, 4, lambda i, total: total + i, hm.tensor(0)).item()
    6
    """
    if isinstance(lower, int) and isinstance(upper, int):
        steps = beside(flatten(init, "fori_loop: init")[0], partial(arange, lower, max(lower, upper)))
        return scan(partial(_numbered, body_fun), init, steps)[0]
    start = (asarray(lower), init)
    return while_loop(lambda c: c[0] < upper, partial(_counted, body_fun), start)[1]


# Partial functions of these, and not closures: what they call is looked at (see tracing/python_state/guards.py).


def _numbered(body_fun: Callable[[Any, Any], Any], value: Any, i: Any) -> Any:
    return body_fun(i, value), None


def _counted(body_fun: Callable[[Any, Any], Any], counted: Any) -> Any:
    i, value = counted
    return i + 1, body_fun(i, value)

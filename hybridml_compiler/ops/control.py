"""Control flow as operations: `loop` and `cond`, whose parameters hold the graphs that they run (graph/body.py).

An operation with several results is several nodes that differ in `result` only; one run computes all of them.

    loop([count, [begin]], consts, carries, xs; body, condition, consts, carries, length, counted, reverse, step, first,
            parallel, result)
        body: consts, carries, a slice of each xs along its first axis -> new carries, ys
        condition: consts, carries -> bool. The loop ends before the step where it is false
        length: steps at most; None, where there are neither xs nor ys, for as many as the condition lets run
        counted: how many of these numbers there are, each an int64: steps are those of `length` before `count`, and
            from `begin` on
        reverse: steps take and make the slices that they are to, from the last to the first
        step: name of the symbol that is `first` in the step of the first slices, one more in the next, and so on; the
            sizes and positions of the body may be polynomials in it, and in those of loops around this one
        first: `LEAST`, or a size where the loop is a part of a longer one; a polynomial in the steps of loops around it
        parallel: threads may share the steps, where these do not need each other (see graph/independence.py)
        results: the carries after the last step, then every step's ys along a new first axis, zeros for steps not run
    cond(pred, operands; true, false, result)
        true, false: operands -> results. One of them runs

Users call `hybridml.control_flow`, which has their gradients: neither row has a `vjp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..aval import Aval
from ..errors import ArgumentError
from ..sizes.dims import LEAST, Size
from .op import Op


def _check(what: str, wanted: Sequence[Aval], got: Sequence[Aval]) -> None:
    if [(a.shape, a.dtype, a.device) for a in wanted] != [(a.shape, a.dtype, a.device) for a in got]:
        raise ArgumentError(f"{what} is {', '.join(map(str, got))}, and must be {', '.join(map(str, wanted))}")


def _number(dtype: Any, given: Aval) -> Aval:
    """The type of a number where the given value is: it decides what is run on any device."""
    return Aval((), np.dtype(dtype), device=given.device)


def _one_of(outputs: Sequence[Aval], result: int, what: str) -> Aval:
    if not 0 <= result < len(outputs):
        raise ArgumentError(f"{what}: result {result} of {len(outputs)}")
    return outputs[result]


# -- loop


def _slice(aval: Aval) -> Aval:
    return Aval(aval.shape[1:], aval.dtype, device=aval.device)


def _infer_loop(
    avals: Sequence[Aval],
    body: Any,
    condition: Any,
    consts: int,
    carries: int,
    length: int | None,
    counted: int,
    reverse: bool,
    step: str | None,
    parallel: bool,
    first: Size,
    result: int,
) -> Aval:
    if counted:
        _check("loop: the count", [_number(np.int64, avals[0])] * counted, avals[:counted])
        avals = avals[counted:]
    if not 0 <= consts <= consts + carries <= len(avals):
        raise ArgumentError(f"loop: {consts} constants and {carries} carries among {len(avals)} operands")
    kept, carried, xs = avals[:consts], avals[consts : consts + carries], avals[consts + carries :]
    if length is None and (condition is None or counted or xs or len(body.outputs) > carries):
        raise ArgumentError("loop: one without a length has a condition, and neither a count nor slices")
    if any(not x.shape or x.shape[0] != length for x in xs):
        raise ArgumentError(f"loop: {length} steps over {', '.join(map(str, xs))}")
    _check("loop: what the body takes", [*kept, *carried, *map(_slice, xs)], body.inputs)
    _check("loop: what the body carries on", carried, body.outputs[:carries])
    if condition is not None:
        _check("loop: what the condition takes", [*kept, *carried], condition.inputs)
        _check("loop: the condition", [_number(bool, condition.outputs[0])], condition.outputs)
    stacked = [
        Aval((0 if length is None else length, *y.shape), y.dtype, device=y.device) for y in body.outputs[carries:]
    ]
    found = _one_of([*carried, *stacked], result, "loop")
    return Aval(found.shape, found.dtype, device=found.device)


def _eager_loop(
    arrays: Sequence[np.ndarray],
    body: Any,
    condition: Any,
    consts: int,
    carries: int,
    length: int | None,
    counted: int,
    reverse: bool,
    step: str | None,
    parallel: bool,
    first: Size,
    result: int | None,
) -> Any:
    begin, steps = max(0, int(arrays[1])) if counted > 1 else 0, length
    if counted and length is not None:
        steps, arrays = max(begin, min(int(arrays[0]), length)), arrays[counted:]
    kept, carried, xs = arrays[:consts], list(arrays[consts : consts + carries]), arrays[consts + carries :]
    stacked = [np.zeros((length or 0, *y.shape), y.dtype) for y in body.outputs[carries:]]
    done = 0
    while (steps is None or begin + done < steps) and (condition is None or condition([*kept, *carried])[0]):
        at = steps - 1 - done if steps is not None and reverse else begin + done
        outputs = body([*kept, *carried, *(x[at] for x in xs)], {} if step is None else {step: int(first) + at})
        carried = outputs[:carries]
        for whole, y in zip(stacked, outputs[carries:], strict=True):
            whole[at] = y
        done += 1
    results = [*carried, *stacked]
    return results if result is None else results[result]


# -- cond


def _infer_cond(avals: Sequence[Aval], true: Any, false: Any, result: int) -> Aval:
    _check("cond: the predicate", [_number(bool, avals[0])], avals[:1])
    for what, branch in (("true", true), ("false", false)):
        _check(f"cond: what the {what} branch takes", avals[1:], branch.inputs)
    _check("cond: what the false branch makes", true.outputs, false.outputs)
    found = _one_of(true.outputs, result, "cond")
    return Aval(found.shape, found.dtype, device=found.device)


def _eager_cond(arrays: Sequence[np.ndarray], true: Any, false: Any, result: int | None) -> Any:
    results = (true if arrays[0] else false)(arrays[1:])
    return results if result is None else results[result]


def _row(name: str, infer: Any, eager: Any, params: dict[str, Any]) -> Op:
    return Op(
        name, "control", inputs=("operands",), infer=infer, eager=eager, samples=lambda _: (),
        params=params, variadic=True, reorders="any",
    )  # fmt: skip


LOOP = _row(
    "loop", _infer_loop, _eager_loop,
    {
        "body": None, "condition": None, "consts": 0, "carries": 0, "length": None, "counted": 0, "reverse": False,
        "step": None, "first": LEAST, "parallel": False, "result": 0,
    },
)  # fmt: skip
COND = _row("cond", _infer_cond, _eager_cond, {"true": None, "false": None, "result": 0})

ROWS = (LOOP, COND)

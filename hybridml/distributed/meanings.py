"""Meanings of the rows of hybridml_compiler/ops/collectives.py in a group: arrays of this process in, results out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.donation import taken
from hybridml_compiler.eager.large import compute, kept, materialized
from hybridml_compiler.errors import CollectiveError
from hybridml_compiler.hooks import hooks
from hybridml_compiler.ops import collectives
from hybridml_compiler.ops.table import OPS

from ..core.shared.calls import next_token
from .groups import Group, forget_calls, known
from .transport import PROGRAM_TAG, Transport

_divide = OPS["divide"]
# Bytes of a result that is kept for the error of a program that fails behind it: indices, and numbers that are
# asserted, are small, and parameters that are gathered may be all of the memory.
_MOST, _LARGE = 1 << 16, object()


def _numbers(array: np.ndarray) -> np.ndarray:
    """The memory of an array, booleans as integers: MPI has no maximum of them."""
    return array.view(np.uint8) if array.dtype == dtypes.bool_ else array


def _summands(x: np.ndarray, reduce: str, size: int) -> tuple[np.ndarray, str]:
    """The array that is reduced, and how: a mean is a sum of parts, which does not overflow where it does not."""
    dtype = dtypes.float32 if dtypes.is_narrow(x.dtype) else x.dtype  # MPI has no sums of the narrow ones
    given = np.asarray(x, dtype, order="C")
    if reduce == "mean":
        return np.asarray(compute(_divide, [given, np.asarray(size, dtype)], {})), "sum"
    return given, reduce


def _reduced(transport: Transport, x: np.ndarray, reduce: str) -> np.ndarray:
    """The reduction in other memory than x has: in that of what is reduced where that is made of x.

    Other memory is kept when it is freed: pages that are new would be made while the other processes wait (all-reduce
    of 25 MB: 18 ms, 8 ms where they are there).
    """
    given, how = _summands(x, reduce, transport.size)
    out = kept(np.empty, x.shape, given.dtype) if given is x else given
    transport.all_reduce(out, given, how)
    return out


def _all_reduce(group: Group, x: np.ndarray, token: np.ndarray, *, reduce: str) -> Any:
    out = group.meet("all_reduce", x, reduce, lambda t: _reduced(t, _numbers(x), reduce))
    return out.astype(x.dtype, copy=False), next_token()


def _broadcast(group: Group, x: np.ndarray, token: np.ndarray, *, root: int) -> Any:
    out = materialized(np.asarray(x, order="C"))
    group.meet("broadcast", out, f"src={root}", lambda t: t.broadcast(out, root))
    return out, next_token()


def _all_gather(group: Group, x: np.ndarray, token: np.ndarray, *, size: int, label: str) -> Any:
    given, out = np.asarray(x, order="C"), kept(np.empty, (len(x) * size, *x.shape[1:]), x.dtype)
    group.meet("all_gather", given, label, lambda t: t.all_gather(out, given))
    return out, next_token()


def _reduce_scatter(group: Group, x: np.ndarray, token: np.ndarray, *, size: int, reduce: str, label: str) -> Any:
    given, how = _summands(_numbers(x), reduce, size)
    out = kept(np.empty, (len(x) // size, *x.shape[1:]), given.dtype)
    group.meet(
        "reduce_scatter", x, f"{reduce}, {label}" if label else reduce, lambda t: t.reduce_scatter(out, given, how)
    )
    return out.astype(x.dtype, copy=False), next_token()


def _all_to_all(group: Group, x: np.ndarray, token: np.ndarray, *, size: int, label: str) -> Any:
    given, out = np.asarray(x, order="C"), kept(np.empty, x.shape, x.dtype)
    group.meet("all_to_all", given, label, lambda t: t.all_to_all(out, given))
    return out, next_token()


def _barrier(group: Group, token: np.ndarray) -> Any:
    group.meet("barrier", None, "", lambda t: None)
    return next_token()


def _placed(group: Group, token: np.ndarray, *, plan: str) -> Any:
    """Meets at the first call of each plan: later ones need not wait for the others."""
    group.placed_calls += 1
    group.program = f"placed({plan}), call {group.placed_calls}"
    if plan not in group.plans:
        group.meet("placed", None, plan, lambda t: None)
        group.plans.add(plan)
    return next_token()


def _of(group: Group, tag: int) -> str:
    """The call that a message is part of, of a program that processes compute together; empty for others."""
    return group.program if tag == PROGRAM_TAG else ""


def _send(group: Group, x: np.ndarray, token: np.ndarray, *, peer: int, tag: int) -> Any:
    given = np.asarray(x, order="C")
    group.pair("send", given, (group.rank, peer, tag), lambda t: t.send(given, peer, tag, _of(group, tag)))
    return next_token()


def _receive(group: Group, token: np.ndarray, *, shape: tuple[int, ...], dtype: np.dtype, peer: int, tag: int) -> Any:
    out = kept(np.empty, shape, dtype)
    group.pair("recv", out, (peer, group.rank, tag), lambda t: t.receive(out, peer, tag, _of(group, tag)))
    return out, next_token()


def _start(group: Group, x: np.ndarray, token: np.ndarray, *, label: str) -> Any:
    """Whoever waits says in `place` where the sum may be made: the array itself, once nobody reads it."""
    made, place = next_token(), list[np.ndarray]()

    def reduced(transport: Transport) -> np.ndarray:
        if not place:
            return _reduced(transport, x, "sum")
        transport.all_reduce(place[0], place[0], "sum")
        return place[0]

    group.promised[int(made)] = group.begin("all_reduce", x, f"sum, {label}", reduced), place
    return made


def _wait(group: Group, x: np.ndarray, token: np.ndarray) -> Any:
    found = group.promised.pop(int(token), None)
    if found is None:
        raise CollectiveError(f"all_reduce_wait: nothing was begun for token {token}")
    begun, place = found
    if not dtypes.is_narrow(x.dtype) and x.flags.c_contiguous and taken(x):
        place.append(x)
    return group.wait(begun).astype(x.dtype, copy=False)


MEANINGS: Mapping[str, Callable[..., Any]] = {
    "all_reduce": _all_reduce,
    "broadcast_from": _broadcast,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "barrier": _barrier,
    "placed": _placed,
    "send_to": _send,
    "receive_from": _receive,
    "all_reduce_start": _start,
    "all_reduce_wait": _wait,
}
assert set(MEANINGS) == {op.name for op in collectives.ROWS}


def _noted(result: np.ndarray, moves: bool) -> Any:
    if result.nbytes > _MOST:
        return _LARGE
    return result.copy() if moves else result


def _collective(name: str, group: str, operands: Sequence[np.ndarray], params: Mapping[str, Any]) -> Any:
    found, token = known(group, name), int(operands[-1])
    moves = OPS[name].asynchronous == "wait"  # its result is in memory of the program, which uses it again
    noted = found.calls.noted(name, token)
    if noted is None:
        made = MEANINGS[name](found, *operands, **params)
        results = made if isinstance(made, tuple) else (made,)
        found.calls.note(name, token, [_noted(result, moves) for result in results])
        return made
    if any(one is _LARGE for one in noted):
        raise CollectiveError(
            f"{name}: the program has failed behind this call, and is run again for its error; results of more than "
            f"{_MOST >> 10} KiB are not kept for that, and the other processes do not call again. Run the step eagerly "
            "to see the error"
        )
    return tuple(noted) if len(noted) > 1 else noted[0]


hooks.effects["group"] = _collective
hooks.forgetting.append(forget_calls)

"""Calls that are native as a whole: tensors that the step updates get their stamps there, results are made there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import CodeType
from typing import Any
from weakref import ref

from hybridml_compiler.once import once

from ...core import aliasing, source_location
from ...core.context import clock
from ...core.library import MISS
from .compiled_path import array_of, owner_of
from .epilogue import returned
from .placed import PlacedExecutable

_MOST_PAIRS = 256  # of tensors that are to be apart, 20 ns each: at 600 the call in Python is as fast
callers: list[CodeType] = []  # of a function's native call: the code that users call


def whole_call(fast: Any, end: Any) -> Callable[..., Any] | None:
    """A native call with this end that is no more than native code, and results that are made of what it returns; else
    None."""
    if end.donation or end.extra or end.draws or end.path.early:
        return None
    executable = end.path.program.executable
    parts = returned(end.path, executable) if type(executable) is not PlacedExecutable else None
    if not end.changes and (parts is None or end.finish is None):
        return finished(end.native, end.finish)
    if parts is None:
        return None
    captured = [i for i in end.path.inputs if i.kind != "argument"]
    number = {i.node: len(fast.specs) + k for k, i in enumerate(captured)}  # behind those of arguments
    updated = {number.get(i.node, i.index) for _, i in end.path.writes}
    owners = [id(owner_of(array_of(i.real))) for i in captured]
    if updated and len({*owners}) < len(owners):
        return None
    others = partial(_otherwise, ref(fast)) if updated else missed
    tensors = (*fast.arrays, *number.values())
    apart = {(j, k) for j in updated for k in tensors if min(j, k) < len(fast.specs) and j != k}
    if len(apart) > _MOST_PAIRS:
        return None
    entry: Callable[..., Any] = fast.native_of(
        executable, (), captured, fallback=others, results=parts[0], is_tuple=parts[1],
        updated=tuple(sorted(updated)), apart=tuple(sorted(apart)), stamps=_stamps() if updated else None,
    )  # fmt: skip
    return entry


def finished(native: Callable[..., Any], finish: Callable[[Any, Sequence[Any]], Any] | None) -> Callable[..., Any]:
    if finish is None:
        return native

    def call(*args: Any, **names: Any) -> Any:
        out = native(*args, **names)
        return out if out is MISS else finish(out, args)

    return call


def _otherwise(fast: ref[Any], *args: Any, **names: Any) -> Any:
    """The call in Python, where arguments are not as they mostly are."""
    found = fast()
    return MISS if found is None else found.call(*args, **names)


def missed(*args: Any, **names: Any) -> Any:
    return MISS


@once
def _stamps() -> Any:
    from hybridml_compiler.targets.cpu.python_entry.spec import Stamps

    places = source_location
    through = callers[0], finished(missed, lambda out, args: out).__code__
    return Stamps(
        clock.__self__,  # type: ignore[attr-defined]
        places.native_writes, places.known_user, places.known_number, places.stamped_for_user,
        through, "_version", aliasing.stamp,
    )  # fmt: skip

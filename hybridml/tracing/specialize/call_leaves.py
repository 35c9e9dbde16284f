"""The leaves of a call: its arguments, and what is in the places that the function rebinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from hybridml_compiler.errors import user_location

from ...core import pytree
from ...core.library import MISS
from ...core.proxies.array import ArrayProxy
from ...core.tensor import Tensor, adopt
from ..capture.memory import RETURNED, holds, is_dense
from ..capture.tracer import Tracer
from ..capture.waiting_arrays import ArgumentArray
from ..python_state.rebound import Rebound, values
from ..run.compiled_path import Leaves
from .errors import refused
from .signature import Fields, signature


def shares_any(array: Any, others: Sequence[np.ndarray]) -> bool:
    """Whether an array has memory of one of these."""
    return type(array) is np.ndarray and any(np.shares_memory(array, other) for other in others)


def of_call(
    args: tuple[Any, ...], kwargs: dict[str, Any], rebound: Rebound, lock: AbstractContextManager[Any]
) -> tuple[Leaves, pytree.Structure, Fields, list[Any]]:
    """Leaves of a call, with what is in the places that the function rebinds; their structure and signature, and the
    objects that count by identity."""
    leaves = Leaves()
    leaves.given = args, kwargs
    met: pytree.Met = {}
    structure = pytree.flatten(leaves.given, leaves, met)
    given, objects = signature(structure, leaves)
    leaves.objects, leaves.places = objects, rebound.of(objects)
    if leaves.places:
        with lock:  # a trace of another thread has stand-ins there
            found = values(leaves.places)
        leaves.given = args, kwargs, found
        structure = structure._replace(children=(*structure.children, pytree.flatten(found, leaves, met)))
        given, objects = signature(structure, leaves)
    return leaves, structure, given, objects


def taking_calls(call: Callable[..., Any], structure: pytree.Structure, leaves: Leaves) -> Callable[..., Any] | None:
    """A function of the arguments of such a call, from `call`, a native one of its leaves: MISS where the structure is
    another. None where one is not made of tuples, lists and dicts, or has one of them in two places."""
    args, kwargs, *found = structure.children
    if found and any(child.kind is not None for child in found[0].children):
        return None
    if not kwargs.keys and all(child.kind is None for child in args.children):
        return with_places(call, leaves)
    names: list[str] = []
    known: dict[str, Any] = {"call": call, "MISS": MISS, "same": pytree.is_same_key}
    lines = _parts(args, "args", names, known) + _parts(kwargs, "names", names, known)
    if None in lines:
        return None
    places = [] if not leaves.places else [place.now for place in leaves.places.values()]
    known |= {f"place{k}": now for k, now in enumerate(places)}
    given = [*names, *(f"place{k}()" for k in range(len(places)))]
    body = "".join(f"    {line}\n" for line in lines)
    source = f"def direct(*args, **names):\n{body}    return call({', '.join(given)})"
    exec(compile(source, "<dispatch arguments>", "exec"), known)  # no file of the user's
    made: Callable[..., Any] = known["direct"]
    return made


def _parts(s: pytree.Structure, name: str, names: list[str], known: dict[str, Any]) -> list[str | None]:
    """Source that takes a container apart, or goes where it is another than in the call before; `names` gets those of
    its leaves. None is in it where this cannot be."""
    if s.kind is None:
        names.append(name)
        return []
    if s.kind not in (tuple, list, dict) or name in known:
        return [None]
    own = [f"{name}_{k}" for k in range(len(s.children))]
    known[name] = None
    known[f"kind_{name}"] = s.kind
    lines: list[str | None] = [f"if type({name}) is not kind_{name} or len({name}) != {len(own)}: return MISS"]
    if s.kind is dict and own:
        known |= {f"key_{part}": key for part, key in zip(own, s.keys, strict=True)}
        lines.append(f"{', '.join(own)}, = {name}")  # its keys: those of str are mostly one object
        kept = " and ".join(f"({part} is key_{part} or same({part}, key_{part}))" for part in own)
        lines.append(f"if not ({kept}): return MISS")
    values = f"{name}.values()" if s.kind is dict else name
    lines += [f"{', '.join(own)}, = {values}"] if own else []
    for child, part in zip(s.children, own, strict=True):
        lines += _parts(child, part, names, known)
    return lines


def with_places(call: Callable[..., Any], leaves: Leaves) -> Callable[..., Any]:
    """A native call of plain leaves that is given the arguments alone."""
    if not leaves.places:
        return call
    reads = [place.now for place in leaves.places.values()]

    def direct(*args: Any, **names: Any) -> Any:
        return call(*args, *[read() for read in reads], **names)

    return direct


def shadow(tracer: Tracer, k: int, leaf: Any, label: str, given: dict[int, Any]) -> Any:
    """The stand-in of a leaf in a trace. `given`: those of the arrays before it, by their ids."""
    kind = type(leaf)  # a mock of a tensor says that it is one
    if issubclass(kind, Tensor):
        return tracer.argument(k, leaf, leaf, label)
    if issubclass(kind, np.ndarray):
        if id(leaf) not in given:
            given[id(leaf)] = _of_array(tracer, k, leaf, label)
        return given[id(leaf)]
    if kind is float:  # one of another class has methods of its own
        return tracer.lift_float("argument", k, leaf, label)
    return leaf


def _of_array(tracer: Tracer, k: int, array: np.ndarray, label: str) -> Any:
    """The stand-in of an array: a value of the program, where its elements fill their memory."""

    def lift() -> Tensor:
        return tracer.argument(k, array, adopt(array), label)

    def refuse(what: str) -> BaseException:
        if what == RETURNED:
            return refused(tracer, f"returns a view of the NumPy array {label}, where a copy would be compiled")
        return refused(tracer, f"computes with the NumPy array {label} by NumPy alone ({what}, {user_location()})")

    if holds(array) and is_dense(array):
        return ArgumentArray(tracer, array, lift, refuse)
    return ArrayProxy(array, lift, refuse)


def begin_turned(shadows: Sequence[Any]) -> None:
    """Makes the stand-ins of arrays whose axes lie in another order views of their memory now: one that the step of a
    loop made would be the loop's."""
    for x in shadows:
        if type(x) is ArgumentArray and not x._waits[1].flags.c_contiguous:
            x._settled()

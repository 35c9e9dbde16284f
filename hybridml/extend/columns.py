"""Names, inputs and parameters of users' rows, from the functions that they are written as."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.ops.op import REQUIRED
from hybridml_compiler.ops.table import OPS, WITH_BODIES


def row_name(what: str, fn: Any, name: str | None = None) -> str:
    """The name of a row: the one that is asked for, or that of its function, with `own_` before it where an operation
    of the table has it. ArgumentError where it is no identifier, and where the table has what is asked for."""
    known, name = name is None, str(getattr(fn, "__name__", "")) if name is None else name
    if not name.isidentifier():
        raise ArgumentError(f"{what}: a row is called by an identifier, got {name!r}; give the function a name")
    if name in OPS or name in WITH_BODIES:
        if known:
            return f"own_{name}"
        raise ArgumentError(f"{what}: {name!r} is an operation of the table; give the function another name")
    return name


def rule_of(names: Iterable[str], pull: Callable[..., Any]) -> Callable[..., Any]:
    """A rule of a gradient that keeps all of these: `pull` with the signature by which the tape knows that."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    vars(pull)["__signature__"] = inspect.Signature([inspect.Parameter(name, kind) for name in ("g", *names)])
    return pull


def inputs_and_params(what: str, fn: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The tensors that a function takes, which are its positional arguments, and its parameters, which are keywords,
    with their defaults."""
    inputs: list[str] = []
    params: dict[str, Any] = {}
    for p in inspect.signature(fn).parameters.values():
        if p.kind is p.KEYWORD_ONLY:
            params[p.name] = REQUIRED if p.default is p.empty else p.default
        elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty:
            inputs.append(p.name)
        else:
            raise ArgumentError(
                f"{what}: tensors are positional arguments without a default, and parameters keywords after a `*`; "
                f"{fn.__name__} has {p}"
            )
    if not inputs:
        raise ArgumentError(f"{what}: {fn.__name__} takes no tensor; give it a positional argument")
    reserved = {"g", "out", "result"} & {*inputs, *params}
    if reserved:
        raise ArgumentError(
            f"{what}: rules have another meaning for {', '.join(sorted(reserved))}; rename the argument"
        )
    return tuple(inputs), params

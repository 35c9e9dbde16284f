"""Containers of tensors that control flow takes and gives, and the checks of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, DeviceError, DTypeError, HybridmlError, ShapeError
from hybridml_compiler.ops.table import OPS

from ..arrays.creation import asarray
from ..core import pytree
from ..core.context import current_interpreter
from ..core.pytree import LEAF, Structure
from ..core.tensor import Tensor, place_of

if TYPE_CHECKING:
    from ..tracing.capture.tracer import Tracer


def top_tracer() -> Tracer | None:
    """The tracer on top of the stack, None in eager code, which loads no tracer."""
    if current_interpreter() is None:
        return None
    from ..tracing.capture import tracer

    return tracer.top_tracer()


def flatten(value: Any, what: str, others: Sequence[Tensor] = ()) -> tuple[list[Tensor], Structure]:
    """The tensors of a container. None among them is part of the structure. A number becomes one on the device of the
    container's tensors, or of `others`.
    """
    leaves: list[Any] = []
    structure = _without_none(pytree.flatten(value, leaves), iter(leaves))
    given = [leaf for leaf in leaves if leaf is not None]
    for leaf, path in zip(given, paths(structure), strict=True):
        if not isinstance(leaf, Tensor | np.ndarray | np.generic | bool | int | float):
            raise DTypeError(f"{what}{path} must be a tensor, an array or a number, got {type(leaf).__name__}")
    tensors = [t for t in (*given, *others) if isinstance(t, Tensor)]
    place = next(filter(None, (place_of(t) for t in tensors)), None)
    return [asarray(leaf, device=place if isinstance(leaf, int | float) else None) for leaf in given], structure


_NONE = Structure(type(None), (), ())


def _without_none(structure: Structure, leaves: Any) -> Structure:
    if structure.kind is None:
        return _NONE if next(leaves) is None else LEAF
    return structure._replace(children=tuple([_without_none(child, leaves) for child in structure.children]))


def unflatten(structure: Structure, tensors: Sequence[Any]) -> Any:
    left = iter(tensors)

    def filled(s: Structure) -> list[Any]:
        if s.kind is None:
            return [next(left)]
        return [None] if s is _NONE or s == _NONE else [leaf for child in s.children for leaf in filled(child)]

    return pytree.unflatten(_with_none(structure), filled(structure))


def _with_none(s: Structure) -> Structure:
    return LEAF if s == _NONE else s._replace(children=tuple([_with_none(child) for child in s.children]))


def paths(s: Structure, start: str = "") -> list[str]:
    """The path to each leaf, as Python code: `[0]['h']`."""
    if s.kind is None:
        return [start]
    if hasattr(s.kind, "_fields"):
        names = [f".{name}" for name in s.kind._fields]
    elif s.keys:
        names = [f"[{key!r}]" if isinstance(s.kind, type) and issubclass(s.kind, dict) else f".{key}" for key in s.keys]
    else:
        names = [f"[{k}]" for k in range(len(s.children))]
    return [path for name, child in zip(names, s.children, strict=True) for path in paths(child, start + name)]


def _difference(x: Tensor, y: Tensor) -> tuple[type[HybridmlError], str, str] | None:
    """The error for values that must be of one type, with what each is; None where they are."""
    if place_of(x) != place_of(y):
        return DeviceError, f"on {x.device.type!r}", f"on {y.device.type!r}"
    if x.shape == y.shape and x.dtype is y.dtype:
        return None
    error = ShapeError if x.shape != y.shape else DTypeError
    return error, f"{x.dtype.name} of shape {x.shape}", f"{y.dtype.name} of shape {y.shape}"


def check_kept(what: str, before: Sequence[Tensor], old: Structure, after: Sequence[Tensor], new: Structure) -> None:
    """Raises an error unless the carry has the same structure, shapes, dtypes and devices after a step."""
    if old != new:
        raise ArgumentError(
            f"{what}: the carry has the leaves {_listed(old)} before a step and {_listed(new)} after it; the function "
            "must return a carry of the structure that it was given"
        )
    for path, x, y in zip(paths(old), before, after, strict=True):
        if found := _difference(x, y):
            error, one, other = found
            raise error(
                f"{what}: carry{path} is {one} before a step and {other} after it; the function must return what it "
                "was given: start from such a value, or convert it with .to(...)"
            )


def _listed(s: Structure) -> str:
    return f"carry{', carry'.join(paths(s))}" if paths(s) else "none"


def check_alike(what: str, name: str, first: Sequence[Any], old: Structure, now: Sequence[Any], new: Structure) -> None:
    """Raises an error unless both branches, or two steps, give the same structure, shapes, dtypes and devices."""
    if old != new:
        raise ArgumentError(f"{what} in structure: {paths(old)} and {paths(new)}; return the same containers")
    for path, x, y in zip(paths(old), first, now, strict=True):
        if found := _difference(x, y):
            error, one, other = found
            raise error(f"{what}: {name}{path} is {one} and {other}")


def is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and value >= least


def version(t: Tensor) -> int:
    return t._version if type(t._version) is int else t._version[0]


def run(what: str, fn: Callable[..., Any], *groups: tuple[Sequence[Tensor], Structure]) -> Any:
    """Calls `fn` with containers of these tensors, which it must not write to."""
    stamps = [[version(t) for t in tensors] for tensors, _ in groups]
    result = fn(*(unflatten(structure, tensors) for tensors, structure in groups))
    for (tensors, _), before in zip(groups, stamps, strict=True):
        if [version(t) for t in tensors] != before:
            raise ArgumentError(
                f"{what} updates one of its arguments in place; compute the new value and return it instead"
            )
    return result


def next_carry(carry: Sequence[Tensor], structure: Structure, result: Any, what: str) -> list[Tensor]:
    after, new = flatten(result, f"{what}: the carry ", carry)
    check_kept(what, carry, structure, after, new)
    return after


def flag_of(value: Any, what: str) -> Any:
    """A bool tensor without axes; a Python bool of one."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if not isinstance(value, Tensor | np.ndarray | int | float | np.generic):
        raise DTypeError(f"{what} must be a bool or a tensor of one element, got {type(value).__name__}")
    t = asarray(value)
    if t.numel() != 1:
        raise ShapeError(f"{what} must have one element, got shape {t.shape}; reduce it first (any, all)")
    t = t if t.shape == () else t.reshape(())
    return t if t.dtype.kind == "b" else OPS["not_equal"].fn(t, 0)


def predicate_of(value: Any, what: str) -> Any:
    """A bool tensor without axes; a Python bool where it is known."""
    flag = flag_of(value, what)
    return bool(flag) if top_tracer() is None else flag

"""Reasons for a retrace, in one line: the difference between a call and those before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...core import pytree
from ...core.tensor import Tensor
from ..python_state.guards import Watch
from ..python_state.names import arguments
from ..run.compiled_path import real_of
from .entry import Entry
from .held_gradient import form_of, held_gradient
from .signature import NumberSpec, Signature, ValueSpec


def of_arguments(fn: Callable[..., Any], known: Sequence[Signature], key: Signature) -> str:
    """The new facts about the arguments, compared with the known signature that is most like theirs."""
    if not known:
        return "each has ended with an error"
    best = min(known, key=lambda other: (other.structure != key.structure, len(list(_differences(fn, other, key)))))
    return "; ".join(_differences(fn, best, key)) or "the arguments"


def _differences(fn: Callable[..., Any], was: Signature, now: Signature) -> Iterator[str]:
    if was.structure != now.structure:
        yield f"the arguments are {_shape(now.structure)} and not {_shape(was.structure)}"
        return
    for name, a, b in zip(arguments(fn, now.structure), was.specs, now.specs, strict=True):
        is_any_int = a == NumberSpec(int) and isinstance(b, ValueSpec) and b.kind is int
        if a != b and not is_any_int:
            yield f"argument {name} {a} -> {b}"
    if was.aliases != now.aliases:
        yield "other arguments are one and the same object"
    if was.grad_is_off != now.grad_is_off:
        yield "gradients are off" if now.grad_is_off else "gradients are on"
    if was.default_float != now.default_float:
        yield "the default dtype"
    if was.default_device != now.default_device:
        yield f"the default device is {now.default_device or 'cpu'!r}, not {was.default_device or 'cpu'!r}"


def _shape(structure: pytree.Structure) -> str:
    """`(x, [x, x], flag=x)`: the containers of a call."""

    def text(s: pytree.Structure) -> str:
        if s.kind is None:
            return "x"
        if s.kind is pytree.Again:
            return "the same"
        parts = [f"{k}={text(c)}" for k, c in zip(s.keys, s.children, strict=False)]
        parts = parts or list(map(text, s.children))
        return f"[{', '.join(parts)}]" if s.kind is list else f"({', '.join(parts)})"

    args, *by_name = structure.children
    named = [f"{k}={text(c)}" for group in by_name for k, c in zip(group.keys, group.children, strict=True)]
    return f"({', '.join([*map(text, args.children), *named])})"


def of_state(entry: Entry, leaves: Sequence[Any]) -> str:
    """The fact that the entry relied on and that no longer holds."""
    for scalar in entry.scalars:
        if not scalar.fits(now := scalar.read()):
            is_kind = type(now) is scalar.kind
            return f"{scalar.name} is {now!r}, {'a large int' if is_kind else f'no longer a {scalar.kind.__name__}'}"
    for source in entry.not_zero:
        if real_of(source, leaves) == 0:
            return f"{source.node.name} is 0, and a number is divided by it"
    for t, array, wants, _ in entry.held.values():
        if t._array.shape != array.shape or t._array.dtype != array.dtype:
            return f"a captured tensor {array.dtype}{list(array.shape)} -> {t.dtype}{list(t.shape)}"
        if (t._node is not None) is not wants:
            return f"a captured tensor of shape {list(t.shape)} {'no longer requires' if wants else 'requires'} grad"
    for source, form in entry.grad_guards:
        real = leaves[source.index] if source.kind == "argument" else source.real
        now = form_of(held_gradient(real)) if isinstance(real, Tensor) else form
        if now != form:
            are = "None" if now is None else "set" if form is None else "of another form, or for another number of rows"
            return f"the .grad of {source.node.name} is {are}"
    return of_python(entry.watch) or "how arguments, captured tensors or their gradients share memory"


def of_python(watch: Watch) -> str:
    """The first Python value that changed."""
    return next(filter(None, (guard.change(watch.name_of) for guard in watch.guards)), "")

"""Why a call is traced although others have been: what is another than before, in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...core import pytree
from ...core.tensor import Tensor
from ..python_state.guards import Watch
from ..python_state.names import arguments
from ..run.compiled_path import real_of
from .entry import Entry


def of_arguments(fn: Callable[..., Any], known: Sequence[Any], key: Any) -> str:
    """What in the arguments is new, compared with the known signature that is most like theirs."""
    best = min(known, key=lambda other: (other[0] != key[0], len(list(_differences(fn, other, key)))))
    return "; ".join(_differences(fn, best, key)) or "the arguments"


def _differences(fn: Callable[..., Any], was: Any, now: Any) -> Iterator[str]:
    if was[0] != now[0]:
        yield f"the arguments are {_shape(now[0])} and not {_shape(was[0])}"
        return
    for name, a, b in zip(arguments(fn, now[0]), was[1], now[1], strict=True):
        if a != b and not (a is int and type(b) is tuple and b[0] is int):  # an int that is an input there
            yield f"argument {name} {_spec(a)} -> {_spec(b)}"
    if was[2] != now[2]:
        yield "other arguments are one and the same object"
    if was[3] != now[3]:
        yield "gradients are off" if now[3] else "gradients are on"
    if was[4:] != now[4:]:
        yield "the default dtype"


def _spec(spec: Any) -> str:
    """What the signature says of a leaf (see `signature.signature`), for people."""
    if isinstance(spec, tuple) and len(spec) == 4 and isinstance(spec[0], tuple):
        shape, dtype, kept, order = spec
        history = ("", " that requires grad", " with a history")[kept]
        return f"{dtype}{list(shape)}{history}{' permuted' if order else ''}"
    if isinstance(spec, tuple) and spec[0] is np.ndarray:
        return f"array of {spec[2]}{list(spec[1])}" + (" permuted" if spec[3] else "")
    if isinstance(spec, tuple) and spec[0] is object:
        return "an object"
    if isinstance(spec, tuple) and isinstance(spec[0], type) and issubclass(spec[0], np.generic):
        return str(spec[1])
    return repr(spec[1]) if isinstance(spec, tuple) and len(spec) == 2 else getattr(spec, "__name__", str(spec))


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

    args, kwargs = structure.children
    named = [f"{k}={text(c)}" for k, c in zip(kwargs.keys, kwargs.children, strict=True)]
    return f"({', '.join([*map(text, args.children), *named])})"


def of_state(entry: Entry, leaves: Sequence[Any]) -> str:
    """What the entry relied on that is no longer so."""
    for place in entry.places:
        if not place.fits(now := place.read()):
            is_kind = type(now) is place.kind
            return f"{place.name} is {now!r}, {'a large int' if is_kind else f'no longer a {place.kind.__name__}'}"
    for source in entry.not_zero:
        if real_of(source, leaves) == 0:
            return f"{source.node.name} is 0, and a number is divided by it"
    for t, array, wants, _ in entry.held.values():
        if t._array.shape != array.shape or t._array.dtype != array.dtype:
            return f"a captured tensor {array.dtype}{list(array.shape)} -> {t.dtype}{list(t.shape)}"
        if (t._node is not None) is not wants:
            return f"a captured tensor of shape {list(t.shape)} {'no longer requires' if wants else 'requires'} grad"
    for source, none in entry.grad_guards:
        real = leaves[source.index] if source.kind == "argument" else source.real
        if isinstance(real, Tensor) and (real.grad is None) is not none:
            return f"the .grad of {source.node.name} is {'set' if none else 'None'}"
    return of_python(entry.watch) or "how arguments, captured tensors or their gradients share memory"


def of_python(watch: Watch) -> str:
    """The first Python value that changed."""
    return next(filter(None, (guard.change(watch.name_of) for guard in watch.guards)), "")

"""Why a call is traced although others have been: what is another than before, in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...core import pytree
from ...core.tensor import Tensor
from ..python_state.guards import Watch, holder
from ..python_state.mutations import label
from ..python_state.names import arguments
from ..python_state.reads import FUNCTION_PARTS, checksum, elements, environment, form
from ..run.compiled_path import real_of
from .entry import Entry

_SHOWN = (bool, int, float, complex, str, bytes, type(None), tuple, frozenset)


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
    for read, key, was in (*watch.free, *watch.quiet):
        try:
            now = read(key)
        except (AttributeError, IndexError, KeyError, ValueError):
            return f"{_label(watch, read, key)} is gone"
        if read is len and now != was and (moved := watch.moved_attributes(key)):
            return f"attribute {', '.join(moved)} is {'new' if now > was else 'gone'}"
        if read is environment and now != was:
            return "an environment variable is another"
        if read in FUNCTION_PARTS and now != was:
            return f"{key.__name__}.{FUNCTION_PARTS[read]} is another"
        if read is form and now != was:
            return f"{_of(watch, key)} has another shape, dtype, memory layout or is read-only"
        if read in (elements, checksum) and now != was:
            return f"{_label(watch, read, key)} are others"
        if now is not was and (type(now) is not type(was) or not isinstance(was, _SHOWN) or now != was):
            return f"{_label(watch, read, key)} {_value(was)} -> {_value(now)}"
    return ""


def _value(value: Any) -> str:
    shown = repr(value) if isinstance(value, _SHOWN) else f"a {type(value).__name__}"
    return shown if len(shown) <= 40 else shown[:37] + "..."


def _label(watch: Watch, read: Any, key: Any) -> str:
    if read is len:
        return f"the size of {_of(watch, key)}"
    if read in (elements, checksum):
        return f"the elements of {_of(watch, key)}"
    owner = holder((read, key, None))
    return f"{_of(watch, owner)}[{key}]" if type(owner) in (list, tuple) else label(watch, read, key)


def _of(watch: Watch, container: Any) -> str:
    entries = (*watch.free, *watch.quiet)
    return next((label(watch, r, k) for r, k, v in entries if v is container), f"a {type(container).__name__}")

"""Questions of guards about classes: whose they are, what was registered with them, what reads their attributes."""

from __future__ import annotations

import abc
import functools
import types
from collections.abc import Iterator
from typing import Any

from .libraries import HEAP, is_library_class, is_ours

# What Module and Optimizer change only by announced assignments.
_ANNOUNCED: dict[tuple[str, str], frozenset[str]] = {
    ("hybridml.nn.module", "Module"): frozenset(("_kinds", "_hooks")),
    ("hybridml.optim.optimizer", "Optimizer"): frozenset(("defaults", "param_groups", "state", "_steps")),
}


def class_of(obj: Any) -> type:
    """The class of an object, also while a trace sees its attributes in another one (see captured_scalars.py)."""
    cls = type(obj)
    found: type = vars(cls).get("_seen_as", cls)
    return found


def may_change(cls: type) -> bool:
    """Whether objects of a class may be given another one."""
    return bool(cls.__flags__ & HEAP)


def says(obj: Any) -> type:
    """The class that an object says it has."""
    found: Any = obj.__class__
    return found if isinstance(found, type) else type(obj)


def registered(cls: Any) -> frozenset[Any]:
    """The classes registered with an abstract class and those below it; 0.1 us as long as there is nothing new."""
    return _registered(cls, abc.get_cache_token())


@functools.lru_cache(maxsize=64)
def _registered(cls: Any, token: object) -> frozenset[Any]:
    return frozenset(found for base in _below(cls, set()) for found in abc._get_dump(base)[0])  # type: ignore[attr-defined]


def _below(cls: Any, met: set[Any]) -> Iterator[Any]:
    met.add(cls)
    yield cls
    for sub in cls.__subclasses__():
        if sub not in met and isinstance(sub, abc.ABCMeta):
            yield from _below(sub, met)


def reads_unseen(cls: type) -> bool:
    """Whether attributes of its objects are read by library code, so that no code of the user names them."""
    for base in cls.__mro__[:-1]:
        if is_library_class(base) and (is_ours(base.__module__) or hasattr(base, "__getitem__")):
            return True
    return False


def announced(cls: type) -> frozenset[str] | None:
    """The containers that an object of Module or Optimizer manages, which announce assignments."""
    for base in cls.__mro__:
        found = _ANNOUNCED.get((base.__module__, base.__qualname__))
        if found is not None:
            # With a `step` of its own a user's optimizer writes into its state as any program writes into a dict.
            return (
                found if is_ours(getattr(getattr(cls, "step", None), "__module__", None) or "") else found - {"state"}
            )
    return None


def slots(cls: type) -> list[str]:
    names: list[str] = []
    for base in cls.__mro__:
        found = base.__dict__.get("__slots__", ())
        names += [found] if isinstance(found, str) else list(found)
    return [name for name in names if not name.startswith("__")]


def is_data(value: Any) -> bool:
    """Whether an attribute is no function, nor anything else that computes."""
    return not hasattr(type(value), "__get__") and type(value) is not types.BuiltinFunctionType

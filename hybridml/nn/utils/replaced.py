"""Tensors in the places of a module's own while it computes, and the forward that it has for that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ...core.tensor import Tensor
from ...tracing.python_state.mutation_epoch import attributes_changed
from ..module import Module

Place = tuple[Module, str]


@contextmanager
def replaced(values: Iterable[tuple[Place, Tensor]]) -> Iterator[None]:
    """A block in which attributes of modules are other tensors, whatever their shapes; a traced function that is called
    in it looks at them again."""
    new = list(values)
    before = [(place, vars(place[0])[place[1]]) for place, _ in new]
    try:
        _put(new)
        yield
    finally:
        _put(before[::-1])


def _put(values: Iterable[tuple[Place, Tensor]]) -> None:
    for (module, name), value in values:
        object.__setattr__(module, name, value)
    attributes_changed()


def forward_of(module: Module) -> Callable[..., Any]:
    """The forward that the module has now: one of its own, or its class's."""
    own = vars(module).get("forward")
    return partial(type(module).forward, module) if own is None else own


__all__ = ["forward_of", "replaced"]

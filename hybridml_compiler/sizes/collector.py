"""Who collects the guards of decisions about sizes (see guards.py), and how these are made; read by dims.py."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol

from ..errors import TraceError


class Collector(Protocol):
    """The collector of guards; `found` holds those that it has."""

    @property
    def found(self) -> dict[Any, Any]: ...
    def least_of(self, size: Any) -> int | None: ...
    def equality(self, difference: Any) -> bool | None: ...
    def add(self, left: Any, relation: Any, right: Any, asked: bool = False) -> None: ...


collector: ContextVar[Collector | None] = ContextVar("hybridml_guards", default=None)
structurally: ContextVar[bool] = ContextVar("hybridml_structural", default=False)


def guards_for(size: Any, how: str) -> Collector:
    """The guards of the program that is being made, for a size that is used in it."""
    guards = collector.get()
    if guards is None:
        what = f"the size {size} of a traced tensor is {how} after its trace, where it has no value"
        raise TraceError(f"{what}; read the shape of a tensor that the traced function returns")
    return guards

"""Results of planning for a target that other graphs can use: layers repeat, and so do programs after an edit.

All follow from the structure of a group, or are found by the identity of a kernel. Nothing of a graph with symbolic
sizes is kept: what was decided by a size is a condition of one program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ..loops.ir import Kernel, KernelSpec
from ..record import record

_MOST = 1024  # kernels; then all are forgotten. A GPT step has 60


@record(frozen=False, eq=False)
class Kept:
    """The results that a target's capabilities hold. Entries by identity hold what they are found by, so that it
    lives."""

    groups: dict[Any, Any] = field(default_factory=dict)  # lowered, by signature (see lowering/memo.py)
    rebased: dict[int, tuple[Kernel, Kernel, Mapping[str, int]]] = field(default_factory=dict)
    specs: dict[Any, KernelSpec] = field(default_factory=dict)  # by the identity of the loop nests they are made of
    calls: dict[Any, Any] = field(default_factory=dict)  # by themselves: equal calls are one spec
    moved: dict[int, tuple[Kernel, Kernel, Mapping[str, int]]] = field(default_factory=dict)  # of which, by how much
    verified: dict[int, Kernel] = field(default_factory=dict)

    def trimmed(self) -> Kept:
        """Returns itself, emptied where it held more than `_MOST` kernels."""
        tables: list[dict[Any, Any]] = list(vars(self).values())
        if max(map(len, tables)) > _MOST:
            for table in tables:
                table.clear()
        return self


@record(frozen=False)
class Reuse:
    """Numbers of the groups of a plan: of all, and of those that no equal one was known for."""

    groups: int = 0
    lowered: int = 0

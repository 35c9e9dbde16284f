"""A fusion group: the nodes that one kernel writes, and what it reads and inlines to compute them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..graph.ir import Node

OWN_LOOP = ("reduction", "contraction", "scan", "scatter")  # kinds that cannot be inlined into another loop


@dataclass(eq=False)
class Group:
    """Materialised nodes computed by one kernel. `reads` are the materialised nodes and inputs that it loads."""

    roots: list[Node]
    reads: set[Node]
    inlined: set[Node]
    after: set[Group] = field(default_factory=set)  # groups that must run before this one
    reasons: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """map, reduction, contraction, scan or scatter: how the kernel is built."""
        first = self.roots[0].op
        return first.kind if first is not None and first.kind in OWN_LOOP else "map"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.roots[0].shape

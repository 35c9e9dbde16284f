"""Variables after a loop that may be in one memory: which of them, data decides, so a later write to one is done again
with the loop step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import ref

from ...core.tensor import Tensor
from .carries import root_of
from .lists import Grown


def mark(loop: Any, variables: Mapping[str, Any]) -> None:
    """Marks variables that may be in one memory in Python, with each other or with what is there before: where one
    is written to later, there is another trace, with this loop step by step."""
    owners = {id(c.given): name for name, c in loop.carries.items() if c.given is not None}
    groups: list[tuple[set[str], list[Tensor]]] = []  # names, and what was there before
    for name, roots in loop.origins.items():
        for root in {id(t): t for t in roots}.values():
            owner, before = owners.get(id(root)), list[Tensor]()
            if owner is not None:
                before = [loop.carries[owner].start]
            elif root._array not in loop.made:
                before = [root]
            same = {n for n, others in loop.origins.items() if any(t is root for t in others)}
            groups = _joined(groups, ({name, *same} | ({owner} if owner is not None else set()), before))
    if not loop.has_steps():
        for name in loop.carries.keys() & variables.keys():
            groups = _joined(groups, ({name}, [loop.carries[name].start]))
    for names, before in groups:
        found = [variables[name] for name in sorted(names) if name in variables]
        found = [t for t in (*found, *map(root_of, before)) if issubclass(type(t), Tensor)]
        if len({id(t) for t in found}) > 1:
            loop.tracer.marked.append(([ref(t) for t in found], loop.place))


def mark_items(loop: Any, grown: Grown, variables: Mapping[str, Any]) -> None:
    """The same for the items that the last step may have appended to a list."""
    items = grown.target[len(grown.target) - len(grown.items) :]
    found = [t for t in (*items, *variables.values()) if issubclass(type(t), Tensor)]
    if len(found) > 1:
        loop.tracer.marked.append(([ref(t) for t in found], loop.place))


def _joined(
    groups: Sequence[tuple[set[str], list[Tensor]]], new: tuple[set[str], list[Tensor]]
) -> list[tuple[set[str], list[Tensor]]]:
    """Groups and one more, which those are joined to that have a name of it."""
    names, before = new
    apart = []
    for group in groups:
        if group[0] & names:
            names, before = names | group[0], [*before, *group[1]]
        else:
            apart.append(group)
    return [*apart, (names, before)]

"""Variables that may be in one memory: in a step, and after the loop, where which of them are, data decides, so that a
later write to one is done again with the loop step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.tensor import Tensor
from ..capture.loops.one_memory import WHICH, memory_of, root_of
from ..capture.loops.step_tensors import is_part
from ..capture.numbers.perhaps import may_be_number
from ..capture.program_arrays import has_memory
from ..specialize.errors import StepByStep
from .carries import is_new_array
from .lists.grown import Grown, leaves_of
from .taken import refuse_update, tensor_of


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
    starts = {id(c.given): c.start for c in loop.carries.values()}
    for name, others in loop.chosen.items():
        if others and issubclass(type(t := variables.get(name)), Tensor):
            loop.tracer.marked.choose(t, [root_of(starts.get(id(x), x)) for x in others])
    for name in loop.carries.keys() & variables.keys():
        others = {name} if not loop.has_steps() else set()
        for other in filter(None, others | loop.arrays_before.get(name, set())):
            groups = _joined(groups, ({name}, [loop.carries[other].start]))
    for names, before in groups:
        found = [tensor_of(variables[name]) for name in sorted(names) if name in variables]
        found += [root_of(t) for t in map(tensor_of, before) if issubclass(type(t), Tensor)]
        found = [t for t in found if issubclass(type(t), Tensor)]
        if len({id(t) for t in found}) > 1:
            loop.tracer.marked.mark(found, loop.place)


def mark_items(loop: Any, grown: Grown, variables: Mapping[str, Any]) -> None:
    """The same for the items that the last step may have appended to a list."""
    items = grown.target[len(grown.target) - len(grown.items) :]
    if all(any(has_memory(x) or is_part(x) for x in found) for found in (grown.leaves, variables.values())):
        loop.refuse("a list gets an array that may be a variable's")
    items = [leaf for item in items for leaf in leaves_of(item)]
    found = [t for t in (*items, *variables.values()) if issubclass(type(t), Tensor)]
    if len(found) > 1:
        loop.tracer.marked.mark(found, loop.place)


def shared(loop: Any, variables: Mapping[str, Any]) -> dict[str, Any]:
    """The memory in which variables are that go on, or are read after the loop."""
    names, tracer = {*loop.loop.carried, *loop.loop.after}, loop.tracer
    values = {n: v for n, v in variables.items() if n in names and issubclass(type(v), Tensor)}
    values = {name: t for name, t in values.items() if t is not loop.before.get(name)}
    values = {name: tracer.lift(t) for name, t in values.items()}
    of = {name: memory_of(t) for name, t in values.items()}
    own = {name: loop.before[name] for name in loop.own} | {name: c.given for name, c in loop.carries.items()}
    ends = [variables, *(exit.objects for exit in loop.exits)]
    for name, t in [(n, t) for end in ends for n, t in end.items() if n in names and issubclass(type(t), Tensor)]:
        root = root_of(tracer.lift(t))
        loop.origins.setdefault(name, []).extend([root, *loop.shows.get(id(root), ())[1:]])
        if id(root) in loop.shows or (root is not own.get(name) and (root is not t or not loop.region.has_made(t))):
            loop.views.add(name)
    for name, t in values.items():
        loop.chosen.setdefault(name, []).extend(x for x in tracer.marked.may_be(t) if x is not own.get(name))
    loop.twice = {name for name in of if [*of.values()].count(of[name]) > 1 or loop.chosen[name]}
    return of


def own_numbers(loop: Any, variables: Mapping[str, Any]) -> set[str]:
    """The variables that are Python's numbers before the loop, or may be in a step of one around it: those of which no
    other name is the tensor that they are otherwise."""
    tracer = loop.tracer
    around: Any = tracer.loops[-1] if tracer.loops and tracer.loops[-1].frame is loop.frame else None
    found = {name for name, value in loop.before.items() if type(value) in (int, float)}
    tensors = [memory_of(t) for t in variables.values() if issubclass(type(t), Tensor)] if around is not None else []
    for name, t in loop.before.items() if around is not None else ():
        if issubclass(type(t), Tensor) and tensors.count(memory_of(t)) == 1 and name not in around.views:
            found |= {name} if may_be_number(tracer, t._array) else set()
    return found


def sums_of(loop: Any) -> set[int]:
    """The ids of tensors of variables that are Python's numbers before the loop, or may be, and that no other variable
    can be: what a step does to such a tensor in place nobody else sees."""
    of = {name: loop.before[name] for name in loop.own} | {name: c.given for name, c in loop.carries.items()}
    names = loop.own & loop.loop.numbers - loop.twice - loop.views
    return {id(of[name]) for name in names if issubclass(type(of[name]), Tensor)}


def check_memory(loop: Any, shared: Mapping[str, Any]) -> None:
    """Refuses variables that show what a step updates: each of them would be an array of its own."""
    states = {memory_of(t) for t in loop.states}
    if any(memory_of(x) in states for others in loop.chosen.values() for x in others):
        raise StepByStep(None, "what max() or min() gives goes on, and a step updates their arguments", (WHICH,))
    starts = [(n, loop.before.get(n)) for n, carry in loop.carries.items() if carry.kind == "tensor"]
    begins = {n: memory_of(loop.tracer.lift(t)) for n, t in starts if t is not None and issubclass(type(t), Tensor)}
    for name, memory in (*shared.items(), *begins.items()):
        if memory in states:
            loop.refuse(f"{name} is a view of a tensor that a step updates")
    items = [memory_of(t) for t in loop.items]
    if len({*items}) < len(items):
        loop.refuse("lists get the same memory twice")


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


def check_new_arrays(loop: Any) -> None:
    """Refuses NumPy arrays that go on where one may be in the memory of another, or of what was there before."""
    arrays = {n: c for n, c in loop.carries.items() if c.kind == "array" and has_memory(c.start)}
    updated = {memory_of(t) for t in loop.states}
    for name, carry in arrays.items():
        given, start = carry.shown._memory.tensor, carry.start._memory.tensor
        is_same = given is not None and carry.given is not None and given._array is carry.given._array
        if not is_same:
            refuse_update(loop, [name])
        if start is None or memory_of(start) in updated:
            loop.refuse(f"{name} may be an array that something else is")
    for objects in (loop.after, *(exit.objects for exit in loop.exits)) if arrays else ():
        found = [objects.get(n) for n in {*loop.loop.carried, *loop.loop.after}]
        ends = {n: x for n in arrays if has_memory(x := objects.get(n))}
        before = {n: next((m for m, c in arrays.items() if c.shown is x), None) for n, x in ends.items()}
        for name, of in before.items():
            loop.arrays_before.setdefault(name, set()).add(of)
        left = [c.shown for m, c in arrays.items() if m not in before.values()]
        memories = [id(x._memory) for x in (*found, *left) if has_memory(x)]
        if len({*memories}) < len(memories) or not all(is_new_array(x) for n, x in ends.items() if before[n] is None):
            loop.refuse("arrays that go on may be views, or the same ones")

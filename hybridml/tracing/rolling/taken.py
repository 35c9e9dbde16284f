"""Variables that a step updates in place and assigns, `u[0] = 1.0; u = u + v` or `b[1:] = f(a); a, b = b, a`: the loop
has the memory with which they begin as its own. Nobody else may look at it, in the loop or after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...core.tensor import Tensor, like
from ..capture.loops.one_memory import memory_of, root_of
from ..capture.program_arrays import has_memory, value_of


def tensor_of(value: Any) -> Any:
    """The tensor that an array of NumPy's is; anything else itself."""
    return value._memory.tensor if has_memory(value) else value


def refuse_update(loop: Any, names: Iterable[str], always: bool = False) -> None:
    """Refuses variables that a step updates in place and assigns, whose memory is not the loop's."""
    for name in names:
        if always or loop.taken.get(name) is None:
            loop.refuse(f"a step updates {name} in place, and assigns it")


def take_over(loop: Any, written: list[Tensor]) -> bool:
    """Whether the loop has taken the memory of variables as its own, of tensors from outside that a step updates."""
    starts = {id(t): name for name, x in loop.before.items() if issubclass(type(t := tensor_of(x)), Tensor)}
    found = {starts[id(t)]: t for t in (*written, *loop.states) if id(t) in starts}
    found = {name: t for name, t in found.items() if name in loop.carries or _is_assigned(loop, name, t)}
    found |= {name: tensor_of(loop.before.get(name)) for name in _traded(loop)}
    for name, t in found.items():
        is_tensor = issubclass(type(t), Tensor) and t._node is None
        if loop.taken.get(name) is not None or not is_tensor:
            refuse_update(loop, [name], always=True)
        if not _is_own(loop.tracer, t):
            if name in loop.taken or "first" in loop.tracer.alone.get(loop.place, ()):
                refuse_update(loop, [name], always=True)
            loop.taken[name] = None
            loop.begin_later(name)
            return True
    if found:
        loop.learn()  # what else goes on: arrays that trade places are carries from the next round on
    for name, t in found.items():
        start, end = loop.before[name], loop.after[name]
        copy = like(t, t._array, None)
        loop.before[name] = start = value_of(loop.tracer, copy) if has_memory(start) else copy
        carry = loop.carry_of(name, start, end)
        if carry is None:
            refuse_update(loop, [name], always=True)
        loop.carries[name], loop.taken[name] = carry, t
        loop.tracer.marked.take(t, loop.place)
    taken = [id(t) for t in found.values()]
    written[:] = [t for t in written if id(t) not in taken]
    loop.states = [t for t in loop.states if id(t) not in taken]
    return bool(found)


def _traded(loop: Any) -> list[str]:
    """The variables whose memory those have after a step that the next one updates in place."""
    ends = [loop.after.get(name) for name, t in loop.taken.items() if t is not None]
    roots = [root_of(loop.tracer.lift(t)) for t in ends if issubclass(type(t), Tensor)]
    given = {id(c.given): name for name, c in loop.carries.items() if c.given is not None}
    shown = {id(c.shown): name for name, c in loop.carries.items() if c.shown is not None}
    names = {given.get(id(t)) for t in roots} | {shown.get(id(x)) for x in ends}
    return [name for name in sorted(filter(None, names)) if loop.taken.get(name) is None]


def _is_assigned(loop: Any, name: str, t: Tensor) -> bool:
    end = tensor_of(loop.after.get(name))
    return issubclass(type(end), Tensor) and memory_of(end) != memory_of(t)


def _is_own(tracer: Any, t: Tensor) -> bool:
    """Whether a tensor was made by what is around the loop: no argument, and nothing that a step around it has."""
    if tracer.frames:
        return bool(tracer.frames[-1].has_made(t))
    return all(t is not s for s in tracer.shadows.values())


def check_taken(loop: Any, memory: Mapping[str, Any]) -> None:
    """Refuses what would be in the memory of a variable that the next step updates in place."""
    memories, items = [*memory.values()], {memory_of(t) for t in loop.items}
    items |= {id(x._memory) for grown in loop.grown for x in grown.leaves if has_memory(x)}
    for name in loop.taken:
        end = memory.get(name, id(getattr(loop.after.get(name), "_memory", None)))
        if memories.count(end) > 1 or end in items:
            refuse_update(loop, [name], always=True)
    blocks = [*(c.given for c in loop.carries.values()), *(tensor_of(loop.after.get(name)) for name in loop.taken)]
    for of in loop.lists.values() if loop.taken else ():
        of.refuse_items_in({memory_of(t) for t in blocks if issubclass(type(t), Tensor)})
    given = {memory_of(c.given) for name, c in loop.carries.items() if name in loop.taken and c.given is not None}
    if any(memory_of(x) in given for others in loop.chosen.values() for x in others):
        loop.refuse("what max() or min() gives goes on, and a step updates their arguments")

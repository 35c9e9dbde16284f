"""Walks of graphs without circles: of nodes, of expressions, of groups of either.

They have a stack and no recursion: a loop of 10,000 steps makes a graph deeper than Python's recursion limit.
networkx takes 19 times as long (5.3 us a value), and 0.15 s to import, where a small step compiles in less.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T", bound=Hashable)
Operands = Callable[[T], Iterable[T]]


def postorder(roots: Iterable[T], operands: Operands[T], seen: set[T] | None = None) -> list[T]:
    """The roots and all that they are made of, operands before what reads them, each once.

    `operands` gives none where the walk is to end. What is in `seen` is left out, and what is found is added to it.
    0.28 us a value.

    >>> postorder([6], lambda n: [d for d in range(2, n) if n % d == 0])
    [2, 3, 6]
    """
    seen = set() if seen is None else seen
    order: list[T] = []
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        stack = [(root, iter(operands(root)))]
        while stack:
            value, left = stack[-1]
            for operand in left:
                if operand not in seen:
                    seen.add(operand)
                    stack.append((operand, iter(operands(operand))))
                    break
            else:
                stack.pop()
                order.append(value)
    return order


def reachable(roots: Iterable[T], operands: Operands[T]) -> Iterator[T]:
    """The roots and all that they are made of, each once, in no useful order, one at a time for whoever looks for one.

    >>> 3 in reachable([12], lambda n: [d for d in range(2, n) if n % d == 0])
    True
    """
    stack = list(dict.fromkeys(roots))
    seen = set(stack)
    while stack:
        value = stack.pop()
        yield value
        for operand in operands(value):
            if operand not in seen:
                seen.add(operand)
                stack.append(operand)

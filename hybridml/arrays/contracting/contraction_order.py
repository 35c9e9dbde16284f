"""Order of the products of an Einstein summation: the best of all orders for a few operands, the best pair for many.

Source: Smith and Gray, opt_einsum, JOSS 2018; Pfeifer et al., Faster identification of optimal contraction sequences,
2014. Costs are multiplications.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Hashable, Sequence
from typing import Any

from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.sizes.dims import hint

Label = Hashable  # a letter, a number of the list form, or a place of the ellipsis counted from its end
Labels = tuple[Label, ...]
Step = tuple[int, ...]  # operands of those that are left; their product goes behind the others
Names = frozenset[Label]
Sizes = tuple[tuple[Label, int], ...]
# Operands up to which every order is considered: 3^6 divisions into pairs take 2 ms, once for each expression.
EVERY_ORDER = 6


def order_of(optimize: Any, labels: Sequence[Labels], output: Labels, sizes: dict[Label, int]) -> list[Step]:
    """Steps of a contraction: the operands to multiply next, until one is left. Sizes may come with the call."""
    n = len(labels)
    if n == 1:
        return []
    if isinstance(optimize, tuple) and optimize and not isinstance(optimize[0], str):
        steps = [tuple(sorted(step)) for step in optimize]
    elif isinstance(optimize, tuple) and optimize and optimize[0] == "einsum_path":
        steps = [tuple(sorted(step)) for step in optimize[1:]]
    elif optimize is False or n == 2:
        steps = [(0, 1), *((0, k) for k in range(n - 2, 0, -1))]
    else:
        how = optimize[0] if isinstance(optimize, tuple) and optimize else optimize
        if how not in (True, "optimal", "greedy", "auto"):
            raise ArgumentError(f"einsum: optimize is True, False, 'optimal', 'greedy' or a path, got {optimize!r}")
        found = _optimal if how != "greedy" and n <= EVERY_ORDER else _greedy
        hints = tuple((label, hint(size)) for label, size in sizes.items())
        steps = found(tuple(map(frozenset, labels)), frozenset(output), hints)
    left = n
    for step in steps:
        if not step or len(set(step)) < len(step) or not 0 <= step[0] <= step[-1] < left:
            raise ArgumentError(f"einsum: {step} of the path {optimize!r} does not name operands of the {left} left")
        left += 1 - len(step)
    return steps if left == 1 else [*steps, tuple(range(left))]


def cost(steps: Sequence[Step], labels: Sequence[Labels], output: Labels, sizes: dict[Label, int]) -> tuple[int, int]:
    """Multiplications in this order, and of all operands at once."""
    hints = {label: hint(size) for label, size in sizes.items()}
    left, total = [frozenset(names) for names in labels], 0
    for step in steps:
        total += _volume(frozenset().union(*(left[k] for k in step)), hints)
        left = _after(left, step, frozenset(output))
    return total, _volume(frozenset(hints), hints)


def _volume(labels: Names, sizes: dict[Label, int]) -> int:
    return math.prod(sizes[label] for label in labels)


def _after(labels: Sequence[Names], step: Step, output: Names) -> list[Names]:
    """The labels of those that are left when those of `step` have been multiplied."""
    rest = [names for k, names in enumerate(labels) if k not in step]
    joined: Names = frozenset().union(*(labels[k] for k in step))
    return [*rest, joined & output.union(*rest)]


@functools.lru_cache(maxsize=1024)
def _greedy(labels: tuple[Names, ...], output: Names, sizes: Sizes) -> list[Step]:
    """An order that takes at each step the pair whose product is the smallest beside the two; of those the cheapest."""
    by_label, left = dict(sizes), list(labels)
    steps: list[Step] = []

    def price(pair: Step) -> tuple[bool, int, int]:
        made = _after(left, pair, output)[-1]
        grown = _volume(made, by_label) - sum(_volume(left[k], by_label) for k in pair)
        return not left[pair[0]] & left[pair[1]], grown, _volume(left[pair[0]] | left[pair[1]], by_label)

    while len(left) > 1:
        best = min(itertools.combinations(range(len(left)), 2), key=price)
        left = _after(left, best, output)
        steps.append(best)
    return steps


@functools.lru_cache(maxsize=1024)
def _optimal(labels: tuple[Names, ...], output: Names, sizes: Sizes) -> list[Step]:
    """The order with the fewest multiplications, by dynamic programming over the subsets of operands."""
    by_label, n = dict(sizes), len(labels)
    every = (1 << n) - 1

    def of(subset: int) -> Names:
        return frozenset().union(*(labels[k] for k in range(n) if subset >> k & 1))

    made = {s: of(s) & (output | of(every & ~s)) for s in range(1, every + 1)}
    best: dict[int, tuple[int, int]] = {1 << k: (0, 0) for k in range(n)}  # subset -> (cost, one of its two parts)
    for subset in range(1, every + 1):
        part = (subset - 1) & subset
        while part:
            rest = subset & ~part
            if part > rest:
                total = best[part][0] + best[rest][0] + _volume(made[part] | made[rest], by_label)
                if subset not in best or total < best[subset][0]:
                    best[subset] = (total, part)
            part = (part - 1) & subset
    left: list[int] = [1 << k for k in range(n)]
    steps: list[Step] = []

    def multiply(subset: int) -> None:
        part = best[subset][1]
        if not part:
            return
        multiply(subset & ~part)
        multiply(part)
        pair = tuple(sorted((left.index(part), left.index(subset & ~part))))
        steps.append(pair)
        left[:] = [other for k, other in enumerate(left) if k not in pair] + [subset]

    multiply(every)
    return steps

"""Minimum cuts: those of networkx, and the best of all sets of values to keep."""

from __future__ import annotations

from itertools import product
from math import inf

import networkx
from hypothesis import given
from hypothesis import strategies as st

from hybridml_compiler.schedule.fusion.min_cut import minimum_cut
from hybridml_compiler.schedule.fusion.recompute import Value, kept

VERTICES = 7


@given(st.lists(st.tuples(*[st.integers(0, VERTICES - 1)] * 2, st.integers(0, 20)), max_size=30))
def test_cuts_are_as_wide_as_those_of_networkx(edges: list[tuple[int, int, int]]) -> None:
    network = networkx.DiGraph()
    network.add_nodes_from(range(VERTICES))
    for a, b, capacity in edges:
        network.add_edge(a, b, capacity=network.edges.get((a, b), {"capacity": 0})["capacity"] + capacity)
    width, _ = networkx.minimum_cut(network, 0, VERTICES - 1)
    side = minimum_cut(VERTICES, edges, 0, VERTICES - 1)
    assert 0 in side and VERTICES - 1 not in side
    assert sum(c for a, b, c in edges if a in side and b not in side) == width


def total(values: list[Value], keep: set[int]) -> float:
    """What it costs to have all that is wanted, if these are kept."""
    wanted = {k for k, value in enumerate(values) if value.wanted is not None}
    cost = sum(values[k].wanted or 0.0 for k in wanted & keep)
    needed, operands = set(wanted), set()
    for k in reversed(range(len(values))):
        if k in needed and k not in keep:
            cost += values[k].again
            needed |= set(values[k].operands)
            operands |= set(values[k].operands)
    return cost + sum(values[k].load for k in operands & keep)


@st.composite
def regions(draw: st.DrawFn) -> list[Value]:
    values: list[Value] = []
    for k in range(draw(st.integers(1, 7))):
        operands = tuple(i for i in range(k) if draw(st.integers(0, 2)) == 0)
        wanted = draw(st.none() | st.integers(0, 20))
        again = float(draw(st.integers(0, 9))) if operands else inf
        values.append(Value(None if again == inf else wanted, float(draw(st.integers(0, 20))), again, operands))
    return values


@given(regions())
def test_no_other_set_of_values_costs_less(values: list[Value]) -> None:
    sets = ({k for k, chosen in enumerate(choice) if chosen} for choice in product([False, True], repeat=len(values)))
    assert total(values, kept(values)) == min(total(values, keep) for keep in sets)

"""Walks: the order, each value once, where they end, and graphs that are deep or have many paths."""

from __future__ import annotations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from hybridml_compiler.walk import postorder, reachable

GRAPHS = st.lists(st.lists(st.integers(0, 30), max_size=4), min_size=1, max_size=20).map(
    lambda rows: [[n % k for n in row] if k else [] for k, row in enumerate(rows)]
)


def by_recursion(root: int, operands: list[list[int]], found: dict[int, None]) -> None:
    for n in operands[root] if root not in found else ():
        by_recursion(n, operands, found)
    found[root] = None


@given(GRAPHS, st.data())
def test_the_order_is_that_of_recursion(operands: list[list[int]], data: st.DataObject) -> None:
    roots = data.draw(st.lists(st.integers(0, len(operands) - 1), max_size=4))
    expected: dict[int, None] = {}
    for root in roots:
        by_recursion(root, operands, expected)
    order = postorder(roots, operands.__getitem__)
    assert order == list(expected)
    graph = nx.DiGraph((a, b) for a, row in enumerate(operands) for b in row)
    graph.add_nodes_from(range(len(operands)))
    below = set(roots).union(*(nx.descendants(graph, root) for root in roots))
    found = list(reachable(roots, operands.__getitem__))
    assert len(found) == len(set(found)) and set(found) == set(order) == below


def test_what_has_been_seen_is_left_out_and_grows() -> None:
    operands = [[], [0], [0, 1], [2], [2, 3]]
    seen = {1}
    assert postorder([3], operands.__getitem__, seen) == [0, 2, 3]
    assert seen == {0, 1, 2, 3}
    assert postorder([4], operands.__getitem__, seen) == [4]


def test_a_walk_ends_where_there_are_no_operands() -> None:
    assert postorder([6], lambda n: () if n <= 4 else range(n - 2, n)) == [4, 3, 5, 6]


def test_deep_graphs_and_graphs_of_many_paths() -> None:
    assert postorder([50_000], lambda n: [n - 1] if n else []) == list(range(50_001))

    def below(n: int) -> list[int]:  # 2^100 paths
        return [n - 1, n - 1] if n else []

    assert postorder([100], below) == sorted(reachable([100], below))


def test_a_search_looks_no_further_than_it_must() -> None:
    asked: list[int] = []

    def operands(n: int) -> list[int]:
        asked.append(n)
        return [n + 1]

    assert 5 in reachable([0], operands)
    assert asked == [0, 1, 2, 3, 4]

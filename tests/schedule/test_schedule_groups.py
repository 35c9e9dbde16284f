"""Groups for one choice of values in memory after another are those of the second choice alone."""

from __future__ import annotations

import numpy as np
import pytest

from hybridml_compiler.aval import Aval
from hybridml_compiler.graph.ir import Graph, Node, input_node
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.schedule import cost
from hybridml_compiler.schedule.fusion.fuse import materialise
from hybridml_compiler.schedule.fusion.group import Group, expression_of
from hybridml_compiler.schedule.fusion.grouping import Grouping
from hybridml_compiler.targets.cpu.capabilities import capabilities
from hybridml_compiler.targets.cpu.spec import host_spec

F4 = np.dtype("f4")


def network(layers: int) -> Graph:
    """Products, and after each a normalisation that its readers share."""
    x = input_node(Aval((32, 32), F4), "x")
    weights = [input_node(Aval((32, 32), F4), f"w{k}") for k in range(layers)]
    value: Node = x
    for weight in weights:
        value = make("add", value, make("tanh", make("matmul", value, weight)))
        centred = make("subtract", value, make("mean", value, axis=(1,), keepdims=True))
        value = make("multiply", centred, make("exp", make("negative", make("permute_dims", centred, axes=(1, 0)))))
    return Graph((x, *weights), (value,))


def shown(groups: list[Group]) -> list[tuple[object, ...]]:
    return [(g.roots, g.reads, g.inlined, g.kind, g.shape, g.space, g.call, g.reasons) for g in groups]


@pytest.mark.parametrize("every", [2, 3, 5])
def test_the_second_choice_is_grouped_as_if_it_were_the_first(every: int) -> None:
    graph, target = network(6), capabilities(host_spec())
    order = graph.nodes()
    first, _ = materialise(graph, order, target)
    spare = [node for node in first if node.kind == "elementwise" and node not in graph.roots]
    added = [node for node in order if node.kind == "elementwise" and node not in first]
    chosen = {*first}.difference(spare[::every]).union(added[::every])
    second = {node: "chosen" for node in order if node in chosen}
    grouping = Grouping(order, target)
    assert chosen != {*first} and shown(grouping.groups(first)[0]) != shown(grouping.groups(second)[0])
    assert shown(grouping.groups(second)[0]) == shown(Grouping(order, target).groups(second)[0])


def test_an_expression_says_what_it_reads_out_of_place() -> None:
    x, y = (input_node(Aval((4, 4), F4), name) for name in "xy")
    turned = make("permute_dims", x, axes=(1, 0))
    node = make("add", make("multiply", x, turned), make("reshape", make("reshape", y, shape=(16,)), shape=(4, 4)))
    found = expression_of(node, ())
    assert found.reads == {x, y} and found.displaced == {x} and turned in found.inlined
    assert expression_of(node, {turned}).displaced == set()


def test_a_loop_has_registers_for_its_sums() -> None:
    x = input_node(Aval((60, 50), F4), "x")
    rows = [make("slice", x, starts=(k, 0), stops=(k + 1, 50), steps=(1, 1)) for k in range(60)]
    graph = Graph((x,), tuple(make("sum", make("multiply", row, row), axis=(1,), keepdims=False) for row in rows))
    order, target = graph.nodes(), capabilities(host_spec())
    groups, _ = Grouping(order, target).groups(materialise(graph, order, target)[0])
    assert {len(group.roots) for group in groups[:-1]} == {cost.MAX_KERNEL_SUMS}


@pytest.mark.parametrize(("count", "kept"), [(20, 1), (60, 5)])
def test_a_node_that_is_read_twice_counts_once_for_the_length_of_an_expression(count: int, kept: int) -> None:
    x = value = input_node(Aval((40,), F4), "x")
    for _ in range(count):  # one that is computed for every reader again would be 3 ** 20 nodes
        value = make("where", make("greater", value, x), value, make("multiply", value, x))
    graph = Graph((x,), (value,))
    reasons = materialise(graph, graph.nodes(), capabilities(host_spec()))[0]
    assert len(reasons) == kept, reasons


def test_a_node_that_is_read_at_two_places_counts_twice() -> None:
    """Each step of a chain reads the last one at two places: the tenth would compute the first a thousand times."""
    x = input_node(Aval((64, 8), F4), "x")
    value: Node = x
    for _ in range(12):
        at = [
            make("slice", value, starts=(k, 0), stops=(value.shape[0] - 1 + k, 8), steps=(1, 1)) for k in (0, 1)
        ]  # fmt: skip
        value = make("subtract", make("multiply", at[0], at[0]), at[1])
    graph = Graph((x,), (value,))
    chosen, _ = materialise(graph, graph.nodes(), capabilities(host_spec()))
    assert sum(reason == "the expression is long enough" for reason in chosen.values()) >= 2

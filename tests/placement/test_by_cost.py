"""Devices by cost: what is estimated, what is chosen, and that whatever is chosen computes what eager code does."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest

from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.graph.text import parse_graph
from hybridml_compiler.placement.by_cost import cheapest
from hybridml_compiler.placement.cut import least_sum
from hybridml_compiler.placement.performance import Performance, Work, copy_ns
from hybridml_compiler.placement.timeline import Costs, estimate, list_schedule
from hybridml_compiler.placement.units import units_of
from hybridml_compiler.targets.performance import cpu_performance, gpu_performance
from hybridml_compiler.targets.registry import find_target

HERE, THERE, OTHER = "cpu", "cuda:sim", "cuda:sim:1"


def speed(operations: float = 1e12, link: float = 10e9, latency: float = 1e-6, memory: float = 1e12) -> Performance:
    return Performance({4: operations}, {4: operations}, 1e12, 1e-6, latency, link, memory)


HOST = Performance({4: 1e10}, {4: 1e10}, 1e11, 1e-7)


def graph_of(text: str) -> Graph:
    return parse_graph(f"graph f{text}")


TWO_PRODUCTS = graph_of("""(%0: f32[256,256], %1: f32[256,256]) {
      %2 = matmul(%0, %0) : f32[256,256]
      %3 = exp(%2) : f32[256,256]
      %4 = matmul(%1, %1) : f32[256,256]
      %5 = exp(%4) : f32[256,256]
      return %3, %5
    }""")


def placed(graph: Graph, **speeds: Performance) -> set[str]:
    """The devices that compute a graph among the CPU and the first simulated GPU."""
    choice = cheapest(graph, [HERE, THERE], {HERE: HOST, THERE: speed()} | speeds)
    return set(choice.where.values())


# -- units


def test_what_one_launch_computes_is_one_unit() -> None:
    graph = graph_of("""(%0: f32[64,64], %1: f32[64]) {
          %2 = exp(%0) : f32[64,64]
          %3 = matmul(%2, %0) : f32[64,64]
          %4 = add(%3, %1) : f32[64,64]
          %5 = tanh(%4) : f32[64,64]
          %6 = sum(%5) {axis=(0,), keepdims=False} : f32[64]
          return %6
        }""")
    units = units_of(graph, dict.fromkeys(graph.nodes(), HERE)).all
    names = [[node.op.name for node in unit.nodes if node.op] for unit in units]
    assert names == [["exp"], ["matmul"], ["add", "tanh", "sum"]]
    product = next(unit for unit in units if "matmul" in [node.op.name for node in unit.nodes if node.op])
    assert product.work.products == {4: 2 * 64**3} and product.work.launches == 1


def test_calls_of_numpy_cost_their_copies_on_a_device() -> None:
    graph = graph_of("""(%0: f32[100,100]) {
          %1 = sort(%0) {axis=-1} : f32[100,100]
          return %1
        }""")
    ((unit,),) = (units_of(graph, dict.fromkeys(graph.nodes(), HERE)).all,)
    assert unit.work.host_calls == 1 and unit.work.host_bytes == 2 * 40_000
    extra = speed().nanoseconds(unit.work) - HOST.nanoseconds(unit.work)
    assert extra == round((2e-6 + 80_000 / 10e9) * 1e9)


def test_an_operation_with_several_results_is_one_unit() -> None:
    graph = graph_of("""(%0: f32[8,8]) {
          %1 = qr(%0) {mode="reduced", result=0} : f32[8,8]
          %2 = qr(%0) {mode="reduced", result=1} : f32[8,8]
          %3 = add(%1, %2) : f32[8,8]
          return %3
        }""")
    assert len(units_of(graph, dict.fromkeys(graph.nodes(), HERE)).all) == 2


# -- the choice


def test_a_faster_device_moves_the_cut() -> None:
    assert placed(TWO_PRODUCTS, **{THERE: speed(1e13)}) == {THERE}
    assert placed(TWO_PRODUCTS, **{THERE: speed(1e9)}) == {HERE}
    assert placed(TWO_PRODUCTS, **{THERE: speed(1e13, link=1e7)}) == {HERE}
    assert placed(TWO_PRODUCTS, **{THERE: speed(1e13, latency=1.0)}) == {HERE}
    assert placed(TWO_PRODUCTS, **{HERE: cpu_performance(10_000)}) == {HERE}


def test_devices_compute_side_by_side() -> None:
    speeds = {HERE: HOST, THERE: speed(3e10), OTHER: speed(3e10)}
    choice = cheapest(TWO_PRODUCTS, [HERE, THERE, OTHER], speeds)
    assert set(choice.where.values()) == {THERE, OTHER} and choice.chosen.name == "list schedule"
    assert choice.chosen.ns < min(other.ns for other in choice.others)


def test_a_way_that_pays_as_a_whole_is_found() -> None:
    """Each operation alone is cheaper where its operand is than a copy there and back; twelve of them are not."""
    lines = "".join(f"%{k} = matmul(%{k - 1}, %0) : f32[64,64]\n" for k in range(1, 13))
    graph = graph_of(f"(%0: f32[64,64]) {{\n{lines}return %12\n}}")
    assert placed(graph, **{THERE: speed(1e14, latency=50e-6)}) == {THERE}
    costs = Costs(
        units_of(graph, dict.fromkeys(graph.nodes(), HERE)),
        [HERE, THERE],
        {HERE: HOST, THERE: speed(1e14, latency=50e-6)},
    )
    assert set(list_schedule(costs)) == {HERE}


def test_results_and_operands_are_reckoned_with_where_they_are() -> None:
    text = """(%0: f32[256,256]@cuda:sim) {
          %1 = matmul(%0, %0) : f32[256,256]@cuda:sim
          return %1
        }"""
    assert placed(graph_of(text), **{THERE: speed(1e10)}) == {THERE}  # as fast as the CPU, without copies
    assert placed(graph_of(text), **{THERE: speed(1e7)}) == {HERE}


def test_what_has_no_room_is_elsewhere() -> None:
    assert placed(TWO_PRODUCTS, **{THERE: speed(1e13)}) == {THERE}
    assert placed(TWO_PRODUCTS, **{THERE: speed(1e13, memory=300_000)}) == {HERE}  # an operand or a result is 262144
    found = cheapest(TWO_PRODUCTS, [HERE, THERE], {HERE: HOST, THERE: speed(1e13, memory=300_000)})
    assert any("without room in memory" in line for line in found.lines())


def test_a_list_of_one_device_has_no_alternative() -> None:
    choice = cheapest(TWO_PRODUCTS, [THERE], {HERE: HOST, THERE: speed(1e5)})
    assert set(choice.where.values()) == {THERE} and not choice.others


# -- the least sum of times, and estimates


def random_graph(seed: int) -> Graph:
    """Products of products, of which some are wanted on the other device."""
    draw = random.Random(seed)
    home, place = draw.choice([HERE, THERE]), draw.choice([HERE, THERE])
    lines = ['%2 = transfer(%0) {device="cpu"} : f32[64,64]'] if home != HERE else ["%2 = exp(%1) : f32[64,64]"]
    lines += [f"%{k} = matmul(%{draw.randrange(1, k)}, %{draw.randrange(1, k)}) : f32[64,64]" for k in range(3, 9)]
    if place != HERE:
        lines.append('%9 = transfer(%7) {device="cuda:sim"} : f32[64,64]@cuda:sim')
    at = "" if home == HERE else "@cuda:sim"
    returned = f"%8, %{8 + (place != HERE)}, %{draw.randrange(3, 8)}"
    body = "\n".join([*lines, f"return {returned}"])
    return graph_of(f"(%0: f32[64,64]{at}, %1: f32[64,64]) {{\n{body}\n}}")


def summed(costs: Costs, where: Sequence[str]) -> int:
    """The time of all units and copies, one after the other."""
    units = costs.units
    total = sum(costs.unit_ns[k][device] for k, device in enumerate(where))
    for node in [*units.homes, *units.owner]:
        source = units.homes[node] if node in units.homes else where[units.owner[node]]
        readers = {where[k] for k in units.readers.get(node, [])} | {d for n, d in units.outputs if n is node}
        total += sum(costs.copy_ns(node, source, device) for device in readers)
    return total


@pytest.mark.parametrize("seed", range(20))
def test_the_cut_is_the_least_sum_of_two_devices(seed: int) -> None:
    graph = random_graph(seed)
    draw = random.Random(seed)
    speeds = {HERE: speed(draw.choice([1e10, 1e11])), THERE: speed(draw.choice([3e10, 3e11]), draw.choice([1e9, 1e10]))}
    costs = Costs(units_of(graph, dict.fromkeys(graph.nodes(), HERE)), [HERE, THERE], speeds)
    every = itertools.product([HERE, THERE], repeat=len(costs.units.all))
    assert summed(costs, least_sum(costs, [HERE] * len(costs.units.all))) == min(summed(costs, w) for w in every)


@pytest.mark.parametrize("seed", range(5))
def test_more_devices_take_turns(seed: int) -> None:
    graph = random_graph(seed)
    speeds = {HERE: speed(1e10), THERE: speed(3e11, 1e9), OTHER: speed(2e11, 1e10)}
    costs = Costs(units_of(graph, dict.fromkeys(graph.nodes(), HERE)), list(speeds), speeds)
    first = [HERE] * len(costs.units.all)
    found = least_sum(costs, first)
    best = min(summed(costs, w) for w in itertools.product(speeds, repeat=len(first)))
    assert best <= summed(costs, found) <= summed(costs, first)
    two = Costs(costs.units, [HERE, THERE], speeds)
    assert summed(costs, found) <= summed(costs, least_sum(two, first))


def test_an_estimate_is_the_longest_way() -> None:
    costs = Costs(
        units_of(TWO_PRODUCTS, {n: HERE for n in TWO_PRODUCTS.nodes()}), [HERE, THERE], {HERE: HOST, THERE: speed()}
    )
    one, two = (costs.unit_ns[k] for k in range(2))
    (value, _), _ = costs.units.outputs
    sent = costs.copy_ns(value, HERE, THERE)
    assert sent == copy_ns(HOST, speed(), 256 * 256 * 4) == 1000 + 26214
    assert estimate(costs, [HERE, HERE]) == (one[HERE] + two[HERE], True)
    assert estimate(costs, [THERE, HERE]) == (max(2 * sent + one[THERE], two[HERE]), True)


def test_each_program_takes_the_host_some_time() -> None:
    """Parts on one device that need nothing of another device are one program."""
    slow = Performance({4: 1e12}, {4: 1e12}, 1e12, 0, program=1e-3)
    costs = Costs(
        units_of(TWO_PRODUCTS, dict.fromkeys(TWO_PRODUCTS.nodes(), HERE)), [HERE, THERE], {HERE: HOST, THERE: slow}
    )
    assert [costs.programs_ns(where) for where in ([HERE, HERE], [THERE, HERE], [THERE, THERE])] == [0, 10**6, 10**6]
    chain = graph_of("""(%0: f32[8,8]) {
          %1 = matmul(%0, %0) : f32[8,8]
          %2 = matmul(%1, %0) : f32[8,8]
          %3 = matmul(%2, %1) : f32[8,8]
          return %3
        }""")
    costs = Costs(units_of(chain, dict.fromkeys(chain.nodes(), HERE)), [HERE, THERE], {HERE: slow, THERE: slow})
    every = [[THERE, THERE, THERE], [THERE, HERE, HERE], [THERE, HERE, THERE]]
    assert [costs.programs_ns(where) for where in every] == [10**6, 2 * 10**6, 3 * 10**6]


def test_the_choice_is_the_same_whatever_came_before() -> None:
    speeds = {HERE: HOST, THERE: speed(1e11, 1e9), OTHER: speed(1e11, 1e9)}
    found: list[Any] = []
    for _ in range(2):
        graph = random_graph(3)
        where = cheapest(graph, list(speeds), speeds).where
        found.append([where.get(node) for node in graph.nodes()])
    assert found[0] == found[1]


# -- the table


def test_times_are_of_launches_and_of_arithmetic_or_memory() -> None:
    fast = Performance({4: 1e9, 8: 1e8}, {4: 1e10}, 1e9, 1e-6)
    assert fast.nanoseconds(Work(2)) == 2000
    assert fast.nanoseconds(Work(0, {4: 1000}, nbytes=100)) == 1000
    assert fast.nanoseconds(Work(0, {4: 1000}, nbytes=5000)) == 5000
    assert fast.nanoseconds(Work(0, {8: 1000}, {4: 1000})) == 10_100


def test_speeds_of_targets() -> None:
    simulated = find_target(THERE).performance
    assert simulated.elements[4] == pytest.approx(19.5e12, rel=0.01)  # of an A100's data sheet, as those that follow
    assert simulated.elements[8] == pytest.approx(9.7e12, rel=0.01)
    assert simulated.products[2] == pytest.approx(312e12, rel=0.01) and simulated.bandwidth == 1555e9
    assert simulated.memory == 1 << 32
    host = find_target().performance
    assert host.latency == 0 and host.elements[4] > 0
    assert find_target("reference").performance.elements[4] < host.elements[4]
    assert find_target(OTHER).device is not find_target(THERE).device
    properties = find_target(THERE).device.driver.properties
    assert gpu_performance(properties).launch > cpu_performance(2).launch

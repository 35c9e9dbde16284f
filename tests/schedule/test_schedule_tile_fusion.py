"""Tile fusions: which launches become one, what has no memory then, and that they compute what the graph means."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.loops.ir import Kernel, KernelSpec
from hybridml_compiler.record import replace
from hybridml_compiler.schedule import cost
from hybridml_compiler.schedule.fusion.tile_fusion import TileFusion
from hybridml_compiler.schedule.launch import Plan
from hybridml_compiler.schedule.plan import make_plan
from hybridml_compiler.schedule.text import describe_plan
from hybridml_compiler.targets.reference.target import TARGET
from tests.support.closeness import assert_close
from tests.support.run_plan import run_plan
from tests.support.typical_graphs import Value, array, graph, op

HEADS, QUERIES, KEYS, WIDTH = 3, 40, 48, 16
MATRIX = HEADS * QUERIES * KEYS * 4


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """A limit that matrices of a test exceed, and operands do not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "CHAIN_BYTES", MATRIX // TARGET.capabilities.cores)
        yield


def check(built: Graph, runs: Callable[[KernelSpec], bool] = lambda _: True) -> tuple[Plan, list[TileFusion]]:
    """(the plan of a target that runs these fusions, its fusions); results are those of the graph's interpreter."""
    plan = make_plan(built, {}, replace(TARGET.capabilities, runs_tiles=runs))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(n.shape).astype(n.dtype) for n in built.inputs]
    expected = interpret(built, arrays)
    found = run_plan(plan, arrays, len(expected), {})
    assert found is not None
    for g, e in zip(found, expected, strict=True):
        assert_close(g, e)
    return plan, [launch.spec for launch in plan.launches if isinstance(launch.spec, TileFusion)]


def mT(x: Value) -> Value:
    return op("permute_dims", x, axes=(0, 2, 1))


def operands() -> tuple[list[Value], Value, Value]:
    """(queries, keys, values and a gradient; probabilities; the gradients of scores)"""
    q, g = (array(HEADS, QUERIES, WIDTH, name=name) for name in "qg")
    k, v = (array(HEADS, KEYS, WIDTH, name=name) for name in "kv")
    c, d = (array(HEADS, QUERIES, 1, name=name) for name in "cd")
    p = op("exp", op("tanh", q @ mT(k)) - c)
    return [q, k, v, g, c, d], p, p * (g @ mT(v) - d)


def test_matrices_between_products_have_no_memory() -> None:
    given, p, s = operands()
    q, k, _, g, *_ = given
    plan, (fusion,) = check(graph("gradients", given, [s @ k, mT(s) @ q, mT(p) @ g]))
    assert len(plan.launches) == 1 and len(fusion.stages) == 5 and plan.arena_bytes < MATRIX
    assert "tile by tile: " in describe_plan(plan) and "b1 = tiles 0" in describe_plan(plan)


def test_the_target_decides() -> None:
    given, _, s = operands()
    asked: list[KernelSpec] = []

    def refuses(fusion: KernelSpec) -> bool:
        asked.append(fusion)
        return False

    plan, fusions = check(graph("gradients", given, [s @ given[1]]), refuses)
    assert asked and not fusions and plan.arena_bytes >= MATRIX


def test_what_others_need_has_memory() -> None:
    given, p, s = operands()
    _, fusions = check(graph("gradients", given, [s @ given[1], p]))
    assert all(MATRIX not in fusion.scratch or len(fusion.stages) == 2 for fusion in fusions)


def test_a_nest_over_rows_is_among_the_launches() -> None:
    """It adds up a matrix, and makes the next one of it and of a product that has memory."""
    given, p, _ = operands()
    q, k, v, g, *_ = given
    s = p * (g @ mT(v) - p.sum(-1, keepdims=True))
    _, (fusion,) = check(graph("rows", given, [s @ k, mT(s) @ q]))
    assert [isinstance(stage.spec, Kernel) for stage in fusion.stages].count(True) == 1


def test_what_is_needed_from_outside_in_between_breaks_it_up() -> None:
    """A reader's result goes through a reduction of its own to a maker that reads the same matrix."""
    given, p, _ = operands()
    _, k, v, *_ = given
    middle = p @ k
    s = p * ((middle - middle.sum((1, 2), keepdims=True)) @ mT(v))
    _, fusions = check(graph("circle", given, [s @ k]))
    assert all(len(fusion.stages) < 4 for fusion in fusions)

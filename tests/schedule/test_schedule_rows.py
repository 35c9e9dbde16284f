"""Random programs over rows: softmax and its kind, with steps that leave the row, against the interpreter."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridml_compiler import pipeline
from hybridml_compiler.graph import facts
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.loops.ir import Kernel
from hybridml_compiler.loops.verify import verify_kernel
from hybridml_compiler.schedule import cost
from tests.support.examples import examples
from tests.support.random_graphs import same_bits
from tests.support.run_plan import plan_of, run_plan
from tests.support.typical_graphs import Value, array, graph, op

SHAPES = [(5,), (3, 7), (7, 7), (2, 3, 5), (17, 9), (1, 6), (4, 1), (3, 3, 3)]


def program(seed: int) -> tuple[Graph, dict[int, int]]:
    """Values of the full space, of rows (reduced axes kept as 1) and of columns (dropped), combined at random."""
    random = Random(seed)
    space = random.choice(SHAPES)
    first = random.randrange(len(space))
    axes = tuple(range(first, len(space)))
    row = tuple(1 if k in axes else n for k, n in enumerate(space))
    column = space[:first]
    dtype = random.choice(("f4", "i8"))
    inputs = [array(*shape, dtype=dtype) for shape in (space, space, row, column)]
    full, rows, columns = inputs[:2], inputs[2:3], inputs[3:]
    combine = ("add", "maximum", "minimum", "subtract") if dtype == "i8" else ("maximum", "divide", "minimum")
    reduce = ("sum", "max", "min") if dtype == "i8" else ("max", "min")
    for _ in range(4 + random.randrange(10)):
        match random.randrange(9):
            case 0 | 1:
                full.append(op(random.choice(combine), random.choice(full), random.choice(full)))
            case 2 | 3:
                full.append(op(random.choice(combine), random.choice(full), random.choice(rows)))
            case 4:
                rows.append(op(random.choice(reduce), random.choice(full), axis=axes, keepdims=True))
            case 5:
                columns.append(op(random.choice(reduce), random.choice(full), axis=axes, keepdims=False))
            case 6:
                rows.append(op(random.choice(combine), random.choice(rows), random.choice(rows)))
                columns.append(op(random.choice(combine), random.choice(columns), random.choice(columns)))
            case 7:
                rows.append(op("reshape", random.choice(columns), shape=row))
                columns.append(op("reshape", random.choice(rows), shape=column))
            case 8:
                full.append(_crossing(random.choice(full), space, random))
    every = [*full[2:], *rows[1:], *columns[1:]] or full
    outputs = [random.choice(every) for _ in range(1 + random.randrange(3))] + [full[-1]]
    donate: dict[int, int] = {}
    for k, source in enumerate(inputs):
        fits = [j for j, out in enumerate(outputs) if j not in donate and out.node.aval == source.node.aval]
        if fits and random.randrange(2):
            donate[random.choice(fits)] = k
    return graph(f"rows {seed}", inputs, outputs), donate


def _crossing(x: Value, space: tuple[int, ...], random: Random) -> Value:
    """A value of the same shape whose rows come from other rows."""
    axis = random.randrange(len(space))
    swapped = (*space[:-2], space[-1], space[-2]) if len(space) > 1 else space
    if len(space) > 1 and space == swapped and random.randrange(2):
        return op("permute_dims", x, axes=(*range(len(space) - 2), len(space) - 1, len(space) - 2))
    if random.randrange(2):
        one = tuple(1 if k == axis else n for k, n in enumerate(space))
        return op("broadcast_to", op("reshape", op("max", x, axis=axis), shape=one), shape=space)
    return op("flip", x, axis=axis)


def arrays(program: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(1, 9, n.shape).astype(n.dtype) for n in program.inputs]


def check(program: Graph, got: list[np.ndarray] | None) -> None:
    assert got is not None
    for k, (g, e) in enumerate(zip(got, interpret(program, arrays(program)), strict=True)):
        assert same_bits(g, e), f"{program.name}: output {k} is\n{g}\nexpected\n{e}"


@examples(300)
@given(st.integers(0, 1 << 30))
def test_plans_of_row_programs(seed: int) -> None:
    """Half of them keep every row that they can in scratch memory."""
    random_program, donate = program(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "EXPENSIVE", 0.0 if seed % 2 else facts.EXPENSIVE)
        plan = plan_of(random_program, donate)
    for launch in plan.launches:
        if isinstance(launch.spec, Kernel):
            verify_kernel(launch.spec)
    check(random_program, run_plan(plan, arrays(random_program), len(random_program.outputs), donate))


@examples(25)
@given(st.integers(0, 1 << 30))
def test_compiled_row_programs(seed: int) -> None:
    random_program, donate = program(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "PARALLEL_THRESHOLD_NS", 0.0)
        check(random_program, pipeline.compile(random_program, donate)(arrays(random_program)))


def test_a_sum_over_rows_of_folded_windows() -> None:
    """The gradient of a bias in front of pooling: each element of the row is a reduction of its own."""
    x, mask = array(2, 3, 4, 4, 2, 2), array(2, 3, 8, 8)
    folded = op("fold_windows", x, shape=(8, 8), stride=(2, 2))
    scaled = folded * mask
    built = graph("bias", [x, mask], [scaled, op("sum", scaled, axis=(2, 3)), op("max", folded, axis=(2, 3))])
    for launch in plan_of(built, {}).launches:
        if isinstance(launch.spec, Kernel):
            verify_kernel(launch.spec)
    check(built, run_plan(plan_of(built, {}), arrays(built), 3, {}))
    check(built, pipeline.compile(built, {})(arrays(built)))

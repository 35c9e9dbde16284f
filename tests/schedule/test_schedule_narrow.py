"""Products see through casts to operands in 16 and 8 bits: which they read as they lie, and which are cast first."""

from __future__ import annotations

import numpy as np
import pytest

from hybridml_compiler import dtypes, pipeline
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.passes import run_passes
from hybridml_compiler.record import replace
from hybridml_compiler.schedule.fusion.epilogue import Fused
from hybridml_compiler.schedule.kernels.gemm import Product
from hybridml_compiler.schedule.plan import Plan, make_plan
from hybridml_compiler.targets.cpu import capabilities
from hybridml_compiler.targets.cpu.spec import host_spec
from tests.support.run_plan import run_plan
from tests.support.typical_graphs import Value, array, graph, op

BF16 = "bfloat16"


def planned(program: Graph, *, narrow: bool = True) -> Plan:
    reads = capabilities.capabilities(host_spec()).reads_narrow if narrow else lambda _: False
    target = replace(
        capabilities.capabilities(host_spec()), has_library=lambda call: isinstance(call, Product), reads_narrow=reads
    )
    return make_plan(run_passes(program)[0], {}, target)


def products(plan: Plan) -> list[str]:
    """Dtypes in memory of the operands of each product, in order."""
    calls = [w.call if isinstance(w, Fused) else w for launch in plan.launches for w in launch.specs]
    pairs = [call.stored or (call.dtype, call.dtype) for call in calls if isinstance(call, Product)]
    return [" ".join(map(dtypes.short, pair)) for pair in pairs]


def wide(x: Value, dtype: str = "f4") -> Value:
    return op("astype", x, dtype=dtypes.canonical(dtype))


def turned(x: Value) -> Value:
    return op("permute_dims", x, axes=(1, 0))


def rounded(x: Value) -> Value:
    return op("astype", x, dtype=dtypes.canonical(BF16))


def check(program: Graph, plan: Plan) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, x.shape).astype(x.dtype) for x in program.inputs]
    for expected, got in zip(
        interpret(program, arrays), run_plan(plan, arrays, len(program.outputs), {}) or [], strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def test_a_product_of_bfloat16_is_one_launch() -> None:
    x, w, b = array(64, 96, dtype=BF16), array(80, 96, dtype=BF16), array(80, dtype=BF16)
    program = graph("narrow", [x, w, b], [rounded(wide(rounded(wide(x) @ wide(turned(w)))) + wide(b))])
    plan = planned(program)
    assert products(plan) == ["bf16 bf16"] and len(plan.launches) == 1
    check(program, plan)


@pytest.mark.parametrize("dtype", [BF16, "i1", "u1"])
def test_movements_on_both_sides_of_the_cast(dtype: str) -> None:
    x, w = array(4, 64, 96, dtype=dtype), array(96, 80, dtype=dtype)
    to = "f4" if dtype == BF16 else "i4"
    right = op("slice", turned(w), starts=(8, 0), stops=(72, 96))
    program = graph("narrow", [x, w], [wide(x, to) @ turned(wide(right, to))])
    plan = planned(program)
    name = dtypes.short(dtypes.canonical(dtype))
    assert products(plan) == [f"{name} {name}"] and len(plan.launches) == 1
    check(program, plan)


def test_what_is_rounded_before_a_product_lies_in_memory_rounded() -> None:
    x, w = array(64, 96), array(96, 80, dtype=BF16)
    program = graph("narrow", [x, w], [wide(rounded(op("tanh", x))) @ wide(w)])
    plan = planned(program)
    assert products(plan) == ["bf16 bf16"]
    assert [b.dtype.name for k in plan.launches[0].kernels for b in k.operands] == ["float32", BF16]


def test_what_several_products_read_is_kept_narrow_alone() -> None:
    """The forward product and the gradient of a weight read one activation, through one cast and a permutation."""
    x, w, v = array(96, 96), array(96, 96, dtype=BF16), array(96, 96, dtype=BF16)
    hidden = wide(rounded(op("tanh", x)))
    program = graph("narrow", [x, w, v], [hidden @ wide(w), turned(hidden) @ wide(v)])
    plan = planned(program)
    assert products(plan) == ["bf16 bf16"] * 2
    assert [b.dtype.name for k in plan.launches[0].kernels for b in k.operands] == ["float32", BF16]


def test_what_a_product_cannot_read_in_place_is_moved_narrow() -> None:
    x, w = array(64, 3, 96, dtype=BF16), array(96, 80, dtype=BF16)
    odd = op("reshape", op("slice", x, starts=(0, 1, 0), stops=(64, 3, 96)), shape=(96, 128))
    program = graph("narrow", [x, w], [wide(turned(op("slice", odd, starts=(0, 0), stops=(96, 80)))) @ wide(w)])
    plan = planned(program)
    assert products(plan) == ["bf16 bf16"] and len(plan.launches) == 2
    check(program, plan)


def test_float32_beside_bfloat16() -> None:
    x, w = array(64, 96), array(96, 80, dtype=BF16)
    program = graph("narrow", [x, w], [x @ wide(w), op("permute_dims", wide(w), axes=(1, 0)) @ turned(x)])
    plan = planned(program)
    assert products(plan) == ["f32 bf16", "bf16 f32"]
    check(program, plan)


def test_a_column_is_computed_as_a_row() -> None:
    x, w, v = array(3, 600, 300, dtype="u1"), array(300, dtype="i1"), array(3, 300, 1, dtype="i1")
    program = graph("narrow", [x, w, v], [wide(x, "i4") @ wide(w, "i4"), wide(x, "i4") @ wide(v, "i4")])
    plan = planned(program)
    assert [launch.spec.n for launch in plan.launches if isinstance(launch.spec, Product)] == [1800, 600]
    check(program, plan)


def test_what_is_cast_first() -> None:
    """Small products, those of other dtypes, and all on a machine without products of narrow operands."""
    small = array(8, 8, dtype=BF16)
    assert products(planned(graph("narrow", [small], [wide(small) @ wide(small)]))) == ["f32 f32"]
    x = array(96, 96, dtype=BF16)
    assert products(planned(graph("narrow", [x], [wide(x, "f8") @ wide(x, "f8")]))) == ["f64 f64"]
    program = graph("narrow", [x], [wide(x) @ wide(x)])
    plan = planned(program, narrow=False)
    assert products(plan) == ["f32 f32"]
    check(program, plan)
    i, j = array(96, 96, dtype="i1"), array(96, 96, dtype="i4")
    program = graph("narrow", [i, j], [wide(i, "i4") @ j])
    plan = planned(program)
    assert products(plan) == []
    check(program, plan)


def test_the_backend_computes_what_is_planned() -> None:
    rng = np.random.default_rng(0)
    x, w = array(64, 100, dtype="i1"), array(70, 100, dtype="i1")
    scale = array(70)
    program = graph("narrow", [x, w, scale], [wide(wide(x, "i4") @ turned(wide(w, "i4"))) * scale])
    arrays = [rng.integers(-128, 128, v.shape, dtype="i1") for v in program.inputs[:2]]
    arrays.append(rng.standard_normal(70).astype("f4"))
    (expected,), (got,) = interpret(program, arrays), pipeline.compile(run_passes(program)[0])(arrays)
    np.testing.assert_array_equal(got, expected)

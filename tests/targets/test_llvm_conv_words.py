"""Convolutions of narrow operands: every format, layout and edge, on this machine and on narrower ones, exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hybridml_compiler import dtypes, pipeline
from hybridml_compiler.aval import Aval
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, input_node
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.ops.convolution import convolution as op
from hybridml_compiler.passes import run_passes
from hybridml_compiler.schedule.fusion.epilogue import Fused
from hybridml_compiler.schedule.kernels.convolution import Convolution, Pixels, Weights
from hybridml_compiler.schedule.plan import Plan, make_plan
from hybridml_compiler.targets.cpu import capabilities
from hybridml_compiler.targets.cpu.kernels.low_precision import BYTES, PAIRS, SHORTS
from hybridml_compiler.targets.cpu.llvm.convolution.kernel import own_algorithm
from hybridml_compiler.targets.cpu.runtime import threads
from hybridml_compiler.targets.cpu.spec import CpuSpec, host_spec
from hybridml_compiler.targets.cpu.target import Cpu
from tests.support import cpus

pytestmark = pytest.mark.skipif(host_spec().vector_bits < 256, reason="without fused multiply-add fma is a call")

BF16 = ("bfloat16", "bfloat16")
KINDS = (BF16, ("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8"), ("int8", "uint8"))
NCHW, OIHW = (0, 3, 4, 1, 2), (2, 4, 3, 0, 1)
SAME: dict[str, Any] = {"padding": ((1, 1), (1, 1))}

# Shapes of x and w, the orders in which their axes lie in memory, parameters.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[Any, Any], dict[str, Any]]] = {
    "in place": ((2, 9, 14, 1, 64), (3, 3, 1, 64, 40), (None, None), SAME),
    "channels first": ((2, 9, 17, 1, 64), (3, 3, 1, 64, 50), (NCHW, OIHW), SAME),
    "no whole words": ((2, 9, 17, 1, 37), (3, 3, 1, 37, 50), (None, None), SAME),
    "no whole words, channels first": ((2, 9, 17, 1, 37), (3, 3, 1, 37, 50), (NCHW, (0, 1, 2, 4, 3)), SAME),
    "groups, in no useful order": ((2, 9, 10, 2, 19), (3, 3, 2, 19, 20), ((3, 4, 0, 1, 2), (4, 0, 1, 2, 3)), SAME),
    "a word a pixel": ((2, 20, 24, 1, 3), (7, 7, 1, 3, 70), (NCHW, None), {"stride": 2, "padding": ((3, 3), (3, 3))}),
    "small maps, result with channels first": (
        (5, 3, 4, 1, 64), (3, 3, 1, 64, 64), (None, None), {"channels_first": True, **SAME},
    ),
    "rows without a tap": ((3, 3, 4, 1, 32), (3, 3, 1, 32, 36), (None, None), {"padding": ((5, 4), (6, 4))}),
    "stride and dilation": (
        (2, 20, 22, 1, 32), (3, 3, 1, 32, 36), (None, None), {"stride": (2, 1), "dilation": (2, 3)},
    ),
}  # fmt: skip


def program(kinds: tuple[str, str], name: str) -> tuple[Graph, list[np.ndarray]]:
    """All values of 8 bits, and small ones that no order of additions rounds."""
    *shapes, orders, params = CASES[name]
    wide = dtypes.float32 if kinds == BF16 else dtypes.int32
    rng = np.random.default_rng(0)
    inputs, arrays, operands = [], [], []
    for shape, kind, order in zip(shapes, map(dtypes.canonical, kinds), orders, strict=True):
        low, high = (-4, 4) if kinds == BF16 else (np.iinfo(kind).min, np.iinfo(kind).max)
        values = rng.integers(low, high + 1, shape).astype(kind)
        array = values if order is None else np.ascontiguousarray(values.transpose(order))
        node = input_node(Aval(array.shape, kind))
        moved = node if order is None else make("permute_dims", node, axes=tuple(map(int, np.argsort(order))))
        inputs.append(node)
        arrays.append(array)
        operands.append(make("astype", moved, dtype=wide))
    return Graph(tuple(inputs), (make("convolution", *operands, **params),), "narrow"), arrays


def planned(graph: Graph, cpu: CpuSpec | None = None) -> Plan:
    return make_plan(run_passes(graph)[0], {}, capabilities.capabilities(cpu or host_spec()))


def computed(graph: Graph, arrays: list[np.ndarray], cpu: CpuSpec | None = None) -> np.ndarray:
    (found,) = pipeline.compile(run_passes(graph)[0], target=Cpu(cpu or host_spec()))(arrays)
    return np.asarray(found)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kinds", KINDS, ids=" by ".join)
def test_the_sums_are_exact(kinds: tuple[str, str], name: str) -> None:
    graph, arrays = program(kinds, name)
    (expected,) = interpret(graph, arrays)
    np.testing.assert_array_equal(computed(graph, arrays), expected)


@pytest.mark.parametrize("name", ["in place", "no whole words, channels first", "groups, in no useful order"])
@pytest.mark.parametrize("kinds", KINDS, ids=" by ".join)
def test_without_instructions_for_them(kinds: tuple[str, str], name: str) -> None:
    """8 bits are widened to pairs of 16, bfloat16 to float32, with the same results."""
    graph, arrays = program(kinds, name)
    (expected,) = interpret(graph, arrays)
    cpu = cpus.narrowed_host(256)
    calls = [spec for launch in planned(graph, cpu).launches for spec in launch.specs if isinstance(spec, Convolution)]
    assert len(calls) == 1 and (calls[0].stored is None) == (kinds == BF16)
    if kinds != BF16:
        found = own_algorithm(calls[0], cpu)
        assert found is not None and found[1].how is SHORTS
    np.testing.assert_array_equal(computed(graph, arrays, cpu), expected)


@pytest.mark.parametrize("kinds", KINDS, ids=" by ".join)
def test_which_format_and_what_is_packed(kinds: tuple[str, str]) -> None:
    features = host_spec().enabled if host_spec().vector_bits == 512 else frozenset()
    here = {
        PAIRS: kinds == BF16 and "avx512bf16" in features,
        BYTES: kinds[1] == "int8" and "avx512vnni" in features,
    }
    how = next((how for how, found in here.items() if found), None if kinds == BF16 else SHORTS)
    specs = [spec for launch in planned(program(kinds, "in place")[0]).launches for spec in launch.specs]
    call = next(spec for spec in specs if isinstance(spec, Convolution))
    if how is None:
        assert call.stored is None
        return
    found = own_algorithm(call, host_spec())
    assert found is not None and found[1].how is how
    packed = [type(spec) for spec in specs if isinstance(spec, Pixels | Weights)]
    assert packed == ([Pixels, Weights] if how is SHORTS else [Weights])


@pytest.mark.parametrize("kinds", [BF16, ("int8", "int8")], ids=" by ".join)
def test_bits_depend_neither_on_threads_nor_on_images(kinds: tuple[str, str]) -> None:
    """An image alone has the bits that it has in a batch, and sums are as near to exact ones as float32 allows."""
    graph, arrays = program(kinds, "in place")
    rng = np.random.default_rng(1)
    if kinds == BF16:
        arrays = [rng.standard_normal(a.shape).astype(a.dtype) for a in arrays]
    whole = computed(graph, arrays)
    before = threads.get_num_threads()
    try:
        threads.set_num_threads(1)
        np.testing.assert_array_equal(computed(graph, arrays), whole)
    finally:
        threads.set_num_threads(before)
    exact, scale = (
        op.eager(*(f(a.astype("f8")) for a in arrays), stride=1, dilation=1, **SAME) for f in (np.array, np.abs)
    )
    assert (np.abs(whole - exact) <= 9 * 64 * 2.0**-24 * scale).all()


@pytest.mark.parametrize("kinds", [BF16, ("uint8", "int8")], ids=" by ".join)
@pytest.mark.parametrize("name", ["in place", "groups, in no useful order", "rows without a tap"])
def test_a_result_that_its_epilogue_alone_reads_has_no_memory(kinds: tuple[str, str], name: str) -> None:
    graph, arrays = program(kinds, name)
    narrow = dtypes.canonical("bfloat16" if kinds == BF16 else "int8")
    (result,) = graph.outputs
    graph = Graph(
        graph.inputs, (make("astype", make("maximum", result, make("negative", result)), dtype=narrow),), name
    )
    plan = planned(graph)
    (call,) = [w for launch in plan.launches for w in launch.specs if isinstance(w, Fused)]
    assert isinstance(call.call, Convolution)
    if call.call.stored is not None:  # else another algorithm may compute it
        assert call.call.passing
        packed = sum(w.nbytes for launch in plan.launches for w in launch.specs if isinstance(w, Pixels | Weights))
        assert plan.arena_bytes <= packed + 256
    (expected,) = interpret(graph, arrays)
    np.testing.assert_array_equal(computed(graph, arrays), expected)


def test_convolutions_in_float32_of_operands_that_are_cast() -> None:
    """Gradients of weights, small groups and what is small altogether."""

    def calls(x: tuple[int, ...], w: tuple[int, ...], **params: Any) -> list[Convolution]:
        operands = [make("astype", input_node(Aval(s, dtypes.bfloat16)), dtype=dtypes.float32) for s in (x, w)]
        out = make("convolution", *operands, **params)
        graph = Graph(tuple(n.inputs[0] for n in operands), (out,), "cast")
        specs = [spec for launch in planned(graph).launches for spec in launch.specs]
        return [spec for spec in specs if isinstance(spec, Convolution)]

    for found in (
        calls((64, 14, 14, 1, 8), (14, 14, 1, 8, 64), **SAME),
        calls((2, 20, 20, 64, 1), (3, 3, 64, 1, 1), **SAME),
        calls((1, 5, 5, 1, 8), (3, 3, 1, 8, 8), **SAME),
    ):
        assert [c.stored for c in found] == [None]


@pytest.mark.parametrize("name", ["in place", "channels first", "a word a pixel"])
def test_code_for_other_machines_has_no_instructions_of_this_one(name: str) -> None:
    graph, _ = program(("int8", "int8"), name)
    emit: Callable[[], str]
    for emit in [module.emit for module in cpus.modules_of(graph, cpus.NEON)]:
        assert "x86" not in emit()


@pytest.mark.parametrize("groups", [1, 24])
def test_integers_of_32_bits_wrap(groups: int) -> None:
    rng = np.random.default_rng(0)
    shapes = (2, 9, 10, groups, 24 // groups), (3, 3, groups, 24 // groups, 24 // groups)
    arrays = [rng.integers(-(2**31), 2**31, s).astype("i4") for s in shapes]
    inputs = tuple(input_node(Aval(a.shape, a.dtype)) for a in arrays)
    graph = Graph(inputs, (make("convolution", *inputs, **SAME),), "wide")
    assert any(isinstance(w, Convolution) for launch in planned(graph).launches for w in launch.specs)
    (expected,) = interpret(graph, arrays)
    np.testing.assert_array_equal(computed(graph, arrays), expected)

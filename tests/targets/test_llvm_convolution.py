"""Our own convolutions: every size of edge, layout, stride, dilation, padding and width of vector, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hybridml_compiler import dtypes, pipeline
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, apply, graph_of
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import replace
from hybridml_compiler.schedule.fusion.epilogue import Fused
from hybridml_compiler.targets.cpu.kernels import conv_winograd
from hybridml_compiler.targets.cpu.kernels.conv_tiling import Machine
from hybridml_compiler.targets.cpu.runtime import threads
from hybridml_compiler.targets.cpu.spec import host_spec
from tests.support.convolution_cases import Case, machines
from tests.support.examples import every

pytestmark = pytest.mark.skipif(host_spec().vector_bits < 256, reason="without fused multiply-add fma is a call")


def one_and_many() -> list[Machine]:
    return [replace(machines()[0], cores=cores) for cores in (1, 64)]


CASES: dict[str, dict[str, Any]] = {
    "3x3": {"x": (2, 9, 17, 1, 5), "w": (3, 3, 1, 5, 37), "padding": ((1, 1), (1, 1))},
    "one image, odd": {"x": (1, 5, 31, 1, 7), "w": (3, 2, 1, 7, 50), "padding": ((1, 0), (0, 1))},
    "narrow maps": {"x": (5, 3, 4, 1, 6), "w": (3, 3, 1, 6, 20), "padding": ((1, 1), (1, 1))},
    "first layer": {
        "x": (2, 23, 25, 1, 3),
        "w": (7, 7, 1, 3, 24),
        "stride": 2,
        "padding": ((3, 3), (3, 3)),
        "x_order": (0, 3, 4, 1, 2),
        "w_order": (2, 4, 3, 0, 1),
    },
    "stride and dilation": {
        "x": (2, 19, 22, 1, 6),
        "w": (3, 3, 1, 6, 9),
        "stride": (2, 3),
        "dilation": (3, 2),
        "padding": ((3, 4), (5, 1)),
    },
    "groups": {"x": (2, 6, 7, 3, 5), "w": (3, 3, 3, 5, 18), "padding": ((1, 1), (1, 1)), "stride": (1, 2)},
    "cropped": {"x": (2, 9, 12, 1, 4), "w": (3, 3, 1, 4, 8), "padding": ((-1, 2), (-2, -1))},
    "rows without a tap": {"x": (1, 2, 3, 1, 5), "w": (2, 2, 1, 5, 4), "padding": ((4, 3), (5, 4))},
    "one row": {"x": (1, 1, 700, 1, 20), "w": (1, 3, 1, 20, 40), "padding": ((0, 0), (1, 1))},
    "two rows of planes": {"x": (1, 2, 601, 2, 9), "w": (2, 3, 2, 9, 33), "x_order": (0, 3, 4, 1, 2)},
    "pointwise": {"x": (2, 5, 9, 1, 33), "w": (1, 1, 1, 33, 40), "stride": 2},
    "gradient": {
        "x": (2, 8, 10, 1, 21),
        "w": (3, 3, 1, 21, 19),
        "padding": ((1, 1), (1, 1)),
        "w_order": (0, 1, 2, 4, 3),
        "flip": (0, 1),
    },
    "gradient of weights (o, c, kh, kw)": {
        "x": (2, 8, 10, 2, 21),
        "w": (3, 5, 2, 21, 19),
        "padding": ((1, 1), (2, 2)),
        "w_order": (2, 3, 4, 0, 1),
        "flip": (0, 1),
    },
    "weights in no useful order": {
        "x": (1, 4, 5, 2, 3),
        "w": (2, 2, 2, 3, 5),
        "w_order": (0, 4, 1, 3, 2),
        "flip": (3, 4),
    },
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("machine", machines(), ids=str)
def test_direct(name: str, machine: Machine) -> None:
    Case(**CASES[name]).direct(machine)


@pytest.mark.parametrize("name", CASES)
def test_direct_with_channels_first(name: str) -> None:
    expected = Case(**CASES[name]).direct(machines()[0])
    np.testing.assert_array_equal(Case(**CASES[name], channels_first=True).direct(machines()[0], apart=True), expected)


@pytest.mark.parametrize("name", ["3x3", "first layer", "gradient"])
def test_direct_float64(name: str) -> None:
    Case(**CASES[name], dtype=dtypes.float64).direct(machines()[-1])


@pytest.mark.parametrize("name", ["3x3", "first layer", "groups", "gradient", "one row"])
def test_bits_depend_neither_on_units_nor_on_the_width_of_a_vector(name: str) -> None:
    case = Case(**CASES[name])
    first, *others = (case.direct(machine, apart) for machine in machines() for apart in (False, True))
    for other in others:
        np.testing.assert_array_equal(other, first)


WINOGRAD: dict[str, dict[str, Any]] = {
    "even": {"x": (2, 8, 12, 1, 32), "w": (3, 3, 1, 32, 64), "padding": ((1, 1), (1, 1))},
    "odd": {"x": (3, 7, 5, 1, 48), "w": (3, 3, 1, 48, 37), "padding": ((1, 1), (1, 1))},
    "without padding": {"x": (2, 9, 6, 1, 32), "w": (3, 3, 1, 32, 33)},
    "wide padding": {"x": (1, 4, 3, 1, 32), "w": (3, 3, 1, 32, 40), "padding": ((3, 2), (2, 4))},
    "cropped": {"x": (1, 9, 8, 1, 32), "w": (3, 3, 1, 32, 40), "padding": ((-1, 0), (0, -2))},
    "gradient": {
        "x": (2, 6, 9, 1, 64),
        "w": (3, 3, 1, 64, 50),
        "padding": ((1, 1), (1, 1)),
        "w_order": (0, 1, 2, 4, 3),
        "flip": (0, 1),
    },
    "image (n, c, h, w)": {
        "x": (2, 5, 19, 1, 32),
        "w": (3, 3, 1, 32, 35),
        "padding": ((1, 1), (1, 1)),
        "x_order": (0, 3, 4, 1, 2),
    },
    "5x5": {"x": (2, 7, 12, 1, 32), "w": (5, 5, 1, 32, 45), "padding": ((2, 2), (2, 2))},
    "gradient of 5x5": {
        "x": (1, 9, 7, 1, 48),
        "w": (5, 5, 1, 48, 33),
        "padding": ((2, 2), (2, 2)),
        "w_order": (2, 3, 4, 0, 1),
        "flip": (0, 1),
    },
    "weights (o, c, kh, kw)": {
        "x": (2, 6, 9, 1, 64),
        "w": (3, 3, 1, 64, 50),
        "padding": ((1, 1), (1, 1)),
        "w_order": (4, 2, 3, 0, 1),
    },
}


@pytest.mark.parametrize("name", every(2, WINOGRAD))
def test_winograd(name: str) -> None:
    case = Case(**WINOGRAD[name])
    others = machines()[1:]  # each has the geometries in turn
    other = others[[*WINOGRAD].index(name) % len(others)] if others else machines()[0]
    whole, parts, turned = (conv_winograd.cut(case.convolution, machine) for machine in (*one_and_many(), other))
    first = case.winograd(whole)
    for plan in (parts, replace(whole, lines=1, rows=5), turned):
        np.testing.assert_array_equal(case.winograd(plan, apart=True), first)


@pytest.mark.parametrize("name", ["even", "odd", "wide padding", "5x5"])
def test_winograd_with_channels_first(name: str) -> None:
    first, last = Case(**WINOGRAD[name], channels_first=True), Case(**WINOGRAD[name])
    plan = conv_winograd.cut(first.convolution, machines()[0])
    np.testing.assert_array_equal(first.winograd(plan, apart=True), last.winograd(plan))


GRAPHS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "winograd": ((2, 16, 18, 1, 32), (3, 3, 1, 32, 48), {"padding": ((1, 1), (1, 1))}),
    "direct": ((3, 17, 15, 2, 19), (3, 3, 2, 19, 21), {"stride": 2, "padding": ((1, 1), (1, 1))}),
}


@pytest.mark.parametrize("channels_first", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_compiled_graph_with_an_epilogue(name: str, channels_first: bool) -> None:
    """The result plus itself squared, so that the epilogue reads what the kernel wrote, on any number of threads."""
    x, w, params = GRAPHS[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, np.float32) for shape in (x, w)]
    nodes = graph_of(arrays)
    y = apply(OPS["convolution"], nodes, {**params, "channels_first": channels_first})
    graph = Graph(tuple(nodes), (apply(OPS["add"], [y, apply(OPS["multiply"], [y, y], {})], {}),))
    executable = pipeline.compile(graph)
    assert any(isinstance(launch.spec, Fused) for launch in executable.launches)
    (expected,), count = interpret(graph, arrays), threads.get_num_threads()
    results = []
    try:
        for number in (1, 2, 3):
            threads.set_num_threads(number)
            results.append(executable(arrays)[0])
    finally:
        threads.set_num_threads(count)
    for result in results:
        np.testing.assert_array_equal(result, results[0])
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-3)

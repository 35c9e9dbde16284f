"""Convolutions of any number of images: one program by the kernels of known sizes, which computes what NumPy does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hybridml_compiler.aval import Aval
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, Node, constant, input_node
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.graph.sizes import at_sizes
from hybridml_compiler.loops.ir import KernelSpec
from hybridml_compiler.pipeline import compile
from hybridml_compiler.schedule.fusion.epilogue import Fused
from hybridml_compiler.schedule.kernels.convolution import Convolution
from hybridml_compiler.sizes.dims import symbol
from hybridml_compiler.sizes.guards import Guards, collecting
from hybridml_compiler.targets.base import Executable
from hybridml_compiler.targets.cpu.llvm.convolution.kernel import own_algorithm
from hybridml_compiler.targets.cpu.spec import host_spec
from tests.support.closeness import assert_close

pytestmark = pytest.mark.skipif(host_spec().vector_bits < 256, reason="without fused multiply-add fma is a call")

F4 = np.dtype("f4")
N = symbol("n", 8)
BATCHES = (2, 3, 5, 7, 8, 31, 32, 33, 64, 67)
PLANES, LAST = (0, 3, 4, 1, 2), (0, 1, 2, 3, 4)  # x in memory: (n, g, c, h, w), (n, h, w, g, c)
Sizes = dict[str, Any]

# name: the algorithm, its images' order in memory, sizes of the image, groups, channels, features, taps, parameters
CASES: dict[str, Sizes] = {
    "same": {"by": "direct", "image": (9, 17), "c": 5, "o": 37, "taps": (3, 3), "around": (1, 1)},
    "small maps": {"by": "direct", "image": (3, 4), "c": 6, "o": 20, "taps": (3, 3), "around": (1, 1)},
    "one pixel": {"by": "direct", "image": (1, 1), "c": 8, "o": 16, "taps": (3, 3), "around": (1, 1)},
    "first layer": {
        "by": "direct", "order": PLANES, "image": (15, 14), "c": 3, "o": 24, "taps": (5, 5), "stride": (2, 2),
        "around": (2, 2),
    },
    "dilated": {
        "by": "direct", "image": (11, 13), "c": 6, "o": 9, "taps": (3, 3), "stride": (2, 3), "around": (3, 2),
        "dilation": (3, 2),
    },
    "groups": {"by": "direct", "image": (6, 7), "g": 3, "c": 5, "o": 18, "taps": (3, 3), "around": (1, 1)},
    "of one axis": {"by": "direct", "image": (1, 60), "c": 7, "o": 20, "taps": (1, 5), "around": (0, 2)},
    "squares": {"by": "winograd", "image": (14, 15), "c": 64, "o": 64, "taps": (3, 3), "around": (1, 1)},
    "squares of planes": {
        "by": "winograd", "order": PLANES, "image": (14, 14), "c": 64, "o": 70, "taps": (3, 3), "around": (1, 1),
    },
    "depthwise": {"by": "depthwise", "image": (9, 10), "g": 24, "c": 1, "o": 1, "taps": (3, 3), "around": (1, 1)},
    "small groups": {"by": "depthwise", "image": (8, 7), "g": 8, "c": 4, "o": 4, "taps": (3, 3), "around": (1, 1)},
    "depthwise of planes": {
        "by": "planes", "order": PLANES, "to": PLANES, "image": (9, 20), "g": 6, "c": 1, "o": 1, "taps": (3, 3),
        "around": (1, 1),
    },
}  # fmt: skip


def permuted(x: Node, axes: tuple[int, ...]) -> Node:
    return make("permute_dims", x, axes=axes)


def parameters(stride: Any = (1, 1), around: Any = (0, 0), dilation: Any = (1, 1), **_: Any) -> Sizes:
    return {"stride": stride, "padding": tuple((n, n) for n in around), "dilation": dilation}


def operand(order: tuple[int, ...], *shape: Any) -> tuple[Node, Node]:
    """(an input whose axes have this order in memory, it as an array of this shape)."""
    given = input_node(Aval(tuple(shape[k] for k in order), F4), "x")
    return given, permuted(given, tuple(int(k) for k in np.argsort(order)))


def forward(batch: Any, case: Sizes) -> Graph:
    """relu(convolution + bias), with channels last or first."""
    order, g, c, o = case.get("order", LAST), case.get("g", 1), case["c"], case["o"]
    given, x = operand(order, batch, *case["image"], g, c)
    w, bias = input_node(Aval((*case["taps"], g, c, o), F4), "w"), input_node(Aval((g, o), F4), "bias")
    result = make("maximum", make("add", make("convolution", x, w, **parameters(**case)), bias), number(0))
    return Graph((given, w, bias), (permuted(result, case.get("to", LAST)),), "layer")


def gradient(batch: Any, case: Sizes) -> Graph:
    """The gradient of the weights, of cotangents with channels last."""
    order, g, c, o = case.get("order", LAST), case.get("g", 1), case["c"], case["o"]
    given, x = operand(order, batch, *case["image"], g, c)
    params = parameters(**case)
    sizes = zip(case["image"], case["taps"], params["stride"], params["padding"], params["dilation"], strict=True)
    pixels = [(n + low + high - d * (k - 1) - 1) // s + 1 for n, k, s, (low, high), d in sizes]
    sizes = zip(case["image"], case["taps"], params["stride"], params["padding"], params["dilation"], strict=True)
    around = tuple(
        (low, d * (k - 1) + s * (m - 1) + 1 - n - low) for m, (n, k, s, (low, _), d) in zip(pixels, sizes, strict=True)
    )
    cotangent = input_node(Aval((batch, *pixels, g, o), F4), "cotangent")
    exchanged = make(
        "convolution", permuted(x, (4, 1, 2, 3, 0)), permuted(cotangent, (1, 2, 3, 0, 4)), padding=around,
        stride=params["dilation"], dilation=params["stride"],
    )  # fmt: skip
    return Graph((given, cotangent), (permuted(exchanged, (1, 2, 3, 0, 4)),), "gradient")


def number(value: float) -> Node:
    return constant(np.asarray(value, F4))


def compiled(graph: Graph) -> Executable:
    with collecting(Guards()):
        return compile(graph)


def calls(executable: Executable) -> list[Convolution]:
    def call(spec: KernelSpec) -> KernelSpec:
        return spec.call if isinstance(spec, Fused) else spec

    found = [call(launch.spec) for launch in executable.launches]
    return [spec for spec in found if isinstance(spec, Convolution)]


def arrays_for(graph: Graph, images: int) -> list[np.ndarray]:
    rng = np.random.default_rng(images)
    return [rng.standard_normal(node.shape).astype(F4) for node in at_sizes(graph, {"n": images}).inputs]


def check(graph: Graph, by: str) -> None:
    executable = compiled(graph)
    assert executable.shapes is not None and not executable.shapes.guards, "the compiler itself needs no guard"
    (call,) = calls(executable)
    found = own_algorithm(call, host_spec())
    assert call.symbolic and call.symbols == ["n"] and found is not None and found[0].name == by
    for images in BATCHES:
        arrays = arrays_for(graph, images)
        (got,), (expected,) = executable(arrays), interpret(graph, arrays)
        assert_close(got, expected, f"{images} images", roundings=64)


@pytest.mark.parametrize("name", CASES)
def test_one_program_convolves_any_number_of_images(name: str) -> None:
    with collecting(Guards()):
        graph = forward(N, CASES[name])
    check(graph, CASES[name]["by"])


@pytest.mark.parametrize("name", CASES)
def test_one_program_sums_the_gradient_over_any_number_of_images(name: str) -> None:
    with collecting(Guards()):
        graph = gradient(N, CASES[name])
    check(graph, "gradient of weights")


@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_of_a_program_for_the_number_of_images(name: str) -> None:
    with collecting(Guards()):
        graph = forward(N, CASES[name])
    executable, compared = compiled(graph), 0
    for images in (2, 7, 33):
        arrays, exact = arrays_for(graph, images), compile(at_sizes(graph, {"n": images}))
        (call,) = calls(exact)
        found = own_algorithm(call, host_spec())
        if found is not None and found[0].name == CASES[name]["by"]:
            np.testing.assert_array_equal(executable(arrays)[0], exact(arrays)[0])
            compared += 1
    assert compared, "programs for given numbers go another way"

"""Our own depthwise convolution and the gradient of its weights, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hybridml_compiler import dtypes, pipeline
from hybridml_compiler.graph.ir import Graph, Node, apply, graph_of
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import replace
from hybridml_compiler.targets.cpu.kernels.conv_depthwise import depthwise_tiling_of, depthwise_units
from hybridml_compiler.targets.cpu.kernels.conv_depthwise_nchw import plane_units, planes_of
from hybridml_compiler.targets.cpu.kernels.conv_tiling import Machine
from hybridml_compiler.targets.cpu.kernels.conv_weights_blocking import weight_blocking_of
from hybridml_compiler.targets.cpu.llvm.convolution.depthwise import emit_depthwise
from hybridml_compiler.targets.cpu.llvm.convolution.depthwise_nchw import emit_planes
from hybridml_compiler.targets.cpu.spec import host_spec
from tests.support.convolution_cases import Case, exchanged, machines, run_gradient

pytestmark = pytest.mark.skipif(host_spec().vector_bits < 256, reason="without fused multiply-add fma is a call")

TORCH = (2, 4, 3, 0, 1)  # weights in memory: (g, o, c, kh, kw)
FIRST = (0, 3, 4, 1, 2)  # an image in memory: (n, g, c, h, w)

CASES: dict[str, dict[str, Any]] = {
    "3x3": {"x": (2, 9, 17, 37, 1), "w": (3, 3, 37, 1, 1), "padding": ((1, 1), (1, 1)), "w_order": TORCH},
    "stride": {"x": (2, 12, 15, 32, 1), "w": (3, 3, 32, 1, 1), "stride": 2, "padding": ((1, 1), (1, 0))},
    "5x5": {"x": (1, 7, 14, 20, 1), "w": (5, 5, 20, 1, 1), "padding": ((2, 2), (2, 2)), "w_order": TORCH},
    "7x7 on a small map": {"x": (3, 4, 3, 16, 1), "w": (7, 7, 16, 1, 1), "padding": ((3, 3), (3, 3))},
    "channels first": {
        "x": (2, 20, 19, 37, 1),
        "w": (3, 3, 37, 1, 1),
        "padding": ((1, 1), (1, 1)),
        "x_order": FIRST,
        "w_order": TORCH,
    },
    "channels first, stride and dilation": {
        "x": (2, 21, 22, 16, 1),
        "w": (3, 3, 16, 1, 1),
        "stride": (2, 3),
        "dilation": (3, 2),
        "padding": ((3, 4), (5, 1)),
        "x_order": FIRST,
    },
    "gradient of the input": {
        "x": (2, 8, 10, 21, 1),
        "w": (3, 3, 21, 1, 1),
        "padding": ((1, 1), (1, 1)),
        "w_order": TORCH,
        "flip": (0, 1),
    },
    "stride and dilation": {
        "x": (2, 19, 22, 18, 1),
        "w": (3, 3, 18, 1, 1),
        "stride": (2, 3),
        "dilation": (3, 2),
        "padding": ((3, 4), (5, 1)),
    },
    "groups of two": {"x": (2, 7, 9, 21, 2), "w": (3, 3, 21, 2, 2), "padding": ((1, 1), (1, 1)), "w_order": TORCH},
    "two features of a channel": {
        "x": (2, 7, 9, 21, 1),
        "w": (3, 3, 21, 1, 2),
        "padding": ((1, 1), (1, 1)),
        "stride": 2,
    },
    "groups of two, turned and reversed": {
        "x": (1, 7, 9, 8, 2),
        "w": (3, 2, 8, 2, 2),
        "padding": ((1, 1), (1, 0)),
        "w_order": (2, 3, 4, 0, 1),
        "flip": (0, 1),
    },
    "cropped": {"x": (2, 9, 12, 5, 1), "w": (3, 3, 5, 1, 1), "padding": ((-1, 2), (-2, -1))},
    "rows without a tap": {"x": (1, 2, 3, 9, 1), "w": (2, 2, 9, 1, 1), "padding": ((4, 3), (2, 3))},
}


def run(case: Case, machine: Machine, apart: bool = False) -> np.ndarray:
    plan = depthwise_tiling_of(case.convolution, machine)
    assert plan is not None
    count = depthwise_units(case.convolution, plan)
    ranges = [(k, k + 1) for k in reversed(range(count))] if apart else [(0, count // 3), (count // 3, count)]
    out = case.run(emit_depthwise, plan, ranges)
    case.check(out)
    return out


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("machine", machines(), ids=str)
def test_depthwise(name: str, machine: Machine) -> None:
    run(Case(**CASES[name]), machine)


def test_float64() -> None:
    run(Case(**CASES["3x3"], dtype=dtypes.float64), machines()[-1])


@pytest.mark.parametrize("name", ["3x3", "7x7 on a small map", "channels first"])
def test_bits_depend_neither_on_units_nor_on_the_width_of_a_vector(name: str) -> None:
    case = Case(**CASES[name])
    first, *others = (run(case, machine, apart) for machine in machines() for apart in (False, True))
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_it_has_the_bits_of_the_direct_kernel() -> None:
    case = Case(**CASES["stride"])
    np.testing.assert_array_equal(run(case, machines()[0]), case.direct(machines()[0]))


PLANES: dict[str, dict[str, Any]] = {
    "3x3": {"x": (2, 9, 37, 5, 1), "w": (3, 3, 5, 1, 1), "padding": ((1, 1), (1, 1)), "w_order": TORCH},
    "whole vectors": {"x": (1, 8, 48, 3, 1), "w": (3, 3, 3, 1, 1), "padding": ((1, 1), (1, 1))},
    "narrow": {"x": (3, 7, 5, 4, 1), "w": (3, 3, 4, 1, 1), "padding": ((1, 1), (1, 1))},
    "7x7 on a small map": {"x": (2, 4, 3, 6, 1), "w": (7, 7, 6, 1, 1), "padding": ((3, 3), (3, 3))},
    "one row, many pixels": {"x": (1, 1, 100, 2, 1), "w": (1, 5, 2, 1, 1), "padding": ((0, 0), (2, 1))},
    "dilation": {
        "x": (2, 19, 42, 3, 1),
        "w": (3, 3, 3, 1, 1),
        "dilation": (3, 2),
        "padding": ((3, 4), (5, 1)),
        "flip": (0, 1),
    },
    "cropped": {"x": (2, 9, 40, 3, 1), "w": (3, 3, 3, 1, 1), "padding": ((-1, 2), (-2, -1))},
    "pixels without a tap": {"x": (1, 2, 3, 4, 1), "w": (2, 2, 4, 1, 1), "padding": ((4, 3), (2, 9))},
}


@pytest.mark.parametrize("name", PLANES)
@pytest.mark.parametrize("machine", machines(), ids=str)
def test_planes(name: str, machine: Machine) -> None:
    check_planes(name, machine, dtypes.float32)


def test_planes_float64() -> None:
    check_planes("3x3", machines()[0], dtypes.float64)


def check_planes(name: str, machine: Machine, dtype: np.dtype) -> None:
    case = Case(**PLANES[name], x_order=FIRST, dtype=dtype)
    last = case.convolution
    case.convolution = replace(last, channels_first=True)
    plan = planes_of(case.convolution, machine)
    assert plan is not None
    count = plane_units(case.convolution, plan)
    out = case.run(emit_planes, plan, [(count // 3, count), (0, count // 3)])
    out = out.reshape(last.batch, last.groups, 1, *last.out_size).transpose(0, 3, 4, 1, 2)
    case.check(out)
    other = depthwise_tiling_of(last, machine)
    assert other is not None
    case.convolution = last
    np.testing.assert_array_equal(out, case.run(emit_depthwise, other, [(0, depthwise_units(last, other))]))


@pytest.mark.parametrize("axes", [(0, 2, 3, 1), (0, 1, 2, 3)], ids=["channels first", "channels last"])
def test_what_follows_a_depthwise_convolution_is_in_its_kernel(axes: tuple[int, ...]) -> None:
    """Whichever way its image and its result lie in memory."""

    def op(name: str, *inputs: Node, **params: Any) -> Node:
        return apply(OPS[name], list(inputs), params)

    rng = np.random.default_rng(0)
    image, kernel = rng.standard_normal((2, 6, 7, 40)).astype("f4"), rng.standard_normal((3, 3, 40, 1, 1)).astype("f4")
    back = tuple(int(k) for k in np.argsort(axes))
    arrays = [np.ascontiguousarray(image.transpose(back)), kernel]
    x, w = graph_of(arrays)
    inner = op("reshape", op("permute_dims", x, axes=axes), shape=(2, 6, 7, 40, 1))
    result = op("reshape", op("convolution", inner, w, padding=((1, 1), (1, 1))), shape=(2, 6, 7, 40))
    executable = pipeline.compile(Graph((x, w), (op("tanh", op("permute_dims", result, axes=back)),)))
    (launch,) = executable.launches
    assert "epilogue" in str(launch.spec)
    reference = OPS["convolution"].eager(image[..., None].astype("f8"), kernel.astype("f8"), 1, ((1, 1), (1, 1)), 1)
    np.testing.assert_allclose(executable(arrays)[0], np.tanh(reference[..., 0]).transpose(back), rtol=1e-5, atol=1e-6)


def gradient(**more: Any) -> dict[str, Any]:
    size = {"n": 3, "size": (9, 17), "groups": 37, "c": 1, "o": 1, "kernel": (3, 3), "padding": (1, 1)}
    return exchanged(**{**size, **more})


GRADIENTS: dict[str, dict[str, Any]] = {
    "3x3": gradient(),
    "stride": gradient(size=(12, 15), groups=64, stride=(2, 2)),
    "7x7": gradient(n=2, size=(9, 13), groups=20, kernel=(7, 7), padding=(3, 3)),
    "one vector, small maps": gradient(size=(2, 2), groups=6),
    "stride and dilation": gradient(n=2, size=(19, 22), stride=(2, 3), padding=(3, 5), dilation=(3, 2)),
    "one image": gradient(n=1),
    "groups of two": gradient(groups=21, c=2, o=2),
    "two features of a channel": gradient(groups=21, o=2, stride=(2, 2)),
    "cropped": gradient(padding=(-1, -2)),
}


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("machine", machines(), ids=str)
def test_gradient_of_weights(name: str, machine: Machine) -> None:
    case = Case(**GRADIENTS[name])
    plan = weight_blocking_of(case.convolution, machine)
    assert plan is not None and plan.group
    run_gradient(case, machine)


def test_bits_of_a_gradient() -> None:
    case = Case(**GRADIENTS["3x3"])
    first, *others = (run_gradient(case, machine, apart) for machine in machines() for apart in (False, True))
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_what_is_left_to_others() -> None:
    def takes(**case: Any) -> bool:
        return depthwise_tiling_of(Case(**case).convolution, machines()[0]) is not None

    assert takes(x=(1, 9, 9, 8, 1), w=(3, 3, 8, 1, 1))
    assert not takes(x=(1, 9, 9, 8, 2), w=(3, 3, 8, 2, 1))  # fewer features than channels
    assert not takes(x=(1, 9, 9, 8, 1), w=(3, 3, 8, 1, 3))  # a vector would end within a group
    assert not takes(x=(1, 9, 9, 4, 16), w=(3, 3, 4, 16, 16))  # a group fills the vector
    assert not takes(x=(2, 9, 9, 8, 1), w=(3, 3, 8, 1, 1), x_order=(3, 4, 1, 2, 0))  # images follow each other
    assert not takes(x=(1, 9, 40, 8, 1), w=(3, 17, 8, 1, 1))  # weights of a row do not fit the registers

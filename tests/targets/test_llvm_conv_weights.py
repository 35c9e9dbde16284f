"""Our own gradient of a convolution's weights: layouts, edges, blocks of pixels and widths of vector, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hybridml_compiler import dtypes
from hybridml_compiler.targets.cpu.kernels import conv_weights_blocking as limits
from hybridml_compiler.targets.cpu.kernels.conv_tiling import Machine
from hybridml_compiler.targets.cpu.kernels.conv_weights_blocking import weight_blocking_of
from hybridml_compiler.targets.cpu.llvm.convolution.kernel import own_algorithm
from hybridml_compiler.targets.cpu.spec import host_spec
from tests.support.convolution_cases import FIRST, Case, exchanged, machines, run_gradient

pytestmark = pytest.mark.skipif(host_spec().vector_bits < 256, reason="without fused multiply-add fma is a call")

CASES: dict[str, dict[str, Any]] = {
    "3x3": exchanged(2, (9, 17), 1, 21, 37, (3, 3), padding=(1, 1)),
    "first layer": exchanged(3, (23, 25), 1, 3, 24, (7, 7), stride=(2, 2), padding=(3, 3), x_order=FIRST),
    "three channels, many features": exchanged(2, (9, 8), 1, 3, 64, (3, 3), padding=(1, 1)),
    "one channel": exchanged(3, (12, 11), 1, 1, 20, (5, 5), padding=(2, 2)),
    "narrow maps": exchanged(5, (2, 2), 1, 30, 33, (3, 3), padding=(1, 1)),
    "one pixel": exchanged(3, (1, 1), 1, 5, 6, (3, 3), padding=(1, 1)),
    "stride and dilation": exchanged(2, (19, 22), 1, 16, 9, (3, 3), stride=(2, 3), padding=(3, 5), dilation=(3, 2)),
    "a gradient with channels first": exchanged(
        5, (9, 17), 2, 9, 37, (3, 3), padding=(1, 1), x_order=FIRST, w_order=(3, 2, 4, 0, 1)
    ),
    "channels first, few of them": exchanged(3, (5, 34), 1, 1, 20, (3, 3), padding=(1, 1), w_order=(3, 2, 4, 0, 1)),
    "one channel of a group": exchanged(2, (6, 7), 3, 1, 18, (3, 3), stride=(1, 2), padding=(1, 1)),
    "groups": exchanged(2, (6, 7), 3, 5, 18, (3, 3), stride=(1, 2), padding=(1, 1)),
    "one feature": exchanged(2, (6, 7), 1, 15, 1, (3, 3), padding=(1, 1)),
    "taps that meet nothing": exchanged(2, (3, 4), 1, 6, 7, (3, 3), padding=(5, 4)),
    "cropped": exchanged(2, (9, 12), 1, 4, 8, (3, 3), padding=(-1, -2)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("machine", machines(), ids=str)
def test_gradients(name: str, machine: Machine) -> None:
    run_gradient(Case(**CASES[name]), machine)


def test_float64() -> None:
    run_gradient(Case(**CASES["3x3"], dtype=dtypes.float64), machines()[-1])


@pytest.mark.parametrize("pixels", [5, 40, 100])
def test_blocks_are_added_up(pixels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BLOCK_PIXELS", pixels)  # of a row, of some rows, of some images
    monkeypatch.setattr(limits, "RESULT_BYTES", 1 << 11)
    case = Case(**exchanged(5, (8, 8), 1, 16, 20, (3, 3), padding=(1, 1)))
    plan = weight_blocking_of(case.convolution, machines()[0])
    assert plan is not None and np.prod(plan.blocks(case.convolution)) > 2
    assert plan.together < plan.units(case.convolution)
    run_gradient(case, machines()[0])


@pytest.mark.parametrize("name", ["3x3", "first layer", "groups", "a gradient with channels first"])
def test_bits_depend_neither_on_units_nor_on_the_width_of_a_vector(name: str) -> None:
    case = Case(**CASES[name])
    first, *others = (run_gradient(case, machine, apart) for machine in machines() for apart in (False, True))
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_what_is_taken_for_a_gradient() -> None:
    def chosen(**case: Any) -> str | None:
        found = own_algorithm(Case(**case).convolution, host_spec())
        return found[0].name if found else None

    assert all(chosen(**case) == "gradient of weights" for case in CASES.values())
    assert chosen(x=(2, 9, 17, 1, 5), w=(3, 3, 1, 5, 37)) == "direct"
    planes = {"x_order": (0, 3, 4, 1, 2), "w_order": (4, 3, 0, 1, 2), "padding": ((0, 0), (1, 1))}
    assert chosen(x=(1, 1, 100, 1, 64), w=(1, 3, 1, 64, 16), **planes) == "direct"  # a sound of many channels
    assert chosen(x=(1, 1, 100, 2, 64), w=(1, 3, 2, 64, 16), **planes) == "direct"
    assert chosen(**exchanged(2, (9, 17), 1, 21, 37, (3, 3), w_order=(4, 3, 2, 1, 0))) == "direct"  # rows adjacent

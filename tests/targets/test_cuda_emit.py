"""CUDA C from loop nests: golden texts, schedules and literals."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler import dtypes
from hybridml_compiler.loops.builder import LoopBuilder
from hybridml_compiler.loops.ir import Kernel
from hybridml_compiler.loops.text import parse_kernel, print_kernel
from hybridml_compiler.targets.cuda.emit.kernel import emit, unsupported
from hybridml_compiler.targets.cuda.emit.types import literal
from hybridml_compiler.targets.cuda.schedule import schedule
from tests.support.cuda import SIM, needs_nvrtc, sources

ROWS = np.zeros((8, 96), np.float32)


def scheduled(text: str) -> Kernel:
    return schedule(LoopBuilder(), parse_kernel(text))


SOFTMAX = """
kernel(b0: f32[768], b1: f32[768] out, row0: f32[96] scratch) {
  for i0 < 8 {
    t0 = i0 * 96
    s0 = reduce max over r0 < 96 of b0[t0 + r0]
    for i1 < 96 { row0[i1] = exp(b0[t0 + i1] - s0) }
    s1 = reduce add over r1 < 96 of row0[r1]
    for i2 < 96 { b1[t0 + i2] = row0[i2] / s1 }
  }
}"""
BROADCAST = """
kernel(b0: f32[768], b1: i32[96], b2: bool[768] out) {
  for i0 < 8 { for i1 < 96 {
    b2[i0 * 96 + i1] = floordiv(b1[i1], 3:i32) < cast(sqrt(b0[i0 * 96 + i1]), i32)
  } }
}"""
COLUMNS = """
kernel(b0: f64[768], b1: i64[4], b2: f64[96] out) {
  for i0 < 96 {
    s0 = reduce add over r0 < 4 of b0[index(b1[r0], 8, "rows") * 96 + i0]
    b2[i0] = s0
  }
}"""


@pytest.mark.parametrize(("name", "text"), [("softmax", SOFTMAX), ("broadcast", BROADCAST), ("columns", COLUMNS)])
def test_golden(name: str, text: str, golden: Callable[[str, str], None]) -> None:
    source = emit(scheduled(text))
    golden(f"cuda_{name}", f"// blocks of {source.block} threads, for {source.per_block} iterations\n{source.text}")


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (SOFTMAX, ["block", "thread", "thread", "thread", "thread"]),
        (BROADCAST, ["parallel"]),
        (COLUMNS, ["parallel"]),
        # a reduction of everything: one block
        ("kernel(x: f32[768], y: f32[1] out) { s = reduce add over r < 768 of x[r] y[0] = s }", ["thread"]),
        # a short row is one thread's, a long column a block's
        ("kernel(x: f32[24], y: f32[8] out) { for i < 8 { s = reduce add over r < 3 of x[i*3 + r] y[i] = s } }",
         ["parallel"]),
        ("kernel(x: f32[4096], y: f32[2] out) { for i < 2 { s = reduce add over r < 2048 of x[r*2 + i] y[i] = s } }",
         ["block", "thread"]),
        # loops side by side: one block
        ("kernel(x: f32[9], y: f32[4] out, z: f32[5] out) { for i < 4 { y[i] = x[i] } for j < 5 { z[j] = x[j + 4] } }",
         ["thread", "thread"]),
        # a scan beside a row stays with it, in one thread
        ("kernel(x: f32[96], y: f32[96] out) {"
         " s = reduce add over r < 96 of x[r] scan add over q < 96 { y[q] = x[q] * s } }", []),
        # rows in turn, in one thread
        ("kernel(x: f32[12] inout) { for i < 3 { for j < 4 { x[j] = x[j] + x[i*4 + j] } } }", []),
        ("kernel(x: f32[12], y: f32[12] out) { for i < 3 { scan add over r < 4 { y[i*4 + r] = x[i*4 + r] } } }",
         ["parallel"]),
    ],
)  # fmt: skip
def test_schedules(text: str, kinds: list[str]) -> None:
    printed = print_kernel(scheduled(text))
    assert re.findall(r" (parallel|block|thread|vector)\b", printed) == kinds, printed


def test_a_launch_has_blocks_for_its_iterations() -> None:
    rows, elements = emit(scheduled(SOFTMAX)), emit(scheduled(BROADCAST))
    assert (rows.block, rows.grid(8, 1024), rows.grid(8, 3)) == (128, 8, 3)
    assert (elements.block, elements.grid(768, 1024), elements.grid(1, 1024)) == (128, 6, 1)


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, dtypes.float32, "0.1f"),
        (-3.0, dtypes.float64, "-3.0"),
        (float("-inf"), dtypes.float32, "__uint_as_float(0xff800000u)"),
        (float("nan"), dtypes.float64, "__longlong_as_double(0x7ff8000000000000LL)"),
        (-(1 << 63), dtypes.int64, "(-9223372036854775807LL - 1)"),
        (-(1 << 31), dtypes.int32, "(-2147483647 - 1)"),
        ((1 << 64) - 1, dtypes.uint64, "18446744073709551615ULL"),
        (-5, dtypes.int8, "-5"),
        (True, dtypes.bool_, "true"),
        (1.5, dtypes.float16, "15872"),
    ],
)
def test_literals(value: float, dtype: np.dtype, text: str) -> None:
    assert literal(value, dtype) == text


def test_float_literals_have_all_bits() -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1000, np.uint64).astype(np.uint32).view(np.float32)
    for number in bits[np.isfinite(bits)]:
        assert np.float32(literal(number, dtypes.float32).rstrip("f")).tobytes() == number.tobytes()


def test_what_is_not_emitted_says_why() -> None:
    rows = scheduled(SOFTMAX.replace("768", "160000").replace("96", "20000"))
    assert unsupported(rows) == "its scratch memory is more than 40960 bytes"
    sums = parse_kernel("kernel(x: c64[4], y: c64[1] out) { s = reduce add over r < 4 of x[r] y[0] = s }")
    assert unsupported(sums) == "it combines complex numbers"
    assert unsupported(scheduled(SOFTMAX)) == ""


@needs_nvrtc
def test_text_is_without_headers_and_has_the_users_line() -> None:
    @hm.trace
    def f(x: hm.Tensor) -> hm.Tensor:
        return hm.functional.gelu(x) * 2  # the user's

    f(hm.tensor(ROWS).to(SIM))
    assert "// test_cuda_emit.py:" in f.llvm and "# the user's\n" in f.llvm
    assert "#include" not in f.llvm and "erf_f32(" in f.llvm


@needs_nvrtc
def test_values_are_exchanged_with_a_barrier() -> None:
    """A row that is handed on in shared memory is whole before it is read, and read before it is written again."""
    (source,) = sources(lambda x: hm.functional.softmax(x, -1), ROWS)
    lines = [line.strip() for line in source.text.split("row0[96];")[1].splitlines()]
    assert lines.count("__syncthreads();") == 2
    assert lines[lines.index("__syncthreads();") - 2].startswith("row0[i1] = ")

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
from hybridml_compiler.targets.cuda import nvrtc
from hybridml_compiler.targets.cuda.emit.kernel import emit, unsupported
from hybridml_compiler.targets.cuda.emit.types import literal
from hybridml_compiler.targets.cuda.schedule import schedule
from hybridml_compiler.targets.cuda.vectors import in_vectors
from tests.support.cuda import SIM, needs_nvrtc, same_bits

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

WIDE = """
kernel(b0: f32[1048576], b1: f64[1024], b2: bool[1048576] out) {
  for i0 < 1024 { for i1 < 1024 { b2[i0 * 1024 + i1] = cast(b0[i0 * 1024 + i1], f64) < b1[i1] } }
}"""
TURNED = """
kernel(b0: f32[1048576], b1: f32[1024], b2: f32[1048576] out) {
  for i0 < 1024 { for i1 < 1024 { b2[i0 * 1024 + i1] = b0[i1 * 1024 + i0] + b1[i1] } }
}"""


SUMS = """
kernel(b0: f32[65536], b1: f32[256] out) {
  for i0 < 256 {
    s0 = reduce add over r0 < 256 of b0[r0 * 256 + i0]
    b1[i0] = s0
  }
}"""
RUNNING = """
kernel(b0: f32[4096], b1: f32[4096] out) {
  for i0 < 4 { scan add over r0 < 1024 reverse { b1[i0 * 1024 + r0] = b0[i0 * 1024 + r0] } }
}"""
TEXTS = {"softmax": SOFTMAX, "broadcast": BROADCAST, "columns": COLUMNS, "wide": WIDE, "turned": TURNED, "sums": SUMS,
         "running": RUNNING}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), TEXTS.items())
def test_golden(name: str, text: str, golden: Callable[[str, str], None]) -> None:
    source = emit(scheduled(text))
    golden(f"cuda_{name}", f"// blocks of {source.block} threads, for {source.per_block} iterations\n{source.text}")


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (SOFTMAX, ["block", "thread", "thread", "thread", "thread"]),
        (BROADCAST, ["parallel"]),
        (COLUMNS, ["parallel"]),
        # a reduction of everything: one block, which loads vectors where they are aligned
        ("kernel(x: f32[768], y: f32[1] out) { s = reduce add over r < 768 of x[r] y[0] = s }", ["vector"]),
        ("kernel(x: f32[767], y: f32[1] out) { s = reduce add over r < 767 of x[r] y[0] = s }", ["thread"]),
        ("kernel(x: f32[769], y: f32[1] out) { s = reduce add over r < 768 of x[r + 1:i64] y[0] = s }", ["thread"]),
        ("kernel(x: bf16[768], y: bf16[1] out) { s = reduce argmax over r < 768 of cast(x[r], f32)"
         " y[0] = cast(cast(s, f32), bf16) }", ["vector"]),
        (SOFTMAX.replace("96", "800").replace("768", "6400"),
         ["block", "vector", "thread", "vector", "vector", "thread", "vector"]),
        # a short row is one thread's; columns, and short rows of several images, are those of squares of threads
        ("kernel(x: f32[24], y: f32[8] out) { for i < 8 { s = reduce add over r < 3 of x[i*3 + r] y[i] = s } }",
         ["parallel"]),
        ("kernel(x: f32[4096], y: f32[2] out) { for i < 2 { s = reduce add over r < 2048 of x[r*2 + i] y[i] = s } }",
         ["thread", "thread"]),
        ("kernel(x: f32[4096], y: f32[64] out) { for i < 64 { s = reduce add over r < 64 of x[r*64 + i] y[i] = s } }",
         ["block", "thread", "thread"]),
        ("kernel(x: f32[4096], y: f32[64] out) {"
         " for i < 64 { s = reduce add over n < 4, r < 16 of x[n*1024 + r*64 + i] y[i] = s } }",
         ["block", "thread", "thread"]),
        ("kernel(x: f32[5632], y: f32[4] out) {"
         " for i < 4 { s = reduce add over n < 32, p < 44 of x[n*176 + i*44 + p] y[i] = s } }",
         ["block", "thread", "thread"]),
        ("kernel(x: f32[4036], y: f32[1009] out) {"
         " for i < 1009 { s = reduce add over r < 4 of x[r*1009 + i] y[i] = s } }", ["parallel"]),
        # loops side by side: one block
        ("kernel(x: f32[9], y: f32[4] out, z: f32[5] out) { for i < 4 { y[i] = x[i] } for j < 5 { z[j] = x[j + 4] } }",
         ["thread", "thread"]),
        # a scan beside a row stays with it, in one thread
        ("kernel(x: f32[96], y: f32[96] out) {"
         " s = reduce add over r < 96 of x[r] scan add over q < 96 { y[q] = x[q] * s } }", []),
        # rows in turn, in one thread
        ("kernel(x: f32[12] inout) { for i < 3 { for j < 4 { x[j] = x[j] + x[i*4 + j] } } }", []),
        # neighbours in memory are loaded and stored at once, where there are enough of them and nothing is masked
        (WIDE, ["parallel", "vector"]),
        (WIDE.replace("f32[1048576]", "f32[1048577]").replace("b0[i0 * 1024 + i1]", "b0[i0 * 1024 + i1 + 1:i64]"),
         ["parallel"]),
        (WIDE.replace("b1[i1]", "b1[i1 if i1 > 2]"), ["parallel"]),
        (WIDE.replace("b1[i1]", "b1[floordiv(i1, 2)]"), ["parallel"]),
        ("kernel(x: f32[65536] inout) { for i < 65536 { x[i] = x[i] * x[i] } }", ["parallel", "vector"]),
        # what is read down and written along passes through shared memory, square by square
        (TURNED, ["block", "thread", "vector", "thread", "vector"]),
        (TURNED.replace("1024", "1000").replace("1048576", "1000000"), ["parallel"]),
        ("kernel(x: f32[1048576] inout) { for i < 1024 { for j < 1024 { x[i*1024 + j] = x[j*1024 + i] } } }", []),
        # long scans of neighbours are shared by a block
        ("kernel(x: f32[12], y: f32[12] out) { for i < 3 { scan add over r < 4 { y[i*4 + r] = x[i*4 + r] } } }",
         ["parallel"]),
        ("kernel(x: f32[900], y: f32[900] out) { for i < 3 { scan add over r < 300 { y[i*300 + r] = x[i*300 + r] } } }",
         ["block", "thread"]),
        ("kernel(x: f32[900], y: f32[900] out) { for i < 3 { scan add over r < 300 { y[r*3 + i] = x[r*3 + i] } } }",
         ["parallel"]),
    ],
)  # fmt: skip
def test_schedules(text: str, kinds: list[str]) -> None:
    printed = print_kernel(in_vectors(scheduled(text)))
    assert re.findall(r" (parallel|block|thread|vector)\b", printed) == kinds, printed


def test_a_launch_has_blocks_for_its_iterations() -> None:
    rows, elements = emit(scheduled(SOFTMAX)), emit(scheduled(BROADCAST))
    assert (rows.block, rows.grid(8, 1024), rows.grid(8, 3)) == (32, 8, 3)
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
@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_wide_accesses_are_of_sixteen_bytes(architecture: int) -> None:
    """In PTX each is one instruction, whose machine code takes few registers."""
    source = emit(scheduled("kernel(x: f32[65536], y: f32[65536] out) { for i < 65536 { y[i] = x[i] + 1.0:f32 } }"))
    ptx = nvrtc.compile(source.text, "ptx", architecture).code.decode()
    assert re.findall(r"(?:ld|st)\.global[.\w]*", ptx, re.ASCII) and not re.search(r"(?:ld|st)\.global(?!\.v4)", ptx)
    made = nvrtc.compile(source.text, "cubin", architecture)
    assert made.spills == 0 and made.registers <= 40


@needs_nvrtc
def test_operands_that_begin_anywhere() -> None:
    """Slices of a loop's operand begin where they do: the same kernel with narrow accesses runs on them."""
    x = hm.tensor(np.random.default_rng(0).standard_normal((3, 16385 * 4 - 1)).astype("f4"))

    def program(x: hm.Tensor) -> hm.Tensor:
        return hm.scan(lambda c, row: (c, hm.concat([row, row[:1]]) * 2), x[0, 0], x)[1]

    assert same_bits(hm.trace(program)(x.to(SIM)).cpu().numpy(), program(x).numpy())
    source = emit(scheduled(WIDE))
    assert source.alignment == 16 and "f32x2" in source.text
    narrow = emit(scheduled(WIDE), wide=False)
    assert narrow.alignment == 1 and "f32x2" not in narrow.text and "i1 < 2" in narrow.text


EXCHANGED = """
kernel(b0: f32[768], b1: f32[768] out, row0: f32[96] scratch) {
  for i0 < 8 {
    s0 = reduce max over r0 < 96 of b0[i0 * 96 + r0]
    for i1 < 96 { row0[i1] = b0[i0 * 96 + i1] - s0 }
    for i2 < 96 { b1[i0 * 96 + i2] = row0[95:i64 - i2] }
  }
}"""


def test_values_are_exchanged_with_a_barrier() -> None:
    """A row that is handed on in shared memory is whole before it is read, and read before it is written again."""
    lines = [line.strip() for line in emit(scheduled(EXCHANGED)).text.split("row0[96];")[1].splitlines()]
    assert lines.count("__syncthreads();") == 2
    assert lines[lines.index("__syncthreads();") - 2].startswith("row0[i1] = ")


@pytest.mark.parametrize("text", [SOFTMAX, SOFTMAX.replace("96", "1024").replace("768", "8192")])
def test_rows_are_loaded_and_computed_once(text: str) -> None:
    """A value that only the threads that stored it read again is neither in shared memory nor loaded again."""
    entry = emit(scheduled(text)).text.split('extern "C"')[1]
    assert "row0" not in entry and "__syncthreads" not in entry
    assert entry.count("b0[") == entry.count("exp_f32(") == 1


KEPT = """
kernel(b0: f32[768], b1: f32[768], b2: f32[768] inout) {
  for i0 < 8 {
    s0 = reduce add over r0 < 96 of b0[i0 * 96 + r0] * b1[i0 * 96 + r0]
    for i1 < 96 { b2[i0 * 96 + i1] = b0[i0 * 96 + i1] - s0 }
    s1 = reduce add over r1 < 96 of b2[i0 * 96 + r1]
    for i2 < 96 { b2[i0 * 96 + i2] = b1[i0 * 96 + i2] / s1 }
  }
}"""


def test_what_is_stored_is_read_again() -> None:
    """A row in memory that a loop has changed is not in registers."""
    assert emit(scheduled(KEPT)).text.count("b2[") == 3


def test_no_thread_keeps_more_than_it_may() -> None:
    """Longer rows have more threads, up to the most of a block; then they are loaded again."""
    sizes = {96: 32, 1024: 64, 8192: 512, 32768: 1024, 65536: 256}
    for size, threads in sizes.items():
        rows = f"""
kernel(b0: f32[{8 * size}], b1: f32[{8 * size}] out) {{
  for i0 < 8 {{
    s0 = reduce max over r0 < {size} of b0[i0 * {size} + r0]
    for i1 < {size} {{ b1[i0 * {size} + i1] = b0[i0 * {size} + i1] - s0 }}
  }}
}}"""
        source = emit(scheduled(rows))
        assert source.block == threads, source.text
        assert source.text.split('extern "C"')[1].count("b0[") == (1 if size < 65536 else 2)

"""Planted bugs: each generated kernel is broken in one place, which the simulator or the result must show."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from hybridml_compiler.loops.builder import LoopBuilder
from hybridml_compiler.loops.interpret import interpret_kernel
from hybridml_compiler.loops.ir import Kernel
from hybridml_compiler.loops.text import parse_kernel
from hybridml_compiler.targets.cuda.contraction.tiles import Tile
from hybridml_compiler.targets.cuda.emit.kernel import Source, emit
from hybridml_compiler.targets.cuda.schedule import schedule
from hybridml_compiler.targets.cuda.sim.memory import SimulatorError
from tests.support.cuda import launch, needs_nvrtc
from tests.support.cuda_calls import CallCase, ConvolutionCase, ProductCase
from tests.support.examples import every

pytestmark = needs_nvrtc
KERNELS = {
    "softmax": """kernel(b0: f32[1000], b1: f32[1000] out, row0: f32[100] scratch) {
      for i0 < 10 {
        s0 = reduce max over r0 < 100 of b0[i0 * 100 + r0]
        for i1 < 100 { row0[i1] = exp(b0[i0 * 100 + i1] - s0) }
        s1 = reduce add over r1 < 100 of row0[r1]
        for i2 < 100 { b1[i0 * 100 + i2] = row0[i2] / s1 }
      } }""",
    "kept": """kernel(b0: f32[1200], b1: f32[1200] out) {
      for i0 < 3 {
        s0 = reduce max over r0 < 400 of b0[i0 * 400 + r0]
        s1 = reduce add over r1 < 400 of exp(b0[i0 * 400 + r1] - s0)
        for i1 < 400 { b1[i0 * 400 + i1] = exp(b0[i0 * 400 + i1] - s0) / s1 }
      } }""",
    "twice": """kernel(b0: f32[600], b1: f32[600] out, row0: f32[100] scratch) {
      for i0 < 6 {
        s0 = reduce add over r0 < 100 of b0[i0 * 100 + r0]
        for i1 < 100 { row0[i1] = b0[i0 * 100 + i1] - s0 }
        for i2 < 100 { b1[i0 * 100 + i2] = row0[99:i64 - i2] * 2.0:f32 }
      } }""",
    "moments": """kernel(b0: f32[600], b1: f32[6] out) {
      for i0 < 6 {
        s0 = reduce add over r0 < 100 of b0[i0 * 100 + r0]
        s1 = reduce add over r1 < 100 of (b0[i0 * 100 + r1] - s0) * (b0[i0 * 100 + r1] - s0)
        b1[i0] = s1
      } }""",
    "transpose": """kernel(b0: f32[143], b1: f32[143] out) {
      for i0 < 143 { b1[i0] = b0[mod(i0, 13) * 11 + floordiv(i0, 13)] * 2.0:f32 + 1.0:f32 } }""",
    "columns": """kernel(b0: f64[160], b1: f64[20] out) {
      for i0 < 20 { s0 = reduce add over r0 < 8 of b0[r0 * 20 + i0] b1[i0] = s0 } }""",
    "position": """kernel(b0: f32[60], b1: i64[6] out) {
      for i0 < 6 { s0 = reduce argmax over r0 < 10 of b0[i0 * 10 + r0] b1[i0] = s0 } }""",
    "take": """kernel(b0: f32[40], b1: i64[9], b2: f32[45] out) {
      for i0 < 9 { for i1 < 5 { b2[i0 * 5 + i1] = b0[index(b1[i0], 8, "take") * 5 + i1] } } }""",
    "scan": """kernel(b0: i32[60], b1: i32[60] out) {
      for i0 < 6 { scan add over r0 < 10 { b1[i0 * 10 + r0] = b0[i0 * 10 + r0] } } }""",
    "total": "kernel(b0: f32[777], b1: f32[1] out) { s0 = reduce add over r0 < 777 of b0[r0] b1[0] = s0 }",
    "variances": """kernel(b0: f32[2560], b1: f32[40] out) {
      for i0 < 40 {
        s0 = reduce add over r0 < 64 of b0[r0 * 40 + i0]
        s1 = reduce add over r1 < 64 of (b0[r1 * 40 + i0] - s0) * (b0[r1 * 40 + i0] - s0)
        b1[i0] = s1
      } }""",
    "images": """kernel(b0: f32[777], b1: f32[3] out) {
      for i0 < 3 { s0 = reduce add over r0 < 37, r1 < 7 of b0[r0 * 21 + i0 * 7 + r1] b1[i0] = s0 } }""",
    "vectors": """kernel(b0: f32[1200], b1: f32[3] out) {
      for i0 < 3 { s0 = reduce add over r0 < 400 of b0[i0 * 400 + r0] b1[i0] = s0 } }""",
    "first": """kernel(b0: i32[1200], b1: i64[3] out) {
      for i0 < 3 { s0 = reduce argmax over r0 < 400 of b0[i0 * 400 + r0] b1[i0] = s0 } }""",
    "pairs": "kernel(b0: c64[300], b1: c64[1] out) { s0 = reduce add over r0 < 300 of b0[r0] b1[0] = s0 }",
    "running": """kernel(b0: i32[2400], b1: i32[2400] out) {
      for i0 < 2 { scan add over r0 < 1200 { b1[i0 * 1200 + r0] = b0[i0 * 1200 + r0] * 2:i32 } } }""",
    "back": """kernel(b0: i32[602], b1: i32[602] out) {
      for i0 < 2 { scan max over r0 < 301 reverse { b1[i0 * 301 + r0] = b0[i0 * 301 + r0] } } }""",
    "wide": """kernel(b0: f32[384], b1: f32[48], b2: f32[384] out) {
      for i0 < 8 { for i1 < 48 { b2[i0 * 48 + i1] = b0[i0 * 48 + i1] * 2.0:f32 + b1[i1] } } }""",
    "squares": """kernel(b0: f32[16384], b1: f32[16384] out) {
      for i0 < 128 { for i1 < 128 { b1[i0 * 128 + i1] = b0[i1 * 128 + i0] + 1.0:f32 } } }""",
    "padded": """kernel(b0: f32[20], b1: f32[30] out) {
      for i0 < 30 { b1[i0] = b0[i0 - 5 if and_(i0 >= 5, i0 < 25)] } }""",
}  # fmt: skip


@cache
def built(name: str) -> tuple[Kernel, Source]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hybridml_compiler.targets.cuda.schedule._LEAST_VECTORS", 16)  # small arrays are as large ones
        kernel = schedule(LoopBuilder(), parse_kernel(KERNELS[name]))
    return kernel, emit(kernel)


def buffers(kernel: Kernel) -> list[np.ndarray]:
    rng, made = np.random.default_rng(0), []
    for buffer in kernel.operands:
        values: Any = rng.standard_normal(int(buffer.size)) * 60  # so that a softmax is far from flat
        if buffer.dtype.kind == "i":
            values = rng.integers(-8, 8, int(buffer.size))  # the largest several times in a row
            values[-1] = 8  # for an axis of eight elements one too many
        made.append(values.astype(buffer.dtype))
    return made


def run(name: str, change: Callable[[str], str]) -> bool:
    """Whether the changed kernel gives the interpreter's result, to the last bit unless it adds up: with all of its
    blocks, and with two that take turns."""
    kernel, source = built(name)
    expected = buffers(kernel)
    status = interpret_kernel(kernel, expected)
    text = change(source.text)
    for blocks in (None, 2) if kernel.range is not None else (None,):
        found = buffers(kernel)
        for array, buffer in zip(found, kernel.operands, strict=True):
            if buffer.role == "out":
                array[...] = 77
        words = [np.zeros(1, np.int64)] * kernel.checked
        launch(text, source, [*found, *words], int(kernel.total), blocks)
        if any(int(word[0]) != status for word in words):
            return False
        for a, b in zip(found, expected, strict=True):
            some = 1e-5 if "add" in KERNELS[name] and a.dtype.kind in "fc" else 0.0  # sums have an order of their own
            if not np.allclose(a, b, rtol=some, atol=some * 0.1 * float(np.abs(b).max())):
                return False
    return True


@pytest.mark.parametrize("name", KERNELS)
def test_as_generated(name: str) -> None:
    assert run(name, lambda text: text)


def without(text: str, line: str, number: int) -> str:
    """A text without one of its lines that are the same."""
    parts = text.split(line)
    assert len(parts) > number + 1, f"there are {len(parts) - 1} of {line!r} in\n{text}"
    return line.join(parts[: number + 1]) + line.join(["", *parts[number + 1 :]])[len(line) :]


BARRIER = "__syncthreads();"
MUTANTS: list[tuple[str, str, str]] = [
    # wrong indices
    ("softmax", "h0[k3] / s1", "h0[k3 ^ 1] / s1"),
    ("softmax", "b1[t3] =", "b1[t3 + 1] ="),
    ("softmax", "k3 * 32", "k3 * 31"),
    ("softmax", "if (r0 < 100)", ""),
    ("softmax", "if (r3 < 100)", ""),
    ("moments", "if (r2 < 100)", ""),
    ("kept", "x0[k2].lane[v1]", "x0[k2].lane[v1 ^ 1]"),
    ("kept", "k0 * 32", "k0 * 32 + 1"),
    ("kept", "h0[k3][v2]", "h0[k3][0]"),
    ("kept", "k3 < 4", "k3 < 3"),
    ("transpose", "b1[i0] =", "b1[i0 + 1] ="),
    ("transpose", "i0 % 13 * 11", "i0 % 13 * 10"),
    ("columns", "r0 * 20 + i0", "r0 * 20 + r0"),
    ("columns", "r0 < 8", "r0 <= 8"),
    ("columns", "r0 < 8", "r0 < 7"),
    ("take", "i0 % 5", "i0 % 4"),
    ("total", "r0 = threadIdx.x", "r0 = threadIdx.x + 1"),
    ("wide", "b0[i0 / 12 * 48 + i0 % 12 * 4]", "b0[i0 / 12 * 48 + i0 % 12 * 4 + 1]"),
    ("wide", "b2[i0 / 12 * 48 + i0 % 12 * 4]", "b2[i0 / 12 * 48 + i0 % 12 * 4 + 2]"),
    ("wide", "b1[i0 % 12 * 4]", "b1[i0 % 11 * 4]"),
    ("wide", "i1 < 4", "i1 < 3"),
    ("wide", "x1.lane[i1]", "x1.lane[0]"),
    ("squares", "tile0[t4 * 65 + t5]", "tile0[t5 * 65 + t4]"),
    ("squares", "i1 % 16", "i1 % 15"),
    ("squares", "k0 < 4", "k0 < 3"),
    ("squares", "tile0[4160]", "tile0[4000]"),
    # wrong ranges, and threads that do the same
    ("transpose", "i0 < hi", "i0 <= hi"),
    ("transpose", "first = lo + blockIdx.x * (long long)blockDim.x + threadIdx.x", "first = lo + threadIdx.x"),
    ("transpose", "stride = gridDim.x * (long long)blockDim.x", "stride = blockDim.x"),
    ("softmax", "i0 += gridDim.x", "i0 += 1"),
    ("total", "if (threadIdx.x == 0) {\n    b1", "{\n    b1"),
    # wrong constants, operators and comparisons
    ("transpose", "* 2.0f + 1.0f", "* 2.0f + 1.0001f"),
    ("softmax", "0.49999994f", "0.49f"),
    ("softmax", "max.NaN", "min.NaN"),
    ("softmax", "s1 = 0.0f", "s1 = 0.01f"),
    ("position", "v0 > best0", "v0 < best0"),
    ("position", "s0 = r0;", "s0 = r0 + 1;"),
    ("scan", "total0 = 0", "total0 = 1"),
    ("take", "index < 0) index += size", "index < 0) index += 1"),
    ("take", "index < size", "index <= size"),
    ("take", "static", "#define atomicExch(a, b) 0\nstatic"),
    # wrong masks
    ("padded", "i0 >= 5", "i0 >= 4"),
    ("padded", "i0 < 25", "i0 < 26"),
    ("padded", "? b0", "|| true ? b0"),
    # wrong reductions of a block
    ("total", "step = 16", "step = 8"),
    ("total", "step = warps / 2", "step = warps / 4"),
    ("total", "warps - 1", "warps / 2 - 1"),
    ("total", "parts[threadIdx.x / 32] = value", "parts[threadIdx.x % 32] = value"),
    ("total", "threadIdx.x % 32 == 0", "threadIdx.x % 16 == 0"),
    # wrong squares of threads
    ("variances", "(r0 * 8 + i1 / 20) * 40", "(r0 * 7 + i1 / 20) * 40"),
    ("variances", "i1 % 20", "i1 % 19"),
    ("variances", "tile0[r1 * 20 + i2]", "tile0[r1 * 20]"),
    ("variances", "tile1[t1]", "tile1[0]"),
    ("variances", "b1[t0 + i4]", "b1[i4]"),
    ("variances", "tile2[160]", "tile2[150]"),
    ("images", "t0 < 37LL", "t0 < 36LL"),
    ("images", "t0 < 37LL", "true"),
    ("images", "i1 / 7", "i1 / 6"),
    ("vectors", "r0 < 100", "r0 < 99"),
    ("vectors", "r0 * 4]", "r0 * 4 + 1]"),
    ("vectors", "x0.lane[r1]", "x0.lane[r1 & 2]"),
    # wrong positions, parts and runs
    ("first", "place < at", "place > at"),
    ("first", "|| ((value == best) && place < at)", ""),
    ("first", "* 4 + r1", "* 4"),
    ("first", "best = parts[0], at = places[0]", "best = parts[0], at = 0"),
    ("pairs", "value.y, step", "value.x, step"),
    ("running", "if (lane >= step)", "if (lane > step)"),
    ("running", "lane == 31", "lane == 30"),
    ("running", "each < warp", "each <= warp"),
    ("running", "if (lane > 0) before", "before"),
    ("running", "run0 < 1200", "run0 < 1196"),
    ("running", "run0 < 1200", "run0 < 1204"),
    ("running", "part0[k0] = before0", "part0[k0] = x0.lane[k0]"),
    ("back", "300 - (chunk0", "299 - (chunk0"),
    ("back", "run0 >= 0", "run0 > 0"),
]  # fmt: skip


def caught(name: str, change: Callable[[str], str]) -> bool:
    try:
        return not run(name, change)
    except SimulatorError:
        return True


@pytest.mark.parametrize(("name", "old", "new"), MUTANTS, ids=[f"{n}: {new.strip()[:40]}" for n, _, new in MUTANTS])
def test_a_planted_bug_is_caught(name: str, old: str, new: str) -> None:
    assert built(name)[1].text.count(old) >= 1, f"there is no {old!r} in\n{built(name)[1].text}"
    assert caught(name, lambda text: text.replace(old, new))


# Those that nothing else makes up for: the parts of a reduction that are written, and read, and a row that is written.
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("softmax", 0),
        ("softmax", 2),
        ("moments", 0),
        ("moments", 1),
        ("twice", 2),
        ("squares", 0),
        ("squares", 1),
        ("variances", 0),
        ("variances", 1),
        ("variances", 2),
        ("first", 0),
        ("first", 1),
        ("running", 0),
        ("running", 1),
    ],
)
def test_a_missing_barrier_is_caught(name: str, number: int) -> None:
    """Lockstep alone would hide each of them."""
    assert caught(name, lambda text: without(text, BARRIER, number))


def test_a_barrier_that_some_threads_skip_is_caught() -> None:
    assert caught("twice", lambda text: text.replace(BARRIER, f"if (threadIdx.x < 64) {BARRIER}"))


BF16, F16 = "bfloat16 bfloat16", "float16 float16"
PRODUCTS: dict[str, CallCase] = {
    "threads": ProductCase(m=40, n=33, k=50),
    "turned": ProductCase(m=36, n=20, k=40, turned="ab", batch=(2, 2)),
    "bf16": ProductCase(m=72, n=48, k=80, stored=BF16, batch=(2,), tile=Tile(64, 64, 32, 2, 2, "bf16")),
    "bf16 turned": ProductCase(m=72, n=48, k=80, stored=BF16, turned="ab"),
    "f16 odd": ProductCase(m=37, n=47, k=79, stored=F16),
    "images": ConvolutionCase(images=(2, 9, 7), channels=(2, 8, 9), kernel=(3, 2), stride=(2, 1), padding=(1, 1)),
    "first": ConvolutionCase(images=(2, 6, 5), channels=(1, 5, 9), kernel=(3, 3), padding=(1, 1), first=True),
    "tf32": ProductCase(m=71, n=48, k=80, tf32=True),
}
PRODUCT_MUTANTS: list[tuple[str, str, str]] = [
    # copies that nobody waits for, are in no group, or in the wrong stage
    ("threads", "cp.async.wait_group 1", "cp.async.wait_group 2"),
    ("bf16", "cp.async.wait_group 1", "cp.async.wait_group 2"),
    ("threads", "      commit();\n", ""),
    ("threads", "int stage = step % 3", "int stage = 0"),
    ("bf16", "const int next = step + 2", "const int next = step + 1"),
    ("f16 odd", "int stage = step % 3", "int stage = step % 2"),
    # masks of edges
    ("threads", "i + turn * 4 < 40 && k < 50", "k < 50"),
    ("threads", "4 < 40 && k < 50", "4 < 40 && k <= 50"),
    ("threads", "i < 33 && k + turn * 4 < 50", "i < 33 && k + turn * 4 <= 50"),
    ("threads", "exists ? 4 : 0", "4"),
    ("threads", "if (i < 40", "if (i <= 40"),
    ("threads", "j < 33", "j <= 33"),
    ("turned", "if (i < 36 && ", "if ("),
    ("bf16", "k < 80", "k <= 80"),
    ("bf16", "i + turn * 32 < 72 && k", "i + turn * 32 <= 72 && k"),
    ("f16 odd", "< 37 && k < 79", "< 37"),
    ("tf32", "i < 71", "true"),
    # places of tiles, matrices and strides
    ("turned", "matrix * 1440LL", "matrix % 2 * 1440LL"),
    ("threads", "place / 3 * 16", "place / 2 * 16"),
    ("threads", "i * 50LL", "i * 49LL"),
    ("bf16", "matrix * 72 + i", "i"),
    ("threads", "next * 16)", "next * 15)"),
    # the edges of images, and places in them
    ("images", "* 2 + k / 16 - 1)", "* 2 + k / 16)"),
    ("images", "- 1) < 7u", "- 0) < 7u"),
    ("images", ") < 9u", ") < 10u"),
    ("images", "k / 8 % 2", "k / 8 % 3"),
    ("images", "matrix * 9 + j", "j"),
    ("first", "j / 30 * 9", "j / 30 * 8"),
    ("first", "(unsigned int)(i % 5", "(unsigned int)(i % 6"),
    ("first", "k / 3 % 3", "k / 3 % 2"),
    # operands and sums in the place of others
    ("threads", "[i], y[at % 2][j]", "[j], y[at % 2][i]"),
    ("bf16", "sums[i][j], x[i], y[j]", "sums[i][j], x[i], y[j ^ 1]"),
    ("threads", "j % 2] = sums[i][j]", "j % 2] = sums[j][i]"),
    ("threads", "thread_column + j % 2] = sums", "thread_row + j % 2] = sums"),
    # layouts of fragments
    ("bf16", "lane % 16][k + lane / 16 * 8]", "lane % 16][k + lane / 8 % 2 * 8]"),
    ("bf16", "lane % 16][k + lane / 16 * 8]", "lane % 8][k + lane / 16 * 8]"),
    ("bf16", ".x4.trans", ".x4"),
    ("bf16 turned", ".x4.trans", ".x4"),
    ("bf16 turned", ".x4.shared", ".x4.trans.shared"),
    ("bf16 turned", "lane / 8 % 2 * 8]", "lane / 16 * 8]"),
    ("bf16", 'x[0]), "r"(x[1]), "r"(x[2])', 'x[0]), "r"(x[2]), "r"(x[1])'),
    ("f16 odd", '"r"(y[0]), "r"(y[1])', '"r"(y[1]), "r"(y[0])'),
    ("f16 odd", "f32.f16.f16.f32", "f32.bf16.bf16.f32"),
    ("tf32", "e % 2 * 8][k + lane % 4 + e / 2 * 4", "e / 2 * 8][k + lane % 4 + e % 2 * 4"),
    ("tf32", "k + lane % 4 + e * 4", "k + lane % 4 * 2 + e"),
    ("bf16", "lane / 4 + c / 2 * 8", "lane / 4 + c % 2 * 8"),
    ("tf32", "lane % 4 * 2 + c % 2", "lane % 4 + c % 2 * 4"),
    ("bf16", "(i - 0) * 32", "(i - 0) * 16"),
    ("bf16", "k < 32; k += 16", "k < 16; k += 16"),
    # lanes that are not there, and addresses that are not aligned
    ("bf16", "multiply(sums", "if (lane < 31) multiply(sums"),
    ("bf16", "[k + lane / 16 * 8]", "[k + lane / 16 * 8 + 1]"),
]  # fmt: skip


def product_caught(name: str, change: Callable[[str], str]) -> bool:
    """Whether an error of the simulator or of the result shows, with a block for each tile or two that take turns."""
    case = PRODUCTS[name]
    text = change(case.source.text)
    assert text != case.source.text, case.source.text
    try:
        return any(case.error(text, blocks) > case.bound for blocks in (2, None))
    except SimulatorError:
        return True


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_as_generated(name: str) -> None:
    case = PRODUCTS[name]
    assert all(case.error(case.source.text, blocks) <= case.bound for blocks in (2, None))


# A second each: one in three runs always.
@pytest.mark.parametrize(("name", "old", "new"), every(3, PRODUCT_MUTANTS))
def test_a_planted_bug_of_a_product_is_caught(name: str, old: str, new: str) -> None:
    assert product_caught(name, lambda text: text.replace(old, new))


@pytest.mark.parametrize("name", ["threads", "bf16"])
@pytest.mark.parametrize("number", range(4))
def test_a_missing_barrier_of_a_product_is_caught(name: str, number: int) -> None:
    """Before a step, between the last step and the sums, between these and the result, and before the next tile."""
    assert product_caught(name, lambda text: without(text, BARRIER, number))

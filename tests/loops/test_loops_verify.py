"""Broken kernels are refused, each with the message that says what is broken; and loops mean what they say."""

from __future__ import annotations

import numpy as np
import pytest

from hybridml_compiler import dtypes
from hybridml_compiler.errors import CompileError
from hybridml_compiler.loops.builder import LoopBuilder
from hybridml_compiler.loops.interpret import interpret_kernel
from hybridml_compiler.loops.ir import Buffer, For, Kernel, Reduce, Store
from hybridml_compiler.loops.text import parse_kernel
from hybridml_compiler.loops.verify import verify_kernel
from hybridml_compiler.record import replace

HEAD = "kernel(x: f32[12], n: i64[4], u: i32[4], m: bool[4], o: f32[12] out)"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("for i < 12 { x[i] = o[i] }", "a load of o, which is only written"),
        ("for i < 12 { x[i] = 0.0:f32 }", "a store to x, which is only read"),
        ("for i < 12 { o[i] = 0 }", "a store of i64 to o, which is f32"),
        ("for i < 12 { o[i] = x[i] + n[0] }", "add takes operands of one dtype of kind i/u/f, got float32, int64"),
        ("for i < 4 { o[i] = x[u[i]] }", "an index of i32; indices are i64"),
        ("for i < 4 { o[u[i]] = x[i] }", "an index of i32; indices are i64"),
        ("for i < 4 { o[i] = x[i if n[i]] }", "a mask of i64; a mask is one bool"),
        ("for i < 13 { o[i] = 0.0:f32 }", "a store to 0..12 of o, which has 12 elements"),
        ("for i < 3 { for j < 5 { o[i * 5 + j] = 0.0:f32 } }", "a store to 0..14 of o, which has 12 elements"),
        ("for i < 12 { o[i] = x[i - 1] }", "a load of -1..10 of x, which has 12 elements"),
        ("for i < 12 { o[i] = x[12 - i] }", "a load of 1..12 of x, which has 12 elements"),
        ("for i < 3 vector { for j < 4 vector { o[i * 4 + j] = 0.0:f32 } }", "a vector loop over"),
        (
            "for i < 3 vector { s = reduce add over r < 4 vector of x[r] o[i] = s }",
            "a vector reduction over i1 inside",
        ),
        ("for i < 3 thread { s = reduce add over r < 4 thread of x[r] o[i] = s }", "a thread reduction over i1 inside"),
        ("s = reduce add over r < 4 block of x[r] o[0] = s", "a block reduction over i0: its parts cannot be combined"),
        (
            "for i < 3 vector { for j < 4 thread { o[i * 4 + j] = 0.0:f32 } }",
            "a thread loop over i1 inside",
        ),
        (
            "for i < 3 parallel { for j < 4 block { o[i * 4 + j] = 0.0:f32 } }",
            "a block loop over i1 inside",
        ),
        ("o[0] = x[0] for i < 3 parallel { o[i] = x[i] }", "the parallel loop over i0 has statements beside it"),
        ("s = reduce xor over r < 4 of n[r] o[s] = 0.0:f32", "a reduction cannot combine i64 by 'xor'"),
        ("s = reduce add over r < 4 of m[r] o[0] = select(s, x[0], x[1])", "a reduction cannot combine bool by 'add'"),
        ("s = reduce and over r < 4 of n[r] o[s] = 0.0:f32", "a reduction cannot combine i64 by 'and'"),
        ("scan argmax over r < 4 { o[r] = x[r] }", "a scan cannot combine f32 by 'argmax'"),
        (
            "scan add over r < 4 vector { o[r] = x[r] }",
            "a vector scan over i0: it runs in order, or is shared by threads",
        ),
        (
            "for i < 3 thread { scan add over r < 4 thread { o[i * 4 + r] = x[r] } }",
            "a thread scan over i1 inside of the thread loop over i0",
        ),
        ("s = reduce mul over r < 4 of pair(x[r], x[r]) o[0] = real(s)", "a reduction cannot combine c64 by 'mul'"),
        ("for i < 12 parallel { o[0] = x[i] }", "every iteration over i0 stores to the same place of o"),
        ("for i < 12 vector { o[0] = x[i] }", "every iteration over i0 stores to the same place of o"),
        ("scan add over r < 4 { o[0] = x[r] }", "every iteration over i0 stores to the same place of o"),
        ("for i < 4 { o[i] = not_(x[i]) }", "not_ takes operands of one dtype of kind b/i/u, got float32"),
        ("for i < 4 { o[i] = select(n[i], x[i], x[i]) }", "select: the condition must be bool, got int64"),
        ("for i < 4 { o[i] = cast(exp(n[i]), f32) }", "exp takes one float dtype, got i64"),
        ("for i < 4 { o[i] = bitcast(n[i], f32) }", "bitcast needs equal widths, got int64 to float32"),
        ("for i < 4 { o[i] = table(n[i], f32) }", "a table without values"),
        ("for i < 4 { }", "the loop over i0 does nothing"),
        (
            "for i < 3 { for j < 4 parallel { o[i * 4 + j] = 0.0:f32 } }",
            "a parallel loop over i1 inside of",
        ),
        ("t = while(n[0], c = 1) { yield c < 2, c } o[carry(t, 0)] = x[0]", "a loop that starts with (i64, i64)"),
        ("t = while(true, c = 1) { yield c, c } o[carry(t, 0)] = x[0]", "a step of it makes (i64, i64)"),
        ("t = while(true, c = 1) { yield c < 2, 1.0:f32 } o[carry(t, 0)] = x[0]", "a step of it makes (bool, f32)"),
        ("t = while(true, c = 1) { yield n[c] < 2, c } o[carry(t, 0)] = x[0]", "n[param0] in a loop, which reads"),
        (
            "t = while(true, c = 1) { yield c + 1.5:f32 < 2, c } o[carry(t, 0)] = x[0]",
            "add takes operands of one dtype",
        ),
    ],
)
def test_a_broken_kernel_is_refused(body: str, message: str) -> None:
    kernel = parse_kernel(f"{HEAD} {{ {body} }}")
    with pytest.raises(CompileError, match="verify: a kernel after a test is broken: ") as caught:
        verify_kernel(kernel, "a test")
    assert message in str(caught.value)
    assert "   1 kernel(x: f32[12]" in str(caught.value)


def test_an_unknown_range_is_not_judged() -> None:
    """Bounds of a data-dependent, divided or masked index are the business of the check at run time."""
    body = 'for i < 12 { o[floordiv(i * 24, 24)] = x[index(n[mod(i, 4)], 12, "take")] + x[i - 5 if i >= 5] }'
    verify_kernel(parse_kernel(f"{HEAD} {{ {body} }}"))


def test_what_text_cannot_say() -> None:
    s, out = LoopBuilder(), Buffer("o", dtypes.float32, 4, "out")
    i, j, zero = s.var("i", 4), s.var("j", 4), s.const(0.0, dtypes.float32)
    loop = For(i, (Store(out, i, zero),))
    good = Kernel((out,), (loop,))
    verify_kernel(good)
    for kernel, message in (
        (replace(good, body=(loop, loop)), "i0 is defined twice"),
        (replace(good, body=(For(i, (Store(out, j, zero),)),)), "j1 is used outside of its scope"),
        (replace(good, buffers=(out, out)), "two buffers have one name"),
        (replace(good, buffers=()), "buffer o is not the kernel's"),
        (replace(good, buffers=(replace(out, size=0),)), "buffer o has 0 elements"),
        (replace(good, lanes=0), "0 lanes, granule 1"),
        (replace(good, body=(For(i, (Store(out, i, s.emit("rarely", s.const(True, dtypes.bool_), zero, zero)),)),)),
         "'rarely' is neither an instruction"),
        (replace(good, body=(For(i, (Store(out, s.param(0, dtypes.int64), zero),)),)), "param0 is used outside"),
        (replace(good, body=(For(i, (Store(out, s.emit("carry", i, dtype=dtypes.int64, attr=0), zero),)),)),
         "carry 0 of var"),
        (Kernel((out,), (Reduce(s.reduction_result("add", zero, ()), "add", (), zero),)), "a loop over no variable"),
    ):  # fmt: skip
        with pytest.raises(CompileError) as caught:
            verify_kernel(kernel)
        assert message in str(caught.value)


def test_results_are_used_after_they_are_defined() -> None:
    kernel = parse_kernel(f"{HEAD} {{ s = reduce add over r < 12 of x[r] o[0] = s }}")
    with pytest.raises(CompileError, match="is used outside of its scope"):
        verify_kernel(replace(kernel, body=kernel.body[::-1]))


# ---------------------------------------------------------------- meaning


def run(text: str, *arrays: np.ndarray) -> int:
    kernel = parse_kernel(text)
    verify_kernel(kernel)
    return interpret_kernel(kernel, arrays)


def test_stores_side_by_side_are_one_step() -> None:
    a, b = np.arange(3, dtype="f4"), np.arange(3, 6, dtype="f4")
    run("kernel(a: f32[3] inout, b: f32[3] inout) { for i < 3 { a[i] = b[i] b[i] = a[i] } }", a, b)
    assert a.tolist() == [3, 4, 5] and b.tolist() == [0, 1, 2]


def test_a_loop_that_reads_what_it_stores_runs_in_order() -> None:
    out = np.zeros(4, "i8")
    run("kernel(n: i64[6], o: i64[4] inout) { for i < 6 { o[n[i]] = o[n[i]] + 1 } }", np.array([0, 3, 3, 0, 3, 1]), out)
    assert out.tolist() == [2, 1, 0, 3]


def test_scans_run_both_ways() -> None:
    x, out = np.arange(1.0, 5.0), np.zeros(4)
    run("kernel(x: f64[4], o: f64[4] out) { scan mul over r < 4 { o[r] = x[r] } }", x, out)
    assert out.tolist() == [1, 2, 6, 24]
    run("kernel(x: f64[4], o: f64[4] out) { scan max over r < 4 reverse { o[r] = x[r] } }", x, out)
    assert out.tolist() == [4, 4, 4, 4]


def test_an_index_is_wrapped_and_checked_where_its_mask_holds() -> None:
    text = """kernel(x: i64[3], n: i64[3], o: i64[3] out) {
        for i < 3 { o[i] = x[index(n[i] MASK, 3, "take") MASK] }
    }"""
    x, out = np.array([10, 20, 30]), np.zeros(3, "i8")
    assert run(text.replace("MASK", ""), x, np.array([0, -1, 2]), out) == 0
    assert out.tolist() == [10, 30, 30]
    assert run(text.replace("MASK", ""), x, np.array([0, 3, -4]), out) == 1
    assert run(text.replace("MASK", "if i < 1"), x, np.array([-3, 3, -4]), out) == 0
    assert out.tolist() == [10, 0, 0]


def test_a_part_of_the_range_runs_alone() -> None:
    kernel = parse_kernel("kernel(o: i64[6] inout) { for i < 6 parallel { o[i] = i } }")
    out = np.full(6, -1)
    assert interpret_kernel(kernel, [out], 2, 5) == 0
    assert out.tolist() == [-1, -1, 2, 3, 4, -1]


def test_the_interpreter_checks_every_access() -> None:
    kernel = parse_kernel("kernel(n: i64[1], o: i64[2] out) { o[n[0]] = 1 }")
    with pytest.raises(CompileError, match=r"element 2\.\.2 of o, which has 2"):
        interpret_kernel(kernel, [np.array([2]), np.zeros(2, "i8")])
    with pytest.raises(CompileError, match="needs a flat array"):
        interpret_kernel(kernel, [np.array([2.0]), np.zeros(2, "i8")])


def test_builder_does_not_trust_a_range_that_wrapped() -> None:
    """300 as int8 is 44: a comparison with 100 is not decided by the range of the number that was cast."""
    s = LoopBuilder()
    i = s.var("i", 301)
    narrow = s.cast(i, dtypes.int8)
    assert narrow.low is None
    assert s.lt(narrow, 100).op == "lt"
    doubled = s.add(s.cast(s.var("j", 100), dtypes.uint8), s.cast(s.var("k", 200), dtypes.uint8))
    assert doubled.low is None
    assert s.mul(s.mul(i, 1 << 62), 4).attr == 0  # constants wrap as the machine's do


def test_builder_recombines_only_constants() -> None:
    """(a // b) * b + a % b is 0, not a, where b is 0."""
    s, n = LoopBuilder(), Buffer("n", dtypes.int64, 2)
    a, b = s.load(n, 0), s.load(n, 1)
    assert s.add(s.mul(s.floordiv(a, b), b), s.mod(a, b)).op == "add"
    c = s.const(7, dtypes.int64)
    assert s.add(s.mul(s.floordiv(a, c), c), s.mod(a, c)) is a


def test_builder_drops_reductions_of_a_branch_that_is_never_taken() -> None:
    s = LoopBuilder()
    x = Buffer("x", dtypes.float32, 1)
    never = s.const(False, dtypes.bool_)
    value = s.masked(never, lambda: s.reduce("add", (4,), lambda r: s.load(x, r[0])), 1.5)
    assert value.attr == 1.5 and not s.pending


def test_scratch_is_filled_in_every_iteration() -> None:
    text = """kernel(x: f32[6], o: f32[6] out, t: f32[3] scratch) {
      for i < 2 parallel {
        for j < 3 vector { t[j] = x[i * 3 + j] * 2.0:f32 }
        for k < 3 vector { o[i * 3 + k] = t[2 - k] }
      }
    }"""
    out = np.zeros(6, "f4")
    assert run(text, np.arange(6, dtype="f4"), out) == 0
    assert out.tolist() == [4, 2, 0, 10, 8, 6]
    with pytest.raises(CompileError, match=r"every iteration over .* stores to the same place of t"):
        verify_kernel(parse_kernel(text.replace("t[j] =", "t[0] =")))

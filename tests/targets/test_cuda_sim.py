"""The PTX simulator: each instruction against NumPy, and whatever a kernel must not do."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hybridml_compiler import dtypes
from hybridml_compiler.errors import CompileError
from hybridml_compiler.targets.cuda.sim.memory import SimulatorError
from hybridml_compiler.targets.cuda.sim.ptx import DTYPES
from hybridml_compiler.targets.cuda.sim.races import Races, ThreadIds
from hybridml_compiler.targets.cuda.sim.simulator import Simulator

REGISTERS = """
  .reg .pred %p<9>; .reg .b16 %rs<9>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<20>; .reg .f64 %fd<9>;
"""
LETTERS = {"f32": "%f", "f64": "%fd", "pred": "%p"}
LETTERS |= {
    f"{kind}{bits}": {8: "%rs", 16: "%rs", 32: "%r", 64: "%rd"}[bits] for kind in "bus" for bits in (8, 16, 32, 64)
}
FLOATS = (0.0, -0.0, 1.0, -1.5, 2.5, 3.5, -2.5, 1e-40, 1e30, -1e30, 0.3, math.inf, -math.inf, math.nan, 3e9, -7.0)


def kernel(body: str, parameters: int, declared: str = "") -> str:
    listed = ", ".join(f".param .u64 k_param_{k}" for k in range(parameters))
    return f".visible .entry kernel({listed})\n{{ {REGISTERS} {declared}\n{body}\n ret; }}"


def run(body: str, *arrays: np.ndarray, block: int = 0, grid: int = 1, declared: str = "") -> None:
    Simulator(kernel(body, len(arrays), declared)).launch("kernel", grid, block or arrays[0].size, arrays)


def numbered(pointers: int) -> str:
    """The global number of a thread in %rd19, and the addresses of buffers in %rd1, %rd2, ..."""
    lines = ["mov.u32 %r8, %tid.x; mov.u32 %r7, %ctaid.x; mov.u32 %r6, %ntid.x; mad.lo.s32 %r8, %r7, %r6, %r8;"]
    lines += ["cvt.u64.u32 %rd19, %r8;"]
    lines += [f"ld.param.u64 %rd{k + 1}, [k_param_{k}];" for k in range(pointers)]
    return "\n".join(lines)


def apply(text: str, result: str, kinds: list[str], *operands: np.ndarray) -> np.ndarray:
    """An instruction on operands, each of a type of PTX; `text` has {0} for its result and {1}, ... for them."""
    out = np.zeros(operands[0].size, DTYPES[result])
    lines, names = [numbered(1 + len(operands))], [f"{LETTERS[result]}10"]
    for k, kind in enumerate(kinds):
        name, address = f"{LETTERS[kind]}{k + 11}", f"%rd{14 + k}"
        lines += [f"mad.lo.s64 {address}, %rd19, {DTYPES[kind].itemsize}, %rd{k + 2};"]
        lines += [f"ld.global.{kind} {name}, [{address}];"]
        names.append(name)
    lines += [text.format(*names) + ";", f"mad.lo.s64 %rd18, %rd19, {out.itemsize}, %rd1;"]
    lines += [f"st.global.{result} [%rd18], {names[0]};"]
    run("\n".join(lines), out, *operands)
    return out


def pairs(kind: str) -> tuple[np.ndarray, np.ndarray]:
    dtype = DTYPES[kind]
    if dtype.kind == "f":
        values: Any = np.array(FLOATS, dtype)
    else:
        info = np.iinfo(dtype)
        values = np.array([0, 1, 2, 3, 7, 33, info.min, info.max, info.max - 5, info.max // 3], dtype)
        values = np.concatenate([values, -values[1:6]]) if dtype.kind == "i" else values
    x, y = np.array(list(itertools.product(values, repeat=2)), dtype).T
    return np.ascontiguousarray(x), np.ascontiguousarray(y)


def high(x: Any, y: Any) -> int:
    return int(x) * int(y) >> 64


def truncated(x: Any, y: Any) -> int:
    quotient = abs(int(x)) // abs(int(y))
    return quotient if (x < 0) == (y < 0) else -quotient


TWO: list[tuple[str, str, Callable[..., Any]]] = [
    ("add.rn.f32", "f32", np.add),
    ("sub.rn.f64", "f64", np.subtract),
    ("mul.rn.f32", "f32", np.multiply),
    ("div.rn.f32", "f32", np.divide),
    ("div.rn.f64", "f64", np.divide),
    ("min.f32", "f32", np.fmin),
    ("max.NaN.f64", "f64", np.maximum),
    ("copysign.f32", "f32", lambda x, y: np.copysign(y, x)),
    ("add.s64", "s64", np.add),
    ("sub.s32", "s32", np.subtract),
    ("mul.lo.s64", "s64", np.multiply),
    ("mul.hi.u64", "u64", lambda x, y: np.array([high(a, b) for a, b in zip(x, y, strict=True)], np.uint64)),
    ("mul.hi.s64", "s64", lambda x, y: np.array([high(a, b) for a, b in zip(x, y, strict=True)], np.int64)),
    ("mul.hi.u32", "u32", lambda x, y: (x.astype(np.uint64) * y >> np.uint64(32)).astype(np.uint32)),
    ("min.s32", "s32", np.minimum),
    ("max.u64", "u64", np.maximum),
    ("and.b32", "u32", np.bitwise_and),
    ("or.b64", "u64", np.bitwise_or),
    ("xor.b16", "u16", np.bitwise_xor),
]


@pytest.mark.parametrize(("name", "kind", "meaning"), TWO, ids=[name for name, _, _ in TWO])
def test_two_operands(name: str, kind: str, meaning: Callable[..., Any]) -> None:
    x, y = pairs(kind)
    with np.errstate(all="ignore"):
        expected = meaning(x, y)
    if name in ("min.f32", "max.NaN.f64"):  # the sign of a zero is tested apart
        x, y, expected = (a[(x != 0) | (y != 0)] for a in (x, y, expected))
    found = apply(f"{name} {{0}}, {{1}}, {{2}}", kind, [kind, kind], x, y)
    np.testing.assert_array_equal(found, expected)
    assert (np.signbit(found) == np.signbit(expected))[~np.isnan(expected)].all()


@pytest.mark.parametrize("kind", ["s32", "s64"])
def test_division_is_towards_zero(kind: str) -> None:
    x, y = pairs(kind)
    x, y = x[(y != 0) & (y != -1)], y[(y != 0) & (y != -1)]
    quotients = np.array([truncated(a, b) for a, b in zip(x, y, strict=True)], DTYPES[kind])
    np.testing.assert_array_equal(apply(f"div.{kind} {{0}}, {{1}}, {{2}}", kind, [kind, kind], x, y), quotients)
    found = apply(f"rem.{kind} {{0}}, {{1}}, {{2}}", kind, [kind, kind], x, y)
    np.testing.assert_array_equal(found, x - quotients * y)


@pytest.mark.parametrize("how", ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "geu", "num", "nan"])
def test_comparisons_of_floats(how: str) -> None:
    x, y = pairs("f32")
    text = f"setp.{how}.f32 %p1, {{1}}, {{2}}; selp.b32 {{0}}, 1, 0, %p1"
    nan = np.isnan(x) | np.isnan(y)
    if how in ("num", "nan"):
        expected = nan == (how == "nan")
    else:
        ordered = {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[how[:2]]
        expected = (ordered & ~nan) | (nan & (len(how) == 3))
    assert (apply(text, "u32", ["f32", "f32"], x, y) == expected).all()


def held(x: np.ndarray, bits: int) -> np.ndarray:
    """Whole numbers in the range of so many bits; nan is the least, as in the PTX ISA where a type has 64."""
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    return np.array([int(v) if least < v < most else most if v >= most else least for v in x.tolist()])


def bits(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Conversions give the nearest narrow numbers, and of a nan the hardware's."""
    return np.where(np.isnan(x), np.uint16(0x7FFF), x.astype(dtype).view(np.uint16))


CONVERSIONS = [
    ("cvt.rzi.s32.f32", "s32", "f32", lambda x: np.clip(np.nan_to_num(x.astype(np.float64)), -(2**31), 2**31 - 1)),
    ("cvt.rzi.s64.f32", "s64", "f32", lambda x: held(x, 64)),
    ("cvt.rzi.s32.f64", "s32", "f64", lambda x: held(x, 32)),
    ("cvt.rni.f32.f32", "f32", "f32", np.rint),
    ("cvt.rmi.f64.f64", "f64", "f64", np.floor),
    ("cvt.rn.f32.f64", "f32", "f64", lambda x: x.astype(np.float32)),
    ("cvt.f64.f32", "f64", "f32", lambda x: x.astype(np.float64)),
    ("sqrt.rn.f32", "f32", "f32", np.sqrt),
    ("rcp.rn.f64", "f64", "f64", lambda x: 1 / x),
    ("neg.f32", "f32", "f32", np.negative),
    ("abs.f64", "f64", "f64", np.abs),
    ("cvt.s64.s32", "s64", "s32", lambda x: x.astype(np.int64)),
    ("cvt.u64.u32", "u64", "u32", lambda x: x.astype(np.uint64)),
    ("cvt.s16.s8", "s16", "s8", lambda x: x.astype(np.int16)),
    ("cvt.u32.u64", "u32", "u64", lambda x: x.astype(np.uint32)),
    ("cvt.rn.f32.s64", "f32", "s64", lambda x: x.astype(np.float32)),
    ("cvt.rn.f16.f32", "u16", "f32", lambda x: bits(x, np.dtype("f2"))),
    ("cvt.rn.bf16.f32", "u16", "f32", lambda x: bits(x, dtypes.bfloat16)),
    ("not.b32", "u32", "u32", np.invert),
    ("popc.b32", "u32", "u32", lambda x: np.array([int(v).bit_count() for v in x], np.uint32)),
    ("clz.b64", "u32", "u64", lambda x: np.array([64 - int(v).bit_length() for v in x], np.uint32)),
    ("brev.b32", "u32", "u32", lambda x: np.array([int(f"{int(v):032b}"[::-1], 2) for v in x], np.uint32)),
]


@pytest.mark.parametrize(("name", "to", "kind", "meaning"), CONVERSIONS, ids=[row[0] for row in CONVERSIONS])
def test_one_operand(name: str, to: str, kind: str, meaning: Callable[..., Any]) -> None:
    x, _ = pairs(kind)
    with np.errstate(all="ignore"):
        expected = np.asarray(meaning(x)).astype(DTYPES[to])
        np.testing.assert_array_equal(apply(f"{name} {{0}}, {{1}}", to, [kind], x), expected)


def test_two_roundings_fill_a_word() -> None:
    x, y = pairs("f32")
    with np.errstate(all="ignore"):
        expected = bits(x, dtypes.bfloat16).astype(np.uint32) << 16 | bits(y, dtypes.bfloat16)
    found = apply("cvt.rn.bf16x2.f32 {0}, {1}, {2}", "u32", ["f32", "f32"], x, y)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("name", "kind"), [("shl.b32", "u32"), ("shr.s32", "s32"), ("shr.u64", "u64")])
def test_shifts_by_more_than_the_width(name: str, kind: str) -> None:
    x, _ = pairs(kind)
    bits = 8 * x.itemsize
    for by in (0, 1, bits - 1, bits, bits + 7):
        wide = [int(v) << by if name.startswith("shl") else int(v) >> by for v in x]
        expected = np.array([v & ((1 << bits) - 1) for v in wide], f"u{x.itemsize}").view(x.dtype)
        np.testing.assert_array_equal(apply(f"{name} {{0}}, {{1}}, {by}", kind, [kind], x), expected)


def test_fma_rounds_once() -> None:
    """A product that float32 cannot hold, and a sum on a midpoint."""
    x, y = (np.array(v, np.float32) for v in ([1 + 2**-12, 4097], [1 + 2**-12, 4097]))
    z = np.array([-1 - 2**-11, 2**-30], np.float32)
    exact = [float(a) * float(b) + float(c) for a, b, c in zip(x, y, z, strict=True)]
    found = apply("fma.rn.f32 {0}, {1}, {2}, {3}", "f32", ["f32"] * 3, x, y, z)
    assert found.tolist() == [2**-24, float(np.nextafter(np.float32(4097 * 4097), np.float32(np.inf)))]
    towards_zero = apply("fma.rz.f32 {0}, {1}, {2}, {3}", "f32", ["f32"] * 3, x, y, z)
    assert (towards_zero <= exact).all() and (np.nextafter(towards_zero, np.float32(np.inf)) >= exact).all()


def test_zeros_have_an_order() -> None:
    x, y = np.array([0.0, -0.0], "f4"), np.array([-0.0, 0.0], "f4")
    for name, sign in (("min", True), ("max", False)):
        assert (np.signbit(apply(f"{name}.f32 {{0}}, {{1}}, {{2}}", "f32", ["f32"] * 2, x, y)) == sign).all()


def test_bytes_of_words() -> None:
    x, y = np.array([0x33221180], np.uint32), np.array([0x77665544], np.uint32)
    for selector, expected in ((0x7520, 0x77552280), (0x0008, 0x808080FF)):
        found = apply(f"prmt.b32 {{0}}, {{1}}, {{2}}, {selector}", "u32", ["u32", "u32"], x, y)
        assert hex(int(found[0])) == hex(expected)
    assert hex(int(apply("shf.l.wrap.b32 {0}, {1}, {2}, 8", "u32", ["u32"] * 2, x, y)[0])) == "0x66554433"
    halves = "mov.b64 {{%r1, %r2}}, {1}; mov.b64 {0}, {{%r2, %r1}}"
    assert hex(int(apply(halves, "u64", ["u64"], np.array([0x1122334455667788], np.uint64))[0])) == "0x5566778811223344"


SHUFFLES = {"down": lambda k: k + 4 if k < 28 else k, "up": lambda k: k - 4 if k > 3 else k, "bfly": lambda k: k ^ 4}


@pytest.mark.parametrize("mode", SHUFFLES)
def test_shuffles(mode: str) -> None:
    x = np.arange(64, dtype=np.uint32) * 3
    clamp = 0 if mode == "up" else 31
    found = apply(f"shfl.sync.{mode}.b32 {{0}}|%p1, {{1}}, 4, {clamp}, -1", "u32", ["u32"], x)
    assert found.tolist() == [3 * (32 * (k // 32) + SHUFFLES[mode](k % 32)) for k in range(64)]


def test_votes() -> None:
    body = "and.b32 %r2, {1}, 3; setp.eq.u32 %p1, %r2, 1; vote.sync.ballot.b32 {0}, %p1, -1;"
    found = apply(body, "u32", ["u32"], np.arange(64, dtype=np.uint32))
    assert found.tolist() == [sum(1 << lane for lane in range(1, 32, 4))] * 64


def test_atomic_updates_of_shared_memory() -> None:
    """Each block has its own."""
    total = np.zeros(1, np.uint32)
    body = """.shared .align 4 .b8 own[4]; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; mov.u32 %r2, own;
    @%p1 bra $wait; st.shared.u32 [%r2], 0;
$wait: bar.sync 0; atom.shared.add.u32 %r3, [%r2], 2; bar.sync 0; @%p1 bra $end;
    ld.shared.u32 %r4, [%r2]; red.global.add.u32 [%rd1], %r4;
$end: ret;"""
    run(numbered(1) + body, total, block=40, grid=3)
    assert total[0] == 3 * 80


def test_atomic_updates() -> None:
    total, x = np.zeros(1, np.int64), np.arange(40)
    body = numbered(2) + "mad.lo.s64 %rd3, %rd19, 8, %rd2; ld.global.u64 %rd4, [%rd3]; red.global.add.u64 [%rd1], %rd4;"
    run(body, total, x, block=40)
    assert total[0] == x.sum()


def test_loops_part_and_meet() -> None:
    """Threads that run a loop for different times go on together."""
    steps, out = np.arange(7, dtype=np.uint32), np.zeros(7, np.uint32)
    body = f"""{numbered(2)} mad.lo.s64 %rd3, %rd19, 4, %rd1; mad.lo.s64 %rd4, %rd19, 4, %rd2;
    ld.global.u32 %r1, [%rd3]; mov.u32 %r2, 0;
$again:
    setp.eq.s32 %p1, %r1, 0; @%p1 bra $done; add.s32 %r2, %r2, %r1; sub.s32 %r1, %r1, 1; bra.uni $again;
$done:
    shfl.sync.idx.b32 %r3, %r2, 6, 31, 127; add.s32 %r2, %r2, %r3; st.global.u32 [%rd4], %r2;"""
    run(body, steps, out)
    assert out.tolist() == [k * (k + 1) // 2 + 21 for k in range(7)]


# ---- what a kernel must not do

SHARED = ".shared .align 4 .b8 row[256];"
EXCHANGE = """mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, row; add.s32 %r4, %r3, %r2;
st.shared.u32 [%r4], %r1; {barrier} xor.b32 %r5, %r2, 4; add.s32 %r4, %r3, %r5; ld.shared.u32 %r5, [%r4];"""
FIVE = "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 5; "
STORE = numbered(1) + "mad.lo.s64 %rd3, %rd19, {step}, %rd1; st.global.u32 [%rd3+{offset}], %r8;"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (STORE.format(step=4, offset=4), r"byte 256 of buffer 0, which has 256"),
        (STORE.format(step=4, offset=-8), r"an address that is in no buffer|byte .* of"),
        (STORE.format(step=4, offset=2), "no multiple of 4"),
        (STORE.format(step=0, offset=0), "race in buffer 0"),
        (numbered(1) + "ld.global.v2.u32 {%r1, %r2}, [%rd1+4];", "no multiple of 8"),
        (EXCHANGE.format(barrier=""), "race in shared memory"),
        ("ld.shared.u32 %r1, [row];", "that nothing has written"),
        ("mov.u32 %r1, 1; st.shared.u32 [row+256], %r1;", "byte 256 of shared memory, which has 256"),
        (FIVE + "@%p1 bra $out; bar.sync 0;\n$out:\n", "6 of 64 threads"),
        (FIVE + "@%p1 bra $b; bar.sync 0; bra $c;\n$b:\nbar.sync 0;\n$c:\n", "at different barriers"),
        (FIVE + "@%p1 bra $out; shfl.sync.down.b32 %r2, %r1, 1, 31, -1;\n$out:\n", "lanes that its mask names"),
        ("add.s32 %r2, %r1, 1;", "register %r1 is read before"),
    ],
)  # fmt: skip
def test_errors(body: str, message: str) -> None:
    with pytest.raises(SimulatorError, match=message):
        run(body, np.zeros(64, np.uint32), declared=SHARED)


def test_a_barrier_orders_threads_and_not_blocks() -> None:
    run(EXCHANGE.format(barrier="bar.sync 0;"), np.zeros(64, np.uint32), declared=SHARED)
    body = (
        numbered(1) + "and.b64 %rd2, %rd19, 31; mad.lo.s64 %rd3, %rd2, 4, %rd1; bar.sync 0; st.global.u32 [%rd3], %r8;"
    )
    run(body, np.zeros(32, np.uint32), block=32)
    with pytest.raises(SimulatorError, match="race in buffer 0"):
        run(body, np.zeros(32, np.uint32), block=32, grid=2)


def test_lanes_wait_for_the_others_of_their_warp() -> None:
    """Wherever the compiler has put what these run before."""
    body = (
        numbered(1)
        + """setp.lt.u32 %p1, %r8, 20; mov.u32 %r1, %r8; @%p1 bra FIRST;
    TOGETHER: shfl.sync.down.b32 %r2, %r1, 12, 31, -1;
    mad.lo.s64 %rd3, %rd19, 4, %rd1; st.global.u32 [%rd3], %r2; ret;
    FIRST: add.u32 %r1, %r1, 100; bra TOGETHER;"""
    )
    x = np.zeros(32, np.uint32)
    run(body, x)
    own = np.arange(32) + 100 * (np.arange(32) < 20)
    assert x.tolist() == [*own[12:], *own[20:]]
    with pytest.raises(SimulatorError, match="not at this instruction"):
        run(body.replace("bra TOGETHER;", "ret;"), x)


@pytest.mark.parametrize(
    "line",
    ["mma.sync.aligned.m16n8k8 %r1, %r2, %r3;", "ex2.approx.f32 %f1, %f2;", "add.ftz.f32 %f1, %f2, %f3;",
     "div.full.f32 %f1, %f2, %f3;", "ld.u32 %r1, [%rd1];", "cvt.rz.bf16.f32 %rs1, %f1;",
     "fma.rp.f32 %f1, %f2, %f3, %f4;"],
)  # fmt: skip
def test_what_is_not_simulated_is_an_error(line: str) -> None:
    with pytest.raises(CompileError, match="not simulated"):
        run(f"mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1; mov.u64 %rd1, 0; {line}",
            np.zeros(4, np.uint32))  # fmt: skip


def test_reads_of_several_blocks_are_remembered() -> None:
    """A barrier of one block makes nothing of what another one has read."""

    def ids(thread: int, block: int, clock: int) -> ThreadIds:
        return ThreadIds(*(np.array([k]) for k in (thread, block, clock)))

    at = np.array([0])
    for readers, writer, wrong in (
        ([(0, 0, 0), (32, 1, 0), (33, 1, 1)], (33, 1, 2), True),
        ([(32, 1, 0), (33, 1, 0)], (33, 1, 1), False),
        ([(32, 1, 0), (33, 1, 0)], (33, 1, 0), True),
        ([(32, 1, 0), (33, 1, 1)], (34, 1, 1), True),
        ([(32, 1, 0), (32, 1, 1)], (32, 1, 1), False),
    ):
        races = Races(1)
        assert not any(races.read(at, ids(*reader)) for reader in readers)
        assert bool(races.write(at, ids(*writer))) == wrong


def test_a_result_in_the_place_of_an_operand_is_one_buffer() -> None:
    """Each thread may overwrite what it has read, and no other."""
    body = (
        numbered(2)
        + """mad.lo.s64 %rd3, %rd19, 4, %rd1; mad.lo.s64 %rd4, %rd19, 4, %rd2;
    ld.global.u32 %r1, [%rd3{offset}]; add.s32 %r1, %r1, 1; st.global.u32 [%rd4], %r1;"""
    )
    x = np.arange(8, dtype=np.uint32)
    run(body.replace("{offset}", ""), x, x)
    assert x.tolist() == list(range(1, 9))
    apart = np.zeros(7, np.uint32)
    run(body.replace("{offset}", "+4"), x, apart, block=7)
    with pytest.raises(SimulatorError, match="a race in buffer 0"):
        run(body.replace("{offset}", "+4"), x, x, block=7)


def test_arguments_are_counted() -> None:
    with pytest.raises(CompileError, match="takes 2 arguments, got 1"):
        Simulator(kernel("", 2)).launch("kernel", 1, 32, [np.zeros(1)])

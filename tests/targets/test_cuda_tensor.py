"""The simulator's tensor cores and asynchronous copies: fragments against the ISA's text, and what must not be done."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from hybridml_compiler.errors import CompileError
from hybridml_compiler.targets.cuda.sim.memory import SimulatorError
from hybridml_compiler.targets.cuda.sim.simulator import Simulator

REGISTERS = ".reg .pred %p<4>; .reg .b16 %rs<4>; .reg .b32 %r<40>; .reg .b64 %rd<20>;"
LANE = "mov.u32 %r30, %tid.x; cvt.u64.u32 %rd10, %r30;"


def run(body: str, *arrays: np.ndarray, block: int = 32, shared: int = 0) -> None:
    listed = ", ".join(f".param .u64 k_param_{k}" for k in range(len(arrays)))
    pointers = " ".join(f"ld.param.u64 %rd{k + 1}, [k_param_{k}];" for k in range(len(arrays)))
    declared = f".shared .align 16 .b8 memory[{shared}];" * bool(shared)
    text = f".visible .entry kernel({listed})\n{{ {REGISTERS} {declared} {LANE} {pointers}\n{body}\n ret; }}"
    Simulator(text).launch("kernel", 1, block, [array.reshape(-1) for array in arrays])


def of_lane(pointer: int, nbytes: int) -> str:
    """The address of so many bytes of each lane's own in %rd19."""
    return f"mad.lo.s64 %rd19, %rd10, {nbytes}, %rd{pointer};"


# ---- products: where the ISA (9.7.14.5.7 and .8) puts each element of a lane's fragment

Place = Callable[[int, int], tuple[int, int]]  # lane, element -> row, column


def halves_of_a(lane: int, i: int) -> tuple[int, int]:
    row = lane // 4 if i in (0, 1, 4, 5) else lane // 4 + 8
    column = lane % 4 * 2 + (i & 1)
    return row, column if i < 4 else column + 8


def halves_of_b(lane: int, i: int) -> tuple[int, int]:
    row = lane % 4 * 2 + (i & 1)
    return row if i < 2 else row + 8, lane // 4


def words_of_a(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 if i in (0, 2) else lane // 4 + 8, lane % 4 if i < 2 else lane % 4 + 4


def words_of_b(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 if i == 0 else lane % 4 + 4, lane // 4


def sums(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 if i < 2 else lane // 4 + 8, lane % 4 * 2 + (i & 1)


def fragment(matrix: np.ndarray, place: Place, count: int) -> np.ndarray:
    return np.array([[matrix[place(lane, i)] for i in range(count)] for lane in range(32)], matrix.dtype)


KINDS = {
    "f16": (16, np.dtype("f2"), halves_of_a, halves_of_b),
    "bf16": (16, np.dtype(ml_dtypes.bfloat16), halves_of_a, halves_of_b),
    "tf32": (8, np.dtype("f4"), words_of_a, words_of_b),
}
MMA = "mma.sync.aligned.m16n8k{depth}.row.col.f32.{kind}.{kind}.f32"
REGISTERS_OF_MMA = "{{%r8, %r9, %r10, %r11}}, {{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {{%r12, %r13, %r14, %r15}};"


@pytest.mark.parametrize("kind", KINDS)
def test_products_of_fragments(kind: str) -> None:
    depth, dtype, place_a, place_b = KINDS[kind]
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-8, 9, shape).astype(t) for shape, t in
               (((16, depth), dtype), ((depth, 8), dtype), ((16, 8), np.dtype("f4"))))  # fmt: skip
    count = 16 // dtype.itemsize
    found = np.zeros((32, 4), "f4")
    body = of_lane(1, 16) + "ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%rd19];"
    body += of_lane(2, 8) + "ld.global.v2.u32 {%r4, %r5}, [%rd19];"
    body += of_lane(3, 16) + "ld.global.v4.u32 {%r12, %r13, %r14, %r15}, [%rd19];"
    body += MMA.format(depth=depth, kind=kind) + " " + REGISTERS_OF_MMA.format()
    body += of_lane(4, 16) + "st.global.v4.u32 [%rd19], {%r8, %r9, %r10, %r11};"
    run(body, fragment(a, place_a, count), fragment(b, place_b, count // 2), fragment(c, sums, 4), found)
    np.testing.assert_array_equal(found, fragment(a.astype("f4") @ b.astype("f4") + c, sums, 4))


def test_tensor_cores_read_ten_bits_of_a_mantissa() -> None:
    """Rounding is an instruction of its own: to the nearest, and away from zero in the middle."""
    x = np.array([1 + 2**-10, 1 + 2**-11, -1 - 2**-11, 1 + 2**-11 - 2**-23, np.inf, np.nan, 2**100, -0.0], "f4")
    expected = np.array([1 + 2**-10, 1 + 2**-10, -1 - 2**-10, 1, np.inf, np.nan, 2**100, -0.0], "f4")
    found = np.zeros(8, "f4")
    body = of_lane(1, 4) + "ld.global.u32 %r0, [%rd19]; cvt.rna.tf32.f32 %r1, %r0;"
    run(body + of_lane(2, 4) + "st.global.u32 [%rd19], %r1;", x, found, block=8)
    np.testing.assert_array_equal(found, expected)


def test_halves_widen() -> None:
    x, found = np.array([1.5, -2.0, 6e-8, np.inf, 65504, -0.0], "f2"), np.zeros(6, "f4")
    body = of_lane(1, 2) + "ld.global.u16 %rs1, [%rd19]; cvt.f32.f16 %r1, %rs1;"
    run(body + of_lane(2, 4) + "st.global.u32 [%rd19], %r1;", x, found, block=6)
    np.testing.assert_array_equal(found, x.astype("f4"))


def test_bits_inserted() -> None:
    x, y, found = np.array([0xABCD], "u4"), np.array([0x12345678], "u4"), np.zeros(1, "u4")
    body = (
        "ld.global.u32 %r0, [%rd1]; ld.global.u32 %r1, [%rd2]; bfi.b32 %r2, %r0, %r1, 8, 12; st.global.u32 [%rd3], %r2;"
    )
    run(body, x, y, found, block=1)
    assert hex(int(found[0])) == "0x123bcd78"


# ---- matrices from shared memory

FILL = """mad.lo.s64 %rd19, %rd10, 16, %rd1; ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%rd19];
shl.b32 %r31, %r30, 4; mov.u32 %r32, memory; add.s32 %r33, %r32, %r31;
st.shared.v4.u32 [%r33], {%r0, %r1, %r2, %r3}; bar.sync 0;"""


@pytest.mark.parametrize("trans", [False, True])
def test_matrices(trans: bool) -> None:
    """Lane 8 k + r names row r of matrix k; a lane gets elements 2 (lane % 4) and the next of row lane / 4 of each."""
    x = np.arange(4 * 8 * 8, dtype=np.uint16).reshape(4, 8, 8)
    found = np.zeros((32, 4, 2), np.uint16)
    body = FILL + f"ldmatrix.sync.aligned.m8n8.x4{'.trans' * trans}.shared.b16 {{%r4, %r5, %r6, %r7}}, [%r33];"
    run(body + of_lane(2, 16) + "st.global.v4.u32 [%rd19], {%r4, %r5, %r6, %r7};", x, found, shared=512)
    for lane in range(32):
        for k in range(4):
            matrix = x[k].T if trans else x[k]
            assert found[lane, k].tolist() == matrix[lane // 4, lane % 4 * 2 :][:2].tolist()


# ---- copies

COPY = """shl.b32 %r31, %r30, 4; mov.u32 %r32, memory; add.s32 %r33, %r32, %r31; mad.lo.s64 %rd19, %rd10, 16, %rd1;
cp.async.cg.shared.global [%r33], [%rd19], 16; cp.async.commit_group;"""
TAKE = "ld.shared.v4.u32 {%r0, %r1, %r2, %r3}, [%r33]; mad.lo.s64 %rd19, %rd10, 16, %rd2;"
GIVE = "st.global.v4.u32 [%rd19], {%r0, %r1, %r2, %r3};"
OF_NEXT = "xor.b32 %r31, %r31, 16; add.s32 %r33, %r32, %r31;"


@pytest.mark.parametrize("wait", ["cp.async.wait_group 0;", "cp.async.wait_all;"])
def test_copies_arrive(wait: str) -> None:
    x, found = np.arange(128, dtype=np.uint32), np.zeros(128, np.uint32)
    run(COPY + wait + TAKE + GIVE, x, found, shared=512)
    assert found.tolist() == x.tolist()
    run(COPY + wait + "bar.sync 0;" + OF_NEXT + TAKE + GIVE, x, found, shared=512)
    assert found.reshape(16, 2, 4)[:, ::-1].reshape(-1).tolist() == x.tolist()


def test_what_is_not_copied_is_zero() -> None:
    """And is not read: its address may be anywhere."""
    x, found = np.arange(64, dtype=np.uint32), np.ones(128, np.uint32)
    sized = "setp.lt.u32 %p1, %r30, 16; selp.b32 %r29, 16, 0, %p1;" + COPY.replace("], 16;", "], 16, %r29;")
    run(sized + "cp.async.wait_all;" + TAKE + GIVE, x, found, shared=512)
    assert found.tolist() == [*range(64), *[0] * 64]


def test_groups_are_waited_for_in_order() -> None:
    """The first of two groups has arrived when one may be on its way."""
    x, found = np.arange(256, dtype=np.uint32), np.zeros(128, np.uint32)
    second = "add.s32 %r28, %r33, 512; cp.async.ca.shared.global [%r28], [%rd19+512], 16; cp.async.commit_group;"
    run(COPY + second + "cp.async.wait_group 1;" + TAKE + GIVE, x, found, shared=1024)
    assert found.tolist() == list(range(128))
    with pytest.raises(SimulatorError, match="an asynchronous copy is on its way to"):
        run(COPY + second + "cp.async.wait_group 1;" + TAKE.replace("%r33", "%r28") + GIVE, x, found, shared=1024)


BEYOND = "cp.async.cg.shared.global [%r33], [%rd19], 16;"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (COPY + TAKE, "reads shared memory that an asynchronous copy is on its way to"),
        (COPY + "bar.sync 0;" + TAKE, "reads shared memory that an asynchronous copy is on its way to"),
        (COPY + "cp.async.wait_group 1;" + TAKE, "an asynchronous copy is on its way to"),
        (COPY.replace("cp.async.commit_group;", "") + "cp.async.wait_group 0;" + TAKE, "is on its way to"),
        (COPY + "cp.async.wait_all;" + OF_NEXT + TAKE, "a race in shared memory"),
        (COPY + "st.shared.u32 [%r33], %r30;", "stores to shared memory that an asynchronous copy is on its way to"),
        (COPY + BEYOND, "copies to shared memory that an asynchronous copy is on its way to"),
        (COPY + "cp.async.wait_all;" + TAKE + "bar.sync 0;" + OF_NEXT + BEYOND + "cp.async.wait_all;" + OF_NEXT + TAKE,
         "a race in shared memory"),
        (COPY.replace("%r33], [%rd19]", "%r33+8], [%rd19]"), "no multiple of 16"),
        (COPY.replace("[%rd19], 16", "[%rd19+4], 16"), "no multiple of 16"),
        (COPY.replace("[%rd19], 16", "[%rd19+16], 16"), "byte 512 of buffer 0, which has 512"),
        (COPY.replace("[%r33], [%rd19]", "[%r33+512], [%rd19]"), "byte 512 of shared memory, which has 512"),
        (FILL + "add.s32 %r33, %r33, 8; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r33];", "no multiple of 16"),
        (FILL + "setp.lt.u32 %p1, %r30, 9; @%p1 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r33];",
         "not all lanes"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [memory];", "that nothing has written"),
        (FILL.replace("bar.sync 0;", "") + "xor.b32 %r31, %r31, 256; add.s32 %r33, %r32, %r31; "
         "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r33];", "a race in shared memory"),
        ("mov.u32 %r1, 0; setp.lt.u32 %p1, %r30, 31; @%p1 "
         + MMA.format(depth=8, kind="tf32") + " {%r8, %r9, %r10, %r11}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, "
         "{%r1, %r1, %r1, %r1};", "not all lanes"),
    ],
)  # fmt: skip
def test_errors(body: str, message: str) -> None:
    with pytest.raises(SimulatorError, match=message):
        run(body, np.zeros(128, np.uint32), np.zeros(128, np.uint32), shared=512)


@pytest.mark.parametrize(
    "line",
    ["mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};",
     "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1}, {%r1}, {%r1}, {%r1};",
     "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%rd1}, {%rd1}, {%rd1}, {%rd1};",
     "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1}, [memory];",
     "cp.async.cg.shared.global [memory], [%rd1], 8;",
     "cp.async.ca.shared.global [memory], [%rd1], 16, 4;",
     "cp.async.bulk.commit_group;",
     "cp.reduce.async [memory], [%rd1], 16;"],
)  # fmt: skip
def test_what_is_not_simulated_is_an_error(line: str) -> None:
    with pytest.raises(CompileError, match="not simulated"):
        run(f"mov.u32 %r1, 0; {line}", np.zeros(128, np.uint32), shared=512)


# ---- what attention does between products


@pytest.mark.parametrize(("kind", "dtype"), [("bf16", ml_dtypes.bfloat16), ("f16", np.float16)])
def test_two_numbers_are_rounded_to_a_word(kind: str, dtype: type) -> None:
    """The first fills the upper half; of two nearest numbers it is the even one."""
    x = np.random.default_rng(0).standard_normal((32, 2)).astype("f4")
    x[0], x[1], x[2, 0] = (1 + 2.0**-9, 1 + 3 * 2.0**-9), (1 + 2.0**-12, -(1 + 3 * 2.0**-12)), np.inf
    words = np.zeros(32, np.uint32)
    load = f"{of_lane(2, 8)} ld.global.u32 %r1, [%rd19]; ld.global.u32 %r2, [%rd19+4];"
    run(f"{load} cvt.rn.{kind}x2.f32 %r3, %r1, %r2; {of_lane(1, 4)} st.global.u32 [%rd19], %r3;", words, x.view("u4"))
    found = words.view(np.uint16).reshape(32, 2)[:, ::-1]
    np.testing.assert_array_equal(found, x.astype(dtype).view(np.uint16))


def test_powers_of_two() -> None:
    """Powers of whole numbers are exact; what is below the normal numbers is zero."""
    x = np.array([*range(-130, 129, 9), -np.inf, np.inf, np.nan], "f4")
    out = np.zeros(32, "f4")
    body = f"{of_lane(2, 4)} ld.global.u32 %r1, [%rd19]; ex2.approx.ftz.f32 %r2, %r1;"
    run(f"{body} {of_lane(1, 4)} st.global.u32 [%rd19], %r2;", out.view("u4"), x.view("u4"))
    expected = np.where(x < -126, 0, np.exp2(x.astype("f8"))).astype("f4")
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("lane", [None, 0, 31])
def test_votes(lane: int | None) -> None:
    """A vote is of each warp alone, and of all of its lanes."""
    out = np.zeros(64, np.uint32)
    body = f"setp.eq.u32 %p1, %r30, {99 if lane is None else 32 + lane}; vote.sync.any.pred %p2, %p1, -1;"
    run(f"{body} selp.b32 %r1, 1, 2, %p2; {of_lane(1, 4)} st.global.u32 [%rd19], %r1;", out, block=64)
    assert out.tolist() == [2] * 32 + [2 if lane is None else 1] * 32
    with pytest.raises(SimulatorError, match="not at this instruction"):
        run("setp.eq.u32 %p1, %r30, 3; @%p1 bra $out; vote.sync.any.pred %p2, %p1, -1;\n$out:\n", out, block=64)

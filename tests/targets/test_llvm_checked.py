"""Code that checks its accesses (`HYBRIDML_SANITIZE`) finds what is planted, and nothing in the operation table."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import functional as F
from hybridml_compiler.errors import CompileError
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.targets.cpu.llvm import ir
from hybridml_compiler.targets.cpu.llvm.checked import CheckedBuilder
from hybridml_compiler.targets.cpu.llvm.types import I1, I8, I32, I64, PTR, VOID
from hybridml_compiler.targets.cpu.runtime import jit, sanitize, scratch
from hybridml_compiler.targets.cpu.runtime.linking import loader
from hybridml_compiler.targets.cpu.spec import host_spec

F32 = ir.FloatType()
LANES = 8
VECTOR, BITS = ir.VectorType(F32, LANES), ir.VectorType(I1, LANES)
SIZE = 20  # floats of the buffer, of 40 that there are


def element(b: ir.IRBuilder, pointer: ir.Value, at: Any) -> ir.Value:
    return b.gep(pointer, [at], F32)


def lanes(*on: int) -> ir.Value:
    return ir.Constant(BITS, [int(k in on) for k in range(LANES)])


def addresses(b: ir.IRBuilder, buffer: ir.Value, at: ir.Value, step: int) -> ir.Value:
    first = b.add(b.ptrtoint(buffer, I64), b.mul(at, ir.i64(4)))
    wide = ir.Literal(ir.VectorType(I64, LANES), "zeroinitializer")
    for k in range(LANES):
        wide = b.insert_element(wide, b.add(first, ir.i64(4 * k * step)), ir.Constant(I32, k))
    return b.within(b.inttoptr(wide, ir.VectorType(PTR, LANES)), buffer)


def load(b: ir.IRBuilder, buffer: ir.Value, at: ir.Value) -> None:
    b.load(element(b, buffer, at), VECTOR, align=4)


def store(b: ir.IRBuilder, buffer: ir.Value, at: ir.Value) -> None:
    b.store(ir.Literal(F32, "1.0"), element(b, buffer, at))


def masked_load(b: ir.IRBuilder, buffer: ir.Value, at: ir.Value) -> None:
    zero = ir.Literal(VECTOR, "zeroinitializer")
    b.intrinsic("masked.load", VECTOR, [element(b, buffer, at), ir.Constant(I32, 4), lanes(1, 2), zero], [VECTOR, PTR])


def masked_store(b: ir.IRBuilder, buffer: ir.Value, at: ir.Value) -> None:
    ones = ir.Literal(VECTOR, "splat (float 1.0)")
    b.intrinsic("masked.store", VOID, [ones, element(b, buffer, at), ir.Constant(I32, 4), lanes(1, 2)], [VECTOR, PTR])


def gather(b: ir.IRBuilder, buffer: ir.Value, at: ir.Value) -> None:
    where, zero = addresses(b, buffer, at, 2), ir.Literal(VECTOR, "zeroinitializer")
    b.intrinsic("masked.gather", VECTOR, [where, ir.Constant(I32, 4), lanes(0, 1), zero], [VECTOR, where.type])


def scatter(b: ir.IRBuilder, buffer: ir.Value, at: ir.Value) -> None:
    where, ones = addresses(b, buffer, at, 2), ir.Literal(VECTOR, "splat (float 1.0)")
    b.intrinsic("masked.scatter", VOID, [ones, where, ir.Constant(I32, 4), lanes(0, 1)], [VECTOR, where.type])


def copy(b: ir.IRBuilder, buffer: ir.Value, at: ir.Value) -> None:
    memcpy = ir.Function(b.module, ir.FunctionType(PTR, [PTR, PTR, I64]), "memcpy")
    b.call(memcpy, [b.memory(F32, 4), element(b, buffer, at), ir.i64(16)])


def through_a_function(b: ir.IRBuilder, buffer: ir.Value, at: ir.Value) -> None:
    tile = ir.Function(b.module, ir.FunctionType(VOID, [PTR, PTR]), "tile")
    inner = tile.build()
    inner.store(inner.load(tile.args[0], F32), tile.args[1])
    inner.ret_void()
    b.call(tile, [element(b, buffer, at), b.memory(F32)])


def through_a_table(b: ir.IRBuilder, buffer: ir.Value, at: ir.Value) -> None:
    table = b.memory(PTR, 3)
    b.store(buffer, b.gep(table, [ir.i64(1)], PTR))
    load(b, b.load(b.gep(table, [ir.i64(1)], PTR), PTR), at)


def through_a_loop(b: ir.IRBuilder, buffer: ir.Value, at: ir.Value) -> None:
    entry, head, after = b.block, b.append_basic_block("head"), b.append_basic_block("after")
    b.branch(head)
    b.position_at_end(head)
    pointer = b.phi(PTR)
    pointer.add_incoming(buffer, entry)
    store(b, pointer, ir.i64(0))
    pointer.add_incoming(element(b, pointer, ir.i64(1)), head)
    b.cbranch(b.icmp_unsigned("<=", b.ptrtoint(pointer, I64), b.ptrtoint(element(b, buffer, at), I64)), head, after)
    b.position_at_end(after)


# What accesses the buffer at an element, and the last element where it may.
ACCESSES: dict[str, tuple[Callable[..., None], int]] = {
    "load": (load, SIZE - LANES),
    "store": (store, SIZE - 1),
    "masked load": (masked_load, SIZE - 3),
    "masked store": (masked_store, SIZE - 3),
    "gather": (gather, SIZE - 3),
    "scatter": (scatter, SIZE - 3),
    "copy": (copy, SIZE - 4),
    "function": (through_a_function, SIZE - 1),
    "table": (through_a_table, SIZE - LANES),
    "loop": (through_a_loop, SIZE - 2),
}


@pytest.mark.parametrize("name", ACCESSES)
def test_a_planted_access_is_found(name: str) -> None:
    access, last = ACCESSES[name]
    module = ir.Module("planted", host_spec(), CheckedBuilder)
    kernel = ir.Function(module, ir.FunctionType(VOID, [PTR, I64]), "kernel")
    b = kernel.build()
    access(b, b.bounded(b.given(kernel.args[0], 0), ir.i64(4 * SIZE), "the buffer"), kernel.args[1])
    b.ret_void()
    code = [jit.compile_ir(str(module))]
    library = loader.load(code, scratch.symbols() | sanitize.symbols(), ["kernel"])
    scratch.require()
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.address("kernel"))
    memory = np.zeros(3 * SIZE, np.float32)
    table = (ctypes.c_void_p * 1)(memory[SIZE:].ctypes.data)

    def call(at: int) -> None:
        run(ctypes.addressof(table), at)
        if sanitize.violations():
            sanitize.complain()

    for at in (0, last):
        call(at)
    before = memory.copy()
    with pytest.raises(
        CompileError, match=rf"(kernel|tile) (reads|writes) \d+ bytes at offset \d+ of the buffer, .* {4 * SIZE} bytes"
    ):
        call(last + 1)
    if name not in ("loop",):
        with pytest.raises(CompileError, match=r"at offset -\d+ of the buffer"):
            call(-4)
    memory[SIZE : 2 * SIZE] = before[SIZE : 2 * SIZE]
    np.testing.assert_array_equal(memory, before)  # nothing outside is touched
    call(0)  # a violation is told once


PLANTED = """
import contextlib, numpy as np, hybridml as hm
from hybridml import functional as F
from hybridml_compiler.targets.cpu.llvm.contraction.vectors import Vectors
from hybridml_compiler.targets.cpu.llvm.kernel import KernelEmitter
from hybridml_compiler.targets.cpu.spec import host_spec
def of(*shape): return hm.tensor(np.random.default_rng(0).standard_normal(shape).astype("f"))
Vectors.mask = lambda self, live, vector: None
KernelEmitter.tail_mask = lambda *_: contextlib.nullcontext()
programs = {
    "product": (lambda a, b: a @ b, of(70, 130), of(130, 333)),
    "convolution": (lambda x, w: F.conv2d(x, w, padding=1), of(1, 16, 13, 13), of(17, 16, 3, 3)),
    "loop": (lambda a: hm.tanh(a) + 1, of(2, 13)),
    "rows": (lambda a: F.softmax(a, -1), of(3, 70)),
}
for name, (program, *args) in programs.items():
    try:
        hm.trace(program)(*args)
    except Exception as error:
        print(name, type(error).__name__, str(error).splitlines()[0])
    else:
        print(name, "nothing was found")
print(hm.trace(lambda x: x + 1)(of(16)).shape)
"""


def test_a_kernel_without_its_masks_is_found(tmp_path: Path) -> None:
    """As a user meets it: an exception, and the process lives. In a process, whose cache nobody else reads."""
    settings = os.environ | {"HYBRIDML_SANITIZE": "1", "HYBRIDML_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PLANTED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=settings)
    assert done.returncode == 0, done.stderr
    *found, last = done.stdout.splitlines()
    assert len(found) == 4 and last == "(16,)"
    for line in found:
        _, error, *message = line.split()
        assert error == "CompileError" and "HYBRIDML_SANITIZE:" in message, line


def test_checked_code_has_entries_of_its_own_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    x = hm.tensor(np.ones(33, np.float32))
    plain = hm.trace(lambda x: x * 3 + 1)
    plain(x)
    monkeypatch.setenv("HYBRIDML_SANITIZE", "1")
    checked = hm.trace(lambda x: x * 3 + 1)
    assert (checked(x) == plain(x)).all()
    assert sanitize.MASKED in checked.llvm
    monkeypatch.delenv("HYBRIDML_SANITIZE")
    assert sanitize.MASKED not in plain.llvm


PARTS = 8


@pytest.mark.parametrize("most", [1, pytest.param(99, marks=pytest.mark.slow)])
@pytest.mark.parametrize("part", range(PARTS))
def test_the_operation_table(part: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row, at its samples in one program."""
    monkeypatch.setenv("HYBRIDML_SANITIZE", "1")
    for op in [*OPS.values()][part::PARTS]:
        given = []
        for sample in islice(op.samples(np.random.default_rng(0)), most):
            tensors = [hm.asarray(np.asarray(a)) for a in (sample.args[0] if op.variadic else sample.args)]
            given.append(([tensors] if op.variadic else tensors, sample.params))

        def program(op: Any = op, given: Any = given) -> list[Any]:
            return [op.fn(*args, **params) for args, params in given]

        hm.trace(program)()


def array(*shape: int) -> hm.Tensor:
    return hm.tensor(np.random.default_rng(1).standard_normal(shape).astype(np.float32))


CONVOLUTIONS = [  # images, channels, height, width, features, taps, stride, padding, dilation, groups
    (1, 1, 28, 28, 32, 5, 1, 2, 1, 1),
    (2, 3, 32, 31, 16, 7, 2, 3, 1, 1),
    (2, 32, 9, 7, 8, 3, 2, 0, 2, 1),
    (2, 24, 15, 15, 24, 3, 1, 1, 1, 24),
    (2, 12, 13, 13, 24, 3, 1, 1, 1, 6),
    (1, 64, 14, 13, 64, 3, 1, 1, 1, 1),
    (4, 64, 13, 13, 70, 5, 1, 2, 1, 1),
]
PRODUCTS = [(65, 129, 257), (512, 33, 70), (16, 1024, 300), (100, 784, 10), (129, 128, 1025)]


def gradients(f: Callable[..., hm.Tensor], *args: hm.Tensor) -> None:
    def step(*args: hm.Tensor) -> Any:
        y, pull = hm.vjp(f, *args)
        return pull(y)

    hm.trace(step)(*args)


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions(case: tuple[int, ...], last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRIDML_SANITIZE", "1")
    n, c, h, w, o, k, stride, padding, dilation, groups = case

    def f(x: hm.Tensor, taps: hm.Tensor) -> hm.Tensor:
        x = x.permute(0, 3, 1, 2) if last else x
        y = F.relu(F.conv2d(x, taps, stride=stride, padding=padding, dilation=dilation, groups=groups))
        return y.permute(0, 2, 3, 1) if last else y

    gradients(f, array(n, h, w, c) if last else array(n, c, h, w), array(o, c // groups, k, k))


@pytest.mark.parametrize("turned", [False, True], ids=["", "transposed"])
@pytest.mark.parametrize("sizes", PRODUCTS, ids=str)
def test_products(sizes: tuple[int, int, int], turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRIDML_SANITIZE", "1")
    m, k, n = sizes
    gradients(lambda a, b: hm.tanh(a @ (b.T if turned else b)), array(m, k), array(n, k) if turned else array(k, n))


def narrow(dtype: Any) -> Any:
    def f(a: hm.Tensor, b: hm.Tensor) -> hm.Tensor:
        return hm.matmul(a.astype(dtype), b.astype(dtype))

    return lambda: hm.trace(f)(array(70, 130), array(130, 90))


def lengths() -> None:
    f = hm.trace(lambda x: (F.softmax(x @ x.T, -1).sum(0), x.sum(0), hm.cumsum(x, 0)))
    for n in (5, 9, 17, 64, 33):
        f(array(n, 24))


PROGRAMS: dict[str, Callable[[], Any]] = {
    "attention": lambda: gradients(F.scaled_dot_product_attention, *[array(2, 3, 70, 24) for _ in range(3)]),
    "layer_norm": lambda: gradients(lambda x: F.layer_norm(x, (130,)), array(57, 130)),
    "softmax": lambda: gradients(lambda x: F.softmax(x, -1), array(57, 1030)),
    "columns": lambda: gradients(lambda x: x.sum(0) * x.max(0), array(512, 2048)),
    "scan": lambda: hm.trace(lambda x, w: hm.scan(lambda c, y: (hm.tanh(c @ w + y), c.sum()), x[0], x))(
        array(20, 8, 16), array(16, 16)
    ),
    "bfloat16": narrow(hm.bfloat16),
    "int8": narrow(hm.int8),
    "prologue": lambda: hm.trace(lambda a, b: F.layer_norm(a, (96,)) @ b)(array(64, 96), array(96, 272)),
    "quantized": lambda: hm.trace(
        lambda a, b: hm.matmul(hm.clip(hm.round(a * 20), -127, 127).astype(hm.int8), b.astype(hm.int8)) + 1
    )(array(128, 256), array(256, 128)),
    "lengths": lengths,
    "numpy": lambda: hm.trace(lambda x: hm.sort(x) + 1)(array(100)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRIDML_SANITIZE", "1")
    PROGRAMS[name]()


def test_an_empty_array_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load under a mask that is false read the first element, which an empty array has not."""
    monkeypatch.setenv("HYBRIDML_SANITIZE", "1")
    f = hm.trace(lambda x: hm.concatenate([F.pad(x, (2, 1)) * 2, x]))
    assert f(hm.zeros((0,))).tolist() == [0, 0, 0]


def test_many_lanes_are_checked_in_words() -> None:
    module = ir.Module("wide", host_spec(), CheckedBuilder)
    kernel = ir.Function(module, ir.FunctionType(VOID, [PTR]), "kernel")
    b, kind = kernel.build(), ir.VectorType(I8, 128)
    buffer = b.bounded(b.given(kernel.args[0], 0), ir.i64(100), "the buffer")
    mask = ir.Constant(ir.VectorType(I1, 128), [int(k < 100) for k in range(128)])
    zeros = ir.Literal(kind, "zeroinitializer")
    b.intrinsic("masked.store", VOID, [zeros, buffer, ir.Constant(I32, 1), mask], [kind, PTR])
    b.ret_void()
    assert str(module).count(f"call i1 @{sanitize.MASKED}") == 2
    jit.compile_ir(str(module))

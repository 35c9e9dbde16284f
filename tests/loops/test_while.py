"""Loops of scalars: their text, and one meaning in the interpreter, in lanes and for one value."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hybridml_compiler import dtypes
from hybridml_compiler.loops.builder import LoopBuilder
from hybridml_compiler.loops.interpret import interpret_kernel
from hybridml_compiler.loops.ir import Buffer, Expr, For, Kernel, Store
from hybridml_compiler.loops.scalar import NumpyBuilder
from hybridml_compiler.loops.text import parse_kernel, print_kernel
from hybridml_compiler.loops.transforms import vectorize
from hybridml_compiler.loops.verify import verify_kernel
from hybridml_compiler.targets.cpu.llvm import ir
from hybridml_compiler.targets.cpu.llvm.kernel import emit_kernel
from hybridml_compiler.targets.cpu.program import imports
from hybridml_compiler.targets.cpu.runtime import jit
from hybridml_compiler.targets.cpu.runtime.linking import loader
from hybridml_compiler.targets.cpu.spec import host_spec

TEXT = """\
kernel(b0: i64[37], b1: f64[1], b2: f64[37] out) {
  for i0 < 37 {
    t0 = b0[i0]
    t1 = while(t0 > 0, c0 = 0.0:f64, c1 = t0) with (c2 = b1[0]) {
      t2 = while(c1 != 1, c3 = c1, c4 = 0) {
        t3 = select(mod(c3, 2) == 0, floordiv(c3, 2), c3 * 3 + 1)
        yield t3 != 1, t3, c4 + 1
      }
      yield c1 > 1, c0 + cast(carry(t2, 1), f64) * c2, c1 + -1
    }
    b2[i0] = carry(t1, 0)
  }
}
"""


def collatz(s: Any, n: Any) -> Any:
    """The steps that a number takes to 1. Of 0 and negative ones there is no end."""

    def step(n: Any, k: Any) -> Sequence[Any]:
        even = s.eq(s.mod(n, one(s, 2)), one(s, 0))
        after = s.select(even, s.floordiv(n, one(s, 2)), s.add(s.mul(n, one(s, 3)), one(s, 1)))
        return s.ne(after, one(s, 1)), after, s.add(k, one(s, 1))

    return s.while_(s.ne(n, one(s, 1)), [n, one(s, 0)], [], step)[1]


def one(s: Any, number: int) -> Any:
    return s.const(number, dtypes.int64)


def total(s: Any, n: Any, factor: Any) -> Any:
    """The sum of the steps that n, n - 1, .. 1 take, each times the factor."""

    def step(found: Any, n: Any, factor: Any) -> Sequence[Any]:
        steps = s.mul(s.cast(collatz(s, n), dtypes.float64), factor)
        return s.gt(n, one(s, 1)), s.add(found, steps), s.sub(n, one(s, 1))

    return s.while_(s.gt(n, one(s, 0)), [s.const(0.0, dtypes.float64), n], [factor], step)[0]


def by_python(n: int, factor: float) -> float:
    found = 0.0
    for k in range(n, 0, -1):
        steps = 0
        while k != 1:
            k = k // 2 if k % 2 == 0 else 3 * k + 1
            steps += 1
        found += steps * factor
    return found


N, FACTOR = np.random.default_rng(0).integers(-3, 30, 37), np.array([0.1])
EXPECTED = np.array([by_python(int(n), 0.1) for n in N])


def kernel() -> tuple[LoopBuilder, Kernel]:
    s = LoopBuilder()
    n, factor = Buffer("b0", dtypes.int64, 37), Buffer("b1", dtypes.float64, 1)
    out, i = Buffer("b2", dtypes.float64, 37, "out"), s.var("i", 37)
    found: Expr = total(s, s.load(n, i), s.load(factor, 0))
    return s, Kernel((n, factor, out), (For(i, (Store(out, i, found),)),))


def test_its_text() -> None:
    _, made = kernel()
    verify_kernel(made)
    assert print_kernel(made) == TEXT == print_kernel(parse_kernel(TEXT))
    verify_kernel(parse_kernel(TEXT))


def test_equal_loops_are_one() -> None:
    s = LoopBuilder()
    n = s.var("n", 9)
    assert collatz(s, n) is collatz(s, n)
    assert collatz(s, n) is not collatz(s, s.add(n, 1))


def test_under_a_mask_it_takes_no_step() -> None:
    s, n = LoopBuilder(), Buffer("b0", dtypes.int64, 4)
    i = s.var("i", 4)
    within = s.masked(s.ge(i, 2), lambda: collatz(s, s.load(n, i)), s.const(-1, dtypes.int64))
    out = Buffer("b1", dtypes.int64, 4, "out")
    found = np.zeros(4, np.int64)
    interpret_kernel(Kernel((n, out), (For(i, (Store(out, i, within),)),)), [np.array([0, -1, 1, 6]), found])
    assert found.tolist() == [-1, -1, 0, 8]


def test_its_definition() -> None:
    found = total(NumpyBuilder(), N, FACTOR)
    assert np.array_equal(found, EXPECTED)
    assert total(NumpyBuilder(), np.int64(9), np.float64(0.1)) == by_python(9, 0.1)
    out = np.zeros(37)
    interpret_kernel(kernel()[1], [N, FACTOR, out])
    assert np.array_equal(out, EXPECTED)


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
def test_compiled(lanes: int) -> None:
    """37 elements: the last vector has lanes beyond the end, in which a loop would have none."""
    _, made = kernel()
    (loop,) = made.body
    assert isinstance(loop, For)
    if lanes > 1:
        made = vectorize(made, loop.var, lanes)
    text = []
    for each in (made, parse_kernel(print_kernel(made))):
        module = ir.Module("kernel", host_spec())
        emit_kernel(module, "kernel", each)
        text.append(str(module))
    assert text[0] == text[1]
    library = loader.load([jit.compile_cached(text[0])], imports([], ["hml_poll"]), ["kernel"])
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(library.address("kernel"))
    out = np.zeros(37)
    run((ctypes.c_void_p * 3)(*[a.ctypes.data for a in (N, FACTOR, out)]), 0, 37)
    assert np.array_equal(out, EXPECTED)

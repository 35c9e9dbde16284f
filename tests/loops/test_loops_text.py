"""Every row and sample as kernels: their text reads back, they keep the rules, and they mean what the graph means."""

from __future__ import annotations

import numpy as np
import pytest

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, apply, graph_of
from hybridml_compiler.loops.builder import LoopBuilder
from hybridml_compiler.loops.ir import Buffer, For, Kernel, Store
from hybridml_compiler.loops.text import parse_kernel, print_kernel
from hybridml_compiler.loops.verify import verify_kernel
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.targets.cpu.llvm.kernel import emit_kernel
from hybridml_compiler.targets.cpu.spec import host_spec
from tests.support.rows import joined
from tests.support.run_plan import plan_of, run_plan

# Reductions and products run in another order than NumPy's; everything else has the same bits.
_REORDERED = ("reduction", "contraction", "convolution", "scan")


def llvm(kernel: Kernel) -> str:
    from hybridml_compiler.targets.cpu.llvm import ir

    module = ir.Module("kernel", host_spec())
    emit_kernel(module, "kernel", kernel)
    return str(module)


@pytest.mark.parametrize("name", OPS)
def test_kernels_of_a_row(name: str) -> None:
    op = OPS[name]
    for number, sample in enumerate(joined(op, op.samples(np.random.default_rng(0)))):
        args = sample.args[0] if op.variadic else sample.args
        arrays = [np.ascontiguousarray(a).reshape(np.shape(a)) for a in args]
        nodes = graph_of(arrays)
        parts = [{"result": k} for k in range(len(op.results))] or [{}]
        graph = Graph(tuple(nodes), tuple(apply(op, nodes, {**sample.params, **part}) for part in parts), name)
        plan = plan_of(graph, blas=False)
        for launch in plan.launches:
            if isinstance(launch.spec, Kernel):
                verify_kernel(launch.spec)
                check_round_trip(launch.spec, same_code=number == 0)
        expected, got = interpret(graph, arrays), run_plan(plan, arrays, len(parts), {})
        assert got is not None
        label = f"{name} sample {number} {dict(sample.params)}"
        for found, wanted in zip(got, expected, strict=True):
            if (op.kind in _REORDERED or op.transforms) and wanted.dtype.kind in "fc":
                scale = 1e-5 if wanted.dtype in (dtypes.float32, dtypes.complex64) else 1e-12
                np.testing.assert_allclose(found, wanted, rtol=scale, atol=scale, err_msg=label)
            else:
                np.testing.assert_array_equal(found, wanted, err_msg=label)


def check_round_trip(kernel: Kernel, *, same_code: bool) -> None:
    text = print_kernel(kernel)
    again = parse_kernel(text)
    assert print_kernel(again) == text
    verify_kernel(again)
    assert [b.role for b in again.buffers] == [b.role for b in kernel.buffers]
    if same_code:
        assert llvm(again) == llvm(kernel)


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d.kind != "c"])  # complex ones are pairs of parts
def test_constants_keep_their_bits(dtype: np.dtype) -> None:
    width = 8 * dtype.itemsize
    patterns = {0, 1, 2, (1 << width) - 1, 1 << width - 1, (1 << width) // 3, 0x7FC00001 % (1 << width)}
    values = [np.array(p, f"u{dtype.itemsize}").view(dtype)[()] for p in patterns if dtype.kind != "b"] or [False, True]
    if dtype.kind == "f":
        values += [dtype.type(v) for v in (0.1, -0.0, np.inf, -np.inf, np.nan, 1e-40, 123456.789, np.finfo(dtype).max)]
    for value in values:
        s, out = LoopBuilder(), Buffer("out", dtype, 1, "out")
        kernel = Kernel((out,), (Store(out, s.const(0, dtypes.int64), s.const(value, dtype)),))
        (store,) = parse_kernel(print_kernel(kernel)).body
        assert isinstance(store, Store)
        assert np.asarray(store.value.attr).astype(dtype).tobytes() == np.asarray(value, dtype).tobytes(), value


def test_equal_kernels_have_equal_text() -> None:
    """Names follow the order of appearance, not the order in which the builder happened to number variables."""

    def build(skip: int) -> str:
        s, x, out = LoopBuilder(), Buffer("x", dtypes.float32, 4), Buffer("out", dtypes.float32, 4, "out")
        for _ in range(skip):
            s.var("unused", 3)
        i = s.var("row", 4)
        return print_kernel(Kernel((x, out), (For(i, (Store(out, i, s.exp(s.load(x, i))),), "vector"),), 4))

    assert build(0) == build(5)


def test_text_shows_structure() -> None:
    text = """\
kernel(b0: f32[12], b1: f32[3], b2: f32[12] out) lanes 16 cost 2.5 {
  for i0 < 3 parallel {
    t0 = i0 * 4
    s0 = reduce add over r0 < 4 vector {
      t1 = b0[t0 + r0]
      yield t1 * t1
    }
    for i1 < 4 vector {
      t2 = t0 + i1
      b2[t2] = b0[t2] / sqrt(s0) - b1[i1 - 1 if i1 >= 1]
    }
  }
}
"""
    kernel = parse_kernel(text)
    verify_kernel(kernel)
    assert print_kernel(kernel) == text
    assert kernel.range is kernel.body[0].var
    assert kernel.lanes == 16 and kernel.cost == 2.5


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("b0[j]", "expected a name that is defined above, got 'j'"),
        ("b0[i] +", "expected an expression, got '}'"),
        ("b0[i", "expected ']', got '}'"),
        ("frobnicate(b0[i])", "expected an instruction, or a transcendental function, got 'frobnicate'"),
        ("select(true, b0[i])", "expected 3 operands for select"),
        ("cast(b0[i], f33)", "expected a dtype such as f32, got 'f33'"),
        ("carry(b0[i], 0)", "expected the number of a carry, got '0'"),
        ("carry(while(true, c = 1) { yield c < 2, c }, 1)", "expected the number of a carry, got '1'"),
        ("while(true, c = 1, c = 2) { yield true }", "expected a name that is not yet defined, got 'c'"),
        ("while(true, c = 1) { yield i < 2, c }", "expected a name that is defined above, got 'i'"),
        ("while(true, 1) { yield true, 1 }", "expected the name of a parameter, got '1'"),
        ("1.5:i32", "expected a number of i32, got '1.5'"),
        ("b0[i] $ 2", "expected a kernel, got '$'"),
    ],
)
def test_errors_name_the_place(expression: str, message: str) -> None:
    text = f"kernel(b0: f32[4], b1: f32[4] out) {{\n  for i < 4 {{\n    b1[i] = {expression} }} }}"
    with pytest.raises(ArgumentError, match=r"parse_kernel: line 3, column \d+: ") as caught:
        parse_kernel(text)
    assert message in str(caught.value)


def test_names_are_defined_once() -> None:
    with pytest.raises(ArgumentError, match="expected a name that is not yet defined, got 'i'"):
        parse_kernel("kernel(b0: f32[4] out) { for i < 4 { for i < 4 { b0[i] = 0.0:f32 } } }")

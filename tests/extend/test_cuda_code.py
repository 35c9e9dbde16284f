"""Kernels of users for a GPU, on the simulated one and on a stand-in for CuPy: CUDA C, CuPy's kernels, numba.cuda's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.cuda import needs_nvrtc
from tests.support.gpus import Gpu, there

__all__ = ["there"]
pytestmark = [needs_nvrtc, pytest.mark.usefixtures("own_devices")]

SHIFT = r"""
extern "C" __global__ void shift(const float* x, float* out, int rows, int columns, float by) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
  if (r < rows && c < columns) out[r * columns + c] = x[r * columns + (c + 1) % columns] + by;
}"""


def over_squares(x: Any, out: Any, *, by: float) -> Any:
    rows, columns = x.shape
    grid = -(-columns // 16), -(-rows // 8)
    return grid, (16, 8), (x, out, np.int32(rows), np.int32(columns), np.float32(by))


@hm.op(infer=lambda x, *, by: x, vjp=lambda g: hm.roll(g, 1, axis=1), cuda=SHIFT, launch=over_squares)
def shifted(x: np.ndarray, *, by: float = 0.5) -> np.ndarray:
    return np.roll(x, -1, 1) + x.dtype.type(by)


def test_both_devices_compute_the_operation(there: Gpu) -> None:
    x = hm.randn(20, 33)
    d = x.to(there.name)
    assert np.array_equal(shifted(d, by=2.0).cpu().numpy(), shifted(x, by=2.0).numpy())
    gradient = hm.grad(lambda x: (shifted(x) ** 2).sum())
    np.testing.assert_allclose(gradient(d).cpu().numpy(), gradient(x).numpy(), rtol=1e-6)


def test_it_stands_in_a_traced_program_that_is_replayed(there: Gpu) -> None:
    fn = hm.trace(lambda x: hm.exp(shifted(x * 2)) + 1)
    for _ in range(4):
        x = hm.randn(20, 33)
        assert np.array_equal(fn(x.to(there.name)).cpu().numpy(), fn(x).numpy())


def parameter(name: str, ctype: str, dtype: Any = None, raw: bool = False) -> SimpleNamespace:
    return SimpleNamespace(name=name, ctype=ctype, dtype=dtype, raw=raw, is_const=True)


def elementwise(inputs: Any, outputs: Any, operation: str, preamble: str = "") -> SimpleNamespace:
    """A stand-in for `cupy.ElementwiseKernel`, with its attributes."""
    return SimpleNamespace(in_params=inputs, out_params=outputs, operation=operation, preamble=preamble, name="of_cupy")


def test_an_elementwise_kernel_of_cupy(there: Gpu) -> None:
    T = parameter
    kernel = hm.kernel(elementwise((T("x", "T"), T("y", "T")), (T("z", "T"),), "z = x < y ? x * y : (T)0"))
    x, y = hm.randn(5, 1, 7), hm.randn(3, 1)
    given = x.to(there.name), y.to(there.name)
    expected = np.where(x.numpy() < y.numpy(), x.numpy() * y.numpy(), np.float32(0))
    assert np.array_equal(kernel(*given).cpu().numpy(), expected)
    assert np.array_equal(hm.trace(lambda x, y: kernel(x, y) * 2)(*given).cpu().numpy(), expected * 2)
    assert hm.vmap(kernel, in_axes=(0, None))(*given).shape == (5, 3, 7)
    with pytest.raises(hm.DeviceError, match="of_cupy is a kernel for a GPU"):
        kernel(x, y)
    with pytest.raises(hm.ShapeError, match="of_cupy"):
        kernel(given[0], hm.ones(2, 2, device=there.name))


def test_results_of_other_types_and_raw_operands(there: Gpu) -> None:
    T = parameter
    two = hm.kernel(
        elementwise(
            (T("x", "float", np.float32), T("table", "float", np.float32, raw=True)),
            (T("big", "bool", np.bool_), T("found", "float", np.float32)),
            "big = limit(x); found = table[i % 2] + x",
            "__device__ bool limit(float x) { return x > 0.5f; }",
        )
    )
    x, table = hm.tensor([0.25, 1.0, 3.0]), hm.tensor([10.0, 20.0, 0.0])
    big, found = two(x.to(there.name), table.to(there.name))
    assert big.cpu().tolist() == [False, True, True] and found.cpu().tolist() == [10.25, 21.0, 13.0]
    unread = hm.trace(lambda x, t: two(x, t)[1])
    assert unread(x.to(there.name), table.to(there.name)).cpu().tolist() == [10.25, 21.0, 13.0]
    with pytest.raises(hm.ArgumentError, match="x is float32, got float64"):
        two(x.astype(hm.float64).to(there.name), table.to(there.name))


def test_types_that_an_elementwise_kernel_lacks(there: Gpu) -> None:
    """Narrow floats are computed in float32; complex numbers are an error."""
    T = parameter
    kernel = hm.kernel(elementwise((T("x", "T"),), (T("z", "T"),), "z = x / 3"))
    for dtype in (hm.bfloat16, hm.float16):
        x = hm.randn(40).astype(dtype)
        assert kernel(x.to(there.name)).cpu().tolist() == (x.astype(hm.float32) / 3).astype(dtype).tolist()
    with pytest.raises(hm.ArgumentError, match="float64, got complex64"):
        kernel(hm.ones(3, dtype=hm.complex64).to(there.name))


def test_two_kernels_of_one_source_are_two_operations(there: Gpu) -> None:
    source = "".join(
        f'extern "C" __global__ void {name}(const float* x, float* out) {{ out[threadIdx.x] = x[threadIdx.x] {by}; }}\n'
        for name, by in (("more", "+ 1"), ("less", "- 1"))
    )
    found = []
    for name in ("more", "less"):
        move = hm.kernel(
            SimpleNamespace(code=source, name=name, options=()), inputs=["x"], name="move",
            infer=lambda x: x, launch=lambda x, out: (1, x.size, [x, out]),
        )  # fmt: skip
        x = hm.ones(3, device=there.name)
        found.append((move(x).tolist(), hm.trace(lambda x, move=move: move(x) * 2)(x).tolist()))
    assert found == [([2.0] * 3, [4.0] * 3), ([0.0] * 3, [0.0] * 3)]


def test_a_function_of_numba(there: Gpu) -> None:
    cuda = pytest.importorskip("numba.cuda")
    try:
        cuda.compile_ptx(lambda n: None, (pytest.importorskip("numba").int64,), cc=(8, 0))
    except Exception as error:
        pytest.skip(f"numba has no compiler for a GPU here: {error}")

    @cuda.jit
    def scaled(x: Any, out: Any, factor: Any) -> None:
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i, 1] * factor

    kernel = hm.kernel(
        scaled,
        inputs=["x"],
        params={"factor": 2.0},
        infer=lambda x, *, factor: hm.ShapeDtypeStruct(x.shape[:1], x.dtype),
        launch=lambda x, out, *, factor: (2, 32, [x, out, factor]),
    )
    x = hm.randn(40, 3)
    assert np.array_equal(kernel(x.to(there.name), factor=3.0).cpu().numpy(), x.numpy()[:, 1] * 3)


def test_a_function_of_numba_is_compiled_once(there: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tensors of a launch are seven arguments each: the memory is the fifth."""
    cuda, compiled = pytest.importorskip("numba.cuda"), []
    parameters = ", ".join(f".param .u64 p{k}" for k in range(14))
    ptx = f""".version 8.0
.target sm_80
.visible .entry copied({parameters}) {{
  .reg .f32 %f<2>; .reg .b32 %r<2>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [p4]; ld.param.u64 %rd2, [p11]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3; ld.global.f32 %f1, [%rd1]; st.global.f32 [%rd2], %f1; ret;
}}"""
    monkeypatch.setattr(cuda, "compile_ptx", lambda *given, cc: compiled.append(given) or (ptx, None))
    dispatcher = SimpleNamespace(py_func=lambda x, out: None, forall=None)
    kernel = hm.kernel(
        dispatcher, inputs=["x"], infer=lambda x: hm.ShapeDtypeStruct(x.shape, x.dtype),
        launch=lambda x, out: (1, x.size, [x, out]), name=f"copied_{there.name.replace(':', '_')}",
    )  # fmt: skip
    for size in (4, 4, 6):
        x = hm.randn(size)
        assert kernel(x.to(there.name)).cpu().tolist() == x.tolist()
    assert len(compiled) == 1


@pytest.mark.parametrize(
    "columns, said",
    [
        ({"cuda": SHIFT}, "needs launch="),
        ({"cuda": "__device__ int f();", "launch": over_squares}, "has one __global__ function, found none"),
        ({"cuda": SHIFT.replace('extern "C" ', ""), "launch": over_squares}, 'declared extern "C"'),
        (
            {"cuda": SimpleNamespace(code=SHIFT, name="shift", options=("--use_fast_math",)), "launch": over_squares},
            "with the options --use_fast_math",
        ),
        ({"cuda": SHIFT, "launch": over_squares, "lower": lambda s, x: x}, "lower="),
    ],
)
def test_code_that_does_not_fit(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(hm.ArgumentError, match=said):
        hm.op(lambda x: x, infer=lambda x: x, name="unfit", **columns)


@pytest.mark.parametrize(
    "launch, error, said",
    [
        (lambda x, out: ((1,), (32,)), hm.ArgumentError, r"returns \(grid, block, arguments\)"),
        (lambda x, out: ((0,), (32,), [x, out]), hm.ArgumentError, "positive integers"),
        (lambda x, out: ((1,), (32,), [x, "y"]), hm.ArgumentError, "got str"),
        (lambda x, out: ((1,), (32,), [x, out, 20, np.int32(3), np.float32(1)]), hm.CompileError, "argument 2"),
        (
            lambda x, out: ((9,), (32,), [x, out, np.int32(9), np.int32(9), np.float32(1)]),
            Exception,
            "of buffer 0, which has 24",
        ),
    ],
)
def test_launches_that_do_not_fit(launch: Any, error: type[Exception], said: str) -> None:
    op = hm.op(lambda x: x, infer=lambda x: x, name="mislaunched", cuda=SHIFT, launch=launch)
    with pytest.raises(error, match=said):
        op(hm.ones((2, 3), device="cuda:sim"))

"""The simulated CUDA device as users have it: eager and traced, in training, and where they err."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.loops.text import parse_kernel, print_kernel
from hybridml_compiler.targets.cuda.code import CudaKernel
from hybridml_compiler.targets.cuda.fallback import Interpreted
from tests.support.closeness import assert_close
from tests.support.cuda import SIM, TARGET, compiled, needs_nvrtc, same_bits

pytestmark = needs_nvrtc


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [hm.tensor((rng.standard_normal(shape) * 3).astype("f4")) for shape in shapes]


def test_names() -> None:
    x = hm.tensor([1.0, 2.0]).to(SIM)
    assert repr(x + 1) == "Tensor([2., 3.], device='cuda:sim')"
    assert repr(x.device) == "device('cuda:sim')" and x.device == hm.device(SIM)
    assert "f32[2]@cuda:sim" in str(x._array.aval)
    f = hm.trace(lambda x: x * 2)
    assert f(x).device == SIM
    assert hm.zeros(3, device=SIM).device == SIM


@pytest.mark.parametrize("style", ["eager", "traced"])
def test_elementwise_has_the_bits_of_the_cpu(style: str) -> None:
    def program(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        return hm.functional.gelu(x * 30) - hm.tanh(y) ** 3 / (hm.sin(1e5 * x) + 1.5)

    x, y = arrays((7, 50), (50,))
    run = program if style == "eager" else hm.trace(program)
    assert same_bits(run(x.to(SIM), y.to(SIM)).cpu().numpy(), program(x, y).numpy())


@pytest.mark.parametrize("dtype", [hm.int8, hm.uint8, hm.int16, hm.uint16, hm.int32, hm.uint32, hm.int64, hm.uint64])
def test_integers_wrap(dtype: Any) -> None:
    info = np.iinfo(np.dtype(dtype))
    x = hm.tensor(np.array([info.min, info.max, info.max // 2 + 1, 3], np.dtype(dtype)))
    program = hm.trace(lambda x: (x * x + x - 3) // 5 - (x << 3) * (x >> 1))
    with np.errstate(all="ignore"):
        assert same_bits(program(x.to(SIM)).cpu().numpy(), program(x).numpy())


def test_rows_are_one_kernel() -> None:
    (x,) = arrays((6, 300))
    for f in (lambda x: hm.functional.softmax(x * 20, -1), lambda x: hm.functional.layer_norm(x, (300,))):
        traced = hm.trace(f)
        assert_close(traced(x.to(SIM)).cpu(), f(x))
        assert traced.llvm.count("__global__") == 1 and "__shared__" in traced.llvm


def trained(device: str, style: str) -> tuple[list[np.ndarray], list[float]]:
    """Weights after three steps of a small network, and the losses."""
    hm.random.seed(0)
    model = hm.nn.Sequential(hm.nn.Linear(5, 8), hm.nn.LayerNorm(8), hm.nn.GELU(), hm.nn.Linear(8, 3)).to(device)
    optimizer = hm.optim.Adam(model.parameters(), 0.01)
    rng = np.random.default_rng(1)
    x, labels = hm.tensor(rng.standard_normal((12, 5)).astype("f4")), hm.tensor(rng.integers(0, 3, 12))
    x, labels = x.to(device), labels.to(device)

    def step(x: hm.Tensor, labels: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = hm.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    run = hm.trace(step) if style == "traced" else step
    losses = [float(run(x, labels)) for _ in range(3)]
    return [p.detach().cpu().numpy() for p in model.parameters()], losses


def test_a_training_step() -> None:
    """Matrix products are NumPy's for now; everything else is a generated kernel."""
    with compiled() as made:
        there, losses = trained(SIM, "traced")
    here, expected = trained("cpu", "traced")
    assert losses[2] < losses[0]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for a, b in zip(there, here, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert len(made) > 10 and all(isinstance(code, CudaKernel) for code in made)


@pytest.mark.usefixtures("source_lines")
def test_an_index_out_of_range_names_the_users_line() -> None:
    @hm.trace
    def chosen(x: hm.Tensor, k: hm.Tensor) -> hm.Tensor:
        y = x * 2
        return y[k]  # here

    x, k = hm.zeros((4, 2)).to(SIM), hm.tensor([1, 7]).to(SIM)
    assert chosen(x, hm.tensor([1, -4]).to(SIM)).cpu().tolist() == [[0, 0], [0, 0]]
    with pytest.raises(IndexError, match=r"test_cuda_device\.py:\d+: .*  # here$"):
        chosen(x, k).cpu()
    with pytest.raises(IndexError, match=r"test_cuda_device\.py:\d+: .*  # here$"):
        x[k].cpu()  # here


def test_control_flow() -> None:
    def program(x: hm.Tensor) -> Any:
        total, ys = hm.scan(lambda c, row: (c + row, c * row), x[0] * 0, x)
        return total, ys, hm.while_loop(lambda t: (t < 9).all(), lambda t: t * 2, x + 1, max_steps=5)

    x = hm.arange(6.0).reshape(3, 2)
    for a, b in zip(hm.trace(program)(x.to(SIM)), program(x), strict=True):
        assert a.device == SIM and a.tolist() == b.tolist()


def test_what_has_no_kernel_is_interpreted_and_says_so() -> None:
    """Lowering makes no such loop nest today: the place is for what comes."""
    kernel = parse_kernel(
        "kernel(x: f32[4], y: f32[4] out, row: f32[4] scratch) {"
        " for i < 4 { row[i] = x[i] } for j < 4 { y[j] = row[3:i64 - j] } }"
    )
    code = TARGET.compile(kernel)
    assert isinstance(code, Interpreted)
    reason = "its scratch memory is not shared by the threads of a block"
    assert code.text == f"// interpreted: {reason}\n{print_kernel(kernel)}"
    x, y = np.arange(4).astype("f4"), np.zeros(4, "f4")
    assert code.run([x, y], 0, 1) and y.tolist() == [3, 2, 1, 0]


def test_long_arrays_take_turns() -> None:
    """More elements than a launch has threads."""
    n = 128 * 1024 + 77
    x = hm.arange(n)
    assert (x.to(SIM) * 3).cpu().numpy().tolist() == list(range(0, 3 * n, 3))


@pytest.mark.parametrize("where", [0, 5, 40, 399])
def test_lanes_that_know_the_result_shuffle_with_the_others(where: int) -> None:
    """`all` and `any` over a row: a lane whose value decides must not leave the warp."""
    x = np.zeros(400, "f4")
    x[where] = 1
    there = hm.tensor(x).to(SIM)
    found = hm.trace(lambda x: ((x < 1).all(), (x > 0).any(), (x > 1).any(), (x < 2).all()))(there)
    assert [bool(value) for value in found] == [False, True, False, True]


def test_one_kernel_serves_equal_loops() -> None:
    x = hm.ones(6).to(SIM)
    with compiled() as made:
        for _ in range(2):
            hm.trace(lambda x: hm.exp(x) * 2)(x)
    assert len(made) == 2 and made[0] is made[1]


def test_texts_of_programs_name_the_device() -> None:
    f = hm.trace(lambda x: x.sum(0) * 2)
    f(hm.ones((4, 3)).to(SIM))
    assert re.search(r"plan: \d+ launches", f.llvm) and 'extern "C" __global__' in f.llvm


@pytest.mark.parametrize("n", [30, 32, 50, 300])
def test_all_and_any_of_rows(n: int) -> None:
    """All lanes of a warp hand on what they have, also those whose own value settles the result."""
    for values in (np.ones(n, bool), np.zeros(n, bool), np.arange(n) % 3 == 1):
        x = hm.tensor(values).to(SIM)
        assert bool(hm.all(x)) == values.all() and bool(hm.any(x)) == values.any()

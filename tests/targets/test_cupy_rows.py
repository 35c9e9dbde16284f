"""Rows that CuPy computes on a GPU, on a stand-in for CuPy: the CPU's results, and nothing is copied to the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.errors import HybridmlError
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.targets import registry
from hybridml_compiler.targets.cuda.cupy_driver import CupyDriver
from hybridml_compiler.targets.cuda.libraries.cupy_rows import ROWS
from hybridml_compiler.targets.cuda.target import CudaTarget
from tests.support.cases import case
from tests.support.closeness import assert_close
from tests.support.cuda import needs_nvrtc
from tests.support.fake_cupy import FakeCuda, fake_cupy
from tests.support.on_devices import results

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("own_devices")]
OPAQUE = [op for op in OPS.values() if op.kind == "opaque"]


@pytest.fixture
def cupy() -> Iterator[Any]:
    """The stand-in, whose device "cuda" is there for the test."""
    made = fake_cupy()
    driver: Any = CupyDriver(
        0,
        made,
        form=lambda architecture: ("ptx", architecture),
        load=made.libraries.load,
        cuda=FakeCuda(made.cuda.runtime),
    )
    target = CudaTarget("cuda", lambda: driver)
    registry.register("cuda", lambda: target.device)
    yield made


def on(device: str, op: Op, args: Any, params: Any) -> list[Any]:
    found = op.fn(*[hm.tensor(np.asarray(a)).to(device) for a in args], **params)
    return list(found) if op.results else [found]


@pytest.mark.parametrize("op", [op for op in OPAQUE if op.name in ROWS], ids=lambda op: op.name)
def test_results_are_the_cpus(cupy: Any, op: Op) -> None:
    runtime = cupy.cuda.runtime
    for k, sample in enumerate(op.samples(np.random.default_rng(0))):
        with case(f"sample {k}"):
            expected = on("cpu", op, sample.args, sample.params)
            runtime.downloaded = 0
            found = on("cuda", op, sample.args, sample.params)
            complex_lu = op.name == "lu" and np.iscomplexobj(sample.args[0])
            assert runtime.downloaded == 0 or complex_lu or any(np.size(a) == 0 for a in sample.args)
            for a, b in zip(found, expected, strict=True):
                assert a.dtype == b.dtype and a.shape == b.shape and a.device == "cuda"
                if a.dtype.kind in "fc":
                    assert_close(a.cpu().numpy(), b.numpy())
                else:
                    np.testing.assert_array_equal(a.cpu().numpy(), b.numpy())


@pytest.mark.parametrize("op", [op for op in OPAQUE if op.name in ROWS and op.fails], ids=lambda op: op.name)
def test_errors_are_the_cpus(cupy: Any, op: Op) -> None:
    for sample in op.error_samples():
        with pytest.raises(sample.error) as error:
            on("cuda", op, sample.args, sample.params)
        assert isinstance(error.value, HybridmlError)
        assert sample.match in str(error.value).replace("@cuda", "")


def test_order_is_the_cpus(cupy: Any) -> None:
    """Equal elements stay in their order both ways, nans of either sign are the greatest, zeros are equal."""
    x = np.tile(np.array([[2, -np.nan, -1, 2, np.nan, 0.0, -0.0, 0.0, -np.inf]], "f4"), (3, 40))
    for kind in ("f4", "f8", "i2", "u1", "?"):
        a = hm.tensor(
            np.where(np.isnan(x), 5, abs(x)).clip(0, 9).astype(kind) if kind[0] not in "f" else x.astype(kind)
        )
        for axis in (0, 1):
            for descending in (False, True):
                for run in (hm.argsort, hm.sort):
                    found, expected = (run(t, axis=axis, descending=descending) for t in (a.to("cuda"), a))
                    np.testing.assert_array_equal(found.cpu().numpy(), expected.numpy())
        for largest in (False, True):
            found, expected = (hm.topk(t, 30, largest=largest).indices for t in (a.to("cuda"), a))
            np.testing.assert_array_equal(found.cpu().numpy(), expected.numpy())
    half = hm.tensor(x).to(hm.bfloat16)
    assert hm.sort(half.to("cuda")).dtype == hm.bfloat16
    np.testing.assert_array_equal(hm.argsort(half.to("cuda")).cpu().numpy(), hm.argsort(half).numpy())


def test_what_a_traced_function_leaves_to_cupy_stands_between_graphs(cupy: Any) -> None:
    runtime = cupy.cuda.runtime

    def program(x: Any) -> Any:
        ordered = hm.sort(x * 2 - 1, axis=0)
        spectrum = hm.fft.rfft(ordered + 1, axis=-1)
        scanned, _ = hm.scan(lambda c, row: (hm.sort(c + row), row), ordered[0], x)
        return hm.linalg.inv(ordered.mT @ ordered + 1e-1 * hm.eye(4, device=x.device)) + 1, abs(spectrum), scanned

    traced = hm.trace(program)
    for k in range(5):
        x = hm.tensor(np.random.default_rng(k).normal(size=(6, 4)).astype("f4"))
        runtime.downloaded, runtime.calls = 0, []
        found = traced(x.to("cuda"))
        assert runtime.downloaded == 0
        for a, b in zip(found, program(x), strict=True):
            assert_close(a.cpu().numpy(), b.numpy(), rtol=1e-3)
    assert runtime.calls.count("graph") >= 3 and {"thrust", "cufft", "cusolver"} < set(runtime.calls)
    last = [kernel.reasons[-1] for kernel in traced.explain().kernels]
    assert last.count("computed on the device by CuPy, between two graphs") == 4  # one of them in the loop


def test_memory_that_libraries_work_in_is_the_pools(cupy: Any) -> None:
    x = hm.ones((4, 4)).to("cuda")
    y = hm.sort(x)
    used = hm.cuda.memory_allocated("cuda")
    hm.cuda.reset_peak_memory_stats("cuda")
    z = hm.sort(x)
    assert hm.cuda.memory_allocated("cuda") == used + 512 < hm.cuda.max_memory_allocated("cuda")
    assert y.device == z.device == "cuda"


def test_plans_of_transforms_are_those_of_a_stream(cupy: Any) -> None:
    """CuPy's plans keep memory to work in, which is free in the order of the stream that it was taken on."""
    calls = cupy.cuda.runtime.calls
    x = hm.ones((4, 4)).to("cuda")
    hm.fft.fft(x), hm.fft.ifft(x)
    assert calls.count("plans dropped") == 1
    with hm.cuda.device("cuda"), hm.cuda.stream(hm.cuda.Stream()):
        hm.fft.fft(x), hm.fft.fft(x)
    assert calls.count("plans dropped") == 2


def test_what_a_machine_lacks_stays_on_the_host(cupy: Any) -> None:
    cupy.libraries.missing.add("cusolver")
    x = hm.tensor(np.random.default_rng(0).normal(size=(3, 3)))
    traced = hm.trace(lambda x: hm.sort(hm.linalg.inv(x) * 2))
    for run in (traced, lambda x: hm.sort(hm.linalg.inv(x) * 2)):
        assert_close(run(x.to("cuda")).cpu().numpy(), run(x).numpy())
    traced(x.to("cuda"))
    reasons = [kernel.reasons[-1] for kernel in traced.explain().kernels]
    assert any(
        "copied there" in r and "CuPy cannot use cuSOLVER here (ImportError: libcusolver.so" in r for r in reasons
    )
    assert "thrust" in cupy.cuda.runtime.calls


@pytest.mark.parametrize("op", [op for op in OPAQUE if op.name not in ROWS], ids=lambda op: op.name)
def test_other_rows_say_why_they_are_the_hosts(cupy: Any, op: Op) -> None:
    if not op.public:
        pytest.skip("no function of users")
    sample = next(s for s in op.samples(np.random.default_rng(0)) if all(np.size(a) for a in s.args))
    traced = hm.trace(lambda *args: op.fn(*args, **sample.params))
    traced(*[hm.tensor(np.asarray(a)).to("cuda") for a in sample.args])
    (kernel,) = [kernel for kernel in traced.explain().kernels if kernel.kind.startswith("NumPy's")]
    assert kernel.reasons[-1].endswith(f"its results back: no function of CuPy's is {op.name}")


@pytest.mark.usefixtures("source_lines")
def test_a_singular_matrix_names_the_users_line(cupy: Any) -> None:
    def solved(x: Any) -> Any:
        return hm.exp(hm.linalg.inv(x * 2)) + 1  # here

    traced = hm.trace(solved)
    good, bad = hm.eye(3).to("cuda"), hm.zeros((2, 3, 3)).to("cuda")
    for _ in range(4):
        traced(good)
    for run, x in ((traced, bad), (traced, hm.zeros((3, 3)).to("cuda")), (solved, bad)):
        with pytest.raises(
            np.linalg.LinAlgError, match=r"singular: its rank is 0 of 3(?s:.*)test_cupy_rows\.py:\d+:.*# here"
        ):
            run(x)
    assert_close(traced(good).cpu().numpy(), solved(good).cpu().numpy())


def test_numpy_is_asked_where_cupy_refuses(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rounding may make a matrix singular, or an iteration long, and the errors are NumPy's."""

    def refuses(*_: Any) -> Any:
        raise np.linalg.LinAlgError

    monkeypatch.setattr(cupy.linalg, "inv", refuses)
    x = hm.tensor([[2.0, 1.0], [1.0, 3.0]])
    assert_close(hm.linalg.inv(x.to("cuda")).cpu().numpy(), hm.linalg.inv(x).numpy())


def test_no_memory_to_work_in_names_the_lines(cupy: Any) -> None:
    pool: Any = registry.find_device("cuda")
    pool = pool.pool
    x = hm.ones((4, 4)).to("cuda")
    hm.sort(x)
    pool.empty_cache()
    pool.limit = hm.cuda.memory_reserved("cuda") + 1024  # the arena and the result, and nothing to work in
    with pytest.raises(hm.cuda.OutOfMemoryError, match="no memory for 64 bytes"):
        hm.sort(x)
    pool.limit = 1 << 28
    assert hm.sort(x).cpu().tolist() == x.cpu().tolist()


def test_plans_give_their_memory_to_what_lacks_it(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device: Any = registry.find_device("cuda")
    x = hm.ones((4, 4)).to("cuda")
    hm.sort(x)
    plans = [device.pool.take(1 << 20, device.default_stream)]
    monkeypatch.setattr(cupy.fft.config, "get_plan_cache", lambda: plans)
    device.pool.empty_cache()
    device.pool.limit = hm.cuda.memory_reserved("cuda") + 1024  # the arena and the result, and nothing to work in
    assert hm.sort(x).cpu().tolist() == x.cpu().tolist() and not plans


@pytest.mark.parametrize("name", ["sort", "fft_r2c", "solve", "cholesky", "eigh", "det", "solve_triangular", "pinv"])
def test_gradients_are_the_cpus(cupy: Any, name: str) -> None:
    sample = next(iter(OPS[name].samples(np.random.default_rng(0))))
    runtime = cupy.cuda.runtime
    here, runtime.downloaded = results(OPS[name], sample, "cpu"), 0
    there = results(OPS[name], sample, "cuda")
    status = 8  # whether the scatter of a sort's gradient has met an index out of range
    assert runtime.downloaded <= sum(a.nbytes for a in there) + status and len(here) == len(there)
    for a, b in zip(there, here, strict=True):
        assert_close(a, b)

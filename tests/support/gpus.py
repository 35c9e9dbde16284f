"""Devices of both drivers of the CUDA target, and of a GPU where there is one, for the same tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.targets import registry
from hybridml_compiler.targets.cuda.cupy_driver import CupyDriver
from hybridml_compiler.targets.cuda.device import CudaDevice
from hybridml_compiler.targets.cuda.simulated_driver import SimulatedDriver
from hybridml_compiler.targets.cuda.target import CudaTarget
from tests.support.fake_cudnn import FakeDnn
from tests.support.fake_cupy import FakeBlas, FakeCuda, fake_cupy


@dataclass
class Gpu:
    name: str
    device: CudaDevice
    runtime: Any  # of the stand-in; None for the simulated driver
    blas: Any
    dnn: Any

    @property
    def pool(self) -> Any:
        return self.device.pool


def gpu(kind: str, memory: int = 1 << 28) -> Gpu:
    """A new device of one of the two drivers."""
    runtime = blas = dnn = None
    driver: Any
    if kind == "gpu":
        return Gpu("cuda", registry.find_device("cuda"), None, None, None)  # type: ignore[arg-type]
    if kind == "cupy":
        cupy = fake_cupy(memory)
        runtime = cupy.cuda.runtime
        blas = FakeBlas(runtime)
        form: Any = lambda architecture: ("ptx", architecture)  # noqa: E731
        dnn = FakeDnn(runtime)
        driver = CupyDriver(0, cupy, blas, dnn, form, cupy.libraries.load, FakeCuda(runtime))
    else:
        driver = SimulatedDriver("cuda:other", memory)
    target = CudaTarget(driver.name, lambda: driver)
    registry.register(driver.name, lambda: target.device)
    return Gpu(driver.name, target.device, runtime, blas, dnn)


# And on a GPU, where there is one (benchmarks/gpu_check.py).
@pytest.fixture(params=["simulated", "cupy", *["gpu"] * hm.cuda.is_available()])
def there(request: pytest.FixtureRequest) -> Iterator[Gpu]:
    found = gpu(request.param)
    limit = found.pool.limit
    with hm.cuda.device(found.name):
        yield found
    found.pool.limit = limit


def array(*shape: int, seed: int = 0) -> Any:
    return hm.tensor(np.random.default_rng(seed).standard_normal(shape).astype("f4"))


class Exporter:
    """An array of another library: all that is known of it is DLPack."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __dlpack__(self, **asked: Any) -> Any:
        return self.x.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self.x.__dlpack_device__()

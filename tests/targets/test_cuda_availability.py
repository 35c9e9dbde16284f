"""Device "cuda" on machines that lack a part of what it takes: one sentence for each, where users meet it."""

from __future__ import annotations

import ctypes
import inspect
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import hybridml as hm
from hybridml_compiler.errors import DeviceError
from hybridml_compiler.targets.cuda import availability, nvrtc
from hybridml_compiler.targets.cuda.availability import Availability
from hybridml_compiler.targets.cuda.cupy_driver import CupyDriver
from tests.support import fake_cupy
from tests.support.cuda import needs_nvrtc


def whole(**changes: Any) -> Availability:
    """Findings on a machine with a GPU, but for some of them."""
    there: dict[str, Any] = {"driver": (13, 0), "devices": 2, "cupy": "14.2.0", "runtime": (13, 2), "nvrtc": (13, 5)}
    return Availability(**{**there, **changes})


PROBLEMS = [
    (whole(driver=None, devices=0, cupy=None, runtime=None), "no NVIDIA driver (no libcuda): install the driver"),
    (whole(devices=0), "the NVIDIA driver finds no GPU: look at nvidia-smi, and whether CUDA_VISIBLE_DEVICES hides it"),
    (whole(cupy=None, runtime=None), "CuPy is not installed: pip install 'hybridml[cuda]'"),
    (whole(driver=(12, 4)), "for CUDA 12.4 and too old for CuPy's CUDA 13: install a newer driver, or in place of"),
    (whole(nvrtc=None), "NVRTC, which compiles kernels, is not installed: pip install nvidia-cuda-nvrtc"),
    (whole(driver=(12, 4), runtime=(12, 9)), "for CUDA 12 and too old for NVRTC 13: install a newer driver, or in"),
]


@pytest.mark.parametrize(
    ("found", "sentence"), PROBLEMS, ids=["driver", "gpu", "cupy", "too old", "nvrtc", "old for nvrtc"]
)
def test_each_thing_that_is_missing_has_a_sentence(
    found: Availability, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(availability, "availability", lambda: found)
    assert sentence in found.problem and "\n" not in found.problem and ". " not in found.problem
    for ask in (lambda: hm.device("cuda"), lambda: hm.ones(2).cuda(), lambda: hm.zeros(2, device="cuda:7")):
        with pytest.raises(DeviceError) as error:
            ask()
        assert sentence in str(error.value)
    assert not hm.cuda.is_available() and hm.cuda.device_count() == 0 and hm.cuda.current_device() == "cuda:sim"
    findings = {what: said for what, _, said in hm.doctor().findings}
    assert sentence in findings['device "cuda"']


def test_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert whole().problem == "" == whole(driver=(14, 0)).problem
    monkeypatch.setattr(availability, "availability", whole)
    assert hm.cuda.device_count() == 2 and hm.cuda.is_available() and hm.accelerator.is_available()
    with pytest.raises(DeviceError, match='"cuda:5" is not available: the driver finds 2 GPUs'):
        availability.checked_driver(5)


class Libcuda:
    """The three functions of the driver that are asked."""

    def __init__(self, version: int, status: int, count: int) -> None:
        self.version, self.status, self.count = version, status, count

    def cuDriverGetVersion(self, version: Any) -> int:
        ctypes.cast(version, ctypes.POINTER(ctypes.c_int))[0] = self.version
        return 0

    def cuInit(self, flags: int) -> int:
        return self.status

    def cuDeviceGetCount(self, count: Any) -> int:
        ctypes.cast(count, ctypes.POINTER(ctypes.c_int))[0] = self.count
        return 0


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        (None, (None, 0)),
        (Libcuda(13010, 0, 3), ((13, 1), 3)),
        (Libcuda(12040, 100, 0), ((12, 4), 0)),  # CUDA_ERROR_NO_DEVICE
    ],
)
def test_the_driver_is_asked_without_cupy(library: Any, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "_libcuda", lambda: library)
    assert availability._driver() == expected


def test_versions_are_those_of_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(runtimeGetVersion=lambda: 13020)))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(availability, "_driver", lambda: ((13, 0), 1))
    monkeypatch.setattr(availability, "_installed", lambda names: "14.2.0")
    monkeypatch.setattr(nvrtc, "is_installed", lambda: False)
    found = availability.availability.__wrapped__()  # type: ignore[attr-defined]
    assert found == Availability((13, 0), 1, "14.2.0", (13, 2), None) and "NVRTC" in found.problem


def test_cupy_is_not_imported_where_there_is_no_gpu() -> None:
    program = (
        "import sys, hybridml as hm\n"
        "from hybridml_compiler.targets.cuda import availability\n"
        "availability._driver = lambda: (None, 0)\n"
        "assert not hm.cuda.is_available()\n"
        "print('cupy' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert run.stdout.split() == ["False"], run.stderr


def test_the_stand_in_has_names_of_cupy() -> None:
    """Where CuPy is installed: whatever the driver's tests take for it is there, with parameters of those names."""
    cupy = pytest.importorskip("cupy")
    stand_in = fake_cupy.fake_cupy()
    missing = [name for name in vars(stand_in) if not hasattr(cupy, name)]
    missing += [f"cuda.{name}" for name in vars(stand_in.cuda) if not hasattr(cupy.cuda, name)]
    classes = {"runtime": fake_cupy.Runtime, "Stream": fake_cupy.Stream, "Event": fake_cupy.Event,
               "Module": fake_cupy.Module, "Graph": fake_cupy.Graph}  # fmt: skip
    own = {
        "view",
        "do",
        "refuse_if_captured",
        "runtime",
        "recorded",
        "timed",
        "seconds",
        "stream",
        "pinned",
        "late",
        "capability",
        "catch_up",
    }
    for where, cls in classes.items():
        names = [name for name in vars(cls) if name[0] != "_" and name not in own]
        missing += [f"cuda.{where}.{name}" for name in names if not hasattr(getattr(cupy.cuda, where), name)]
    assert not missing
    assert "disable_timing" in inspect.signature(cupy.cuda.Event).parameters
    assert "non_blocking" in inspect.signature(cupy.cuda.Stream).parameters


@needs_nvrtc
def test_gpus_that_are_older_or_newer_than_the_compiler() -> None:
    assert nvrtc.form_for(90) == ("cubin", 90)
    newest = max(nvrtc._nvrtc().architectures)
    assert nvrtc.form_for(newest + 1) == ("ptx", newest) and newest >= 100
    cupy = fake_cupy.fake_cupy()
    cupy.cuda.runtime.capability = (7, 5)
    with pytest.raises(DeviceError, match="stand-in is of architecture sm_75, and kernels are for sm_80 and newer"):
        CupyDriver(0, cupy)

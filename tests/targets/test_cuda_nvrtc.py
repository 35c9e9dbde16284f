"""NVRTC through ctypes: options, errors, and what is kept on disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.errors import CompileError, DeviceError
from hybridml_compiler.runtime import cache
from hybridml_compiler.targets.cuda import nvrtc
from hybridml_compiler.targets.cuda.libraries import files as libraries
from tests.support.cuda import SIM, TARGET, compiled, needs_nvrtc

ADD = """extern "C" __global__ void kernel(const float* a, const float* b, float* c) {
  const int i = threadIdx.x;
  c[i] = a[i] * b[i] + c[i];
}
"""


def test_options_are_those_of_exact_arithmetic() -> None:
    """Whoever changes them changes the bits of results: the same table serves PTX for tests and code for a GPU."""
    assert {"--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"} < set(nvrtc.OPTIONS)
    assert nvrtc.options_for("ptx", 80) == (*nvrtc.OPTIONS, "--gpu-architecture=compute_80")
    assert nvrtc.options_for("cubin", 90) == (*nvrtc.OPTIONS, "--gpu-architecture=sm_90")


def test_a_library_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is known without it; the first kernel names the package."""
    monkeypatch.setattr(nvrtc, "_libraries", list)
    monkeypatch.setattr(nvrtc, "_nvrtc", nvrtc._nvrtc.__wrapped__)  # type: ignore[attr-defined]
    for kept in ("_loaded", "_functions"):  # kernels of other tests
        monkeypatch.setitem(vars(TARGET), kept, {})
    assert not nvrtc.is_installed()
    x = hm.ones(3).to(SIM)
    assert x.device == SIM and x.cpu().tolist() == [1, 1, 1]
    with pytest.raises(DeviceError, match="pip install nvidia-cuda-nvrtc"):
        x * 12345


def test_libraries_are_found_in_wheels_and_toolkits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest first, whatever the folders are called; a toolkit's where no wheel has it."""
    wheels, toolkit = tmp_path / "nvidia", tmp_path / "cuda"
    places = (wheels / "cu13/lib", "13"), (wheels / "cuda_nvrtc/lib", "12"), (toolkit / "lib64", "12.9.86")
    for folder, number in places:
        folder.mkdir(parents=True)
        for name in (f"libnvrtc.so.{number}", f"libnvrtc-builtins.so.{number}", f"libnvrtc.alt.so.{number}"):
            (folder / name).touch()
    found = [str(folder / f"libnvrtc.so.{number}") for folder, number in places]
    for variable in ("CUDA_PATH", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CUDA_HOME", str(toolkit))
    monkeypatch.setattr(libraries, "_USUAL", str(tmp_path / "nowhere"))
    monkeypatch.setattr(libraries.sys, "prefix", str(tmp_path / "nowhere"))
    monkeypatch.setattr(libraries, "_wheels", lambda: [wheels])
    assert libraries.libraries("nvrtc") == found
    monkeypatch.setattr(libraries, "_wheels", list)
    assert libraries.libraries("nvrtc") == found[2:] and nvrtc.is_installed()
    monkeypatch.delenv("CUDA_HOME")
    monkeypatch.setattr(libraries, "find_library", lambda name: f"lib{name}.so.12")
    assert libraries.libraries("cublas") == ["libcublas.so.12"]


def test_nothing_of_it_is_loaded_before_the_first_kernel() -> None:
    program = (
        "import sys, hybridml as hm; x = hm.ones(2).to('cuda:sim');"
        "print(any('nvrtc' in line for line in open('/proc/self/maps')) if sys.platform == 'linux' else False)"
    )
    run = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert run.stdout.split() == ["False"], run.stderr


@needs_nvrtc
def test_products_and_sums_stay_two_instructions() -> None:
    ptx = nvrtc.compile(ADD, "ptx").code.decode()
    assert "mul.rn.f32" in ptx and "add.rn.f32" in ptx
    assert "fma" not in ptx and "ftz" not in ptx


@needs_nvrtc
def test_fast_math_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = TARGET.key
    monkeypatch.setenv("HYBRIDML_FAST_MATH", "1")
    ptx = nvrtc.compile(ADD, "ptx", fast=True).code.decode()
    assert "fma.rn.ftz.f32" in ptx and "mul.rn.f32" not in ptx
    assert TARGET.key != exact
    fn, x = hm.trace(lambda x: hm.exp(x * x + 1) / 3), hm.linspace(-1, 1, 100)
    assert np.array_equal(fn(x.to("cuda:sim")).cpu().numpy(), fn(x).numpy())
    codes = []
    for setting in "101":
        monkeypatch.setenv("HYBRIDML_FAST_MATH", setting)
        with compiled() as made:
            hm.trace(lambda x: hm.exp(x * x + 1) / 3)(x.to("cuda:sim"))
        codes += made
    assert codes[0] is codes[2] is not codes[1]


@needs_nvrtc
@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_machine_code(architecture: int) -> None:
    made = nvrtc.compile(ADD, "cubin", architecture)
    assert made.code.startswith(b"\x7fELF")
    assert f"'sm_{architecture}'" in made.log and made.spills == 0 and 4 < made.registers < 32


def test_spills_are_counted() -> None:
    log = "ptxas . 8 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\nptxas info : Used 48 registers"
    assert nvrtc.Compiled(b"", log).spills == 12 and nvrtc.Compiled(b"", log).registers == 48


@needs_nvrtc
def test_results_are_kept_by_all_that_decides_about_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_default", cache.ObjectCache(tmp_path))
    compiled: list[Any] = []
    library = nvrtc._nvrtc()
    original = library.compile
    monkeypatch.setattr(library, "compile", lambda *given: compiled.append(given) or original(*given))
    first = nvrtc.compile(ADD, "cubin", 90)
    monkeypatch.setattr(cache, "_default", cache.ObjectCache(tmp_path))  # as another process would
    again = nvrtc.compile(ADD, "cubin", 90)
    assert (again.code, again.log) == (first.code, first.log) and len(compiled) == 1
    nvrtc.compile(ADD, "cubin", 80)
    nvrtc.compile(ADD, "ptx", 90)
    nvrtc.compile(ADD + "\n", "cubin", 90)
    monkeypatch.setattr(nvrtc, "OPTIONS", (*nvrtc.OPTIONS, "--use_fast_math"))
    nvrtc.compile(ADD, "cubin", 90)
    monkeypatch.setattr(library, "version", (99, 0))
    nvrtc.compile(ADD, "cubin", 90)
    assert len(compiled) == 6


@needs_nvrtc
def test_what_it_does_not_take() -> None:
    with pytest.raises(CompileError, match=r"(?s)NVRTC does not take.*identifier \"INFINITY\" is undefined"):
        nvrtc.compile(ADD.replace("+ c[i]", "+ INFINITY"), "ptx")


@needs_nvrtc
def test_the_version() -> None:
    assert nvrtc.version() >= (12, 0)

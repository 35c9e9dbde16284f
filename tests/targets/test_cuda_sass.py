"""Machine code of kernels, as nvdisasm shows it: memory is read and written 16 bytes at a time."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.targets.cuda import nvrtc
from tests.support.cuda import needs_nvrtc, sources
from tests.support.examples import every


def nvdisasm() -> Path | None:
    """NVIDIA's disassembler, a wheel of its own; it needs neither a GPU nor a driver."""
    spec = find_spec("nvidia")
    folders = [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or ()]
    return next((path for folder in folders for path in folder.glob("*/bin/nvdisasm")), None)


pytestmark = [needs_nvrtc, pytest.mark.skipif(nvdisasm() is None, reason="needs nvidia-cuda-nvdisasm")]

SHAPE = 64, 2048
KERNELS: dict[str, tuple[Callable[..., Any], bool]] = {  # and whether they store whole rows
    "elementwise": (lambda x: hm.exp(x) * 2, True),
    "gelu": (lambda x: hm.functional.gelu(x * 1.5 + 1), True),
    "row sums": (lambda x: x.sum(1), False),
    "softmax": (lambda x: hm.softmax(x, -1), True),
    "layer norm": (lambda x: hm.functional.layer_norm(x, (x.shape[-1],)), True),
    "transpose": (lambda x: (x.mT + 1).contiguous(), True),
}
DTYPES = {"float32": np.dtype("f4"), "bfloat16": hm.bfloat16}
# Instructions of an H100 for an element while memory moves it: 132 multiprocessors issue 29e12 of them in a second, and
# 2.95e12 bytes are read and written.
MOST = {"float32": 78, "bfloat16": 39}


def machine_code(
    function: Callable[..., Any], dtype: str, architecture: int, folder: Path
) -> Iterator[tuple[int, str]]:
    """(threads of a block, machine code) of each kernel."""
    path = folder / "kernel.cubin"
    for source in sources(function, np.zeros(SHAPE, DTYPES[dtype])):
        path.write_bytes(nvrtc.compile(source.text, "cubin", architecture).code)
        run = subprocess.run([str(nvdisasm()), "-c", path], capture_output=True, text=True, check=True)
        yield source.block, run.stdout


@pytest.mark.parametrize(("name", "dtype", "architecture"), every(5, product(KERNELS, DTYPES, nvrtc.ARCHITECTURES)))
def test_accesses_are_of_sixteen_bytes(name: str, dtype: str, architecture: int, tmp_path: Path) -> None:
    function, stores = KERNELS[name]
    for _, text in machine_code(function, dtype, architecture, tmp_path):
        loads, writes = (set(re.findall(rf"\b{access}[.A-Z0-9]*", text)) for access in ("LDG", "STG"))
        assert loads and all(load.endswith(".128") for load in loads)
        assert not stores or writes == {"STG.E.128"}


@pytest.mark.parametrize(("name", "dtype"), [*product(("softmax", "layer norm"), DTYPES)])
def test_a_row_is_loaded_once_before_anything_is_computed_of_it(name: str, dtype: str, tmp_path: Path) -> None:
    """A thread has all of its elements under way at once, and no barrier but those of two reductions."""
    ((threads, text),) = machine_code(KERNELS[name][0], dtype, 90, tmp_path)
    loads = [at.start() for at in re.finditer(r"\bLDG\b", text)]
    assert len(loads) * threads * 16 == SHAPE[1] * DTYPES[dtype].itemsize
    assert loads[-1] < min(at.start() for at in re.finditer(r"\b(SHFL|FMNMX|FADD)\b", text))
    assert text.count("BAR.SYNC") <= 4


@pytest.mark.parametrize(("name", "dtype"), [*product(("gelu", "softmax", "layer norm", "transpose"), DTYPES)])
def test_instructions_are_fewer_than_memory_has_time_for(name: str, dtype: str, tmp_path: Path) -> None:
    """The number of instructions of the whole kernel, for the elements that a thread has."""
    ((_, text),) = machine_code(KERNELS[name][0], dtype, 90, tmp_path)
    code = text.split("slowpath:")[0]  # of divisions by numbers that no test here has
    instructions = len(re.findall(r"^\s+/\*[0-9a-f]{4}\*/", code, re.MULTILINE)) - code.count("NOP")
    accesses = len(re.findall(r"\bSTG", code))
    elements = accesses * 16 // DTYPES[dtype].itemsize
    assert instructions / elements <= MOST[dtype], f"{instructions} for {elements}"

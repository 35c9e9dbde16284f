"""Machine code of kernels, as nvdisasm shows it: memory is read and written 16 bytes at a time."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
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

KERNELS: dict[str, tuple[Callable[..., Any], bool]] = {  # and whether they store whole rows
    "elementwise": (lambda x: hm.exp(x) * 2, True),
    "row sums": (lambda x: x.sum(1), False),
    "softmax": (lambda x: hm.softmax(x, -1), True),
    "layer norm": (lambda x: hm.functional.layer_norm(x, (x.shape[-1],)), True),
}


@pytest.mark.parametrize(("name", "architecture"), every(5, product(KERNELS, nvrtc.ARCHITECTURES)))
def test_accesses_are_of_sixteen_bytes(name: str, architecture: int, tmp_path: Path) -> None:
    function, stores = KERNELS[name]
    path = tmp_path / "kernel.cubin"
    for source in sources(function, np.zeros((64, 2048), np.float32)):
        path.write_bytes(nvrtc.compile(source.text, "cubin", architecture).code)
        text = subprocess.run([str(nvdisasm()), "-c", path], capture_output=True, text=True, check=True).stdout
        loads, writes = (set(re.findall(rf"\b{access}[.A-Z0-9]*", text)) for access in ("LDG", "STG"))
        assert loads and all(load.endswith(".128") for load in loads)
        assert not stores or writes == {"STG.E.128"}

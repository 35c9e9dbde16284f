"""Places of NVIDIA's libraries: in its wheels, in a toolkit, or where the system's loader looks."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from ctypes.util import find_library
from importlib.util import find_spec
from pathlib import Path

_TOOLKITS = ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX")  # variables that name one's folder
_USUAL = "/usr/local/cuda"


def libraries(name: str) -> list[str]:
    """The files of a library such as "nvrtc", or names for the loader: those of wheels, which Python's packages agree
    on, and then of toolkits; of each the newest first."""
    inside = (f"lib/lib{name}.so.*", f"lib64/lib{name}.so.*", f"bin/**/{name}64_*.dll")
    found = _files(_wheels(), [f"*/{pattern}" for pattern in inside]) + _files(_toolkits(), inside)
    return found or [x for x in [find_library(name)] if x is not None]


def loaded(path: str, *parts: str) -> ctypes.CDLL:
    """The library in a file, with those of the same folder that it opens by their names: NVRTC 13.0 has no path to
    its own folder, where the system's loader does not look. OSError where it cannot be loaded."""
    for part in parts:
        for file in Path(path).parent.glob(f"lib{part}.so.*"):
            if ".alt." not in file.name:
                ctypes.CDLL(str(file))
    return ctypes.CDLL(path)


def _files(folders: list[Path], patterns: list[str] | tuple[str, ...]) -> list[str]:
    found = {path for folder in folders for pattern in patterns for path in folder.glob(pattern)}
    return [str(path) for path in sorted(found, key=_version, reverse=True) if ".alt." not in path.name]


def _version(path: Path) -> tuple[list[int], str]:
    return [int(number) for number in re.findall(r"\d+", path.name.partition("64_")[2] or path.name)], str(path)


def _wheels() -> list[Path]:
    spec = find_spec("nvidia")
    return [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or ()]


def _toolkits() -> list[Path]:
    named = [os.environ.get(variable) for variable in _TOOLKITS]
    return [Path(folder) for folder in [*named, sys.prefix, _USUAL] if folder]

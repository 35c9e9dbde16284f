"""Reference models, each a file to copy. With `hybridml` replaced by `torch` the same text is a PyTorch model."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType


def model(name: str, library: str = "hybridml") -> ModuleType:
    """The module `name` of this folder, written for `library`: hybridml, or torch, whose names are the same."""
    if library == "hybridml":
        return importlib.import_module(f"{__name__}.{name}")
    known = f"{__name__}.{name}_{library}"
    if known not in sys.modules:
        path = Path(__file__).with_name(f"{name}.py")
        module = ModuleType(known)
        text = path.read_text(encoding="utf-8").replace("hybridml", library)
        exec(compile(text, str(path), "exec"), module.__dict__)
        sys.modules[known] = module
    return sys.modules[known]

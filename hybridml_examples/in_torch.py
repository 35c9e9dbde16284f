"""The architectures of `hybridml.models` in PyTorch: their own text, with the library's name replaced."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType


def in_torch(module: str) -> ModuleType:
    """A file of `hybridml.models`, "resnet" or "losses", as a module of PyTorch. Needs torch."""
    name = f"{__name__}.{module}"
    if name not in sys.modules:
        spec = importlib.util.find_spec(f"hybridml.models.{module}")
        assert spec is not None and spec.origin is not None, f"hybridml.models has no file {module}.py"
        text = re.sub(r"\bhybridml\b", "torch", Path(spec.origin).read_text(encoding="utf-8"))
        for other in re.findall(r"^from \.(\w+) import", text, re.MULTILINE):
            in_torch(other)
        made = ModuleType(name)
        made.__package__ = __name__  # of its imports of other files
        exec(compile(text, spec.origin, "exec"), made.__dict__)
        sys.modules[name] = made
    return sys.modules[name]

"""Libraries that look for what they work on by name: einops learns of tensors when it is imported.

einops finds a framework among the subclasses of a class of its own, so that ours can be made only once einops is there:
at once if it is loaded already, else by a finder that stands before the others until einops is imported. opt_einsum
needs nothing: it calls `hybridml.tensordot`, `transpose` and `einsum`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_MODULE, _BACKEND = "einops._backends", "hybridml.interop.einops"


class _AfterEinops:
    """A finder that adds our backend to einops when it is imported."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """The spec of einops's module of backends, with a loader that goes on to make ours; None for all others."""
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_add(module: ModuleType) -> None:
            load(module)
            importlib.import_module(_BACKEND)

        spec.loader.exec_module = load_and_add  # type: ignore[method-assign]
        return spec


if _MODULE in sys.modules:
    importlib.import_module(_BACKEND)
elif not any(isinstance(finder, _AfterEinops) for finder in sys.meta_path):
    sys.meta_path.insert(0, _AfterEinops())

"""States that `state_dict` gave, looked at before they are loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hybridml_compiler.errors import ArgumentError


def check_entries(owner: object, state: Any, *names: str) -> None:
    """Raises ArgumentError where `state` lacks one of `names`, or is no mapping: it comes from something else."""
    what = f"{type(owner).__name__}.load_state_dict: needs what state_dict gave"
    if not isinstance(state, Mapping):
        raise ArgumentError(f"{what}, got {type(state).__name__}")
    missing = [name for name in names if name not in state]
    if missing:
        raise ArgumentError(f"{what}; {', '.join(missing)} is missing")

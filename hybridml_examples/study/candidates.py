"""Who runs the networks: hybridml in both styles, and the libraries beside it that an interpreter has."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

EAGER, TRACED = "hybridml eager", "hybridml traced"


class Candidate(NamedTuple):
    """A library in one style: the file of this folder that runs it, what it imports, and the style's name there."""

    module: str
    library: str
    style: str
    device: str = "cpu"


# fmt: off
CANDIDATES: dict[str, Candidate] = {
    EAGER:           Candidate("in_one_text", "hybridml", "eager"),
    TRACED:          Candidate("in_one_text", "hybridml", "compiled"),
    "torch":         Candidate("in_one_text", "torch", "eager"),
    "torch.compile": Candidate("in_one_text", "torch", "compiled"),
    "jax":           Candidate("in_jax", "jax", "compiled"),
}
# fmt: on
CANDIDATES |= {f"{name} cuda": row._replace(device="cuda") for name, row in CANDIDATES.items() if name != "jax"}
PEERS = tuple(name for name, row in CANDIDATES.items() if row.library != "hybridml")
SLOW_TO_START = ("torch.compile", "torch.compile cuda")  # which compile for tens of seconds at each size

_ASK = """
import importlib.util, json
from importlib.metadata import version
found = {name: version(name) for name in ("numpy", "torch", "jax") if importlib.util.find_spec(name)}
cuda = False
if "torch" in found:
    import torch
    cuda = torch.cuda.is_available()
print(json.dumps([found, cuda]))
"""


@cache
def libraries(python: str) -> tuple[dict[str, str], bool]:
    """Versions of the peers' libraries that an interpreter has, and whether its PyTorch sees a GPU."""
    done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=False)
    found: tuple[dict[str, str], bool] = tuple(json.loads(done.stdout)) if done.returncode == 0 else ({}, False)
    return found


def available(python: str, peers: Sequence[str] | None = None) -> list[str]:
    """The candidates that can run here; of the peers those named, or all."""
    import hybridml

    found, gpu = libraries(python)
    ours = [name for name, row in CANDIDATES.items() if row.library == "hybridml"]
    theirs = [name for name in PEERS if CANDIDATES[name].library in found and (peers is None or name in peers)]
    has_device = {"hybridml": hybridml.cuda.is_available(), "torch": gpu}
    rows = [(name, CANDIDATES[name]) for name in (*ours, *theirs)]
    return [name for name, row in rows if row.device == "cpu" or has_device[row.library]]


def is_ours(name: str) -> bool:
    """Whether a candidate is hybridml in one of its styles."""
    return CANDIDATES[name].library == "hybridml"


def device_of(name: str) -> str:
    """The device that a candidate runs on, "cpu" or "cuda"."""
    return CANDIDATES[name].device


def on(device: str, entries: dict[str, Any]) -> dict[str, Any]:
    """The entries of the candidates of one device."""
    return {name: entry for name, entry in entries.items() if device_of(name) == device}

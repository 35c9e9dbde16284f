"""Reading of files of results."""

from __future__ import annotations

from typing import Any

EAGER, TRACED = "hybridml eager", "hybridml traced"

Record = dict[str, Any]


def aimed(record: Record) -> dict[str, Record]:
    """The workloads that have an aim: name -> entry."""
    return {name: entry for name, entry in record["workloads"].items() if entry["reach"]}


def value(entry: Record, who: str, key: str) -> float | None:
    found: float | None = entry["candidates"].get(who, {}).get(key)
    return found

"""Numbers that follow from a record: rates, best peers, ratios, and whether two candidates differ at all.

A record is what `run.py` writes as JSON. Its "networks" are by name, and in each the "candidates": of them "step" and
"infer" have the median and the quartiles of seconds a call.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .candidates import PEERS, TRACED, device_of

Record = dict[str, Any]
DEVICES = ("cpu", "cuda")


class Pair(NamedTuple):
    """A candidate beside another on one network: `ratio` above 1 says that the first is faster."""

    network: str
    one: str
    other: str
    ratio: float
    clear: bool  # their quartiles do not overlap


def timed(entry: Record, who: str, kind: str) -> Record | None:
    """Median and quartiles of a candidate's calls on a network, or None where it was not timed."""
    found = entry["candidates"].get(who, {})
    return found[kind] if kind in found and not found.get("note") else None


def rate(entry: Record, who: str, kind: str = "step") -> float | None:
    """Samples a second."""
    calls = timed(entry, who, kind)
    return entry["batch"] / calls["median"] if calls else None


def pair(record: Record, network: str, one: str, other: str, kind: str = "step") -> Pair | None:
    """Two candidates on a network, or None where one was not timed."""
    entry = record["networks"][network]
    a, b = timed(entry, one, kind), timed(entry, other, kind)
    if a is None or b is None:
        return None
    apart = a["upper"] < b["lower"] or b["upper"] < a["lower"]
    return Pair(network, one, other, b["median"] / a["median"], apart)


def best_peer(record: Record, network: str, kind: str = "step", device: str = "cpu") -> str | None:
    """The fastest of the other libraries on a device."""
    entry = record["networks"][network]
    medians = {who: calls["median"] for who in PEERS if (calls := timed(entry, who, kind)) and device_of(who) == device}
    return min(medians, key=lambda who: medians[who], default=None)


def against_best(record: Record, kind: str = "step", who: str = TRACED) -> list[Pair]:
    """A candidate beside the fastest peer of each network, in the order of the record."""
    found = []
    for network in record["networks"]:
        peer = best_peer(record, network, kind, device_of(who))
        beside = peer and pair(record, network, who, peer, kind)
        found += [beside] if beside else []
    return found


def against(record: Record, one: str, other: str, kind: str = "step") -> list[Pair]:
    """Two candidates on all networks on which both were timed."""
    return [found for network in record["networks"] if (found := pair(record, network, one, other, kind))]


def mean(ratios: Iterable[float]) -> float:
    """Geometric mean."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs))


def names(record: Record) -> list[str]:
    """All candidates of a record, in order of their first appearance."""
    return list(dict.fromkeys(who for entry in record["networks"].values() for who in entry["candidates"]))


def exponent(values: Sequence[float], times: Sequence[float]) -> float:
    """The power of the value that times grow with: the slope of a line through their logarithms."""
    xs, ys = [math.log(v) for v in values], [math.log(t) for t in times]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


def growths(record: Record) -> dict[tuple[str, str], list[Record]]:
    """The rows of growth by network and axis."""
    found: dict[tuple[str, str], list[Record]] = {}
    for row in record["growth"]:
        found.setdefault((row["network"], row["axis"]), []).append(row)
    return found


# ---- how numbers are written


def digits(value: float) -> str:
    """Three digits, and thousands apart: `0.123`, `12.3`, `12,345`."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(places, 6)}f}"


def duration(seconds: float) -> str:
    """Three digits and the unit that fits: `3.91 ms`."""
    unit, scale = next((u for u in (("s", 1.0), ("ms", 1e3), ("us", 1e6)) if seconds * u[1] >= 1), ("ns", 1e9))
    return f"{digits(seconds * scale)} {unit}"


def size(count: float) -> str:
    """Bytes in the unit that fits: `12.3 MB`."""
    unit, scale = next((u for u in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if count >= u[1]), ("B", 1.0))
    return f"{digits(count / scale)} {unit}"

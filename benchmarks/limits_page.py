"""`docs/limits.md`: how far the traced workloads are from what the machine can do, and what was tried to come nearer.

Made by `python -m benchmarks.report` of `results/roofline.json`, with the peers' times of `results/compare.json` and
the text of `tried.md`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .markup import Row, digits, table

HERE = Path(__file__).parent
RESULTS, TRIED = HERE / "results" / "roofline.json", HERE / "tried.md"
PAGE = HERE.parent / "docs" / "limits.md"
TRACED, OURS = "hybridml traced", "hybridml"
SHOWN = 8  # launches of a workload
SUMMED = ("count", "ms", "least_ms", "gflop", "mb", "polynomials")

Record = dict[str, Any]

INTRODUCTION = """\
A launch takes at least the longer of two times: that of its multiply-adds at the rate of all cores together, and that
of the bytes that it reads and writes, as many as the last cache holds at the rate of that cache, the others at the rate
of memory. The launches of a program run one after the other, so their least times add up.

What this does not count: exponentials, logarithms and other polynomials (12 to 25 instructions each; the tables of
launches say how many million there are), the sums across a vector at the end of a reduction, packing operands, the
transforms of Winograd's convolutions (of which only the multiplications that are left are counted), and the meeting of
threads after a launch. So a share of 100 % is out of reach, and further for softmax than for products. What a program
is made of is taken as it is: one with less traffic or fewer multiplications would have another limit.
"""

COLUMNS = """\
- *call*: median of a call in milliseconds; *launches*: how much of it is spent in them, under a profile that reads the
  clock around each.
- *arithmetic*: the least time of all multiply-adds; *least*: the least times of the launches, added up; *memory*: the
  same if every byte came from memory, which is near the truth for large arrays and no limit for what a cache holds.
- *share*: least over call.
- *possible*: best peer over least, the highest ratio that this program could have if nothing but the limits took time;
  *aim* and *measured*: the ratio best peer over hybridml that is wanted, and that was measured
  ([results](benchmarks_results.md)). Bold: aims above what is possible."""


# ---- what is read from the records


def best_peer(compared: Record, name: str) -> float | None:
    """Milliseconds."""
    candidates = compared["workloads"].get(name, {}).get("candidates", {})
    medians = [c["median"] for who, c in candidates.items() if not who.startswith(OURS) and "median" in c]
    return min(medians) * 1e3 if medians else None


def possible(entry: Record, compared: Record, name: str) -> float | None:
    """The highest ratio that the limits allow."""
    peer = best_peer(compared, name)
    return None if peer is None else peer / entry["least_ms"]


def aim(compared: Record, name: str) -> float:
    found: float = compared["workloads"].get(name, {}).get("reach", 0.0)
    return found


def beyond(record: Record, compared: Record) -> list[str]:
    """The workloads whose aim is higher than what is possible."""
    found = []
    for name, entry in record["workloads"].items():
        most = possible(entry, compared, name)
        if most is not None and most < aim(compared, name):
            found.append(f"{entry['title']} ({aim(compared, name):.2f}, possible {most:.2f})")
    return found


# ---- the parts of the page


def head(record: Record, compared: Record) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    yield from ("# Limits", "")
    yield "Written by `make roofline`; [Benchmarks](benchmarks.md#where-the-time-goes) says how. What each launch takes"
    yield "is in [roofline.json](../benchmarks/results/roofline.json), the peers' times are those of"
    yield f"[compare.json](../benchmarks/results/compare.json) of {compared['date']}."
    yield ""
    yield f"- {record['date']}, {record['cpu']}, {record['threads']} threads"
    yield f"- {versions}"
    yield f"- `{record['command']}`"
    yield ""


def ratios(record: Record, compared: Record) -> Iterator[str]:
    """The first table: all workloads."""
    known = [name for name in record["workloads"] if best_peer(compared, name) is not None]
    found = beyond(record, compared)
    within = len(known) - len(found)
    yield from ("## Highest ratio that is possible", "")
    yield "If nothing but the limits took time, the ratio best peer over hybridml would reach its aim in"
    yield f"{within} of {len(known)} workloads." + (" Not in:" if found else "")
    yield from ("", *(f"- {one}" for one in found), *[""] * bool(found), "The columns:", "")
    yield COLUMNS
    rows = [ratio_row(entry, compared, name) for name, entry in record["workloads"].items()]
    yield from table(
        ("", "call", "launches", "arithmetic", "least", "memory", "share", "possible", "aim", "measured"), rows
    )


def ratio_row(entry: Record, compared: Record, name: str) -> Row:
    most, wanted = possible(entry, compared, name), aim(compared, name)
    measured = compared["workloads"].get(name, {}).get("candidates", {}).get(TRACED, {}).get("best_peer_over_this")
    return (
        entry["title"],
        *(digits(entry[key]) for key in ("ms", "launch_ms", "arithmetic_ms", "least_ms", "memory_ms")),
        f"{entry['least_ms'] / entry['ms']:.0%}",
        "" if most is None else f"{most:.2f}",
        "" if not wanted else f"**{wanted:.2f}**" if most is not None and most < wanted else f"{wanted:.2f}",
        "" if measured is None else f"{measured:.2f}",
    )


def machine(found: dict[str, float]) -> Iterator[str]:
    """Rates of `limits`, by the number of threads."""
    counts = sorted(int(key.rpartition("_")[2]) for key in found if key.startswith("gflops"))
    yield from ("## What the machine can do", "")
    yield "Measured in the same run with kernels of a few lines (`benchmarks/limits.py`)."
    rows = [
        (title, *(digits(found[f"{key}_{count}"]) for count in counts))
        for title, key in (
            ("multiply-adds, GF/s", "gflops"),
            ("reading memory, GB/s", "memory_gbs"),
            ("reading the last cache, GB/s", "last_gbs"),
            ("reading a core's cache, GB/s", "cache_gbs"),
        )
        if f"{key}_{counts[0]}" in found
    ]
    yield from table(("", *(f"{count} thread{'s' * (count > 1)}" for count in counts)), rows)


def launches(record: Record) -> Iterator[str]:
    yield from ("## The longest launches", "")
    yield f"Milliseconds of a call; launches that are alike are one row. The {SHOWN} longest, and the others as one."
    yield "*Mpoly*: millions of exponentials, logarithms and the like. *waiting*: the share of the time in which a"
    yield "thread had nothing to do."
    yield ""
    for entry in record["workloads"].values():
        yield f"### {entry['title']}"
        rows = list(launch_rows(entry, SHOWN))
        yield from table(("", "ms", "least", "share", "GF/s", "GB/s", "Mpoly", "waiting"), rows)


def launch_rows(entry: Record, shown: int) -> Iterator[Row]:
    """The longest launches, and the others together."""
    found: Sequence[Record] = entry["launches"]
    yield from map(launch_row, found[:shown])
    rest = found[shown:]
    if rest:
        whole = {key: sum(one[key] for one in rest) for key in SUMMED}
        yield launch_row(whole | {"name": "others", "waiting": None})


def launch_row(one: Record) -> Row:
    return (
        (f"{one['count']} x " if one["count"] > 1 else "") + one["name"],
        digits(one["ms"]),
        digits(one["least_ms"]),
        f"{one['least_ms'] / one['ms']:.0%}",
        digits(one["gflop"] / one["ms"] * 1e3) if one["gflop"] else "",
        digits(one["mb"] / one["ms"]),
        digits(one["polynomials"] / 1e6) if one["polynomials"] >= 1e4 else "",
        "" if one["waiting"] is None else f"{one['waiting']:.0%}",
    )


def page(record: Record, compared: Record, tried: str) -> str:
    parts = (
        head(record, compared),
        (INTRODUCTION,),
        ratios(record, compared),
        machine(record["limits"]),
        launches(record),
        (tried,),
    )
    return "\n".join(line for part in parts for line in part).rstrip() + "\n"


def write(compared: Record) -> Path:
    record = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(page(record, compared, TRIED.read_text(encoding="utf-8")), encoding="utf-8")
    return PAGE

"""The pages of runs: `python -m benchmarks.report` makes `docs/benchmarks_results.md` and the picture
`docs/benchmarks.svg` of `results/compare.json`, and of it and `results/roofline.json` also `docs/limits.md`; with the
paths of a result and a page, it makes that one."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from . import chart, limits_page
from .markup import digits, duration, table
from .record import EAGER, TRACED, Record, aimed, value

RESULTS = Path(__file__).parent / "results" / "compare.json"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks_results.md"
TORCH_EAGER = ("torch", "torch channels_last")


# ---- what is read from the record


def names(record: Record) -> list[str]:
    """All candidates, in order of their first appearance."""
    return list(dict.fromkeys(who for entry in record["workloads"].values() for who in entry["candidates"]))


def eager_ratio(entry: Record) -> float | None:
    """PyTorch eager, in its better memory format, over hybridml eager."""
    ours = value(entry, EAGER, "median")
    theirs = [m for who in TORCH_EAGER if (m := value(entry, who, "median"))]
    return min(theirs) / ours if ours and theirs else None


def mean(ratios: Sequence[float]) -> float:
    """Geometric."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def short(who: str) -> str:
    return who.replace("channels_last", "last")


# ---- the parts of the page


def head(record: Record) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items() if version)
    yield "# Benchmark results"
    yield ""
    yield "Written by `make bench`; [Benchmarks](benchmarks.md) says how the figures are taken. Medians, float32; the"
    yield 'quartiles are in [compare.json](../benchmarks/results/compare.json). "last" is channels_last.'
    yield ""
    yield f"- {record['date']}, {record['cpu']}, {record['threads']} threads"
    yield f"- {versions}"
    yield f"- `{record['command']}`"
    yield ""


def limits(record: Record) -> Iterator[str]:
    if record["limits"]:
        yield from limits_page.machine(record["limits"])


def times(record: Record) -> Iterator[str]:
    columns = names({"workloads": aimed(record)})
    rows = []
    ratios = []
    for entry in aimed(record).values():
        cells = [value(entry, who, "median") for who in columns]
        factor = value(entry, TRACED, "best_peer_over_this")
        ratios += [factor] if factor else []
        rows.append(
            (
                entry["title"],
                *("" if cell is None else digits(cell * 1e3) for cell in cells),
                "" if not factor else f"**{factor:.2f}**" if factor >= entry["reach"] else f"{factor:.2f}",
                f"{entry['reach']:.2f}",
            )
        )
    yield "## Times"
    yield ""
    yield 'Milliseconds a call. "Ratio" is the best peer over `hybridml traced`: above 1, hybridml is faster; bold'
    yield "where it reaches its aim."
    yield from table(("", *map(short, columns), "ratio", "aim"), rows)
    if ratios:
        first = sum(r >= 1 for r in ratios)
        yield f"Traced, hybridml is ahead of every peer on {first} of {len(ratios)}; geometric mean of the ratios "
        yield f"{mean(ratios):.2f}, least {min(ratios):.2f}."
        yield ""


def eager(record: Record) -> Iterator[str]:
    rows = [(entry["title"], r) for entry in aimed(record).values() if (r := eager_ratio(entry))]
    if not rows:
        return
    ratios = [r for _, r in rows]
    yield "## Eager beside PyTorch eager"
    yield ""
    yield "PyTorch's better memory format over `hybridml eager`: "
    yield f"geometric mean {mean(ratios):.2f}, least {min(ratios):.2f}."
    yield from table(("", "ratio"), [(title, f"{r:.2f}") for title, r in rows])


def achieved(record: Record) -> Iterator[str]:
    """Rates of the traced programs against the limits."""
    threads = record["threads"]
    most = [record["limits"].get(f"{key}_{threads}") for key in ("gflops", "memory_gbs")]
    rows = []
    for entry in aimed(record).values():
        seconds, work = value(entry, TRACED, "median"), entry["candidates"].get(TRACED, {}).get("work")
        if not seconds or not work:
            continue
        rates = [work["flops"] / seconds / 1e9, work["bytes"] / seconds / 1e9]
        cells = [
            "" if not rate else digits(rate) + (f" ({rate / limit:.0%})" if limit else "")
            for rate, limit in zip(rates, most, strict=True)
        ]
        amounts = digits(work["flops"] / 1e9) if work["flops"] else "", digits(work["bytes"] / 1e6)
        rows.append((entry["title"], *amounts, *cells))
    if not rows:
        return
    yield "## Rates of the traced programs"
    yield ""
    yield "Work is the arithmetic of the products and convolutions that were asked for (elementwise work is not"
    yield "counted), and what the kernels read and write, in a cache or not. In brackets, the share of the"
    yield "limits above (multiply-adds; memory): what stays in a cache can be over 100 % of memory, a convolution"
    yield "by Winograd's method, which saves multiplications, over 100 % of arithmetic."
    yield from table(("", "GF a call", "MB a call", "GF/s", "GB/s"), rows)


def starts(record: Record) -> Iterator[str]:
    def cell(found: Record) -> str:
        return " / ".join(digits(found[key] * 1e3) if key in found else "-" for key in ("cold", "first_call", "warm"))

    yield from _by_candidate(
        record,
        "cold",
        "## First calls",
        "Milliseconds, when inputs and weights exist: in a fresh process with empty caches (what the library loads\n"
        "late is part of it) / in a process that has run other workloads / in a fresh process with the caches of an\n"
        "earlier one.",
        cell,
    )


def memory(record: Record) -> Iterator[str]:
    steps = {name: entry for name, entry in record["workloads"].items() if name.endswith("_step")}
    yield from _by_candidate(
        record | {"workloads": steps},
        "memory",
        "## Memory of a training step",
        "MiB by which a process grows, at its peak after the first step, from the loaded library: weights, gradients,\n"
        "state of the optimizer, intermediate results, compiled code.",
        lambda found: f"{found['memory'] / 2**20:.0f}",
    )


def _by_candidate(record: Record, key: str, title: str, text: str, cell: Callable[[Record], str]) -> Iterator[str]:
    entries = [entry for entry in aimed(record).values() if any(key in c for c in entry["candidates"].values())]
    columns = [who for who in names(record) if any(value(entry, who, key) for entry in entries)]
    if not entries:
        return
    yield title
    yield ""
    yield text
    rows = [
        (entry["title"], *(cell(entry["candidates"][who]) if value(entry, who, key) else "" for who in columns))
        for entry in entries
    ]
    yield from table(("", *map(short, columns)), rows)


def scaling(record: Record) -> Iterator[str]:
    if not record["scaling"]:
        return
    groups: dict[tuple[str, str], list[Record]] = {}
    for row in record["scaling"]:
        groups.setdefault((row["workload"], row["size"]), []).append(row)
    columns = list(dict.fromkeys(who for row in record["scaling"] for who in row["median"]))
    grown = {key: rows for key, rows in groups.items() if key[1] != "threads"}
    if grown:
        yield "## Growth with size"
        yield ""
        yield "One size of a workload grows, the others stay."
        for (name, size), rows in grown.items():
            cells = [(f"{size} {row['value']}", *_medians(row, columns)) for row in rows]
            yield from table((_title(record, name), *columns), cells)
    threads = {name: rows for (name, size), rows in groups.items() if size == "threads"}
    if threads:
        yield "## From one thread to more"
        yield ""
        counts = [row["value"] for row in next(iter(threads.values()))]
        yield f"How many times faster {counts[-1]} threads are than one."
        yield from table(
            ("", *columns), [(_title(record, name), *_speedups(rows, columns)) for name, rows in threads.items()]
        )


def _title(record: Record, name: str) -> str:
    title: str = record["workloads"].get(name, {}).get("title", name)
    return title


def _medians(row: Record, columns: Sequence[str]) -> list[str]:
    return [duration(row["median"][who]) if who in row["median"] else "" for who in columns]


def _speedups(rows: Sequence[Record], columns: Sequence[str]) -> list[str]:
    ends = rows[0]["median"], rows[-1]["median"]
    return [f"{ends[0][who] / ends[1][who]:.2f}" if all(who in end for end in ends) else "" for who in columns]


def small(record: Record) -> Iterator[str]:
    """What has no aim: small calls, first calls and imports."""
    entries = [entry for entry in record["workloads"].values() if not entry["reach"]]
    if not entries:
        return
    columns = names({"workloads": {str(k): entry for k, entry in enumerate(entries)}})
    yield "## Small calls and imports"
    rows = [
        (entry["title"], *("" if (m := value(entry, who, "median")) is None else duration(m) for who in columns))
        for entry in entries
    ]
    yield from table(("", *map(short, columns)), rows)


def notes(record: Record) -> Iterator[str]:
    """What did not run, and why."""
    found = [
        f"- {name}, {who}: {candidate['note']}"
        for name, entry in record["workloads"].items()
        for who, candidate in entry["candidates"].items()
        if candidate["note"]
    ]
    if found:
        yield from ("## What was not timed", "", *found, "")


PARTS = (head, limits, times, eager, achieved, starts, memory, scaling, small, notes)


def page(record: Record) -> str:
    return "\n".join(line for part in PARTS for line in part(record)).rstrip() + "\n"


def main(arguments: Sequence[str]) -> int:
    source, target = (Path(a) for a in (*arguments, *(RESULTS, PAGE)[len(arguments) :]))
    record = json.loads(source.read_text(encoding="utf-8"))
    target.write_text(page(record), encoding="utf-8")
    print(f"written: {target}")
    if not arguments:
        print(f"written: {limits_page.write(record)}")
        print(f"written: {chart.write(record)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

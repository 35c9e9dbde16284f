"""The part of `docs/study.md` with the figures of `benchmarks/results/study.json`: `python -m benchmarks.study_page`.

The record is the `study.json` of a whole run of `python -m hybridml study`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hybridml_examples.study.candidates import EAGER, TRACED
from hybridml_examples.study.figures import Record, best_peer, duration, pair, timed
from hybridml_examples.study.findings import findings
from hybridml_examples.study.networks import NETWORKS

from .markup import table

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "study.json", ROOT / "docs" / "study.md"
BEGIN, END = "<!-- results, written by benchmarks.study_page -->", "<!-- end of the results -->"
PEERS = ("torch", "torch.compile", "jax")
HEAD = (
    "Training step", "batch", "eager", "traced", *PEERS, "traced: times as fast", "eager: times",
    "memory traced / torch", "first step: traced", *PEERS[1:],
)  # fmt: skip


def results(record: Record) -> str:
    """The results as text of the page."""
    return "\n".join(_lines(record)).strip()


def _lines(record: Record) -> Iterator[str]:
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    yield f"`{record['command']}`, {record['date']}: {record['cpu']}, {record['threads']} threads; {versions}."
    for found in findings(record):
        yield f"\n- {found.text}"
    yield "\nTimes are of one training step. Traced is beside the fastest other library, eager beside PyTorch's eager."
    yield "First steps are those with empty caches."
    yield from table(HEAD, [_row(record, name) for name in NETWORKS if name in record["networks"]])


def _row(record: Record, name: str) -> list[str]:
    entry = record["networks"][name]
    best, candidates = best_peer(record, name), entry["candidates"]
    times = [
        duration(calls["median"]) if (calls := timed(entry, who, "step")) else "" for who in (EAGER, TRACED, *PEERS)
    ]
    beside = [
        f"{ratio.ratio:.2f}" if other and (ratio := pair(record, name, who, other)) else ""
        for who, other in ((TRACED, best), (EAGER, "torch"))
    ]
    first = [candidates.get(who, {}).get("cold") for who in (TRACED, *PEERS[1:])]
    starts = ["" if seconds is None else duration(seconds) for seconds in first]
    return [name, str(entry["batch"]), *times, *beside, _memory(candidates), *starts]


def _memory(candidates: dict[str, Any]) -> str:
    ours, theirs = (candidates.get(who, {}).get("memory", 0) / 2**20 for who in (TRACED, "torch"))
    return f"{ours:,.0f} / {theirs:,.0f} MiB" if ours and theirs else ""


def write() -> None:
    """Puts the results on the page."""
    record = json.loads(RESULTS.read_text(encoding="utf-8"))
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{results(record)}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    write()

"""The part of `docs/gpu.md` that has the figures of `benchmarks/results/gpu.json`: `python -m benchmarks.gpu_page`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .markup import digits, table

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "gpu.json", ROOT / "docs" / "gpu.md"
BEGIN, END = "<!-- results, written by benchmarks.gpu_check -->", "<!-- end of the results -->"
NONE = "No GPU could be had yet: nothing here has met one."

Record = dict[str, Any]


def results(record: Record | None) -> str:
    """The results as text of the page; one line where there are none."""
    return NONE if record is None else "\n".join(_lines(record)).strip()


def _lines(record: Record) -> Iterator[str]:
    on, checks = record["machine"], record["checks"]
    driver = ".".join(map(str, on["driver"] or ()))
    yield f"{on['gpu']} ({on['architecture']}), driver for CUDA {driver}, CuPy {on['cupy']}, Python {on['python']}."
    if "note" in record:
        yield f"\n{record['note']}"
    for name, found in checks.items():
        if "left out" in found:
            yield f"\n`{name}` was left out: {found['left out']}."
        if "failed" in found:
            yield f"\n`{name}` failed: {found['failed'][-1]}"
    yield from _rows(checks.get("rows", {}))
    for name, is_right in checks.get("streams", {}).items():
        if name not in ("seconds", "failed", "left out"):
            yield f"\nStreams, {name}: {'right' if is_right is True else f'wrong ({is_right})'}."
    yield from _figures("Bandwidth", checks.get("bandwidth", {}))
    yield from _figures("Matrix products, TFLOP/s", checks.get("products", {}))
    yield from _figures("Attention, TFLOP/s", checks.get("attention", {}))
    yield from _launches(checks.get("launches", {}))
    yield from _training(checks.get("training", {}))


def _rows(found: Record) -> Iterator[str]:
    if "results" not in found:
        return
    yield (
        f"\nOf {found['results']} results of {found['rows']} operations {found['the bits of the simulator']} have the "
        f"bits of the simulated device and {found['the bits of the CPU']} those of the CPU."
    )
    for name, why in found["wrong"].items():
        yield f"\n- `{name}`: {why}"


def _figures(title: str, found: Record) -> Iterator[str]:
    entries = {name: entry for name, entry in found.items() if isinstance(entry, dict)}
    if entries:
        columns = list(dict.fromkeys(key for entry in entries.values() for key in entry))
        yield from table(
            (title, *columns),
            [(name, *(_cell(entry.get(c, "")) for c in columns)) for name, entry in entries.items()],
        )


def _cell(value: Any) -> str:
    """A figure, or why there is none."""
    return str(value) if _odd(value) else digits(value)


def _launches(found: Record) -> Iterator[str]:
    entries = [(name, digits(us)) for name, us in found.items() if name not in ("launches", "seconds") and not _odd(us)]
    if entries:
        yield from table(("A small program", "us"), entries)


def _training(found: Record) -> Iterator[str]:
    entries = {name: entry for name, entry in found.items() if isinstance(entry, dict)}
    if entries:
        columns = list(dict.fromkeys(who for entry in entries.values() for who in entry))

        def cell(entry: Record, who: str) -> str:
            value = entry.get(who, "")
            return digits(value["ms"]) if isinstance(value, dict) else str(value)

        yield from table(
            ("Training step, ms", *columns),
            [(name, *(cell(entry, who) for who in columns)) for name, entry in entries.items()],
        )


def _odd(value: Any) -> bool:
    return not isinstance(value, int | float)


def write() -> None:
    """Puts the results on the page."""
    record = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else None
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{results(record)}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    write()

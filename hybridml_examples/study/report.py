"""The page of a study, its JSON and its CSV: everything is made of the record, so that `--from` draws it again."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined
from markupsafe import Markup

from . import charts, papers
from .candidates import TRACED, device_of
from .charts import Mark
from .figures import Record, digits, duration, growths, names, rate, size, timed
from .findings import findings, not_measured

KINDS = {"step": "training step", "infer": "inference"}
HEAD = [
    "", "device", "training, samples/s", "quartiles", "inference, samples/s", "first step, cold", "warm", "memory",
    "differs by",
]  # fmt: skip
ONCE = {  # measures without quartiles
    "cold": ("first step, cold", "s"), "warm": ("first step, warm", "s"),
    "memory": ("memory", "bytes"), "device_memory": ("device memory", "bytes"),
}  # fmt: skip
FILES = ("study.html", "study.json", "study.csv")


class Chart(NamedTuple):
    """A picture with what is written above and below it."""

    title: str
    svg: Markup
    about: str = ""


class Section(NamedTuple):
    """A network: its charts and its table."""

    name: str
    about: str
    charts: list[Chart]
    head: list[str]
    rows: list[list[str]]


def write(record: Record, folder: Path) -> Path:
    """Writes page, JSON and CSV into a folder; returns the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip(FILES, (page(record), json.dumps(record, indent=1) + "\n", table(record)), strict=True):
        (folder / name).write_text(text, encoding="utf-8")
    return folder / FILES[0]


def page(record: Record) -> str:
    """One page without scripts, for which nothing is fetched."""
    here = Path(__file__).parent.parent / "templates"
    loader = ChoiceLoader([FileSystemLoader(here), PackageLoader("hybridml", "display/templates")])
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return pages.get_template("study.html.jinja").render(
        record=record,
        findings=findings(record),
        missing=list(not_measured(record)),
        overview=list(overview(record)),
        sections=[section(record, name) for name in record["networks"]],
        growth=list(growth(record)),
        tasks=list(tasks(record)),
        tables=[(quoted, list(papers.ours(quoted, record))) for quoted in papers.TABLES],
        legend=list(charts.legend([who for who in names(record) if device_of(who) == "cpu"])),
    )


def overview(record: Record) -> Iterator[Chart]:
    """For each kind of call and device: times as multiples of the traced one, a row a network."""
    for suffix, on in (("", ""), (" cuda", " on the GPU")):
        for kind, title in KINDS.items():
            rows = {}
            for name, entry in record["networks"].items():
                ours = timed(entry, TRACED + suffix, kind)
                found = [who for who in entry["candidates"] if who.endswith(" cuda") == bool(suffix)]
                marks = [Mark(w, c["median"] / ours["median"]) for w in found if ours and (c := timed(entry, w, kind))]
                if len(marks) > 1:
                    rows[name] = marks
            if rows:
                svg = charts.dots(f"{title}{on}", rows, "times the traced time")
                yield Chart(
                    f"Time of {title}{on}", svg, "As a multiple of the traced time: right of the line is slower."
                )


def _bars(title: str, marks: list[Mark], say: Callable[[float], str], about: str = "") -> Iterator[Chart]:
    if marks:
        yield Chart(title, charts.bars(title, marks, say), about)


def section(record: Record, name: str) -> Section:
    """What one network took: rates with quartiles, first steps, memory."""
    entry = record["networks"][name]
    candidates = entry["candidates"]
    pictures: list[Chart] = []
    for kind, title in KINDS.items():
        marks = []
        for who in candidates:
            if calls := timed(entry, who, kind):
                low, middle, high = (entry["batch"] / calls[key] for key in ("upper", "median", "lower"))
                marks.append(Mark(who, middle, low, high))
        pictures += _bars(f"{title}: samples a second", marks, digits, "Longer is better; lines are quartiles.")
    first = [Mark(who, found["cold"]) for who, found in candidates.items() if found.get("cold") and not found["note"]]
    pictures += _bars("First step, empty caches", first, duration, "Shorter is better.")
    taken = [Mark(who, found["memory"]) for who, found in candidates.items() if found.get("memory")]
    pictures += _bars("Memory of training", taken, size, "Growth of the process at its peak.")
    shapes = ", ".join("×".join(map(str, shape)) for shape in entry["shapes"])
    options = ", ".join(f"{key} {value}" for key, value in {**entry["options"], **entry["sizes"]}.items())
    about = f"{entry['kind']}; batch {entry['batch']} ({shapes})" + ("; size for tests" if entry["tiny"] else "")
    return Section(name, about + (f"; {options}" if options else ""), pictures, HEAD, list(_rows(entry)))


def _rows(entry: Record) -> Iterator[list[str]]:
    for who, found in entry["candidates"].items():
        calls, rates = timed(entry, who, "step"), [rate(entry, who, kind) for kind in KINDS]
        if calls is None:
            continue
        spread = f"{digits(entry['batch'] / calls['upper'])} to {digits(entry['batch'] / calls['lower'])}"
        taken = found.get("device_memory") or found.get("memory")
        yield [
            who, device_of(who), digits(rates[0] or 0), spread, digits(rates[1]) if rates[1] else "",
            *(duration(found[key]) if found.get(key) else "" for key in ("cold", "warm")),
            size(taken) if taken else "", f"{found['difference']:.0e}" if found["difference"] else "0",
        ]  # fmt: skip


def growth(record: Record) -> Iterator[Chart]:
    """A chart for each network and axis: samples a second along it."""
    for (network, axis), rows in growths(record).items():
        series: dict[str, list[charts.Point]] = {}
        for row in rows:
            for who, median in row["median"].items():
                series.setdefault(who, []).append((row["value"], row["batch"] / median))
        if len(rows) > 1 and series:
            title = f"{network}: {axis}"
            yield Chart(title, charts.lines(title, series, axis, "samples/s", _per_second, logarithmic=True))


def _per_second(rate: float) -> str:
    return f"{digits(rate)} samples/s"


def tasks(record: Record) -> Iterator[tuple[Chart, str, list[list[str]]]]:
    """Loss over seconds for each task, what its data are, and its table."""
    for task in record["tasks"].values():
        series, rows = {}, []
        for who, found in task["candidates"].items():
            if not found.get("losses"):
                continue
            losses, window = found["losses"], task["window"]
            means = [sum(losses[max(0, k + 1 - window) : k + 1]) / min(k + 1, window) for k in range(len(losses))]
            each = found["seconds"] / len(losses)
            series[who] = [(each * (k + 1), value) for k, value in enumerate(means)]
            reached = duration(found["seconds"]) if found["reached"] else f"not in {found['steps']} steps"
            rows.append([who, reached, f"{found['steps']:,}", duration(found["first"]), f"{means[-1]:.3f}"])
        if series:
            curves = charts.lines(
                task["title"], series, "seconds", "loss", "{:.3f}".format, dotted=task["target"], marked=False
            )
            about = f"Mean of {task['window']} losses; the dashed line is the target."
            yield Chart(task["title"], curves, about), task["data"], rows


def table(record: Record) -> str:
    """Every figure of a record as CSV: network, candidate, device, measure, value, quartiles, unit."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write(["network", "candidate", "device", "measure", "at", "value", "lower_quartile", "upper_quartile", "unit"])

    def line(network: str, who: str, measure: str, at: Any, value: float, unit: str, *quartiles: float) -> None:
        write([network, who, device_of(who), measure, at, repr(value), *map(repr, quartiles or ("", "")), unit])

    for name, entry in record["networks"].items():
        for who, found in entry["candidates"].items():
            for kind, title in KINDS.items():
                if calls := timed(entry, who, kind):
                    line(name, who, title, "", calls["median"], "s", calls["lower"], calls["upper"])
            for key, (measure, unit) in ONCE.items():
                if found.get(key):
                    line(name, who, measure, "", found[key], unit)
    for row in record["growth"]:
        for who, median in row["median"].items():
            line(row["network"], who, f"training step by {row['axis']}", row["value"], median, "s")
    for title, task in record["tasks"].items():
        for who, found in task["candidates"].items():
            if found.get("reached"):
                line(title, who, f"to a loss of {task['target']:g}", found["steps"], found["seconds"], "s")
    return out.getvalue()

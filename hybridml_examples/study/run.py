"""The study from its options to its files: the order of measurements, what is resumed, and what the record says."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import hybridml as hm

from .candidates import CANDIDATES, PEERS, SLOW_TO_START, available, libraries
from .figures import Record
from .measure import Plan, measure, measure_growth, train
from .networks import NETWORKS, QUICK, Size, known
from .report import FILES, write
from .tasks import TASKS, Task
from .timing import cpu_model

QUICK_SECONDS = 125.0  # after which --quick begins nothing more
Tell = Callable[[str], None]


class Progress:
    """Lines that say what is being measured: on a terminal one bar, where tqdm is installed."""

    def __init__(self) -> None:
        self.bar: Any = None

    def start(self, total: int) -> None:
        """Begins with how many parts there are."""
        if sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None:
            from tqdm import tqdm

            self.bar = tqdm(total=total, unit="part", file=sys.stderr, dynamic_ncols=True)

    def tell(self, text: str) -> None:
        """Says what begins."""
        if self.bar is None:
            print(text, file=sys.stderr)
        else:
            self.bar.set_description(text)

    def advance(self) -> None:
        """Says that a part is done."""
        if self.bar is not None:
            self.bar.update()

    def close(self) -> None:
        """Leaves the line as it is."""
        if self.bar is not None:
            self.bar.close()


def plan_of(options: argparse.Namespace) -> Plan:
    """What the options say about measuring. `--quick` leaves out torch.compile, unless it is named."""
    found = available(options.python, options.peers)
    if options.quick and options.peers is None:
        found = [who for who in found if who not in SLOW_TO_START]
    rounds = options.rounds or (2 if options.quick else 5)
    seconds = options.seconds or (0.15 if options.quick else 0.5)
    patience = options.patience or (60.0 if options.quick else 900.0)
    return Plan(found, options.threads, rounds, seconds, patience, options.python)


def load() -> float:
    """How many programs have run or waited for a CPU in the last minute; 0 where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def command(options: argparse.Namespace) -> str:
    """The command that measures the same again; without paths of this machine."""
    words = ["--quick"] * options.quick
    for name in ("networks", "peers", "rounds", "seconds", "patience", "threads"):
        if (value := getattr(options, name)) is not None:
            words += [f"--{name}", ",".join(value) if isinstance(value, list) else f"{value:g}"]
    return f"python -m hybridml study {shlex.join(words)}"


def new_record(options: argparse.Namespace, plan: Plan) -> Record:
    """The facts that a record begins with; no name of the machine."""
    return {
        "command": command(options),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "versions": {"python": platform.python_version(), "hybridml": hm.__version__, **libraries(options.python)[0]},
        "cpu": cpu_model(), "threads": plan.threads, "quick": options.quick, "rounds": plan.rounds,
        "load": load(),
        "networks": {}, "growth": [], "tasks": {}, "left_out": [],
    }  # fmt: skip


def growths(names: Sequence[str], quick: bool) -> list[tuple[str, str, tuple[int, ...]]]:
    """What grows: (network, axis, values). Quick: the first network's batch, of two sizes."""
    if quick:
        return [(name, "batch", (1, 8)) for name in names[:1]]
    return [(name, axis, values) for name in names for axis, values in NETWORKS[name].growth.items()]


def resumed(options: argparse.Namespace) -> Record | None:
    """The record of an earlier run, where there is one and `--resume` asks for it."""
    path = options.output / FILES[1]
    if not options.resume or not path.exists():
        return None
    record: Record = json.loads(path.read_text(encoding="utf-8"))
    if record["quick"] != options.quick:
        raise SystemExit("--resume: what is there has other sizes; give --quick as then, or another --output")
    if record["threads"] != options.threads:
        raise SystemExit(f"--resume: what is there is of --threads {record['threads']}; give that, or another --output")
    return {**record, "load": max(record["load"], load()), "left_out": []}


def study(options: argparse.Namespace) -> Record:
    """Measures what the record lacks; writes it after each part, so that a run that is stopped has left what it has."""
    start, plan = time.monotonic(), plan_of(options)
    record = resumed(options) or new_record(options, plan)
    names = options.networks or [name for name in known() if not options.quick or name in QUICK]
    progress = Progress()
    todo = parts(record, names, options.quick, plan, progress.tell)
    progress.start(len(todo))
    for title, measured in todo.items():
        if options.quick and time.monotonic() - start > QUICK_SECONDS:
            record["left_out"].append(f"{title}: the time of --quick was up")
            continue
        try:
            measured()
        except ImportError as missing:
            record["left_out"].append(f"{title}: {missing.name} is not installed")
        progress.advance()
        write(record, options.output)
    progress.close()
    return record


def parts(record: Record, names: Sequence[str], quick: bool, plan: Plan, tell: Tell) -> dict[str, Callable[[], None]]:
    """What a record lacks, by title: networks first, then real data, then growth."""
    some = replace(plan, candidates=[who for who in plan.candidates if who not in SLOW_TO_START])
    found: dict[str, Callable[[], None]] = {}
    for name in names:
        if name not in record["networks"]:
            found[name] = partial(_network, record, name, quick, plan, tell)
    for task in TASKS:
        if task.network in names and task.title not in record["tasks"]:
            found[task.title] = partial(_task, record, task, quick, plan, tell)
    there = {(row["network"], row["axis"]) for row in record["growth"]}
    for name, axis, values in growths(names, quick):
        if (name, axis) not in there:
            found[f"{name} by {axis}"] = partial(_growth, record, name, axis, values, quick, some, tell)
    return found


def _size(name: str, quick: bool) -> Size:
    return NETWORKS[name].quick if quick else NETWORKS[name].full


def _network(record: Record, name: str, quick: bool, plan: Plan, tell: Tell) -> None:
    record["networks"][name] = measure(name, NETWORKS[name], _size(name, quick), plan, tell)


def _growth(record: Record, name: str, axis: str, values: Sequence[int], quick: bool, plan: Plan, tell: Tell) -> None:
    record["growth"] += measure_growth(name, NETWORKS[name], _size(name, quick), axis, values, plan, tell)


def _task(record: Record, task: Task, quick: bool, plan: Plan, tell: Tell) -> None:
    batches = list(islice(task.batches(task.size.batch), task.steps))
    target = task.quick if quick else task.target
    found = train(task.network, task.row, task.size, batches, target, task.window, plan, tell)
    record["tasks"][task.title] = {"title": task.title, "data": task.data, **found}


def recorded(path: Path) -> Record:
    """The record of a file. Raises SystemExit where it has none."""
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
        record["networks"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path} has no study ({error!r}): give a study.json that this command has written") from None
    return record


def run(options: argparse.Namespace) -> int:
    """Runs the study, or draws one again; prints the findings' place."""
    unknown = [peer for peer in options.peers or () if peer not in PEERS]
    lost = [name for name in options.networks or () if name not in known()]
    if unknown or lost:
        raise SystemExit(
            f"not known: {', '.join([*unknown, *lost])}; there are the peers {', '.join(PEERS)} and the networks "
            f"{', '.join(known())}"
        )
    if shutil.which(options.python) is None:
        raise SystemExit(f"--python: there is no interpreter {options.python}")
    missing = [peer for peer in options.peers or () if peer not in available(options.python, options.peers)]
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)}; pip install 'hybridml[bench]', or name a --python")
    source = getattr(options, "from")
    options.output = options.output or (source.parent if source else Path("build/study"))
    record = recorded(source) if source else study(options)
    print(f"report: {write(record, options.output).resolve()}")
    return int(any(found["note"] for entry in record["networks"].values() for found in ours(entry).values()))


def ours(entry: Record) -> Record:
    """What hybridml's styles did on a network."""
    return {who: found for who, found in entry["candidates"].items() if CANDIDATES[who].library == "hybridml"}

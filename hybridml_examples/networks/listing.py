"""The command ``python -m hybridml models``: lists the architectures, shows one, trains one, uses one."""

from __future__ import annotations

import argparse

import hybridml as hm
from hybridml import models

from . import infer, train
from .tasks import TASKS

COMMANDS = ("train", "infer")
HEADINGS = ("name", "parameters", "data of the paper", "data here", "the figure is from")


def run(options: argparse.Namespace) -> int:
    """Runs the command with parsed arguments."""
    command = options.words[0] if options.words[:1] and options.words[0] in COMMANDS else ""
    name, *given = options.words[bool(command) :] or [""]
    if not name:
        if command:
            raise SystemExit(f"models {command}: of which? {', '.join(models.list_models())}")
        print(table())
        return 0
    models.architecture(name)  # which raises for a name that there is not
    if command == "train":
        return train.run(name, options)
    if command == "infer":
        return infer.run(name, " ".join(given) or None, options)
    print(summary(name, options.tiny, options.depth))
    return 0


def summary(name: str, tiny: bool = False, depth: int | None = None) -> str:
    """An architecture, layer by layer."""
    row = models.architecture(name)
    inputs = models.example_batch(name, 2, tiny=tiny)[: row.inputs]
    return str(hm.summary(models.get_model(name, tiny=tiny), *map(hm.asarray, inputs), depth=depth))


def table() -> str:
    """The architectures as lines of a table."""
    rows = [HEADINGS]
    for name in models.list_models():
        row, task = models.architecture(name), TASKS[name]
        rows.append((name, f"{row.parameters:,}", task.paper, task.here, row.source))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        f"{name:<{widths[0]}}  {count:>{widths[1]}}  {paper:<{widths[2]}}  {here:<{widths[3]}}  {source}"
        for name, count, paper, here, source in rows
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])

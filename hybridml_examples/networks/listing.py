"""The command ``python -m hybridml models``: lists the architectures, shows one, trains one, uses one."""

from __future__ import annotations

import argparse
from difflib import get_close_matches

import hybridml as hm
from hybridml import models

from . import infer, train
from .arguments import COMMANDS, misplaced
from .tasks import TASKS

HEADINGS = ("name", "parameters", "data of the paper", "data here", "the figure is from")


def run(options: argparse.Namespace) -> int:
    """Runs the command with parsed arguments. Raises SystemExit, for those that are wrong."""
    command = options.words[0] if options.words[:1] and options.words[0] in COMMANDS else ""
    name, *given = options.words[bool(command) :] or [""]
    if wrong := list(misplaced(options, command)):
        title = f"models {command or 'NAME'}"
        raise SystemExit(
            f"{title} takes no {', '.join(wrong)}: `python -m hybridml models --help` says what each takes"
        )
    if not name:
        if command:
            raise SystemExit(f"models {command}: of which? {', '.join(models.list_models())}")
        print(table())
        return 0
    if name not in models.list_models():
        raise SystemExit(f"models: there is no {name!r}{_instead(name)}")
    if given and command != "infer":
        raise SystemExit(f"models: one network at a time, got {name}, {', '.join(given)}")
    if command == "train":
        return train.run(name, options)
    if command == "infer":
        return infer.run(name, " ".join(given) or None, options)
    print(summary(name, options.tiny, options.depth))
    return 0


def _instead(name: str) -> str:
    """The names that one that there is not may stand for, or else all of them."""
    near = get_close_matches(name, models.list_models())
    return f"; do you mean {' or '.join(near)}?" if near else f"; there are {', '.join(models.list_models())}"


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

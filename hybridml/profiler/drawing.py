"""The kernels of a program as a drawing: a box for each launch, with its operations inside where there are few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybridml_compiler.graph.ir import Node
from hybridml_compiler.schedule.launch import goes_on

from ..display.drawing import Drawing, Group, Keys, describe, draw_groups, shorten
from ..display.reports import size
from .kernels import kernel_name


def draw_program(launches: Sequence[Any], outputs: Sequence[Node], keys: Keys) -> Drawing:
    """A drawing of the launches in order, the values that each hands to others, and those that the program returns."""
    groups = []
    for k, launch in enumerate(launches):
        again = goes_on(launch, launches[k - 1] if k else None)
        title, count = shorten(f"{k}: {kernel_name(launch)}", 64), len(launch.nodes)
        facts = f"{count} operation{'s' * (count != 1)}, {size(launch.nbytes)}" if count else size(launch.nbytes)
        notes = [facts, *([f"goes on with {k - 1}"] if again else [])]
        tip = "\n".join([title, *launch.where, *launch.reasons])
        groups.append(Group(title, notes, tip, launch.nodes, again))
    return draw_groups(groups, [(f"returns {describe(outputs)}", outputs)], keys)

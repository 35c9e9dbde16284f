"""Trains an architecture of `hybridml.models` on the data that there is here, eagerly, traced or both.

``python -m hybridml_examples.networks.train resnet18 --style both --save build/resnet18.safetensors``
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import hybridml as hm
from hybridml import models, nn

from ..training import STYLES, Run, compare, print_summary
from ..training import train as run_steps
from . import arguments
from .made import Data, Missing, endless
from .tasks import TASKS, size_of

ROUNDING = 1e-5  # of a loss in float32: sums of thousands of numbers in other orders
LARGEST_GRADIENT = 1.0  # the norm that gradients are clipped to


class Trained(NamedTuple):
    """A model that has been trained, its data, its losses and times, and its figures on what tests."""

    model: nn.Module
    data: Data
    run: Run
    figures: dict[str, float]


def train(
    name: str,
    style: str = "traced",
    steps: int | None = None,
    size: str = "small",
    seed: int = 0,
    dtype: str = "float32",
) -> Trained:
    """Train one architecture in one style. The same seed gives the same start, batches and dropout in both styles."""
    task, sizes = TASKS[name], size_of(name, size)
    steps = steps or sizes.steps
    data = task.data(**sizes.data)
    hm.manual_seed(seed)
    model = models.get_model(name, **sizes.model).to(getattr(hm, dtype))
    optimizer = hm.optim.AdamW(model.parameters(), lr=sizes.rate)
    schedule = hm.optim.OneCycleLR(optimizer, max_lr=sizes.rate, total_steps=steps)
    loss_of = models.loss_of(name)

    def step(*batch: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss: hm.Tensor = loss_of(model, *batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), LARGEST_GRADIENT)
        optimizer.step()
        schedule.step()
        return loss

    batches = islice(endless(data.training, sizes.batch, seed), steps)
    run = run_steps(name, style, step, (as_dtype(batch, dtype) for batch in batches), steps)
    model.to(hm.float32)
    figures = task.measure(model, data.test)
    run.notes.update((key, f"{value:.3f}") for key, value in figures.items())
    return Trained(model, data, run, figures)


def as_dtype(batch: tuple[hm.Tensor, ...], dtype: str) -> tuple[hm.Tensor, ...]:
    """A batch, its floats of a dtype."""
    return tuple(x.to(getattr(hm, dtype)) if x.is_floating_point() else x for x in batch)


def save(trained: Trained, size: str, path: Path) -> None:
    """Writes a model that has been trained; `infer.load` reads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    notes = {"name": trained.run.name, "size": size, "data": trained.data.about, **trained.run.notes}
    hm.save(trained.model, path, metadata=notes)


def run(name: str, options: argparse.Namespace) -> int:
    """Trains with parsed arguments, prints what came of it; 2 where data cannot be made, 1 where the styles part."""
    try:
        made = [
            train(name, style, options.steps, options.size, options.seed, options.dtype)
            for style in (STYLES if options.style == "both" else (options.style,))
        ]
    except Missing as missing:
        print(f"{name} is skipped: {missing}", file=sys.stderr)
        return 2
    print(f"data: {made[0].data.about}")
    print_summary([trained.run for trained in made])
    if options.save:
        save(made[-1], options.size, options.save)
        print(f"weights: {options.save.resolve()}")
    return 0 if options.style != "both" else judge(made[0].run, made[1].run, options.dtype)


def judge(eager: Run, traced: Run, dtype: str) -> int:
    """Prints how far both styles' losses are apart; 1 where that is more than rounding explains.

    The first loss says it in any dtype. Those after it say it in float64 alone: training amplifies rounding, and a
    network with normalisation over few numbers makes per cents of the last bits of float32 in tens of steps.
    """
    found = compare(eager, traced)
    agree = found.within if dtype == "float64" else found.first < ROUNDING
    amplified = "" if found.within else " (float32: training amplifies rounding; --dtype float64 tells)"
    print(
        f"eager and traced {'agree' if agree else 'PART'}: the first loss to {found.first:.1e}, "
        f"all to {found.largest:.1e}{amplified}"
    )
    return 0 if agree else 1


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m hybridml_examples.networks.train", description=__doc__)
    parser.add_argument("name", choices=sorted(TASKS), metavar="NAME", help="as `python -m hybridml models` lists them")
    arguments.of_training(parser)
    options = parser.parse_args(given)
    return run(options.name, options)


if __name__ == "__main__":
    sys.exit(main())

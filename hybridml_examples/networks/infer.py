"""Uses a model that `train` has saved: classifies an image, writes text, translates, transcribes speech, ranks, draws.

``python -m hybridml_examples.networks.infer resnet18 --load build/resnet18.safetensors digit.png``
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import hybridml as hm
from hybridml import models, nn

from . import arguments
from .made import Data, Missing, Unusable
from .tasks import TASKS, size_of


def load(name: str, path: Path) -> tuple[nn.Module, Data]:
    """The model of a file that `train` has written, and its data. Raises SystemExit for a file of something else."""
    try:
        notes = hm.io.read_metadata(path)
    except OSError as error:
        raise SystemExit(f"{path} has no weights ({str(error).splitlines()[0]}); {_first(name)}") from None
    if notes.get("name") != name:
        raise SystemExit(f"{path} is of {notes.get('name', 'no training script')}, not of {name}")
    sizes = size_of(name, notes["size"])
    model = models.get_model(name, **sizes.model)
    model.load_state_dict(hm.load(path))
    return model, TASKS[name].data(**sizes.data)


def _first(name: str) -> str:
    return f"`python -m hybridml models train {name} --save FILE` writes them"


def run(name: str, given: str | None, options: argparse.Namespace) -> int:
    """Uses a model with parsed arguments and prints what it says; 2 where the data cannot be made."""
    if options.load is None:
        raise SystemExit(f"give the weights by --load; {_first(name)}")
    try:
        model, data = load(name, options.load)
        lines = TASKS[name].use(model, data, given, options.output or Path("build") / name)
    except Unusable as wrong:
        raise SystemExit(f"{name}: {wrong}") from None
    except Missing as missing:
        print(f"{name} is skipped: {missing}", file=sys.stderr)
        return 2
    print(f"trained on: {data.about}", *lines, sep="\n")
    return 0


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m hybridml_examples.networks.infer", description=__doc__)
    parser.add_argument("name", choices=sorted(TASKS), metavar="NAME", help="as `python -m hybridml models` lists them")
    parser.add_argument("input", nargs="?", help="an image file, a text, a sentence, a user; without it, what tests")
    arguments.of_inference(parser)
    options = parser.parse_args(given)
    return run(options.name, options.input, options)


if __name__ == "__main__":
    sys.exit(main())

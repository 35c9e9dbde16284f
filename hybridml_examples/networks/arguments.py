"""The command lines: arguments of training, of inference, and of ``python -m hybridml models``, which has both."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from ..training import STYLES

SIZES = ("small", "tiny")
GUIDE = """\
models                             the table: parameters, what the paper trained on, what there is here
models resnet18 [--tiny]           one of them, layer by layer: shapes, parameters, operations
models train resnet18 [...]        trains a small size on the data that there is here
models infer resnet18 --load FILE  uses what was trained: classifies, writes, translates, speaks, ranks, draws

What train prints last are the figures on data that test. Try:

  python -m hybridml models train vit_b_16 --style both --save build/vit.safetensors
  python -m hybridml models infer vit_b_16 --load build/vit.safetensors
  python -m hybridml models train transformer_base --save build/tf.safetensors
  python -m hybridml models infer transformer_base "the third of may nineteen two" --load build/tf.safetensors"""


def steps(text: str) -> int:
    """A number of steps, one or more, of the command line."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of steps: give 1 or more")
    return int(text)


def of_training(parser: argparse._ActionsContainer) -> None:
    """Gives a parser the arguments of training."""
    parser.add_argument("--style", choices=[*STYLES, "both"], default="traced", help="both compares (default traced)")
    parser.add_argument("--steps", type=steps, metavar="N", help="steps of training (default: as the size has)")
    parser.add_argument("--size", choices=SIZES, default="small", help="small learns in minutes (default), tiny tests")
    parser.add_argument("--seed", type=int, default=0, help="of weights, batches and dropout (default 0)")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32", help="default float32")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the weights (safetensors), which infer reads")


def of_inference(parser: argparse._ActionsContainer) -> None:
    """Gives a parser the arguments of inference."""
    parser.add_argument("--load", type=Path, metavar="FILE", help="weights that train has saved")
    parser.add_argument("--output", type=Path, metavar="FILE", help="of pictures and speech (build/NAME.png or .wav)")


def of_summary(parser: argparse._ActionsContainer) -> None:
    """Gives a parser the arguments of showing a network."""
    parser.add_argument("--tiny", action="store_true", help="show the size for tests, not the published one")
    parser.add_argument("--depth", type=int, metavar="N", help="levels of layers to show (default: all)")


COMMANDS = {"": of_summary, "train": of_training, "infer": of_inference}  # "": no word, which shows


def misplaced(options: argparse.Namespace, command: str) -> Iterator[str]:
    """The options with other values than their defaults that belong to other commands than this one."""
    for other, add in COMMANDS.items():
        add(parser := argparse.ArgumentParser())
        defaults = vars(parser.parse_args([]))
        if other != command:
            yield from (f"--{name}" for name, default in defaults.items() if getattr(options, name) != default)


def of_models(parser: argparse.ArgumentParser) -> None:
    """Gives a parser the arguments of `python -m hybridml models`."""
    words = "nothing for the table; INPUT: an image file, a text, a sentence, a user"
    parser.add_argument("words", nargs="*", metavar="[train|infer] NAME [INPUT]", help=words)
    of_summary(parser.add_argument_group("models NAME"))
    of_training(parser.add_argument_group("models train NAME"))
    of_inference(parser.add_argument_group("models infer NAME [INPUT]"))

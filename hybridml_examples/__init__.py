"""Programs that train real models on real data, eagerly and traced: ``python -m hybridml demo`` runs them all.

They are no part of `hybridml`, which takes its own code as constant while it traces: this is code as users write it.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Gives a parser the arguments of the demo."""
    parser.add_argument("--epochs", type=int, default=6, help="passes over the digits (default 6)")
    parser.add_argument("--steps", type=int, default=120, help="steps of the character model (default 120)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, batches and dropout (default 0)")
    parser.add_argument("--output", type=Path, default=Path("build/demo.html"), help="the page (build/demo.html)")

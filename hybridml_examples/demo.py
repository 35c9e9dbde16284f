"""The promise in one command: train real models eagerly and traced, and write one report of both side by side.

``python -m hybridml demo`` writes build/demo.html and prints its path. The exit status is 1 if two loss curves part by
more than the numerics contract allows (see `training.allowed`).
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Sequence

from . import add_arguments, char_lm, digits
from .report import page
from .training import Run, compare, print_summary


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the examples, write the report; 0 if all curves agree."""
    parser = argparse.ArgumentParser(prog="python -m hybridml_examples.demo", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(arguments))


def run(options: argparse.Namespace) -> int:
    """Run the examples with parsed arguments."""
    start = time.perf_counter()
    runs: list[Run] = char_lm.runs(options.steps, options.seed)
    if importlib.util.find_spec("sklearn") is not None:
        runs = [*digits.runs(options.epochs, options.seed), *runs]
    else:
        print("the digits are left out: they come with scikit-learn (pip install 'hybridml[demo]')", file=sys.stderr)
    pairs = [(eager, traced, compare(eager, traced)) for eager, traced in zip(runs[::2], runs[1::2], strict=True)]
    seconds = time.perf_counter() - start

    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(page(pairs, seconds), encoding="utf-8")
    print_summary(runs)
    for eager, _, agreement in pairs:
        if agreement.within:
            print(
                f"{eager.name}: the curves agree: first loss to {agreement.first:.1e}, all to {agreement.largest:.1e} "
                f"({agreement.largest_ulp} ulp)"
            )
        else:
            print(
                f"{eager.name}: THE CURVES PART: step {agreement.worst_step} uses {agreement.worst_share:.3g} times "
                f"the allowed difference (first loss differs by {agreement.first:.1e}, at most {agreement.largest:.1e})"
            )
    print(f"report: {options.output.resolve()}")
    return 0 if all(agreement.within for *_, agreement in pairs) else 1


if __name__ == "__main__":
    sys.exit(main())

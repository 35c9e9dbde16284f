"""Run the same programs in every framework, eager and traced, and write `docs/trust.md`.

    python -m benchmarks.trust [--only hybridml,jax.jit] [--write]

A framework runs in a process of its own (`BENCH_TENSORFLOW_PYTHON` names TensorFlow's interpreter), a program in each
style from the same start; the table says whether the traced program did what the eager one did. Exits with 1 where
hybridml is not the same and does not say so.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

from .frameworks import FRAMEWORKS
from .programs import ROWS, observe

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "trust.json", ROOT / "docs" / "trust.md"
HEAD = """# Trust: the traced program is the eager program

Written by `python -m benchmarks.trust --write`, which runs every program below in every framework twice, as it is and
traced, and compares what a user sees. "same": the traced program did what the eager one did. Bold: it did something
else, and whether it said so. A name of an exception: the traced program cannot be run. A dash: the framework has
nothing of the kind; "no such program": its eager style refuses it (immutable arrays).
[How tracing works](how_tracing_works.md) says how hybridml does it.

"""
NOTES = ROOT / "benchmarks" / "trust_notes.md"  # what follows the table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(FRAMEWORKS), help="names of frameworks, separated by commas")
    parser.add_argument("--write", action="store_true", help="write the file of results and the page")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        library, framework = FRAMEWORKS[options.worker]
        found = {name: observe(framework(), row) for name, row in ROWS.items()}
        version = importlib.import_module(library).__version__
        print(json.dumps({"version": version, "rows": found}))
        return 0
    known = json.loads(RESULTS.read_text())["frameworks"] if RESULTS.exists() else {}
    for name in options.only.split(","):
        reply = ask(name)
        if reply is not None:
            known[name] = reply
    frameworks = {name: known[name] for name in FRAMEWORKS if name in known}
    record = {"command": "python -m benchmarks.trust", "date": str(datetime.date.today()), "frameworks": frameworks}
    if options.write:
        RESULTS.write_text(json.dumps(record, indent=1) + "\n")
        PAGE.write_text(page(frameworks))
    differs = [name for name, said in frameworks["hybridml"]["rows"].items() if "silent" in said or "Error" in said]
    print(f"hybridml: {len(ROWS) - len(differs)} of {len(ROWS)} programs as eager, or said not to be", *differs)
    return 1 if differs else 0


def ask(name: str) -> dict[str, object] | None:
    """What a framework does, from a process of its own; None where it is not installed."""
    python = os.environ.get("BENCH_TENSORFLOW_PYTHON", sys.executable) if name == "tf.function" else sys.executable
    quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
    run = subprocess.run(
        [python, "-m", "benchmarks.trust", "--worker", name], cwd=ROOT, env=quiet, capture_output=True, text=True
    )
    if run.returncode:
        print(f"{name}: not run: {run.stderr.strip().splitlines()[-1]}")
        return None
    reply: dict[str, object] = json.loads(run.stdout.splitlines()[-1])
    return reply


def page(frameworks: dict[str, dict[str, object]]) -> str:
    rows = ["| program | " + " | ".join(f"{name} {said['version']}" for name, said in frameworks.items()) + " |"]
    rows.append("|---" * (len(frameworks) + 1) + "|")
    for key, row in ROWS.items():
        cells = [said["rows"].get(key, "not run") for said in frameworks.values()]
        rows.append("| " + " | ".join([row.code, *cells]) + " |")
    return HEAD + "\n".join(rows) + "\n\n" + NOTES.read_text()


if __name__ == "__main__":
    sys.exit(main())

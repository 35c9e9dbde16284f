"""The scenarios for minutes: `make stress ARGS=10`. Each runs in fresh processes, whose deaths are counted.

The first round is of 20 processes that make their first calls in eight threads.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from pathlib import Path

from tests.stress.scenarios import SCENARIOS

ROOT = Path(__file__).parent.parent.parent
FIRST, SECONDS, PATIENCE = 20, 10, 300


def lives(name: str, seconds: float) -> bool:
    """Whether a process that runs a scenario ends as it should; what it said is printed where it does not."""
    command = [sys.executable, "-m", "tests.stress.scenarios", str(seconds), name]
    try:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds + PATIENCE)
    except subprocess.TimeoutExpired:
        print(f"{name}: hangs", flush=True)
        return False
    if run.returncode:
        print(f"{name}: ended with {run.returncode}\n{run.stdout}{run.stderr}", flush=True)
    else:
        print(run.stdout.strip(), flush=True)
    return run.returncode == 0


def main(minutes: float) -> int:
    """1 if any process died, hung or got a wrong number."""
    end, died = time.monotonic() + 60 * minutes, 0
    for name in itertools.chain(itertools.repeat("first_calls", FIRST), itertools.cycle(SCENARIOS)):
        if time.monotonic() > end:
            break
        died += not lives(name, SECONDS if name != "first_calls" else 0)
    print(f"{died} processes died, hung or were wrong")
    return int(died > 0)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0))

"""Run the fuzzers: all kinds for some minutes each, or one of them.

    python -m tests.fuzz all --minutes 5 [--seed 7] [--kinds programs,kills] [--jobs 2]
    python -m tests.fuzz checkpoints --seconds 60 [--seed 7]        0 seconds: the one case of that seed
    python -m tests.fuzz programs --programs 20000 [--seed 0] [--program 812] [--backend llvm]

`all` gives each kind a process of its own, so that a crash is a finding and the others go on; it prints every finding,
then one line of counts. All exit with 1 where something was found.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import programs
from .case import ENVIRONMENT

KINDS = {"programs": "differ", "checkpoints": "wrong", "cache": "wrong", "interrupts": "lost", "kills": "torn"}
SHOWN = 5  # findings of one kind that are printed
Found = tuple[int, list[str]]


def available() -> list[str]:
    return [kind for kind in KINDS if (Path(__file__).parent / f"{kind}.py").exists()]


def alone(kind: str, seconds: float, seed: int) -> Found:
    """Cases and findings of a kind, run in a process with a compile cache of its own."""
    with tempfile.TemporaryDirectory(prefix=f"hybridml-fuzz-{kind}-", ignore_cleanup_errors=True) as folder:
        reply, case = Path(folder, "reply"), Path(folder, "case")
        environment = os.environ | {"HYBRIDML_CACHE_DIR": str(Path(folder, "cache")), ENVIRONMENT: str(case)}
        command = [sys.executable, "-X", "faulthandler", "-m", __package__, kind, "--seconds", str(seconds)]
        command += ["--seed", str(seed), "--reply", str(reply)]
        log = Path(folder, "log")
        with log.open("wb") as output:
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
            try:
                status: int | str = process.wait(2 * seconds + 120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                status = "it did not end"
        if reply.exists():
            cases, findings = json.loads(reply.read_text())
            return cases, findings
        where = case.read_text().strip() if case.exists() else "no case yet"
        tail = log.read_text(errors="replace")[-3000:]
        return 0, [f"{kind} --seed {seed}: the process ended with {status} in {where}\n{tail}"]


def all_kinds(minutes: float, seed: int, kinds: Sequence[str], jobs: int) -> int:
    with ThreadPoolExecutor(jobs) as pool:
        found = dict(zip(kinds, pool.map(lambda kind: alone(kind, 60 * minutes, seed), kinds), strict=True))
    for kind, (_, findings) in found.items():
        for finding in findings[:SHOWN]:
            print(f"==== {kind}: {finding}")
        if len(findings) > SHOWN:
            print(f"==== {kind}: {len(findings) - SHOWN} more")
    counts = "; ".join(f"{kind} {cases}, {len(findings)} {KINDS[kind]}" for kind, (cases, findings) in found.items())
    print(f"fuzz: {minutes:g} min each, seed {seed}; {counts}")
    return any(findings for _, findings in found.values())


def one_kind(kind: str, seconds: float, seed: int, reply: str | None) -> int:
    cases, findings = importlib.import_module(f".{kind}", __package__).run(seconds, seed)
    if reply is not None:
        part = Path(reply).with_suffix(".part")
        part.write_text(json.dumps([cases, findings]))
        part.rename(reply)
        return 0
    for finding in findings:
        print(f"==== {kind}: {finding}")
    print(f"fuzz: {kind} {cases}, {len(findings)} {KINDS[kind]}, seed {seed}")
    return bool(findings)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parsers = parser.add_subparsers(dest="kind", required=True)
    everything = parsers.add_parser("all", help="each kind for some minutes")
    everything.add_argument("--minutes", type=float, default=5)
    everything.add_argument("--kinds", default=",".join(available()), help="names of kinds, separated by commas")
    everything.add_argument("--jobs", type=int, default=os.cpu_count(), help="kinds that run at a time")
    for kind in available():
        one = parsers.add_parser(kind, help=importlib.import_module(f".{kind}", __package__).__doc__.split("\n")[0])
        one.add_argument("--seconds", type=float, default=None if kind == "programs" else 60)
        one.add_argument("--reply", help=argparse.SUPPRESS)
        if kind == "programs":
            programs.add_options(one)
    for one in parsers.choices.values():
        one.add_argument("--seed", type=int, help="that of the first case (default: programs 0, others the clock's)")
    options = parser.parse_args(arguments)
    if options.kind == "programs" and options.seconds is None:
        return programs.main(options)
    seed = time.time_ns() // 1000 if options.seed is None else options.seed
    if options.kind == "all":
        kinds = options.kinds.split(",")
        unknown = sorted(set(kinds) - set(available()))
        if unknown:
            parser.error(f"no kind {', '.join(unknown)}; choose from {', '.join(available())}")
        return all_kinds(options.minutes, seed, kinds, options.jobs)
    return one_kind(options.kind, options.seconds, seed, options.reply)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Device "cuda" on a real GPU: is it right, and how fast is it?

`python -m benchmarks.gpu_check` runs every check in eight minutes, and writes `benchmarks/results/gpu.json` after each
of them and the page `docs/gpu.md` at the end. Nothing is fetched: what is not installed (pytest, PyTorch, JAX,
compute-sanitizer) is left out and said. Without a GPU it says so in one line. `--device cuda:sim --small` runs the
script itself on a machine that has none.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import hybridml as hm
from hybridml_compiler.targets.cuda.availability import availability

from .gpu.device import Check, Record
from .gpu.right import programs, rows, sanitizer, streams, suite
from .gpu.speed import attention, bandwidth, launches, products
from .gpu.steps import compiled, settled, training

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "gpu.json"
SECONDS = 450.0  # of all checks together; a check that has not begun by then is left out
CHECKS: dict[str, Callable[[Check], Record]] = {
    "compiled": compiled, "rows": rows, "suite": suite, "streams": streams, "settled": settled, "bandwidth": bandwidth,
    "products": products, "attention": attention, "launches": launches, "training": training, "sanitizer": sanitizer,
}  # fmt: skip


def machine(device: str) -> Record:
    """Names and versions of the machine that was measured."""
    found = availability()
    gpu = hm.cuda.get_device_properties(device)
    return {
        "device": device, "gpu": gpu.name, "architecture": f"sm_{gpu.major}{gpu.minor}",
        "memory": gpu.total_memory, "multiprocessors": gpu.multi_processor_count, "driver": found.driver,
        "cupy": found.cupy, "nvrtc": found.nvrtc, "python": platform.python_version(), "hybridml": hm.__version__,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_check", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default=",".join(CHECKS), help="names of checks, separated by commas")
    parser.add_argument("--small", action="store_true", help="tiny sizes: whether the script runs, no figures")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of all checks together")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--programs", action="store_true", help="run some programs and nothing else")
    options = parser.parse_args(arguments)
    problem = availability().problem
    if problem and options.device != "cuda:sim":
        print(f"no GPU to check: {problem}")
        return 0
    if options.programs:
        programs(options.device)
        return 0
    check = Check(options.device, options.small, time.monotonic() + options.seconds)
    record: Record = {"machine": machine(options.device), "checks": {}}
    for name in options.only.split(","):
        start = time.monotonic()
        try:
            found = CHECKS[name](check) if check.left() > 0 else {"left out": "no time"}
        except Exception:
            found = {"failed": traceback.format_exc().splitlines()[-12:]}
        record["checks"][name] = {**found, "seconds": round(time.monotonic() - start, 1)}
        print(f"{name}: {json.dumps(record['checks'][name])[:2000]}", flush=True)
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if options.json == RESULTS:
        from .gpu_page import write

        write()
    return 0


if __name__ == "__main__":
    sys.exit(main())

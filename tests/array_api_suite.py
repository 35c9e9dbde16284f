"""Runs the suite data-apis/array-api-tests from a checkout: ``make array-api``, see docs/array_api.md."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
MODULES = {"eager": "hybridml", "traced": "hybridml.testing.traced"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--style", choices=MODULES, help="one of the two; both without")
    parser.add_argument("--max-examples", type=int, default=100, help="inputs that are drawn for each test")
    parser.add_argument("--select", default="array_api_tests/", help="a file or test of the suite")
    options = parser.parse_args()
    checkout = Path(os.environ.get("ARRAY_API_TESTS", "")).expanduser()
    if not (checkout / "array_api_tests" / "stubs.py").is_file():
        parser.error(
            "the variable ARRAY_API_TESTS must name a checkout of https://github.com/data-apis/array-api-tests with "
            f"its submodule, got {os.environ.get('ARRAY_API_TESTS')!r}; docs/array_api.md says how to get one"
        )
    failed = 0
    for style in [options.style] if options.style else MODULES:
        print(f"{style}: {MODULES[style]}", flush=True)
        environment = {
            **os.environ,
            "ARRAY_API_TESTS_MODULE": MODULES[style],
            "ARRAY_API_TESTS_VERSION": "2024.12",
            "PYTHONPATH": os.pathsep.join(p for p in (str(TESTS.parent), os.environ.get("PYTHONPATH", "")) if p),
        }
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=short", "--disable-warnings", options.select),
            *("--disable-deadline", f"--max-examples={options.max_examples}"),
            f"--xfails-file={TESTS / 'array_api_xfails.txt'}",
        ]
        failed |= subprocess.run(command, cwd=checkout, env=environment, check=False).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())

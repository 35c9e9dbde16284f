"""Lines of Python a folder, beside a budget: ``make size``. A folder over its budget wants a simpler idea first."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent
LINES_A_FILE = 550

BUDGETS = {
    "hybridml": 41500,  # 1,500 of them for shapes, errors and examples in docstrings of the public library
    "hybridml_compiler/sizes": 1000,
    "hybridml_compiler/ops": 8000,  # with special functions, linalg, fft, sorts
    "hybridml_compiler/graph": 1500,  # with checks: errors that are owed whether or not a result is read
    "hybridml_compiler/passes": 2500,  # with control flow and rolled loops
    "hybridml_compiler/schedule": 5800,  # with convolutions of narrow operands, minimum cuts and regions, loops apart
    "hybridml_compiler/loops": 5200,  # with polynomials of special functions
    "hybridml_compiler/backends": 7400,  # with convolutions of narrow operands, bounds of every access
    "hybridml_compiler/runtime": 5350,  # with guards on functions, scratch memory, folders by handle, threads
    "hybridml_compiler": 37700,  # of its folders together
    "tests": 39300,  # with programs of traced Python, planted errors, guards, limits; fuzzers, threads, other machines
    "examples": 1000,
    "benchmarks": 3900,  # four libraries, twenty workloads, programs that are traced, two reports: times, launches
}


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def measure(root: Path = ROOT) -> dict[str, tuple[int, int]]:
    """Folder -> (files, lines)."""
    found = {}
    for folder in BUDGETS:
        files = sorted((root / folder).rglob("*.py"))
        found[folder] = len(files), sum(map(lines, files))
    return found


def main() -> None:
    print(f"{'folder':<28}{'files':>7}{'lines':>8}{'budget':>8}")
    for folder, (files, count) in measure().items():
        over = "  over" if count > BUDGETS[folder] else ""
        print(f"{folder:<28}{files:>7}{count:>8}{BUDGETS[folder]:>8}{over}")


if __name__ == "__main__":
    main()

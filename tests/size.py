"""Lines of Python a folder, beside a budget: ``make size``. A folder over its budget wants a simpler idea first."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent
LINES_A_FILE = 550

BUDGETS = {
    "hybridml": 20800,  # with layers in 8 bits, control flow of traced Python, and all there is to see
    "hybridml_compiler/sizes": 1000,
    "hybridml_compiler/ops": 4400,  # with the scatters of `.at`
    "hybridml_compiler/graph": 1200,
    "hybridml_compiler/passes": 2500,  # with control flow and rolled loops
    "hybridml_compiler/schedule": 5500,  # with convolutions of narrow operands, minimum cuts and regions, loops apart
    "hybridml_compiler/loops": 4700,
    "hybridml_compiler/backends": 6720,  # with convolutions of narrow operands
    "hybridml_compiler/runtime": 4310,  # with memory of results on cache lines, guards on functions
    "hybridml_compiler": 30900,  # of its folders together
    "tests": 22300,  # with programs of traced Python, each in seven places; planted errors for audits; guards
    "examples": 1000,
    "benchmarks": 3300,  # four libraries, twenty workloads, programs that are traced, a report
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

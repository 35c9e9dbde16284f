"""Programs of loops and arrays beside NumPy, Numba and JAX: `python -m benchmarks.scientific [--npbench PATH] [NAME ...]`.

The programs are ten of our own (`array_programs.py`) and, from a checkout of NPBench, its PolyBench part (`git clone
https://github.com/spcl/npbench`, of which nothing is kept here). hybridml runs NumPy's source as it is, on tensors
and with `import hybridml as np`, eagerly and traced; Numba and JAX run their own versions, of which the fastest that
is right counts. Each candidate has a process, and an empty cache, for each program. Its results are compared with
NumPy's; an error, a difference or no answer in time takes the place of its times.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from . import array_programs
from .array_worker import Source
from .compare import circumstances
from .markup import digits, duration, table
from .measure import Entry, add_round_options, difference, measure_rounds, noting
from .process import Failure, Process
from .transforms import spread
from .trees import geometric_mean

OURS = ("hybridml eager", "hybridml eager as np", "hybridml traced", "hybridml traced as np")
COLUMNS = ("numpy", *OURS, "numba", "jax")
TOLERANCE = {"float64": 1e-8, "float32": 1e-3}  # of the largest difference, relative to the largest element
HERE = Path(__file__).parent
POLYBENCH = Path("npbench", "benchmarks", "polybench")


# ---- the programs


@dataclass(frozen=True)
class Program:
    """`files`: the source of each candidate; `arguments`: inputs, which `make` returns, and numbers of a preset."""

    name: str
    function: str
    arguments: Sequence[str]
    presets: Mapping[str, dict[str, Any]]
    make: Callable[[dict[str, Any]], dict[str, Any]]
    files: Mapping[str, Path]
    tolerance: float = 0.0  # of the program, where it is larger than that of the dtype

    def source(self, candidate: str, preset: str) -> Source:
        return Source(str(self.files[candidate]), self.function, self.arguments, self.presets[preset])


def own_programs() -> Iterator[Program]:
    numpy, numba, jax = (HERE / f"array_programs{of}.py" for of in ("", "_numba", "_jax"))
    for function, (inputs, presets) in array_programs.PROGRAMS.items():
        name = function.__name__
        files = dict.fromkeys(("numpy", *OURS, "numba n", "numba np"), numpy)
        for candidate, path in (("numba loops", numba), ("jax", jax)):
            if f"\ndef {name}(" in path.read_text(encoding="utf-8"):
                files[candidate] = path

        def make(sizes: dict[str, Any], inputs: Callable[..., Any] = inputs) -> dict[str, Any]:
            named = inspect.signature(inputs).parameters
            made: dict[str, Any] = inputs(np.random.default_rng(0), **{k: v for k, v in sizes.items() if k in named})
            return made

        yield Program(name, name, [*inspect.signature(function).parameters], presets, make, files)


def polybench(root: Path) -> Iterator[Program]:
    """The programs of a checkout of NPBench."""
    for path in sorted((root / "bench_info").glob("*.json")):
        about = json.loads(path.read_text(encoding="utf-8"))["benchmark"]
        if not about["relative_path"].startswith("polybench/"):
            continue
        name, init = about["module_name"], about["init"]
        folder = root / POLYBENCH / Path(about["relative_path"]).name
        spellings = dict.fromkeys(("numpy", *OURS), "numpy") | {"jax": "jax", "jax lib": "jax_lib"}
        spellings |= {"numba n": "numba_n", "numba np": "numba_np", "numba npr": "numba_npr"}
        files = {who: folder / f"{name}_{spelling}.py" for who, spelling in spellings.items()}

        def make(sizes: dict[str, Any], init: Any = init, path: Path = folder / f"{name}.py") -> dict[str, Any]:
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            made = getattr(module, init["func_name"])(*[sizes[name] for name in init["input_args"]])
            names = init["output_args"]
            return dict(zip(names, made if len(names) > 1 else [made], strict=True))

        yield Program(
            f"polybench {name}", about["func_name"], about["input_args"], about["parameters"], make,
            {who: path for who, path in files.items() if path.exists()}, about.get("rtol", 0.0),
        )  # fmt: skip


# ---- one program


@dataclass
class Prepared:
    """The inputs of a program in a file that its candidates read, and NumPy's results, which theirs are to be."""

    program: Program
    preset: str
    tolerance: float
    folder: Path
    expected: list[np.ndarray] = field(default_factory=list)
    warnings: dict[str, list[str]] = field(default_factory=dict)

    def write(self, dtype: str) -> None:
        made = {
            name: np.asarray(values) for name, values in self.program.make(self.program.presets[self.preset]).items()
        }
        narrow = {name: a.astype(dtype) if a.dtype.kind == "f" else a for name, a in made.items()}
        np.savez(self.folder / "inputs.npz", **narrow)

    def load(self, process: Process) -> Entry:
        entry, results = Entry(), str(self.folder / "results.npz")
        source = self.program.source(process.name, self.preset)
        with noting(entry):
            reply = process.ask(load=source, inputs=str(self.folder / "inputs.npz"), results=results)
            entry.first, entry.memory = reply["first"], reply["memory"]
            self.warnings[process.name] = reply["warnings"]
            self.check(entry, process.name, results, 1)
            process.ask(again=results)  # a second program may have been compiled by then
            self.check(entry, process.name, results, 2)
        return entry

    def check(self, entry: Entry, candidate: str, path: str, calls: int) -> None:
        with np.load(path) as file:
            found = list(file.values())
        self.expected = self.expected or found
        if candidate.startswith("jax"):  # returns new arrays, in an order of its own, and not always all
            apart = max(min(difference([a], [b]) for a in self.expected if a.shape == b.shape) for b in found)
        else:
            apart = difference(self.expected * calls, found)
        entry.difference = max(entry.difference, apart)
        if not apart <= self.tolerance:  # NaN too
            raise Failure(f"differs by {apart:.1e}, more than {self.tolerance:.0e}")


def measure(program: Program, candidates: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    tolerance = max(TOLERANCE[options.dtype], program.tolerance)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        prepared = Prepared(program, options.preset, tolerance, folder)
        prepared.write(options.dtype)
        processes = {}
        for who in candidates:
            cache = stack.enter_context(TemporaryDirectory())
            process = Process(who, options.threads, cache, module="array_worker", patience=options.timeout)
            processes[who] = stack.enter_context(process)
        for process in processes.values():
            process.ask()  # imported: the first call of another is not timed beside it
        entries = measure_rounds(prepared, processes, options.rounds, options.seconds)
    return {
        who: {"note": entry.note, "warnings": prepared.warnings.get(who, [])}
        | ({"first_call": entry.first, "memory": entry.memory, "difference": entry.difference} if entry.first else {})
        | ({**spread(entry.samples), "samples": len(entry.samples)} if entry.samples and not entry.note else {})
        for who, entry in entries.items()
    }


# ---- what it says

Found = Mapping[str, Mapping[str, Any]]  # candidate -> what was measured


def best(found: Found, column: str) -> Mapping[str, Any]:
    """What was measured of a column: of the versions of Numba and JAX the fastest that is right."""
    of = [
        facts
        for who, facts in found.items()
        if who == column or (column in ("numba", "jax") and who.startswith(column))
    ]
    timed = [facts for facts in of if "median" in facts]
    return min(timed, key=lambda facts: facts["median"]) if timed else of[0] if of else {}


def cell(facts: Mapping[str, Any]) -> str:
    if "median" in facts:
        return duration(facts["median"])
    note = facts.get("note", "-")
    return next((short for start, short in SHORT.items() if note.startswith(start)), "error") if facts else "-"


SHORT = {"differs": "differs", "no answer": "time-out", "the process ended": "crash"}


def summary(programs: Mapping[str, Found]) -> dict[str, Any]:
    """Geometric means, over the programs that both candidates of a ratio run rightly, and how many these are."""
    columns = {name: {column: best(found, column) for column in COLUMNS} for name, found in programs.items()}

    def ratios(above: str, under: str) -> dict[str, float]:
        pairs = {name: (at[above].get("median"), at[under].get("median")) for name, at in columns.items()}
        return {name: a / b for name, (a, b) in pairs.items() if a and b}

    speeds, firsts, memory = {}, {}, {}
    for ours in OURS:
        for peer in ("numpy", "numba", "jax"):
            of = ratios(peer, ours)
            if of:
                worst = min(of, key=of.__getitem__)
                speeds[f"{peer} / {ours}"] = {
                    "mean": geometric_mean(of.values()), "programs": len(of),
                    "slower": sum(r < 1.0 for r in of.values()), "worst": worst, "worst_ratio": of[worst],
                }  # fmt: skip
    for column in COLUMNS:
        calls = {name: at[column]["first_call"] for name, at in columns.items() if at[column].get("first_call")}
        if calls:
            slowest = max(calls, key=calls.__getitem__)
            firsts[column] = {"mean": geometric_mean(calls.values()), "max": calls[slowest], "program": slowest}
        grown = {
            name: at[column]["memory"] - at["numpy"].get("memory", 0)
            for name, at in columns.items()
            if "memory" in at[column]
        }
        if grown:
            most = max(grown, key=grown.__getitem__)
            memory[column] = {
                "above_numpy": sum(b > 1 << 20 for b in grown.values()),
                "most": grown[most],
                "program": most,
            }
    failed = {column: sum("median" not in at[column] for at in columns.values() if at[column]) for column in COLUMNS}
    return {"speed": speeds, "first_call": firsts, "memory": memory, "failed": failed}


def report(programs: Mapping[str, Found]) -> Iterator[str]:
    rows = []
    for name, found in programs.items():
        at = {column: best(found, column) for column in COLUMNS}
        first = at["hybridml traced"].get("first_call")
        rows.append([name, *[cell(facts) for facts in at.values()], duration(first) if first else "-"])
    yield from table(["program", *[c.replace("hybridml ", "") for c in COLUMNS], "first traced call"], rows)
    for name, found in programs.items():
        for who, facts in found.items():
            for text in [facts["note"]] * bool(facts["note"]) + facts["warnings"] * (who in OURS):
                yield f"- {name}, {who}: {text}"
    said = summary(programs)
    yield from table(
        ["geometric mean", "ratio", "programs", "slower", "worst"],
        [
            [name, digits(of["mean"]), str(of["programs"]), str(of["slower"]), f"{of['worst']} {of['worst_ratio']:.2g}"]
            for name, of in said["speed"].items()
        ],
    )
    yield from table(
        ["candidate", "not timed", "first call, geometric mean", "longest", "peak memory above NumPy's by 1 MiB", "most"],
        [
            [
                name, str(said["failed"][name]), duration(of["mean"]), f"{duration(of['max'])} {of['program']}",
                str(said["memory"][name]["above_numpy"]),
                f"{said['memory'][name]['most'] / 2**20:.0f} MiB {said['memory'][name]['program']}",
            ]
            for name, of in said["first_call"].items()
        ],
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.scientific", description=__doc__)
    parser.add_argument("programs", nargs="*", help="names, or polybench for all of these; default: all")
    parser.add_argument("--npbench", type=Path, help="a checkout of github.com/spcl/npbench")
    parser.add_argument("--preset", default="S", help="sizes: S or M, of NPBench also L and paper")
    parser.add_argument("--dtype", choices=TOLERANCE, default="float64")
    parser.add_argument(
        "--candidates", default=",".join(COLUMNS), help="with commas; numba and jax: all of their versions"
    )
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for a first call, and for each round")
    add_round_options(parser)
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    known = [*own_programs(), *(polybench(options.npbench) if options.npbench else ())]
    asked = options.candidates.split(",")
    facts = circumstances("benchmarks.scientific", given, options.threads)
    facts |= {"preset": options.preset, "dtype": options.dtype, "timeout": options.timeout, "programs": {}}
    for program in known:
        if options.programs and not set(program.name.split()) & set(options.programs):
            continue
        mine = [who for who in program.files if who in asked or who.partition(" ")[0] in asked]
        facts["programs"][program.name] = found = measure(program, mine, options)
        print(f"{program.name}: " + ", ".join(f"{who} {cell(of)}" for who, of in found.items()), flush=True)
        facts["summary"] = summary(facts["programs"])
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    print("\n".join(report(facts["programs"])))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

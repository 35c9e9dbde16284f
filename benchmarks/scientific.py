"""Programs of loops and arrays beside NumPy, Numba and JAX: `python -m benchmarks.scientific [--npbench PATH] [NAME ...]`.

The programs are ten of our own (`array_programs.py`) and, from a checkout of NPBench, its PolyBench part (`git clone
https://github.com/spcl/npbench`; nothing of it is kept here). hybridml runs NumPy's source as it is, on tensors or
with `import hybridml as np`, eagerly or traced; Numba and JAX run their own versions, of which the fastest that is
right counts. Each candidate has a process and an empty cache for each program. Its results are compared with NumPy's;
an error, a difference or no answer in time takes the place of its time.
"""  # noqa: E501

from __future__ import annotations

import argparse
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

from hybridml_examples.study.process import Failure

from .array_programs import FLOOR, PROGRAMS
from .array_worker import Source, module_of
from .compare import circumstances
from .loop_programs import LOOPS
from .markup import digits, duration, table
from .measure import Entry, add_round_options, difference, measure_rounds, noting
from .process import Process
from .transforms import spread
from .trees import geometric_mean

OURS = ("hybridml eager", "hybridml eager as np", "hybridml traced", "hybridml traced as np")
PEERS = ("numba", "jax")
COLUMNS = ("numpy", *OURS, *PEERS)
TOLERANCE = {"float64": 1e-8, "float32": 1e-3}  # of the largest difference, relative to the largest element
FAILURES = {"differs": "differs", "no answer": "time-out", "the process ended": "crash", "": "error"}
NOISE = 1 << 20  # bytes


@dataclass(frozen=True)
class Program:
    """`arguments` are names of inputs, which `make` returns, and of a preset's numbers; `files`: the candidates'."""

    name: str
    function: str
    arguments: Sequence[str]
    presets: Mapping[str, dict[str, Any]]
    make: Callable[[dict[str, Any]], dict[str, Any]]
    files: Mapping[str, Path]
    tolerance: float = 0.0  # of this program, where it is larger than that of the dtype


def own_programs(programs: Mapping[Callable[..., Any], Any] = PROGRAMS) -> Iterator[Program]:
    numba, jax = (Path(__file__).parent / f"array_programs{of}.py" for of in ("_numba", "_jax"))
    for function, (inputs, presets) in programs.items():
        name, numpy = function.__name__, Path(inspect.getfile(function))
        files = dict.fromkeys(("numpy", *OURS, "numba n", "numba np"), numpy)
        written = {"numba loops": numba, "jax": jax}
        files |= {who: path for who, path in written.items() if f"\ndef {name}(" in path.read_text(encoding="utf-8")}

        def make(sizes: dict[str, Any], inputs: Callable[..., dict[str, Any]] = inputs) -> dict[str, Any]:
            named = inspect.signature(inputs).parameters
            return inputs(np.random.default_rng(0), **{name: sizes[name] for name in named if name in sizes})

        yield Program(name, name, [*inspect.signature(function).parameters], presets, make, files)


def polybench(root: Path) -> Iterator[Program]:
    """The programs of a checkout of NPBench."""
    spellings = dict.fromkeys(("numpy", *OURS), "numpy") | {"jax": "jax", "jax lib": "jax_lib"}
    spellings |= {"numba n": "numba_n", "numba np": "numba_np", "numba npr": "numba_npr"}
    for path in sorted((root / "bench_info").glob("*.json")):
        about = json.loads(path.read_text(encoding="utf-8"))["benchmark"]
        name, folder = about["module_name"], root / "npbench" / "benchmarks" / about["relative_path"]
        if folder.parent.name != "polybench":
            continue

        def make(
            sizes: dict[str, Any], init: Any = about["init"], file: Path = folder / f"{name}.py"
        ) -> dict[str, Any]:
            made = getattr(module_of(str(file)), init["func_name"])(*[sizes[name] for name in init["input_args"]])
            names = init["output_args"]
            return dict(zip(names, made if len(names) > 1 else [made], strict=True))

        files = {who: folder / f"{name}_{spelling}.py" for who, spelling in spellings.items()}
        files = {who: path for who, path in files.items() if path.exists()}
        of = about["func_name"], about["input_args"], about["parameters"]
        yield Program(f"polybench {name}", *of, make, files, about.get("rtol", 0.0))


# ---- what it does


@dataclass
class Prepared:
    """The inputs of a program in a file that its candidates read, and NumPy's results, which theirs are to be."""

    program: Program
    sizes: dict[str, Any]
    tolerance: float
    folder: Path
    expected: list[np.ndarray] = field(default_factory=list)
    warnings: dict[str, list[str]] = field(default_factory=dict)

    def write(self, dtype: str) -> None:
        made = {name: np.asarray(values) for name, values in self.program.make(self.sizes).items()}
        narrow = {name: a.astype(dtype) if a.dtype.kind == "f" else a for name, a in made.items()}
        np.savez(self.folder / "inputs.npz", **narrow)

    def load(self, process: Process) -> Entry:
        entry, results, program = Entry(), str(self.folder / "results.npz"), self.program
        source = Source(str(program.files[process.name]), program.function, program.arguments, self.sizes)
        with noting(entry):
            reply = process.ask(load=source, inputs=str(self.folder / "inputs.npz"), results=results)
            entry.first, entry.memory = reply["first"], reply["memory"]
            self.warnings[process.name] = reply["warnings"]
            self.check(entry, process.name, results, 1)
            process.ask(again=results)  # another program may have been compiled by then
            self.check(entry, process.name, results, 2)
        return entry

    def check(self, entry: Entry, candidate: str, path: str, calls: int) -> None:
        with np.load(path) as file:
            found = list(file.values())
        self.expected = self.expected or found
        if candidate.startswith(PEERS):  # what their authors return, in an order of their own, and not always all of it
            near = [[difference([a], [b]) for a in self.expected if a.shape == b.shape] for b in found]
            apart = max((min(of, default=np.nan) for of in near), default=np.nan)
        else:
            apart = difference(self.expected * calls, found)
        entry.difference = max(entry.difference, apart)
        if not apart <= self.tolerance:  # NaN too
            raise Failure(f"differs by {apart:.1e}, more than {self.tolerance:.0e}")


def measure(program: Program, candidates: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    tolerance = max(TOLERANCE[options.dtype], program.tolerance)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        prepared = Prepared(program, program.presets[options.preset], tolerance, folder)
        prepared.write(options.dtype)
        processes = {}
        for who in candidates:
            cache = stack.enter_context(TemporaryDirectory())
            process = Process(who, options.threads, cache, module="array_worker", patience=options.timeout)
            processes[who] = stack.enter_context(process)
        for process in processes.values():
            process.ask()  # all are imported before one is timed
        entries = measure_rounds(prepared, processes, options.rounds, options.seconds)
    return {
        who: {"note": entry.note, "warnings": prepared.warnings.get(who, [])}
        | ({"first_call": entry.first, "memory": entry.memory, "difference": entry.difference} if entry.first else {})
        | ({**spread(entry.samples), "samples": len(entry.samples)} if not entry.note else {})
        for who, entry in entries.items()
    }


def without_places(text: str, options: argparse.Namespace) -> str:
    """The text without the paths of this machine, which commands and errors name."""
    places = {options.json.parent: "PATH", options.npbench: "NPBENCH", Path(__file__).parents[1]: "."}
    for place, name in places.items():
        text = text if place is None else text.replace(str(place), name)
    return text


# ---- what it says

Found = Mapping[str, Mapping[str, Any]]  # candidate -> what was measured


def columns(found: Found) -> dict[str, Mapping[str, Any]]:
    """The measurement for each column: of the versions of a peer the fastest that is right."""

    def best(column: str) -> Mapping[str, Any]:
        of = [facts for who, facts in found.items() if who == column or (column in PEERS and who.startswith(column))]
        return min(of, key=lambda facts: facts.get("median", np.inf), default={})

    return {column: best(column) for column in COLUMNS}


def cell(facts: Mapping[str, Any]) -> str:
    if "median" in facts:
        return duration(facts["median"])
    return next(word for start, word in FAILURES.items() if facts["note"].startswith(start)) if facts else "-"


def summary(programs: Mapping[str, Found], floor: Found | None = None) -> dict[str, Any]:
    """Geometric means over the programs that both candidates of a ratio run rightly; first calls; memory above
    what each candidate takes for next to no data (`floor`); failures."""
    least = columns(floor or {})
    at = {name: columns(found) for name, found in programs.items()}
    said: dict[str, Any] = {"speed": {}, "first_call": {}, "memory": {}, "failed": {}}
    for ours in OURS:
        for peer in ("numpy", *PEERS):
            both = {name: of for name, of in at.items() if "median" in of[ours] and "median" in of[peer]}
            ratios = {name: of[peer]["median"] / of[ours]["median"] for name, of in both.items()}
            if ratios:
                worst = min(ratios, key=ratios.__getitem__)
                facts = {"mean": geometric_mean(ratios.values()), "programs": len(ratios), "worst": worst}
                facts |= {"slower": sum(ratio < 1.0 for ratio in ratios.values()), "worst_ratio": ratios[worst]}
                said["speed"][f"{peer} / {ours}"] = facts
    for column in COLUMNS:
        of_all = {name: of[column] for name, of in at.items() if of[column]}
        said["failed"][column] = sum("median" not in facts for facts in of_all.values())
        calls = {name: facts["first_call"] for name, facts in of_all.items() if "first_call" in facts}
        if calls:
            longest = max(calls, key=calls.__getitem__)
            facts = {"mean": geometric_mean(calls.values()), "longest": longest, "longest_seconds": calls[longest]}
            alone = least[column].get("memory", 0) - least["numpy"].get("memory", 0)
            grown = {name: of_all[name]["memory"] - alone - at[name]["numpy"].get("memory", 0) for name in calls}
            most = max(grown, key=grown.__getitem__)
            said["first_call"][column] = facts
            said["memory"][column] = {"above_numpy": sum(b > NOISE for b in grown.values())}
            said["memory"][column] |= {"most": most, "most_bytes": grown[most], "floor_bytes": alone}
    return said


def report(programs: Mapping[str, Found], floor: Found | None = None) -> Iterator[str]:
    rows = []
    for name, found in programs.items():
        at = columns(found)
        firsts = [duration(at[who]["first_call"]) if "first_call" in at[who] else "-" for who in OURS[2:]]
        rows.append([name, *map(cell, at.values()), *firsts])
    heads = [column.removeprefix("hybridml ") for column in COLUMNS]
    yield from table(["program", *heads, *[f"first {head}" for head in heads[3:5]]], rows)
    for name, found in programs.items():
        for who, facts in found.items():
            for text in [*[facts["note"]] * bool(facts["note"]), *facts["warnings"] * (who in OURS)]:
                yield f"- {name}, {who}: {text}"
    said = summary(programs, floor)
    yield from table(
        ["speed", "geometric mean", "programs", "slower", "worst"],
        [
            [who, digits(of["mean"]), f"{of['programs']}", f"{of['slower']}", f"{of['worst_ratio']:.2g} {of['worst']}"]
            for who, of in said["speed"].items()
        ],
    )
    rows = []
    for who, of in said["first_call"].items():
        memory = said["memory"][who]
        rows.append([who, f"{said['failed'][who]}", duration(of["mean"])])
        rows[-1] += [f"{duration(of['longest_seconds'])} {of['longest']}", f"{memory['above_numpy']}"]
        rows[-1] += [f"{memory[of] / 2**20:.0f} MiB" for of in ("most_bytes", "floor_bytes")]
        rows[-1][-2] += f" {memory['most']}"
    heads = [
        "first call",
        "not timed",
        "geometric mean",
        "longest",
        "with more memory than NumPy",
        "most",
        "of no data",
    ]
    yield from table(heads, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.scientific", description=__doc__)
    parser.add_argument("programs", nargs="*", help="names, or polybench for all of these; default: all")
    parser.add_argument("--npbench", type=Path, help="a checkout of https://github.com/spcl/npbench")
    parser.add_argument("--loops", action="store_true", help="programs of single elements (loop_programs.py) instead")
    parser.add_argument("--preset", default="S", help="sizes: S or M; of NPBench also L and paper")
    parser.add_argument("--dtype", choices=TOLERANCE, default="float64")
    parser.add_argument(
        "--candidates", default=",".join(COLUMNS), help=f"of {', '.join(COLUMNS)}, with commas; default: all"
    )
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for a first call, and for each round")
    add_round_options(parser)
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    asked = options.candidates.split(",")
    facts = circumstances("benchmarks.scientific", given, options.threads)
    facts |= {name: getattr(options, name) for name in ("preset", "dtype", "timeout")} | {"programs": {}}
    floor = list(own_programs(FLOOR))
    ours = own_programs(LOOPS) if options.loops else own_programs()
    for program in [*floor, *ours, *(polybench(options.npbench) if options.npbench else ())]:
        if options.programs and program not in floor and not set(program.name.split()) & set(options.programs):
            continue
        mine = [who for who in program.files if who in asked or who.partition(" ")[0] in asked]
        found = measure(program, mine, options)
        if program in floor:
            facts["floor"] = found
        else:
            facts["programs"][program.name] = found
        facts["summary"] = summary(facts["programs"], facts["floor"])
        print(f"{program.name}: " + ", ".join(f"{who} {cell(of)}" for who, of in found.items()), flush=True)
        if options.json:  # a long run that is stopped has left what it measured
            options.json.write_text(without_places(json.dumps(facts, indent=1), options) + "\n", encoding="utf-8")
    print("\n".join(report(facts["programs"], facts["floor"])))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

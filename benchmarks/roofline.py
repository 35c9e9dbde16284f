"""Where the time of a traced program goes, launch by launch, beside what the machine can do at most.

`python -m benchmarks.roofline gpt_step` runs a workload under `hm.profile` and prints its launches, the longest first;
without names it runs all that have an aim. `make roofline` keeps them in `benchmarks/results/roofline.json`, of which
`benchmarks.report` makes a page.

The least time of a launch is the longer of two: its multiply-adds at the machine's rate, and its bytes, as many as the
last cache holds at the rate of that, the others at the rate of memory. What its exponentials cost is in no limit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hybridml as hm
from hybridml.profiler.kernels import kernel_name, node_flops, operations
from hybridml_compiler.loops.transcendental import TABLE as POLYNOMIALS
from hybridml_compiler.schedule.cost import RANGES_A_THREAD
from hybridml_compiler.schedule.kernels.convolution import Convolution, Pixels, Weights
from hybridml_compiler.targets.cpu.llvm.convolution.kernel import own_algorithm
from hybridml_compiler.targets.cpu.runtime.spans import CAPACITY
from hybridml_compiler.targets.cpu.spec import host_spec

from . import ours
from .compare import circumstances
from .limits import limits
from .limits_page import launch_rows
from .markup import digits
from .workloads import TABLE, WORKLOADS, Case

WARM = 5  # calls before the profile begins
MOST = 64  # calls of one profile, whose events Python makes objects of; of many launches fewer, see `most_calls`
NOISY = 1.2  # calls without a profile so many times as long as with one: another program had the cores
PRODUCTS = ("contraction", "convolution")


@dataclass(frozen=True)
class Machine:
    """What all threads can do together."""

    gflops: float
    memory_gbs: float
    last_gbs: float
    last_bytes: float

    @classmethod
    def of(cls, found: Mapping[str, float], threads: int) -> Machine:
        """From `limits`; where no last cache is known, all bytes are memory's."""
        memory = found[f"memory_gbs_{threads}"]
        last = found.get(f"last_gbs_{threads}", memory)
        return cls(found[f"gflops_{threads}"], memory, last, found["last_bytes"])

    def arithmetic(self, flops: float) -> float:
        """Milliseconds."""
        return flops / self.gflops / 1e6

    def memory(self, nbytes: float) -> float:
        """Milliseconds, if no cache held any of them."""
        return nbytes / self.memory_gbs / 1e6

    def traffic(self, nbytes: float) -> float:
        """Milliseconds: no more than the last cache holds can be there already."""
        near = min(nbytes, self.last_bytes)
        return near / self.last_gbs / 1e6 + self.memory(nbytes - near)


@dataclass
class Spent:
    """A launch of a program, or `count` that are alike: milliseconds of each call, and what they were used for."""

    name: str
    flops: float  # of products and convolutions
    bytes: float
    polynomials: float = 0.0  # exponentials, logarithms...: how many are computed
    count: int = 1
    times: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)  # of its threads, on average

    @property
    def ms(self) -> float:
        return statistics.median(self.times)

    @property
    def waiting(self) -> float | None:
        """Share of the time in which a thread had nothing to do; None where one thread alone ran it."""
        return max(0.0, 1.0 - statistics.median(self.busy) / self.ms) if self.busy else None

    def least(self, machine: Machine) -> float:
        """Milliseconds that the machine's limits allow, each of `count` for itself."""
        each = machine.arithmetic(self.flops / self.count), machine.traffic(self.bytes / self.count)
        return self.count * max(each)


@dataclass(frozen=True)
class Measured:
    """`ms`: median of a call. `profiled_ms`: with the clock read round every launch, as `launches` were timed."""

    ms: float
    profiled_ms: float
    launches: Sequence[Spent]

    @property
    def noisy(self) -> bool:
        """A profile makes nothing faster."""
        return self.ms > NOISY * self.profiled_ms


# ---- what launches do


def multiplied(work: Any) -> float:
    """The multiplications that a convolution's algorithm is left with: Winograd's has 16 for 36 with taps of 3x3."""
    convolution = getattr(work, "call", work)  # of a work with an epilogue
    found = own_algorithm(convolution, host_spec()) if isinstance(convolution, Convolution) else None
    if found is None or found[0].name != "winograd":
        return 1.0
    height, width = convolution.kernel
    return float(found[1].numbers / (4 * height * width))


def spent_on(launches: Sequence[Any]) -> list[Spent]:
    """What each launch is there for. The second of two that compute a node together has no arithmetic of its own, nor
    has one that prepares an operand."""
    found, before = [], None
    for launch in launches:
        prepares = isinstance(launch.spec, (Weights, Pixels))
        counted = [] if prepares or (launch.nodes and launch.nodes == before) else list(operations(launch.nodes))
        known = [(node, times, node.op) for node, times in counted if node.op is not None]
        flops = sum(node_flops(node) * times for node, times, op in known if op.kind in PRODUCTS)
        polynomials = sum(node_flops(node) * times for node, times, op in known if op.name in POLYNOMIALS)
        name = str(launch.spec) if prepares else kernel_name(launch)
        found.append(Spent(name, float(flops) * multiplied(launch.spec), float(launch.nbytes), float(polynomials)))
        before = None if prepares else launch.nodes
    return found


def alike(launches: Sequence[Spent]) -> list[Spent]:
    """Launches of one name, work and traffic as one, the longest first."""
    groups: dict[tuple[str, float, float, float], list[Spent]] = defaultdict(list)
    for one in launches:
        groups[one.name, one.flops, one.bytes, one.polynomials].append(one)
    found = []
    for (name, flops, nbytes, polynomials), many in groups.items():
        count = len(many)
        busy = [statistics.median(one.busy) for one in many if one.busy]
        whole = Spent(name, flops * count, nbytes * count, polynomials * count, count, [sum(one.ms for one in many)])
        whole.busy = [sum(busy)] if len(busy) == count else []
        found.append(whole)
    return sorted(found, key=lambda one: -one.ms)


# ---- measuring


def timed(case: Case, count: int) -> list[float]:
    """Milliseconds of calls from the start."""
    case.reset()
    found = []
    for _ in range(count):
        start = time.perf_counter()
        case.call()
        found.append((time.perf_counter() - start) * 1e3)
    return found


def most_calls(launches: int, threads: int) -> int:
    """Calls for which a profile has room: a launch is a record, and one for each range of it that a thread ran."""
    return min(MOST, max(1, CAPACITY // (launches * (1 + RANGES_A_THREAD * threads))))


def watched(case: Case, count: int, launches: list[Spent], threads: int) -> list[float]:
    """The same under a profile, which adds to the launches of the largest program, at first none."""
    case.reset()
    with hm.profile() as profile:
        for _ in range(count):
            case.call()
    if profile.lost:
        raise RuntimeError(
            f"roofline: a profile of {count} calls has lost {profile.lost} of its records, a program has room for "
            f"{CAPACITY}: profile fewer calls at once (MOST in benchmarks/roofline.py)"
        )
    executable, spans, _ = max(profile.recording.launches, key=lambda found: len(found[1]))
    launches += [] if launches else spent_on(executable.launches)
    parts: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for span in spans:
        if span.part:
            parts[span.launch].append((span.start, span.end))
    for span in spans:
        if span.part:
            continue
        launches[span.launch].times.append((span.end - span.start) / 1e6)
        inside = [end - start for start, end in parts[span.launch] if span.start <= start and end <= span.end]
        launches[span.launch].busy += [sum(inside) / threads / 1e6] if inside else []
    return [event.total_ns / 1e6 for event in profile.events if event.kind == "call"]


def measure(name: str, seconds: float, threads: int) -> Measured:
    """Rounds of calls without a profile and with one, in turns."""
    workload = WORKLOADS[name]
    case = workload.case(ours, workload.arrays(), "traced")
    one = min(timed(case, WARM)) / 1e3
    first: list[Spent] = []
    watched(case, 1, first, threads)  # how many launches there are
    count = min(most_calls(len(first), threads), max(2, int(seconds / 4 / one)))
    calls: list[float] = []
    profiled: list[float] = []
    launches: list[Spent] = []
    deadline = time.perf_counter() + seconds
    while not calls or time.perf_counter() < deadline:
        calls += timed(case, count)
        profiled += watched(case, count, launches, threads)
    return Measured(statistics.median(calls), statistics.median(profiled), [one for one in launches if one.times])


def measure_quietly(name: str, seconds: float, threads: int) -> Measured:
    """Once more where something else ran meanwhile, and with a warning where it did again."""
    found = measure(name, seconds, threads)
    if found.noisy:
        found = measure(name, seconds, threads)
    if found.noisy:
        print(
            f"warning: {name} takes {digits(found.ms)} ms without a profile, {digits(found.profiled_ms)} with one: "
            "something else ran"
        )
    return found


# ---- what it says


def described(name: str, measured: Measured, machine: Machine) -> dict[str, Any]:
    """The entry of a workload in the file of results; times in milliseconds."""
    found = alike(measured.launches)
    return {
        "title": WORKLOADS[name].title,
        "ms": short(measured.ms),
        "profiled_ms": short(measured.profiled_ms),
        "launch_ms": short(sum(one.ms for one in found)),
        "arithmetic_ms": short(sum(machine.arithmetic(one.flops) for one in found)),
        "least_ms": short(sum(one.least(machine) for one in found)),
        "memory_ms": short(sum(max(machine.arithmetic(one.flops), machine.memory(one.bytes)) for one in found)),
        "launches": [
            {
                "name": one.name,
                "count": one.count,
                "ms": short(one.ms),
                "least_ms": short(one.least(machine)),
                "gflop": short(one.flops / 1e9),
                "mb": short(one.bytes / 1e6),
                "polynomials": short(one.polynomials),
                "waiting": None if one.waiting is None else short(one.waiting),
            }
            for one in found
        ],
    }


def short(value: float) -> float:
    """Four digits: a file that can be read."""
    return float(f"{value:.4g}")


def lines(name: str, entry: dict[str, Any], shown: int) -> list[str]:
    """The launches of a workload for a terminal."""
    count = sum(one["count"] for one in entry["launches"])
    return [
        f"\n{name}: {digits(entry['ms'])} ms a call ({digits(entry['profiled_ms'])} profiled), "
        f"{digits(entry['launch_ms'])} in {count} launches",
        f"  least by the limits, launch by launch: {digits(entry['least_ms'])} ms; of arithmetic alone: "
        f"{digits(entry['arithmetic_ms'])}",
        *("  " + ROW.format(*row) for row in (HEAD, *launch_rows(entry, shown))),
    ]


ROW = "{:<66.66} {:>7} {:>7} {:>6} {:>6} {:>6} {:>7} {:>7}"
HEAD = ("", "ms", "least", "share", "GF/s", "GB/s", "Mpoly", "waiting")


def known(name: str) -> str:
    if name not in TABLE:
        raise argparse.ArgumentTypeError(f"{name} not known; there are {', '.join(TABLE)}")
    return name


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.roofline", description=__doc__)
    parser.add_argument("names", nargs="*", type=known, help=f"of {', '.join(TABLE)}; default: all")
    parser.add_argument("--seconds", type=float, default=2.0, help="of calls, a workload (default 2)")
    parser.add_argument("--shown", type=int, default=12, help="launches that are printed (default 12)")
    parser.add_argument("--json", type=Path, help="where the results are written; default: nowhere")
    options = parser.parse_args(given)
    threads = hm.get_num_threads()
    record = circumstances("benchmarks.roofline", given, threads, peers=False)
    record |= {"limits": limits(threads), "workloads": {}}
    print(", ".join(f"{key} {digits(value)}" for key, value in record["limits"].items()))
    machine = Machine.of(record["limits"], threads)
    for name in options.names or TABLE:
        entry = record["workloads"][name] = described(name, measure_quietly(name, options.seconds, threads), machine)
        print("\n".join(lines(name, entry, options.shown)), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"written: {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

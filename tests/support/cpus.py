"""CPUs that this one is not: with narrower vectors (whose code runs here), and of other architectures.

The compiler is imported late: `--vectors` (see `conftest.py`) asks for one of these before it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hybridml_compiler.record import replace
from hybridml_compiler.targets.cpu import spec
from hybridml_compiler.targets.cpu.spec import VECTORS, CpuSpec, spec_of, vectors_of

if TYPE_CHECKING:
    from hybridml_compiler.graph.ir import Graph
    from hybridml_compiler.targets.cpu.llvm.modules import Module

_X86, _ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
_V3 = ("sse2", "sse4.2", "popcnt", "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
SSE = spec_of(_X86, ("sse2",), cores=2)
AVX2 = spec_of(_X86, _V3, cores=2)
AVX512 = spec_of(_X86, _V4, cores=2)
NEON = spec_of(_ARM, ("neon", "fp-armv8"), cores=2)


def narrowed(cpu: CpuSpec, bits: int) -> CpuSpec:
    """The same machine, as if it had no vectors wider than this."""
    names = [name[1:] for name in cpu.features.split(",") if name.startswith("+")]
    families = [row.features[0][: len("avx512")] for row in VECTORS if row.bits > bits]
    left = [name for name in names if not name.startswith(tuple(families) or "-")]
    features = ",".join([f"+{x}" for x in left] + [f"-{x}" for x in names if x not in left])
    found = vectors_of(cpu.triple, left)
    return replace(cpu, features=features, vector_bits=found.bits, registers=found.registers)


def hold_to(bits: int) -> None:
    """Compile for this machine as if it had no wider vectors; before the compiler is imported, which asks once."""
    held = narrowed(spec.host_spec(), bits)
    spec.host_spec = lambda: held


def narrowed_host(bits: int) -> CpuSpec:
    """This machine, as if it had no vectors wider than this; as it is where it is no x86."""
    here = spec.host_spec()
    return narrowed(here, bits) if here.architecture == "x86_64" else here


def stages_of(graph: Graph, cpu: CpuSpec) -> Any:
    """The stages of compiling a graph for a CPU."""
    from hybridml_compiler import pipeline
    from hybridml_compiler.targets.cpu.target import Cpu

    return pipeline.Stages(graph, {}, graph.name, pipeline.Stats(), Cpu(cpu))


def modules_of(graph: Graph, cpu: CpuSpec) -> list[Module]:
    """The modules of a graph's program."""
    stages = stages_of(graph, cpu)
    found: list[Module] = stages.code.modules(stages.plan)
    return found


def objects_of(graph: Graph, cpu: CpuSpec) -> dict[str, bytes]:
    """The object code of a graph's program, by symbol."""
    stages = stages_of(graph, cpu)
    found: dict[str, bytes] = stages.code.objects(stages.plan)
    return found

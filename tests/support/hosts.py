"""Machines that this one is not: with narrower vectors (whose code runs here), and of another architecture."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hybridml_compiler import pipeline
from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.targets.cpu.llvm.modules import Module
from hybridml_compiler.targets.cpu.runtime.host import VECTORS, Host, vectors_of
from hybridml_compiler.targets.registry import find_target

NEON = vectors_of("aarch64", ["neon"])
AARCH64 = Host("generic", "+neon,+fp-armv8", NEON.bits, NEON.registers, "aarch64-unknown-linux-gnu", "")


def narrowed(host: Host, bits: int) -> Host:
    """The same machine, as if it had no vectors wider than this."""
    names = [name[1:] for name in host.features.split(",") if name.startswith("+")]
    families = [row.features[0][: len("avx512")] for row in VECTORS if row.bits > bits]
    left = [name for name in names if not name.startswith(tuple(families) or "-")]
    features = ",".join([f"+{x}" for x in left] + [f"-{x}" for x in names if x not in left])
    found = vectors_of(host.triple, left)
    return replace(host, features=features, vector_bits=found.bits, registers=found.registers)


def modules_of(graph: Graph) -> list[Module]:
    """The modules of a graph's program, for whichever machine this is made out to be."""
    stages: Any = pipeline.Stages(graph, {}, graph.name, pipeline.Stats(), find_target())
    found: list[Module] = stages.code.modules(stages.plan)
    return found

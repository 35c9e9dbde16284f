"""Code for machines that this one is not: narrower vectors run here, with the same bits; for NEON it is compiled."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from hybridml_compiler import pipeline
from hybridml_compiler.graph.ir import Graph, Node, apply, graph_of
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.targets.cpu.runtime import jit
from hybridml_compiler.targets.cpu.runtime.host import VECTORS, vectors_of
from hybridml_compiler.targets.cpu.runtime.linking import image
from tests.support import hosts

Build = Callable[..., Node]


def turned(x: Node) -> Node:
    return apply(OPS["permute_dims"], [x], {"axes": (1, 0)})


def softmax(x: Node) -> Node:
    e = make("exp", make("subtract", x, make("max", x, axis=1, keepdims=True)))
    return make("divide", e, make("sum", e, axis=1, keepdims=True))


def convolution(x: Node, w: Node) -> Node:
    same = ((1, 1), (1, 1))
    return make("convolution", x, w, stride=(1, 1), padding=same, dilation=(1, 1))


# What BLAS computes on one of the machines is left out: its bits are its own.
PROGRAMS: dict[str, tuple[Build, tuple[tuple[int, ...], ...]]] = {
    "product": (lambda x, y: make("matmul", x, y), ((130, 300), (300, 130))),
    "product of 16 rows, B packed": (lambda x, y: make("matmul", x, y), ((16, 600), (600, 1024))),
    "transposed B": (lambda x, y: make("matmul", x, turned(y)), ((65, 200), (150, 200))),
    "few rows": (lambda x, y: make("matmul", x, turned(y)), ((5, 203), (301, 203))),
    "one row": (lambda x, y: make("matmul", x, turned(y)), ((1, 512), (301, 512))),
    "convolution": (convolution, ((2, 14, 14, 1, 40), (3, 3, 1, 40, 50))),
    "elementwise": (lambda x, y: make("tanh", make("add", make("multiply", x, y), y)), ((70, 100), (100,))),
    "softmax": (softmax, ((33, 219),)),
    "sums of rows": (lambda x: make("sum", make("exp", x), axis=1, keepdims=False), ((33, 48),)),
    "sums of columns": (lambda x: make("sum", make("exp", x), axis=0, keepdims=False), ((333, 48),)),
    "largest": (lambda x: make("argmax", x, axis=1, keepdims=False), ((33, 219),)),
    "running sums": (lambda x: make("cumulative_sum", x, axis=1, reverse=False), ((33, 219),)),
}


def program(name: str) -> tuple[Graph, list[np.ndarray]]:
    build, shapes = PROGRAMS[name]
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype("f4") for shape in shapes]
    nodes = graph_of(arrays)
    return Graph(tuple(nodes), (build(*nodes),), name), arrays


@pytest.mark.parametrize("name", PROGRAMS)
def test_narrower_vectors_compute_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = jit.host()
    widths = [row.bits for row in VECTORS if row.architecture == "x86_64" and row.bits <= here.vector_bits]
    results = []
    for bits in widths:
        monkeypatch.setattr(jit, "host", lambda bits=bits: hosts.narrowed(here, bits))
        assert jit.host().vector_bits == bits
        graph, arrays = program(name)
        executable = pipeline.compile(graph)
        assert "hml_sgemm" not in executable.llvm
        results.append(executable(arrays)[0])
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_narrowed_code_has_no_wide_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    here = jit.host()
    if here.vector_bits < 512:
        return
    narrow = hosts.narrowed(here, 256)
    assert (narrow.vector_bits, narrow.registers) == (256, 16) and "+avx2" in narrow.features
    assert "-avx512f" in narrow.features and "+avx512" not in narrow.features
    target = llvm.Target.from_triple(narrow.triple)
    machine = target.create_target_machine(cpu=narrow.cpu, features=narrow.features, opt=jit.OPT)
    monkeypatch.setattr(jit, "host", lambda: narrow)
    text = "".join(assembly("product", machine))
    assert "ymm" in text and "zmm" not in text


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A target machine for NEON, and the compiler as it would be there."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    monkeypatch.setattr(jit, "host", lambda: hosts.AARCH64)
    cpu, features = hosts.AARCH64.cpu, hosts.AARCH64.features
    yield llvm.Target.from_triple(hosts.AARCH64.triple).create_target_machine(
        cpu=cpu, features=features, opt=jit.OPT, reloc="pic", codemodel="jitdefault", jit=True
    )


def assembly(name: str, machine: Any) -> list[str]:
    """Of every module of the program."""
    graph, _ = program(name)
    made = []
    for module in hosts.modules_of(graph):
        parsed = llvm.parse_assembly(module.emit(), llvm.create_context())
        parsed.triple, parsed.data_layout = machine.triple, str(machine.target_data)
        parsed.verify()
        assert len(machine.emit_object(parsed)) > 0
        made.append(machine.emit_assembly(parsed))
    return made


def loops(text: str) -> list[list[str]]:
    """Lines of innermost loops: from a label to a branch back to it, with no other label between."""
    found, start, label = [], 0, ""
    lines = text.splitlines()
    for k, line in enumerate(lines):
        if match := re.match(r"(\.L\w+):", line):
            start, label = k, match[1]
        elif label and re.match(rf"\s+(b|b\.\w+|cbn?z|tbn?z)\s.*{re.escape(label)}$", line):
            found.append(lines[start : k + 1])
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_compile_for_neon(name: str, arm: Any) -> None:
    text = "".join(assembly(name, arm))
    assert "\tfma\n" not in text and "fmaf" not in text, "fused multiply-add is an instruction"
    if "product" in name or "rows" in name or name == "transposed B":
        assert "fmla" in text


@pytest.mark.parametrize("name", ["product", "transposed B", "few rows", "one row", "convolution"])
def test_micro_kernels_for_neon_keep_their_sums_in_registers(name: str, arm: Any) -> None:
    multiplying = [body for text in assembly(name, arm) for body in loops(text) if "fmla" in "".join(body)]
    assert multiplying
    for body in multiplying:
        assert any(re.search(r"fmla\s+v\d+\.4s", line) for line in body)
        assert not any("[sp" in line for line in body), "\n".join(body)


def test_vectors_follow_from_the_architecture_and_its_features() -> None:
    assert vectors_of("x86_64-pc-windows-msvc", ["avx2", "fma", "avx512f"]).bits == 256
    assert vectors_of("arm64-apple-darwin22", ["neon", "fp16"]) is VECTORS[-1]
    assert vectors_of("aarch64-unknown-linux-gnu", ["neon"]) is VECTORS[-1]
    assert vectors_of("x86_64-unknown-linux-gnu", ["avx2"]).registers == 0
    assert vectors_of("riscv64-unknown-linux-gnu", []).registers == 0


def test_only_x86_code_is_linked_by_us() -> None:
    assert not image.SUPPORTED or jit.host().triple.startswith("x86_64")

"""Code for CPUs that this one is not: narrower vectors run here, with the same bits; for others there are objects."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
import pytest

from hybridml_compiler import pipeline
from hybridml_compiler.errors import ArgumentError, CompileError
from hybridml_compiler.graph.ir import Graph, Node, apply, graph_of
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import replace
from hybridml_compiler.targets.cpu.runtime import threads
from hybridml_compiler.targets.cpu.runtime.linking import image
from hybridml_compiler.targets.cpu.spec import VECTORS, CpuSpec, host_spec, spec_of, vectors_of
from hybridml_compiler.targets.cpu.target import Cpu
from tests.support import cpus

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
def test_narrower_vectors_compute_the_same_bits(name: str) -> None:
    here = host_spec()
    widths = [row.bits for row in VECTORS if row.architecture == "x86_64" and row.bits <= here.vector_bits]
    results = []
    for bits in widths:
        cpu = cpus.narrowed(here, bits)
        assert cpu.vector_bits == bits
        graph, arrays = program(name)
        executable = pipeline.compile(graph, target=Cpu(cpu))
        assert "hml_sgemm" not in executable.llvm
        results.append(executable(arrays)[0])
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_narrowed_code_has_no_wide_registers() -> None:
    narrow = cpus.narrowed(cpus.AVX512, 256)
    assert (narrow.vector_bits, narrow.registers) == (256, 16) and "+avx2" in narrow.features
    assert "-avx512f" in narrow.features and "+avx512" not in narrow.features
    text = "".join(assembly(program("product")[0], narrow))
    assert "ymm" in text and "zmm" not in text


def assembly(graph: Graph, cpu: CpuSpec) -> list[str]:
    """Assembly of every module of the program."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    made = []
    for module in cpus.modules_of(graph, cpu):
        target = llvm.Target.from_triple(cpu.triple)
        machine = target.create_target_machine(cpu.name, cpu.features, module.opt, "pic", "small")
        parsed = llvm.parse_assembly(module.emit(), llvm.create_context())
        parsed.triple, parsed.data_layout = cpu.triple, str(machine.target_data)
        parsed.verify()
        made.append(machine.emit_assembly(parsed))
    return made


def everything() -> tuple[Graph, list[np.ndarray]]:
    """A program with loop nests, reductions, a product and a convolution."""
    rng = np.random.default_rng(1)
    shapes = ((2, 14, 14, 1, 40), (3, 3, 1, 40, 50), (70, 130), (130, 300))
    arrays = [rng.normal(size=shape).astype("f4") for shape in shapes]
    x, w, a, b = nodes = graph_of(arrays)
    return Graph(tuple(nodes), (convolution(x, w), softmax(make("tanh", make("matmul", a, b)))), "everything"), arrays


# ELF's number of the machine, what its widest registers are called in assembly, and what wider ones are.
REGISTERS = {
    "SSE": (cpus.SSE, 62, r"%xmm\d", r"%[yz]mm\d"),
    "AVX2": (cpus.AVX2, 62, r"%ymm\d", r"%zmm\d"),
    "AVX-512": (cpus.AVX512, 62, r"%zmm\d", r"\tbl\t"),
    "NEON": (cpus.NEON, 183, r"v\d+\.4s", r"mm\d|z\d+\.s"),
}


def test_one_process_compiles_for_several_cpus() -> None:
    graph, arrays = everything()
    before = [result.tobytes() for result in pipeline.compile(graph)(arrays)]
    for cpu, number, widest, wider in REGISTERS.values():
        objects = cpus.objects_of(graph, cpu)
        assert "step" in objects and len(objects) > 2
        for data in objects.values():
            assert data[:4] == b"\x7fELF" and struct.unpack_from("<H", data, 18) == (number,)
        text = "".join(assembly(graph, cpu))
        assert re.search(widest, text) and not re.search(wider, text)
        if cpu.registers and not cpu.obstacle_on(host_spec()):  # without registers BLAS adds up in an order of its own
            assert [result.tobytes() for result in pipeline.compile(graph, target=Cpu(cpu))(arrays)] == before
    assert cpus.objects_of(graph, cpus.AVX2) != cpus.objects_of(graph, cpus.AVX512)
    assert cpus.objects_of(graph, cpus.AVX2) == cpus.objects_of(graph, cpus.AVX2)
    assert [result.tobytes() for result in pipeline.compile(graph)(arrays)] == before


def test_code_for_another_cpu_is_not_loaded() -> None:
    graph, _ = program("elementwise")
    there = next(cpu for cpu in (cpus.NEON, cpus.AVX512) if cpu.architecture != host_spec().architecture)
    said = f"cannot be loaded here: it is for {there.triple}, the CPU is {host_spec().triple}"
    with pytest.raises(CompileError, match=said) as error:
        pipeline.compile(graph, target=Cpu(there))
    assert "Code.objects" in str(error.value)


def test_what_keeps_code_from_running_on_a_cpu() -> None:
    here = host_spec()
    assert here.obstacle_on(here) == cpus.narrowed_host(256).obstacle_on(here) == ""
    assert cpus.AVX2.obstacle_on(cpus.AVX512) == cpus.SSE.obstacle_on(cpus.AVX512) == ""
    assert cpus.AVX512.obstacle_on(cpus.AVX2).startswith("it uses avx512bw, avx512cd")
    assert cpus.NEON.obstacle_on(cpus.AVX2) == f"it is for {cpus.NEON.triple}, the CPU is {cpus.AVX2.triple}"
    assert replace(cpus.AVX2, name="znver4").obstacle_on(cpus.AVX2) == "it is for znver4, the CPU is generic"


def test_keys_tell_cpus_apart() -> None:
    every = [cpus.SSE, cpus.AVX2, cpus.AVX512, cpus.NEON, replace(cpus.AVX2, name="znver4")]
    assert len({cpu.code_key for cpu in every}) == len({Cpu(cpu).key for cpu in every}) == len(every)
    assert spec_of("aarch64-linux", ["neon", "fp-armv8"]) == spec_of("aarch64-linux", {"fp-armv8", "neon"})
    for other in (replace(cpus.AVX2, cores=64), replace(cpus.AVX2, blas=True)):
        assert other.code_key == cpus.AVX2.code_key and Cpu(other).key != Cpu(cpus.AVX2).key


@pytest.mark.parametrize("bits", [512, 256, 128])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [(1, 7, 9), (3, 5, 4), (64, 64, 64), (130, 300, 70), (1, 512, 301), (200, 96, 1)])
def test_products_without_a_blas(size: tuple[int, int, int], dtype: str, bits: int) -> None:
    """All of them are computed by our own kernels or by loop nests; sums of small integers are exact."""
    m, k, n = size
    rng = np.random.default_rng(2)
    arrays = [rng.integers(-4, 5, shape).astype(dtype) for shape in ((m, k), (k, n), (k, m), (n, k))]
    a, b, c, d = nodes = graph_of(arrays)
    pairs = [(a, b), (turned(c), b), (a, turned(d)), (turned(c), turned(d))]
    graph = Graph(tuple(nodes), tuple(make("matmul", *pair) for pair in pairs), "products")
    executable = pipeline.compile(graph, target=Cpu(replace(cpus.narrowed_host(bits), blas=False)))
    assert "hml_sgemm" not in executable.llvm and "hml_dgemm" not in executable.llvm
    w, x, y, z = arrays
    for found, expected in zip(executable(arrays), (w @ x, y.T @ x, w @ z.T, y.T @ z.T), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_objects_import_a_blas_that_the_cpu_has() -> None:
    nodes = graph_of([np.ones((64, 64)), np.ones((64, 64))])
    graph = Graph(tuple(nodes), (make("matmul", *nodes),), "product")
    for blas in (True, False):
        texts = [module.emit() for module in cpus.modules_of(graph, replace(cpus.AVX2, blas=blas))]
        assert any("hml_dgemm" in text for text in texts) == blas


def test_the_number_of_threads_is_no_part_of_a_cpu() -> None:
    """Code that is linked follows `set_num_threads`."""
    before, key = threads.get_num_threads(), Cpu(host_spec()).key
    try:
        threads.set_num_threads(3)
        assert Cpu(host_spec()).key == key
    finally:
        threads.set_num_threads(before)


@pytest.mark.parametrize(("cpu", "whole"), [(cpus.AVX2, True), (cpus.NEON, True), (cpus.AVX512, False)])
@pytest.mark.parametrize("dtype", ["f4", "?"])
def test_only_the_last_vector_has_a_mask_where_masks_are_slow(cpu: CpuSpec, whole: bool, dtype: str) -> None:
    """AVX2 stores through a mask in 4 ns, and has none for bytes."""
    nodes = graph_of([np.zeros(10007, dtype)] * 2)
    graph = Graph(tuple(nodes), (make("maximum" if dtype == "f4" else "logical_and", *nodes),))
    text = "".join(str(module.emit()) for module in cpus.modules_of(graph, cpu))
    assert "llvm.masked.store" in text
    assert bool(re.search(r"store <\d+ x \w+> %", text)) is whole


@pytest.mark.parametrize(("cpu", "whole"), [(cpus.AVX2, True), (cpus.NEON, True), (cpus.AVX512, False)])
@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_only_the_last_vector_of_a_sum_has_a_mask_where_masks_are_slow(cpu: CpuSpec, whole: bool, dtype: str) -> None:
    nodes = graph_of([np.zeros((3, 1001), dtype)])
    graph = Graph(tuple(nodes), (make("sum", *nodes, axis=1),))
    text = "".join(str(module.emit()) for module in cpus.modules_of(graph, cpu))
    assert "llvm.masked.load" in text
    assert bool(re.search(r"load <\d+ x float>", text)) is whole


@pytest.mark.parametrize("cores", [0, -1, 1 << 20])
def test_a_cpu_has_cores(cores: int) -> None:
    with pytest.raises(ArgumentError, match=rf"1 to 512 cores, got {cores}"):
        spec_of("x86_64-unknown-linux-gnu", cores=cores)


def test_a_platform_that_llvm_does_not_know() -> None:
    graph, _ = program("elementwise")
    with pytest.raises(CompileError, match="LLVM compiles nothing for 'abacus-unknown-none'"):
        cpus.objects_of(graph, spec_of("abacus-unknown-none"))


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
def test_programs_compile_for_neon(name: str) -> None:
    text = "".join(assembly(program(name)[0], cpus.NEON))
    assert "\tfma\n" not in text and "fmaf" not in text, "fused multiply-add is an instruction"
    if "product" in name or "rows" in name or name == "transposed B":
        assert "fmla" in text


@pytest.mark.parametrize("name", ["product", "transposed B", "few rows", "one row", "convolution"])
def test_micro_kernels_for_neon_keep_their_sums_in_registers(name: str) -> None:
    texts = assembly(program(name)[0], cpus.NEON)
    multiplying = [body for text in texts for body in loops(text) if "fmla" in "".join(body)]
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
    assert not image.SUPPORTED or host_spec().architecture == "x86_64"

"""Plans reuse what earlier plans made: only what differs is lowered and compiled, to the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler import pipeline
from hybridml_compiler.aval import Aval
from hybridml_compiler.graph.ir import Graph, Node, graph_of, input_node
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.schedule.kept import _MOST, Kept, Reuse
from hybridml_compiler.schedule.plan import make_plan
from hybridml_compiler.sizes.dims import symbol
from hybridml_compiler.sizes.guards import Guards, collecting, structural
from hybridml_compiler.targets.cpu.capabilities import capabilities
from hybridml_compiler.targets.cpu.spec import host_spec
from hybridml_compiler.targets.cpu.target import Cpu


def layers(*functions: str) -> tuple[Graph, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((16, 16), np.float32) for _ in range(len(functions) + 1)]
    inputs = graph_of(arrays)
    value: Node = inputs[0]
    for function, weight in zip(functions, inputs[1:], strict=True):
        value = make(function, make("matmul", value, weight))
    return Graph(tuple(inputs), (value,)), arrays


def test_a_plan_after_an_edit_lowers_what_differs() -> None:
    target, counts = capabilities(host_spec()), []
    for functions in (("tanh", "exp", "tanh"), ("tanh", "tanh", "tanh"), ("tanh", "cos", "tanh")):
        reuse = Reuse()
        make_plan(layers(*functions)[0], {}, target, reuse=reuse)
        counts.append((reuse.groups, reuse.lowered))
    assert counts == [(3, 3), (3, 0), (3, 1)]  # the result of the last layer is an output


def test_the_code_of_an_edited_program_is_that_of_a_first_one() -> None:
    """A plan is the same whatever was planned before it."""
    old, new = Cpu(host_spec()), Cpu(host_spec())
    pipeline.compile(layers("tanh", "exp", "tanh")[0], target=old)
    graph, arrays = layers("tanh", "log1p", "tanh")
    edited, first = (pipeline.Stages(graph, {}, "f", pipeline.Stats(), target) for target in (old, new))
    assert edited.llvm == first.llvm
    assert edited.stats.reuse == Reuse(3, 1) and first.stats.reuse == Reuse(3, 3)
    results = [pipeline.compile(graph, target=target)(arrays)[0].tobytes() for target in (old, new)]
    assert results[0] == results[1]


def test_a_program_says_what_was_known(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [hm.full((24, 24), 0.01 * k) for k in range(3)]

    def step(activation: object) -> hm.TracedFunction:
        functions = [hm.tanh, activation, hm.tanh]

        @hm.trace
        def program(x: hm.Tensor) -> hm.Tensor:
            for weight, function in zip(weights, functions, strict=True):
                x = function(x @ weight)
            return x

        return program

    x = hm.ones((24, 24))
    step(hm.sinh)(x)
    edited = step(hm.cosh)
    edited(x)
    (said,) = edited.explain().reused
    assert "1 of 3 groups of operations were lowered" in said, said
    assert "of 2 kernels were in the cache" in said
    again = step(hm.cosh)
    again(x)
    assert again.explain().reused == ("the whole program was in the cache",)
    assert "how it was compiled\n  the whole program was in the cache" in str(again.explain())


def test_nothing_of_sizes_that_come_with_the_call_is_kept() -> None:
    """A decision by a size at hand is a condition of one program, which another one has to note for itself."""
    target, rows = capabilities(host_spec()), symbol("n", 6)
    x = input_node(Aval((rows, 32), np.dtype("f4")), "x")
    with collecting(Guards()), structural():
        make_plan(Graph((x,), (make("sum", make("exp", x), axis=(1,)),)), {}, target)
    assert not target.kept.groups


def test_what_is_kept_is_bounded() -> None:
    kept = Kept()
    kept.groups.update(dict.fromkeys(range(_MOST + 1)))
    kept.specs["k"] = make_plan(layers("exp")[0], {}, capabilities(host_spec())).launches[0].spec
    assert kept.trimmed() is kept and not kept.groups and not kept.specs

"""The target that docs/adding_a_target.md writes: every row of the operation table on it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import CompileError
from hybridml_compiler.graph.ir import Graph, apply, input_node
from hybridml_compiler.loops.ir import Kernel
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.pipeline import compile
from hybridml_compiler.schedule.kernels.library import Capabilities
from hybridml_compiler.targets.device import download
from hybridml_compiler.targets.registry import find_target
from tests.support.cases import case
from tests.support.closeness import assert_close
from tests.support.on_devices import results

PAGE = Path(__file__).parent.parent.parent / "docs" / "adding_a_target.md"


@pytest.fixture
def toy(own_devices: None) -> str:
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    assert code.count("\n") < 400
    names: dict[str, Any] = {}
    exec(code, names)
    return str(names["TOY"].name)


@pytest.mark.parametrize("most", [1, pytest.param(99, marks=pytest.mark.slow)])
def test_every_row(toy: str, most: int) -> None:
    for op in OPS.values():
        samples = itertools.islice(op.samples(np.random.default_rng(0)), most if op.inputs else 0)
        for k, sample in enumerate(samples):
            with case(f"{op.name}, sample {k}"):
                here, there = (results(op, sample, device, grad=False) for device in ("cpu", toy))
                for a, b in zip(here, there, strict=True):
                    assert a.shape == b.shape and a.dtype == b.dtype
                    assert_close(b, a)


@pytest.mark.parametrize("runs_control", [True, False])
def test_control_flow(toy: str, runs_control: bool) -> None:
    """Loops and choices are calls of NumPy where a target does not say that it runs them."""
    vars(find_target(toy))["capabilities"] = Capabilities(runs_control=runs_control)

    def program(x: hm.Tensor) -> Any:
        total, ys = hm.scan(lambda c, row: (c + row, c * row), x[0] * 0, x)
        grown = hm.while_loop(lambda t: (t < 9).all(), lambda t: t * 2, x + 1, max_steps=5)
        return total, ys, grown, hm.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, x)

    x = hm.arange(6.0).reshape(3, 2)
    traced, there = hm.trace(program), x.to(toy)
    for a, b in zip(program(x), traced(there), strict=True):
        assert b.device == toy and a.tolist() == b.tolist()
    assert "graph body0(" in traced.ir and traced.cache_info().compiles == 1
    assert ("NumPy's loop" in traced.llvm) != runs_control


def test_transfers_in_a_body_of_a_body(toy: str) -> None:
    """A body is a graph without them, as all of a program is, wherever its own values are."""

    def step(c: hm.Tensor, row: hm.Tensor) -> Any:
        return hm.cond(row.sum() > 0, lambda: (c.to(toy) * row.to(toy)).cpu(), lambda: c - 1), row

    def program(x: hm.Tensor) -> hm.Tensor:
        return hm.scan(step, x[0], x)[0].to(toy)

    x = hm.arange(6.0).reshape(3, 2) - 2
    run = hm.trace(program)
    eager, traced = program(x), run(x)
    assert eager.device == traced.device == toy and eager.tolist() == traced.tolist()
    assert "transfer(" not in run.llvm


def test_sizes_that_come_with_the_call(toy: str) -> None:
    """There is a program for each."""
    f = hm.trace(lambda x: hm.exp(x).sum(0) + x.shape[0])
    for n in (3, 4, 5, 4):
        assert_close(f(hm.ones((n, 2)).to(toy)).cpu().numpy(), np.full(2, n * np.e + n, "f4"))
    assert f.cache_info().compiles == 3


@pytest.mark.usefixtures("source_lines")
def test_errors_name_the_line_of_the_user(toy: str) -> None:
    """The frames of a target that is not ours are not the user's."""

    @hm.trace
    def chosen(x: hm.Tensor, k: hm.Tensor) -> hm.Tensor:
        y = x * 2
        return y[k]  # here

    @hm.trace
    def inverse(x: hm.Tensor) -> hm.Tensor:
        y = x * 2
        return hm.linalg.inv(y)  # here

    x, k = hm.zeros((2, 2)).to(toy), hm.tensor([7]).to(toy)
    for error, call in (
        (IndexError, lambda: chosen(x, k)),
        (IndexError, lambda: x[k]),  # here
        (np.linalg.LinAlgError, lambda: inverse(x)),
        (np.linalg.LinAlgError, lambda: hm.linalg.inv(x)),  # here
    ):
        with pytest.raises(error, match=r"test_toy\.py:\d+: .*  # here$"):
            call()


def test_equal_kernels_of_programs_are_compiled_once(toy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Kernel] = []
    monkeypatch.setattr(find_target(toy), "compile", lambda kernel: compiled.append(kernel) or kernel)
    for _ in range(2):
        hm.trace(lambda x, y: (hm.exp(x) * 2, y.sum()))(hm.ones(6).to(toy), hm.zeros(6).to(toy))
    assert len(compiled) == 2


def test_arrays_that_a_program_does_not_take(toy: str) -> None:
    graph = Graph((x := input_node(Aval((3,), np.dtype("f4"))),), (apply(OPS["exp"], [x]),), "grown")
    exe, there = compile(graph, target=find_target(toy)), hm.ones(3).to(toy)._array
    assert_close(download(exe([there])[0]), np.exp(np.ones(3, "f4")))
    for wrong in ([], [there, there], [hm.ones(4).to(toy)._array], [hm.ones(3).to("reference")._array]):
        with pytest.raises(CompileError, match=r"grown: takes \['f32\[3\]'\] on toy, got"):
            exe(wrong)

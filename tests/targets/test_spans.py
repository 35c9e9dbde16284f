"""Programs with a step that reads the clock: the same results, and a record of every launch."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import pytest

import hybridml  # noqa: F401  (gives the rows their functions)
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.pipeline import compile
from hybridml_compiler.targets.cpu.program import STEP
from hybridml_compiler.targets.cpu.runtime.spans import CAPACITY, COUNT, Recorder, clock

pytestmark = pytest.mark.skipif(clock() is None, reason="a system without clock_gettime")


def graph(size: int) -> ir.Graph:
    x, w = ir.graph_of([np.zeros((size, 256), np.float32), np.zeros((256, 256), np.float32)])
    product = ir.apply(OPS["matmul"], [x, w])
    total = ir.apply(OPS["sum"], [ir.apply(OPS["exp"], [product])], {"axis": 0})
    return ir.Graph((x, w), (product, total, x), "example")


@pytest.fixture
def program():  # type: ignore[no-untyped-def]
    executable = compile(graph(512))
    library, recorder = executable.stages.code.timed(executable.stages.plan)
    yield executable, library.address(STEP), recorder
    del library  # its code lives as long as it does


def test_results_are_bit_equal_and_every_launch_has_a_record(program) -> None:  # type: ignore[no-untyped-def]
    executable, step, recorder = program
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(aval.shape, np.float32) for aval in executable.inputs]
    plain = executable(arrays)
    executable.step = step
    begin = time.perf_counter_ns()
    timed = executable(arrays)
    end = time.perf_counter_ns()
    for a, b in zip(plain, timed, strict=True):
        assert a.tobytes() == b.tobytes()
    spans = recorder.take()
    launches = [span for span in spans if not span.part]
    assert [span.launch for span in launches] == list(range(len(executable.launches)))
    assert {span.thread for span in launches} == {threading.get_ident()}
    assert all(begin <= span.start <= span.end <= end for span in spans)
    assert all(a.end <= b.start for a, b in itertools.pairwise(launches))
    for part in (span for span in spans if span.part):  # what a thread does of a launch is within the launch
        whole = launches[part.launch]
        assert whole.start <= part.start <= part.end <= whole.end
    assert recorder.take() == []


def test_records_that_do_not_fit_are_counted(program) -> None:  # type: ignore[no-untyped-def]
    executable, step, recorder = program
    arrays = [np.zeros(aval.shape, np.float32) for aval in executable.inputs]
    recorder.words[COUNT] = CAPACITY - 1
    executable.step = step
    executable(arrays)
    assert recorder.lost > 0
    assert len(recorder.take()) == CAPACITY


def test_an_empty_recorder() -> None:
    recorder = Recorder()
    assert recorder.take() == []
    assert recorder.lost == 0


def test_a_plan_knows_its_memory() -> None:
    executable = compile(graph(64))
    plan = executable.stages.plan
    for buffer in plan.buffers:
        assert 0 <= buffer.first <= buffer.last <= len(plan.launches)
        assert 0 <= buffer.offset <= buffer.offset + buffer.nbytes <= plan.arena_bytes
    for a in plan.buffers:  # those that are alive at once do not overlap
        for b in plan.buffers:
            if a is not b and a.first <= b.last and b.first <= a.last:
                assert a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
    operations = {node.op.name for launch in plan.launches for node in launch.nodes}
    assert operations >= {"matmul", "exp", "sum"}

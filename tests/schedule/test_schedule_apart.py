"""Loops whose threads take all steps for rows of their own: which, and that their results are what they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler import pipeline
from hybridml_compiler.record import replace
from hybridml_compiler.schedule.control import Loop
from hybridml_compiler.targets.cpu import target
from hybridml_compiler.targets.cpu.runtime import threads
from hybridml_compiler.targets.cpu.spec import host_spec
from hybridml_compiler.targets.cpu.target import Cpu

N, WIDTH, STEPS = 64, 128, 7
Body = Callable[[Any, Any], Any]


def _rows(h: hm.Tensor, x: hm.Tensor) -> Any:
    h = hm.tanh(x + h @ _WEIGHT.mT)
    return h, h


def _states(h: hm.Tensor, x: hm.Tensor) -> Any:
    y = hm.sigmoid(h @ _WEIGHT) * x
    return h + y, (h, hm.nn.functional.softmax(y, -1))


def _before(h: hm.Tensor, x: hm.Tensor) -> Any:
    return hm.tanh(x + h @ _WEIGHT), h


def _mixed(h: hm.Tensor, x: hm.Tensor) -> Any:
    h = hm.tanh(x + h @ _WEIGHT)
    return h - h.mean(axis=0), h


def _turned(h: hm.Tensor, x: hm.Tensor) -> Any:
    return hm.flip(hm.tanh(x + h @ _WEIGHT), axis=0), h


_WEIGHT = hm.tensor(np.random.default_rng(0).standard_normal((WIDTH, WIDTH), np.float32) / 16)


def _loops(
    body: Body, monkeypatch: pytest.MonkeyPatch, n: int = N, cores: int = 2
) -> tuple[list[Loop], list[np.ndarray]]:
    """The loops that a traced scan is, planned for so many cores, and its results."""
    monkeypatch.setattr(target, "TARGET", Cpu(replace(host_spec(), cores=cores)))
    found: list[Loop] = []
    compile = pipeline.compile

    def spy(*args: Any, **kwargs: Any) -> Any:
        made = compile(*args, **kwargs)
        found.extend(launch.spec for launch in made.launches if isinstance(launch.spec, Loop))
        return made

    monkeypatch.setattr(pipeline, "compile", spy)
    rng = np.random.default_rng(1)
    h, x = (hm.tensor(rng.standard_normal(shape, np.float32)) for shape in ((n, WIDTH), (STEPS, n, WIDTH)))
    results = hm.trace(lambda h, x: hm.scan(body, h, x))(h, x)
    expected = hm.scan(body, h, x)
    flat, wanted = hm.tree_leaves(results), hm.tree_leaves(expected)
    for result, other in zip(flat, wanted, strict=True):
        np.testing.assert_allclose(result.numpy(), other.numpy(), rtol=2e-5, atol=2e-6)
    return found, [result.numpy() for result in flat]


@pytest.mark.parametrize(("body", "slots"), [(_rows, 2), (_states, 2), (_before, 2), (_mixed, 1), (_turned, 1)])
def test_a_loop_is_cut_where_no_step_reads_rows_of_another_thread(
    body: Body, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (loop,), _ = _loops(body, monkeypatch)
    assert loop.slots == slots


@pytest.mark.parametrize("n", [2, 31, 33])
def test_few_rows_and_odd_numbers_of_them_are_not_cut(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (loop,), _ = _loops(_rows, monkeypatch, n)
    assert loop.slots == 1


@pytest.mark.parametrize("body", [_rows, _states])
def test_its_bits_depend_neither_on_threads_nor_on_cores(body: Body, monkeypatch: pytest.MonkeyPatch) -> None:
    before, found = threads.get_num_threads(), [_loops(body, monkeypatch, cores=1)[1]]
    try:
        for count in (1, 2, 3):
            threads.set_num_threads(count)
            found.append(_loops(body, monkeypatch)[1])
    finally:
        threads.set_num_threads(before)
    for results in found[1:]:
        for result, other in zip(results, found[0], strict=True):
            np.testing.assert_array_equal(result, other)

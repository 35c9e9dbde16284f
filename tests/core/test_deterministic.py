"""`hm.use_deterministic`: what ran before does not matter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hybridml as hm
from hybridml.core.library import compiled
from hybridml.tracing import library_function
from hybridml_compiler.eager import large
from hybridml_compiler.targets.cpu.eager import products


def bits(fn: Callable[..., hm.Tensor], *args: hm.Tensor) -> bytes:
    return np.asarray(fn(*args)).tobytes()


def test_shapes_beyond_the_limit_are_compiled(deterministic: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "MOST", 0)
    monkeypatch.setattr(large, "MOST", 0)
    x = hm.random.normal((301, 257))
    w = hm.random.normal((257, 203))
    assert bits(lambda x, w: x @ w, x, w) == bits(hm.trace(lambda x, w: x @ w), x, w)
    assert bits(lambda x: hm.sum(x, axis=1), x) == bits(hm.trace(lambda x: hm.sum(x, axis=1)), x)


def test_composites_have_no_limit(deterministic: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_function, "MOST", 1)
    softmax = compiled(lambda x: hm.functional.softmax(x, 0))
    for rows in (200, 201, 202):
        x = hm.random.normal((rows, 257))
        assert bits(softmax, x) == bits(hm.trace(lambda x: hm.functional.softmax(x, 0)), x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_do_not_depend_on_threads(dtype: str) -> None:
    x = hm.random.normal((129, 513)).astype(dtype)
    programs = [lambda x: x @ x.mT, lambda x: x.sum(), lambda x: hm.functional.softmax(x, -1), lambda x: x.mT.mean(1)]
    threads = hm.get_num_threads()
    try:
        for fn in programs:
            traced, found = hm.trace(fn), set()
            for count in (1, 2, 1):
                hm.set_num_threads(count)
                found |= {bits(traced, x)}
            assert len(found) == 1
    finally:
        hm.set_num_threads(threads)


def test_the_mode_is_true_or_false() -> None:
    with pytest.raises(TypeError, match="takes True or False, got 1"):
        hm.use_deterministic(1)  # type: ignore[arg-type]
    assert not hm.is_deterministic()

"""What docs/accuracy.json says of the rows still holds: the first of its points are measured again."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hybridml_compiler.ops.elementwise import elementwise
from hybridml_compiler.ops.table import OPS
from tests.support.accuracy import (
    ELEMENTWISE,
    FILE,
    HALF,
    MANY,
    float32_error,
    float64_error,
    gives_floats,
    is_exact,
    many_error,
    measured,
    rows,
)

PUBLISHED = json.loads(FILE.read_text("utf-8"))
BOUNDS = {"float32": 2.0, "float64": 4.5}  # of what has no terms that cancel, and no iteration
# Incomplete functions have in front of them a power that is as inexact as its exponent is large; products add up.
BEYOND = {"betainc", "gammainc", "gammaincc", "zeta", "prod", "cumulative_prod"}


def test_every_row_of_floats_has_a_figure_or_a_reason() -> None:
    assert PUBLISHED.keys() == {op.name for op in rows()}, "run `make accuracy` and `make docs`"


def test_a_row_without_a_reference_is_measured_at_its_samples() -> None:
    third = elementwise(
        "third",
        lambda x: x / 3,
        (None,),
        "x / 3.",
        accepts="float",
        lower=lambda s, x: s.div(x, s.const(3, s.dtype(x))),
    )
    assert gives_floats(third) and not gives_floats(OPS["isnan"])
    assert measured(third) == {"float32": 0.5}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_rows_keep_their_figures(name: str) -> None:
    found = {"float32": float32_error(OPS[name], 2000), "float64": float64_error(OPS[name], 25)}
    for dtype, value in found.items():
        assert value <= PUBLISHED[name][dtype] + 1e-4, f"{name} of {dtype} is {value:.3f} ulp off"


@pytest.mark.parametrize("name", MANY)
def test_rows_of_many_terms_keep_their_figures(name: str) -> None:
    for dtype, short in (("float32", "f4"), ("float64", "f8")):
        # another machine adds products in another order, in narrower vectors
        allowed = PUBLISHED[name][dtype] + 2e-4 if name not in ("matmul", "convolution", "fft_c2c") else 8.0
        assert many_error(OPS[name], short) <= allowed


def test_what_is_published_is_small() -> None:
    for name, found in PUBLISHED.items():
        for dtype, bound in BOUNDS.items():
            assert name in BEYOND or "terms" in found or found.get(dtype, 0) <= bound, f"{name}, {dtype}"


@pytest.mark.parametrize("name", [op.name for op in rows() if is_exact(op) and op.name != "nextafter"])
def test_rows_that_do_not_round(name: str) -> None:
    """What they give for float32 is what they give for the same numbers as float64."""
    op = OPS[name]
    for sample in op.samples(np.random.default_rng(1)):
        arrays = list(sample.args[0]) if op.variadic else list(sample.args)
        if "dtype" in sample.params or not any(a.dtype.kind == "f" for a in arrays):
            continue
        results = []
        for narrow in (np.float32, np.float64):
            given = [a.astype("f4").astype(narrow) if a.dtype.kind == "f" else a for a in arrays]
            with np.errstate(all="ignore"):
                found = op.on_arrays(given, **sample.params) if op.variadic else op.on_arrays(*given, **sample.params)
            results.append(found if op.results else (found,))
        for short, long in zip(*results, strict=True):
            np.testing.assert_array_equal(short.astype(long.dtype), long)


def test_halves_are_exactly_rounded() -> None:
    assert {name for name in HALF if PUBLISHED[name]["float32"] == 0.5} == HALF
    x = np.random.default_rng(2).uniform(-3, 3, 1000)
    np.testing.assert_array_equal(OPS["astype"].on_arrays(x, dtype=np.dtype("f4")), x.astype("f4"))

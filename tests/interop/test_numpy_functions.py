"""Every NumPy function that takes tensors gives what it gives for arrays: eagerly, traced, and its derivative."""

from __future__ import annotations

import numpy as np
import pytest

from hybridml.interop.numpy import table
from tests.support import numpy_page
from tests.support.examples import every
from tests.support.numpy_calls import CALLED, check_call, check_slope, check_traced_gradient, has_derivative, not_taken
from tests.support.numpy_samples import Sample
from tests.support.overridable import OVERRIDABLE_FUNCTIONS

FIRST = {table.public(sample.func): sample for sample in reversed(CALLED)}  # of each function


@pytest.mark.parametrize("sample", CALLED, ids=str)
def test_a_function_gives_for_tensors_what_it_gives_for_arrays(sample: Sample) -> None:
    check_call(sample, "llvm" if FIRST[table.public(sample.func)] is sample else "interpret")


DIFFERENTIABLE = [s for s in CALLED if has_derivative(s)]


@pytest.mark.parametrize("sample", every(2, DIFFERENTIABLE), ids=str)
def test_a_gradient_is_the_slope_of_numpys_function(sample: Sample) -> None:
    check_slope(sample)


@pytest.mark.slow
@pytest.mark.parametrize("sample", DIFFERENTIABLE, ids=str)
def test_a_traced_gradient_is_the_eager_one(sample: Sample) -> None:
    check_traced_gradient(sample)


def test_rows_take_all_of_numpys_parameters() -> None:
    rows = [f for f in OVERRIDABLE_FUNCTIONS if table.target_of(f)]
    assert len(rows) > 300 and not {table.name_of(f): missing for f in rows if (missing := not_taken(f))}


def test_the_page_is_up_to_date() -> None:
    """Of one NumPy to the letter; a newer one runs all that the page lists, an older one nothing else."""
    here, of_the_page = ([*map(int, v.split(".")[:2])] for v in (np.__version__, numpy_page.written_with()))
    run = {f"{space}.{name}" for space, found in numpy_page.names().items() for name in found}
    if here >= of_the_page:
        assert not numpy_page.listed() - run
    if here <= of_the_page:
        assert not run - numpy_page.listed()
    if here == of_the_page:
        assert numpy_page.PAGE.read_text("utf-8") == numpy_page.page(), "run `python -m tests.support.numpy_page`"


def test_every_function_that_numpy_lets_others_implement_is_called_or_refused() -> None:
    assert not numpy_page.not_called() - numpy_page.CALLED_ELSEWHERE
    assert not [name for name, why in numpy_page.refused() if "no counterpart" in why]

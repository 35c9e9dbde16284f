"""Arguments by position, as NumPy's signatures have them: one call runs with NumPy, eagerly and traced, with equal
results.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm

X = np.array([[3.0, -1.0, 2.0, 5.0], [0.0, 4.0, -2.0, 1.0]])
INTEGERS = np.array([1, 0])

# Each takes the namespace, the matrix and the integers of its dtype and place.
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "all": lambda xp, x, i: xp.all(x, 0),
    "amax": lambda xp, x, i: xp.amax(x, 1),
    "any": lambda xp, x, i: xp.any(x, 0),
    "append": lambda xp, x, i: xp.append(x, x, 0),
    "arange": lambda xp, x, i: xp.arange(1, 9, 2, xp.float32),
    "argmax": lambda xp, x, i: xp.argmax(x, 0),
    "argmin": lambda xp, x, i: xp.argmin(x, 1),
    "argsort": lambda xp, x, i: xp.argsort(x, 0),
    "array_split": lambda xp, x, i: xp.array_split(x, 3, 1),
    "asarray": lambda xp, x, i: xp.asarray([1, 2], xp.float32),
    "average": lambda xp, x, i: xp.average(x, 0, xp.asarray([1.0, 3.0])),
    "broadcast_to": lambda xp, x, i: xp.broadcast_to(x, (3, 2, 4)),
    "clip": lambda xp, x, i: xp.clip(x, 0, 1),
    "concatenate": lambda xp, x, i: xp.concatenate([x, x], 1),
    "corrcoef": lambda xp, x, i: xp.corrcoef(x, None, False),
    "count_nonzero": lambda xp, x, i: xp.count_nonzero(x, 1),
    "cov": lambda xp, x, i: xp.cov(x, None, False),
    "cumprod": lambda xp, x, i: xp.cumprod(x, 0),
    "cumsum": lambda xp, x, i: xp.cumsum(x, 1),
    "delete": lambda xp, x, i: xp.delete(x, 1, 1),
    "diagonal": lambda xp, x, i: xp.diagonal(x, 1, 0, 1),
    "diff": lambda xp, x, i: xp.diff(x, 2, 1),
    "expand_dims": lambda xp, x, i: xp.expand_dims(x, 0),
    "eye": lambda xp, x, i: xp.eye(3, 4, 1, xp.int32),
    "flip": lambda xp, x, i: xp.flip(x, 1),
    "full": lambda xp, x, i: xp.full((2, 3), 7, xp.float32),
    "full_like": lambda xp, x, i: xp.full_like(x, 7, xp.float32),
    "insert": lambda xp, x, i: xp.insert(x, 1, 9.0, 1),
    "linspace": lambda xp, x, i: xp.linspace(0, 1, 5, False),
    "logspace": lambda xp, x, i: xp.logspace(0, 2, 3, False, 2.0),
    "max": lambda xp, x, i: xp.max(x, 0),
    "mean": lambda xp, x, i: xp.mean(x, 0),
    "median": lambda xp, x, i: xp.median(x, 1),
    "min": lambda xp, x, i: xp.min(x, 0),
    "moveaxis": lambda xp, x, i: xp.moveaxis(x, 0, 1),
    "nanargmax": lambda xp, x, i: xp.nanargmax(x, 0),
    "nancumsum": lambda xp, x, i: xp.nancumsum(x, 0),
    "nanmax": lambda xp, x, i: xp.nanmax(x, 0),
    "nanmean": lambda xp, x, i: xp.nanmean(x, 0),
    "nanmedian": lambda xp, x, i: xp.nanmedian(x, 0),
    "nanprod": lambda xp, x, i: xp.nanprod(x, 0),
    "nanquantile": lambda xp, x, i: xp.nanquantile(x, 0.25, 1),
    "nanstd": lambda xp, x, i: xp.nanstd(x, 0),
    "nansum": lambda xp, x, i: xp.nansum(x, 0),
    "nanvar": lambda xp, x, i: xp.nanvar(x, 0),
    "ones": lambda xp, x, i: xp.ones((2,), xp.int32),
    "ones_like": lambda xp, x, i: xp.ones_like(x, xp.int32),
    "percentile": lambda xp, x, i: xp.percentile(x, 25, 1),
    "prod": lambda xp, x, i: xp.prod(x, 1),
    "ptp": lambda xp, x, i: xp.ptp(x, 0),
    "quantile": lambda xp, x, i: xp.quantile(x, 0.25, 1),
    "repeat": lambda xp, x, i: xp.repeat(x, 2, 0),
    "reshape": lambda xp, x, i: xp.reshape(x, (4, 2)),
    "roll": lambda xp, x, i: xp.roll(x, 1, 0),
    "rot90": lambda xp, x, i: xp.rot90(x, 1, (1, 0)),
    "searchsorted": lambda xp, x, i: xp.searchsorted(xp.asarray([0.0, 1.0, 2.0]), x, "right"),
    "sort": lambda xp, x, i: xp.sort(x, 0),
    "split": lambda xp, x, i: xp.split(x, 2, 1),  # PyTorch's sizes; of 4 columns the same as NumPy's number of pieces
    "squeeze": lambda xp, x, i: xp.squeeze(x[:1], 0),
    "stack": lambda xp, x, i: xp.stack([x, x], 1),
    "std": lambda xp, x, i: xp.std(x, 0),
    "sum": lambda xp, x, i: xp.sum(x, 0),
    "swapaxes": lambda xp, x, i: xp.swapaxes(x, 0, 1),
    "take": lambda xp, x, i: xp.take(x, i, 0),
    "take_along_axis": lambda xp, x, i: xp.take_along_axis(x, xp.argsort(x, 1), 1),
    "tensordot": lambda xp, x, i: xp.tensordot(x, x, 2),
    "tile": lambda xp, x, i: xp.tile(x, (2, 1)),
    "transpose": lambda xp, x, i: xp.transpose(x, (1, 0)),
    "tril": lambda xp, x, i: xp.tril(x, 1),
    "triu": lambda xp, x, i: xp.triu(x, -1),
    "unstack": lambda xp, x, i: xp.unstack(x),
    "var": lambda xp, x, i: xp.var(x, 0),
    "where": lambda xp, x, i: xp.where(x > 0, x, 0.0),
    "zeros": lambda xp, x, i: xp.zeros((2, 3), xp.float32),
    "zeros_like": lambda xp, x, i: xp.zeros_like(x, xp.float32),
}  # fmt: skip


def results(found: Any) -> list[np.ndarray]:
    found = list(found) if isinstance(found, list | tuple) else [found]
    return [np.asarray(part.numpy() if isinstance(part, hm.Tensor) else part) for part in found]


@pytest.mark.parametrize("name", CALLS)
def test_numpys_positions(name: str) -> None:
    call, x, i = CALLS[name], hm.asarray(X), hm.asarray(INTEGERS)
    wanted = results(call(np, X, INTEGERS))
    for found in (results(call(hm, x, i)), results(hm.trace(lambda x, i: call(hm, x, i))(x, i))):
        assert [part.shape for part in found] == [part.shape for part in wanted]
        for part, expected in zip(found, wanted, strict=True):
            assert part.dtype.kind == expected.dtype.kind
            np.testing.assert_allclose(part, expected, rtol=1e-6 if part.dtype == np.float32 else 1e-14)


def test_axes_are_positional_where_numpy_has_them_second_or_third() -> None:
    """Every function that NumPy has under the same name takes `axis` at the same place."""
    for name in hm.__all__:
        theirs, ours = getattr(np, name, None), getattr(hm, name)
        if not inspect.isfunction(ours) or theirs is None or isinstance(theirs, np.ufunc | type):
            continue
        try:
            parameters = list(inspect.signature(theirs).parameters.values())
        except ValueError:  # NumPy's functions in C that have no signature to read
            continue
        mine = inspect.signature(ours).parameters
        for place, parameter in enumerate(parameters):
            if parameter.name == "axis" and "axis" in mine and parameter.kind is not parameter.KEYWORD_ONLY:
                if name == "cross":  # NumPy's fifth, behind three that the array API lacks
                    continue
                assert mine["axis"].kind is not parameter.KEYWORD_ONLY, name
                assert list(mine).index("axis") == place, name


def test_the_second_argument_of_the_repeat_method_is_ambiguous() -> None:
    """PyTorch tiles with `x.repeat(2, 1)`, NumPy repeats along axis 1: several numbers are PyTorch's, and axis 0 is an
    error that says so."""
    x = hm.asarray(X)
    assert x.repeat(2, axis=1).shape == (2, 8)
    assert x.repeat(2, 1).shape == (4, 4)
    with pytest.raises(hm.ArgumentError, match="axis=0"):
        x.repeat(2, 0)

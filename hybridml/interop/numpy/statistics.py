"""Averages, quantiles, covariances and histograms, with NumPy's parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import arrays as xp
from ...arrays.shaping.manipulation import _tensor
from .table import implements, same


def _cast(x: Any, dtype: Any) -> Any:
    return x if x is None or dtype is None else xp.astype(_tensor(x), dtype, copy=False)


@implements(np.cov)
def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, fweights: Any = None,
    aweights: Any = None, *, dtype: Any = None,
) -> Any:  # fmt: skip
    less = (0 if bias else 1) if ddof is None else ddof
    return xp.cov(
        _cast(m, dtype), _cast(y, dtype), rowvar=rowvar, correction=less, fweights=fweights, aweights=aweights
    )


@implements(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    return xp.corrcoef(_cast(x, dtype), _cast(y, dtype), rowvar=rowvar)


@implements(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Any:
    return xp.bincount(_tensor(x), weights=None if weights is None else _tensor(weights), minlength=minlength)


same(np, "quantile nanquantile percentile nanpercentile median nanmedian average")
same(np, "histogram histogram2d histogram_bin_edges histogramdd")

"""The array namespace: the rows of the operation table, and functions that are compositions of them.

Whatever stands above it imports it as such, `from .. import arrays as xp`, and not the public face `hybridml`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hybridml_compiler.dtypes import bfloat16

from .. import ops
from . import (
    assembly,
    assigning,
    creation,
    cumulative,
    einstein,
    elementwise,
    grid,
    inspection,
    manipulation,
    missing,
    namespace,
    numerical,
    padding,
    products,
    quantiles,
    reducing,
    repeating,
    scattering,
    segments,
    selecting,
    sets,
    sorting,
    statistics,
    uniques,
)

# Rows first, then the functions that give some of them their public signature.
names: dict[str, Any] = dict(ops.names)
for _module in (
    creation, inspection, manipulation, namespace, padding, selecting, assembly, assigning, elementwise, missing,
    numerical, quantiles, sets, statistics, cumulative, einstein, grid, products, reducing, scattering,
    segments, sorting, uniques, repeating,
):  # fmt: skip
    names.update({name: getattr(_module, name) for name in _module.__all__})
globals().update(names)

__all__ = [*names, "bfloat16"]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...

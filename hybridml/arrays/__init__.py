"""The array namespace: the rows of the operation table, and functions that are compositions of them.

Whatever stands above it imports it as such, `from .. import arrays as xp`, and not the public face `hybridml`.

creation.py     tensors from data and from nothing
shape_dtype.py  `ShapeDtypeStruct`: the type of a tensor, without one
data_types.py   data types, constants and how they combine
inspection.py   limits of data types, and what the namespace says of itself
elementwise.py  elementwise functions that are compositions of rows
methods.py      Tensor methods that are more than a row
numerical.py    gradients, integrals and interpolation of sampled functions
spectral.py     spectra over time: `stft`, `istft`, windows
contracting/    products of matrices and `einsum`
indexing/       reading and writing of parts
reducing/       sums, statistics, quantiles, running sums
searching/      sorting, searching, sets, unique elements
shaping/        reshaping, joining, splitting, padding
"""

from __future__ import annotations

from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.ops.table import ALIASES

from ..core import ops
from ..core.spellings import accept
from . import creation, data_types, elementwise, inspection, methods, numerical
from .contracting import einstein, products
from .indexing import assigning, getitem, scattering, segments, selecting
from .reducing import cumulative, missing, quantiles, reductions, statistics
from .searching import orders, sets, uniques
from .shaping import assembly, grid, manipulation, padding, repeating

# What users may use: public rows first, then the functions that give some of them their public signature.
names: dict[str, Any] = {name: ops.names[name] for name in ops.public}
for _module in (
    creation, inspection, manipulation, data_types, padding, selecting, assembly, assigning, elementwise, missing,
    numerical, quantiles, sets, statistics, cumulative, einstein, grid, products, reductions, scattering, segments,
    orders, uniques, repeating,
):  # fmt: skip
    names.update({name: getattr(_module, name) for name in _module.__all__})
# Another name of a row is one of the function that takes its place.
names |= {other: names[row] for other, row in ALIASES.items() if names.get(other) is ops.names[row] and row in names}
accept(names, names)
globals().update(ops.names | names)

__all__ = [*(ops.names | names), "bfloat16", "getitem", "methods"]


def __getattr__(name: str) -> Any:
    if name == "bfloat16":  # its library takes 10 ms to import
        return dtypes.bfloat16
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Shapes: reshaping, joining, splitting, repeating, padding, windows, grids.

manipulation.py  squeeze, stack, split, moveaxis, ...
assembly.py      tensors put together, taken apart and rotated: `block`, `insert`, `rot90`, `diag`, ...
repeating.py     `repeat`
padding.py       `pad` with NumPy's modes
grid.py          indices as data: triangles, flattened shapes, `select`, `choose`
windows.py       windows for spectra
"""

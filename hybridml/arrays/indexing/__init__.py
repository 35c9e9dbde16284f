"""Reading and writing of parts: keys, masks, index arrays, scattering, segments.

index_plan.py  the meaning of a key: slices, a reshape, arrays of positions
getitem.py     `x[key]` and `x[key] = value`
at.py          functional updates: `x.at[key].set(value)`
assigning.py   copies with a part replaced, by PyTorch's names
scattering.py  gathers and scatters, by PyTorch's names
segments.py    reductions over segments
sparse_rows.py  rows of a table whose gradient is sparse
selecting.py   positions where a condition holds
"""

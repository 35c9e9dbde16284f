"""Native routines of rows that have no expression: linear algebra ([Note: LAPACK]), orders and searches
([Note: Sorting]).

symbols.py       addresses of routines, which are compiled when they are first asked for
batches_ir.py    a routine over a batch, and its memory
matrices_ir.py   one matrix: Cholesky, systems, inverses, determinants, LU
qr_ir.py         one matrix: QR by blocks of reflections
fortran_ir.py    one matrix: singular values and eigenvalues, by LAPACK
extremes_ir.py   one row: its extreme elements
orders_ir.py     one line: its order, by digits
searches_ir.py   values: their places in a sorted row
positions_ir.py  a mask: where it is true
elements.py      types of elements, and keys in their order
kernels_ir.py    factors, triangles, vectors of columns
"""

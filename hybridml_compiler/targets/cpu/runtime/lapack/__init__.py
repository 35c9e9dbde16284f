"""Linear algebra as native routines ([Note: LAPACK]).

symbols.py      addresses of routines, which are compiled when they are first asked for
batches_ir.py   a routine over a batch, and its memory
routines_ir.py  one matrix: Cholesky, systems, inverses, determinants, LU
qr_ir.py        one matrix: QR by blocks of reflections
fortran_ir.py   one matrix: singular values and eigenvalues, by LAPACK
kernels_ir.py   factors, triangles, vectors of columns
"""

"""Linear algebra as native routines ([Note: LAPACK]): `symbols.py` has their addresses.

batches_ir.py     a routine over a batch
  |-- routines_ir.py  one matrix: Cholesky, systems, inverses, determinants, LU
  |-- qr_ir.py        one matrix: QR by blocks of reflections
  |-- fortran_ir.py   one matrix: LAPACK's own routines
        kernels_ir.py   factors, triangles, vectors of columns
"""

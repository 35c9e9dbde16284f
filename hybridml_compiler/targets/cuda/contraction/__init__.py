"""Kernels of CUDA C for library calls: matrix products with their epilogues, in tiles that threads of a block share."""

"""Operations and kernels of a user's own.

op.py               `hm.op`: an operation from a function of NumPy arrays and its rules
kernel.py           `hm.kernel`, and elementwise operations from functions of scalars
vectorize.py        `hm.vectorize`: functions of numbers or of small arrays over the elements of larger ones
cores.py            the axes of such arrays, from a signature
array_kernel.py     operations over whole arrays that numba compiles
operation.py        a function whose row is made anew where what it reads has changed
columns.py          names, inputs and parameters of rows, from signatures
row_of_function.py  rows whose meaning is a Python function, and the checks of what it returns
source.py           the source of a function, found and parsed
scalar_body.py      the source of a function of scalars, and what it means for all elements at once
scalar_loops.py     loops in it, of which each element takes its own number of steps
scalar_graph.py     such a function as a graph, which is the body of a kernel
cuda_code.py        code for a GPU as the column of a row: CUDA C, kernels of CuPy and numba.cuda
cuda_kernel.py      operations that are kernels of a GPU alone
numba_code.py       native functions by numba, in the form that programs call
code_digest.py      digests of functions, by which programs are kept
"""

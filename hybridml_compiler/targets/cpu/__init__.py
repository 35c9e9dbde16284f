"""The CPU: LLVM emits the kernels of a plan, threads share them, and one native function runs the program.

spec.py        the CPU that code is generated for, which everything here is given
kernels/       how products and convolutions are cut into tiles and blocks
llvm/          kernels and programs as LLVM IR
runtime/       LLVM IR to running code: compiler, linker, threads, the library of matrix products
python_entry/  the native function that a call from Python ends in
eager/         compiled kernels of single operations
executable.py  a compiled graph, as one native function over data pointers
"""

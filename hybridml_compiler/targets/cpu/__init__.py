"""The CPU: LLVM emits the kernels of a plan, threads share them, and one native function runs the program.

spec.py          the CPU that code is generated for, which everything here is given
target.py        a CPU as a target: the door of this folder
capabilities.py  its abilities that the schedule asks for
structs.py       structs in memory, as native code and Python both see them
kernels/         how products and convolutions are cut into tiles and blocks
llvm/            kernels and programs as LLVM IR
code.py          the code of one program, compiled while it is planned
program.py       a compiled program on disk
arenas.py        memory for what programs compute on the way
executable.py    a compiled graph, as one native function over data pointers
runtime/         LLVM IR to running code: compiler, linker, threads, the library of matrix products
python_entry/    the native function that a call from Python ends in
eager_calls/     operators, keys and updates of small tensors as native methods
eager/           compiled kernels of single operations
"""

"""The CPU: LLVM emits the kernels of a plan, threads share them, and one native function runs the program.

target.py        the CPU behind the protocol of targets
capabilities.py  its answers to what the schedule asks
code.py          the code of one program, compiled while others are being planned
program.py       a compiled program on disk, and loaded
executable.py    a compiled graph, as one native function over data pointers
kernels/         how products and convolutions are cut into tiles and blocks
llvm/            kernels and programs as LLVM IR
runtime/         LLVM IR to running code: compiler, linker, threads, the library of matrix products
python_entry/    the native function that a call from Python ends in
eager/           compiled kernels of single operations
"""

"""The way from LLVM IR to running code, with nothing of graphs or tensors in it.

    text --jit.compile_cached--> object bytes --loader.load--> Library --entry.build_entry--> a Python callable
              |                                      ^
              cache (disk, content-addressed)        imports: threads.symbols(), blas.gemm_symbols()

`jit` compiles by the functions of `llvm_library`, `linking` links and loads, `cache` keeps object code between
processes, `threads` is the fork-join pool that generated code calls, `blas` finds the matrix product already in the
process, `routines` are linear algebra over it and extreme elements of rows, and `python_entry` emits the native
function that a user calls.
"""

"""From LLVM IR to running code, with nothing of graphs or tensors in it.

    text --jit.compile_cached--> object bytes --jit.load--> Library --entry.build_entry--> a Python callable
              |                                   ^
              cache (disk, content-addressed)     imports: threads.symbols(), blas.gemm_symbols()

`jit` compiles and links, `cache` keeps object code between processes, `threads` is the fork-join pool that generated
code calls, `blas` finds the matrix product already in the process, `layout` measures CPython's structs and `entry`
emits the native function a user calls.
"""
